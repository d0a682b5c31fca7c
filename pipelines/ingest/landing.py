"""The landing area: what arrived, what of it is complete, and what became of it.

A landed recording is a folder `landing/<source>/<vehicle>/<day>/<recording>/` whose manifest was written last: the trip
bundle's own `meta.json`, or for a plain file a `landed.json` of ours. What became of each of its deliveries is a small
object `outcomes/<source>/<vehicle>/<day>/<recording>/<number>-<digest>.json`; the highest number counts, and the digest
is that of the content it is about. Thus a repeated delivery changes nothing, a late or repaired one is pending again,
and originals are never moved or deleted; what was refused is copied to `quarantine/` with its report.

An outcome has `digest`, `outcome` (`published` or `quarantined`), `reasons`, and, if rows of the recording are in the
table, `published`: their evidence. A refused redelivery leaves what was published before it in the table, and in the
outcome.
"""

import logging
from itertools import groupby
from pathlib import Path
from typing import Any

from pipelines import storage
from pipelines.errors import RecordingError
from pipelines.ingest import bundle, metropt3, metropt3_windows, sources
from pipelines.ingest.manifest import MANIFEST

FILE_MANIFEST = "landed.json"
EVENTS_FILE = "events.csv"
REPORT = "report.json"

Key = tuple[str, str, str, str]
"""Source, vehicle, day and recording: the folders that a landed recording lies in."""

logger = logging.getLogger(__name__)


VEHICLE_OF_SOURCE = {metropt3.SOURCE: metropt3.VEHICLE, metropt3_windows.SOURCE: metropt3.VEHICLE}
"""Vehicle of the sources whose files do not name one; elsewhere the file's name does."""


def land(uri: str, *, source: str) -> list[str]:
    """Copy the recordings of a file or folder into the landing area; return where they landed."""
    if source == bundle.SOURCE:
        return land_bundles(uri)
    return [
        land_file(file, source=source, vehicle=VEHICLE_OF_SOURCE.get(source, Path(file).stem))
        for file in sources.files_of(uri, source)
    ]


def land_bundles(folder: str) -> list[str]:
    """Copy every trip bundle below a local folder into the landing area, manifest last; return where they landed.

    A folder with files but without a manifest is landed too: it is not complete, and waits for its manifest.
    """
    files = [Path(file) for file in storage.list_objects(folder)]
    bundles = sorted({file.parent for file in files if _is_sensor_file(file.relative_to(folder))})
    if not bundles:
        raise RecordingError(
            f"{folder}: no trip bundle found; a bundle is a folder with sensor files and, last, {MANIFEST}"
        )
    landed = []
    for found in bundles:
        target = storage.lake("landing", bundle.SOURCE, *_bundle_key(found))
        storage.delete_object(storage.join(target, MANIFEST))  # until the last file is there, it is not complete
        storage.copy_tree(str(found), target, last=MANIFEST)
        landed.append(target)
    logger.info("landed %d bundles from %s", len(landed), folder)
    return landed


def land_file(file: str, *, source: str, vehicle: str) -> str:
    """Copy a recording that is one file into the landing area, its manifest last; return where it landed."""
    target = storage.lake("landing", source, vehicle, "all", Path(file).stem)
    storage.delete_object(storage.join(target, FILE_MANIFEST))  # until the file is there, it is not complete
    storage.copy_tree(file, target)
    storage.write_json(storage.join(target, FILE_MANIFEST), {"source": source, "file": storage.name_of(file)})
    return target


def content_of(location: str) -> str:
    """What a reader opens: the folder of a bundle, the file of a one-file recording."""
    manifest = storage.join(location, FILE_MANIFEST)
    if not storage.exists(manifest):
        return location
    return storage.join(location, storage.read_json(manifest)["file"])


def key_of(location: str) -> Key:
    """`(source, vehicle, day, recording)` of a landed recording."""
    parts = location.rstrip("/").split("/")[-4:]
    if len(parts) < 4 or "/landing/" not in location:
        raise RecordingError(
            f"{location}: not in the landing area; landing/<source>/<vehicle>/<day>/<recording> would be right"
        )
    source, vehicle, day, recording = parts
    return source, vehicle, day, recording


def pending(prefix: str, *, again: bool = False) -> list[str]:
    """Complete recordings below `landing/<prefix>` whose present content has no outcome yet, sorted.

    It takes two listings, however many recordings there are; where the lake is a local folder, whose listing has no
    prints, each call reads every landed file.

    Args:
        prefix: `<source>[/<vehicle>[/<day>]]`; empty means all.
        again: Return all complete recordings, also those that have an outcome.
    """
    judged = {} if again else {key: name.rpartition("-")[2] for key, name in _newest_outcomes().items()}
    due = []
    for key, prints in _landed(prefix).items():
        location = storage.lake("landing", *key)
        if not prints.keys() & {MANIFEST, FILE_MANIFEST}:
            logger.warning("%s: waits for its manifest", location)
        elif judged.get(key) != _short(storage.digest(prints)):
            due.append(location)
    return sorted(due)


def vehicle_days(locations: list[str]) -> list[list[str]]:
    """Group landed recordings by source, vehicle and service day; sorted."""
    ordered = sorted(locations, key=key_of)
    return [list(group) for _, group in groupby(ordered, key=lambda location: key_of(location)[:3])]


def outcome_of(location: str) -> dict[str, Any]:
    """What became of the last delivery of a landed recording that was processed; empty if none was."""
    name = newest_outcome(location)
    return dict(storage.read_json(_outcome_at(key_of(location), name))) if name else {}


def newest_outcome(location: str) -> str:
    """Name of the newest outcome of a landed recording; empty if it has none. It changes with every delivery."""
    key = key_of(location)
    return _newest_outcomes(*key).get(key, "")


def outcomes(source: str) -> list[dict[str, Any]]:
    """What became of the last delivery of all recordings of a source."""
    return [storage.read_json(_outcome_at(key, name)) for key, name in sorted(_newest_outcomes(source).items())]


def published(source: str) -> list[dict[str, Any]]:
    """Evidence for all that is in the table of a source: one entry a recording."""
    return [outcome["published"] for outcome in outcomes(source) if "published" in outcome]


def record_published(location: str, evidence: dict[str, Any]) -> None:
    """Write down that the content with digest `evidence["digest"]` of a landed recording is in the table."""
    _record(location, {"digest": evidence["digest"], "outcome": "published", "reasons": [], "published": evidence})


def refuse(location: str, *, digest: str, reasons: list[str]) -> None:
    """Set a landed recording aside; it is pending again only when its content changes.

    What was published of an earlier delivery stays published.
    """
    quarantine(location, digest=digest, reasons=reasons)
    before = outcome_of(location)
    kept = {"published": before["published"]} if "published" in before else {}
    _record(location, {"digest": digest, "outcome": "quarantined", "reasons": reasons, **kept})


def rejected(published: list[dict[str, Any]]) -> dict[str, int]:
    """Rejected rows of published recordings, by reason."""
    reasons = sorted({reason for evidence in published for reason in evidence["rejected"]})
    return {reason: sum(evidence["rejected"].get(reason, 0) for evidence in published) for reason in reasons}


def quarantine(location: str, *, digest: str, reasons: list[str]) -> str:
    """Copy a landed recording to quarantine, its report last; return where it is. The original stays.

    Each content has a folder of its own, so that a second bad delivery does not replace the first; reasons that come
    later are added.
    """
    target = quarantine_of(location, digest)
    report = storage.join(target, REPORT)
    known = storage.read_json(report)["reasons"] if storage.exists(report) else []
    storage.copy_tree(location, storage.join(target, "original"))
    added = [reason for reason in reasons if reason not in known]
    storage.write_json(report, {"landed": location, "digest": digest, "reasons": known + added})
    logger.warning("%s: quarantined at %s", location, target)
    return target


def quarantine_of(location: str, digest: str) -> str:
    """Folder of a refused content of a landed recording."""
    return storage.lake("quarantine", *key_of(location), digest[:12])


def _landed(prefix: str) -> dict[Key, dict[str, str]]:
    """Objects of all landed recordings below `landing/<prefix>`, each with its print."""
    above = prefix.split("/") if prefix else []
    recordings: dict[Key, dict[str, str]] = {}
    for path, print_ in storage.fingerprints(storage.lake("landing", *above)).items():
        parts = [*above, *path.split("/")]
        if len(parts) <= 4:
            logger.warning("landing/%s: not in a folder <source>/<vehicle>/<day>/<recording>", "/".join(parts))
            continue
        source, vehicle, day, recording, *name = parts
        recordings.setdefault((source, vehicle, day, recording), {})["/".join(name)] = print_
    return recordings


def _newest_outcomes(*above: str) -> dict[Key, str]:
    """Name of the newest outcome, `<number>-<digest>`, of all recordings below `outcomes/<above>`."""
    newest: dict[Key, str] = {}
    for location in storage.list_objects(storage.lake("outcomes", *above)):  # sorted, so the newest comes last
        source, vehicle, day, recording, name = location.split("/")[-5:]
        newest[source, vehicle, day, recording] = name.removesuffix(".json")
    return newest


def _record(location: str, outcome: dict[str, Any]) -> None:
    """Add an outcome to those of a recording; the newest one again changes nothing.

    Should two processes add one at the same time, the recording is pending again if the wrong one of them counts.
    """
    if outcome_of(location) == outcome:
        return
    number = int(newest_outcome(location).partition("-")[0] or 0) + 1
    name = f"{number:06d}-{_short(outcome['digest'])}"
    storage.write_json(_outcome_at(key_of(location), name), outcome, if_absent=True)


def _outcome_at(key: Key, name: str) -> str:
    return storage.lake("outcomes", *key, f"{name}.json")


def _short(digest: str) -> str:
    """As much of a digest as the name of an object has."""
    return digest[:16]


def _is_sensor_file(path: Path) -> bool:
    return path.suffix in {".csv", ".parquet"} and path.name != EVENTS_FILE and "truth" not in path.parts


def _bundle_key(folder: Path) -> tuple[str, str, str]:
    """`(vehicle, day, recording)` as the manifest says; while it is missing or torn, as the last three folders say."""
    try:
        described = bundle.identity(str(folder))
    except RecordingError:
        *_, vehicle, day, recording = ("unknown", "unknown", *folder.parts)
        return vehicle, day, recording
    return described.vehicle, described.day, described.recording_id
