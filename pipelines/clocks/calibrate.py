"""UTC of every row of a recording: stamps, clock maps and beats put together.

Shape suffix: T = rows of one sensor in stored order.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import polars as pl

from pipelines.clocks import clock_map, fit
from pipelines.clocks.clock_map import ClockMap
from pipelines.clocks.dejitter import dejitter
from pipelines.clocks.exchanges import exchanges_of
from pipelines.clocks.placing import RowStream
from pipelines.clocks.stamps import NEAR_NS, UNORDERED_SHARE, RowFault, Stamps, in_round_of, read_stamps
from pipelines.ingest.reader import ClockSpec, Encoding, Recording, SensorRows

GPS_SIGMA_NS = 1e3
FAULTS = tuple(RowFault)
"""`fault_T` counts these from 1; 0 is a good row."""

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
    """Standard error of the clock map at that instant."""

    fault_T: np.ndarray
    """0 for a good row, otherwise 1 + the position of its fault in `FAULTS`."""

    used: np.ndarray
    """Positions of the good rows, by instant."""

    @property
    def num_rejected(self) -> dict[str, int]:
        """Rows that have no place in time, by fault."""
        counts = np.bincount(self.fault_T, minlength=len(FAULTS) + 1)[1:]
        return {str(fault): int(count) for fault, count in zip(FAULTS, counts, strict=True) if count}


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Clocks and row times of a recording."""

    maps: dict[str, ClockMap] = field(default_factory=dict)
    """By clock; a clock that nothing ties to UTC has none."""

    stamps: dict[str, Stamps] = field(default_factory=dict)
    """By sensor."""

    times: dict[str, RowTimes] = field(default_factory=dict)
    """By sensor."""

    def with_map(self, recording: Recording, clock: ClockMap) -> "Calibration":
        """Return the calibration with another map for one clock."""
        times = {
            name: _times(sensor, self.stamps[name], clock) if sensor.clock_id == clock.clock_id else self.times[name]
            for name, sensor in recording.sensors.items()
        }
        return replace(self, maps=self.maps | {clock.clock_id: clock}, times=times)


def calibrate(recording: Recording) -> Calibration:
    """Find the map of every clock and the instant of every row."""
    hint_utc_ns = _hint_utc_ns(recording)
    stamps = {
        name: read_stamps(
            sensor,
            time_zone=recording.time_zone,
            gps_minus_utc_s=int(recording.meta.get("gps_minus_utc_s", 18)),
            hint_utc_ns=hint_utc_ns,
        )
        for name, sensor in recording.sensors.items()
    }
    clocks = {sensor.clock_id: _spec(recording, sensor) for sensor in recording.sensors.values()}
    fitted = {clock_id: _fit(recording, clock, stamps) for clock_id, clock in sorted(clocks.items())}
    maps = {clock_id: clock for clock_id, clock in fitted.items() if clock is not None}
    times = {
        name: _times(sensor, stamps[name], maps.get(sensor.clock_id)) for name, sensor in recording.sensors.items()
    }
    return Calibration(maps=maps, stamps=stamps, times=_events_within(recording, times))


def _hint_utc_ns(recording: Recording) -> int | None:
    text = recording.meta.get("time_zero_hint_utc")
    return int(datetime.fromisoformat(text).timestamp()) * 10**9 if text else None


def _spec(recording: Recording, sensor: SensorRows) -> ClockSpec:
    """Return the clock of a sensor; one that the source does not describe is what its encoding says."""
    counts = {Encoding.TICKS_US_U32: "ticks", Encoding.UPTIME_NS: "ticks", Encoding.GPS_TOW: "gps"}
    implied = ClockSpec(clock_id=sensor.clock_id, kind=counts.get(sensor.encoding, "epoch"))
    return recording.clocks.get(sensor.clock_id, implied)


def _fit(recording: Recording, clock: ClockSpec, stamps: dict[str, Stamps]) -> ClockMap | None:
    """Fit a clock by the best evidence that there is; `None` where there is none."""
    if clock.kind == "gps":
        return clock_map.identity_map(clock.clock_id, method="gps", sigma_ns=GPS_SIGMA_NS)
    if clock.ntp and recording.exchanges is not None:
        exchanges = exchanges_of(recording.exchanges, clock)
        if len(exchanges.dev_ns_X):
            ends_ns = (int(exchanges.dev_ns_X[0]), int(exchanges.dev_ns_X[-1]))
            return fit.fit_exchanges(clock.clock_id, exchanges, _row_streams(recording, clock, stamps, ends_ns))
    if not clock.ntp and recording.time_pairs is not None and recording.time_pairs.height:
        pairs = recording.time_pairs
        dev_ns_X = pairs["t_dev_ns"].to_numpy()
        return fit.fit_pairs(
            clock.clock_id,
            dev_ns_X,
            pairs["t_utc_ns"].to_numpy(),
            pairs["sigma_ns"].cast(pl.Float64).to_numpy(),
            _row_streams(recording, clock, stamps, (int(dev_ns_X[0]), int(dev_ns_X[-1]))),
        )
    if clock.kind == "epoch":
        return clock_map.identity_map(clock.clock_id, method="unchecked", sigma_ns=clock_map.UNCHECKED_SIGMA_NS)
    return None


def _row_streams(
    recording: Recording, clock: ClockSpec, stamps: dict[str, Stamps], ends_ns: tuple[int, int]
) -> list[RowStream]:
    """Rows of the regular sensors that a clock stamps, counted from the same start as what was measured at the ends."""
    streams = []
    for name, sensor in recording.sensors.items():
        if sensor.clock_id == clock.clock_id and sensor.nominal_rate_hz is not None:
            dev_ns_T, is_bad_T = stamps[name]
            if sensor.encoding is Encoding.TICKS_US_U32:
                dev_ns_T = in_round_of(dev_ns_T, is_bad_T, ends_ns)
            streams.append(RowStream(dev_ns_T[~is_bad_T], 1e9 / sensor.nominal_rate_hz))
    return streams


def _times(sensor: SensorRows, stamps: Stamps, fitted: ClockMap | None) -> RowTimes:
    """Map the rows of one sensor to UTC and say which have no place there."""
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
    utc_ns_T -= round(sensor.latency_ms * 1e6)
    fault_T[is_bad_T] = _code(RowFault.BAD_STAMP)
    used = _by_instant(np.flatnonzero(~is_bad_T), utc_ns_T)
    is_again = _is_again(sensor, utc_ns_T, used)
    fault_T[used[is_again]] = _code(RowFault.DUPLICATE)
    if sensor.nominal_rate_hz is not None and fitted.method in ("exchanges", "pairs", "signal"):
        good = _in_turn(np.flatnonzero(fault_T == 0), utc_ns_T)
        unit_ns = _ROUNDED_TO_NS.get(sensor.encoding, 1)
        utc_ns_T[good], is_out_of_turn = dejitter(utc_ns_T[good], rate_hz=sensor.nominal_rate_hz, unit_ns=unit_ns)
        fault_T[good[is_out_of_turn]] = _code(RowFault.BAD_STAMP)
    used = _by_instant(np.flatnonzero(fault_T == 0), utc_ns_T)
    return RowTimes(utc_ns_T=utc_ns_T, sigma_ns_T=sigma_ns_T, fault_T=fault_T, used=used)


def _code(fault: RowFault) -> int:
    return FAULTS.index(fault) + 1


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


def _is_again(sensor: SensorRows, utc_ns_T: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Tell which of the rows `used` repeat the one before.

    Two different rows may share an instant (a late stamp, two events); of more than two, the clock stood still.
    """
    is_again = np.zeros(len(used), dtype=bool)
    same = 1 + np.flatnonzero(utc_ns_T[used[1:]] == utc_ns_T[used[:-1]])
    if not len(same):
        return is_again
    channels = [channel.name for channel in sensor.channels]
    rows, before = (sensor.rows[used[at]].select(channels) for at in (same, same - 1))
    is_equal = pl.DataFrame([rows[name].eq_missing(before[name]) for name in channels])
    is_third = np.isin(same - 1, same)
    is_again[same] = is_equal.select(pl.all_horizontal(pl.all())).to_series().to_numpy() | is_third
    return is_again


def _events_within(recording: Recording, times: dict[str, RowTimes]) -> dict[str, RowTimes]:
    """Reject events outside the time that the regular sensors cover: an event has no neighbours to compare it with."""
    regular = [
        times[name].utc_ns_T[times[name].used[[0, -1]]]
        for name, sensor in recording.sensors.items()
        if sensor.nominal_rate_hz is not None and len(times[name].used)
    ]
    if not regular:
        return times
    first_ns, last_ns = min(t[0] for t in regular) - NEAR_NS, max(t[1] for t in regular) + NEAR_NS
    return {
        name: own if recording.sensors[name].nominal_rate_hz is not None else _within(own, first_ns, last_ns)
        for name, own in times.items()
    }


def _within(times: RowTimes, first_ns: int, last_ns: int) -> RowTimes:
    is_far_T = (times.fault_T == 0) & ((times.utc_ns_T < first_ns) | (times.utc_ns_T > last_ns))
    fault_T = np.where(is_far_T, np.uint8(_code(RowFault.BAD_STAMP)), times.fault_T)
    return RowTimes(
        utc_ns_T=times.utc_ns_T, sigma_ns_T=times.sigma_ns_T, fault_T=fault_T, used=times.used[fault_T[times.used] == 0]
    )
