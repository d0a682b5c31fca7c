"""Between the landing area and the table: one landed recording, brought onto UTC and waiting for its verdict.

staging/<source>/<vehicle>/<day>/<recording>/
    <vehicle>_<day>.parquet    aligned rows of one service day (a labelled table is one part)
    report.json                evidence for each part (clocks, position, rejected rows), written last
    verdict.json               which parts may be published, and what was wrong with the others (see `judgement`)
"""

import logging
from collections.abc import Iterator
from typing import Any

import polars as pl

from pipelines import storage
from pipelines.errors import IncompleteRecordingError, RecordingError
from pipelines.ingest import landing, metropt3_windows, sources
from pipelines.ingest.reader import Recording
from pipelines.suites import columns_of
from pipelines.sync import SyncedRecording, synchronise

SHARE_FROM_ROWS = 100
"""A share of fewer rows is chance: a trip has a dozen door events, and one collector that stores two of them twice."""

REPORT = "report.json"
VERDICT = "verdict.json"

logger = logging.getLogger(__name__)


def stage(location: str) -> str:
    """Read and synchronise a landed recording; return the location of the result.

    Raises:
        IncompleteRecordingError: It is still landing; a retry may succeed.
        RecordingError: It cannot be read; the original is in quarantine with this message.
    """
    source, vehicle, day, recording = landing.key_of(location)
    staged = storage.lake("staging", source, vehicle, day, recording)
    digest = storage.digest_of(location)
    try:
        parts = list(_stage_parts(landing.content_of(location), source=source, vehicle=vehicle, staged=staged))
        if not parts:
            raise RecordingError(
                f"{location}: no row of it could be read: it has neither a usable sensor nor a table row"
            )
    except IncompleteRecordingError:
        raise
    except RecordingError as err:
        set_aside(location, digest=digest, reasons=[str(err)])
        raise
    report = {"source": source, "landed": location, "digest": digest, "parts": parts}
    refusals = _refusals(parts)
    if refusals:
        landing.quarantine(location, digest=digest, reasons=refusals)  # the other sensors go on
    storage.write_json(storage.join(staged, REPORT), report)
    return staged


def publish(staged: str) -> dict[str, Any]:
    """Replace the recording in its source's table with the parts that passed; return what was published."""
    report = storage.read_json(storage.join(staged, REPORT))
    verdict = storage.read_json(storage.join(staged, VERDICT))
    parts = [part for part in report["parts"] if part["name"] in verdict["passed"]]
    frame = pl.concat([load_part(staged, part) for part in parts], how="diagonal_relaxed")
    table = storage.lake("tables", report["source"])
    version = storage.write_recordings(table, frame)
    published = {
        "outcome": "published",
        "table": table,
        "version": version,
        "rows_in": sum(part["num_rows_in"] for part in parts),
        "rows_out": len(frame),
        "rejected": _total([part["rejected_by_reason"] for part in report["parts"]]),
        "failed": verdict["failed"],
        "refused": _refusals(report["parts"]),
    }
    evidence = {"digest": report["digest"], "parts": report["parts"], "docs": docs_of(staged)}
    landing.record_outcome(report["landed"], published | evidence)
    logger.info("published %d rows of %s as version %d of %s", len(frame), report["landed"], version, table)
    return published


def docs_of(staged: str) -> str:
    """Folder of the Data Docs of a staged recording."""
    return storage.lake("docs", *staged.rstrip("/").split("/")[-4:])


def _stage_parts(content: str, *, source: str, vehicle: str, staged: str) -> Iterator[dict[str, Any]]:
    """Write the parts of a recording one by one, so that one of any size fits into memory; yield their evidence."""
    if source == metropt3_windows.SOURCE:
        yield _stage_table(content, vehicle=vehicle, staged=staged)
        return
    for recording in sources.read(content, source):
        synced = synchronise(recording)
        if synced.aligned.is_empty():
            logger.warning(
                "%s %s: no row has a place in time: %s", recording.recording_id, recording.day, synced.rejected
            )
            continue
        name = f"{recording.vehicle}_{recording.day}"
        storage.write_parquet(storage.join(staged, f"{name}.parquet"), _complete(synced.aligned, source))
        yield _evidence(name, recording, synced)


def _complete(frame: pl.DataFrame, source: str) -> pl.DataFrame:
    """Add the columns of sensors that the vehicle lacks, empty: one source has one schema, which its suite knows."""
    absent = [column for column in columns_of(source) if column not in frame.columns]
    return frame.with_columns(pl.lit(None, dtype=pl.Float64).alias(column) for column in absent)


def _stage_table(content: str, *, vehicle: str, staged: str) -> dict[str, Any]:
    """A labelled table is one part; its rows have an order but no time."""
    table = metropt3_windows.read_windows(content)
    name = f"{vehicle}_all"
    identity = {"vehicle": vehicle, "day": "all", "recording_id": storage.name_of(staged)}
    frame = table.rows.select([pl.lit(text).alias(column) for column, text in identity.items()] + [pl.all()])
    storage.write_parquet(storage.join(staged, f"{name}.parquet"), frame)
    rejected = dict(table.quarantined.unique("row")["reason"].value_counts().iter_rows())
    return {
        "name": name,
        "rows": len(frame),
        "num_rows_in": len(frame) + sum(rejected.values()),
        "rejected_by_reason": rejected,
        "num_duplicates": table.num_duplicates,
        "simulated": False,
        "sensors": [],
    }


def _evidence(name: str, recording: Recording, synced: SyncedRecording) -> dict[str, Any]:
    """The report of one part, with the numbers that its suites look at."""
    rejected = _total(list(synced.rejected.values()))
    sensors = [
        {
            "sensor": sensor,
            "rows_in": rows_in,
            "rejected_share": sum(synced.rejected[sensor].values()) / rows_in if rows_in >= SHARE_FROM_ROWS else None,
            "clock_residual_p99_ms": synced.clocks.get(recording.sensors[sensor].clock_id, {}).get("residual_p99_ms"),
        }
        for sensor, rows_in in synced.rows_in.items()
    ]
    return {
        "name": name,
        "num_rows_in": sum(synced.rows_in.values()),
        "rejected_by_reason": rejected,
        "simulated": bool(recording.meta.get("simulated", False)),
        "sensors": sensors,
        **synced.report(),
    }


def load_part(staged: str, part: dict[str, Any]) -> pl.DataFrame:
    """Aligned rows of one part of a staged recording."""
    return storage.read_parquet(storage.join(staged, f"{part['name']}.parquet"))


def set_aside(location: str, *, digest: str, reasons: list[str]) -> None:
    """Set a whole recording aside; it is pending again only when its content changes."""
    landing.quarantine(location, digest=digest, reasons=reasons)
    landing.record_outcome(location, {"outcome": "quarantined", "digest": digest, "reasons": reasons})


def _total(counts: list[dict[str, int]]) -> dict[str, int]:
    """Sum of counts by reason."""
    reasons = sorted({reason for count in counts for reason in count})
    return {reason: sum(count.get(reason, 0) for count in counts) for reason in reasons}


def _refusals(parts: list[dict[str, Any]]) -> list[str]:
    """What of a recording was not read while the rest of it was, in words."""
    return [
        refusal["message"]
        for part in parts
        for refusal in part.get("refusals", [])
        if refusal["reason"] != "extra_column"  # nothing was lost: the sensor's own columns were read
    ]
