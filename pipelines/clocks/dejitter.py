"""When a regular sensor really measured: its stamps, freed from the delay between measuring and stamping.

Every row gets its turn in the beat of the sensor (`beat`). The delays around the beat then show whether they are
one-sided (a queue, a poll: the earliest stamps are right) or symmetric (the middle is right).

Shape suffixes: T = rows in stored order, B = blocks of rows.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.beat import LATE_MAX_NS, NO_SEGMENT, Turns, find_turns
from pipelines.clocks.sides import Sides
from pipelines.compiled import compiled

BLOCK_S = 20.0
BLOCK_ROWS = 200
BLOCK_SIGMA_NS = 500_000
"""A block lasts at least this long, has at least this many rows, and so many that their mean is as good as this."""

ROWS_LOOKED_AT = 500
"""Rows of a block that its delay is estimated from, evenly spread."""

STRETCH_ROWS = 10
"""The period is first taken from stretches of so many rows: short, so that most have lost none."""

PERIOD_OFF = 0.05
"""A period further from the nominal one than this share is none."""

MAX_TURNS = 2**36
"""A recording has fewer turns than this: two years of 1 kHz."""

IRREGULAR_SHARE = 0.05
"""With more rows than this a quarter of a period off the beat, there is no beat."""

OUT_OF_TURN_SHARE = 0.1
"""Nor is there one if stamps jitter by more than an eighth of a period and more rows than this are not in turn."""

MAD_SIGMAS = 1.4826
TRIM_SIGMAS = 12.0
"""Delays further from the middle of their block than this are not averaged."""

HARD_EDGE_RATIO, LEANING_EDGE_RATIO = 2.7, 3.3
"""Left tail (second earliest of a block to median) by lower half width (25 % to median): 1.7 for exponential delays,
2.0 for uniform ones, 3.2 to 4 for normal ones. Rounding softens the edge; then the delays have to lean, too."""

LEANING = 0.05
"""Mean to median, in interquartile ranges: 0.28 for exponential delays, 0 for symmetric ones."""

UNIFORM_DELAY, LEAN_DELAY = 1.0, 0.32
"""Mean one-sided delay in interquartile ranges: 1 if uniform, and less by this share of how far the mean lies right of
the median; with it the exponential (0.91) and the half-normal (0.96) are met too."""

ROUNDED_WIDTH = 0.586
"""Interquartile range of rounding alone, in units; it adds little to that of wider delays."""

DELAY_SIGMA = 0.05
"""Relative error of a mean delay found by that rule."""

ROUNDING_SIGMA = 0.15
"""What rounding may leave of an error, in units: stamps of a steady beat may be rounded alike for minutes."""


class Dejittered(NamedTuple):
    """Corrected instants."""

    t_ns_T: np.ndarray
    sigma_ns: float | np.ndarray
    """Standard error of the correction, of all rows or of each."""

    is_bad_T: np.ndarray
    """Rows whose stamp is neither in turn nor explained by a late row or a late stamp."""

    is_unsure_T: np.ndarray
    """Rows beside a step of the clock whose turn is not certain."""

    jitter_ns: float
    """Root mean square of what was corrected, but for wrong stamps."""


def dejitter(
    t_ns_T: np.ndarray, *, skipped_T: np.ndarray, rate_hz: float, unit_ns: int, sides: Sides
) -> Dejittered | None:
    """Move every row to its place in the beat of the sensor.

    Args:
        t_ns_T: Stamps in stored order, without duplicates.
        skipped_T: How many rows without a usable stamp were stored just before each.
        rate_hz: Nominal rate of the sensor.
        unit_ns: What the stamps are rounded to.
        sides: Which stamps were taken before and after each step of the clock.

    Returns:
        The corrected instants; `None` if the rows keep no beat, or are too few to tell.
    """
    if len(t_ns_T) < BLOCK_ROWS:
        return None
    period_ns = _period_ns(t_ns_T, 1e9 / rate_hz)
    if period_ns is None:
        return None
    sigma_ns = _sigma_ns(t_ns_T, period_ns, unit_ns)
    turns = Turns(*find_turns(t_ns_T, skipped_T, *sides, period_ns, sigma_ns, 1.0))
    period_ns = _refined_ns(sides.chosen(t_ns_T, turns.segment_T), turns, period_ns)
    turns = Turns(*find_turns(t_ns_T, skipped_T, *sides, period_ns, sigma_ns, 1.0))
    is_unsure_T = np.zeros(len(t_ns_T), dtype=bool)
    if len(sides.row_D):
        other = Turns(*find_turns(t_ns_T, skipped_T, *sides, period_ns, sigma_ns, -1.0))
        is_unsure_T = (turns.segment_T != other.segment_T) & (turns.turn_T != other.turn_T)
        t_ns_T = sides.chosen(t_ns_T, turns.segment_T)
    return _on_beat(t_ns_T, turns, period_ns, sigma_ns, unit_ns, is_unsure_T)


def _period_ns(t_ns_T: np.ndarray, nominal_ns: float) -> float | None:
    """Mean period over stretches that lost no row; where that is nothing like nominal, that of most rows.

    `None` if it cannot be one: rows without any order, or few of them over ages.
    """
    passed_ns = t_ns_T[STRETCH_ROWS:] - t_ns_T[:-STRETCH_ROWS]
    usual_ns = float(np.median(passed_ns))
    whole_ns = passed_ns[np.abs(passed_ns - usual_ns) <= nominal_ns / 2]
    period_ns = float(whole_ns.mean()) / STRETCH_ROWS if len(whole_ns) else 0.0
    if abs(period_ns - nominal_ns) >= PERIOD_OFF * nominal_ns:
        period_ns = float(np.median(np.diff(t_ns_T)))
    is_possible = period_ns > 0.0 and float(np.ptp(t_ns_T)) < MAX_TURNS * period_ns
    return period_ns if is_possible else None


def _sigma_ns(t_ns_T: np.ndarray, period_ns: float, unit_ns: int) -> float:
    """Jitter of one stamp, from the spread of the differences of neighbours."""
    spread_ns = float(np.median(np.abs(np.diff(t_ns_T) - period_ns)))
    return max(float(MAD_SIGMAS * spread_ns / np.sqrt(2.0)), unit_ns / 2.0, 1e-3 * period_ns)


def _refined_ns(t_ns_T: np.ndarray, turns: Turns, period_ns: float) -> float:
    """Period over the longest stretch that kept one beat."""
    is_usable_T = turns.segment_T != NO_SEGMENT
    longest = np.flatnonzero(is_usable_T & (turns.beat_T == np.argmax(np.bincount(turns.beat_T))))
    some = longest[:: max(1, len(longest) // ROWS_LOOKED_AT)]
    apart = len(some) // 2
    spans = turns.turn_T[some[apart:]] - turns.turn_T[some[: len(some) - apart]]
    passed_ns = t_ns_T[some[apart:]] - t_ns_T[some[: len(some) - apart]]
    return float(np.median(passed_ns[spans > 0] / spans[spans > 0])) if (spans > 0).any() else period_ns


def _on_beat(
    t_ns_T: np.ndarray, turns: Turns, period_ns: float, sigma_ns: float, unit_ns: int, is_unsure_T: np.ndarray
) -> Dejittered | None:
    """Put every row on the beat, once it is known how much later its stamps are."""
    block_turns = max(BLOCK_ROWS, BLOCK_S * 1e9 / period_ns, (sigma_ns / BLOCK_SIGMA_NS) ** 2)
    blocks = _blocks(turns, round(min(block_turns, MAX_TURNS)))
    looked_at, stops = np.concatenate(blocks), np.cumsum([len(block) for block in blocks])[:-1]
    delay_ns = (t_ns_T[looked_at] - t_ns_T[0]) - turns.turn_T[looked_at] * period_ns
    middle = _Curve(
        turn_B=np.array([turns.turn_T[block].mean() for block in blocks]),
        beat_B=turns.beat_T[[block[0] for block in blocks]],
        delay_ns_B=np.array([_middle_ns(of_block, TRIM_SIGMAS * sigma_ns) for of_block in np.split(delay_ns, stops)]),
    )
    left_ns = delay_ns - _along(middle, turns, looked_at)
    if _is_irregular(left_ns, turns, period_ns, sigma_ns):
        return None
    left_ns_B = np.split(left_ns, stops)
    late_ns = _mean_delay_ns(left_ns_B, unit_ns)
    curve = middle._replace(delay_ns_B=_earliest_ns(middle.delay_ns_B, left_ns_B, late_ns, unit_ns))
    on_beat_ns_T = _instants(t_ns_T[0], turns.turn_T, turns.beat_T, period_ns, *curve)
    quiet_ns = left_ns[np.abs(left_ns) < TRIM_SIGMAS * sigma_ns]
    sigmas_ns = (
        quiet_ns.std() / np.sqrt(np.median([len(block) for block in blocks])),
        DELAY_SIGMA * late_ns,
        ROUNDING_SIGMA * unit_ns,
    )
    moved_ns_T = t_ns_T - on_beat_ns_T
    return Dejittered(
        t_ns_T=on_beat_ns_T,
        sigma_ns=float(np.linalg.norm(sigmas_ns)),
        is_bad_T=(np.abs(moved_ns_T, out=moved_ns_T) > LATE_MAX_NS + unit_ns) & (turns.segment_T != NO_SEGMENT),
        is_unsure_T=is_unsure_T,
        jitter_ns=float(np.hypot(quiet_ns.std(), late_ns)),
    )


class _Curve(NamedTuple):
    """How much later than its turn a beat's rows are stamped, linear between the middles of blocks."""

    turn_B: np.ndarray
    beat_B: np.ndarray
    delay_ns_B: np.ndarray


def _blocks(turns: Turns, block_turns: int) -> list[np.ndarray]:
    """Rows of each block of each beat, at most about `ROWS_LOOKED_AT`, evenly spread.

    Blocks of few rows are left out where their beat has others.
    """
    key_T = turns.beat_T.astype(np.int64) * (2 * MAX_TURNS) + turns.turn_T
    order = np.argsort(key_T, kind="stable") if (key_T[1:] < key_T[:-1]).any() else np.arange(len(key_T))
    order = order[turns.segment_T[order] != NO_SEGMENT]
    block_T = key_T[order]
    block_T //= block_turns
    edges = np.concatenate([[0], 1 + np.flatnonzero(block_T[1:] != block_T[:-1]), [len(order)]])
    lengths, beats = np.diff(edges), turns.beat_T[order[edges[:-1]]]
    most = np.zeros(beats[-1] + 1, dtype=np.int64)
    np.maximum.at(most, beats, lengths)
    is_kept = lengths >= np.minimum(BLOCK_ROWS // 2, most[beats])
    return [
        order[first : first + length : max(1, length // ROWS_LOOKED_AT)].copy()  # a view would keep all rows
        for first, length in zip(edges[:-1][is_kept], lengths[is_kept], strict=True)
    ]


def _middle_ns(delay_ns: np.ndarray, trim_ns: float) -> float:
    """Mean without late stamps. Unlike the median, the mean sees through the rounding of stamps."""
    return float(delay_ns[np.abs(delay_ns - np.median(delay_ns)) <= trim_ns].mean())


def _along(curve: _Curve, turns: Turns, rows: np.ndarray) -> np.ndarray:
    return _instants(0, turns.turn_T[rows], turns.beat_T[rows], 0.0, *curve)


def _is_irregular(left_ns: np.ndarray, turns: Turns, period_ns: float, sigma_ns: float) -> bool:
    if sigma_ns <= period_ns / 8:
        return bool(np.mean(np.abs(left_ns) > period_ns / 4) > IRREGULAR_SHARE)
    return bool(np.mean(np.diff(turns.turn_T) != 1) > OUT_OF_TURN_SHARE)


def _mean_delay_ns(left_ns_B: list[np.ndarray], unit_ns: int) -> float:
    """How much later than the earliest stamps the mean one is; 0 for a symmetric delay.

    Both halves of the recording have to show the hard edge of a one-sided delay. Stamps may be rounded alike for
    minutes, so what the rounding cut off is put back at random (evenly, by the golden ratio).
    """
    spread_ns_B = [left_ns + unit_ns * (np.arange(len(left_ns)) * 0.618034 % 1.0 - 0.5) for left_ns in left_ns_B]
    shape_B4 = np.array([_shape(left_ns) for left_ns in spread_ns_B])
    half = (len(shape_B4) + 1) // 2
    if not all(_is_one_sided(*np.median(part, axis=0)[:2]) for part in (shape_B4[:half], shape_B4[-half:])):
        return 0.0
    _, lean, width_ns = np.median(shape_B4, axis=0)
    of_rounding = ROUNDED_WIDTH * unit_ns / width_ns
    return float(width_ns * np.sqrt(max(1.0 - of_rounding**3, 0.0)) * (UNIFORM_DELAY - LEAN_DELAY * max(lean, 0.0)))


def _shape(left_ns: np.ndarray) -> tuple[float, float, float]:
    """Hardness of the left edge, lean to the left, and width of the delays of a block."""
    second, quarter, middle, upper = np.percentile(left_ns, [100.0 / len(left_ns), 25, 50, 75])
    width_ns = max(upper - quarter, 1.0)
    return (middle - second) / max(middle - quarter, 1.0), (left_ns.mean() - middle) / width_ns, width_ns


def _is_one_sided(edge_ratio: float, lean: float) -> bool:
    return edge_ratio < (LEANING_EDGE_RATIO if lean > LEANING else HARD_EDGE_RATIO)


def _earliest_ns(delay_ns_B: np.ndarray, left_ns_B: list[np.ndarray], late_ns: float, unit_ns: int) -> np.ndarray:
    """Delay of the earliest stamps of each block.

    The second earliest leaves it open by the rounding: half a unit up or down. The first might be an outlier. Within
    that, the mean less the mean delay decides; beyond it, the sensor's machine was busier than usual.
    """
    if not late_ns:
        return delay_ns_B
    second_ns_B = delay_ns_B + [np.partition(left_ns, min(1, len(left_ns) - 1))[:2].max() for left_ns in left_ns_B]
    above_ns_B = 4.0 * late_ns / np.array([len(left_ns) for left_ns in left_ns_B])
    return np.clip(delay_ns_B - late_ns, second_ns_B - unit_ns / 2 - above_ns_B, second_ns_B + unit_ns / 2)


@compiled
def _instants(
    start_ns: int,
    turn_T: np.ndarray,
    beat_T: np.ndarray,
    period_ns: float,
    turn_B: np.ndarray,
    beat_B: np.ndarray,
    delay_ns_B: np.ndarray,
) -> np.ndarray:
    """Instants of turns, with the delay interpolated between the middles of the blocks of a beat."""
    t_ns_T = np.empty(len(turn_T), dtype=np.int64)
    last = len(turn_B) - 1
    b = 0
    for i in range(len(turn_T)):
        turn, beat = turn_T[i], beat_T[i]
        while b < last and beat_B[b + 1] <= beat and (beat_B[b] < beat or turn >= turn_B[b + 1]):
            b += 1
        while b > 0 and (beat_B[b] > beat or (beat_B[b - 1] == beat and turn < turn_B[b])):
            b -= 1
        delay_ns = delay_ns_B[b]
        if b < last and beat_B[b + 1] == beat and turn > turn_B[b]:
            delay_ns += (delay_ns_B[b + 1] - delay_ns) * (turn - turn_B[b]) / (turn_B[b + 1] - turn_B[b])
        t_ns_T[i] = start_ns + np.int64(np.rint(turn * period_ns + delay_ns))
    return t_ns_T
