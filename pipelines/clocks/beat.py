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
LOST_ROWS, LATE_ROW, SAME_TURN = 7.0, 10.0, 14.0
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


class Turns(NamedTuple):
    """Place of every row in the beat."""

    turn_T: np.ndarray
    """Periods since the first row."""

    beat_T: np.ndarray
    """How often the sensor had been started anew."""

    segment_T: np.ndarray
    """Segment of the clock's map in which the row was stamped."""


@compiled
def find_turns(
    t_ns_T: np.ndarray,
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
    cost_H, phase_H = np.zeros(MAX_HISTORIES), np.zeros(MAX_HISTORIES)
    state_H = np.zeros((MAX_HISTORIES, 4), dtype=np.int64)  # turn of the newest row in turn, beat, segment, age
    next_cost_H, next_phase_H, next_state_H = np.zeros_like(cost_H), np.zeros_like(phase_H), np.zeros_like(state_H)
    back_LH = np.zeros((LOOK_BACK, MAX_HISTORIES, 4), dtype=np.int64)  # parent; turn, beat, segment of the row
    gate_ns = min(GATE_SIGMAS * sigma_ns, period_ns / 4)
    reach = 1 if sigma_ns > COARSE_JITTER * period_ns else 0
    num, settled, d = 1, 1, 0
    start_ns = t_ns_T[0]
    state_H[0, 2] = segment_T[0]
    if len(row_D) and row_D[0] == 0:
        d = 1
    for i in range(1, n):
        is_doubtful = d < len(row_D) and row_D[d] == i
        if num == 1 and not is_doubtful and segment_T[i] == state_H[0, 2]:
            miss_ns = (t_ns_T[i] - start_ns) - phase_H[0] - (state_H[0, 0] + 1) * period_ns
            if abs(miss_ns) < gate_ns:
                phase_H[0] += max(MIN_GAIN, 1.0 / (state_H[0, 3] + 2)) * miss_ns
                state_H[0, 0] += 1
                state_H[0, 3] += 1
                turn_T[i], beat_T[i] = state_H[0, 0], state_H[0, 1]
                settled = i + 1
                continue
        num_next = 0
        for h in range(num):
            turn, beat, segment, age = int(state_H[h, 0]), int(state_H[h, 1]), int(state_H[h, 2]), int(state_H[h, 3])
            for g in range(t_ns_DG.shape[1] if is_doubtful else 1):
                t_ns, of = (t_ns_DG[d, g], g) if is_doubtful else (t_ns_T[i], int(segment_T[i]))
                if t_ns == NO_STAMP:
                    continue
                since_ns = (t_ns - start_ns) - phase_H[h] - turn * period_ns
                nearest = int(np.rint(since_ns / period_ns))
                if nearest <= 0 or of < segment:
                    cost = cost_H[h] + _of_stamp(since_ns - nearest * period_ns, sigma_ns)
                    cost += SAME_TURN if nearest >= 0 else LATE_ROW
                    num_next = _offer(
                        next_cost_H, next_phase_H, next_state_H, back_LH[i % LOOK_BACK], num_next,
                        cost, phase_H[h], turn, beat, segment, age, h, turn + nearest, of,
                    )  # fmt: skip
                if of < segment:
                    continue
                of_step = 0.0
                if of > segment and is_doubtful:
                    of_step = UNSURE * (d / len(row_D) if lean > 0 else 1.0 - d / len(row_D))
                for candidate in range(2 * reach + 2):
                    k = 1 if candidate == 0 else nearest - reach - 1 + candidate
                    if candidate > 0 and k <= 1:
                        continue
                    miss_ns = since_ns - k * period_ns
                    cost = cost_H[h] + of_step + _of_stamp(miss_ns, sigma_ns) + (LOST_ROWS if k > 1 else 0.0)
                    gain = max(MIN_GAIN, 1.0 / (age + 2))
                    moved_ns = gain * min(max(miss_ns, -3.0 * sigma_ns), 3.0 * sigma_ns)
                    num_next = _offer(
                        next_cost_H, next_phase_H, next_state_H, back_LH[i % LOOK_BACK], num_next,
                        cost, phase_H[h] + moved_ns, turn + k, beat, of, age + 1, h, turn + k, of,
                    )  # fmt: skip
                k = max(nearest, 1)
                miss_ns = since_ns - k * period_ns
                if abs(miss_ns) > GATE_SIGMAS * sigma_ns:
                    cost = cost_H[h] + of_step + NEW_BEAT
                    num_next = _offer(
                        next_cost_H, next_phase_H, next_state_H, back_LH[i % LOOK_BACK], num_next,
                        cost, phase_H[h] + miss_ns, turn + k, beat + 1, of, 0, h, turn + k, of,
                    )  # fmt: skip
        d += is_doubtful
        num = _keep_likely(next_cost_H, next_phase_H, next_state_H, back_LH[i % LOOK_BACK], num_next)
        if num > 1 and (i + 1 - settled >= LOOK_BACK or i == n - 1):
            num = _keep_best(next_cost_H, next_phase_H, next_state_H, back_LH[i % LOOK_BACK], num)
        cost_H, next_cost_H = next_cost_H, cost_H
        phase_H, next_phase_H = next_phase_H, phase_H
        state_H, next_state_H = next_state_H, state_H
        if num == 1:
            h = 0
            for k in range(i, settled - 1, -1):
                back = back_LH[k % LOOK_BACK, h]
                turn_T[k], beat_T[k], of_T[k] = back[1], back[2], back[3]
                h = back[0]
            settled = i + 1
    return turn_T, beat_T, of_T


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
    cost_H: np.ndarray,
    phase_H: np.ndarray,
    state_H: np.ndarray,
    back_H: np.ndarray,
    num: int,
    cost: float,
    phase_ns: float,
    turn: int,
    beat: int,
    segment: int,
    age: int,
    parent: int,
    row_turn: int,
    row_segment: int,
) -> int:
    """Add a history, unless there are enough better ones or a better one that goes on the same; return their number."""
    at, worst = -1, 0
    for h in range(num):
        if state_H[h, 0] == turn and state_H[h, 1] == beat and state_H[h, 2] == segment:
            at = h
        if cost_H[h] > cost_H[worst]:
            worst = h
    if at < 0 and num < MAX_HISTORIES:
        at, num = num, num + 1
    else:
        at = worst if at < 0 else at
        if cost >= cost_H[at]:
            return num
    cost_H[at], phase_H[at] = cost, phase_ns
    state_H[at, 0], state_H[at, 1], state_H[at, 2], state_H[at, 3] = turn, beat, segment, age
    back_H[at, 0], back_H[at, 1], back_H[at, 2], back_H[at, 3] = parent, row_turn, beat, row_segment
    return num


@compiled
def _keep_likely(cost_H: np.ndarray, phase_H: np.ndarray, state_H: np.ndarray, back_H: np.ndarray, num: int) -> int:
    """Drop the unlikely histories, and count costs from the best one on; return how many are left."""
    best, kept = cost_H[:num].min(), 0
    for h in range(num):
        if cost_H[h] - best < UNLIKELY:
            cost_H[kept], phase_H[kept] = cost_H[h] - best, phase_H[h]
            state_H[kept], back_H[kept] = state_H[h], back_H[h]
            kept += 1
    return kept


@compiled
def _keep_best(cost_H: np.ndarray, phase_H: np.ndarray, state_H: np.ndarray, back_H: np.ndarray, num: int) -> int:
    h = int(np.argmin(cost_H[:num]))
    cost_H[0], phase_H[0] = cost_H[h], phase_H[h]
    state_H[0], back_H[0] = state_H[h], back_H[h]
    return 1
