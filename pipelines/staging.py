"""Between the landing area and the table: recordings of one vehicle and day, brought onto UTC and awaiting a verdict.

staging/<source>/<vehicle>/<day>/<batch>/        a batch is named after the content of its recordings
    <vehicle>_<day>_<recording>.parquet    aligned rows of one recording and service day (a labelled table is one part)
    report.json                evidence for each part (clocks, position, rejected rows), written last
    verdict.json               which parts may be published, what was wrong with the others, and the numbers of the
                               suites: `suites` of all parts, `passport` of those that may be published (`judgement`)
    publishing.json            there from before the commit until all outcomes are written (see `publishing`)
docs/<source>/<vehicle>/<day>/<batch>/
    sync.html, sync/<part>.html    time and place of all recordings, and of each (the Data Docs come later)
"""

import logging
from typing import Any
from urllib.parse import quote

import polars as pl

from pipelines import storage
from pipelines.errors import IncompleteRecordingError, RecordingError
from pipelines.ingest import landing, metropt3_windows, sources
from pipelines.ingest.reader import Recording, SensorRows
from pipelines.screen import Reason
from pipelines.suites import columns_of
from pipelines.sync import SyncedRecording, synchronise
from pipelines.sync.report import overview, page

SHARE_FROM_ROWS = 100
"""A share of fewer rows is chance: a trip has a dozen door events, and one collector that stores two of them twice."""

REPORT = "report.json"
VERDICT = "verdict.json"
OVERVIEW = "sync.html"
"""Page beside the Data Docs that leads to the report of every part."""

logger = logging.getLogger(__name__)


def stage(locations: list[str]) -> str:
    """Read and synchronise landed recordings of one vehicle and day; return the location of the result.

    A recording that cannot be read is put into quarantine, one that is still landing waits for the next time; the
    others go on.

    Raises:
        IncompleteRecordingError: All that could be read is still landing; a retry may succeed.
        RecordingError: None can be read; the originals are in quarantine with this message.
    """
    digests = {location: storage.digest_of(location) for location in sorted(locations)}
    source, vehicle, day, _ = landing.key_of(min(locations))
    staged = storage.lake("staging", source, vehicle, day, storage.digest(digests)[:12])
    recordings: list[dict[str, Any]] = []
    refused: dict[str, list[str]] = {}
    landing_still: list[IncompleteRecordingError] = []
    for location, digest in digests.items():
        try:
            parts = _staged_parts(location, source=source, vehicle=vehicle, staged=staged)
        except IncompleteRecordingError as err:
            logger.warning("%s: waits for the next time: %s", location, err)
            landing_still.append(err)
        except RecordingError as err:
            refused[location] = [str(err)]
            landing.refuse(location, digest=digest, reasons=refused[location])
        else:
            if refusals := refusals_of(parts):
                landing.quarantine(location, digest=digest, reasons=refusals)  # the other sensors go on
            recordings.append({"landed": location, "digest": digest, "parts": parts})
    if landing_still and not recordings:
        raise landing_still[0]
    if not recordings:
        raise RecordingError("\n".join(reason for reasons in refused.values() for reason in reasons))
    _write_overview(staged, [part for recording in recordings for part in recording["parts"]])
    storage.write_json(
        storage.join(staged, REPORT), {"source": source, "recordings": recordings, "quarantined": refused}
    )
    return staged


def docs_of(staged: str) -> str:
    """Folder of the Data Docs of a staged recording."""
    return storage.lake("docs", *staged.rstrip("/").split("/")[-4:])


def _staged_parts(location: str, *, source: str, vehicle: str, staged: str) -> list[dict[str, Any]]:
    """Write the parts of a landed recording one by one, so that any size fits into memory; return their evidence."""
    content = landing.content_of(location)
    if source == metropt3_windows.SOURCE:
        recording_id = landing.key_of(location)[3]
        return [_stage_table(content, vehicle=vehicle, recording_id=recording_id, staged=staged)]
    parts = []
    for recording in sources.read(content, source):
        synced = synchronise(recording)
        if synced.aligned.is_empty():
            logger.warning(
                "%s %s: no row has a place in time: %s", recording.recording_id, recording.day, synced.rejected
            )
            continue
        name = f"{recording.vehicle}_{recording.day}_{recording.recording_id}"
        storage.write_parquet(storage.join(staged, f"{name}.parquet"), _complete(synced.aligned, source))
        parts.append(_evidence(name, recording, synced) | {"page": _write_page(name, synced, staged)})
    if not parts:
        raise RecordingError(f"{location}: no row of it could be read: it has neither a usable sensor nor a table row")
    return parts


def _write_page(name: str, synced: SyncedRecording, staged: str) -> str:
    """Write the report of one part beside the Data Docs; return its address there."""
    address = f"sync/{name}.html"
    storage.write_bytes(storage.join(docs_of(staged), address), page(synced).encode())
    return address


def _write_overview(staged: str, parts: list[dict[str, Any]]) -> None:
    """Write the page that leads to the reports of all parts; rows of a labelled table have no time to report on."""
    title = " ".join(staged.split("/")[-4:-1])
    pages = {quote(part["page"]): part for part in parts if "page" in part}
    storage.write_bytes(storage.join(docs_of(staged), OVERVIEW), overview(title, pages).encode())


def _complete(frame: pl.DataFrame, source: str) -> pl.DataFrame:
    """Add the columns of sensors that the vehicle lacks, empty: one source has one schema, which its suite knows."""
    absent = [column for column in columns_of(source) if column not in frame.columns]
    return frame.with_columns(pl.lit(None, dtype=pl.Float64).alias(column) for column in absent)


def _stage_table(content: str, *, vehicle: str, recording_id: str, staged: str) -> dict[str, Any]:
    """A labelled table is one part; its rows have an order but no time."""
    table = metropt3_windows.read_windows(content)
    name = f"{vehicle}_all_{recording_id}"
    identity = {"vehicle": vehicle, "day": "all", "recording_id": recording_id}
    frame = table.rows.select([pl.lit(text).alias(column) for column, text in identity.items()] + [pl.all()])
    storage.write_parquet(storage.join(staged, f"{name}.parquet"), frame)
    rejected = dict(table.quarantined.unique("row")["reason"].value_counts().iter_rows())
    return {
        "name": name,
        **identity,
        "rows": len(frame),
        "rows_used": {"table": len(frame)},
        "num_rows_in": len(frame) + sum(rejected.values()),
        "rejected_by_reason": rejected,
        "num_duplicates": table.num_duplicates,
        "simulated": False,
        "sensors": [],
    }


def _evidence(name: str, recording: Recording, synced: SyncedRecording) -> dict[str, Any]:
    """The report of one part, with the numbers that its suites look at."""
    return {
        **synced.report(),
        "name": name,
        "num_rows_in": sum(synced.rows_in.values()),
        "rejected_by_reason": total(list(synced.rejected.values())),
        "simulated": bool(recording.meta.get("simulated", False)),
        "sensors": [_sensor_evidence(sensor, synced) for sensor in recording.sensors.values()],
    }


def _sensor_evidence(sensor: SensorRows, synced: SyncedRecording) -> dict[str, Any]:
    """One row of the table that `<source>_sensors` looks at."""
    facts, rejected = synced.sensors[sensor.sensor], synced.rejected[sensor.sensor]
    rows_in, rate_hz = synced.rows_in[sensor.sensor], facts["measured_rate_hz"]
    return {
        "sensor": sensor.sensor,
        "rows_in": rows_in,
        "rejected_share": _share(sum(rejected.values()), rows_in),
        "duplicate_share": _share(rejected.get("duplicate", 0), rows_in),
        "distrusted_share": _distrusted_share(synced, sensor.sensor),
        "out_of_order_share": _share(synced.out_of_order[sensor.sensor], rows_in),
        "rate_ratio": round(rate_hz / facts["nominal_rate_hz"], 6) if rate_hz else None,
        "clock_residual_p99_ms": synced.clocks.get(sensor.clock_id, {}).get("residual_p99_ms"),
        **facts,
    }


def _distrusted_share(synced: SyncedRecording, sensor: str) -> float | None:
    """Share of the readings that are not believed, of the channel with the largest; a missing one is only missing."""
    distrusted = [
        sum(count for reason, count in counts.items() if reason != Reason.MISSING)
        for counts in synced.screened.get(sensor, {}).values()
    ]
    return _share(max(distrusted, default=0), synced.rows_used[sensor])


def _share(count: int, num_rows: int) -> float | None:
    return round(count / num_rows, 6) if num_rows >= SHARE_FROM_ROWS else None


def load_part(staged: str, part: dict[str, Any]) -> pl.DataFrame:
    """Aligned rows of one part of a staged recording."""
    return storage.read_parquet(storage.join(staged, f"{part['name']}.parquet"))


def total(counts: list[dict[str, int]]) -> dict[str, int]:
    """Sum of counts by reason."""
    reasons = sorted({reason for count in counts for reason in count})
    return {reason: sum(count.get(reason, 0) for count in counts) for reason in reasons}


def refusals_of(parts: list[dict[str, Any]]) -> list[str]:
    """What of a recording was not read while the rest of it was, in words."""
    return [
        refusal["message"]
        for part in parts
        for refusal in part.get("refusals", [])
        if refusal["reason"] != "extra_column"  # nothing was lost: the sensor's own columns were read
    ]
