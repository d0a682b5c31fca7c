import numpy as np
import pytest

from pipelines.clocks.signal_sync import Reference, fit_signal

START_NS = 1_767_600_000_000_000_000
CELL_NS = 100_000_000


def drive(t_s, seed=0):
    """Distance and speed of a train that stops now and then."""
    grid_s = np.arange(-20.0, t_s[-1] + 20.0, 0.01)
    slow, fast = 50.0 + 15.0 * np.random.default_rng(seed).random(2)
    speed_mps = np.clip(14.0 + 16.0 * np.sin(grid_s / slow) + 6.0 * np.sin(grid_s / fast * 4.3), 0.0, None)
    distance_m = (np.cumsum(speed_mps) - speed_mps / 2) * 0.01
    return np.interp(t_s, grid_s, distance_m), np.interp(t_s, grid_s, speed_mps)


def reference(duration_s=1_200.0, *, seed=0):
    t_s = np.arange(0.0, duration_s, CELL_NS * 1e-9)
    distance_m_E = np.floor(drive(t_s, seed)[0] / 0.03) * 0.03
    return Reference(START_NS, CELL_NS, distance_m_E, np.ones(len(t_s) - 1, dtype=bool))


def radar(*, offset_s, drift_ppm, scale=1.002, duration_s=1_200.0, seed=0, noise=0):
    t_s = np.arange(0.0, duration_s, 0.05)
    utc_ns = START_NS + (t_s * 1e9).astype(np.int64)
    dev_ns = utc_ns + round(offset_s * 1e9) + (t_s * drift_ppm * 1e3).astype(np.int64)
    return utc_ns, dev_ns, drive(t_s, seed)[1] * scale + np.random.default_rng(noise).normal(0.0, 0.12, len(t_s))


@pytest.mark.parametrize("drift_ppm", [-5_000.0, 80.0, 3_000.0])
@pytest.mark.parametrize("offset_s", [-1.93, 0.0, 400.0, -START_NS * 1e-9 + 77.0, 4e9])
def test_a_clock_is_tied_within_milliseconds_whatever_it_counts_from(offset_s, drift_ppm):
    utc_ns, dev_ns, speed_mps = radar(offset_s=offset_s, drift_ppm=drift_ppm)

    fitted = fit_signal("radar", dev_ns, speed_mps, reference())

    mapped_ns, _ = fitted.to_utc(dev_ns)
    assert np.abs(mapped_ns - utc_ns).max() < 8e6
    assert fitted.drift_ppm == pytest.approx(-drift_ppm, abs=30.0)


def test_a_map_begins_and_ends_with_the_readings_to_the_nanosecond():
    _, dev_ns, speed_mps = radar(offset_s=1e-9, drift_ppm=0.0)

    (segment,) = fit_signal("radar", dev_ns, speed_mps, reference()).segments

    assert (segment.dev_ns_K[1], segment.dev_ns_K[-2]) == (dev_ns[0], dev_ns[-1])


def test_the_error_is_as_large_as_its_sigma_says():
    ratios = []
    for noise in range(20):
        utc_ns, dev_ns, speed_mps = radar(offset_s=0.5, drift_ppm=40.0, noise=noise)
        mapped_ns, sigma_ns = fit_signal("radar", dev_ns, speed_mps, reference()).to_utc(dev_ns)
        ratios.append(np.abs(mapped_ns - utc_ns)[::500] / sigma_ns[::500])

    assert 0.9 < np.mean(np.concatenate(ratios) < 2.0) <= 1.0
    assert np.sqrt(np.mean(np.square(ratios))) > 0.3


def test_a_sensor_that_covers_a_part_of_the_trip_is_tied():
    utc_ns, dev_ns, speed_mps = radar(offset_s=12.0, drift_ppm=50.0)
    part = slice(9_000, 19_000)

    fitted = fit_signal("radar", dev_ns[part], speed_mps[part], reference())

    assert np.abs(fitted.to_utc(dev_ns[part])[0] - utc_ns[part]).max() < 15e6


def test_wheels_that_are_known_to_slip_do_not_pull_the_clock():
    utc_ns, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=-50.0)
    rolled = reference()
    excess_m = np.zeros(len(rolled.distance_m_E))
    excess_m[3_000:3_600] = 0.02  # 0.2 m/s too fast, for a minute: too little for the radar to tell
    is_known_C = rolled.is_known_C.copy()
    is_known_C[2_999:3_600] = False

    fitted = fit_signal("radar", dev_ns, speed_mps, Reference(
        rolled.first_ns, rolled.cell_ns, rolled.distance_m_E + np.cumsum(excess_m), is_known_C
    ))  # fmt: skip

    assert np.abs(fitted.to_utc(dev_ns)[0] - utc_ns).max() < 10e6


def test_wheels_that_slip_unknown_do_not_pull_the_clock_either_if_the_radar_sees_it():
    utc_ns, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=-50.0)
    rolled = reference()
    excess_m = np.zeros(len(rolled.distance_m_E))
    excess_m[3_000:3_050] = 0.4  # 4 m/s too fast, for 5 s
    excess_m[8_000:8_030] = -0.5

    fitted = fit_signal(
        "radar", dev_ns, speed_mps, rolled._replace(distance_m_E=rolled.distance_m_E + np.cumsum(excess_m))
    )

    assert np.abs(fitted.to_utc(dev_ns)[0] - utc_ns).max() < 10e6


def test_a_train_that_stands_ties_nothing():
    _, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=0.0)
    rolled = reference()

    assert (
        fit_signal("radar", dev_ns, np.abs(speed_mps * 0.0), rolled._replace(distance_m_E=rolled.distance_m_E * 0.0))
        is None
    )


def test_a_train_at_one_speed_ties_nothing():
    _, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=0.0)
    rolled = reference()
    distance_m_E = 2.5 * np.arange(len(rolled.distance_m_E))

    assert fit_signal("radar", dev_ns, 25.0 + speed_mps * 0.0, rolled._replace(distance_m_E=distance_m_E)) is None


def test_another_train_ties_nothing():
    _, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=0.0, seed=5)

    assert fit_signal("radar", dev_ns, speed_mps, reference(seed=1)) is None


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_too_few_readings_tie_nothing(rows):
    _, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=0.0)

    assert fit_signal("radar", dev_ns[:rows], speed_mps[:rows], reference()) is None


def test_a_reference_that_is_never_known_ties_nothing():
    _, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=0.0)
    rolled = reference()

    assert fit_signal("radar", dev_ns, speed_mps, rolled._replace(is_known_C=rolled.is_known_C & False)) is None
