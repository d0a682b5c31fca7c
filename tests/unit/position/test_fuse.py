import numpy as np
import pytest

from pipelines.position.fuse import Knots, Noise, fuse, most_probable

NOISE = Noise(fix_m=2.0, fix_lasts_s=30.0, fix_quick_m=0.3, balise_m=0.3, rolling=0.02, scale=0.01)


def lasting(random, since_s, lasts_s):
    values = np.empty(len(since_s))
    values[0] = random.normal()
    for k in range(1, len(since_s)):
        keep = np.exp((since_s[k - 1] - since_s[k]) / lasts_s)
        values[k] = keep * values[k - 1] + np.sqrt(1.0 - keep**2) * random.normal()
    return values


def drawn(seed, noise=NOISE, *, num=1_200):
    """Knots drawn from the very model, and the level that they measure."""
    random = np.random.default_rng(seed)
    since_s = np.arange(float(num))
    travelled_m = 20.0 * since_s
    step_m = np.r_[0.0, random.normal(0.0, noise.rolling, num - 1)]
    level_m = 5_000.0 + random.normal(0.0, noise.scale) * travelled_m + np.cumsum(step_m)
    is_balise = since_s % 60 == 30
    fixes_m = noise.fix_m * lasting(random, since_s, noise.fix_lasts_s) + random.normal(0.0, noise.fix_quick_m, num)
    error_m = np.where(is_balise, random.normal(0.0, noise.balise_m, num), fixes_m)
    line_m = np.where(since_s % 5 == 0, travelled_m + level_m + error_m, np.nan)  # the rest is only asked about
    return knots(since_s, travelled_m, line_m, is_balise), level_m


def knots(since_s, travelled_m, line_m, is_balise):
    return Knots(
        since_s_K=since_s,
        travelled_m_K=travelled_m,
        rolled_s_K=np.diff(since_s, prepend=since_s[0]),
        noise_m2_K=np.zeros(len(since_s)),
        line_m_K=line_m,
        is_balise_K=is_balise,
        dilution_K=np.ones(len(since_s)),
    )


def by_least_squares(k, noise):
    """Level and its standard error as one linear problem, with nothing recursive in it: what the smoother must give."""
    n = len(k.since_s_K)
    unknown = 2 * n + 1  # level at each knot, error of fixes at each knot, scale
    rows, values = [], []

    def add(places, value, sigma):
        row = np.zeros(unknown)
        for place, factor in places:
            row[place] = factor
        rows.append(row / sigma)
        values.append(value / sigma)

    first = np.flatnonzero(~np.isnan(k.line_m_K))[0]
    add([(0, 1.0)], k.line_m_K[first] - k.travelled_m_K[first], 1_000.0)
    add([(2 * n, 1.0)], 0.0, noise.scale)
    add([(n, 1.0)], 0.0, noise.fix_m)
    for i in range(n):
        if i:
            step_m, step_s = k.travelled_m_K[i] - k.travelled_m_K[i - 1], k.since_s_K[i] - k.since_s_K[i - 1]
            walk = np.sqrt(noise.rolling**2 * k.rolled_s_K[i] + k.noise_m2_K[i])
            add([(i, 1.0), (i - 1, -1.0), (2 * n, -step_m)], 0.0, walk)
            keep = np.exp(-step_s / noise.fix_lasts_s)
            add([(n + i, 1.0), (n + i - 1, -keep)], 0.0, noise.fix_m * np.sqrt(1.0 - keep**2))
        if not np.isnan(k.line_m_K[i]):
            own = [] if k.is_balise_K[i] else [(n + i, 1.0)]
            sigma = noise.balise_m if k.is_balise_K[i] else noise.fix_quick_m * k.dilution_K[i]
            add([(i, 1.0), *own], k.line_m_K[i] - k.travelled_m_K[i], sigma)
    design, seen = np.array(rows), np.array(values)
    covariance = np.linalg.inv(design.T @ design)
    solution = covariance @ design.T @ seen
    return solution, np.sqrt(np.diag(covariance))


@pytest.mark.parametrize("seed", range(3))
def test_the_smoother_gives_the_least_squares_solution(seed):
    k, _ = drawn(seed, num=80)

    fused = fuse(k, NOISE)

    solution, sigma = by_least_squares(k, NOISE)
    assert not fused.is_gated_K.any()
    assert fused.level_K == pytest.approx(solution[:80], abs=1e-4)
    assert fused.level_sigma_K == pytest.approx(sigma[:80], rel=1e-4)
    assert fused.scale == pytest.approx(solution[-1], abs=1e-7)
    assert fused.scale_sigma == pytest.approx(sigma[-1], rel=1e-4)


def test_a_shift_of_the_level_shows_where_it_was():
    k, _ = drawn(3)
    k.line_m_K[700:] += 5.0

    fused = fuse(k, NOISE)

    assert np.abs(np.argmax(fused.shift_sigmas_K) - 700) <= 60  # balises come every 60 s
    assert fused.shift_sigmas_K.max() > 6.0
    assert fused.shift_m_K[np.argmax(fused.shift_sigmas_K)] == pytest.approx(5.0, abs=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_level_that_does_not_shift_shows_none(seed):
    fused = fuse(drawn(seed)[0], NOISE)

    assert fused.shift_sigmas_K[1:].max() < 5.0


def test_errors_are_as_large_as_their_sigma_says():
    z = []
    for seed in range(60):
        k, level_m = drawn(seed)
        fused = fuse(k, NOISE)
        z.append(((fused.level_K - level_m) / fused.level_sigma_K)[::100])

    assert np.mean(np.abs(z) < 1.96) == pytest.approx(0.95, abs=0.03)


def test_the_noise_is_found_in_the_measurements():
    quiet, loud = (
        Noise(fix_m=fix_m, fix_lasts_s=30.0, fix_quick_m=0.3, balise_m=balise_m, rolling=0.01, scale=0.01)
        for fix_m, balise_m in ((1.0, 0.2), (4.0, 0.6))
    )

    found = [[most_probable(drawn(seed, noise)[0], NOISE) for seed in range(4)] for noise in (quiet, loud)]

    fix_m = np.median([[noise.fix_m for noise in row] for row in found], axis=1)
    balise_m = np.median([[noise.balise_m for noise in row] for row in found], axis=1)
    assert fix_m == pytest.approx([1.0, 4.0], rel=0.35)
    assert balise_m == pytest.approx([0.2, 0.6], rel=0.35)


def test_a_measurement_that_cannot_be_is_gated_and_moves_little():
    k, level_m = drawn(1)
    wrong = np.flatnonzero(k.is_balise_K & ~np.isnan(k.line_m_K))[10]
    k.line_m_K[wrong] += 40.0

    fused = fuse(k, NOISE)

    assert np.flatnonzero(fused.is_gated_K).tolist() == [wrong]
    assert np.abs(fused.level_K - level_m).max() < 2.0


def test_knots_of_which_none_is_measured_are_refused():
    since_s = np.arange(3.0)
    unmeasured = knots(since_s, 20.0 * since_s, np.full(3, np.nan), np.zeros(3, dtype=bool))

    with pytest.raises(ValueError, match="none of 3 knots has a measurement"):
        fuse(unmeasured, NOISE)
