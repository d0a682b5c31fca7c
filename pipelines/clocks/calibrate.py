"""UTC of every row of a recording: stamps, clock maps and beats put together.

Shape suffix: T = rows of one sensor in stored order.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import polars as pl

from pipelines.clocks import clock_map, fit
from pipelines.clocks.clock_map import ClockMap
from pipelines.clocks.exchanges import exchanges_of
from pipelines.clocks.placing import RowStream
from pipelines.clocks.row_times import TIED, RowTimes, row_times
from pipelines.clocks.stamps import NEAR_NS, RowFault, Stamps, in_round_of, read_stamps
from pipelines.ingest.reader import ClockSpec, Encoding, Recording, SensorRows
from pipelines.progress import OnProgress, unheard

GPS_SIGMA_NS = 1e3
USUAL_JITTER_NS = 3e6
"""How late a computer stamps what it reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Clocks and row times of a recording."""

    maps: dict[str, ClockMap] = field(default_factory=dict)
    """By clock; a clock that nothing ties to UTC has none."""

    stamps: dict[str, Stamps] = field(default_factory=dict)
    """By sensor."""

    times: dict[str, RowTimes] = field(default_factory=dict)
    """By sensor."""

    def own_times(self, sensor: SensorRows) -> RowTimes:
        """Return the times of a sensor by its device's own clock, whatever that counts from, on the sensor's beat."""
        own = clock_map.identity_map(sensor.clock_id, method="own", sigma_ns=clock_map.UNCHECKED_SIGMA_NS)
        return row_times(sensor, self.stamps[sensor.sensor], own)

    def with_map(self, recording: Recording, clock: ClockMap) -> "Calibration":
        """Return the calibration with another map for one clock."""
        times = self.times | _times_of_clock(recording, self.stamps, clock.clock_id, clock)
        return replace(self, maps=self.maps | {clock.clock_id: clock}, times=_events_within(recording, times))


def calibrate(recording: Recording, on_progress: OnProgress = unheard) -> Calibration:
    """Find the map of every clock and the instant of every row."""
    on_progress("calibrate", "stamps")
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
    maps: dict[str, ClockMap] = {}
    times: dict[str, RowTimes] = {}
    for clock_id, clock in sorted(clocks.items()):
        stamped = [name for name, sensor in recording.sensors.items() if sensor.clock_id == clock_id]
        on_progress("calibrate", f"{clock_id}: {', '.join(stamped)}")
        fitted = _fit(recording, clock, stamps)
        if fitted is not None:
            maps[clock_id] = fitted
        times |= _times_of_clock(recording, stamps, clock_id, fitted)
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


def _times_of_clock(
    recording: Recording, stamps: dict[str, Stamps], clock_id: str, fitted: ClockMap | None
) -> dict[str, RowTimes]:
    """Map the rows of all sensors of one clock.

    A sensor without a beat cannot show how late its stamps are; those of the same device are taken for it, or else what
    is usual.
    """
    times = {
        name: row_times(sensor, stamps[name], fitted)
        for name, sensor in recording.sensors.items()
        if sensor.clock_id == clock_id
    }
    if fitted is None or fitted.method not in TIED:
        return times
    jitter_ns = max(own.jitter_ns for own in times.values()) or USUAL_JITTER_NS
    return {
        name: own if own.jitter_ns else replace(own, sigma_ns_T=np.hypot(own.sigma_ns_T, jitter_ns))
        for name, own in times.items()
    }


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
        name: own.without((own.utc_ns_T < first_ns) | (own.utc_ns_T > last_ns), RowFault.BAD_STAMP)
        if recording.sensors[name].nominal_rate_hz is None
        else own
        for name, own in times.items()
    }
