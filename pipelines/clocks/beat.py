"""Which turn in the beat of its sensor every row has, counted from the first.

Rows get lost, are stored late, stamped late, stamped by a clock that was set, and jitter by more than half a period,
so that no stamp alone says whose turn it was. Several histories are followed at a time; each pays for what has to be
assumed (a lost row, a late stamp, ...), and the rows that follow decide. Only the unlikely are dropped, so the result
is that of the likeliest history, and costs next to nothing while there is just one.

Shape suffixes: T = rows in the order in which they were measured or stored, D = rows of which it is in doubt whether
the clock had been set, G = segments of the clock's map, H = histories, L = rows not yet settled.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.stamps import NO_STAMP
from pipelines.compiled import compiled

LATE_MAX_NS = 500_000_000
"""A stamp further from its turn than this is not late but wrong."""

HEAVY_SIGMAS = 1.5
# What a history pays for what it assumes, in units of a log likelihood.
LATE_STAMP, EARLY_STAMP, WRONG_STAMP = 10.0, 12.0, 14.0
LOST_ROWS, LATE_ROW, SAME_TURN = 7.0, 10.0, 20.0
SET_TWICE = 20.0
"""Where its map has one step, the clock was set twice, and the rows between are of no segment of the map."""

NEW_BEAT = 36.0
"""The sensor was started anew, with or without a gap: as unlikely as four late stamps in a row."""

UNLIKELY = 30.0
"""A history that pays this much more than another is dropped."""

UNSURE = 5.0
"""Histories that differ by less than this are equally good."""

MAX_HISTORIES = 12
LOOK_BACK = 4_096
"""Rows after which the best history is settled for, if it is still not the only one."""

GATE_SIGMAS = 4.0
COARSE_JITTER = 0.12
"""With jitter above this share of the period, the turn before and after the nearest one are considered too."""

MIN_GAIN = 0.02
"""Share of a row's distance from the beat by which it moves the beat, once many rows were seen."""


NO_SEGMENT = -1
"""Segment of rows stamped between two settings of the clock that its map takes for one."""


class Turns(NamedTuple):
    """Place of every row in the beat."""

    turn_T: np.ndarray
    """Periods since the first row."""

    beat_T: np.ndarray
    """How often the sensor had been started anew."""

    segment_T: np.ndarray
    """Segment of the clock's map in which the row was stamped, or `NO_SEGMENT`."""


class _State(NamedTuple):
    """Where a history has got to."""

    turn: int
    """Of the newest row that came in turn."""

    beat: int
    segment: int
    age: int
    """Rows in turn since the beat began, or since the clock was set twice."""

    is_between: int
    """1 between two settings of the clock that its map takes for one."""


class _Row(NamedTuple):
    """What a history says about the row that it ends with."""

    parent: int
    """Position of the history that it goes on from."""

    turn: int
    beat: int
    segment: int


class _Histories(NamedTuple):
    """Histories up to one row. (A table rather than a list of states: it is compiled.)"""

    cost_H: np.ndarray
    phase_ns_H: np.ndarray
    """When turn 0 of the beat was, since the first row."""

    shift_ns_H: np.ndarray
    """How far the clock is off the segment, where it was set twice."""

    state_H: np.ndarray
    """The numbers of `_State`."""

    row_H: np.ndarray
    """The numbers of `_Row`."""


@compiled
def find_turns(
    t_ns_T: np.ndarray,
    skipped_T: np.ndarray,
    segment_T: np.ndarray,
    row_D: np.ndarray,
    t_ns_DG: np.ndarray,
    period_ns: float,
    sigma_ns: float,
    lean: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the likeliest history of the rows.

    Args:
        t_ns_T: Instants; of a row in doubt any.
        skipped_T: How many rows without a usable stamp were stored just before each; they had their turns.
        segment_T: `Sides.segment_T`.
        row_D: `Sides.row_D`.
        t_ns_DG: `Sides.utc_ns_DG`.
        period_ns: Period of the beat.
        sigma_ns: Jitter of a usual stamp.
        lean: Where nothing else tells, the clock was set early among the rows in doubt (1), or late (-1).

    Returns:
        `turn_T`, `beat_T` and `segment_T` of `Turns`.
    """
    n = len(t_ns_T)
    turn_T, beat_T, of_T = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int32), segment_T.copy()
    old, new = _no_histories(), _no_histories()
    rows_LH = np.zeros((LOOK_BACK, MAX_HISTORIES, 4), dtype=np.int64)
    gate_ns = min(GATE_SIGMAS * sigma_ns, period_ns / 4)
    old.state_H[0, 2] = segment_T[0]
    num, settled = 1, 1
    d = 1 if len(row_D) and row_D[0] == 0 else 0
    for i in range(1, n):
        is_doubtful = d < len(row_D) and row_D[d] == i
        is_plain = not is_doubtful and segment_T[i] == old.state_H[0, 2] and skipped_T[i] == 0
        if num == 1 and is_plain and not old.state_H[0, 4]:
            miss_ns = (t_ns_T[i] - t_ns_T[0]) - old.phase_ns_H[0] - (old.state_H[0, 0] + 1) * period_ns
            if abs(miss_ns) < gate_ns:
                old.phase_ns_H[0] += _gain(old.state_H[0, 3]) * miss_ns
                old.state_H[0, 0] += 1
                old.state_H[0, 3] += 1
                turn_T[i], beat_T[i] = old.state_H[0, 0], old.state_H[0, 1]
                settled = i + 1
                continue
        num_new = 0
        for h in range(num):
            if not is_doubtful:
                since_ns, segment = float(t_ns_T[i] - t_ns_T[0]), int(segment_T[i])
                num_new = _go_on(old, h, new, num_new, since_ns, segment, 1 + skipped_T[i], period_ns, sigma_ns, -1.0)
                continue
            of_step = UNSURE * (d / len(row_D) if lean > 0.0 else 1.0 - d / len(row_D))
            for g in range(t_ns_DG.shape[1]):
                if t_ns_DG[d, g] != NO_STAMP:
                    since_ns = float(t_ns_DG[d, g] - t_ns_T[0])
                    num_new = _go_on(old, h, new, num_new, since_ns, g, 1 + skipped_T[i], period_ns, sigma_ns, of_step)
        d += is_doubtful
        num = _keep_likely(new, num_new)
        if num > 1 and (i + 1 - settled >= LOOK_BACK or i == n - 1):
            num = _keep_best(new, num)
        rows_LH[i % LOOK_BACK] = new.row_H
        old, new = new, old
        if num == 1:
            h = 0
            for k in range(i, settled - 1, -1):
                row = rows_LH[k % LOOK_BACK, h]
                h, turn_T[k], beat_T[k], of_T[k] = row[0], row[1], row[2], row[3]
            settled = i + 1
    return turn_T, beat_T, of_T


@compiled
def _no_histories() -> _Histories:
    return _Histories(
        np.zeros(MAX_HISTORIES),
        np.zeros(MAX_HISTORIES),
        np.zeros(MAX_HISTORIES),
        np.zeros((MAX_HISTORIES, 5), dtype=np.int64),
        np.zeros((MAX_HISTORIES, 4), dtype=np.int64),
    )


@compiled
def _go_on(
    old: _Histories,
    h: int,
    new: _Histories,
    num: int,
    since_ns: float,
    segment: int,
    usual: int,
    period_ns: float,
    sigma_ns: float,
    of_step: float,
) -> int:
    """Offer all ways in which history `h` may go on with a row.

    Args:
        old: Histories up to the row before.
        h: The one to go on with.
        new: Histories up to this row.
        num: How many there are.
        since_ns: Instant of the row, since the first row, if `segment` stamped it.
        segment: Segment of the clock's map.
        usual: Turns to the row, if none was lost.
        period_ns: Period of the beat.
        sigma_ns: Jitter of a usual stamp.
        of_step: What it costs that the clock was set just before a row in doubt; negative for a row that is in none.

    Returns:
        The new `num`.
    """
    state_h = old.state_H[h]
    turn, beat, was, age, is_between = state_h[0], state_h[1], state_h[2], state_h[3], state_h[4]
    paid, phase_ns = old.cost_H[h], old.phase_ns_H[h]
    from_turn_ns = since_ns - phase_ns - turn * period_ns
    nearest = int(np.rint(from_turn_ns / period_ns))
    if nearest <= 0 or segment < was:
        cost = paid + _of_stamp(from_turn_ns - nearest * period_ns, sigma_ns)
        cost += SAME_TURN if nearest >= 0 else LATE_ROW
        state, row = _State(turn, beat, was, age, is_between), _Row(h, turn + nearest, beat, segment)
        num = _offer(new, num, cost, phase_ns, old.shift_ns_H[h], state, row)
    if segment < was:
        return num
    if segment > was and of_step > 0.0:
        paid += of_step
    reach = 1 if sigma_ns > COARSE_JITTER * period_ns else 0
    for candidate in range(2 * reach + 2):
        k = usual if candidate == 0 else nearest - reach - 1 + candidate
        if candidate > 0 and (k < 1 or k == usual):
            continue
        miss_ns = from_turn_ns - k * period_ns
        cost = paid + _of_stamp(miss_ns, sigma_ns) + (LOST_ROWS if k != usual else 0.0)
        moved_ns = _gain(age) * min(max(miss_ns, -3.0 * sigma_ns), 3.0 * sigma_ns)
        state, row = _State(turn + k, beat, segment, age + 1, 0), _Row(h, turn + k, beat, segment)
        num = _offer(new, num, cost, phase_ns + moved_ns, 0.0, state, row)
    k = max(nearest, 1)
    miss_ns = from_turn_ns - k * period_ns
    if abs(miss_ns) > GATE_SIGMAS * sigma_ns:
        state, row = _State(turn + k, beat + 1, segment, 0, 0), _Row(h, turn + k, beat + 1, segment)
        num = _offer(new, num, paid + NEW_BEAT, phase_ns + miss_ns, 0.0, state, row)
    if of_step < 0.0 or segment != was:
        return num
    off_ns, row = from_turn_ns - usual * period_ns, _Row(h, turn + usual, beat, NO_SEGMENT)
    if not is_between:
        return _offer(new, num, paid + SET_TWICE, phase_ns, off_ns, _State(turn + usual, beat, was, 0, 1), row)
    shift_ns = old.shift_ns_H[h]
    cost = paid + _of_stamp(off_ns - shift_ns, sigma_ns)
    shift_ns += _gain(age) * min(max(off_ns - shift_ns, -3.0 * sigma_ns), 3.0 * sigma_ns)
    return _offer(new, num, cost, phase_ns, shift_ns, _State(turn + usual, beat, was, age + 1, 1), row)


@compiled
def _gain(age: int) -> float:
    """Share of a row's distance from the beat by which it moves the beat."""
    return max(MIN_GAIN, 1.0 / (age + 2))


@compiled
def _of_stamp(miss_ns: float, sigma_ns: float) -> float:
    """What a stamp pays for its distance from the beat: half its square, or less, as tails of delays are heavy."""
    if abs(miss_ns) > LATE_MAX_NS:
        return WRONG_STAMP
    off = abs(miss_ns) / sigma_ns
    paid = 0.5 * off * off if off < HEAVY_SIGMAS else HEAVY_SIGMAS * (off - 0.5 * HEAVY_SIGMAS)
    return min(paid, LATE_STAMP if miss_ns > 0.0 else EARLY_STAMP)


@compiled
def _offer(
    new: _Histories,
    num: int,
    cost: float,
    phase_ns: float,
    shift_ns: float,
    state: _State,
    row: _Row,
) -> int:
    """Add a history, unless there are enough better ones or a better one that goes on the same; return their number."""
    at, worst = -1, 0
    for h in range(num):
        is_same = new.state_H[h, 0] == state.turn and new.state_H[h, 1] == state.beat
        if is_same and new.state_H[h, 2] == state.segment and new.state_H[h, 4] == state.is_between:
            at = h
        if new.cost_H[h] > new.cost_H[worst]:
            worst = h
    if at < 0 and num < MAX_HISTORIES:
        at, num = num, num + 1
    else:
        at = worst if at < 0 else at
        if cost >= new.cost_H[at]:
            return num
    new.cost_H[at], new.phase_ns_H[at], new.shift_ns_H[at] = cost, phase_ns, shift_ns
    into = new.state_H[at]
    into[0], into[1], into[2], into[3], into[4] = state.turn, state.beat, state.segment, state.age, state.is_between
    into = new.row_H[at]
    into[0], into[1], into[2], into[3] = row.parent, row.turn, row.beat, row.segment
    return num


@compiled
def _keep_likely(new: _Histories, num: int) -> int:
    """Drop the unlikely histories, and count costs from the best one on; return how many are left."""
    best, kept = new.cost_H[:num].min(), 0
    for h in range(num):
        if new.cost_H[h] - best < UNLIKELY:
            _move(new, h, kept)
            new.cost_H[kept] -= best
            kept += 1
    return kept


@compiled
def _keep_best(new: _Histories, num: int) -> int:
    _move(new, int(np.argmin(new.cost_H[:num])), 0)
    return 1


@compiled
def _move(new: _Histories, h: int, to: int) -> None:
    new.cost_H[to], new.phase_ns_H[to], new.shift_ns_H[to] = new.cost_H[h], new.phase_ns_H[h], new.shift_ns_H[h]
    new.state_H[to], new.row_H[to] = new.state_H[h], new.row_H[h]
