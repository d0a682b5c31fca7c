"""Published data sets onto this machine: resumed after a break, and verified before they get their name."""

import hashlib
import http.client
import logging
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from pipelines.errors import ConfigError, FetchError

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
TIMEOUT_S = 60.0
_ZIP_MAGIC = b"PK\x03\x04"

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and, if known, the bytes that there will be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedDataset:
    """A file that somebody published, and how to know it again."""

    url: str
    """Where it is: the file itself, or a zip archive with it."""

    file_name: str
    size: int
    """Bytes of the file itself."""

    sha256: str
    licence: str
    citation: str


DATASETS = {
    "metropt3": PublishedDataset(
        url="https://archive.ics.uci.edu/static/public/791/metropt+3+dataset.zip",
        file_name="MetroPT3(AirCompressor).csv",
        size=218_300_507,
        sha256="db30ccb4ea402e3c8bf2c99db06e288d4f2a772f6928f9dbe26a920d69793e24",
        licence="CC BY 4.0",
        citation="Davari, Veloso, Ribeiro, Gama: MetroPT-3 Dataset, UCI data set 791, doi 10.24432/C5VW3R",
    ),
}


def fetch(name: str, target: Path, *, url: str | None = None, progress: Progress = lambda done, total: None) -> Path:
    """Download a published data set into the folder `target`; return the file.

    What is there already and is right is not downloaded again. A download that breaks off leaves a `.part` file, which
    the next call continues.

    Args:
        name: Key of `DATASETS`.
        target: Folder; it is made if needed.
        url: A mirror: the file itself, or a zip archive with it.
        progress: Told how far the download is.

    Raises:
        FetchError: The download broke off, or is not the published file.
    """
    if name not in DATASETS:
        raise ConfigError(f"no data set {name!r} is known; expected one of {', '.join(DATASETS)}")
    return fetch_dataset(DATASETS[name], target, url=url, progress=progress)


def fetch_dataset(
    dataset: PublishedDataset, target: Path, *, url: str | None = None, progress: Progress = lambda done, total: None
) -> Path:
    """Do what `fetch` says for any published file."""
    final = target / dataset.file_name
    if final.is_file() and not _difference(final, dataset):
        return final
    source = url or dataset.url
    if not source.startswith(("http://", "https://")):
        raise ConfigError(f"{source!r} is no address to download from; it must start with http:// or https://")
    target.mkdir(parents=True, exist_ok=True)
    # The name holds the source: a part of the archive must not be continued with a part of the plain file.
    part = target / f"{dataset.file_name}.{hashlib.sha256(source.encode()).hexdigest()[:8]}.part"
    _download(source, part, progress)
    try:
        candidate = _unpacked(part, dataset)
        if difference := _difference(candidate, dataset):
            raise FetchError(f"{source} is not the published {dataset.file_name}: {difference}; it was not kept")
        candidate.replace(final)
    finally:
        part.unlink(missing_ok=True)
        _unpacked_path(part).unlink(missing_ok=True)
    logger.info("%s: %d bytes, SHA-256 as published", final, dataset.size)
    return final


def _download(url: str, part: Path, progress: Progress) -> None:
    """Complete `part`: from where it ends if the server can do so, else from the beginning."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as err:
        if err.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            _settle_unsatisfiable(err, url, part, progress)
            return
        raise FetchError(f"{url}: the server answered {err.code} {err.reason}") from err
    except (OSError, http.client.HTTPException) as err:
        raise FetchError(f"{url}: no answer: {err}") from err
    with response:
        if not _continues_at(response, have):
            have = 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        with part.open("ab" if have else "wb") as file:
            progress(have, total)
            for chunk in _chunks(response, url):
                file.write(chunk)
                have += len(chunk)
                progress(have, total)
    if total is not None and have < total:
        raise FetchError(f"{url}: broke off after {have} of {total} bytes; the next try goes on from there")


def _continues_at(response: http.client.HTTPResponse, have: int) -> bool:
    """Whether the server sends what follows the first `have` bytes, rather than everything."""
    is_part = response.status == HTTPStatus.PARTIAL_CONTENT
    return is_part and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _settle_unsatisfiable(err: urllib.error.HTTPError, url: str, part: Path, progress: Progress) -> None:
    """Nothing follows what is here: either it is complete, or it is longer than the file and of no use."""
    total = err.headers.get("Content-Range", "").rpartition("/")[2]
    if total.isdigit() and int(total) != part.stat().st_size:
        part.unlink()
        _download(url, part, progress)


def _chunks(response: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    try:
        while chunk := response.read(CHUNK_BYTES):
            yield chunk
    except (OSError, http.client.HTTPException) as err:
        raise FetchError(f"{url}: broke off: {err}; the next try goes on from there") from err


def _unpacked(part: Path, dataset: PublishedDataset) -> Path:
    """Return the file itself: what was downloaded, or what a zip archive has under the file's name."""
    with part.open("rb") as file:
        if file.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:
            return part
    try:
        with zipfile.ZipFile(part) as archive:
            members = [each for each in archive.infolist() if PurePosixPath(each.filename).name == dataset.file_name]
            if not members or members[0].file_size != dataset.size:
                found = ", ".join(f"{each.filename} ({each.file_size} bytes)" for each in archive.infolist()[:10])
                raise FetchError(f"the archive has no {dataset.file_name} of {dataset.size} bytes; it has {found}")
            with archive.open(members[0]) as packed, _unpacked_path(part).open("wb") as file:
                shutil.copyfileobj(packed, file, CHUNK_BYTES)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as err:
        raise FetchError(f"the archive cannot be unpacked: {err}") from err
    return _unpacked_path(part)


def _unpacked_path(part: Path) -> Path:
    return part.with_suffix(".unpacked")


def _difference(path: Path, dataset: PublishedDataset) -> str:
    """What tells the file from the published one; empty if nothing does."""
    if (size := path.stat().st_size) != dataset.size:
        return f"expected {dataset.size} bytes, found {size}"
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if found == dataset.sha256 else f"expected SHA-256 {dataset.sha256}, found {found}"
