"""One recording, synchronised: clocks mapped, rows screened, channels aligned, positions found, all accounted for.

Shape suffix: T = rows of one sensor by instant.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines import align, position
from pipelines.align import Grid, Track
from pipelines.channels import Kind
from pipelines.clocks.calibrate import Calibration, RowTimes, calibrate
from pipelines.clocks.clock_map import ClockMap
from pipelines.clocks.signal_sync import fit_signal
from pipelines.ingest.reader import Recording, Refusal, SensorRows
from pipelines.screen import screen

logger = logging.getLogger(__name__)

ONLY_SENSORS = {"apu", "cell"}
"""Sensors of sources that have one only: their columns are called as the channels are."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SyncedRecording:
    """What is published of a recording, and the evidence for it."""

    source: str
    vehicle: str
    day: str
    recording_id: str
    rate_hz: float
    aligned: pl.DataFrame
    """vehicle, day, recording_id, t_utc_ns, line_m, position_sigma_m, then a value and an age column a channel."""

    rows_in: dict[str, int]
    """Rows of each sensor's file."""

    rows_used: dict[str, int]
    """Rows that have a place in time; with the rejected ones they are all rows."""

    rejected: dict[str, dict[str, int]]
    """Rows by sensor and reason."""

    screened: dict[str, dict[str, dict[str, int]]]
    """Readings that are not believed, by sensor, channel and reason; their rows are used."""

    clocks: dict[str, dict[str, Any]]
    position: dict[str, Any]
    coverage: dict[str, float]
    """Share of the grid instants at which a column has a value."""

    refusals: tuple[Refusal, ...]
    times: dict[str, RowTimes]
    """Instant and fault of every row."""

    def report(self) -> dict[str, Any]:
        """Everything but the data, for JSON: the data passport of the recording."""
        return {
            "source": self.source,
            "vehicle": self.vehicle,
            "day": self.day,
            "recording_id": self.recording_id,
            "rate_hz": self.rate_hz,
            "rows": self.aligned.height,
            "rows_in": self.rows_in,
            "rows_used": self.rows_used,
            "rejected": self.rejected,
            "screened": self.screened,
            "clocks": self.clocks,
            "position": self.position,
            "coverage": self.coverage,
            "refusals": [{"thing": r.thing, "reason": r.reason, "message": r.message} for r in self.refusals],
        }


def synchronise(recording: Recording, rate_hz: float | None = None) -> SyncedRecording:
    """Synchronise one recording onto a grid of `rate_hz`; `None`: the usual rate of its source."""
    rate_hz = align.RATE_HZ.get(recording.source, align.DEFAULT_RATE_HZ) if rate_hz is None else rate_hz
    calibration = calibrate(recording)
    tracks, screened = _screened(recording, calibration, recording.sensors)
    wheels = _wheels(tracks, recording.meta)
    for tie in _ties(recording, calibration, tracks, wheels):
        calibration = calibration.with_map(recording, tie)
        tied = [name for name, sensor in recording.sensors.items() if sensor.clock_id == tie.clock_id]
        tracks |= _screened(recording, calibration, tied)[0]
    for clock in calibration.maps.values():
        if clock.method == "unchecked":
            logger.warning("%s: nothing ties clock %s to UTC, it is believed", recording.recording_id, clock.clock_id)
    grid = align.make_grid(list(tracks.values()), rate_hz)
    where = position.locate(
        grid.t_ns_G,
        tracks,
        wheels,
        speeds=_speeds(tracks, calibration, recording),
        route=recording.route,
        balises=recording.balises,
    )
    columns = _columns(tracks, wheels, grid)
    rejected = {name: _rejected(sensor, calibration.times[name]) for name, sensor in recording.sensors.items()}
    rows_used = {name: len(calibration.times[name].used) for name in recording.sensors}
    logger.info(
        "%s: %d of %d rows used, %d instants",
        recording.recording_id,
        sum(rows_used.values()),
        recording.num_rows,
        grid.length,
    )
    return SyncedRecording(
        source=recording.source,
        vehicle=recording.vehicle,
        day=recording.day,
        recording_id=recording.recording_id,
        rate_hz=rate_hz,
        aligned=_aligned(recording, grid, where, columns),
        rows_in={name: rows_used[name] + sum(rejected[name].values()) for name in recording.sensors},
        rows_used=rows_used,
        rejected=rejected,
        screened=screened,
        clocks=_clock_facts(recording, calibration),
        position=_position_facts(where, recording.meta),
        coverage={
            name: round(float(np.mean(~np.isnan(values))), 6) if grid.length else 0.0
            for name, values in columns.items()
            if not name.endswith("_age_s")
        },
        refusals=recording.refusals,
        times=calibration.times,
    )


def _screened(
    recording: Recording, calibration: Calibration, names: Iterable[str]
) -> tuple[dict[str, Track], dict[str, dict[str, dict[str, int]]]]:
    """Rows of sensors by instant, and what was taken out of them, by sensor, channel and reason."""
    tracks: dict[str, Track] = {}
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for name in names:
        tracks[name], counts[name] = _screened_sensor(recording.sensors[name], calibration.times[name])
    return tracks, counts


def _screened_sensor(sensor: SensorRows, times: RowTimes) -> tuple[Track, dict[str, dict[str, int]]]:
    """Rows of a sensor by instant, with readings that are not believed taken out and counted."""
    values: dict[str, np.ndarray] = {}
    counts: dict[str, dict[str, int]] = {}
    for channel in sensor.channels:
        column = sensor.rows[channel.name]
        if channel.kind is Kind.EVENT:
            values[channel.name] = column.fill_null("").to_numpy().astype(object)[times.used]
            continue
        x_T = column.cast(pl.Float64).to_numpy()[times.used]
        marks = screen(x_T, channel, rate_hz=sensor.nominal_rate_hz)
        for reason, mask_T in marks.items():
            counts.setdefault(channel.name, {})[str(reason)] = int(mask_T.sum())
            x_T[mask_T] = np.nan  # a copy of the column since rows were picked
        values[channel.name] = x_T
    track = Track(
        sensor=sensor.sensor,
        t_ns_T=times.utc_ns_T[times.used],
        values=values,
        channels=sensor.channels,
        rate_hz=sensor.nominal_rate_hz,
    )
    return track, counts


def _ties(
    recording: Recording, calibration: Calibration, tracks: dict[str, Track], wheels: position.Rolled | None
) -> list[ClockMap]:
    """Maps of clocks that were never compared with UTC, but stamp a speed that the odometer sees too."""
    if wheels is None or not _is_tied(calibration, recording.sensors["odo"]):
        return []
    reference = position.without_slip(wheels, _speeds(tracks, calibration, recording))
    fits = [
        fit_signal(
            sensor.clock_id,
            tracks[name].t_ns_T,
            tracks[name].values["speed_mps"],
            reference.t_ns_T,
            reference.distance_m_T,
        )
        for name, sensor in recording.sensors.items()
        if "speed_mps" in tracks[name].values
        and sensor.clock_id in calibration.maps
        and not _is_tied(calibration, sensor)
    ]
    return [fit for fit in fits if fit is not None]


def _wheels(tracks: dict[str, Track], meta: dict[str, Any]) -> position.Rolled | None:
    is_known = {"wheel_nominal_diameter_m", "pulses_per_rev", "counter_bits"} <= meta.keys()
    return position.rolled(tracks["odo"], tracks.get("gnss"), meta) if "odo" in tracks and is_known else None


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


def _columns(tracks: dict[str, Track], wheels: position.Rolled | None, grid: Grid) -> dict[str, np.ndarray]:
    """All channels on the grid, with the name of their sensor unless their source has no other."""
    columns: dict[str, np.ndarray] = {}
    for name, track in tracks.items():
        columns |= align.align(track, grid, prefix="" if name in ONLY_SENSORS else f"{name}_")
    if wheels is not None:
        columns |= align.speed_on_grid(wheels.t_ns_T, wheels.distance_m_T, grid)
    if "evt" in tracks:
        columns |= align.doors_open(tracks["evt"], grid)
    return columns


def _aligned(
    recording: Recording, grid: Grid, where: position.Position, columns: dict[str, np.ndarray]
) -> pl.DataFrame:
    named = {"vehicle": recording.vehicle, "day": recording.day, "recording_id": recording.recording_id}
    frame = align.to_frame(
        {"t_utc_ns": grid.t_ns_G, "line_m": where.line_m, "position_sigma_m": where.sigma_m} | columns
    )
    return frame.select([pl.lit(text).alias(name) for name, text in named.items()] + [pl.all()])


def _rejected(sensor: SensorRows, times: RowTimes) -> dict[str, int]:
    """Rows without a place in time, and rows that the reader had to leave out, by reason."""
    stamp_columns = [*sensor.encoding.columns, ""]
    left_out = sensor.faults.filter(pl.col("column").is_in(stamp_columns)).unique("row", keep="first")
    counts = dict(left_out["reason"].value_counts().iter_rows())
    for reason, count in times.num_rejected.items():
        counts[reason] = counts.get(reason, 0) + count
    return dict(sorted(counts.items()))


def _clock_facts(recording: Recording, calibration: Calibration) -> dict[str, dict[str, Any]]:
    """Evidence for the map of each clock, and the uncertainty that it has at the rows."""
    sigmas: dict[str, list[np.ndarray]] = {}
    for name, sensor in recording.sensors.items():
        times = calibration.times[name]
        sigmas.setdefault(sensor.clock_id, []).append(times.sigma_ns_T[times.used])
    return {clock_id: _facts(clock, np.concatenate(sigmas[clock_id])) for clock_id, clock in calibration.maps.items()}


def _facts(clock: ClockMap, sigma_ns: np.ndarray) -> dict[str, Any]:
    return {
        "method": clock.method,
        "version": clock.version,
        "offset_ms": _rounded(int(clock.segments[0].offset_ns_K[1]) * 1e-6),
        "drift_ppm": _rounded(clock.drift_ppm),
        "residual_p99_ms": _rounded(clock.residuals.p99_ns * 1e-6),
        "floor_ms": _rounded(clock.residuals.floor_ns * 1e-6),
        "sigma_max_ms": _rounded(float(sigma_ns.max()) * 1e-6) if len(sigma_ns) else None,
        "num_exchanges": clock.residuals.num_exchanges,
        "num_rejected": clock.residuals.num_rejected,
        "servers_rejected": list(clock.residuals.servers_rejected),
        "steps_ms": [_rounded(step.jump_ns * 1e-6) for step in clock.steps],
    }


def _position_facts(where: position.Position, meta: dict[str, Any]) -> dict[str, Any]:
    facts = dict(where.stats)
    scale = facts.pop("wheel_scale", None)
    if scale is not None:
        facts["wheel_diameter_m"] = _rounded(scale * float(meta["wheel_nominal_diameter_m"]))
    known_m = where.sigma_m[~np.isnan(where.sigma_m)]
    if len(known_m):
        median_m, p95_m = np.percentile(known_m, [50, 95])
        facts |= {"sigma_median_m": _rounded(float(median_m)), "sigma_p95_m": _rounded(float(p95_m))}
    return facts


def _rounded(value: float) -> float | None:
    """Six decimals; JSON has no NaN."""
    return round(value, 6) if np.isfinite(value) else None
