"""How far two sensors are apart in time, told by the speed that both of them see.

The clock maps are fitted to measurements of each clock alone. This looks at the result from outside: if GPS time was
taken for UTC, or a latency was not subtracted, the two speeds tell. A scan over the lag finds the neighbourhood, robust
least squares (`signal_sync`) the value and its standard error.

Shape suffixes: T = rows of a sensor, R = rows of the reference, G = instants of a common grid, L = lags.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.signal_sync import fit_signal

SEARCH_S = 60.0
"""Lags looked at: beyond the 37 s of TAI."""

GRID_S = 1.0
GAP_S = 3.0
"""Between rows further apart than this no speed is known."""

MAX_ROWS = 2_000
"""More rows than these make the answer no better where it is needed."""

MISS_MPS = 1.0
"""A larger difference of two speeds counts as this much: wheels slip."""

MIN_SHARE = 0.5
"""The speeds have to agree, to within `MISS_MPS`, in this share of the time to be called the same."""

MIN_MOVING_MPS = 1.0


class Skew(NamedTuple):
    """Time offset between two sensors."""

    skew_ns: int
    """How much later the sensor's stamps are than those of the reference."""

    sigma_ns: float


def skew_of(t_ns_T: np.ndarray, speed_mps_T: np.ndarray, t_ns_R: np.ndarray, distance_m_R: np.ndarray) -> Skew | None:
    """Measure the time offset of a sensor against a reference.

    Args:
        t_ns_T: UTC of the sensor's rows, ascending.
        speed_mps_T: Speed that it reads; NaN where missing.
        t_ns_R: UTC of the reference's rows, ascending.
        distance_m_R: Distance that the reference measured since its first row, in any scale near one.

    Returns:
        The offset; `None` where the speeds do not tell: too few rows, a train that stands or rolls evenly, two trains.
    """
    is_present_T = np.isfinite(speed_mps_T)
    some = np.flatnonzero(is_present_T)[:: max(1, int(is_present_T.sum()) // MAX_ROWS)]
    if len(some) < 2 or len(t_ns_R) < 2:
        return None
    t_ns_T, speed_mps_T = t_ns_T[some], speed_mps_T[some]
    lag_ns = _coarse(t_ns_T, speed_mps_T, t_ns_R, distance_m_R)
    if lag_ns is None:
        return None
    fitted = fit_signal("", t_ns_T - lag_ns, speed_mps_T, t_ns_R, distance_m_R, search_s=2 * GRID_S)
    if fitted is None:
        return None
    middle_ns = t_ns_T[len(t_ns_T) // 2 :][:1] - lag_ns
    true_ns, sigma_ns = fitted.to_utc(middle_ns)
    return Skew(int(middle_ns[0] - true_ns[0]) + lag_ns, float(sigma_ns[0]))


def _coarse(t_ns_T: np.ndarray, speed_mps_T: np.ndarray, t_ns_R: np.ndarray, distance_m_R: np.ndarray) -> int | None:
    """Lag at which the speeds differ least; `None` if they agree at none."""
    zero_ns, num_lags = int(t_ns_T[0]), round(SEARCH_S / GRID_S)
    since_s_T, since_s_R = (t_ns_T - zero_ns) * 1e-9, (t_ns_R - zero_ns) * 1e-9
    grid_s_G = np.arange(-num_lags, since_s_T[-1] / GRID_S + num_lags + 1) * GRID_S
    rolled_m_G = np.interp([grid_s_G - GRID_S, grid_s_G + GRID_S], since_s_R, distance_m_R)
    reference_G = np.where(_is_seen(grid_s_G, since_s_R), np.diff(rolled_m_G, axis=0)[0] / (2 * GRID_S), np.nan)
    inner_s_G = grid_s_G[num_lags:-num_lags]
    speed_G = np.where(_is_seen(inner_s_G, since_s_T), np.interp(inner_s_G, since_s_T, speed_mps_T), np.nan)
    shifted_LG = np.lib.stride_tricks.sliding_window_view(reference_G, len(speed_G))
    is_moving_LG = np.fmax(np.abs(shifted_LG), np.abs(speed_G)) > MIN_MOVING_MPS
    miss_LG = np.where(is_moving_LG, np.abs(shifted_LG - speed_G), np.nan)
    num_L = np.isfinite(miss_LG).sum(axis=1)
    miss_L = np.full(len(miss_LG), np.inf)
    enough_L = num_L > max(num_L.max() // 2, 1)
    if not enough_L.any():
        return None
    miss_L[enough_L] = np.nanmean(np.minimum(miss_LG[enough_L], MISS_MPS), axis=1)
    best = int(np.argmin(miss_L))
    agrees = np.mean(miss_LG[best][np.isfinite(miss_LG[best])] < MISS_MPS)
    return round((num_lags - best) * GRID_S * 1e9) if agrees >= MIN_SHARE else None


def _is_seen(at_s_G: np.ndarray, since_s: np.ndarray) -> np.ndarray:
    """Whether an instant lies between two rows that are close to each other."""
    after_G = np.searchsorted(since_s, at_s_G)
    inside_G = (after_G > 0) & (after_G < len(since_s))
    after_G = np.clip(after_G, 1, len(since_s) - 1)
    return np.asarray(inside_G & (since_s[after_G] - since_s[after_G - 1] <= GAP_S))
