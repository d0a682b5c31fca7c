"""One recording, synchronised: clocks mapped, rows screened, channels aligned, positions found, all accounted for.

Shape suffixes: T = rows of one sensor in stored order, G = grid instants.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines import align, position
from pipelines.align import Grid, Track
from pipelines.clocks.calibrate import Calibration, calibrate
from pipelines.clocks.clock_map import ClockMap
from pipelines.clocks.row_times import RowTimes
from pipelines.clocks.signal_sync import Reference, fit_signal
from pipelines.ingest.reader import Recording, Refusal, SensorRows
from pipelines.position import Distance, TrackPosition, Travel
from pipelines.progress import OnProgress, unheard
from pipelines.screen import Readings, Screened, contradicted, out_of_order, screen_sensor
from pipelines.sync import passport
from pipelines.sync.measured import Measured, measured

logger = logging.getLogger(__name__)

ONLY_SENSORS = {"apu", "cell"}
"""Sensors of sources that have one only: their columns are called as the channels are."""

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SyncedRecording:
    """What is published of a recording, and the evidence for it."""

    recording: Recording
    rate_hz: float
    aligned: pl.DataFrame
    """vehicle, day, recording_id, t_utc_ns, line_m, position_sigma_m, then a channel its value, validity and age."""

    calibration: Calibration
    measured: dict[str, Measured]
    """By clock, what its map was fitted to; a clock that rests on no single measurements has none."""

    tracks: dict[str, Track]
    """Rows of each sensor by instant, readings that are not believed taken out."""

    value_faults: dict[str, np.ndarray]
    """By sensor, of its rows as the reader kept them: 0 where all readings are believed, else 1 + the position in
    `screen.REASONS` of the strongest reason against one."""

    where: TrackPosition
    """The way of the train, at any instant."""

    rows_in: dict[str, int]
    """Rows of each sensor's file."""

    rows_used: dict[str, int]
    """Rows that have a place in time; with the rejected ones they are all rows."""

    rejected: dict[str, dict[str, int]]
    """Rows by sensor and reason."""

    screened: dict[str, dict[str, dict[str, int]]]
    """Readings that are missing or not believed, by sensor, channel and reason; their rows are used."""

    out_of_order: dict[str, int]
    """Used rows that were stored after a later one, by sensor; they are in their turn."""

    sensors: dict[str, dict[str, Any]]
    """Rate, gaps and uncertainty of the rows of each sensor."""

    clocks: dict[str, dict[str, Any]]
    skews: list[dict[str, Any]]
    """How far sensors that see the same speed are apart in time."""

    position: dict[str, Any]
    coverage: dict[str, float]
    """Share of the grid instants at which a column has a value."""

    @property
    def times(self) -> dict[str, RowTimes]:
        """Instant and fault of every row, by sensor."""
        return self.calibration.times

    @property
    def wheels(self) -> Distance | None:
        """Distance that the odometer counted, slip and gaps included."""
        return self.where.travel.wheels

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What of the recording was not read."""
        return self.recording.refusals

    def report(self) -> dict[str, Any]:
        """Everything but the data, for JSON: the data passport of the recording."""
        return {
            "source": self.recording.source,
            "vehicle": self.recording.vehicle,
            "day": self.recording.day,
            "recording_id": self.recording.recording_id,
            "rate_hz": self.rate_hz,
            "rows": self.aligned.height,
            "rows_in": self.rows_in,
            "rows_used": self.rows_used,
            "rejected": self.rejected,
            "screened": self.screened,
            "out_of_order": self.out_of_order,
            "sensors": self.sensors,
            "clocks": self.clocks,
            "skews": self.skews,
            "position": self.position,
            "coverage": self.coverage,
            "refusals": [{"thing": r.thing, "reason": r.reason, "message": r.message} for r in self.refusals],
        }


def synchronise(
    recording: Recording, rate_hz: float | None = None, on_progress: OnProgress = unheard
) -> SyncedRecording:
    """Synchronise one recording onto a grid of `rate_hz`; `None`: the usual rate of its source."""
    rate_hz = align.RATE_HZ.get(recording.source, align.DEFAULT_RATE_HZ) if rate_hz is None else rate_hz
    calibration = calibrate(recording, on_progress)
    screened = _screened(recording, calibration, recording.sensors, on_progress)
    calibration, screened = _tied(recording, calibration, screened, on_progress)
    screened = _compared(recording, calibration, screened, on_progress)
    tracks = _tracks(screened)
    travelled = _travelled(recording, calibration, tracks)
    grid = align.make_grid(list(tracks.values()), rate_hz)
    columns = _columns(tracks, travelled, grid, on_progress)
    on_progress("locate", f"{grid.length} instants")
    where = position.fit_position(tracks, travelled, route=recording.route, balises=recording.balises)
    evidence = measured(recording, calibration.maps)
    synced = SyncedRecording(
        recording=recording,
        rate_hz=rate_hz,
        aligned=_aligned(recording, grid, where, columns),
        calibration=calibration,
        measured=evidence,
        tracks=tracks,
        value_faults={name: own.value_fault_S for name, own in screened.items()},
        where=where,
        **_accounted(recording, calibration, evidence, screened, where, columns),
    )
    _log(synced)
    return synced


def _screened(
    recording: Recording, calibration: Calibration, names: Iterable[str], on_progress: OnProgress
) -> dict[str, Screened]:
    screened = {}
    for name in names:
        on_progress("screen", name)
        screened[name] = screen_sensor(recording.sensors[name], calibration.times[name])
    return screened


def _compared(
    recording: Recording, calibration: Calibration, screened: dict[str, Screened], on_progress: OnProgress
) -> dict[str, Screened]:
    """Mark readings that contradict those of another sensor."""
    on_progress("compare", ", ".join(screened))
    tied = [name for name, sensor in recording.sensors.items() if _is_tied(calibration, sensor)]
    return contradicted(screened, comparable=tied, witnesses=_witnesses(screened, recording.meta))


def _witnesses(screened: dict[str, Screened], meta: dict[str, Any]) -> dict[str, Readings]:
    """The speed that the wheels measured, half way between their rows."""
    wheel = position.wheel_of(meta)
    rolled = position.rolled(screened["odo"].track, wheel, []) if "odo" in screened and wheel is not None else None
    if rolled is None:
        return {}
    speed_mps_T = align.rolled_speed(rolled.t_ns_T, rolled.distance_m_T, max_span_ns=SECOND_NS)
    return {"odo.speed_mps": Readings(rolled.t_ns_T[1:] - np.diff(rolled.t_ns_T) // 2, speed_mps_T)}


def _tracks(screened: Mapping[str, Screened]) -> dict[str, Track]:
    return {name: own.track for name, own in screened.items()}


def _tied(
    recording: Recording, calibration: Calibration, screened: dict[str, Screened], on_progress: OnProgress
) -> tuple[Calibration, dict[str, Screened]]:
    """Tie clocks that were never compared with UTC to those that were, by a signal that they share."""
    for tie in _ties(recording, calibration, _tracks(screened)):
        on_progress("tie", tie.clock_id)
        calibration = calibration.with_map(recording, tie)
        stamped = [name for name, sensor in recording.sensors.items() if sensor.clock_id == tie.clock_id]
        screened = screened | _screened(recording, calibration, stamped, on_progress)
    return calibration, screened


def _ties(recording: Recording, calibration: Calibration, tracks: dict[str, Track]) -> list[ClockMap]:
    """Maps of clocks that were never compared with UTC, but stamp a speed that the odometer sees too."""
    travelled = _travelled(recording, calibration, tracks)
    if not travelled.is_wheel_leading or not _is_tied(calibration, recording.sensors["odo"]):
        return []
    reference = Reference(travelled.first_ns, travelled.cell_ns, travelled.distance_m_E, travelled.is_rolling_C)
    untied = [
        screen_sensor(sensor, calibration.own_times(sensor)).track
        for name, sensor in recording.sensors.items()
        if "speed_mps" in tracks[name].values and not _is_tied(calibration, sensor)
    ]
    fits = [
        fit_signal(recording.sensors[track.sensor].clock_id, track.t_ns_T, track.values["speed_mps"], reference)
        for track in untied
    ]
    return _surest([fit for fit in fits if fit is not None])


def _surest(fits: list[ClockMap]) -> list[ClockMap]:
    """Of each clock the fit with the least sigma, of which its residuals are a multiple."""
    clock_ids = dict.fromkeys(fit.clock_id for fit in fits)
    return [
        min((fit for fit in fits if fit.clock_id == clock_id), key=lambda fit: fit.residuals.p99_ns)
        for clock_id in clock_ids
    ]


def _travelled(recording: Recording, calibration: Calibration, tracks: dict[str, Track]) -> Travel:
    return position.travel_of(tracks, recording.meta, speeds=_speeds(tracks, calibration, recording))


def _speeds(tracks: dict[str, Track], calibration: Calibration, recording: Recording) -> list[Track]:
    """Sensors that measure speed and whose time is known well enough to compare it."""
    return [
        track
        for name, track in tracks.items()
        if "speed_mps" in track.values and len(track.t_ns_T) and _is_tied(calibration, recording.sensors[name])
    ]


def _is_tied(calibration: Calibration, sensor: SensorRows) -> bool:
    """Tell whether the clock of a sensor was ever compared with UTC."""
    clock = calibration.maps.get(sensor.clock_id)
    return clock is not None and clock.method != "unchecked"


def _columns(tracks: dict[str, Track], travelled: Travel, grid: Grid, on_progress: OnProgress) -> dict[str, np.ndarray]:
    """All channels on the grid, with the name of their sensor unless their source has no other."""
    columns: dict[str, np.ndarray] = {}
    for name, track in tracks.items():
        on_progress("align", name)
        columns |= align.align(track, grid, prefix="" if name in ONLY_SENSORS else f"{name}_")
    if (wheels := travelled.wheels) is not None and (rate_hz := tracks["odo"].rate_hz) is not None:
        columns |= align.speed_on_grid(wheels.t_ns_T, wheels.distance_m_T, grid, rate_hz=rate_hz)
    if "evt" in tracks:
        columns |= align.doors_open(tracks["evt"], grid)
    return columns


def _aligned(recording: Recording, grid: Grid, where: TrackPosition, columns: dict[str, np.ndarray]) -> pl.DataFrame:
    line_m_G, sigma_m_G = where.at(grid.t_ns_G)
    named = {"vehicle": recording.vehicle, "day": recording.day, "recording_id": recording.recording_id}
    frame = align.to_frame({"t_utc_ns": grid.t_ns_G, "line_m": line_m_G, "position_sigma_m": sigma_m_G} | columns)
    return frame.select([pl.lit(text).alias(name) for name, text in named.items()] + [pl.all()])


def _accounted(
    recording: Recording,
    calibration: Calibration,
    evidence: dict[str, Measured],
    screened: dict[str, Screened],
    where: TrackPosition,
    columns: dict[str, np.ndarray],
) -> dict[str, Any]:
    """The numbers of a `SyncedRecording`."""
    sensors, times = recording.sensors, calibration.times
    rejected = {name: passport.rejected(sensors[name], times[name]) for name in sensors}
    rows_used = {name: len(times[name].used) for name in sensors}
    return {
        "rows_in": {name: rows_used[name] + sum(rejected[name].values()) for name in sensors},
        "rows_used": rows_used,
        "rejected": rejected,
        "screened": {name: counts for name, own in screened.items() if (counts := own.counts)},
        "out_of_order": {name: int(out_of_order(own).sum()) for name, own in times.items()},
        "sensors": passport.sensors(recording, calibration),
        "clocks": passport.clocks(recording, calibration, evidence),
        "skews": passport.skews(_tracks(screened), where.travel.wheels),
        "position": passport.position(where),
        "coverage": passport.coverage(columns),
    }


def _log(synced: SyncedRecording) -> None:
    recording = synced.recording
    for clock in synced.calibration.maps.values():
        if clock.method == "unchecked":
            logger.warning("%s: nothing ties clock %s to UTC, it is believed", recording.recording_id, clock.clock_id)
    logger.info(
        "%s: %d of %d rows used, %d instants",
        recording.recording_id,
        sum(synced.rows_used.values()),
        recording.num_rows,
        synced.aligned.height,
    )
