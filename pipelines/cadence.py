"""How the instants of a stream follow each other: intervals, gaps, coverage, order, repeats and jumps of an hour.

Instants are int64 nanoseconds UTC. Rows of several groups (vehicles, days) may lie in one array; only rows of one group
are neighbours, and no time passes between groups.

Shape suffixes: T = rows in stored order, I = intervals.
"""

from typing import Any, NamedTuple

import numpy as np

HOUR_NS = 3_600 * 10**9
HOUR_TOLERANCE_NS = 5 * 10**9
"""Two rows on both sides of a clock change are an hour apart to within this, beyond their usual interval."""

REGULAR_SHARE = 0.25
"""An interval is regular if it differs from the nominal period by no more than this share of it."""


class Intervals(NamedTuple):
    """Time between rows of one group."""

    start_ns_I: np.ndarray
    """Where each begins."""

    length_ns_I: np.ndarray
    """How long it is; negative where the later row is the earlier instant."""


class Gaps(NamedTuple):
    """Stretches without a reading, from the first row of a group to its last, whether these have a reading or not."""

    start_ns_I: np.ndarray
    length_ns_I: np.ndarray
    is_after_reading_I: np.ndarray
    """False for the stretch before the first reading of a group."""


def intervals(t_ns_T: np.ndarray, group_T: np.ndarray | None = None) -> Intervals:
    """Time from each row to the next as they are stored.

    Example:
        >>> intervals(np.array([10, 20, 15])).length_ns_I.tolist()
        [10, -5]
    """
    if group_T is None:
        return Intervals(t_ns_T[:-1], np.diff(t_ns_T))
    order_T = np.argsort(group_T, kind="stable")
    return _between(t_ns_T[order_T], group_T[order_T])


def sorted_intervals(t_ns_T: np.ndarray, group_T: np.ndarray | None = None) -> Intervals:
    """Time from each instant to the next later one; 0 where an instant repeats.

    Example:
        >>> sorted_intervals(np.array([10, 20, 15, 20])).length_ns_I.tolist()
        [5, 5, 0]
    """
    if group_T is None:
        return intervals(np.sort(t_ns_T))
    order_T = np.lexsort((t_ns_T, group_T))
    return _between(t_ns_T[order_T], group_T[order_T])


def gaps(t_ns_T: np.ndarray, has_reading_T: np.ndarray, group_T: np.ndarray) -> Gaps:
    """Stretches between readings, and from the ends of a group to its first and last reading.

    Example:
        >>> has_reading = np.array([False, True, True, False])
        >>> gaps(np.array([0, 10, 20, 50]), has_reading, np.zeros(4, dtype=int)).length_ns_I.tolist()
        [10, 10, 30]
    """
    starts, first_ns, last_ns = _ends(t_ns_T, group_T)
    num_readings = int(has_reading_T.sum())
    t_ns = np.concatenate([first_ns, t_ns_T[has_reading_T], last_ns])
    group = np.concatenate([starts, group_T[has_reading_T], starts])
    rank = np.repeat([0, 1, 2], [len(starts), num_readings, len(starts)])
    order = np.lexsort((rank, t_ns, group))
    is_reading_I = (rank[order] == 1)[:-1][_is_same(group[order])]
    return Gaps(*_between(t_ns[order], group[order]), is_reading_I)


def coverage(found: Gaps, *, hold_ns: float) -> float:
    """Share of the time that readings cover, each for at most `hold_ns` after its instant.

    Groups that last no time at all count as covered where they have a reading.

    Example:
        >>> has_reading = np.array([False, True, True, False])
        >>> coverage(gaps(np.array([0, 10, 20, 50]), has_reading, np.zeros(4, dtype=int)), hold_ns=10)
        0.4
    """
    total_ns = int(found.length_ns_I.sum())
    if not total_ns:
        return float(found.is_after_reading_I.any())
    return float(np.minimum(found.length_ns_I[found.is_after_reading_I], hold_ns).sum()) / total_ns


def hour_jumps(found: Intervals, *, period_ns: float, tolerance_ns: float = HOUR_TOLERANCE_NS) -> np.ndarray:
    """Mark intervals in which an hour is missing or repeated: as long as `period_ns` and an hour more, or less.

    Example:
        >>> second = 10**9
        >>> hour_jumps(Intervals(np.zeros(3), np.array([1, 3601, -3599]) * second), period_ns=second).tolist()
        [False, True, True]
    """
    return np.asarray(np.abs(np.abs(found.length_ns_I - period_ns) - HOUR_NS) <= tolerance_ns)


def stream_facts(utc_ns_T: np.ndarray, rate_hz: float | None) -> dict[str, Any]:
    """What is to be known of the rows of one sensor.

    Args:
        utc_ns_T: Instants of the rows that have one, as they were stored.
        rate_hz: Nominal rate; `None` for an event stream, which has no cadence.

    Returns:
        `measured_rate_hz` (of the median interval), `regular_share` (of the intervals), `largest_gap_s`,
        `out_of_order_share` (of the rows), `hour_jumps`. `None` where there is nothing to measure.
    """
    stored = intervals(utc_ns_T)
    is_back_I = stored.length_ns_I < 0
    facts: dict[str, Any] = {
        "measured_rate_hz": None,
        "regular_share": None,
        "largest_gap_s": None,
        "out_of_order_share": round(float(is_back_I.mean()), 6) if len(is_back_I) else None,
        "hour_jumps": None,
    }
    if rate_hz is None or not len(is_back_I):
        return facts
    length_ns_I = sorted_intervals(utc_ns_T).length_ns_I if is_back_I.any() else stored.length_ns_I
    period_ns, median_ns = 1e9 / rate_hz, float(np.median(length_ns_I))
    return facts | {
        "measured_rate_hz": round(1e9 / median_ns, 6) if median_ns else None,
        "regular_share": round(float((np.abs(length_ns_I - period_ns) <= REGULAR_SHARE * period_ns).mean()), 6),
        "largest_gap_s": round(float(length_ns_I.max()) * 1e-9, 6),
        "hour_jumps": int(hour_jumps(stored, period_ns=period_ns).sum()),
    }


def _between(t_ns_T: np.ndarray, group_T: np.ndarray) -> Intervals:
    """Intervals between rows that lie group by group."""
    is_same_I = _is_same(group_T)
    return Intervals(t_ns_T[:-1][is_same_I], np.diff(t_ns_T)[is_same_I])


def _is_same(group_T: np.ndarray) -> np.ndarray:
    """Whether a row and the next are of one group."""
    return np.asarray(group_T[1:] == group_T[:-1])


def _ends(t_ns_T: np.ndarray, group_T: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each group with its first and last instant."""
    order_T = np.lexsort((t_ns_T, group_T))
    groups, first = np.unique(group_T[order_T], return_index=True)
    last = np.append(first[1:], len(t_ns_T)) - 1 if len(groups) else first
    return groups, t_ns_T[order_T][first], t_ns_T[order_T][last]
