"""Aligning a day of a 1 kHz and a 10 Hz sensor, read from Parquet a row group at a time, beside polars.

The peer reads the same files with its streaming engine and takes the mean of every second: no filter, no line between
readings, no validity, no age.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.align import Grid, Track, align_blocks
from pipelines.bench.measuring import Cost, on_one_core, peak_bytes, timed
from pipelines.bench.result import Result, judge
from pipelines.channels import BUNDLE_SENSORS

MAX_HELD_GIB = 4.0
RATE_HZ = {"aba": 1_000.0, "pneu": 10.0}
SEED = 7
START_NS = 1_767_600_000 * 10**9
GROUP_ROWS = 1 << 20


def run(*, hours: float = 24.0) -> Result:
    """Align on one core, and let the peer do its part, each in a process that holds nothing else."""
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        num_rows = _write_all(Path(folder), hours)
        ours, peer = (on_one_core(__name__, variables={}, name=name, folder=folder, hours=hours) for name in _WORK)
    return judge(
        {**ours, "rows": num_rows, **_rates(ours, num_rows)},
        {"held_gib": peer["held_gib"], **_rates(peer, num_rows)},
        ratio=round(peer["cpu_s"] / ours["cpu_s"], 2),
        at_most={"held_gib": MAX_HELD_GIB},
    )


def measure(*, name: str, folder: str, hours: float) -> dict[str, Any]:
    """Do the work of one side over the files in `folder`: what it took and what it held at most."""
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as little:  # what is compiled or started only once
        _write_all(Path(little), 0.01)
        _WORK[name](Path(little), 0.01)
    costs: list[Cost] = []
    held_bytes = peak_bytes(lambda: costs.append(timed(_WORK[name], Path(folder), hours)[1]))
    return {"held_gib": round(held_bytes / 2**30, 3), **costs[0]._asdict()}


def _rates(one: dict[str, Any], num_rows: int) -> dict[str, Any]:
    return Cost(one["cpu_s"], one["wall_s"]).rates(num_rows)


def _write_all(folder: Path, hours: float) -> int:
    """Write the rows of all sensors; return how many there are."""
    num_rows = {sensor: round(hours * 3600.0 * rate_hz) for sensor, rate_hz in RATE_HZ.items()}
    for sensor, count in num_rows.items():
        _write(folder, sensor, count)
    return sum(num_rows.values())


def _write(folder: Path, sensor: str, num_rows: int) -> None:
    """Write rows in groups, as a recorder that cannot hold a day either."""
    random = np.random.default_rng(SEED)
    period_ns = round(1e9 / RATE_HZ[sensor])
    channels = [channel.name for channel in BUNDLE_SENSORS[sensor]]
    schema = pa.schema({"t_utc_ns": pa.int64()} | dict.fromkeys(channels, pa.float32()))
    encoding = {"t_utc_ns": "DELTA_BINARY_PACKED"}
    with pq.ParquetWriter(folder / f"{sensor}.parquet", schema, use_dictionary=False, column_encoding=encoding) as file:
        for first in range(0, num_rows, GROUP_ROWS):
            rows = np.arange(first, min(first + GROUP_ROWS, num_rows))
            t_ns = START_NS + rows * period_ns + random.integers(0, period_ns, size=len(rows))
            values = [random.standard_normal(len(rows), dtype=np.float32) for _ in channels]
            file.write_table(pa.table([t_ns, *values], schema=schema))


def _align(folder: Path, hours: float) -> None:
    grid = Grid(START_NS, 10**9, round(hours * 3600.0) + 1)
    parts = align_blocks({f"{sensor}_": _blocks(folder, sensor) for sensor in RATE_HZ}, grid)
    writer = None
    for part in parts:
        table = pa.table(part)
        writer = writer or pq.ParquetWriter(folder / "aligned.parquet", table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _blocks(folder: Path, sensor: str) -> Iterator[Track]:
    """The rows of a sensor, a row group at a time."""
    file = pq.ParquetFile(folder / f"{sensor}.parquet")
    for group in range(file.num_row_groups):
        columns = {
            name: column.to_numpy()
            for name, column in zip(file.schema_arrow.names, file.read_row_group(group), strict=True)
        }
        yield Track(
            sensor=sensor,
            t_ns_T=columns.pop("t_utc_ns"),
            values=columns,
            channels=BUNDLE_SENSORS[sensor],
            rate_hz=RATE_HZ[sensor],
        )


def _mean(folder: Path, hours: float) -> None:
    frames = [
        pl.scan_parquet(folder / f"{sensor}.parquet")
        .group_by((pl.col("t_utc_ns") // 10**9).alias("second"))
        .agg(pl.exclude("t_utc_ns").mean().name.prefix(f"{sensor}_"))
        .collect(engine="streaming")
        for sensor in RATE_HZ
    ]
    pl.concat(frames, how="align").sort("second").write_parquet(folder / "means.parquet")


_WORK = {"ours": _align, "peer": _mean}
