"""Reading, validating and publishing a trip bundle, beside the few lines of pandas that people write for that.

The peer reads the same files, takes every stamp for the truth, joins the same channels on a one-second grid and writes
them. It corrects no clock, finds no position, screens nothing, validates nothing and keeps no evidence.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from pipelines import steps
from pipelines.bench.measuring import Cost, median, on_one_core, timed
from pipelines.bench.result import Result, judge
from pipelines.ingest.bundle import read_bundle
from pipelines.simulate import simulate_trip, write_bundle
from pipelines.sync import synchronise

MIN_ROWS_PER_S = 1_000_000.0
SEED = 7

_UNIT_OF_ENCODING = {"epoch_s": "s", "epoch_ms": "ms", "epoch_us": "us", "epoch_ns": "ns"}


def run(*, trip_minutes: float = 30.0, rounds: int = 5) -> Result:
    """Ingest one bundle again and again on one core; the median of `rounds`, after one to warm up.

    The stages are those of `steps`. `stage` reads, synchronises and writes; the first two of these were measured once
    more by themselves, and are no part of the sum.
    """
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        variables = {"TRACKSIDE_LAKE": f"{folder}/lake"}
        found = on_one_core(__name__, variables=variables, folder=folder, trip_minutes=trip_minutes, rounds=rounds)
    ours, peer = found["ours"], found["peer"]
    return judge(
        {**ours, "rows": found["rows"], "stages": found["stages"]},
        peer,
        ratio=round(ours["rows_per_s"] / peer["rows_per_s"], 2),
        at_least={"rows_per_s": MIN_ROWS_PER_S},
    )


def measure(*, folder: str, trip_minutes: float, rounds: int) -> dict[str, Any]:
    """Ingest a bundle into the lake of this process and let pandas do its part, in turn."""
    trip = simulate_trip(seed=SEED, trip_minutes=trip_minutes)
    bundle = Path(folder) / "bundle"
    write_bundle(trip, bundle)
    (landed,) = steps.land(str(bundle), source="bundle")
    laps, peer = [], []
    for _ in range(1 + rounds):
        laps.append(_ingest(landed))
        peer.append(timed(_join_with_pandas, bundle, Path(folder) / "joined.parquet")[1])
    costs = {stage: median([lap[stage] for lap in laps[1:]]) for stage in laps[0]}
    return {
        "rows": trip.num_rows,
        "ours": (costs["stage"] + costs["validate"] + costs["publish"]).rates(trip.num_rows),
        "stages": {
            stage: {**cost.rates(trip.num_rows), "cpu_ms": round(1000 * cost.cpu_s, 1)} for stage, cost in costs.items()
        },
        "peer": median(peer[1:]).rates(trip.num_rows),
    }


def _ingest(landed: str) -> dict[str, Cost]:
    recording, read_cost = timed(read_bundle, landed)
    _, synchronise_cost = timed(synchronise, recording)
    staged, stage_cost = timed(steps.synchronise, [landed])
    _, validate_cost = timed(steps.validate, staged)
    _, publish_cost = timed(steps.publish, staged, force=True)  # what is published already would stay as it is
    return {
        "read": read_cost,
        "synchronise": synchronise_cost,
        "stage": stage_cost,
        "validate": validate_cost,
        "publish": publish_cost,
    }


def _join_with_pandas(bundle: Path, target: Path) -> None:
    meta = json.loads((bundle / "meta.json").read_text())
    tables = {
        name: _read(bundle / sensor["file"], name, sensor, meta)
        for name, sensor in meta["sensors"].items()
        if sensor["nominal_rate_hz"] is not None
    }
    start, end = tables["gnss"]["t"].quantile([0.01, 0.99])  # some stamps are hours off
    joined = pd.DataFrame({"t": pd.date_range(start.ceil("s"), end.floor("s"), freq="s", unit="ns")})
    for table in tables.values():
        joined = pd.merge_asof(joined, table, on="t", tolerance=pd.Timedelta("3s"))
    joined.to_parquet(target)


def _read(path: Path, name: str, sensor: dict[str, Any], meta: dict[str, Any]) -> pd.DataFrame:
    """Rows of a sensor in the order of their stamps, which are taken for UTC."""
    rows = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    table = rows[list(sensor["channels"])].add_prefix(f"{name}_")
    table["t"] = _stamps(rows, sensor["encoding"], meta).dt.as_unit("ns")
    return table.dropna(subset="t").drop_duplicates("t").sort_values("t")


def _stamps(rows: pd.DataFrame, encoding: str, meta: dict[str, Any]) -> pd.Series:
    match encoding:
        case "gps_tow":
            counted = pd.to_timedelta(rows["gps_week"] * 7, unit="D") + pd.to_timedelta(rows["tow_ms"], unit="ms")
            return pd.Timestamp("1980-01-06", tz="UTC") + counted - pd.Timedelta(seconds=meta["gps_minus_utc_s"])
        case "local_text":
            return pd.to_datetime(rows["ts"]).dt.tz_localize(meta["time_zone"], ambiguous="NaT").dt.tz_convert("UTC")
        case "ticks_us_u32":
            since_first = pd.to_timedelta(rows["ticks"].astype("int64") - int(rows["ticks"].iloc[0]), unit="us")
            return pd.Timestamp(meta["time_zero_hint_utc"]) + since_first
        case _:
            return pd.to_datetime(rows["ts"], unit=_UNIT_OF_ENCODING[encoding], utc=True)
