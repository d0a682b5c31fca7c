import numpy as np
import pytest

from pipelines.position.distance import Distance
from pipelines.position.travel import travel

SECOND = 10**9
END_S = 1_000.0


def speed_mps(t_s):
    return 20.0 + 10.0 * np.sin(t_s / 60.0)


def way_m(t_s):
    return 20.0 * t_s + 600.0 * (1.0 - np.cos(t_s / 60.0))


def wheel(t_s=None, *, diameter=0.99, slip_m=0.0):
    """A wheel that counts `1 / diameter` of the way."""
    t_s = np.arange(0.0, END_S, 0.1) if t_s is None else t_s
    return seen(t_s, np.floor((way_m(t_s) + slip_m) / diameter / 0.03) * 0.03)


def sensor(t_s=None, *, noise=0.03, scale=1.002, rate_hz=20.0, seed=0):
    """A speed sensor whose distance wanders by `noise` metres per square root of a second."""
    t_s = np.arange(0.0, END_S, 1.0 / rate_hz) if t_s is None else t_s
    step_m = np.random.default_rng(seed).normal(0.0, noise * np.sqrt(np.diff(t_s, prepend=t_s[0])))
    return seen(t_s, scale * way_m(t_s) + np.cumsum(step_m))


def seen(t_s, distance_m):
    return Distance(
        t_ns_T=np.rint(t_s * SECOND).astype(np.int64),
        distance_m_T=distance_m,
        is_counted_I=np.diff(t_s) < 3.5 * np.median(np.diff(t_s)),
    )


def counted(distance):
    """The same with gaps in which the pulses were counted all the same."""
    return Distance(
        t_ns_T=distance.t_ns_T,
        distance_m_T=distance.distance_m_T,
        is_counted_I=np.ones(len(distance.t_ns_T) - 1, dtype=bool),
    )


def without(t_s, start_s, stop_s):
    return t_s[(t_s <= start_s) | (t_s >= stop_s)]


def follow(wheels, speeds):
    return travel(wheels, speeds, first_ns=0, last_ns=round((END_S - 0.2) * SECOND))


def error_m(travelled, *, diameter=0.99):
    return travelled.distance_m_E[:-2] - way_m(travelled.t_ns_E[:-2] * 1e-9) / diameter


T_S = np.arange(0.0, END_S, 0.1)
SPIN_M = np.interp(T_S, [300.0, 306.0], [0.0, 25.0])


def test_a_wheel_that_rolls_is_believed():
    travelled = follow(wheel(), [sensor()])

    assert travelled.is_rolling_C[:-2].all()
    assert travelled.slips == ()
    assert np.abs(error_m(travelled)).max() < 0.05


def test_the_other_speed_is_used_where_the_wheel_slips():
    travelled = follow(wheel(slip_m=SPIN_M), [sensor()])

    (slip,) = travelled.slips
    assert (slip.start_ns / SECOND, slip.stop_ns / SECOND) == pytest.approx((300.0, 306.0), abs=0.7)
    assert slip.excess_m == pytest.approx(25.0 / 0.99, abs=0.3)
    assert np.abs(error_m(travelled)).max() < 0.4
    noise_m = np.sqrt(travelled.noise_m2_C[2_900:3_200].sum())
    assert 0.03 * np.sqrt(6.0) * 0.7 < noise_m < 0.03 * np.sqrt(12.0) * 1.5


def test_a_slip_and_the_slide_that_follows_it_are_two():
    slip_m = np.interp(T_S, [300.0, 303.0, 304.5, 307.0], [0.0, 12.0, 12.0, 4.0])

    travelled = follow(wheel(slip_m=slip_m), [sensor()])

    slip, slide = travelled.slips
    assert (slip.kind, slide.kind) == ("slip", "slide")
    assert (slip.excess_m, slide.excess_m) == pytest.approx((12.0 / 0.99, -8.0 / 0.99), abs=0.4)
    assert (slip.stop_ns / SECOND, slide.start_ns / SECOND) == pytest.approx((303.0, 304.5), abs=0.4)


@pytest.mark.parametrize("slip_mps", [0.3, 1.0])
def test_even_a_gentle_slide_is_seen_by_a_radar(slip_mps):
    slide_m = -np.interp(T_S, [300.0, 306.0], [0.0, 6.0 * slip_mps])

    travelled = follow(wheel(slip_m=slide_m), [sensor()])

    assert [slip.kind for slip in travelled.slips] == ["slide"]
    assert np.abs(error_m(travelled)).max() < 0.4


def test_a_satellite_speed_of_1_hz_shows_slip_too():
    travelled = follow(wheel(slip_m=SPIN_M), [sensor(rate_hz=1.0, noise=0.08, scale=1.0)])

    (slip,) = travelled.slips
    assert (slip.start_ns / SECOND, slip.stop_ns / SECOND) == pytest.approx((300.0, 306.0), abs=2.0)
    assert np.abs(error_m(travelled)).max() < 1.0


def test_without_another_speed_the_acceleration_shows_slip():
    slip_m = np.interp(T_S, [300.0, 303.0, 306.0], [0.0, 9.0, 18.0])  # 3 m/s from one row to the next

    travelled = follow(wheel(slip_m=slip_m), [])

    (slip,) = travelled.slips
    assert slip.kind == "slip"
    assert np.abs(error_m(travelled)).max() < 2.0
    assert np.sqrt(travelled.noise_m2_C.sum()) > 1.0


def test_a_sensor_that_the_others_contradict_is_not_believed():
    frozen = sensor()
    frozen.distance_m_T[8_000:] -= np.interp(np.arange(8_000, 20_000), [8_000, 8_600], [0.0, 300.0])

    travelled = follow(wheel(), [frozen, sensor(rate_hz=1.0, noise=0.08, scale=1.0, seed=1)])

    assert travelled.slips == ()
    assert np.abs(error_m(travelled)).max() < 0.5


def test_a_gap_is_filled_by_the_other_speed_and_ends_where_the_wheel_does():
    gap_s = without(T_S, 400.0, 480.0)

    travelled = follow(counted(wheel(gap_s)), [sensor()])

    assert np.abs(error_m(travelled)).max() < 0.5
    assert abs(error_m(travelled)[-1]) < 0.06
    assert not travelled.is_rolling_C[4_010:4_790].any()


def test_slip_within_a_gap_is_not_stretched_over_it():
    gap_s = without(T_S, 280.0, 340.0)

    travelled = follow(counted(wheel(gap_s, slip_m=np.interp(gap_s, [300.0, 306.0], [0.0, 25.0]))), [sensor()])

    assert np.abs(error_m(travelled)).max() < 1.0


def test_a_gap_that_nobody_saw_is_bridged_with_doubt():
    gap_s = without(T_S, 400.0, 430.0)

    travelled = follow(seen(gap_s, wheel(gap_s).distance_m_T), [])

    sigma_m = np.sqrt(travelled.noise_m2_C.sum())
    assert 5.0 < sigma_m < 100.0
    filled_m = np.interp([400.0, 430.0], travelled.t_ns_E * 1e-9, travelled.distance_m_E)
    assert np.diff(filled_m)[0] == pytest.approx((way_m(430.0) - way_m(400.0)) / 0.99, abs=3.0 * sigma_m)


def test_without_a_wheel_the_sensor_with_the_most_readings_leads():
    travelled = follow(
        None, [sensor(rate_hz=1.0, noise=0.08, scale=1.0), sensor(without(T_S, 500.0, 520.0), noise=0.0)]
    )

    assert not travelled.is_wheel_leading
    assert not travelled.is_rolling_C.any()
    assert np.abs(error_m(travelled, diameter=1 / 1.002)).max() < 1.0


def test_without_anything_the_train_may_be_anywhere():
    travelled = follow(None, [])

    assert (travelled.distance_m_E == 0.0).all()
    assert np.sqrt(travelled.noise_m2_C[:600].sum()) > 100.0


def test_a_wheel_that_stands_while_the_train_moves_does_not_lead():
    standing = seen(T_S, np.zeros(len(T_S)))

    assert not follow(standing, [sensor()]).is_wheel_leading
    assert follow(standing, []).is_wheel_leading


def test_a_speed_sensor_that_cannot_read_less_than_zero_does_not_move_a_standing_train():
    t_s = np.arange(0.0, END_S, 0.05)
    read_mps = np.maximum(np.random.default_rng(0).normal(0.0, 0.12, len(t_s)), 0.0)

    travelled = follow(None, [seen(t_s, np.cumsum(read_mps * 0.05))])

    assert travelled.distance_m_E[-1] < 0.1


def test_a_recording_of_one_instant_has_no_way():
    travelled = travel(None, [], first_ns=7 * SECOND, last_ns=7 * SECOND)

    assert travelled.distance_at(np.array([7 * SECOND])).tolist() == [0.0]
