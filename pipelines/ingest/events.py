"""Known events of a source: what maintenance reports say was wrong with which vehicle, and when.

Recordings carry no labels. Reports land as `events.csv` (vehicle, kind, start_utc, end_utc; half-open, ISO 8601 with a
zone) beside the recordings, or are published with a data set. A simulated fleet has its truth there.
"""

import io
import logging
from pathlib import Path

import polars as pl

from pipelines import storage
from pipelines.errors import RecordingError
from pipelines.ingest import metropt3

SCHEMA = {"vehicle": pl.String, "kind": pl.String, "start_utc_ns": pl.Int64, "end_utc_ns": pl.Int64}

_FILES = ("events.csv", "truth/events.csv")
_COLUMNS = ("vehicle", "kind", "start_utc", "end_utc")
_ZONE = r"(Z|[+-]\d\d:?\d\d)$"

logger = logging.getLogger(__name__)


def land(folder: str, *, source: str) -> None:
    """Put the reports of `folder`, if it has any, beside those that landed before; the same report lands once."""
    file = next((Path(folder) / name for name in _FILES if (Path(folder) / name).is_file()), None)
    if file is None:
        return
    found = _parse(file.read_bytes(), where=str(file))
    known = load(source)
    merged = pl.concat([known, found]).unique(maintain_order=True)
    storage.write_parquet(_location(source), merged)
    logger.info("%d of %d reports in %s are new", len(merged) - len(known), len(found), file)


def load(source: str) -> pl.DataFrame:
    """All known events of a source: vehicle, kind, start_utc_ns, end_utc_ns."""
    published = metropt3.failure_events(metropt3.FAILURES_DETAILED).select(SCHEMA.keys())
    landed = _location(source)
    if storage.exists(landed):
        return storage.read_parquet(landed)
    return published if source == metropt3.SOURCE else pl.DataFrame(schema=SCHEMA)


def _location(source: str) -> str:
    return storage.lake("events", f"{source}.parquet")


def _parse(data: bytes, *, where: str) -> pl.DataFrame:
    """Read a report file; every line must name a vehicle, a kind and an interval that ends after it starts."""
    try:
        text = pl.read_csv(io.BytesIO(data), infer_schema=False)
    except pl.exceptions.PolarsError as err:
        raise RecordingError(f"{where}: no CSV table with {', '.join(_COLUMNS)}: {err}") from err
    if missing := [column for column in _COLUMNS if column not in text.columns]:
        raise RecordingError(f"{where}: column {missing[0]!r} is missing; expected {', '.join(_COLUMNS)}")
    stamp = [
        pl.col(name).str.to_datetime(time_unit="ns", time_zone="UTC", strict=False).cast(pl.Int64).alias(f"{name}_ns")
        for name in ("start_utc", "end_utc")
    ]
    events = text.with_columns(stamp)
    is_named = pl.all_horizontal(pl.col("vehicle", "kind").is_not_null())
    has_zones = pl.all_horizontal(pl.col("start_utc", "end_utc").str.contains(_ZONE))
    is_good = (is_named & has_zones & (pl.col("end_utc_ns") > pl.col("start_utc_ns"))).fill_null(value=False)
    bad = events.with_row_index("line", offset=2).filter(~is_good)
    if len(bad):
        first = bad.row(0, named=True)
        raise RecordingError(
            f"{where}: line {first['line']}: {', '.join(f'{name} {first[name]!r}' for name in _COLUMNS)}; a vehicle, a "
            "kind and two ISO 8601 stamps with a zone (for example 2026-01-06T05:26:22Z), the end after the start, "
            "would be right"
        )
    return events.select(SCHEMA.keys())
