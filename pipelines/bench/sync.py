"""The whole chain from a bundle to rows with an instant and a place: how near the truth, how fast, in how much memory.

On the same trips, in the same run: pyxdf, the nearest public tool, with its de-jittering and without, and pandas, whose
`merge_asof` joins rows whose stamps are believed. None of them finds places, rejects rows or maps a clock that was
never compared with another.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pipelines.bench import accuracy, asof, peers
from pipelines.bench.accuracy import Errors, TripScore
from pipelines.bench.measuring import Cost, Laps, median, on_one_core, peak_bytes, timed
from pipelines.bench.result import Result, judge
from pipelines.clocks.calibrate import calibrate
from pipelines.ingest.bundle import read_bundle
from pipelines.simulate import LEVELS, Trip, simulate_trip, write_bundle
from pipelines.sync import SyncedRecording, synchronise
from pipelines.sync.folder import ALIGNED, ROWS, sync
from pipelines.sync.rows import write_rows

MIN_ROWS_PER_S = 300_000.0
MAX_MEMORY = 6.0
"""Memory that the chain needs beyond what it had, as a multiple of the rows that it read."""

SEED = 7
ACCURACY_LEVELS = ("default", "steps", "liars", "drift", "hard")
ACCURACY_ABA_HZ = 100.0
"""Rate of the axle box where accuracy is measured; how near its rows come does not depend on how many there are."""

SHORT_MINUTES, SHORT_ABA_HZ = 3.0, 50.0
"""A trip to warm up with."""


def run(
    *,
    trip_minutes: float = 30.0,
    rounds: int = 3,
    levels: Sequence[str] = ACCURACY_LEVELS,
    num_joined: int = 50_000_000,
) -> Result:
    """Measure how near one trip of each level comes, then a trip with a 1 kHz axle box, all of it on one core.

    The as-of join is measured by itself too, on more rows than a trip has.
    """
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        near, fast, small = (
            on_one_core(__name__, function, variables={}, folder=folder, **arguments)
            for function, arguments in (
                ("measure_accuracy", {"levels": list(levels), "trip_minutes": trip_minutes}),
                ("measure_speed", {"trip_minutes": trip_minutes, "rounds": rounds}),
                ("measure_memory", {}),
            )
        )
    join = asof.run(num_left=num_joined, rounds=rounds)
    joined = {tool: {"asof_rows_per_s": found["rows_per_s"]} for tool, found in join["peer"].items()}
    return judge(
        {
            **fast["ours"],
            "asof_rows_per_s": join["measured"]["rows_per_s"],
            "asof_extra_per_output": join["measured"]["extra_per_output"],
            **small,
            **near["ours"],
        },
        {tool: joined.get(tool, {}) | fast["peers"][tool] | near["peers"][tool] for tool in near["peers"]},
        ratio=None,
        at_least={"rows_per_s": MIN_ROWS_PER_S, "asof_rows_per_s": asof.MIN_ROWS_PER_S},
        at_most={
            "asof_extra_per_output": asof.MAX_EXTRA_PER_OUTPUT,
            "memory_x": MAX_MEMORY,
            "bars_missed": 0,
        },
    )


def measure_accuracy(*, folder: str, levels: list[str], trip_minutes: float) -> dict[str, Any]:
    """Put one trip of each level right with every tool, and pool the errors of all trips."""
    errors_ms: dict[str, dict[str, list[np.ndarray]]] = {}
    missed = []
    for number, level in enumerate(levels):
        trip = simulate_trip(
            seed=SEED + number,
            vehicle=number,
            trip_minutes=trip_minutes,
            aba_rate_hz=ACCURACY_ABA_HZ,
            difficulty=LEVELS[level],
        )
        done = put_right(trip, Path(folder) / level)
        missed += [f"{level}: {line}" for line in accuracy.missed(done.score, trip, LEVELS[level])]
        recording, stamps = done.synced.recording, done.synced.calibration.stamps
        put = {
            "ours": done.rows,
            "pyxdf": peers.with_pyxdf(recording, stamps, dejitter=True),
            "pyxdf_clocks_only": peers.with_pyxdf(recording, stamps, dejitter=False),
            "pandas": peers.as_stamped(recording, stamps),
        }
        for tool, rows_of_tool in put.items():
            for sensor, error_ms_T in accuracy.time_errors_ms(trip, rows_of_tool).items():
                errors_ms.setdefault(tool, {}).setdefault(sensor, []).append(error_ms_T)
    missed += accuracy.missed_together(np.concatenate(errors_ms["ours"]["dop"]))
    figures = {tool: _figures(own) for tool, own in errors_ms.items()}
    return {"ours": figures.pop("ours") | {"bars_missed": len(missed), "missed": missed}, "peers": figures}


class Done(NamedTuple):
    """A trip that went through the chain."""

    synced: SyncedRecording
    rows: pl.DataFrame
    """As in the file of rows."""

    score: TripScore


def put_right(trip: Trip, folder: Path) -> Done:
    """Write the bundle of a trip to `folder`, send it through the chain and score what comes out."""
    write_bundle(trip, folder / "bundle")
    synced = synchronise(read_bundle(str(folder / "bundle")))
    write_rows(folder / ROWS, synced)
    rows = pl.read_parquet(folder / ROWS)
    wheel_diameter_m = synced.position.get("wheel_diameter_m")
    score = accuracy.score_trip(trip, rows, maps=synced.calibration.maps, wheel_diameter_m=wheel_diameter_m)
    return Done(synced, rows, score)


def measure_speed(*, folder: str, trip_minutes: float, rounds: int) -> dict[str, Any]:
    """Synchronise one bundle again and again and let the peers do their part, in turn; the first round warms up."""
    bundle, out = _bundle(folder), Path(folder) / "out"
    write_bundle(simulate_trip(seed=SEED, trip_minutes=trip_minutes), bundle)
    recording = read_bundle(str(bundle))
    stamps = calibrate(recording).stamps
    believed = peers.as_stamped(recording, stamps)
    laps: list[dict[str, Cost]] = []
    costs: dict[str, list[Cost]] = {"pyxdf": [], "pyxdf_clocks_only": [], "pandas": []}
    for _ in range(1 + rounds):
        watch = Laps()
        sync(str(bundle), str(out), watch.begin)
        laps.append(watch.end())
        grid_ns = pl.read_parquet(out / ALIGNED, columns=["t_utc_ns"])["t_utc_ns"].to_numpy()
        costs["pyxdf"].append(timed(peers.with_pyxdf, recording, stamps, dejitter=True)[1])
        costs["pyxdf_clocks_only"].append(timed(peers.with_pyxdf, recording, stamps, dejitter=False)[1])
        costs["pandas"].append(timed(peers.joined_with_pandas, recording, believed, grid_ns)[1])
    stages = {stage: median([lap[stage] for lap in laps[1:]]) for stage in laps[0]}
    whole = median([sum(lap.values(), Cost(0.0, 0.0)) for lap in laps[1:]])
    peer_s = {tool: round(median(own[1:]).cpu_s, 3) for tool, own in costs.items()}
    return {
        "ours": {
            **whole.rates(recording.num_rows),
            "rows": recording.num_rows,
            "clocks_cpu_s": round(stages["calibrate"].cpu_s, 3),
            "join_cpu_s": round(stages["align"].cpu_s, 3),
            "stages_cpu_ms": {stage: round(1000 * cost.cpu_s, 1) for stage, cost in stages.items()},
        },
        "peers": {
            "pyxdf": {"clocks_cpu_s": peer_s["pyxdf"]},
            "pyxdf_clocks_only": {"clocks_cpu_s": peer_s["pyxdf_clocks_only"]},
            "pandas": {"join_cpu_s": peer_s["pandas"]},
        },
    }


def measure_memory(*, folder: str) -> dict[str, Any]:
    """Synchronise the bundle that `measure_speed` left, after a short one that loads what there is to load."""
    short, out = Path(folder) / "short", f"{folder}/out"
    write_bundle(simulate_trip(seed=SEED, trip_minutes=SHORT_MINUTES, aba_rate_hz=SHORT_ABA_HZ), short)
    sync(str(short), out)
    extra_bytes = peak_bytes(sync, str(_bundle(folder)), out)
    sensors = read_bundle(str(_bundle(folder))).sensors.values()
    data_bytes = sum(sensor.rows.estimated_size() for sensor in sensors)
    return {
        "memory_x": round(extra_bytes / data_bytes, 2),
        "memory_mib": round(extra_bytes / 2**20),
        "data_mib": round(data_bytes / 2**20),
    }


def _bundle(folder: str) -> Path:
    """Where the bundle is whose speed and memory are measured."""
    return Path(folder) / "bundle"


def _figures(errors_ms: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """Median and p99 of every sensor's time errors, in milliseconds."""
    pooled = {sensor: Errors.of(np.concatenate(own)) for sensor, own in errors_ms.items()}
    return {
        f"{figure}_ms": {sensor: round(getattr(errors, figure), 3) for sensor, errors in pooled.items()}
        for figure in ("median", "p99")
    }
