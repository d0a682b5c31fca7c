"""Simulating a small fleet and writing its files, beside pandas that only writes the same tables once more.

The peer has no physics, clocks or damage to compute: it says how much of the time is the files.
"""

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from pipelines.bench.measuring import Cost, median, on_one_core, timed
from pipelines.bench.result import Result, judge
from pipelines.simulate import simulate_fleet

MIN_ROWS_PER_S = 2_000_000.0
SEED = 7


def run(*, vehicles: int = 2, trip_minutes: float = 30.0, rounds: int = 3) -> Result:
    """Simulate a day of each vehicle on one core; the median of `rounds`, after one to warm up."""
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        found = on_one_core(
            __name__, variables={}, folder=folder, vehicles=vehicles, trip_minutes=trip_minutes, rounds=rounds
        )
    ours, peer = found["ours"], found["peer"]
    return judge(
        {**ours, "rows": found["rows"], "bytes": found["bytes"]},
        peer,
        ratio=round(ours["rows_per_s"] / peer["rows_per_s"], 2),
        at_least={"rows_per_s": MIN_ROWS_PER_S},
    )


def measure(*, folder: str, vehicles: int, trip_minutes: float, rounds: int) -> dict[str, Any]:
    """Simulate into `folder` and let pandas write what is there, in turn."""
    ours, peer = [], []
    for _ in range(1 + rounds):
        fleet, cost = timed(
            simulate_fleet, Path(folder) / "fleet", seed=SEED, vehicles=vehicles, days=1, trip_minutes=trip_minutes
        )
        ours.append(cost)
        peer.append(_rewrite(Path(folder) / "fleet", Path(folder) / "again"))
    return {
        "rows": fleet.num_rows,
        "bytes": fleet.num_bytes,
        "ours": median(ours[1:]).rates(fleet.num_rows),
        "peer": median(peer[1:]).rates(fleet.num_rows),
    }


def _rewrite(source: Path, target: Path) -> Cost:
    """What pandas takes to write the tables of a fleet, which it has in memory."""
    files = [path.relative_to(source) for path in source.rglob("*") if path.suffix in {".csv", ".parquet"}]
    frames = {file: _read(source / file) for file in files}
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
    return timed(_write_all, frames, target)[1]


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


def _write_all(frames: dict[Path, pd.DataFrame], folder: Path) -> None:
    for file, frame in frames.items():
        if file.suffix == ".csv":
            frame.to_csv(folder / file, index=False)
        else:
            frame.to_parquet(folder / file, index=False)
