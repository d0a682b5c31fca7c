import operator
from functools import partial

import numpy as np
import pytest

from pipelines.clocks.skew import skew_of

NS = 10**9
START_NS = 1_767_589_200 * NS


def drive(seed, duration_s=1200.0):
    """Distance of a train that accelerates, cruises and brakes at random: a function of the time since the start."""
    rng = np.random.default_rng(seed)
    grid_s = np.arange(-100.0, duration_s + 100.0, 0.1)
    wanted_mps = np.repeat(rng.uniform(5.0, 40.0, size=len(grid_s) // 600 + 1), 600)[: len(grid_s)]
    speed_mps = np.zeros(len(grid_s))
    for i in range(1, len(grid_s)):
        speed_mps[i] = speed_mps[i - 1] + np.clip(wanted_mps[i] - speed_mps[i - 1], -0.08, 0.05)
    distance_m = np.cumsum(speed_mps) * 0.1
    return lambda at_s: np.interp(at_s, grid_s, distance_m)


def odometer(distance, *, scale=1.0, period_s=0.1):
    since_s = np.arange(0.0, 1200.0, period_s)
    return START_NS + np.rint(since_s * 1e9).astype(np.int64), scale * distance(since_s)


def speedometer(distance, rng, *, late_s=0.0, period_s=1.0, noise_mps=0.1):
    since_s = np.arange(0.0, 1200.0, period_s)
    speed_mps = (distance(since_s + 0.05) - distance(since_s - 0.05)) / 0.1 + rng.normal(0, noise_mps, len(since_s))
    return START_NS + np.rint((since_s + late_s) * 1e9).astype(np.int64), speed_mps


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("late_s", [0.0, 0.3, -2.35, 18.0, -37.0])
def test_an_offset_is_found_with_its_sign_within_its_error(seed, late_s):
    rng, distance = np.random.default_rng(seed), drive(seed)

    found = skew_of(*speedometer(distance, rng, late_s=late_s), *odometer(distance, scale=1.012))

    assert found is not None
    assert 1e6 < found.sigma_ns < 30e6
    assert abs(found.skew_ns - late_s * 1e9) < 4 * found.sigma_ns


@pytest.mark.parametrize("seed", range(3))
def test_slip_gaps_and_wild_readings_move_it_little(seed):
    rng, distance = np.random.default_rng(seed), drive(seed)
    t_ns, speed_mps = speedometer(distance, rng, late_s=0.3, period_s=0.05)
    speed_mps[rng.choice(len(speed_mps), 200)] = rng.uniform(-100, 100, 200)
    speed_mps[4000:5500] = np.nan
    odo_ns, odo_m = odometer(distance)
    for start in rng.choice(len(odo_m) - 200, 6):
        odo_m[start:] += np.interp(np.arange(len(odo_m) - start), [0, 100], [0.0, 15.0])
    kept = np.r_[0:3000, 3600 : len(odo_m)]

    found = skew_of(t_ns, speed_mps, odo_ns[kept], odo_m[kept])

    assert found is not None
    assert abs(found.skew_ns * 1e-9 - 0.3) < 0.1


def test_two_trains_have_no_skew():
    found = skew_of(*speedometer(drive(1), np.random.default_rng(0)), *odometer(drive(2)))

    assert found is None


def test_a_train_that_stands_or_rolls_evenly_tells_nothing():
    rng = np.random.default_rng(0)
    for speed_mps in (0.0, 20.0):
        distance = partial(operator.mul, speed_mps)

        assert skew_of(*speedometer(distance, rng), *odometer(distance)) is None


@pytest.mark.parametrize("num_rows", [0, 1, 5])
def test_too_few_rows_tell_nothing(num_rows):
    rng, distance = np.random.default_rng(0), drive(0)
    t_ns, speed_mps = speedometer(distance, rng)
    odo_ns, odo_m = odometer(distance)

    assert skew_of(t_ns[:num_rows], speed_mps[:num_rows], odo_ns, odo_m) is None
    assert skew_of(t_ns, speed_mps, odo_ns[:num_rows], odo_m[:num_rows]) is None
    assert skew_of(t_ns, np.full(len(t_ns), np.nan), odo_ns, odo_m) is None


def test_a_sensor_that_is_an_hour_off_is_found_as_well():
    rng, distance = np.random.default_rng(0), drive(0)

    found = skew_of(*speedometer(distance, rng, late_s=-3_600.0), *odometer(distance))

    assert found is not None
    assert abs(found.skew_ns + 3_600 * NS) < 4 * found.sigma_ns
