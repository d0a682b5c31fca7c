import numpy as np
import pytest

from pipelines.clocks.drift import smooth_drift


def smooth(step, measured, sigma, *, level_noise=0.0, slope_noise=0.0, prior=10.0):
    n = len(step)
    return smooth_drift(
        np.asarray(step, dtype=float),
        np.asarray(measured, dtype=float),
        np.full(n, float(sigma)),
        np.full(n, float(level_noise)),
        np.full(n, float(slope_noise)),
        prior,
    )


def test_a_straight_line_is_recovered_with_its_slope():
    at = np.cumsum(np.r_[0.0, np.random.default_rng(0).uniform(0.5, 2.0, size=200)])
    measured = 3.0 + 0.25 * at + np.random.default_rng(1).normal(0.0, 0.1, size=201)

    drift = smooth(np.diff(at, prepend=0.0), measured, 0.1)

    assert np.abs(drift.level_K - (3.0 + 0.25 * at)).max() < 0.05
    assert drift.slope_K[0] == pytest.approx(0.25, abs=0.001)


def test_without_noise_of_the_slope_it_equals_the_weighted_least_squares_line():
    random = np.random.default_rng(2)
    at = np.arange(30.0)
    measured = random.normal(size=30)

    drift = smooth(np.r_[0.0, np.ones(29)], measured, 1.0, prior=1e4)

    assert drift.level_K == pytest.approx(np.polyval(np.polyfit(at, measured, 1), at), abs=1e-4)


def test_knots_before_and_after_the_measurements_follow_the_slope():
    measured = np.r_[np.nan, np.nan, np.arange(10.0), np.nan, np.nan]

    drift = smooth(np.ones(14), measured, 1e-3)

    assert drift.level_K == pytest.approx(np.arange(-2.0, 12.0), abs=1e-2)
    assert drift.level_sigma_K[0] > drift.level_sigma_K[1] > drift.level_sigma_K[2]


def test_one_wild_measurement_hardly_moves_the_level():
    measured = np.zeros(50)
    measured[25] = 1_000.0

    drift = smooth(np.ones(50), measured, 0.1, level_noise=1e-6)

    assert np.flatnonzero(drift.is_gated_K).tolist() == [25]
    assert np.abs(drift.level_K).max() < 1.0


def test_the_stated_uncertainty_covers_the_error():
    covered = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        slope = np.cumsum(random.normal(0.0, 0.02, size=100))
        level = np.cumsum(np.r_[0.0, slope[:-1]])
        drift = smooth(np.ones(100), level + random.normal(size=100), 1.0, slope_noise=0.02**2)
        covered.append(np.abs(drift.level_K - level) < 2 * drift.level_sigma_K)

    assert 0.90 < np.mean(covered) < 0.99
