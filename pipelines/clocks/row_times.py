"""UTC of every row of one sensor: what its stamps, the map of its clock and its beat say together.

Shape suffixes: T = rows of one sensor in stored order, D = rows in doubt, G = segments of the clock's map.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.clocks.clock_map import BEYOND_NS, ClockMap
from pipelines.clocks.dejitter import Dejittered, dejitter
from pipelines.clocks.sides import Sides, find_sides
from pipelines.clocks.stamps import NO_STAMP, UNORDERED_SHARE, RowFault, Stamps, in_round_of
from pipelines.ingest.reader import Encoding, SensorRows

FAULTS = tuple(RowFault)
"""`fault_T` counts these from 1; 0 is a good row."""

TIED = ("exchanges", "pairs", "signal")
"""Methods of maps that were fitted to something that ties the clock to UTC."""

EVEN = (*TIED, "own")
"""Methods of maps under which the rows of a beat come out evenly: what is uneven is the delay of their stamps."""

BESIDE_STEP_MAX_NS = 4_000_000
"""A row that a step leaves in doubt by more than this is rejected, unless it is an event."""

_ROUNDED_TO_NS = {
    Encoding.EPOCH_S: 1_000_000,
    Encoding.EPOCH_MS: 1_000_000,
    Encoding.EPOCH_US: 1_000,
    Encoding.LOCAL_TEXT: 1_000_000,
    Encoding.TICKS_US_U32: 1_000,
    Encoding.GPS_TOW: 1_000_000,
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RowTimes:
    """When the rows of one sensor were measured."""

    utc_ns_T: np.ndarray
    """Physical instant, nanoseconds UTC; means nothing where `fault_T` is not 0."""

    sigma_ns_T: np.ndarray
    """Standard error of that instant: of the map, and of what is left of the delay of the stamp."""

    fault_T: np.ndarray
    """0 for a good row, otherwise 1 + the position of its fault in `FAULTS`."""

    used: np.ndarray
    """Positions of the good rows, by instant."""

    jitter_ns: float = 0.0
    """Root mean square delay of the stamps, as far as it could be seen and corrected."""

    @property
    def num_rejected(self) -> dict[str, int]:
        """Rows that have no place in time, by fault."""
        counts = np.bincount(self.fault_T, minlength=len(FAULTS) + 1)[1:]
        return {str(fault): int(count) for fault, count in zip(FAULTS, counts, strict=True) if count}

    def without(self, is_faulty_T: np.ndarray, fault: RowFault) -> "RowTimes":
        """Return the times with further rows rejected; the first fault of a row stands."""
        fault_T = np.where(is_faulty_T & (self.fault_T == 0), np.uint8(_code(fault)), self.fault_T)
        return RowTimes(
            utc_ns_T=self.utc_ns_T,
            sigma_ns_T=self.sigma_ns_T,
            fault_T=fault_T,
            used=self.used[fault_T[self.used] == 0],
            jitter_ns=self.jitter_ns,
        )


def row_times(sensor: SensorRows, stamps: Stamps, fitted: ClockMap | None) -> RowTimes:
    """Map the rows of one sensor to UTC and say which have no place there.

    Args:
        sensor: The rows.
        stamps: Their device time.
        fitted: The map of their clock; `None` if nothing ties it to UTC.
    """
    dev_ns_T, is_bad_T = stamps
    fault_T = np.zeros(len(dev_ns_T), dtype=np.uint8)
    if fitted is None:
        fault_T[:] = _code(RowFault.NO_CLOCK)
        nothing_T = np.full(len(dev_ns_T), np.nan)
        return RowTimes(utc_ns_T=dev_ns_T, sigma_ns_T=nothing_T, fault_T=fault_T, used=np.empty(0, dtype=np.int64))
    if sensor.encoding is Encoding.TICKS_US_U32:
        ends_ns = (fitted.segments[0].measured_ns[0], fitted.segments[-1].measured_ns[1])
        dev_ns_T = in_round_of(dev_ns_T, is_bad_T, ends_ns)
    utc_ns_T, sigma_ns_T = fitted.to_utc(dev_ns_T)
    latency_ns = round(sensor.latency_ms * 1e6)
    utc_ns_T -= latency_ns
    fault_T[_is_beyond(dev_ns_T, fitted)] = _code(RowFault.NO_CLOCK)
    fault_T[is_bad_T] = _code(RowFault.BAD_STAMP)
    fault_T[_repeats(sensor, utc_ns_T, fault_T > 0)] = _code(RowFault.DUPLICATE)
    jitter_ns = 0.0
    if fitted.method in EVEN:
        good = _in_turn(np.flatnonzero(fault_T == 0), utc_ns_T)
        placed = _placed(sensor, utc_ns_T[good], _skipped(fault_T, good), dev_ns_T[good], fitted, latency_ns)
        utc_ns_T[good], jitter_ns = placed.t_ns_T, placed.jitter_ns
        sigma_ns_T[good] = np.hypot(sigma_ns_T[good], placed.sigma_ns)
        fault_T[good[placed.is_unsure_T]] = _code(RowFault.BESIDE_STEP)
        fault_T[good[placed.is_bad_T]] = _code(RowFault.BAD_STAMP)
    used = _by_instant(np.flatnonzero(fault_T == 0), utc_ns_T)
    return RowTimes(utc_ns_T=utc_ns_T, sigma_ns_T=sigma_ns_T, fault_T=fault_T, used=used, jitter_ns=jitter_ns)


def _code(fault: RowFault) -> int:
    return FAULTS.index(fault) + 1


def _is_beyond(dev_ns_T: np.ndarray, fitted: ClockMap) -> np.ndarray:
    """Tell which rows are so far from all that the map was fitted to that it says nothing about them."""
    if fitted.method not in TIED:
        return np.zeros(len(dev_ns_T), dtype=bool)
    first_ns = min(segment.measured_ns[0] for segment in fitted.segments)
    last_ns = max(segment.measured_ns[1] for segment in fitted.segments)
    return np.asarray((dev_ns_T < first_ns - BEYOND_NS) | (dev_ns_T > last_ns + BEYOND_NS))


def _skipped(fault_T: np.ndarray, good: np.ndarray) -> np.ndarray:
    """How many rows without a usable stamp were stored just before each of the good ones, repeated ones not counted."""
    turn_T = np.cumsum(fault_T != _code(RowFault.DUPLICATE))
    return np.asarray(np.maximum(np.diff(turn_T[good], prepend=0) - 1, 0), dtype=np.int32)


def _by_instant(rows: np.ndarray, utc_ns_T: np.ndarray) -> np.ndarray:
    """Sort positions of rows by instant, rows of one instant as they were stored."""
    utc_ns = utc_ns_T[rows]
    if (utc_ns[1:] >= utc_ns[:-1]).all():
        return rows
    return rows[np.argsort(utc_ns, kind="stable")]


def _in_turn(rows: np.ndarray, utc_ns_T: np.ndarray) -> np.ndarray:
    """Order in which rows were measured: as stored, or by instant where the file is in no order at all."""
    if (np.diff(utc_ns_T[rows]) < 0).sum() > UNORDERED_SHARE * len(rows):
        return _by_instant(rows, utc_ns_T)
    return rows


def _repeats(sensor: SensorRows, utc_ns_T: np.ndarray, is_bad_T: np.ndarray) -> np.ndarray:
    """Positions of the rows that repeat the one before, in the order of their instants.

    Two different rows may share an instant (a late stamp, two events); of more than two, the clock stood still.
    """
    rows = _by_instant(np.flatnonzero(~is_bad_T), utc_ns_T)
    utc_ns = utc_ns_T[rows]
    same = 1 + np.flatnonzero(utc_ns[1:] == utc_ns[:-1])
    if not len(same):
        return same
    channels = [channel.name for channel in sensor.channels]
    again, before = (sensor.rows[rows[at]].select(channels) for at in (same, same - 1))
    is_equal = pl.DataFrame([again[name].eq_missing(before[name]) for name in channels])
    is_third = np.isin(same - 1, same)
    return np.asarray(rows[same[is_equal.select(pl.all_horizontal(pl.all())).to_series().to_numpy() | is_third]])


def _placed(
    sensor: SensorRows,
    utc_ns_T: np.ndarray,
    skipped_T: np.ndarray,
    dev_ns_T: np.ndarray,
    fitted: ClockMap,
    latency_ns: int,
) -> Dejittered:
    """Correct rows by the beat of their sensor; without one they keep their stamps, if their side of steps is known."""
    unit_ns = _ROUNDED_TO_NS.get(sensor.encoding, 1)
    if sensor.nominal_rate_hz is not None:
        sides = find_sides(fitted, dev_ns_T, latency_ns=latency_ns, as_placed=False)
        corrected = dejitter(
            utc_ns_T, skipped_T=skipped_T, rate_hz=sensor.nominal_rate_hz, unit_ns=unit_ns, sides=sides
        )
        if corrected is not None:
            return corrected
    sides = find_sides(fitted, dev_ns_T, latency_ns=latency_ns, as_placed=True)
    utc_ns_T, doubt_ns_T = _by_order(utc_ns_T, sides)
    is_event = sensor.nominal_rate_hz is None  # no neighbour could stand for it, so it stays, as uncertain as it is
    return Dejittered(
        t_ns_T=utc_ns_T,
        sigma_ns=np.hypot(unit_ns / np.sqrt(12.0), doubt_ns_T / 2 if is_event else 0.0),
        is_bad_T=np.zeros(len(utc_ns_T), dtype=bool),
        is_unsure_T=(doubt_ns_T > BESIDE_STEP_MAX_NS) & (not is_event),
        jitter_ns=0.0,
    )


def _by_order(utc_ns_T: np.ndarray, sides: Sides) -> tuple[np.ndarray, np.ndarray]:
    """Choose the side of rows in doubt that puts them between the rows stored before and after them.

    Returns:
        The instants, and how far apart those are that each row might have.
    """
    doubt_ns_T = np.zeros(len(utc_ns_T))
    if not len(sides.row_D):
        return utc_ns_T, doubt_ns_T
    is_sure_T = ~np.isin(np.arange(len(utc_ns_T)), sides.row_D)
    earliest_ns_D = np.maximum.accumulate(np.where(is_sure_T, utc_ns_T, NO_STAMP))[sides.row_D, None]
    latest_ns_D = np.minimum.accumulate(np.where(is_sure_T, utc_ns_T, -(NO_STAMP + 1))[::-1])[::-1][sides.row_D, None]
    is_possible_DG = sides.utc_ns_DG != NO_STAMP
    is_between_DG = is_possible_DG & (sides.utc_ns_DG >= earliest_ns_D) & (sides.utc_ns_DG <= latest_ns_D)
    is_possible_DG = np.where(is_between_DG.any(axis=1, keepdims=True), is_between_DG, is_possible_DG)
    segment_T = sides.segment_T.copy()
    segment_T[sides.row_D] = np.argmax(is_possible_DG, axis=1)
    lowest_ns_D = np.where(is_possible_DG, sides.utc_ns_DG, -(NO_STAMP + 1)).min(axis=1)
    highest_ns_D = np.where(is_possible_DG, sides.utc_ns_DG, NO_STAMP).max(axis=1)
    doubt_ns_T[sides.row_D] = highest_ns_D - lowest_ns_D
    return sides.chosen(utc_ns_T, segment_T), doubt_ns_T
