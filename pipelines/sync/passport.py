"""What a synchronised recording says about itself, in numbers that JSON can hold."""

from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from pipelines.align import Track
from pipelines.cadence import behind_others, stream_facts
from pipelines.clocks.calibrate import Calibration
from pipelines.clocks.clock_map import ClockMap, rounded
from pipelines.clocks.row_times import RowTimes
from pipelines.clocks.skew import skew_of
from pipelines.ingest.reader import Recording, SensorRows
from pipelines.position import Distance, TrackPosition, travelled
from pipelines.sync.measured import Measured


def rejected(sensor: SensorRows, times: RowTimes) -> dict[str, int]:
    """Rows without a place in time, and rows that the reader had to leave out, by reason."""
    counts = dict(left_out(sensor)["reason"].value_counts().iter_rows())
    for reason, count in times.num_rejected.items():
        counts[reason] = counts.get(reason, 0) + count
    return dict(sorted(counts.items()))


def left_out(sensor: SensorRows) -> pl.DataFrame:
    """Faults that took their row out before anything looked at its time, one a row, in order."""
    stamp_columns = [*sensor.encoding.columns, ""]
    return sensor.faults.filter(pl.col("column").is_in(stamp_columns)).unique("row", keep="first").sort("row")


def unread(sensor: SensorRows) -> pl.DataFrame:
    """Faults of channels in rows that were kept, the first of each row, in order."""
    stamp_columns = [*sensor.encoding.columns, ""]
    of_channels = sensor.faults.filter(~pl.col("column").is_in(stamp_columns))
    return of_channels.join(left_out(sensor), on="row", how="anti").unique("row", keep="first").sort("row")


def clocks(recording: Recording, calibration: Calibration, evidence: dict[str, Measured]) -> dict[str, dict[str, Any]]:
    """Evidence for the map of each clock, and the uncertainty that it has at the rows."""
    sigmas: dict[str, list[np.ndarray]] = {}
    for name, sensor in recording.sensors.items():
        times = calibration.times[name]
        sigmas.setdefault(sensor.clock_id, []).append(times.sigma_ns_T[times.used])
    return {
        clock_id: _clock(clock, np.concatenate(sigmas[clock_id]), evidence.get(clock_id))
        for clock_id, clock in calibration.maps.items()
    }


def sensors(recording: Recording, calibration: Calibration) -> dict[str, dict[str, Any]]:
    """How regularly the rows of each sensor follow each other, and how certain their time is."""
    facts = {name: _sensor(sensor, calibration.times[name]) for name, sensor in recording.sensors.items()}
    regular = {
        name: times.utc_ns_T[times.used[[0, -1]]]
        for name, times in calibration.times.items()
        if recording.sensors[name].nominal_rate_hz is not None and len(times.used)
    }
    if regular:
        behind_ns_S = behind_others(*np.array(list(regular.values())).T)
        for name, behind_ns in zip(regular, behind_ns_S, strict=True):
            facts[name]["behind_others_s"] = rounded(float(behind_ns) * 1e-9)
    return facts


def skews(tracks: dict[str, Track], wheels: Distance | None) -> list[dict[str, Any]]:
    """Time offset of each sensor of the speed against the odometer, or the fastest of them if there is none.

    A pair is left out where the speeds do not tell.
    """
    speeds = {name: track for name, track in tracks.items() if "speed_mps" in track.values}
    name, distance = ("odo", wheels) if wheels is not None else _fastest(speeds)
    if distance is None:
        return []
    found = {
        other: skew_of(track.t_ns_T, track.values["speed_mps"], distance.t_ns_T, distance.distance_m_T)
        for other, track in speeds.items()
        if other != name
    }
    return [
        {
            "sensor": other,
            "reference": name,
            "skew_ms": rounded(skew.skew_ns * 1e-6),
            "sigma_ms": rounded(skew.sigma_ns * 1e-6),
        }
        for other, skew in found.items()
        if skew is not None
    ]


def position(where: TrackPosition) -> dict[str, Any]:
    """Evidence for the position: what it rests on, and how uncertain it is."""
    facts = {name: rounded(value) if isinstance(value, float) else value for name, value in where.stats.items()}
    facts["slips"] = [
        {name: rounded(value) if isinstance(value, float) else value for name, value in asdict(slip).items()}
        for slip in where.slips
    ]
    known_m = where.sigma_m_E[~np.isnan(where.sigma_m_E)]
    if len(known_m):
        median_m, p95_m = np.percentile(known_m, [50, 95])
        facts |= {"sigma_median_m": rounded(float(median_m)), "sigma_p95_m": rounded(float(p95_m))}
    return facts


def coverage(columns: dict[str, np.ndarray]) -> dict[str, float]:
    """Share of the grid instants at which each column has a value."""
    return {
        name: round(float(np.mean(columns[f"{name}_valid"])), 6) if len(values) else 0.0
        for name, values in columns.items()
        if f"{name}_valid" in columns
    }


def _fastest(speeds: dict[str, Track]) -> tuple[str, Distance | None]:
    """The sensor of the speed with the highest rate, and how far it saw the train go."""
    name = max(speeds, key=lambda one: speeds[one].rate_hz or 0.0, default="")
    return name, travelled(speeds[name]) if name else None


def _sensor(sensor: SensorRows, times: RowTimes) -> dict[str, Any]:
    stored_ns_T, sorted_ns_T = times.utc_ns_T[times.fault_T == 0], times.utc_ns_T[times.used]
    sigma_ns = times.sigma_ns_T[times.used]
    return {
        "nominal_rate_hz": sensor.nominal_rate_hz,
        **stream_facts(stored_ns_T, sorted_ns_T, sensor.nominal_rate_hz),
        "sigma_max_ms": rounded(float(sigma_ns.max()) * 1e-6) if len(sigma_ns) else None,
        "behind_others_s": None,
    }


def _clock(clock: ClockMap, sigma_ns: np.ndarray, evidence: Measured | None) -> dict[str, Any]:
    return clock.facts() | {
        "sigma_max_ms": rounded(float(sigma_ns.max()) * 1e-6) if len(sigma_ns) else None,
        "servers": _servers(evidence) if evidence is not None else [],
    }


def _servers(evidence: Measured) -> list[dict[str, Any]]:
    """What each server said of a clock."""
    facts = []
    for number, server in enumerate(evidence.servers):
        of_server_X = evidence.server_X == number
        if of_server_X.any():
            facts.append(
                {
                    "server": server,
                    "num_exchanges": int(of_server_X.sum()),
                    "num_believed": int(evidence.is_believed_X[of_server_X].sum()),
                    "shortest_rtt_ms": rounded(2e-6 * float(evidence.reach_ns_X[of_server_X].min())),
                    "residual_median_ms": rounded(1e-6 * float(np.median(evidence.residual_ns_X[of_server_X]))),
                }
            )
    return facts
