"""When a clock was set: between which two of the rows that it stamped.

A regular sensor keeps its beat through a step, so of the rows around one those before it are on the beat under the old
map and those after it under the new one. A step by whole periods shows in the turn of the rows instead: one step costs
less than a gap and a fold. A sensor may start its beat anew after a gap, so each side has its own phase.

Shape suffixes: T = rows in stored order, B = boundaries between neighbouring rows: B = T - 1.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.clock_map import Segment

WINDOW_ROWS = 50
"""Rows looked at on each side of the time in which the step must lie, at most."""

WINDOW_S = 30.0
STRETCH = 100
"""The period is taken from the median of stretches of so many rows."""

MIN_ROWS = 4
MISS_COST = 8.0
"""Most that one row off the beat counts, as half a squared deviation: stamps may be late or spoilt."""

TURN_COST = 4.0
"""What it counts that two rows in a row are not one period apart."""

PLAUSIBLE_COST = 3.0
"""Boundaries that cost up to so much more than the best are possible too."""

BEAT_SHARE = 0.01
"""Rows are on the beat to no better than this share of a period."""


class RowStream(NamedTuple):
    """Rows of one regular sensor, as their clock stamped them."""

    dev_ns_T: np.ndarray
    """Device time in stored order, in the round of the exchanges, without stamps that cannot be true."""

    period_ns: float
    """Nominal time from row to row."""


class Span(NamedTuple):
    """A stretch of true time, nanoseconds UTC."""

    low_ns: int
    high_ns: int


def place(stream: RowStream, old: Segment, new: Segment, span: Span) -> Span | None:
    """Narrow down when a clock was set.

    Args:
        stream: Rows that the clock stamped.
        old: The map before the step, carried on beyond it.
        new: The map after the step, carried back before it.
        span: When the step happened, as far as is known.

    Returns:
        From the last row that may be before the step to the first that may be after it; `None` if no rows are near.
    """
    near_ns_T = _near(stream, [old, new], span)
    if len(near_ns_T) < MIN_ROWS:
        return None
    old_ns_T, new_ns_T = old.to_utc(near_ns_T)[0], new.to_utc(near_ns_T)[0]
    is_possible_B = (old_ns_T[:-1] <= span.high_ns) & (new_ns_T[1:] >= span.low_ns)
    if not is_possible_B.any():
        return None
    utc_per_dev = float(np.ptp(old_ns_T)) / float(np.ptp(near_ns_T))
    cost_B = _costs(old_ns_T, new_ns_T, _period_ns(stream) * utc_per_dev, span)
    possible = np.flatnonzero(is_possible_B & (cost_B <= cost_B[is_possible_B].min() + PLAUSIBLE_COST))
    return Span(int(old_ns_T[possible].min()), int(new_ns_T[possible + 1].max()))


def _near(stream: RowStream, sides: list[Segment], span: Span) -> np.ndarray:
    """Device times of the rows around the step, whichever side they are on."""
    wide_ns = round(min(WINDOW_ROWS * stream.period_ns, WINDOW_S * 1e9))
    is_near_T = np.zeros(len(stream.dev_ns_T), dtype=bool)
    for segment in sides:
        low_ns, high_ns = segment.to_dev(np.array([span.low_ns - wide_ns, span.high_ns + wide_ns]))
        is_near_T |= (stream.dev_ns_T >= low_ns) & (stream.dev_ns_T <= high_ns)
    return stream.dev_ns_T[is_near_T]


def _period_ns(stream: RowStream) -> float:
    """Median period over stretches of rows; nominal where the rows are nothing like it."""
    apart = min(STRETCH, len(stream.dev_ns_T) // 2)
    period_ns = float(np.median(stream.dev_ns_T[apart::apart] - stream.dev_ns_T[:-apart:apart])) / apart
    return period_ns if abs(period_ns - stream.period_ns) < 0.05 * stream.period_ns else stream.period_ns


def _costs(old_ns_T: np.ndarray, new_ns_T: np.ndarray, period_ns: float, span: Span) -> np.ndarray:
    """What speaks against the step lying between two rows, for all pairs of neighbours."""
    off_old_T, off_new_T = _off_beat(old_ns_T, new_ns_T, period_ns, span)
    stays_old_B, stays_new_B = (_turn_cost(t[:-1], t[1:], period_ns) for t in (old_ns_T, new_ns_T))
    before_B = np.cumsum(off_old_T)[:-1] + np.cumsum(stays_old_B) - stays_old_B
    after_B = np.cumsum(off_new_T[::-1])[::-1][1:] + np.cumsum(stays_new_B[::-1])[::-1] - stays_new_B
    return np.asarray(before_B + after_B + _turn_cost(old_ns_T[:-1], new_ns_T[1:], period_ns))


def _off_beat(
    old_ns_T: np.ndarray, new_ns_T: np.ndarray, period_ns: float, span: Span
) -> tuple[np.ndarray, np.ndarray]:
    """What it counts how far every row is off the beat, if it is before the step and if it is after it."""
    old_T, new_T = ((t - old_ns_T[0]).astype(np.float64) for t in (old_ns_T, new_ns_T))
    sure_old, sure_new = old_T[old_ns_T < span.low_ns], new_T[new_ns_T > span.high_ns]
    if max(len(sure_old), len(sure_new)) < MIN_ROWS:
        return np.zeros(len(old_T)), np.zeros(len(new_T))
    phase_old = _phase(sure_old if len(sure_old) >= MIN_ROWS else sure_new, period_ns)
    phase_new = _phase(sure_new if len(sure_new) >= MIN_ROWS else sure_old, period_ns)
    miss_sure = np.concatenate([_wrapped(sure_old - phase_old, period_ns), _wrapped(sure_new - phase_new, period_ns)])
    sigma_ns = max(1.5 * float(np.median(np.abs(miss_sure))), BEAT_SHARE * period_ns)
    return tuple(
        np.minimum((_wrapped(t - phase, period_ns) / sigma_ns) ** 2 / 2, MISS_COST)
        for t, phase in ((old_T, phase_old), (new_T, phase_new))
    )  # type: ignore[return-value]


def _phase(t_ns: np.ndarray, period_ns: float) -> float:
    """Middle of the rows within their periods."""
    angles = np.exp(2j * np.pi * t_ns / period_ns)
    rough = float(np.angle(angles.mean())) / (2 * np.pi) * period_ns
    return rough + float(np.median(_wrapped(t_ns - rough, period_ns)))


def _wrapped(miss_ns: np.ndarray, period_ns: float) -> np.ndarray:
    """Distance from the nearest beat."""
    return np.asarray(miss_ns - np.rint(miss_ns / period_ns) * period_ns)


def _turn_cost(first_ns: np.ndarray, second_ns: np.ndarray, period_ns: float) -> np.ndarray:
    return np.where(np.abs(second_ns - first_ns - period_ns) > period_ns / 3, TURN_COST, 0.0)
