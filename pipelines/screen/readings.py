"""Checks of the readings of one channel by themselves.

Shape suffixes: T = readings of one channel by instant, R = runs of identical readings.
"""

import numpy as np

from pipelines.channels import Channel, Kind
from pipelines.compiled import compiled
from pipelines.screen.reasons import Reason, code

FROZEN_S = 60.0
"""An analogue channel with noise does not repeat one value exactly for this long."""

FROZEN_ROWS = 50
"""Nor for fewer readings than this."""

FROZEN_RUNS, FROZEN_TIMES = 20, 8.0
"""Nor, where the resolution is coarse, for this many times as long as nine of ten runs, of this many runs at least."""

SPIKE_ROWS = 5
"""Longest spike, in readings; what lasts longer is a change."""

SPIKE_GAP_PERIODS = 5.0
"""Readings further apart say nothing about each other."""

SLOPE_ROWS = 4
"""The line that a reading is compared with goes through the last reading and the one this many before it."""

FLAT_TOPS, FLAT_ROWS = 5, (2, 50)
"""A signal that was cut off shows this many tops of so many equal readings; a longer one was held there."""

RESOLVED_STEPS = 8.0
"""Equal readings mean something where the signal usually moves by this many steps of its resolution."""


def screen(t_ns_T: np.ndarray, x_T: np.ndarray, channel: Channel, *, rate_hz: float | None) -> np.ndarray:
    """Apply the checks that fit a channel.

    Args:
        t_ns_T: Instants of the readings, ascending.
        x_T: Readings of `channel`; NaN where missing.
        channel: Its kind and what a reading of it can be.
        rate_hz: Nominal rate; `None` for a channel without one, whose readings are looked at one by one only.

    Returns:
        ``code_T``: the code of the first reason that applies to each reading, 0 for none.
    """
    code_T = one_by_one(x_T, channel)
    # A count or a ratio, unit "1", may well jump, repeat or end.
    if channel.kind is not Kind.CONTINUOUS or channel.unit == "1" or rate_hz is None:
        return code_T
    code_T[saturated(believed(x_T, code_T))] = code(Reason.SATURATED)
    if np.isfinite(channel.spike):
        max_gap_ns = round(SPIKE_GAP_PERIODS * 1e9 / rate_hz)
        code_T[spike(t_ns_T, believed(x_T, code_T), channel.spike, max_gap_ns)] = code(Reason.SPIKE)
    if not channel.rests:
        # At exactly zero many sensors rest: a standing train, an idle motor.
        is_frozen_T = frozen(x_T, run_length=max(FROZEN_ROWS, round(FROZEN_S * rate_hz))) & (x_T != 0.0)
        code_T[is_frozen_T & (code_T == 0)] = code(Reason.FROZEN)
    return code_T


def one_by_one(x_T: np.ndarray, channel: Channel) -> np.ndarray:
    """Find readings that are missing, not finite or outside what the channel can be, whatever their instants."""
    return np.asarray(
        _one_by_one(
            x_T,
            channel.low,
            channel.high,
            code(Reason.MISSING),
            code(Reason.NOT_FINITE),
            code(Reason.OUT_OF_RANGE),
        )
    )


def believed(x_T: np.ndarray, code_T: np.ndarray) -> np.ndarray:
    """Copy of the readings with NaN where a code says that they are not believed."""
    return np.where(code_T == 0, x_T, np.nan)


def spike(t_ns_T: np.ndarray, x_T: np.ndarray, height: float, max_gap_ns: int) -> np.ndarray:
    """Find readings that leave the line through those before them, up to `SPIKE_ROWS` until one is back on it.

    The same backwards in time finds what has too little before it: the second reading after a tunnel. A change that
    lasts, however fast, is no spike, nor is a fast rise: the line rises with it.

    Args:
        t_ns_T: Instants, ascending.
        x_T: Readings, finite or NaN.
        height: How far from the line is too far.
        max_gap_ns: Readings further apart are not compared.

    Example:
        >>> t_ns_T = np.arange(7)
        >>> spike(t_ns_T, np.array([1.0, 2.0, 3.0, 9.0, 9.0, 6.0, 7.0]), 2.5, 4).tolist()
        [False, False, False, True, True, False, False]
        >>> spike(t_ns_T, np.array([1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0]), 2.5, 4).tolist()
        [False, False, False, False, False, False, False]
    """
    is_present_T = ~np.isnan(x_T)
    is_spike_T = np.zeros(len(x_T), dtype=bool)
    t_ns, x = t_ns_T[is_present_T], x_T[is_present_T]
    backwards = _spikes(np.ascontiguousarray(-t_ns[::-1]), np.ascontiguousarray(x[::-1]), height, max_gap_ns)
    is_spike_T[is_present_T] = _spikes(t_ns, x, height, max_gap_ns) | backwards[::-1]
    return is_spike_T


def frozen(x_T: np.ndarray, *, run_length: int) -> np.ndarray:
    """Find readings inside a run of identical values that is too long.

    Args:
        x_T: Samples of one analogue channel, oldest first; NaN is never part of a run.
        run_length: Shortest run that counts as frozen, in samples; 2 or more. Where a coarse resolution makes runs
            usual, `FROZEN_TIMES` as long as usual.

    Returns:
        ``mask_T``, true where the reading is frozen.
    """
    length_R = _run_lengths(x_T)
    if length_R.max(initial=0) < run_length:
        return np.zeros(len(x_T), dtype=bool)
    usual = np.quantile(length_R, 0.9) if len(length_R) >= FROZEN_RUNS else 0.0
    return np.asarray(np.repeat(length_R >= max(run_length, FROZEN_TIMES * usual), length_R))


def saturated(x_T: np.ndarray) -> np.ndarray:
    """Find readings at an extreme that the signal was cut off at.

    It was if it has many flat tops there, entered in steps about as large as any: a signal that is free to go on slows
    down before it turns, at another value each time.

    Args:
        x_T: Readings, finite or NaN.

    Example:
        >>> x_T = np.clip(np.sin(np.arange(0.0, 100.0, 0.3)), -1.0, 0.8)
        >>> sorted(set(x_T[saturated(x_T)].tolist()))
        [0.8]
    """
    is_saturated_T = np.zeros(len(x_T), dtype=bool)
    if np.isnan(x_T).all():
        return is_saturated_T
    for extreme in (np.nanmax(x_T), np.nanmin(x_T)):
        at_T = x_T == extreme
        if extreme != 0.0 and at_T.sum() >= FLAT_TOPS * FLAT_ROWS[0] and _is_cut_off(x_T, at_T):
            is_saturated_T |= at_T
    return is_saturated_T


def _is_cut_off(x_T: np.ndarray, at_T: np.ndarray) -> bool:
    step_T = np.abs(np.diff(x_T, prepend=np.nan))
    moved_T = step_T[step_T > 0.0]
    if not len(moved_T) or np.median(moved_T) < RESOLVED_STEPS * moved_T.min():
        return False
    first_R = np.flatnonzero(at_T & ~np.r_[False, at_T[:-1]])
    length_R = np.flatnonzero(at_T & ~np.r_[at_T[1:], False]) + 1 - first_R
    entered_R = step_T[first_R[(length_R >= FLAT_ROWS[0]) & (length_R <= FLAT_ROWS[1])]]
    entered_R = entered_R[~np.isnan(entered_R)]
    return len(entered_R) >= FLAT_TOPS and bool(np.median(entered_R) >= 0.25 * np.median(moved_T))


@compiled
def _one_by_one(
    x_T: np.ndarray, low: float, high: float, missing: int, not_finite: int, out_of_range: int
) -> np.ndarray:
    code_T = np.zeros(len(x_T), dtype=np.uint8)
    for i in range(len(x_T)):
        if np.isnan(x_T[i]):
            code_T[i] = missing
        elif np.isinf(x_T[i]):
            code_T[i] = not_finite
        elif x_T[i] < low or x_T[i] > high:
            code_T[i] = out_of_range
    return code_T


@compiled
def _spikes(t_ns_T: np.ndarray, x_T: np.ndarray, height: float, max_gap_ns: int) -> np.ndarray:
    is_spike_T = np.zeros(len(x_T), dtype=np.bool_)
    good = np.zeros(SLOPE_ROWS, dtype=np.int64)  # the last readings that are no spikes, in turn
    num_good = 0
    i = 0
    while i < len(x_T):
        last = good[(num_good - 1) % SLOPE_ROWS]
        if num_good > 0 and t_ns_T[i] - t_ns_T[last] > max_gap_ns:
            num_good = 0
        if num_good > 1:  # of one reading nobody knows where it was heading
            oldest = good[max(num_good - SLOPE_ROWS, 0) % SLOPE_ROWS]
            span_ns = t_ns_T[last] - t_ns_T[oldest]
            slope = (x_T[last] - x_T[oldest]) / span_ns if span_ns > 0 else 0.0
            back = _back_on_line(t_ns_T, x_T, i, last, slope, height, max_gap_ns)
            if back < 0:
                num_good = 0  # a change that lasts: a new line begins
            elif back > i:
                is_spike_T[i:back] = True
                i = back
        good[num_good % SLOPE_ROWS] = i
        num_good += 1
        i += 1
    return is_spike_T


@compiled
def _back_on_line(
    t_ns_T: np.ndarray, x_T: np.ndarray, first: int, last: int, slope: float, height: float, max_gap_ns: int
) -> int:
    """The first reading from `first` on that lies on the line through `last`; -1 if it comes too late."""
    for i in range(first, min(first + SPIKE_ROWS + 1, len(x_T))):
        if i > first and t_ns_T[i] - t_ns_T[i - 1] > max_gap_ns:
            break
        if abs(x_T[i] - x_T[last] - slope * (t_ns_T[i] - t_ns_T[last])) <= height:
            return i
    return -1


@compiled
def _run_lengths(x_T: np.ndarray) -> np.ndarray:
    """Lengths of the runs of identical values, NaN being a run of one; together as long as the input."""
    length_R = np.empty(len(x_T), dtype=np.int64)
    num_runs, first = 0, 0
    for i in range(1, len(x_T) + 1):
        if i < len(x_T) and x_T[i] == x_T[first]:
            continue
        length_R[num_runs] = i - first
        num_runs += 1
        first = i
    return length_R[:num_runs].copy()
