"""Readings carried to other instants: the last one at or before, or a line between the two around.

Both are one pass over the rows and the instants together, and hold nothing but their result.

Shape suffixes: T = rows of one sensor by instant, G = instants asked for.
"""

import numpy as np

from pipelines.compiled import compiled


def as_of(
    t_ns_T: np.ndarray, x_T: np.ndarray, at_ns_G: np.ndarray, *, max_age_ns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last reading at or before each instant, and its age.

    Args:
        t_ns_T: Instants of the rows, ascending; of several rows at one instant the last counts.
        x_T: Readings; NaN is none.
        at_ns_G: Instants asked for, ascending.
        max_age_ns: An older reading is none.

    Returns:
        `(x_G, age_s_G)`, float64 and float32, NaN where there is no reading.

    Example:
        >>> as_of(np.array([5, 25]), np.array([1.0, 2.0]), np.array([0, 10, 20, 30, 40]), max_age_ns=12)[0].tolist()
        [nan, 1.0, nan, 2.0, nan]
    """
    x_G, age_s_G = np.empty(len(at_ns_G)), np.empty(len(at_ns_G), dtype=np.float32)
    _as_of(t_ns_T, x_T, at_ns_G, max_age_ns, x_G, age_s_G)
    return x_G, age_s_G


def on_line(
    t_ns_T: np.ndarray, x_T: np.ndarray, at_ns_G: np.ndarray, *, delay_ns: int, max_gap_ns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the reading `delay_ns` before each instant, on a straight line between the readings around that moment.

    Only readings at or before the instant itself count. Where the later one of the two is not there yet, or they are
    more than `max_gap_ns` apart, the last reading is held for up to `max_gap_ns`, as by `as_of`.

    Args:
        t_ns_T: Instants of the rows, ascending.
        x_T: Readings; NaN is none.
        at_ns_G: Instants asked for, ascending.
        delay_ns: How long to wait for the later reading: about the time from one reading to the next.
        max_gap_ns: Readings further apart have no line between them.

    Returns:
        `(x_G, age_s_G)`: value and how long before the instant it was true, NaN where there is none.

    Example:
        >>> x_G, age_s_G = on_line(np.array([0, 10]), np.array([1.0, 2.0]), np.array([4, 12, 25]), delay_ns=10,
        ...                        max_gap_ns=14)
        >>> x_G.tolist()
        [1.0, 1.2, nan]
    """
    x_G, age_s_G = np.empty(len(at_ns_G)), np.empty(len(at_ns_G), dtype=np.float32)
    _on_line(t_ns_T, x_T, at_ns_G, delay_ns, max_gap_ns, x_G, age_s_G)
    return x_G, age_s_G


@compiled
def _as_of(
    t_ns_T: np.ndarray, x_T: np.ndarray, at_ns_G: np.ndarray, max_age_ns: int, x_G: np.ndarray, age_s_G: np.ndarray
) -> None:
    i, last = 0, -1
    for g in range(len(at_ns_G)):
        while i < len(t_ns_T) and t_ns_T[i] <= at_ns_G[g]:
            if not np.isnan(x_T[i]):
                last = i
            i += 1
        if last >= 0 and at_ns_G[g] - t_ns_T[last] <= max_age_ns:
            x_G[g], age_s_G[g] = x_T[last], (at_ns_G[g] - t_ns_T[last]) * 1e-9
        else:
            x_G[g] = age_s_G[g] = np.nan


@compiled
def _on_line(
    t_ns_T: np.ndarray,
    x_T: np.ndarray,
    at_ns_G: np.ndarray,
    delay_ns: int,
    max_gap_ns: int,
    x_G: np.ndarray,
    age_s_G: np.ndarray,
) -> None:
    i, before = 0, -1  # `before`: the last reading at or before the moment asked for, `i` looks for the one after it
    for g in range(len(at_ns_G)):
        x_G[g] = age_s_G[g] = np.nan
        moment_ns = at_ns_G[g] - delay_ns
        while i < len(t_ns_T) and (np.isnan(x_T[i]) or t_ns_T[i] <= moment_ns):
            if not np.isnan(x_T[i]):
                before = i
            i += 1
        has_after = i < len(t_ns_T) and t_ns_T[i] <= at_ns_G[g]
        if has_after and before >= 0 and t_ns_T[i] - t_ns_T[before] <= max_gap_ns:
            share = (moment_ns - t_ns_T[before]) / (t_ns_T[i] - t_ns_T[before])
            x_G[g] = x_T[before] + share * (x_T[i] - x_T[before])
            age_s_G[g] = delay_ns * 1e-9
            continue
        last = before
        k = i
        while k < len(t_ns_T) and t_ns_T[k] <= at_ns_G[g]:
            if not np.isnan(x_T[k]):
                last = k
            k += 1
        if last >= 0 and at_ns_G[g] - t_ns_T[last] <= max_gap_ns:
            x_G[g], age_s_G[g] = x_T[last], (at_ns_G[g] - t_ns_T[last]) * 1e-9
