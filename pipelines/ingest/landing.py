"""The landing area: what arrived, what of it is complete, and what became of it.

A landed recording is a folder `landing/<source>/<vehicle>/<day>/<recording>/` whose manifest was written last: the trip
bundle's own `meta.json`, or for a plain file a `landed.json` of ours. The outcome of its processing is one small object
under `outcomes/` with the digest of the content it is about. Thus a repeated delivery changes nothing, a late or
repaired one is pending again, and originals are never moved or deleted; what was refused is copied to `quarantine/`
with its report.
"""

import logging
from pathlib import Path
from typing import Any

from pipelines import storage
from pipelines.errors import RecordingError
from pipelines.ingest import bundle, metropt3, metropt3_windows, sources
from pipelines.ingest.manifest import MANIFEST

FILE_MANIFEST = "landed.json"
EVENTS_FILE = "events.csv"

logger = logging.getLogger(__name__)


VEHICLE_OF_SOURCE = {metropt3.SOURCE: metropt3.VEHICLE, metropt3_windows.SOURCE: metropt3.VEHICLE}
"""Vehicle of the sources whose files do not name one; elsewhere the file's name does."""


def land(uri: str, *, source: str) -> list[str]:
    """Copy the recordings of a file or folder into the landing area; return where they landed."""
    if source == "bundle":
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
        target = storage.lake("landing", "bundle", *_bundle_key(found))
        storage.delete_object(storage.join(target, MANIFEST))  # until the last file is there, it is not complete
        storage.copy_tree(str(found), target, last=MANIFEST)
        landed.append(target)
    logger.info("landed %d bundles from %s", len(landed), folder)
    return landed


def land_file(file: str, *, source: str, vehicle: str) -> str:
    """Copy a recording that is one file into the landing area, its manifest last; return where it landed."""
    target = storage.lake("landing", source, vehicle, "all", Path(file).stem)
    storage.copy_tree(file, target)
    storage.write_json(storage.join(target, FILE_MANIFEST), {"source": source, "file": storage.name_of(file)})
    return target


def content_of(location: str) -> str:
    """What a reader opens: the folder of a bundle, the file of a one-file recording."""
    manifest = storage.join(location, FILE_MANIFEST)
    if not storage.exists(manifest):
        return location
    return storage.join(location, storage.read_json(manifest)["file"])


def key_of(location: str) -> tuple[str, str, str, str]:
    """`(source, vehicle, day, recording)` of a landed recording."""
    parts = location.rstrip("/").split("/")[-4:]
    if len(parts) < 4 or "/landing/" not in location:
        raise RecordingError(
            f"{location}: not in the landing area; landing/<source>/<vehicle>/<day>/<recording> would be right"
        )
    source, vehicle, day, recording = parts
    return source, vehicle, day, recording


def pending(prefix: str) -> list[str]:
    """Complete recordings below `landing/<prefix>` whose present content has no outcome yet, sorted.

    One listing of the landing area and one of the outcomes; only recordings that have an outcome are looked at closely.
    """
    objects = storage.list_objects(storage.lake("landing", *filter(None, prefix.split("/"))))
    names_of: dict[str, set[str]] = {}
    for location in objects:
        folder, _, name = location.rpartition("/")
        names_of.setdefault(folder, set()).add(name)
    complete = [folder for folder, names in names_of.items() if names & {MANIFEST, FILE_MANIFEST}]
    for folder in sorted(names_of.keys() - complete):
        logger.warning("%s: waits for its manifest", folder)
    known = set(storage.list_objects(storage.lake("outcomes")))
    return sorted(folder for folder in complete if _outcome(folder) not in known or is_changed(folder))


def is_changed(location: str) -> bool:
    """Whether a landed recording differs from the content that its outcome is about."""
    return bool(storage.read_json(_outcome(location))["digest"] != storage.digest_of(location))


def record_outcome(location: str, outcome: dict[str, Any]) -> None:
    """Write down what became of the content with digest `outcome["digest"]` of a landed recording."""
    storage.write_json(_outcome(location), outcome)


def outcomes(source: str) -> list[dict[str, Any]]:
    """What became of all recordings of a source."""
    return [storage.read_json(location) for location in storage.list_objects(storage.lake("outcomes", source))]


def rejected(published: list[dict[str, Any]]) -> dict[str, int]:
    """Rejected rows of published recordings, by reason."""
    reasons = sorted({reason for outcome in published for reason in outcome["rejected"]})
    return {reason: sum(outcome["rejected"].get(reason, 0) for outcome in published) for reason in reasons}


def quarantine(location: str, *, digest: str, reasons: list[str]) -> str:
    """Copy a landed recording to quarantine, its report last; return where it is. The original stays.

    Each content has a folder of its own, so that a second bad delivery does not replace the first; reasons that come
    later are added.
    """
    target = quarantine_of(location, digest)
    report = storage.join(target, "report.json")
    known = storage.read_json(report)["reasons"] if storage.exists(report) else []
    storage.copy_tree(location, storage.join(target, "original"))
    added = [reason for reason in reasons if reason not in known]
    storage.write_json(report, {"landed": location, "digest": digest, "reasons": known + added})
    logger.warning("%s: quarantined at %s", location, target)
    return target


def quarantine_of(location: str, digest: str) -> str:
    """Folder of a refused content of a landed recording."""
    return storage.lake("quarantine", *key_of(location), digest[:12])


def _outcome(location: str) -> str:
    return storage.lake("outcomes", *key_of(location)) + ".json"


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
