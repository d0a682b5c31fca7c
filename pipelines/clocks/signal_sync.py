"""A clock that nothing compares with UTC, tied to it by a signal that its sensor shares with one whose clock is known.

Both sensors see the same speed. Correlation fails on so slow a signal: its peak is tens of seconds wide and sticks near
zero lag. A scan of the mean difference, coarse to fine over offset and drift, finds the right second however far off
the clock is; least squares on offset, drift and scale, without the moments in which the wheels slip, comes down to
milliseconds.

Shape suffixes: T = rows to be tied, E = equally spaced instants of the reference, C = the cells between them,
O = offsets, R = drifts, P = parameters of the fit (offset, drift, scale), B = blocks of rows, K = knots of the map.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.clock_map import BEYOND_NS, ClockMap, Residuals, Segment
from pipelines.compiled import compiled

SMOOTH_S = 2.0
"""The reference's speed is the distance over this long, centred."""

CELL_NS = 100_000_000
MAX_CELLS = 4_000_000
"""A longer recording gets longer cells."""

GAP_NS = 3_000_000_000
"""Between rows further apart than this no speed is known."""

MIN_ROWS = 200
MIN_OVERLAP = 0.5
"""Share of the shorter recording that the other one must cover."""

SCAN_ROWS = 1_000, 4_000, 4_000
SCAN_OFFSET_S = 1.0, 0.2, 0.04
SCAN_DRIFT = 2e-3, 4e-4, 8e-5
"""Rows looked at, and steps of offset and drift, of each scan; the next one looks around the best of the last."""

MAX_DRIFT = 6e-3
"""Clocks run up to a few parts per thousand wrong: real train nodes were 3.3 off."""

AROUND = 6
"""Steps of the next scan on either side of the best of the last."""

CAP_MPS = 3.0
"""Differences of speed beyond this count as this: wheels slip, radars see rain."""

UNLIKE_S = 30.0
UNLIKE_RATIO = 0.6
"""Offsets further from the best than this must fit worse: the best has at most this share of their difference."""

SLOWEST_MPS = 1.0
GATE_SIGMAS = 4.0
GATE_MPS = 0.3, 3.0
"""Readings that differ by more than so many standard deviations are slip, within these bounds."""

ITERATIONS = 12
MAX_SCALE_OFF = 0.1
BLOCK_S = 10.0
"""Errors within such a block may be one and the same: slip that was not seen, a wet radar."""

BENDING_SIGMA_NS = 1e6
"""A clock that warms up strays from its mean drift by about this much."""

MAX_SIGMA_NS = 5e7
"""A fit less certain than this is none."""

NUM_KNOTS = 9


class Reference(NamedTuple):
    """Distance travelled, from sensors whose clocks are known."""

    first_ns: int
    """UTC of the first edge."""

    cell_ns: int
    distance_m_E: np.ndarray
    is_known_C: np.ndarray
    """Cells in which the distance can be relied upon: the wheels roll and are counted."""

    @classmethod
    def of_rows(cls, t_ns_R: np.ndarray, distance_m_R: np.ndarray) -> "Reference":
        """Return the distance between the rows (ascending) of one sensor, except in its gaps."""
        if len(t_ns_R) < 2:
            return cls(0, CELL_NS, np.zeros(1), np.zeros(0, dtype=bool))
        since_ns_R = t_ns_R - t_ns_R[0]
        cell_ns = max(CELL_NS, int(since_ns_R[-1]) // MAX_CELLS)
        since_ns_E = np.arange(0, since_ns_R[-1] + 1, cell_ns)
        after_E = np.searchsorted(since_ns_R, since_ns_E, side="right").clip(1, len(since_ns_R) - 1)
        is_known_E = since_ns_R[after_E] - since_ns_R[after_E - 1] <= GAP_NS
        return cls(int(t_ns_R[0]), cell_ns, np.interp(since_ns_E, since_ns_R, distance_m_R), is_known_E[:-1])


class _Fit(NamedTuple):
    """Offset at the middle of the rows (s), drift, and scale, with their covariance."""

    offset_s: float
    drift: float
    scale: float
    covariance_PP: np.ndarray

    def sigma_ns(self, since_s: np.ndarray) -> np.ndarray:
        """Standard error of the offset at other times than the middle."""
        c = self.covariance_PP
        variance_s2 = c[0, 0] + 2.0 * since_s * c[0, 1] + since_s**2 * c[1, 1]
        return np.asarray(np.hypot(1e9 * np.sqrt(variance_s2), BENDING_SIGMA_NS))


def fit_signal(clock_id: str, dev_ns_T: np.ndarray, speed_mps_T: np.ndarray, reference: Reference) -> ClockMap | None:
    """Tie a clock to UTC by speed.

    Args:
        clock_id: The clock.
        dev_ns_T: Device time of each reading, ascending; it may count from anywhere.
        speed_mps_T: Speed that the sensor reads; NaN where missing.
        reference: What a sensor with a known clock saw of the same trip.

    Returns:
        The map; `None` where the speeds do not tell (too few rows, a train that stands, another train).
    """
    is_present_T = np.isfinite(speed_mps_T)
    dev_ns_T, speed_mps_T = dev_ns_T[is_present_T], speed_mps_T[is_present_T]
    if len(dev_ns_T) < MIN_ROWS or reference.is_known_C.sum() < MIN_ROWS:
        return None
    zero_ns = (int(dev_ns_T[0]) + int(dev_ns_T[-1])) // 2
    since_s_T = (dev_ns_T - zero_ns) * 1e-9
    speed = _speed(reference)
    coarse = _scanned(since_s_T, speed_mps_T, speed)
    fit = _refined(since_s_T, speed_mps_T, speed, *coarse) if coarse is not None else None
    if fit is None or fit.sigma_ns(since_s_T[[0, -1]]).min() > MAX_SIGMA_NS:
        return None
    return _map(clock_id, fit, zero_ns, (int(dev_ns_T[0]), int(dev_ns_T[-1])), reference.first_ns)


def _map(clock_id: str, fit: _Fit, zero_ns: int, ends_ns: tuple[int, int], first_ns: int) -> ClockMap:
    since_first_ns_K = np.linspace(0, ends_ns[1] - ends_ns[0], NUM_KNOTS).astype(np.int64)
    dev_ns_K = np.concatenate([[ends_ns[0] - BEYOND_NS], ends_ns[0] + since_first_ns_K, [ends_ns[1] + BEYOND_NS]])
    since_ns_K = dev_ns_K - zero_ns
    segment = Segment(
        dev_ns_K=dev_ns_K,
        offset_ns_K=first_ns - zero_ns + np.rint(fit.offset_s * 1e9 + fit.drift * since_ns_K).astype(np.int64),
        sigma_ns_K=fit.sigma_ns(since_ns_K * 1e-9),
        measured_ns=ends_ns,
    )
    residuals = Residuals(p99_ns=float(2.6 * segment.sigma_ns_K[1:-1].max()))  # of a normal error
    return ClockMap(clock_id=clock_id, method="signal", segments=(segment,), residuals=residuals)


class _Speed(NamedTuple):
    """Speed and acceleration of the reference, since its first edge; NaN where it is not known."""

    cell_s: float
    speed_mps_E: np.ndarray
    slope_mps2_E: np.ndarray

    @property
    def length_s(self) -> float:
        return self.cell_s * len(self.speed_mps_E)

    def at(self, values_E: np.ndarray, since_s: np.ndarray) -> np.ndarray:
        """Interpolate; NaN beyond the ends."""
        edges_s = np.arange(len(values_E)) * self.cell_s
        return np.asarray(np.interp(since_s, edges_s, values_E, left=np.nan, right=np.nan))


def _speed(reference: Reference) -> _Speed:
    cell_s = reference.cell_ns * 1e-9
    half = max(1, round(SMOOTH_S / 2 / cell_s))
    speed_mps_E = np.full(len(reference.distance_m_E), np.nan)
    rolled_m = reference.distance_m_E[2 * half :] - reference.distance_m_E[: -2 * half]
    num_unknown_E = np.concatenate([[0], np.cumsum(~reference.is_known_C)])
    is_known = num_unknown_E[2 * half :] == num_unknown_E[: -2 * half]
    speed_mps_E[half:-half] = np.where(is_known, rolled_m / (2 * half * cell_s), np.nan)
    return _Speed(cell_s, speed_mps_E, np.gradient(speed_mps_E, cell_s))


def _scanned(since_s_T: np.ndarray, speed_mps_T: np.ndarray, speed: _Speed) -> tuple[float, float] | None:
    """Offset (s) and drift with the least mean difference of the speeds; `None` if others fit as well."""
    shorter_s = min(float(np.ptp(since_s_T)), speed.length_s)
    reach_s = (float(np.ptp(since_s_T)) + speed.length_s) / 2 - MIN_OVERLAP * shorter_s
    middle_s, step_s, step = speed.length_s / 2, SCAN_OFFSET_S[0], SCAN_DRIFT[0]
    offset_s_O = middle_s + np.arange(-reach_s, reach_s + step_s, step_s)
    drift_R = np.arange(-MAX_DRIFT, MAX_DRIFT + step, step)
    for scan in range(len(SCAN_ROWS)):
        some = slice(None, None, max(1, len(since_s_T) // SCAN_ROWS[scan]))
        miss_mps_OR = _misses(since_s_T[some], speed_mps_T[some], speed.speed_mps_E, speed.cell_s, offset_s_O, drift_R)
        o, r = np.unravel_index(int(np.argmin(miss_mps_OR)), miss_mps_OR.shape)
        offset_s, drift = float(offset_s_O[o]), float(drift_R[r])
        if scan == 0:
            is_unlike_O = np.abs(offset_s_O - offset_s) > UNLIKE_S
            if not miss_mps_OR[o, r] < UNLIKE_RATIO * miss_mps_OR[is_unlike_O].min(initial=np.inf):
                return None
        if scan + 1 < len(SCAN_ROWS):
            around = np.arange(-AROUND, AROUND + 1)
            offset_s_O = np.asarray(offset_s + around * SCAN_OFFSET_S[scan + 1])
            drift_R = np.asarray(drift + around * SCAN_DRIFT[scan + 1])
    return offset_s, drift


@compiled
def _misses(
    since_s_T: np.ndarray,
    speed_mps_T: np.ndarray,
    speed_mps_E: np.ndarray,
    cell_s: float,
    offset_s_O: np.ndarray,
    drift_R: np.ndarray,
) -> np.ndarray:
    """Mean capped difference of the speeds for each offset and drift; infinite where they have too little in common."""
    miss_mps_OR = np.full((len(offset_s_O), len(drift_R)), np.inf)
    for o in range(len(offset_s_O)):
        for r in range(len(drift_R)):
            total, num = 0.0, 0
            for i in range(len(since_s_T)):
                e = int(np.floor((offset_s_O[o] + since_s_T[i] * (1.0 + drift_R[r])) / cell_s + 0.5))
                if 0 <= e < len(speed_mps_E) and not np.isnan(speed_mps_E[e]):
                    total += min(abs(speed_mps_E[e] - speed_mps_T[i]), CAP_MPS)
                    num += 1
            if num > 0.5 * MIN_OVERLAP * len(since_s_T):
                miss_mps_OR[o, r] = total / num
    return miss_mps_OR


def _refined(
    since_s_T: np.ndarray, speed_mps_T: np.ndarray, speed: _Speed, offset_s: float, drift: float
) -> _Fit | None:
    """Gauss-Newton on offset, drift and scale over the readings in which the wheels roll as the sensor sees."""
    scale, gate_mps = 1.0, GATE_MPS[1]
    for _ in range(ITERATIONS):
        there_s_T = offset_s + since_s_T * (1.0 + drift)
        there_mps_T = speed.at(speed.speed_mps_E, there_s_T)
        slope_T = speed.at(speed.slope_mps2_E, there_s_T)
        miss_mps_T = speed_mps_T - scale * there_mps_T
        is_used_T = (np.abs(miss_mps_T) < gate_mps) & np.isfinite(slope_T) & (there_mps_T > SLOWEST_MPS)
        if is_used_T.sum() < MIN_ROWS:
            return None
        design_TP = np.column_stack([scale * slope_T, scale * slope_T * since_s_T, there_mps_T])[is_used_T]
        normal_PP = design_TP.T @ design_TP
        if np.linalg.cond(normal_PP / np.sqrt(np.outer(np.diag(normal_PP), np.diag(normal_PP)))) > 1e8:
            return None
        left_mps = miss_mps_T[is_used_T]
        change = np.linalg.solve(normal_PP, design_TP.T @ left_mps)
        offset_s, drift, scale = offset_s + change[0], drift + change[1], scale + change[2]
        sigma_mps = 1.4826 * float(np.median(np.abs(left_mps - np.median(left_mps))))
        gate_mps = float(np.clip(GATE_SIGMAS * sigma_mps, *GATE_MPS))
    if abs(scale - 1.0) > MAX_SCALE_OFF or abs(drift) > 2 * MAX_DRIFT:
        return None
    return _Fit(offset_s, drift, scale, _covariance(design_TP, left_mps, since_s_T[is_used_T]))


def _covariance(design_TP: np.ndarray, left_mps: np.ndarray, since_s_T: np.ndarray) -> np.ndarray:
    """Covariance of a least-squares fit whose errors are alike within blocks of time, and independent between them."""
    block_T = ((since_s_T - since_s_T[0]) // BLOCK_S).astype(np.int64)
    pull_BP = np.zeros((int(block_T.max()) + 1, design_TP.shape[1]))
    np.add.at(pull_BP, block_T, design_TP * left_mps[:, None])
    inverse_PP = np.linalg.inv(design_TP.T @ design_TP)
    return np.asarray(inverse_PP @ (pull_BP.T @ pull_BP) @ inverse_PP)
