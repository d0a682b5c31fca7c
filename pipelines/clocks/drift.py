"""A quantity that drifts: its level and slope along a path, filtered forwards and smoothed backwards.

A clock's offset drifts along true time: a two-state Kalman filter with a Rauch-Tung-Striebel smoother.

Shape suffixes: K = knots, in order of the path.
"""

from typing import NamedTuple

import numpy as np

from pipelines.compiled import compiled

GATE_SIGMAS = 5.0
"""Measurements further than this from the prediction lose weight in proportion to their distance, unless told else."""


class Drift(NamedTuple):
    """Smoothed level and slope at every knot."""

    level_K: np.ndarray
    slope_K: np.ndarray
    level_sigma_K: np.ndarray
    slope_sigma_K: np.ndarray
    log_likelihood: float
    """How well the filter predicted the measurements; compares noise settings on the same data."""

    is_gated_K: np.ndarray
    """True where the measurement disagreed with the prediction by more than the gate."""

    shift_K: np.ndarray
    """By how much the level would have to jump just before this knot for both sides to agree best."""

    shift_sigma_K: np.ndarray
    """Standard error of that jump; infinite where one side knows nothing."""


@compiled
def smooth_drift(
    step_K: np.ndarray,
    measured_K: np.ndarray,
    sigma_K: np.ndarray,
    level_noise_K: np.ndarray,
    slope_noise_K: np.ndarray,
    slope_prior_sigma: float,
    gate_sigmas: float = GATE_SIGMAS,
) -> Drift:
    """Estimate a drifting level from noisy measurements of it.

    Args:
        step_K: Length of the path from the previous knot; the first entry is ignored.
        measured_K: Measured level; NaN where a knot is only asked about.
        sigma_K: Standard error of each measurement.
        level_noise_K: Variance that the level gains between the previous knot and this one.
        slope_noise_K: Variance that the slope gains between the previous knot and this one.
        slope_prior_sigma: Standard deviation of the slope before anything was measured.
        gate_sigmas: Measurements further than this from the prediction lose weight; infinite to believe them all.

    Returns:
        The estimate at every knot, from all measurements before and after it. The jumps are the auxiliary residuals of
        de Jong and Penzer (1998): each is what generalised least squares gives for a jump at that knot alone.
    """
    n = len(step_K)
    level, slope = np.zeros(n), np.zeros(n)
    p_ll, p_ls, p_ss = np.zeros(n), np.zeros(n), np.zeros(n)
    predicted = np.zeros((n, 5))
    is_gated = np.zeros(n, dtype=np.bool_)
    log_likelihood = 0.0
    x, v = 0.0, 0.0
    a, b, c = 1e30, 0.0, slope_prior_sigma**2  # covariance: level, both, slope
    is_started = False
    for k in range(n):
        if k > 0:
            h = step_K[k]
            x += h * v
            a += h * (2.0 * b + h * c) + level_noise_K[k]
            b += h * c
            c += slope_noise_K[k]
        predicted[k] = x, v, a, b, c
        if not np.isnan(measured_K[k]):
            r = sigma_K[k] ** 2
            if not is_started:
                x, a, b, is_started = measured_K[k], r, 0.0, True
            else:
                miss = measured_K[k] - x
                excess = miss**2 / ((a + r) * gate_sigmas**2)
                if excess > 1.0:
                    is_gated[k] = True
                    r = (a + r) * excess - a
                total = a + r
                log_likelihood -= 0.5 * (miss**2 / total + np.log(total))
                x, v = x + a / total * miss, v + b / total * miss
                a, b, c = a * r / total, b * r / total, c - b * b / total
        level[k], slope[k], p_ll[k], p_ls[k], p_ss[k] = x, v, a, b, c
    shift, shift_sigma = np.zeros(n), np.full(n, np.inf)
    for k in range(n - 2, -1, -1):
        h = step_K[k + 1]
        px, pv, pa, pb, pc = predicted[k + 1]
        determinant = pa * pc - pb * pb
        if pa > 1e29 or determinant <= 0.0:  # nothing measured yet: walk the later estimate back
            level[k] = level[k + 1] - h * slope[k + 1]
            slope[k] = slope[k + 1]
            p_ls[k] = p_ls[k + 1] - h * p_ss[k + 1]
            p_ll[k] = p_ll[k + 1] - h * (2.0 * p_ls[k + 1] - h * p_ss[k + 1]) + level_noise_K[k + 1]
            p_ss[k] = p_ss[k + 1] + slope_noise_K[k + 1]
            continue
        m_ll, m_ls = p_ll[k] + h * p_ls[k], p_ls[k]
        m_sl, m_ss = p_ls[k] + h * p_ss[k], p_ss[k]
        g_ll, g_ls = (m_ll * pc - m_ls * pb) / determinant, (m_ls * pa - m_ll * pb) / determinant
        g_sl, g_ss = (m_sl * pc - m_ss * pb) / determinant, (m_ss * pa - m_sl * pb) / determinant
        dx, dv = level[k + 1] - px, slope[k + 1] - pv
        da, db, dc = p_ll[k + 1] - pa, p_ls[k + 1] - pb, p_ss[k + 1] - pc
        u_l, u_s = pc / determinant, -pb / determinant
        weight = -(u_l * u_l * da + 2.0 * u_l * u_s * db + u_s * u_s * dc)
        if weight > 0.0:
            shift[k + 1], shift_sigma[k + 1] = (u_l * dx + u_s * dv) / weight, 1.0 / np.sqrt(weight)
        level[k] += g_ll * dx + g_ls * dv
        slope[k] += g_sl * dx + g_ss * dv
        p_ll[k] += g_ll * g_ll * da + 2.0 * g_ll * g_ls * db + g_ls * g_ls * dc
        p_ls[k] += g_ll * g_sl * da + (g_ll * g_ss + g_ls * g_sl) * db + g_ls * g_ss * dc
        p_ss[k] += g_sl * g_sl * da + 2.0 * g_sl * g_ss * db + g_ss * g_ss * dc
    level_sigma, slope_sigma = np.sqrt(np.maximum(p_ll, 0.0)), np.sqrt(np.maximum(p_ss, 0.0))
    return Drift(level, slope, level_sigma, slope_sigma, log_likelihood, is_gated, shift, shift_sigma)
