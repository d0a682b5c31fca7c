"""When a regular sensor really measured: its stamps, freed from the delay between measuring and stamping.

Every row gets its place in the beat of the sensor; the delays around the beat then show whether they are one-sided (a
queue, a poll: the earliest stamps are right) or symmetric (the middle is right).

Shape suffixes: T = rows in stored order, B = blocks of rows.
"""

from typing import NamedTuple

import numpy as np

from pipelines.compiled import compiled

BLOCK_S = 20.0
BLOCK_ROWS = 200
"""A block lasts at least this long and has at least this many rows."""

ROWS_LOOKED_AT = 500
"""Rows of a block that its delay is estimated from, evenly spread."""

LATE_MAX_NS = 500_000_000
"""A stamp later than its turn by more than this is not late but wrong."""

IRREGULAR_SHARE = 0.05
"""With more rows than this a quarter of a period off the beat, there is no beat."""

HARD_EDGE_RATIO = 3.0
"""Left tail (0.5 % quantile to median) by lower half width (25 % to median): 1.7 for exponential delays, 2.0 for
uniform ones, 3.8 for normal ones."""


class Dejittered(NamedTuple):
    """Corrected instants."""

    t_ns_T: np.ndarray
    is_bad_T: np.ndarray
    """Rows whose stamp is neither in turn nor explained by a late row or a late stamp."""


def dejitter(t_ns_T: np.ndarray, *, rate_hz: float, unit_ns: int) -> Dejittered:
    """Move every row to its place in the beat of the sensor.

    Args:
        t_ns_T: Stamps in stored order, without duplicates.
        rate_hz: Nominal rate of the sensor.
        unit_ns: What the stamps are rounded to.

    Returns:
        The corrected instants; the stamps as they are if they keep no beat.
    """
    unchanged = Dejittered(t_ns_T, np.zeros(len(t_ns_T), dtype=bool))
    if len(t_ns_T) < BLOCK_ROWS:
        return unchanged
    period_ns = _period_ns(t_ns_T, 1e9 / rate_hz)
    beat_T, miss_ns_T, is_bad_T = _beats(t_ns_T, period_ns)
    if np.mean(np.abs(miss_ns_T) > period_ns / 4) > IRREGULAR_SHARE:
        return unchanged
    delay_ns_T = (t_ns_T - t_ns_T[0]) - beat_T * period_ns
    block_beats = max(BLOCK_ROWS, round(BLOCK_S * 1e9 / period_ns))
    good = slice(None) if not is_bad_T.any() else ~is_bad_T
    slope_ns, at_B, delay_ns_B = _delays(beat_T[good], delay_ns_T[good], block_beats, unit_ns)
    return Dejittered(_on_beat(t_ns_T[0], beat_T, period_ns + slope_ns, at_B, delay_ns_B), is_bad_T)


def _period_ns(t_ns_T: np.ndarray, nominal_ns: float) -> float:
    """Median period over stretches of rows; nominal where the rows are nothing like it."""
    apart = min(100, len(t_ns_T) // 2)
    period_ns = float(np.median(t_ns_T[apart::apart] - t_ns_T[:-apart:apart])) / apart
    return period_ns if abs(period_ns - nominal_ns) < 0.05 * nominal_ns else nominal_ns


@compiled
def _beats(t_ns_T: np.ndarray, period_ns: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of periods since the first row, distance from the beat, and whether the stamp is wrong."""
    n = len(t_ns_T)
    beat_T, miss_ns_T = np.zeros(n, dtype=np.int64), np.zeros(n)
    is_bad_T = np.zeros(n, dtype=np.bool_)
    start_ns = t_ns_T[0]
    beat, phase_ns = 0, 0.0  # of the newest row in turn, relative to the first
    for i in range(1, n):
        since_ns = t_ns_T[i] - start_ns - phase_ns
        miss_ns = since_ns - period_ns
        num_periods = 1
        if abs(miss_ns) > period_ns / 2:
            if i + 1 < n and abs(t_ns_T[i + 1] - start_ns - phase_ns - 2.0 * period_ns) < period_ns / 2:
                is_bad_T[i] = abs(miss_ns) > LATE_MAX_NS  # the next row is in turn, so this one filled its own place
            else:
                num_periods = round(since_ns / period_ns)
                miss_ns = since_ns - num_periods * period_ns
        beat_T[i] = beat + num_periods
        miss_ns_T[i] = miss_ns
        if num_periods >= 1:  # otherwise a row that was stored late
            beat += num_periods
            phase_ns += num_periods * period_ns + 0.05 * min(max(miss_ns, -period_ns / 4), period_ns / 4)
    return beat_T, miss_ns_T, is_bad_T


def _delays(
    beat_T: np.ndarray, delay_ns_T: np.ndarray, block_beats: int, unit_ns: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """What the delays grow from beat to beat, the middle beat of each block, and its delay apart from that growth."""
    blocks = _blocks(beat_T, block_beats)
    at_B = np.array([beat_T[block].mean() for block in blocks])
    middle_ns_B = np.array([np.median(delay_ns_T[block]) for block in blocks])
    slope_ns = float(np.polyfit(at_B, middle_ns_B, 1)[0]) if len(blocks) > 1 else 0.0
    middle_ns_B -= slope_ns * at_B
    around = [
        delay_ns_T[block] - slope_ns * beat_T[block] - middle_ns
        for block, middle_ns in zip(blocks, middle_ns_B, strict=True)
    ]
    tail_ns, quarter_ns = np.percentile(np.concatenate(around), [0.5, 25])
    if tail_ns < HARD_EDGE_RATIO * quarter_ns:
        return slope_ns, at_B, middle_ns_B
    # The second earliest: one row that is too early must not move a block. Rounding makes it early by half a unit.
    return slope_ns, at_B, middle_ns_B + [np.partition(block_ns, 1)[1] for block_ns in around] + unit_ns / 2


def _blocks(beat_T: np.ndarray, block_beats: int) -> list[np.ndarray]:
    """Rows of each block by beat, at most about `ROWS_LOOKED_AT`, evenly spread; blocks of few rows are left out."""
    order = np.argsort(beat_T, kind="stable") if (np.diff(beat_T) < 0).any() else np.arange(len(beat_T))
    starts = np.arange(beat_T[order[0]], beat_T[order[-1]] + block_beats, block_beats)
    edges = np.searchsorted(beat_T, starts, sorter=order)
    blocks = [
        order[first : stop : max(1, (stop - first) // ROWS_LOOKED_AT)]
        for first, stop in zip(edges, [*edges[1:], len(order)], strict=True)
        if stop - first >= BLOCK_ROWS // 2
    ]
    return blocks or [order]


@compiled
def _on_beat(
    start_ns: int, beat_T: np.ndarray, period_ns: float, at_B: np.ndarray, delay_ns_B: np.ndarray
) -> np.ndarray:
    """Instants of beats, with the delay interpolated between the middles of blocks."""
    t_ns_T = np.empty(len(beat_T), dtype=np.int64)
    last = len(at_B) - 1
    b = 0
    for i in range(len(beat_T)):
        beat = beat_T[i]
        while b < last and beat >= at_B[b + 1]:
            b += 1
        while b > 0 and beat < at_B[b]:
            b -= 1
        delay_ns = delay_ns_B[b]
        if b < last and beat > at_B[b]:
            delay_ns += (delay_ns_B[b + 1] - delay_ns) * (beat - at_B[b]) / (at_B[b + 1] - at_B[b])
        t_ns_T[i] = start_ns + np.int64(np.rint(beat * period_ns + delay_ns))
    return t_ns_T
