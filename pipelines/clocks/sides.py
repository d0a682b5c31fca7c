"""On which side of each step of its clock a row was stamped, as far as the clock's map tells.

A map says between which instants the clock was set. A row that would lie after that span in the old segment, or before
it in the new one, is of the other; the rows in between may be of either.

Shape suffixes: T = rows in stored order, D = rows in doubt, G = segments.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.clock_map import ClockMap, Segment
from pipelines.clocks.stamps import NO_STAMP


class Sides(NamedTuple):
    """Segment of the map that every row belongs to."""

    segment_T: np.ndarray
    """The segment; of a row in doubt any."""

    row_D: np.ndarray
    """Positions of the rows to which more than one segment is possible, ascending."""

    utc_ns_DG: np.ndarray
    """What those rows are under each segment; `NO_STAMP` where it is not possible."""

    def chosen(self, utc_ns_T: np.ndarray, segment_T: np.ndarray) -> np.ndarray:
        """Return the instants with those of the rows in doubt as they are under the segments given (-1: unchanged)."""
        utc_ns_T, segment_D = utc_ns_T.copy(), segment_T[self.row_D]
        row_D = self.row_D[segment_D >= 0]
        utc_ns_T[row_D] = self.utc_ns_DG[segment_D >= 0, segment_D[segment_D >= 0]]
        return utc_ns_T


def one_side(num_rows: int) -> Sides:
    """Return the sides of rows of a clock that was never set."""
    return Sides(np.zeros(num_rows, dtype=np.int8), np.empty(0, dtype=np.int64), np.empty((0, 1), dtype=np.int64))


WIDER_NS = 5_000_000_000
"""Rows are looked at this much beyond the measurements around a step: the clock may have been set twice there."""


def find_sides(fitted: ClockMap, dev_ns_T: np.ndarray, *, latency_ns: int, as_placed: bool) -> Sides:
    """Tell rows on different sides of the steps of a map apart.

    Args:
        fitted: The map.
        dev_ns_T: Device time of the rows.
        latency_ns: How long after the instant the stamp is taken.
        as_placed: Believe where the map places its steps; otherwise only between which measurements they must be.
    """
    if not fitted.steps:
        return one_side(len(dev_ns_T))
    is_possible_GT = np.array(
        [(dev_ns_T >= low) & (dev_ns_T <= high) for low, high in _reach(fitted, as_placed=as_placed)]
    )
    # A time that the clock never showed is a late stamp, or a spoilt one.
    is_possible_GT[:, ~is_possible_GT.any(axis=0)] = True
    row_D = np.flatnonzero(is_possible_GT.sum(axis=0) > 1)
    utc_ns_DG = np.full((len(row_D), len(fitted.segments)), NO_STAMP)
    for g, segment in enumerate(fitted.segments):
        is_possible_D = is_possible_GT[g, row_D]
        utc_ns_DG[is_possible_D, g] = segment.to_utc(dev_ns_T[row_D[is_possible_D]])[0] - latency_ns
    return Sides(np.argmax(is_possible_GT, axis=0).astype(np.int8), row_D, utc_ns_DG)


def _reach(fitted: ClockMap, *, as_placed: bool) -> list[tuple[int, int]]:
    """Earliest and latest device time of each segment."""
    lows_ns, highs_ns = [-(2**62)], []
    for old, new, step in zip(fitted.segments[:-1], fitted.segments[1:], fitted.steps, strict=True):
        before_ns = step.before_ns if as_placed else old.measured_ns[1] - WIDER_NS
        after_ns = step.after_ns if as_placed else new.measured_ns[0] + WIDER_NS
        highs_ns.append(_shown(old, new, after_ns))
        lows_ns.append(_shown(new, old, before_ns))
    return list(zip(lows_ns, [*highs_ns, 2**62], strict=True))


def _shown(segment: Segment, other: Segment, dev_ns: int) -> int:
    """What the clock would have shown in one segment when it showed `dev_ns` in the other."""
    return int(segment.to_dev(other.to_utc(np.array([dev_ns]))[0])[0])
