import numpy as np
import pytest

from pipelines.align import Track
from pipelines.channels import BUNDLE_SENSORS
from pipelines.position.distance import Wheel, rolled, travelled, wheel_of

SECOND = 10**9
WHEEL = Wheel(nominal_diameter_m=0.92, pulses_per_rev=100, counter_bits=16)


def speed_mps(t_s):
    return 25.0 + 12.0 * np.sin(t_s / 70.0)


def way_m(t_s):
    return 25.0 * t_s + 840.0 * (1.0 - np.cos(t_s / 70.0))


def odometer(t_s, *, bits=16, at_m=way_m):
    pulses = np.floor(at_m(t_s) / WHEEL.pulse_m) + 60_000
    return Track(
        sensor="odo",
        t_ns_T=np.rint(t_s * SECOND).astype(np.int64),
        values={"pulses": pulses % 2.0**bits},
        channels=BUNDLE_SENSORS["odo"],
        rate_hz=10.0,
    )


def radar(t_s, scale=1.0):
    return Track(
        sensor="dop",
        t_ns_T=np.rint(t_s * SECOND).astype(np.int64),
        values={"speed_mps": scale * speed_mps(t_s)},
        channels=BUNDLE_SENSORS["dop"],
        rate_hz=20.0,
    )


def wheel(bits):
    return Wheel(nominal_diameter_m=0.92, pulses_per_rev=100, counter_bits=bits)


T_S = np.arange(0.0, 600.0, 0.1)
WITH_GAP_S = T_S[(T_S < 200.0) | (T_S > 290.0)]  # 90 s at 31 m/s: 16 bits overflow at least once


@pytest.mark.parametrize("bits", [12, 16, 32])
def test_the_distance_is_counted_through_overflows(bits):
    counted = rolled(odometer(T_S, bits=bits), wheel(bits), [])

    assert counted.distance_m_T[-1] == pytest.approx(way_m(T_S[-1]), abs=0.1)
    assert counted.is_counted_I.all()


@pytest.mark.parametrize("scale", [0.985, 1.0, 1.015])
@pytest.mark.parametrize("gap_s", [60.0, 90.0, 150.0])
def test_overflows_in_a_gap_are_restored_from_another_speed(scale, gap_s):
    t_s = np.r_[np.arange(0.0, 200.0, 0.1), np.arange(200.0 + gap_s, 600.0, 0.1)]

    counted = rolled(odometer(t_s), WHEEL, [travelled(radar(T_S, scale))])

    assert counted.distance_m_T[-1] == pytest.approx(way_m(t_s[-1]), abs=0.1)
    assert counted.is_counted_I.all()


def test_the_speed_sensor_that_saw_most_of_a_gap_tells():
    half_blind = travelled(radar(T_S[(T_S < 210.0) | (T_S > 280.0)], scale=0.8))

    counted = rolled(odometer(WITH_GAP_S), WHEEL, [half_blind, travelled(radar(T_S))])

    assert counted.distance_m_T[-1] == pytest.approx(way_m(T_S[-1]), abs=0.1)


def test_a_long_gap_that_nobody_saw_is_not_counted():
    counted = rolled(odometer(WITH_GAP_S), WHEEL, [])

    assert np.flatnonzero(~counted.is_counted_I).tolist() == [np.flatnonzero(np.diff(WITH_GAP_S) > 1.0)[0]]


def test_a_short_gap_that_nobody_saw_is_counted_by_the_speed_around_it():
    t_s = T_S[(T_S < 200.0) | (T_S > 235.0)]

    counted = rolled(odometer(t_s), WHEEL, [])

    assert counted.distance_m_T[-1] == pytest.approx(way_m(T_S[-1]), abs=0.1)


def test_a_reset_of_the_counter_is_not_distance():
    odo = odometer(T_S, bits=32)
    odo.values["pulses"][3_000:] -= odo.values["pulses"][3_000]

    counted = rolled(odo, wheel(32), [])

    assert np.flatnonzero(~counted.is_counted_I).tolist() == [2_999]
    assert counted.distance_m_T[-1] == pytest.approx(way_m(T_S[-1]) - 0.1 * speed_mps(300.0), abs=0.2)


def test_a_counter_may_run_backwards():
    def back_m(t_s):
        return -way_m(t_s)

    counted = rolled(odometer(T_S, at_m=back_m), WHEEL, [])

    assert counted.distance_m_T[-1] == pytest.approx(-way_m(T_S[-1]), abs=0.1)


def test_absent_readings_are_left_out():
    odo = odometer(T_S)
    odo.values["pulses"][::7] = np.nan

    counted = rolled(odo, WHEEL, [])

    assert counted.distance_m_T[-1] == pytest.approx(way_m(T_S[-2]) - way_m(T_S[1]), abs=0.1)  # both ends are absent


@pytest.mark.parametrize("num_rows", [0, 1])
def test_fewer_than_two_readings_are_no_distance(num_rows):
    assert rolled(odometer(T_S[:num_rows]), WHEEL, []) is None
    assert travelled(radar(T_S[:num_rows])) is None


def test_a_spike_of_a_speed_sensor_is_not_distance():
    dop = radar(T_S)
    dop.values["speed_mps"][2_500] = 100.0

    assert travelled(dop).distance_m_T[-1] == pytest.approx(way_m(T_S[-1]), abs=0.1)


def test_a_gap_of_a_speed_sensor_is_a_guess():
    seen = travelled(radar(WITH_GAP_S))

    start_ns, stop_ns = np.array([100, 250, 590]) * SECOND, np.array([150, 260, 605]) * SECOND
    assert seen.unseen_s(start_ns, stop_ns) == pytest.approx([0.0, 90.2, 5.1], abs=0.01)
    assert not seen.is_counted(190 * SECOND, 300 * SECOND)
    assert seen.is_counted(300 * SECOND, 500 * SECOND)


def test_stamps_that_are_all_equal_are_no_gap_and_no_distance():
    dop = radar(np.full(100, 7.0))

    assert travelled(dop).distance_m_T[-1] == 0.0


def test_a_manifest_that_does_not_describe_the_wheel_gives_none():
    meta = {"wheel_nominal_diameter_m": 0.92, "pulses_per_rev": 100, "counter_bits": 16}

    assert wheel_of(meta) == WHEEL
    for name in meta:
        assert wheel_of({key: value for key, value in meta.items() if key != name}) is None
