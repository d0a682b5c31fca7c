"""A synchronised recording as files: what `trackside sync` leaves in a folder.

DIR/rows.parquet       instant, place and reason of every row of every sensor (see `rows`)
    aligned.parquet    all channels on one time base
    clock_maps.json    the map of every clock, by its name, to be used again (`ClockMap.from_json`)
    report.html        the numbers for a person, with charts (see `report`)
    report.json        the numbers: clocks, sensors, position, coverage, refusals; written last

All are written under other names first, so that a crash meanwhile leaves the old files; then they are put in place one
by one, report.json last.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Any

from pipelines import storage
from pipelines.errors import RecordingError
from pipelines.ingest import metropt3_windows, sources
from pipelines.ingest.reader import Recording
from pipelines.progress import OnProgress, unheard
from pipelines.sync.flow import SyncedRecording, synchronise
from pipelines.sync.report import page
from pipelines.sync.rows import write_rows

ROWS, ALIGNED, MAPS, PAGE, REPORT = "rows.parquet", "aligned.parquet", "clock_maps.json", "report.html", "report.json"


def sync(uri: str, out: str, on_progress: OnProgress = unheard) -> dict[str, Any]:
    """Synchronise the recordings at `uri` and write the files of each; return the report.

    Args:
        uri: A bundle's folder, or a file or folder of any known source.
        out: Folder for the files of one recording; of several, each gets a folder `<vehicle>/<day>/<recording>` in it.
        on_progress: Told what is being done.

    Returns:
        What `report.json` says; of several recordings `{"recordings": [...], "failed": [...]}`.

    Raises:
        RecordingError: Nothing of it has a place in time; the message says why.
    """
    on_progress("read", storage.name_of(uri))
    recordings = _recordings(uri)
    first, second = next(recordings, None), next(recordings, None)
    if first is None:
        raise RecordingError(f"{uri}: no row of it could be read")
    if second is None:
        return _write(first, out, on_progress)
    return _write_each(chain((first, second), recordings), out, on_progress)


def _write_each(recordings: Iterator[Recording], out: str, on_progress: OnProgress) -> dict[str, Any]:
    """Write every recording of which something can be used, one after the other, so that one of any number fits."""
    reports, failed = [], []
    for recording in recordings:
        folder = storage.join(out, recording.vehicle, recording.day, recording.recording_id)
        try:
            reports.append(_write(recording, folder, on_progress))
        except RecordingError as err:
            failed.append(str(err))
    if not reports:
        raise RecordingError("\n".join(failed[:10]))
    return {"recordings": reports, "failed": failed}


def _recordings(uri: str) -> Iterator[Recording]:
    source = sources.detect_source(uri)
    if source == metropt3_windows.SOURCE:
        raise RecordingError(f"{uri} is a table of {source}: its rows have an order, but no time to be synchronised")
    return sources.read(uri, source)


def _write(recording: Recording, out: str, on_progress: OnProgress) -> dict[str, Any]:
    synced = synchronise(recording, on_progress=on_progress)
    if not any(synced.rows_used.values()):
        raise RecordingError(f"{recording.recording_id}: no row has a place in time: {_why(synced)}")
    report = _report(synced)
    with ExitStack() as files:
        report_at, page_at, maps_at, aligned_at, rows_at = (
            files.enter_context(storage.replacement(storage.join(out, name)))
            for name in (REPORT, PAGE, MAPS, ALIGNED, ROWS)
        )
        write_rows(rows_at, synced, on_progress)
        synced.aligned.write_parquet(aligned_at, compression="zstd", compression_level=1)
        maps_at.write_text(_saved_maps(synced))
        on_progress("draw", PAGE)
        page_at.write_text(page(synced, beside={name: name for name in (ROWS, ALIGNED, MAPS, REPORT)}))
        report_at.write_text(json.dumps(report, indent=1, allow_nan=False))
    return report


def _saved_maps(synced: SyncedRecording) -> str:
    return json.dumps({clock_id: json.loads(clock.to_json()) for clock_id, clock in synced.calibration.maps.items()})


def _report(synced: SyncedRecording) -> dict[str, Any]:
    """The passport of a recording, with what is known of each sensor in one place."""
    passport = synced.report()
    by_sensor = {key: passport.pop(key) for key in ("rows_in", "rows_used", "rejected", "screened", "out_of_order")}
    passport["simulated"] = bool(synced.recording.meta.get("simulated", False))
    passport["sensors"] = {
        name: {
            "clock_id": sensor.clock_id,
            "rows": by_sensor["rows_in"][name],
            "used": by_sensor["rows_used"][name],
            "rejected": by_sensor["rejected"][name],
            "screened": by_sensor["screened"].get(name, {}),
            "out_of_order": by_sensor["out_of_order"][name],
            **synced.sensors[name],
        }
        for name, sensor in synced.recording.sensors.items()
    }
    return passport


def _why(synced: SyncedRecording) -> str:
    """What was rejected and refused, in words."""
    rejected = [
        f"{sensor}: {count} rows {reason}"
        for sensor, counts in synced.rejected.items()
        for reason, count in counts.items()
    ]
    return "; ".join([*rejected, *(refusal.message for refusal in synced.refusals)][:10]) or "it has no sensor"
