"""The map from a device clock to UTC, with its uncertainty, and how it is fitted.

A map is a chain of segments; a segment ends where the clock was set. Within a segment the offset is linear between
knots. Offsets are int64 nanoseconds, and only differences of device times are ever turned into floats.

Shape suffixes: X = exchanges, K = knots of a segment, T = rows in stored order.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pipelines.clocks.drift import smooth_drift
from pipelines.clocks.exchanges import Exchanges, detrended, honest, robust_slope
from pipelines.compiled import compiled

VERSION = "1"
"""Changes when the same measurements would give another map."""

SLOPE_PRIOR_PPB = 5e6
"""Clocks run up to a few parts per thousand wrong: real train nodes were 3.3 off."""

WANDER_PPB = (5.0, 20.0, 50.0, 100.0, 300.0, 1_000.0, 5_000.0)
"""Frequency random walks tried, in ppb per square root of a second; the likelihood chooses."""

UNCHECKED_SIGMA_NS = 2e9
"""Uncertainty of a clock that nothing ties to UTC, although it counts from 1970."""

BEYOND_NS = 86_400 * 10**9
"""How far a map reaches beyond its first and last knot."""

STEP_MIN_NS = 2e6
STEP_LEVEL_SIGMA_NS = 1e10
STEP_SIDE = 3
"""Exchanges on each side of which the one with the shortest way decides whether the clock was set in between."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Segment:
    """A stretch in which the clock ran freely."""

    dev_ns_K: np.ndarray
    offset_ns_K: np.ndarray
    """What has to be added to device time to get UTC."""

    sigma_ns_K: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The clock was set between two segments."""

    before_ns: int
    """Last device time known to be in the old segment."""

    after_ns: int
    """First device time known to be in the new segment; earlier than `before_ns` if the clock was set back."""

    jump_ns: int
    """How much the device's time jumped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Residuals:
    """How well a map agrees with what it was fitted to."""

    num_exchanges: int = 0
    num_rejected: int = 0
    """Exchanges that were not used: server not synchronised, or outvoted."""

    servers_rejected: tuple[str, ...] = ()
    """Servers of which most exchanges were outvoted at some time."""

    p99_ns: float = float("nan")
    """99th percentile of what is left of the better half of the measurements (shortest way, or smallest sigma)."""

    floor_ns: float = float("nan")
    """Half the shortest way there and back: a constant asymmetry up to this cannot be seen."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ClockMap:
    """Device time to UTC."""

    clock_id: str
    method: str
    """`exchanges`, `pairs`, `gps`, `signal`, or `unchecked`."""

    segments: tuple[Segment, ...]
    steps: tuple[Step, ...] = ()
    residuals: Residuals = Residuals()
    version: str = VERSION

    def to_utc(self, dev_ns_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Map device times in stored order; return `(utc_ns_T, sigma_ns_T)`."""
        if not self.steps:
            utc_ns_T, sigma_ns_T = _interpolate(dev_ns_T, *_knots(self.segments[0]))
            return utc_ns_T, sigma_ns_T
        segment_T = np.zeros(len(dev_ns_T), dtype=np.int64)
        for step in self.steps:
            segment_T += _is_after(dev_ns_T, step)
        utc_ns_T, sigma_ns_T = np.empty(len(dev_ns_T), dtype=np.int64), np.empty(len(dev_ns_T))
        for number, segment in enumerate(self.segments):
            of_segment = np.flatnonzero(segment_T == number)
            utc_ns_T[of_segment], sigma_ns_T[of_segment] = _interpolate(dev_ns_T[of_segment], *_knots(segment))
        return utc_ns_T, sigma_ns_T

    def located(self, dev_ns_T: np.ndarray, period_ns: float) -> "ClockMap":
        """Return the map with its steps placed between two rows of a regular sensor that this clock stamps."""
        return replace(self, steps=tuple(_locate(step, dev_ns_T, period_ns) for step in self.steps))

    @property
    def drift_ppm(self) -> float:
        """Mean rate at which UTC gains on the device, over the knots; NaN for a map of one knot."""
        spans = [(s.dev_ns_K[-2] - s.dev_ns_K[1], s.offset_ns_K[-2] - s.offset_ns_K[1]) for s in self.segments]
        dev_ns, gained_ns = (int(sum(values)) for values in zip(*spans, strict=True))
        return gained_ns / dev_ns * 1e6 if dev_ns else float("nan")


def identity_map(clock_id: str, *, method: str, sigma_ns: float) -> ClockMap:
    """Return the map of a clock whose time is taken as UTC."""
    ends = np.array([-BEYOND_NS, 0, 0, BEYOND_NS])
    segment = Segment(dev_ns_K=ends, offset_ns_K=np.zeros(4, dtype=np.int64), sigma_ns_K=np.full(4, sigma_ns))
    return ClockMap(clock_id=clock_id, method=method, segments=(segment,))


def fit_pairs(clock_id: str, dev_ns_X: np.ndarray, utc_ns_X: np.ndarray, sigma_ns_X: np.ndarray) -> ClockMap:
    """Fit a clock to instants at which it was read together with UTC; there must be at least one."""
    order = np.argsort(dev_ns_X, kind="stable")
    dev_ns_X, offset_ns_X, sigma_ns_X = dev_ns_X[order], (utc_ns_X - dev_ns_X)[order], sigma_ns_X[order]
    segments, residual_ns_X = _fit(dev_ns_X, offset_ns_X, sigma_ns_X, starts=[0])
    best_X = sigma_ns_X <= np.median(sigma_ns_X)
    residuals = Residuals(
        num_exchanges=len(dev_ns_X),
        p99_ns=float(np.percentile(np.abs(residual_ns_X[best_X]), 99)),
        floor_ns=float(sigma_ns_X.min()),
    )
    return ClockMap(clock_id=clock_id, method="pairs", segments=segments, residuals=residuals)


def fit_exchanges(clock_id: str, exchanges: Exchanges) -> ClockMap:
    """Fit a clock to its NTP exchanges; there must be at least one.

    Where no majority of servers agrees, all are used and the map is as uncertain as they are apart.
    """
    honest_X = honest(exchanges)
    used = exchanges.only(honest_X) if honest_X.any() else exchanges
    quarrel_ns = 0.0 if honest_X.any() else float(np.ptp(detrended(used, _slope(used)))) / 2
    sigma_ns_X = _sigma_ns(used)
    starts = [0, *_steps(used, sigma_ns_X)]
    offset_ns_X = used.offset_ns_X
    _, residual_ns_X = _fit(used.dev_ns_X, offset_ns_X, sigma_ns_X, starts)
    offset_ns_X = offset_ns_X - _server_bias_ns(used, residual_ns_X)
    segments, residual_ns_X = _fit(used.dev_ns_X, offset_ns_X, sigma_ns_X, starts, quarrel_ns)
    best_X = used.rtt_ns_X <= np.median(used.rtt_ns_X)
    return ClockMap(
        clock_id=clock_id,
        method="exchanges",
        segments=segments,
        steps=tuple(_step(before, after) for before, after in pairwise(segments)),
        residuals=Residuals(
            num_exchanges=len(used.dev_ns_X),
            num_rejected=exchanges.num_unsynchronised + len(exchanges.dev_ns_X) - len(used.dev_ns_X),
            servers_rejected=_outvoted(exchanges, honest_X),
            p99_ns=float(np.percentile(np.abs(residual_ns_X[best_X]), 99)),
            floor_ns=float(used.rtt_ns_X.min()) / 2,
        ),
    )


def _slope(exchanges: Exchanges) -> float:
    return robust_slope(exchanges.dev_ns_X, exchanges.offset_ns_X, exchanges.server_X)


def _sigma_ns(exchanges: Exchanges) -> np.ndarray:
    """Standard error of each offset: half of what its way took longer than the server's shortest, and a floor."""
    shortest_ns_S = np.full(len(exchanges.servers), np.inf)
    np.minimum.at(shortest_ns_S, exchanges.server_X, exchanges.rtt_ns_X)
    shortest_ns_X = shortest_ns_S[exchanges.server_X]
    return np.asarray(1e4 + 0.1 * shortest_ns_X + 0.5 * (exchanges.rtt_ns_X - shortest_ns_X))


def _server_bias_ns(exchanges: Exchanges, residual_ns_X: np.ndarray) -> np.ndarray:
    """How far each exchange's server lies off the mean of the servers: paths differ, their mean is the best guess."""
    asked = np.unique(exchanges.server_X)
    bias_ns_S = np.zeros(len(exchanges.servers))
    for server in asked:
        bias_ns_S[server] = np.median(residual_ns_X[exchanges.server_X == server])
    bias_ns_S -= bias_ns_S[asked].mean()
    bias_ns_X: np.ndarray = np.rint(bias_ns_S[exchanges.server_X]).astype(np.int64)
    return bias_ns_X


def _outvoted(exchanges: Exchanges, honest_X: np.ndarray) -> tuple[str, ...]:
    """Names of the servers that lied for a good part of the time."""
    counts = [(name, exchanges.server_X == i) for i, name in enumerate(exchanges.servers)]
    return tuple(name for name, of_server_X in counts if of_server_X.any() and (~honest_X[of_server_X]).mean() > 0.1)


def _steps(exchanges: Exchanges, sigma_ns_X: np.ndarray) -> list[int]:
    """Positions of the first exchange after the clock was set."""
    level_ns_X = detrended(exchanges, _slope(exchanges))
    n = len(level_ns_X)
    is_jump_X = np.zeros(n, dtype=bool)
    for k in range(2, n - 1):
        before = max(k - STEP_SIDE, 0) + int(np.argmin(sigma_ns_X[max(k - STEP_SIDE, 0) : k]))
        after = k + int(np.argmin(sigma_ns_X[k : k + STEP_SIDE]))
        tolerance_ns = STEP_MIN_NS + 2.0 * (sigma_ns_X[before] + sigma_ns_X[after])
        is_jump_X[k] = abs(level_ns_X[after] - level_ns_X[before]) > tolerance_ns
    edges = np.flatnonzero(np.diff(is_jump_X.astype(np.int8), prepend=0, append=0))
    return [_sharpest(level_ns_X, int(first), int(stop)) for first, stop in edges.reshape(-1, 2)]


def _sharpest(level_ns_X: np.ndarray, first: int, stop: int) -> int:
    """Where in `[first, stop)` a split leaves the least spread on both sides."""
    low, high = max(first - STEP_SIDE, 0), stop + STEP_SIDE

    def spread(k: int) -> float:
        sides = level_ns_X[low:k], level_ns_X[k:high]
        return float(sum(np.abs(side - np.median(side)).sum() for side in sides))

    return min(range(first, stop), key=spread)


def _fit(
    dev_ns_X: np.ndarray,
    offset_ns_X: np.ndarray,
    sigma_ns_X: np.ndarray,
    starts: list[int],
    extra_sigma_ns: float = 0.0,
) -> tuple[tuple[Segment, ...], np.ndarray]:
    """Smooth the offsets; return the segments that begin at `starts`, and what is left of every measurement."""
    step_s_X = np.diff(dev_ns_X, prepend=dev_ns_X[0]) * 1e-9
    step_s_X[starts] = np.maximum(step_s_X[starts], 0.0)  # the time across a backward step is not known
    level_ns_X = (offset_ns_X - offset_ns_X[0]).astype(np.float64)
    is_start_X = np.zeros(len(dev_ns_X))
    is_start_X[starts[1:]] = 1.0
    fits = []
    for wander in WANDER_PPB:
        slope_noise_X = wander**2 * step_s_X
        level_noise_X = slope_noise_X * step_s_X**2 / 3 + is_start_X * STEP_LEVEL_SIGMA_NS**2
        fits.append(smooth_drift(step_s_X, level_ns_X, sigma_ns_X, level_noise_X, slope_noise_X, SLOPE_PRIOR_PPB))
    best = max(fits, key=lambda fit: fit.log_likelihood)
    knot_offset_ns_X = offset_ns_X[0] + np.rint(best.level_K).astype(np.int64)
    sigma_ns_X = np.hypot(best.level_sigma_K, extra_sigma_ns)
    segments = tuple(
        _segment(
            dev_ns_X[first:stop], knot_offset_ns_X[first:stop], sigma_ns_X[first:stop],
            slope_ppb=(best.slope_K[first], best.slope_K[stop - 1]),
            slope_sigma_ppb=(best.slope_sigma_K[first], best.slope_sigma_K[stop - 1]),
        )
        for first, stop in zip(starts, [*starts[1:], len(dev_ns_X)], strict=True)
    )  # fmt: skip
    return segments, level_ns_X - best.level_K


def _segment(
    dev_ns_K: np.ndarray,
    offset_ns_K: np.ndarray,
    sigma_ns_K: np.ndarray,
    *,
    slope_ppb: tuple[float, float],
    slope_sigma_ppb: tuple[float, float],
) -> Segment:
    """Make a segment whose first and last knot carry the slopes of its ends on."""
    order = np.argsort(dev_ns_K, kind="stable")
    dev_ns_K, offset_ns_K, sigma_ns_K = dev_ns_K[order], offset_ns_K[order], sigma_ns_K[order]
    beyond_s = BEYOND_NS * 1e-9
    first_ns, last_ns = (round(slope * beyond_s) for slope in slope_ppb)
    first_sigma_ns, last_sigma_ns = (sigma * beyond_s for sigma in slope_sigma_ppb)
    return Segment(
        dev_ns_K=np.concatenate([[dev_ns_K[0] - BEYOND_NS], dev_ns_K, [dev_ns_K[-1] + BEYOND_NS]]),
        offset_ns_K=np.concatenate([[offset_ns_K[0] - first_ns], offset_ns_K, [offset_ns_K[-1] + last_ns]]),
        sigma_ns_K=np.concatenate([[sigma_ns_K[0] + first_sigma_ns], sigma_ns_K, [sigma_ns_K[-1] + last_sigma_ns]]),
    )


def _step(before: Segment, after: Segment) -> Step:
    """What two neighbouring segments say about the step between them, until rows place it better."""
    before_ns, after_ns = int(before.dev_ns_K[-2]), int(after.dev_ns_K[1])
    jump_ns = int(
        _interpolate(np.array([after_ns]), *_knots(before))[0][0]
        - _interpolate(np.array([after_ns]), *_knots(after))[0][0]
    )
    return Step(before_ns=before_ns, after_ns=after_ns, jump_ns=jump_ns)


def _locate(step: Step, dev_ns_T: np.ndarray, period_ns: float) -> Step:
    """Find the two rows between which the clock was set: there the beat of the rows shifts for good by the jump."""
    side = 5
    slack_ns = abs(step.jump_ns) + side * period_ns
    near = np.flatnonzero(
        (dev_ns_T >= min(step.before_ns, step.after_ns) - slack_ns)
        & (dev_ns_T <= max(step.before_ns, step.after_ns) + slack_ns)
    )
    if len(near) <= 2 * side:
        return step
    first = int(near[0])
    dev_ns = dev_ns_T[first : int(near[-1]) + 1]
    beat_ns = (dev_ns - dev_ns[0]) - np.arange(len(dev_ns)) * period_ns
    median_ns = np.median(np.lib.stride_tricks.sliding_window_view(beat_ns, side), axis=1)
    shift_ns = median_ns[side:] - median_ns[:-side]
    jump_ns = np.diff(beat_ns)[side - 1 : len(shift_ns) + side - 1]
    mismatch_ns = np.abs(shift_ns - step.jump_ns) + np.abs(jump_ns - step.jump_ns)
    last = int(np.argmin(mismatch_ns)) + side - 1
    if mismatch_ns.min() > abs(step.jump_ns) / 2:  # no row shows the jump by itself: it fell into a gap
        last = int(np.argmax(np.abs(np.diff(beat_ns))))
    return replace(step, before_ns=int(dev_ns[last]), after_ns=int(dev_ns[last + 1]))


def _is_after(dev_ns_T: np.ndarray, step: Step) -> np.ndarray:
    """Tell which rows were stamped after the clock was set."""
    if step.after_ns > step.before_ns:
        return dev_ns_T > step.before_ns + (step.after_ns - step.before_ns) // 2
    # Set back: the device showed the times in between twice, so the order of the rows has to tell.
    between_T = (dev_ns_T >= step.after_ns) & (dev_ns_T <= step.before_ns)
    is_after_T = dev_ns_T > step.before_ns
    twice = np.flatnonzero(between_T)
    if len(twice):
        drops = np.diff(dev_ns_T[twice])
        switch = int(np.argmin(drops)) + 1 if len(drops) and drops.min() < step.jump_ns / 2 else 0
        is_after_T[twice[switch:]] = True
    return np.asarray(is_after_T)


def _knots(segment: Segment) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return segment.dev_ns_K, segment.offset_ns_K, segment.sigma_ns_K


@compiled
def _interpolate(
    dev_ns_T: np.ndarray, dev_ns_K: np.ndarray, offset_ns_K: np.ndarray, sigma_ns_K: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Apply a segment to rows in any order; fast where they are nearly sorted."""
    utc_ns_T = np.empty(len(dev_ns_T), dtype=np.int64)
    sigma_ns_T = np.empty(len(dev_ns_T))
    last = len(dev_ns_K) - 2
    k = 0
    for i in range(len(dev_ns_T)):
        dev_ns = dev_ns_T[i]
        while k < last and dev_ns >= dev_ns_K[k + 1]:
            k += 1
        while k > 0 and dev_ns < dev_ns_K[k]:
            k -= 1
        width_ns = dev_ns_K[k + 1] - dev_ns_K[k]
        share = (dev_ns - dev_ns_K[k]) / width_ns if width_ns > 0 else 0.0
        gained_ns = np.rint(share * (offset_ns_K[k + 1] - offset_ns_K[k]))
        utc_ns_T[i] = dev_ns + offset_ns_K[k] + np.int64(gained_ns)
        sigma_ns_T[i] = sigma_ns_K[k] + share * (sigma_ns_K[k + 1] - sigma_ns_K[k])
    return utc_ns_T, sigma_ns_T
