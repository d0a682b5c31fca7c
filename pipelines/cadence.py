"""How the instants of a stream follow each other: intervals, gaps, coverage, order, repeats and jumps of an hour.

Instants are int64 nanoseconds UTC. Rows of several groups (vehicles, days) may lie in one array; only rows of one group
are neighbours, and no time passes between groups.

Shape suffixes: T = rows in stored order, I = intervals, S = streams.
"""

from typing import Any, NamedTuple

import numpy as np

from pipelines.compiled import compiled

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


def hour_jumps(found: Intervals, *, period_ns: float, tolerance_ns: float) -> np.ndarray:
    """Mark intervals in which an hour is missing or repeated: as long as `period_ns` and an hour more, or less.

    Example:
        >>> second = 10**9
        >>> found = Intervals(np.zeros(3), np.array([1, 3601, -3599]) * second)
        >>> hour_jumps(found, period_ns=second, tolerance_ns=0).tolist()
        [False, True, True]
    """
    return np.asarray(np.abs(np.abs(found.length_ns_I - period_ns) - HOUR_NS) <= tolerance_ns)


def stream_facts(stored_ns_T: np.ndarray, sorted_ns_T: np.ndarray, rate_hz: float | None) -> dict[str, Any]:
    """What is to be known of the rows of one sensor.

    Args:
        stored_ns_T: Instants of the rows that have one, as they were stored.
        sorted_ns_T: The same, ascending.
        rate_hz: Nominal rate; `None` for an event stream, which has no cadence.

    Returns:
        `measured_rate_hz` (of the regular intervals, or of the median one if most are not), `regular_share` (of the
        intervals), `largest_gap_s`, `hour_jumps`. `None` where there is nothing to measure.
    """
    num_intervals = len(stored_ns_T) - 1
    if num_intervals < 1 or rate_hz is None:
        return dict.fromkeys(("measured_rate_hz", "regular_share", "largest_gap_s", "hour_jumps"))
    period_ns = 1e9 / rate_hz
    num_regular, regular_ns, longest_ns = _regularity(sorted_ns_T, period_ns)
    usual_ns = regular_ns / num_regular if 2 * num_regular > num_intervals else float(np.median(np.diff(sorted_ns_T)))
    return {
        "measured_rate_hz": float(f"{1e9 / usual_ns:.6g}") if usual_ns else None,
        "regular_share": round(num_regular / num_intervals, 6),
        "largest_gap_s": round(longest_ns * 1e-9, 6),
        "hour_jumps": _num_hour_jumps(stored_ns_T, period_ns),
    }


def behind_others(first_ns_S: np.ndarray, last_ns_S: np.ndarray) -> np.ndarray:
    """How much later each of several streams lies than the median of the others, in nanoseconds.

    Both ends have to lie on one side; the nearer one counts. So a stream that starts late or breaks off early does not
    lie behind, but one whose clock is an hour off does.

    Example:
        >>> behind_others(np.array([0, 5, 3600, 900]), np.array([1000, 1010, 4600, 1000])).tolist()
        [-10, 0, 3595, 0]
    """
    behind_S = np.zeros(len(first_ns_S), dtype=np.int64)
    for i in range(len(first_ns_S) if len(first_ns_S) > 1 else 0):
        ends_ns = [-int(np.median(np.delete(ends_S, i) - ends_S[i])) for ends_S in (first_ns_S, last_ns_S)]
        behind_S[i] = min(ends_ns, key=abs) if min(ends_ns) > 0 or max(ends_ns) < 0 else 0
    return behind_S


@compiled
def _num_hour_jumps(stored_ns_T: np.ndarray, period_ns: float) -> int:
    """`hour_jumps`, counted, for millions of rows."""
    num_jumps = 0
    for i in range(1, len(stored_ns_T)):
        length_ns = stored_ns_T[i] - stored_ns_T[i - 1]
        num_jumps += abs(abs(length_ns - period_ns) - HOUR_NS) <= HOUR_TOLERANCE_NS
    return num_jumps


@compiled
def _regularity(sorted_ns_T: np.ndarray, period_ns: float) -> tuple[int, int, int]:
    """Number and total length of the regular intervals, and the longest of all."""
    num_regular, regular_ns, longest_ns = 0, 0, 0
    for i in range(1, len(sorted_ns_T)):
        length_ns = sorted_ns_T[i] - sorted_ns_T[i - 1]
        longest_ns = max(longest_ns, length_ns)
        if abs(length_ns - period_ns) <= REGULAR_SHARE * period_ns:
            num_regular += 1
            regular_ns += length_ns
    return num_regular, regular_ns, longest_ns


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
