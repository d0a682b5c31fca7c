"""A travelled distance that drifts, corrected by places that are measured now and then.

The state is what has to be added to the distance to get the place (level), the error of its scale, and the error of
satellite fixes. That error lasts for half a minute, so a fix is hardly new evidence a second later. A Kalman filter
runs forwards and a modified Bryson-Frazier smoother backwards, which inverts nothing (Bierman 1973, "Fixed interval
smoothing with discrete measurements"). How noisy fixes, balises and wheel are differs from vehicle to vehicle: the most
probable noise is looked for.

Shape suffixes: K = knots, in order of time.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize

from pipelines.compiled import compiled

GATE_SIGMAS = 5.0
"""A measurement further than this from the prediction loses weight in proportion to its distance."""

IGNORANCE_M = 1_000.0
"""Standard deviation of the level before anything is measured."""

SPREAD = np.array([0.5, 0.5, 0.7, 0.4, 2.0])
"""How far each noise may be from the usual one: standard deviation of its logarithm, in the order of `Noise`."""

MAX_TRIALS = 250


class Noise(NamedTuple):
    """Standard deviations of everything that is uncertain."""

    fix_m: float = 2.0
    """Slow part of the error of a fix."""

    fix_lasts_s: float = 30.0
    """Time in which the slow part becomes another one."""

    fix_quick_m: float = 0.3
    """Part of the error that differs from one fix to the next."""

    balise_m: float = 0.3
    rolling: float = 0.002
    """Random walk of the leading sensor while the train moves, in metres per square root of a second."""

    scale: float = 0.01
    """Relative error of the leading sensor's scale."""


class Knots(NamedTuple):
    """Instants at which something was measured, or that are asked about."""

    since_s_K: np.ndarray
    travelled_m_K: np.ndarray
    """Falls where the train runs against the line."""

    rolled_s_K: np.ndarray
    """Time since the knot before in which the train moved and the leading sensor counted."""

    noise_m2_K: np.ndarray
    """Variance since the knot before that has other reasons."""

    line_m_K: np.ndarray
    """Place measured; NaN at a knot that is only asked about."""

    is_balise_K: np.ndarray
    dilution_K: np.ndarray
    """How much larger the quick part of this fix's error is than usual."""


class Fused(NamedTuple):
    """Estimate from everything measured before and after each knot."""

    level_K: np.ndarray
    level_sigma_K: np.ndarray
    scale: float
    scale_sigma: float
    is_gated_K: np.ndarray
    shift_m_K: np.ndarray
    """By how much the level would have to shift just before each knot to please what was measured from there on."""

    shift_sigmas_K: np.ndarray
    """How many standard errors that is: of the order of one unless the level did shift (de Jong & Penzer 1998)."""

    log_likelihood: float


def most_probable(knots: Knots, usual: Noise) -> Noise:
    """Find the noise that explains the measurements best without being far from the usual one."""

    def noise_at(deviation: np.ndarray) -> Noise:
        return Noise._make([*(np.array(usual[:5]) * np.exp(SPREAD * deviation)).tolist(), usual.scale])

    def improbability(deviation: np.ndarray) -> float:
        return float(0.5 * deviation @ deviation - _filtered(knots, noise_at(deviation))[-1])

    # The wide step for the wheel's wander comes first to the better of two optima: else noisy balises explain it too.
    simplex = np.vstack([np.zeros(5), np.diag([1.0, 1.0, 1.0, 1.0, 2.0])])
    found = optimize.minimize(
        improbability,
        np.zeros(5),
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "maxfev": MAX_TRIALS, "xatol": 0.03, "fatol": 0.03},
    )
    return noise_at(found.x)


def fuse(knots: Knots, noise: Noise) -> Fused:
    """Estimate the level at every knot.

    Raises:
        ValueError: No knot has a measurement.
    """
    if np.isnan(knots.line_m_K).all():
        raise ValueError(f"none of {len(knots.line_m_K)} knots has a measurement; expected `line_m_K` of at least one")
    x_K3, p_K33, gain_K3, miss_K, total_K, is_gated_K, log_likelihood = _filtered(knots, noise)
    level_K, level_sigma_K, shift_m_K, shift_sigmas_K = _smoothed(knots, noise, x_K3, p_K33, gain_K3, miss_K, total_K)
    return Fused(
        level_K=level_K,
        level_sigma_K=level_sigma_K,
        scale=float(x_K3[-1, 1]),
        scale_sigma=float(np.sqrt(max(p_K33[-1, 1, 1], 0.0))),
        is_gated_K=is_gated_K,
        shift_m_K=shift_m_K,
        shift_sigmas_K=shift_sigmas_K,
        log_likelihood=log_likelihood,
    )


@compiled
def _filtered(
    knots: Knots, noise: Noise
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """State and covariance after each knot; gain, innovation, its variance (0: nothing measured); what was gated.

    Nothing but the level is measured directly, and of fixes its sum with their own error.
    """
    n = len(knots.since_s_K)
    x_K3, p_K33, gain_K3 = np.zeros((n, 3)), np.zeros((n, 3, 3)), np.zeros((n, 3))
    miss_K, total_K, is_gated_K = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.bool_)
    log_likelihood = 0.0
    x, p, gain = np.zeros(3), np.zeros((3, 3)), np.zeros(3)
    first = np.flatnonzero(~np.isnan(knots.line_m_K))[0]
    x[0] = knots.line_m_K[first] - knots.travelled_m_K[first]
    p[0, 0], p[1, 1], p[2, 2] = IGNORANCE_M**2, noise.scale**2, noise.fix_m**2
    for k in range(n):
        if k > 0:
            h = knots.travelled_m_K[k] - knots.travelled_m_K[k - 1]
            keep = np.exp((knots.since_s_K[k - 1] - knots.since_s_K[k]) / noise.fix_lasts_s)
            x[0] += h * x[1]
            x[2] *= keep
            p[0, 0] += h * (2.0 * p[0, 1] + h * p[1, 1]) + noise.rolling**2 * knots.rolled_s_K[k] + knots.noise_m2_K[k]
            p[0, 1] += h * p[1, 1]
            p[0, 2] = keep * (p[0, 2] + h * p[1, 2])
            p[1, 2] *= keep
            p[2, 2] = keep**2 * p[2, 2] + (1.0 - keep**2) * noise.fix_m**2
            p[1, 0], p[2, 0], p[2, 1] = p[0, 1], p[0, 2], p[1, 2]
        if not np.isnan(knots.line_m_K[k]):
            own = 0.0 if knots.is_balise_K[k] else 1.0  # share of the fixes' error in what is measured
            r = (noise.balise_m if knots.is_balise_K[k] else noise.fix_quick_m * knots.dilution_K[k]) ** 2
            miss = knots.line_m_K[k] - knots.travelled_m_K[k] - x[0] - own * x[2]
            total = p[0, 0] + own * (2.0 * p[0, 2] + p[2, 2]) + r
            if miss * miss > GATE_SIGMAS**2 * total:
                is_gated_K[k] = True
                total = miss * miss / GATE_SIGMAS**2
            log_likelihood -= 0.5 * (miss * miss / total + np.log(total))
            for i in range(3):
                gain[i] = (p[i, 0] + own * p[i, 2]) / total
            for i in range(3):
                x[i] += gain[i] * miss
                for j in range(3):
                    p[i, j] -= gain[i] * gain[j] * total
            gain_K3[k], miss_K[k], total_K[k] = gain, miss, total
        x_K3[k], p_K33[k] = x, p
    return x_K3, p_K33, gain_K3, miss_K, total_K, is_gated_K, log_likelihood


@compiled
def _smoothed(
    knots: Knots,
    noise: Noise,
    x_K3: np.ndarray,
    p_K33: np.ndarray,
    gain_K3: np.ndarray,
    miss_K: np.ndarray,
    total_K: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Level and its standard error at every knot, with what later knots say of it; shifts, see `Fused`."""
    n = len(miss_K)
    level_K, level_sigma_K, shift_m_K, shift_sigmas_K = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    later, weight = np.zeros(3), np.zeros((3, 3))  # gradient and curvature of what later measurements say of the state
    for k in range(n - 1, -1, -1):
        p = p_K33[k, 0]
        level_K[k] = x_K3[k, 0] - (p[0] * later[0] + p[1] * later[1] + p[2] * later[2])
        variance = p[0]
        for i in range(3):
            for j in range(3):
                variance -= p[i] * weight[i, j] * p[j]
        level_sigma_K[k] = np.sqrt(max(variance, 0.0))
        if total_K[k] > 0.0:
            own = 0.0 if knots.is_balise_K[k] else 1.0
            gain = gain_K3[k]
            # What is measured is state[0] + own * state[2]; so are the two columns and rows that change below.
            through = later[0] * gain[0] + later[1] * gain[1] + later[2] * gain[2] + miss_K[k] / total_K[k]
            later[0] -= through
            later[2] -= own * through
            w = np.zeros(3)
            for i in range(3):
                w[i] = weight[i, 0] * gain[0] + weight[i, 1] * gain[1] + weight[i, 2] * gain[2]
            curvature = w[0] * gain[0] + w[1] * gain[1] + w[2] * gain[2] + 1.0 / total_K[k]
            h = np.array([1.0, 0.0, own])
            for i in range(3):
                for j in range(3):
                    weight[i, j] += h[i] * h[j] * curvature - h[i] * w[j] - w[i] * h[j]
        if weight[0, 0] > 0.0:
            shift_m_K[k] = -later[0] / weight[0, 0]
            shift_sigmas_K[k] = abs(later[0]) / np.sqrt(weight[0, 0])
        if k > 0:
            step = knots.travelled_m_K[k] - knots.travelled_m_K[k - 1]
            keep = np.exp((knots.since_s_K[k - 1] - knots.since_s_K[k]) / noise.fix_lasts_s)
            later[1] += step * later[0]
            later[2] *= keep
            weight[1, 1] += step * (2.0 * weight[0, 1] + step * weight[0, 0])
            weight[0, 1] += step * weight[0, 0]
            weight[1, 2] = keep * (weight[1, 2] + step * weight[0, 2])
            weight[0, 2] *= keep
            weight[2, 2] *= keep**2
            weight[1, 0], weight[2, 0], weight[2, 1] = weight[0, 1], weight[0, 2], weight[1, 2]
    return level_K, level_sigma_K, shift_m_K, shift_sigmas_K
