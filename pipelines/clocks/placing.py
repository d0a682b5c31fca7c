"""When a clock was set: between which two of the rows that it stamped.

A regular sensor keeps its beat through a step, so of the rows around one those before it are on the beat under the old
map and those after it under the new one. A step by whole periods shows in the turn of the rows instead: one step costs
less than a gap and a fold. A sensor may start its beat anew after a gap, so each side has its own phase.

Shape suffixes: T = rows in stored order, B = boundaries between neighbouring rows: B = T - 1.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np

from pipelines.clocks.clock_map import Segment

WINDOW_ROWS = 50
"""Rows looked at on each side of the time in which the step must lie, at most."""

WINDOW_S = 30.0
STRETCH_ROWS = 100
STRETCH_S = 10.0
"""The period is the median of stretches of about so many rows or seconds, whichever are longer."""

STRETCHES = 40
MAX_STRETCHES = 5_000
"""Of at least and at most so many stretches."""

MIN_ROWS = 4
MISS_COST = 8.0
"""Most that one row off the beat counts, as half a squared deviation: stamps may be late or spoilt."""

TURN_COST = 4.0
"""What it counts that there is more than one period between two rows: rows get lost."""

FOLD_COST = 8.0
"""What it counts that there is less."""

PLAUSIBLE_COST = 3.0
"""Boundaries that cost up to so much more than the best are possible too."""

TURN_SIGMAS = 6.0
SPLIT_COST = 10.0
"""What a second step must explain better to be believed."""

MAX_ODD = 8
"""So many of the largest odd turns near a step may be steps themselves."""

LASTING_ROWS = 3
"""Rows on each side that agree about a jump; a late stamp is over by the next row."""

BEAT_SHARE = 0.01
"""Rows are on the beat to no better than this share of a period."""

TIMER_PPM = 20.0
"""What the timer of a sensor may run off its own mean while a step is looked for."""


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


class Known(NamedTuple):
    """What rows say about a clock between two steps."""

    utc_ns: int
    offset_ns: int
    """What has to be added to device time to get UTC."""

    sigma_ns: float


class Placed(NamedTuple):
    """When a clock was set."""

    spans: tuple[Span, ...]
    """Each from the last row that may be before the step to the first that may be after it."""

    between: tuple[Known, ...] = ()
    """One less than there are steps."""


def place(stream: RowStream, old: Segment, new: Segment, span: Span) -> Placed | None:
    """Narrow down when a clock was set, and tell two steps from one.

    Args:
        stream: Rows that the clock stamped.
        old: The map before the step, carried on beyond it.
        new: The map after the step, carried back before it.
        span: When the step happened, as far as is known.

    Returns:
        When it was; `None` if no rows are near.
    """
    dev_ns_T = _near(stream, [old, new], span)
    if len(dev_ns_T) < MIN_ROWS or not np.ptp(dev_ns_T):
        return None
    (old_ns_T, old_sigma_ns_T), (new_ns_T, new_sigma_ns_T) = old.to_utc(dev_ns_T), new.to_utc(dev_ns_T)
    is_possible_B = (old_ns_T[:-1] <= span.high_ns) & (new_ns_T[1:] >= span.low_ns)
    if not is_possible_B.any():
        return None
    utc_per_dev = float(np.ptp(old_ns_T)) / float(np.ptp(dev_ns_T))
    map_sigma_ns = float(np.hypot(np.median(old_sigma_ns_T), np.median(new_sigma_ns_T)))
    beat = _beat(old_ns_T, new_ns_T, _period_ns(stream) * utc_per_dev, span, map_sigma_ns)
    cost_B = np.where(is_possible_B, _costs(old_ns_T, new_ns_T, beat), np.inf)
    twice = _set_twice(old_ns_T, new_ns_T, beat, is_possible_B, float(cost_B.min()), old)
    if twice is not None:
        return twice
    possible = np.flatnonzero(cost_B <= cost_B.min() + PLAUSIBLE_COST / beat.certainty)
    return Placed((Span(int(old_ns_T[possible].min()), int(new_ns_T[possible + 1].max())),))


def _near(stream: RowStream, sides: list[Segment], span: Span) -> np.ndarray:
    """Device times of the rows around the step, whichever side they are on."""
    wide_ns = round(min(WINDOW_ROWS * stream.period_ns, WINDOW_S * 1e9))
    is_near_T = np.zeros(len(stream.dev_ns_T), dtype=bool)
    for segment in sides:
        low_ns, high_ns = segment.to_dev(np.array([span.low_ns - wide_ns, span.high_ns + wide_ns]))
        is_near_T |= (stream.dev_ns_T >= low_ns) & (stream.dev_ns_T <= high_ns)
    return stream.dev_ns_T[is_near_T]


def _period_ns(stream: RowStream) -> float:
    """Median period over stretches of rows; nominal where the rows are nothing like it.

    Stretches are short enough that gaps and steps are in few of them.
    """
    longest = max(STRETCH_ROWS, round(STRETCH_S * 1e9 / stream.period_ns))
    apart = int(np.clip(len(stream.dev_ns_T) // STRETCHES, 1, longest))
    every = max(len(stream.dev_ns_T) // MAX_STRETCHES, 1)
    stretch_ns = stream.dev_ns_T[apart::every] - stream.dev_ns_T[:-apart:every]
    period_ns = float(np.median(stretch_ns)) / apart
    return period_ns if abs(period_ns - stream.period_ns) < 0.05 * stream.period_ns else stream.period_ns


class _Beat(NamedTuple):
    """The beat of the rows around a step, in nanoseconds since `zero_ns`."""

    zero_ns: int
    period_ns: float
    old_phase_ns: float
    new_phase_ns: float
    row_sigma_ns: float
    """Of one row around the beat."""

    jump_sigma_ns: float
    """Of a jump between two rows that one map or the other, or the rows themselves, tell."""

    tells: bool
    """Whether rows on the wrong side of the step are off the beat."""

    @property
    def turn_ns(self) -> float:
        """Rows that are a period apart may miss it by so much."""
        return min(TURN_SIGMAS * self.row_sigma_ns, self.period_ns / 3)

    @property
    def certainty(self) -> float:
        """How far the turn of a row can be told: not where rows are late by much of a period."""
        return min(self.period_ns / 3 / (TURN_SIGMAS * self.row_sigma_ns), 1.0)

    def miss_ns(self, utc_ns_T: np.ndarray, phase_ns: float) -> np.ndarray:
        """Distance of every row from the nearest beat."""
        return _wrapped((utc_ns_T - self.zero_ns) - phase_ns, self.period_ns)

    def cost(self, utc_ns_T: np.ndarray, phase_ns: float) -> np.ndarray:
        """What it counts how far every row is off the beat."""
        return np.minimum((self.miss_ns(utc_ns_T, phase_ns) / self.row_sigma_ns) ** 2 / 2, MISS_COST)

    def costs(self, old_ns_T: np.ndarray, new_ns_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same if rows are before the step and if they are after it."""
        old_T, new_T = self.cost(old_ns_T, self.old_phase_ns), self.cost(new_ns_T, self.new_phase_ns)
        return (old_T, new_T) if self.tells else (np.minimum(old_T, new_T),) * 2

    def turn_cost(self, first_ns_B: np.ndarray, second_ns_B: np.ndarray, *, extra_ns: float = 0.0) -> np.ndarray:
        """What it counts that two rows are not one period apart."""
        late_ns_B = second_ns_B - first_ns_B - self.period_ns
        cost_B = np.where(late_ns_B < 0.0, FOLD_COST, TURN_COST) * self.certainty
        return np.where(np.abs(late_ns_B) > self.turn_ns + extra_ns, cost_B, 0.0)


def _beat(old_ns_T: np.ndarray, new_ns_T: np.ndarray, period_ns: float, span: Span, map_sigma_ns: float) -> _Beat:
    """Find the beat on both sides of a step, from the rows whose side is certain."""
    zero_ns = int(old_ns_T[0])
    old, new = (
        (utc_ns_T[is_sure_T] - zero_ns).astype(np.float64)
        for utc_ns_T, is_sure_T in ((old_ns_T, old_ns_T < span.low_ns), (new_ns_T, new_ns_T > span.high_ns))
    )
    is_known = max(len(old), len(new)) >= MIN_ROWS
    old_phase_ns = _phase(old if len(old) >= MIN_ROWS else new, period_ns) if is_known else 0.0
    new_phase_ns = _phase(new if len(new) >= MIN_ROWS else old, period_ns) if is_known else 0.0
    misses_ns = np.abs(np.r_[_wrapped(old - old_phase_ns, period_ns), _wrapped(new - new_phase_ns, period_ns)])
    row_sigma_ns = max(_sigma_ns(misses_ns), BEAT_SHARE * period_ns) if is_known else period_ns
    drift_ns = TIMER_PPM * 1e-6 * float(np.ptp(old_ns_T))
    shift_ns = float(_wrapped(np.median(new_ns_T - old_ns_T), period_ns))
    return _Beat(
        zero_ns,
        period_ns,
        old_phase_ns,
        new_phase_ns,
        row_sigma_ns,
        float(np.hypot(2.0 * row_sigma_ns, map_sigma_ns)),
        is_known and abs(shift_ns) > 4.0 * np.hypot(map_sigma_ns, drift_ns),
    )


def _sigma_ns(misses_ns: np.ndarray) -> float:
    """Standard deviation by the bulk of the rows, and not less than their tail shows: delays are not normal."""
    middle_ns, tail_ns = np.percentile(misses_ns, [50, 80])
    return max(1.5 * float(middle_ns), float(tail_ns) / 1.28)


def _phase(t_ns: np.ndarray, period_ns: float) -> float:
    """Middle of the rows within their periods."""
    angles = np.exp(2j * np.pi * t_ns / period_ns)
    rough = float(np.angle(angles.mean())) / (2 * np.pi) * period_ns
    return rough + float(np.median(_wrapped(t_ns - rough, period_ns)))


def _wrapped(miss_ns: np.ndarray, period_ns: float) -> np.ndarray:
    return np.asarray(miss_ns - np.rint(miss_ns / period_ns) * period_ns)


def _costs(old_ns_T: np.ndarray, new_ns_T: np.ndarray, beat: _Beat) -> np.ndarray:
    """What speaks against the step lying between two rows, for all pairs of neighbours."""
    stays_old_B, stays_new_B = (beat.turn_cost(t[:-1], t[1:]) for t in (old_ns_T, new_ns_T))
    off_old_T, off_new_T = beat.costs(old_ns_T, new_ns_T)
    before_B = np.cumsum(off_old_T)[:-1] + np.cumsum(stays_old_B) - stays_old_B
    after_B = np.cumsum(off_new_T[::-1])[::-1][1:] + np.cumsum(stays_new_B[::-1])[::-1] - stays_new_B
    across_B = beat.turn_cost(old_ns_T[:-1], new_ns_T[1:], extra_ns=4.0 * beat.jump_sigma_ns)
    return np.asarray(before_B + after_B + across_B)


def _set_twice(
    old_ns_T: np.ndarray, new_ns_T: np.ndarray, beat: _Beat, is_possible_B: np.ndarray, once_cost: float, old: Segment
) -> Placed | None:
    """Two steps that together are the jump between the maps, if they explain the rows much better than one."""
    jump_ns = float(np.median(old_ns_T - new_ns_T))
    stays_B = beat.turn_cost(old_ns_T[:-1], old_ns_T[1:])
    extra_ns_B = _lasting_ns(old_ns_T, beat.period_ns)
    odd = np.flatnonzero(is_possible_B & (stays_B > 0.0) & (np.abs(extra_ns_B) > beat.turn_ns))
    odd = np.sort(odd[np.argsort(-np.abs(extra_ns_B[odd]), kind="stable")[:MAX_ODD]])
    off_old_T, off_new_T = beat.costs(old_ns_T, new_ns_T)
    best, best_cost = None, once_cost - SPLIT_COST
    for first, second in combinations(odd.tolist(), 2):
        if abs(extra_ns_B[first] + extra_ns_B[second] - jump_ns) > 4.0 * beat.jump_sigma_ns:
            continue
        between_ns = _between(old_ns_T[first + 1 : second + 1], float(extra_ns_B[first]), beat)
        jumped_ns = int(old_ns_T[first + 1] - between_ns[0])
        if min(abs(jumped_ns), abs(jump_ns - jumped_ns)) < beat.turn_ns:
            continue  # a few late stamps in a row
        ends_ns = np.array([between_ns[0], new_ns_T[second + 1]])
        across = beat.turn_cost(np.array([old_ns_T[first], between_ns[-1]]), ends_ns, extra_ns=beat.jump_sigma_ns)
        off = off_old_T[: first + 1].sum() + off_new_T[second + 1 :].sum() + beat.costs(between_ns, between_ns)[0].sum()
        cost = float(off + across.sum() + stays_B.sum() - stays_B[[first, second]].sum())
        if cost < best_cost:
            best, best_cost = (first, second, between_ns, jumped_ns), cost
    if best is None:
        return None
    first, second, between_ns, jumped_ns = best
    middle_ns = (int(between_ns[0]) + int(between_ns[-1])) // 2
    offset_ns = middle_ns - int(old.to_dev(np.array([middle_ns + jumped_ns]))[0])
    return Placed(
        (Span(int(old_ns_T[first]), int(between_ns[0])), Span(int(between_ns[-1]), int(new_ns_T[second + 1]))),
        (Known(middle_ns, offset_ns, beat.jump_sigma_ns),),
    )


def _between(old_ns_T: np.ndarray, jump_ns: float, beat: _Beat) -> np.ndarray:
    """UTC of rows between two steps: the first jump, known from a few rows, taken back, and then put on the beat."""
    utc_ns_T = old_ns_T - round(jump_ns)
    return utc_ns_T - round(float(np.median(beat.miss_ns(utc_ns_T, beat.old_phase_ns))))


def _lasting_ns(utc_ns_T: np.ndarray, period_ns: float) -> np.ndarray:
    """How much longer than a period it is from row to row, by the middle of a few rows on each side."""
    if len(utc_ns_T) < 2 * LASTING_ROWS:
        return np.diff(utc_ns_T) - period_ns
    middle_ns = np.median(np.lib.stride_tricks.sliding_window_view(utc_ns_T, LASTING_ROWS), axis=1)
    lasting_ns = middle_ns[LASTING_ROWS:] - middle_ns[:-LASTING_ROWS] - LASTING_ROWS * period_ns
    return np.pad(lasting_ns, LASTING_ROWS - 1)
