"""Which source a recording comes from, told by its content, and the reader for it."""

from collections.abc import Callable, Iterator

from pipelines import storage
from pipelines.channels import LTE_CHANNELS, METROPT3_CHANNELS
from pipelines.errors import ObjectNotFoundError, RecordingError
from pipelines.ingest import barcelona, bundle, metropt3, metropt3_windows, modena
from pipelines.ingest.manifest import MANIFEST
from pipelines.ingest.reader import Recording
from pipelines.ingest.tables import csv_header, parquet_columns

READERS: dict[str, Callable[[str], Iterator[Recording]]] = {
    bundle.SOURCE: bundle.read,
    metropt3.SOURCE: metropt3.read,
    modena.SOURCE: modena.read,
    barcelona.SOURCE: barcelona.read,
}
"""Readers of recordings; the labelled table `metropt3_windows` is none, see `metropt3_windows.read_windows`."""

_COLUMNS = {
    metropt3.SOURCE: {channel.name for channel in METROPT3_CHANNELS},
    metropt3_windows.SOURCE: set(metropt3_windows.FEATURES),
    barcelona.SOURCE: {channel.name for channel in LTE_CHANNELS},
}


def detect_source(location: str) -> str:
    """Return the source of a file, or of the files in a folder.

    Raises:
        RecordingError: It is none that is known, or a folder has files of several.
    """
    if storage.exists(location):
        return _source_of_file(location)
    if any(storage.name_of(path) == MANIFEST for path in storage.list_objects(location)):
        return bundle.SOURCE
    found = _sources_below(location)
    if len(found) != 1:
        raise RecordingError(
            f"{location}: files of one source are expected, found {', '.join(sorted(found)) or 'none'}"
        )
    return next(iter(found))


def read(location: str, source: str) -> Iterator[Recording]:
    """Yield the recordings of `source` at or below `location`."""
    if source not in READERS:
        raise RecordingError(f"no recordings are read from source {source!r}; expected one of {', '.join(READERS)}")
    for place in [location] if source == bundle.SOURCE else files_of(location, source):
        yield from READERS[source](place)


def files_of(location: str, source: str) -> list[str]:
    """Files of `source` at or below `location`; other files may lie beside them."""
    return [location] if storage.exists(location) else _sources_below(location).get(source, [])


def _sources_below(folder: str) -> dict[str, list[str]]:
    """Files of known sources below a folder; others, such as a description, may lie beside them."""
    found: dict[str, list[str]] = {}
    objects = storage.list_objects(folder)
    if not objects:
        raise ObjectNotFoundError(f"{folder}: neither a file nor a folder with files")
    for location in objects:
        try:
            found.setdefault(_source_of_file(location), []).append(location)
        except RecordingError:
            continue
    return found


def _source_of_file(location: str) -> str:
    """A file belongs to the source of which it has most columns: what is missing, the reader will say."""
    with storage.local_copy(location) as path:
        with path.open("rb") as file:
            if modena.LINE.match(file.readline(200).decode("utf-8", errors="replace")):
                return modena.SOURCE
        names = parquet_columns(path) if path.suffix == ".parquet" else csv_header(path).names
    for source, columns in _COLUMNS.items():
        if 2 * len(columns.intersection(names)) > len(columns):
            return source
    raise RecordingError(
        f"{location} is of no known source: its first line names {', '.join(names[:10])}; known are "
        f"{', '.join(_COLUMNS)}, {modena.SOURCE} logs, and folders with a {MANIFEST}"
    )
