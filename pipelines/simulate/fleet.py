"""A simulated fleet on disk: bundles as recorders would land them, and the truth about them apart."""

import csv
import io
import json
import logging
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from pipelines.simulate.difficulty import DEFAULT, Difficulty
from pipelines.simulate.faults import plan_fault
from pipelines.simulate.trip import START_DATE, Trip, simulate_trip

logger = logging.getLogger(__name__)

EVENT_COLUMNS = ("vehicle", "kind", "start_utc", "end_utc", "trip_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultEvent:
    """A fault of the fleet, half-open in time; one line of `truth/events.csv`."""

    vehicle: str
    kind: str
    start_utc: datetime
    end_utc: datetime
    trip_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetSummary:
    """What `simulate_fleet` wrote."""

    bundles: list[Path]
    """Folders with a `meta.json`, by vehicle and day."""

    events: list[FaultEvent]
    num_rows: int
    num_bytes: int
    """Size of bundles and truth together."""


def simulate_fleet(
    out: Path,
    *,
    seed: int,
    vehicles: int,
    days: int,
    trips_per_day: int = 1,
    healthy_days: int | None = None,
    start_date: date = START_DATE,
    departure_hour_utc: float = 5.0,
    trip_minutes: float = 30.0,
    aba_rate_hz: float = 1_000.0,
    clean: bool = False,
    difficulty: Difficulty = DEFAULT,
) -> FleetSummary:
    """Write `out/bundles/<vehicle>/<day>/<trip_id>/` and `out/truth/` likewise, with `out/truth/events.csv`.

    The files depend on the arguments alone, byte for byte. More vehicles change nothing of the others, nor do more
    days, as long as `healthy_days` is given.

    Args:
        out: Folder to write to; files of an earlier call with the same names are replaced.
        seed: Seed of everything random.
        vehicles: Number of vehicles, named `sim001` on.
        days: Number of days.
        trips_per_day: Trips of each vehicle and day.
        healthy_days: Days before anything may break; `None`: the first half of the days.
        start_date: First day.
        departure_hour_utc: When the first trip of a day starts, at the earliest.
        trip_minutes: Length of each trip.
        aba_rate_hz: Rate of the axle-box accelerometer.
        clean: Whether clocks are right and rows undamaged; faults of the vehicles remain.
        difficulty: What goes wrong in every trip, and how badly.
    """
    if vehicles < 1 or days < 1 or not 1 <= trips_per_day <= 6:
        raise ValueError(
            f"vehicles, days, trips_per_day are {vehicles}, {days}, {trips_per_day}; "
            "expected 1 or more each, and at most 6 trips a day"
        )
    first_faulty_day = (days + 1) // 2 if healthy_days is None else healthy_days
    bundles, events, num_rows, num_bytes = [], [], 0, 0
    for vehicle in range(vehicles):
        for day in range(days):
            for number in range(trips_per_day):
                trip = simulate_trip(
                    seed=seed,
                    vehicle=vehicle,
                    day=day,
                    trip=number,
                    fault=plan_fault(seed=seed, vehicle=vehicle, day=day, trip=number, healthy_days=first_faulty_day),
                    start_date=start_date,
                    departure_hour_utc=departure_hour_utc,
                    trip_minutes=trip_minutes,
                    aba_rate_hz=aba_rate_hz,
                    clean=clean,
                    difficulty=difficulty,
                )
                num_bytes += write_truth(trip, out / "truth" / trip.vehicle / trip.day / trip.trip_id)
                bundles.append(out / "bundles" / trip.vehicle / trip.day / trip.trip_id)
                num_bytes += write_bundle(trip, bundles[-1])
                num_rows += trip.num_rows
                events += _events(trip)
    num_bytes += _write(out / "truth" / "events.csv", _events_csv(events))
    logger.info("simulated %d trips, %d rows, %d faults, %d bytes", len(bundles), num_rows, len(events), num_bytes)
    return FleetSummary(bundles=bundles, events=events, num_rows=num_rows, num_bytes=num_bytes)


def write_bundle(trip: Trip, folder: Path) -> int:
    """Write a trip as a recorder would, its manifest last; return the bytes written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").unlink(missing_ok=True)  # no manifest while its files are being replaced
    num_bytes = 0
    for name, sensor in trip.meta["sensors"].items():
        write = _write_parquet if sensor["file"].endswith(".parquet") else _write_csv
        num_bytes += write(trip.frames[name], folder / sensor["file"])
    num_bytes += _write_csv(trip.ntp_log, folder / "ntp_log.csv")
    num_bytes += _write_csv(trip.route, folder / "route.csv")
    num_bytes += _write_csv(trip.balises, folder / "balises.csv")
    return num_bytes + _write_json(trip.meta, folder / "meta.json")


def write_truth(trip: Trip, folder: Path) -> int:
    """Write what a pipeline is to find out about a trip; return the bytes written."""
    folder.mkdir(parents=True, exist_ok=True)
    num_bytes = sum(_write_parquet(frame, folder / f"{name}.parquet") for name, frame in trip.truth.rows.items())
    num_bytes += _write_parquet(trip.truth.clocks, folder / "clocks.parquet")
    return num_bytes + _write_json(trip.truth.facts, folder / "truth.json")


def _events(trip: Trip) -> list[FaultEvent]:
    fault = trip.truth.facts["fault"]
    if fault is None:
        return []
    return [
        FaultEvent(
            vehicle=trip.vehicle,
            kind=fault["kind"],
            start_utc=datetime.fromtimestamp(fault["start_utc_ns"] // 10**9, tz=UTC),
            end_utc=datetime.fromtimestamp(fault["end_utc_ns"] // 10**9, tz=UTC),
            trip_id=trip.trip_id,
        )
    ]


def _events_csv(events: list[FaultEvent]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(EVENT_COLUMNS)
    for event in events:
        start, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (event.start_utc, event.end_utc))
        writer.writerow([event.vehicle, event.kind, start, end, event.trip_id])
    return text.getvalue().encode()


def _write_csv(frame: pl.DataFrame, path: Path) -> int:
    is_decimal_stamp = "ts" in frame.columns and frame.schema["ts"].is_float()
    return _write(path, frame.write_csv(float_precision=3 if is_decimal_stamp else None).encode())


def _write_parquet(frame: pl.DataFrame, path: Path) -> int:
    """Write with delta encoding: stamps and row numbers shrink to a tenth, at the speed of the disk."""
    encodings = {
        name: "DELTA_BINARY_PACKED"
        if dtype in (pl.Int64, pl.UInt32)
        else "BYTE_STREAM_SPLIT"
        if dtype.is_float()
        else "PLAIN"
        for name, dtype in frame.schema.items()
    }
    temporary = _temporary(path)
    pq.write_table(
        frame.to_arrow(compat_level=pl.CompatLevel.oldest()),
        temporary,
        use_dictionary=False,
        column_encoding=encodings,
        compression="lz4",
    )
    temporary.replace(path)
    return path.stat().st_size


def _write_json(content: dict[str, Any], path: Path) -> int:
    return _write(path, (json.dumps(content, indent=2) + "\n").encode())


def _write(path: Path, content: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.write_bytes(content)
    temporary.replace(path)
    return len(content)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
