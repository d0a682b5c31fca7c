"""A clock without exchanges, tied to UTC by a signal that its sensor shares with one whose clock is known.

Both sensors see the same speed. Correlation fails on so slow a signal: its peak is tens of seconds wide and sticks near
zero lag. Least squares on offset, drift and scale, without the moments in which the wheels slip, comes down to
milliseconds.

Shape suffixes: T = rows to be tied, R = rows of the reference.
"""

import numpy as np

from pipelines.clocks.clock_map import BEYOND_NS, ClockMap, Residuals, Segment

SEARCH_S = 10.0
"""Offsets looked at: as far as an epoch clock that was never set on the way may be off."""

COARSE_STEP_S = 0.1
COARSE_ROWS = 4_000
SMOOTH_S = 1.0
"""The reference's speed is the distance over this long, centred."""

SLIP_MPS = 0.5
ITERATIONS = 8
MIN_ROWS = 200
MAX_SIGMA_S = 0.05
"""A fit less certain than this is none."""


def fit_signal(
    clock_id: str,
    dev_ns_T: np.ndarray,
    speed_mps_T: np.ndarray,
    t_ns_R: np.ndarray,
    distance_m_R: np.ndarray,
    *,
    search_s: float = SEARCH_S,
) -> ClockMap | None:
    """Tie a clock to UTC by speed.

    Args:
        clock_id: The clock.
        dev_ns_T: Device time of each reading, at most `search_s` off UTC.
        speed_mps_T: Speed that the sensor reads; NaN where missing.
        t_ns_R: UTC of the reference's rows, ascending.
        distance_m_R: Distance that the reference measured since its first row.
        search_s: Offsets looked at.

    Returns:
        The map; `None` where the speeds do not tell (too few rows, a train that stands, another train).
    """
    is_present_T = np.isfinite(speed_mps_T)
    dev_ns_T, speed_mps_T = dev_ns_T[is_present_T], speed_mps_T[is_present_T]
    if len(dev_ns_T) < MIN_ROWS or len(t_ns_R) < MIN_ROWS:
        return None
    zero_ns = int(dev_ns_T[len(dev_ns_T) // 2])
    since_s_T, since_s_R = (dev_ns_T - zero_ns) * 1e-9, (t_ns_R - zero_ns) * 1e-9
    reference = _Speed(since_s_R, distance_m_R)
    offset_s = _coarse(since_s_T, speed_mps_T, reference, search_s)
    fitted = _refine(since_s_T, speed_mps_T, reference, offset_s, search_s)
    if fitted is None:
        return None
    offset_s, drift, sigma_s = fitted
    ends_ns = np.array([-BEYOND_NS, int(dev_ns_T[0]) - zero_ns, int(dev_ns_T[-1]) - zero_ns, BEYOND_NS])
    segment = Segment(
        dev_ns_K=zero_ns + ends_ns,
        offset_ns_K=np.rint(offset_s * 1e9 + drift * ends_ns).astype(np.int64),
        sigma_ns_K=np.full(4, sigma_s * 1e9),
        measured_ns=(int(dev_ns_T[0]), int(dev_ns_T[-1])),
    )
    residuals = Residuals(p99_ns=2.6 * sigma_s * 1e9)  # of a normal error; single readings say nothing about time
    return ClockMap(clock_id=clock_id, method="signal", segments=(segment,), residuals=residuals)


class _Speed:
    """Speed and acceleration of the reference at any instant; NaN where its rows have a gap."""

    def __init__(self, since_s_R: np.ndarray, distance_m_R: np.ndarray) -> None:
        self.since_s_R, self.distance_m_R = since_s_R, distance_m_R

    def at(self, since_s: np.ndarray) -> np.ndarray:
        ahead_s, behind_s = since_s + SMOOTH_S / 2, since_s - SMOOTH_S / 2
        rolled_m = np.interp(ahead_s, self.since_s_R, self.distance_m_R) - np.interp(
            behind_s, self.since_s_R, self.distance_m_R
        )
        num_rows = np.searchsorted(self.since_s_R, ahead_s) - np.searchsorted(self.since_s_R, behind_s)
        return np.where(num_rows >= 3, rolled_m / SMOOTH_S, np.nan)


def _coarse(since_s_T: np.ndarray, speed_mps_T: np.ndarray, reference: _Speed, search_s: float) -> float:
    """Offset with the least median difference of the speeds."""
    some = slice(None, None, max(1, len(since_s_T) // COARSE_ROWS))
    offsets_s = np.arange(-search_s, search_s + COARSE_STEP_S / 2, COARSE_STEP_S)
    grid_s = np.arange(since_s_T[0] - search_s, since_s_T[-1] + search_s, COARSE_STEP_S)
    grid_mps = reference.at(grid_s)
    misses = [
        np.nanmean(
            np.minimum(np.abs(np.interp(since_s_T[some] + offset_s, grid_s, grid_mps) - speed_mps_T[some]), SLIP_MPS)
        )
        for offset_s in offsets_s
    ]
    return float(offsets_s[int(np.argmin(misses))])


def _refine(
    since_s_T: np.ndarray, speed_mps_T: np.ndarray, reference: _Speed, offset_s: float, search_s: float
) -> tuple[float, float, float] | None:
    """Gauss-Newton on offset, drift and scale; returns offset (s), drift and the offset's standard error (s)."""
    drift, scale = 0.0, 1.0
    for _ in range(ITERATIONS):
        there_s_T = since_s_T * (1.0 + drift) + offset_s
        there_mps_T = reference.at(there_s_T)
        slope_T = (reference.at(there_s_T + 0.1) - reference.at(there_s_T - 0.1)) / 0.2
        miss_mps_T = speed_mps_T - scale * there_mps_T
        is_used_T = (np.abs(miss_mps_T) < SLIP_MPS) & np.isfinite(slope_T) & (there_mps_T > 1.0)
        if is_used_T.sum() < MIN_ROWS:
            return None
        design = np.column_stack([slope_T, slope_T * since_s_T, there_mps_T])[is_used_T]
        normal = design.T @ design
        if np.linalg.cond(normal / np.sqrt(np.outer(np.diag(normal), np.diag(normal)))) > 1e8:
            return None
        change = np.linalg.solve(normal, design.T @ miss_mps_T[is_used_T])
        offset_s, drift, scale = offset_s + change[0], drift + change[1], scale + change[2]
    left_mps = miss_mps_T[is_used_T]
    # Neighbouring readings share the reference's smoothing, so they count as one in `SMOOTH_S`.
    shared = max(1.0, len(left_mps) * SMOOTH_S / np.ptp(since_s_T))
    sigma_s = float(np.sqrt(np.linalg.inv(normal)[0, 0] * left_mps.var() * shared))
    if sigma_s > MAX_SIGMA_S or abs(offset_s) > search_s:
        return None
    return float(offset_s), float(drift), sigma_s
