"""Where things are: objects and tables under one root, the lake.

The lake is an S3 bucket (`s3://trackside`) or a local folder; the environment variable `TRACKSIDE_LAKE` says which. All
other modules pass locations (URIs) around and leave to this one what is in the lake. Layout:

    landing/<source>/<vehicle>/<day>/<recording>/   what recorders put there, manifest last
    staging/<source>/<vehicle>/<day>/<batch>/       recordings of one vehicle and day, aligned, not yet validated
    outcomes/<source>/<vehicle>/<day>/<recording>/  what became of each delivery of a landed recording
    superseded/<source>/                            vehicle days that changed after they had been published
    quarantine/…                                    refused originals, each with its report
    events/                                         known events of each source
    docs/…                                          Data Docs of the validations
    tables/<source>/                                Delta tables of aligned data, partitioned by vehicle and day
    ledger/<model>/                                 who made which version champion, a line an object
    runs/<run key>/                                 windows, plan, checkpoints and report of one training

Objects are replaced atomically: a reader sees the old or the new one, never a part. `write_bytes(…, if_absent=True)` is
a conditional put, so of two racing writers exactly one wins.
"""

import hashlib
import io
import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import deltalake
import deltalake.exceptions
import numpy as np
import polars as pl

from pipelines.errors import ConfigError, ConflictError, ObjectNotFoundError, StoreAccessError, StoreError

_COMMIT_TRIES = 20
_COMMIT = "trackside.commit"
"""Key in the history of a table under which a commit has its name."""

_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "Forbidden", "NoSuchBucket"}
_MISSING = {"NoSuchKey", "404", "NotFound"}
_EXISTS = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}


def lake(*parts: str) -> str:
    """Location of `parts` under the lake's root."""
    root = os.environ.get("TRACKSIDE_LAKE") or str(Path(os.environ.get("TRACKSIDE_HOME", ".trackside")) / "lake")
    return join(root, *parts)


def join(location: str, *parts: str) -> str:
    """Append `parts` to a location.

    Example:
        >>> join("s3://trackside/", "runs", "a")
        's3://trackside/runs/a'
    """
    return "/".join([location.rstrip("/"), *(part.strip("/") for part in parts)])


def name_of(location: str) -> str:
    """Last part of a location."""
    return location.rstrip("/").rsplit("/", 1)[-1]


def read_bytes(location: str) -> bytes:
    """Return what is stored at `location`."""
    if not _is_s3(location):
        try:
            return Path(location).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as err:
            raise ObjectNotFoundError(f"{location}: no such file") from err
    bucket, key = _split(location)
    with _translated(location):
        body: bytes = _s3().get_object(Bucket=bucket, Key=key)["Body"].read()
    return body


def write_bytes(location: str, data: bytes, *, if_absent: bool = False) -> str:
    """Store `data` at `location`, all of it or nothing, and return the location.

    Args:
        location: Where to.
        data: What.
        if_absent: Raise `ConflictError` instead of replacing what is there.
    """
    if not _is_s3(location):
        return _write_file(Path(location), data, if_absent=if_absent)
    bucket, key = _split(location)
    condition = {"IfNoneMatch": "*"} if if_absent else {}
    with _translated(location):
        _s3().put_object(Bucket=bucket, Key=key, Body=data, **condition)
    return location


def read_json(location: str) -> Any:
    """Return the JSON value stored at `location`."""
    return json.loads(read_bytes(location))


def write_json(location: str, value: Any, *, if_absent: bool = False) -> str:
    """Store `value` as indented JSON; NaN and infinity are refused because JSON has neither."""
    return write_bytes(location, json.dumps(value, indent=1, allow_nan=False).encode(), if_absent=if_absent)


def read_parquet(location: str) -> pl.DataFrame:
    """Return the Parquet file stored at `location`."""
    return pl.read_parquet(io.BytesIO(read_bytes(location)))


def write_parquet(location: str, frame: pl.DataFrame) -> str:
    """Store `frame` as one Parquet file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1)
    return write_bytes(location, buffer.getvalue())


def read_array(location: str) -> np.ndarray:
    """Return the numpy array stored at `location`."""
    return np.load(io.BytesIO(read_bytes(location)), allow_pickle=False)  # type: ignore[no-any-return]


def write_array(location: str, array: np.ndarray) -> str:
    """Store one numpy array."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return write_bytes(location, buffer.getvalue())


def exists(location: str) -> bool:
    """Whether an object (not a folder) is stored at `location`."""
    if not _is_s3(location):
        return Path(location).is_file()
    bucket, key = _split(location)
    try:
        with _translated(location):
            _s3().head_object(Bucket=bucket, Key=key)
    except ObjectNotFoundError:
        return False
    return True


def list_objects(prefix: str) -> list[str]:
    """Locations of all objects below the folder `prefix`, sorted."""
    if not _is_s3(prefix):
        return sorted(str(path) for path in _files(prefix))
    return sorted(join(prefix, name) for name in fingerprints(prefix))


def delete_objects(prefix: str) -> int:
    """Delete all objects below the folder `prefix`; return how many there were."""
    doomed = list_objects(prefix)
    for location in doomed:
        delete_object(location)
    return len(doomed)


def delete_object(location: str) -> None:
    """Delete one object; it is no error if it is gone already."""
    if not _is_s3(location):
        Path(location).unlink(missing_ok=True)
        return
    bucket, key = _split(location)
    with _translated(location):
        _s3().delete_object(Bucket=bucket, Key=key)


def copy_tree(source: str, target: str, *, last: str = "") -> list[str]:
    """Copy a file, or all that lies below a folder, to the folder `target`; return the new locations.

    Args:
        source: A file or a folder, local or on S3.
        target: Folder to copy to.
        last: Name of the object that is copied after all others, because its presence says that they are complete.
    """
    objects = list_objects(source) or [source]
    objects.sort(key=lambda location: name_of(location) == last)
    base = source.rstrip("/")
    names = [name_of(location) if location == base else location[len(base) + 1 :] for location in objects]
    return [_copy_object(location, join(target, name)) for location, name in zip(objects, names, strict=True)]


@contextmanager
def local_copy(location: str) -> Iterator[Path]:
    """A local path with the object's content, for libraries that read only files; local objects are not copied."""
    if not _is_s3(location):
        if not Path(location).is_file():
            raise ObjectNotFoundError(f"{location}: no such file")
        yield Path(location)
        return
    with tempfile.TemporaryDirectory(prefix="trackside-") as folder:
        path = Path(folder) / name_of(location)
        bucket, key = _split(location)
        with _translated(location):
            _s3().download_file(bucket, key, str(path))
        yield path


@contextmanager
def replacement(location: str) -> Iterator[Path]:
    """A local path to write to; when the block ends well, what is there replaces the object at `location` as a whole.

    Of several, entered one after the other on one `ExitStack`, none is replaced unless all could be written; then they
    are replaced one by one, the first entered last.
    """
    if _is_s3(location):
        with tempfile.TemporaryDirectory(prefix="trackside-") as folder:
            path = Path(folder) / name_of(location)
            yield path
            _copy_object(str(path), location)
        return
    target = Path(location)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise StoreAccessError(f"{target.parent}: no folder that can be written to: {err.strerror}") from err
    partial = target.with_name(f".partial-{uuid.uuid4().hex}")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def fingerprints(prefix: str) -> dict[str, str]:
    """Objects below the folder `prefix`, by their names relative to it: prints that change with their content."""
    if not _is_s3(prefix):
        return {
            path.relative_to(prefix).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in _files(prefix)
        }
    bucket, key = _split(prefix.rstrip("/") + "/")
    with _translated(prefix):
        pages = _s3().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
        items = [item for page in pages for item in page.get("Contents", [])]
    return {item["Key"].removeprefix(key): f"{item['ETag']} {item['Size']}" for item in items}


def digest_of(prefix: str) -> str:
    """Fingerprint of a folder: changes when any object below it is added, removed or altered."""
    return digest(fingerprints(prefix))


def digest(prints: dict[str, str]) -> str:
    """One fingerprint of the objects of a folder, given those of each; it does not depend on where the folder is."""
    return hashlib.sha256("\n".join(sorted(f"{name} {print_}" for name, print_ in prints.items())).encode()).hexdigest()


def write_recordings(
    table: str, frame: pl.DataFrame, *, gone: Iterable[tuple[str, str, str]], commit: str, after: int
) -> int:
    """Replace the recordings in `frame`, and take out those in `gone`, in one commit; return the version it made.

    The table is partitioned by vehicle and day. The commit is atomic and conditional: of two racing writers of one
    recording one wins whole, and writers of different recordings do not disturb each other. A commit that was carried
    out before its writer died is found by its name and not repeated. Delta keeps microseconds, so `t_utc_ns` must be
    an integer column.

    Args:
        table: Location of the table; it is made if there is none.
        frame: Rows; a recording is one `vehicle`, `day`, `recording_id`.
        gone: Recordings that were published and are in this delivery no more.
        commit: Name of the commit.
        after: Version of the table before the first attempt to make this commit; -1 if there was no table.
    """
    keys = ["vehicle", "day", "recording_id"]
    replaced = _predicate({*frame.select(keys).unique().rows(), *gone})
    for _ in range(_COMMIT_TRIES):
        found = _delta_table(table)
        version = None if found is None else _version_of_commit(found, commit, after=after)
        if version is not None:
            return version
        replace: dict[str, Any] = {"mode": "overwrite", "predicate": replaced}
        try:
            deltalake.write_deltalake(
                found or table,
                frame,
                partition_by=["vehicle", "day"],
                schema_mode="merge",
                storage_options=_delta_options(table),
                commit_properties=deltalake.CommitProperties(custom_metadata={_COMMIT: commit}),
                **(replace if found else {"mode": "error"}),
            )
        except deltalake.exceptions.CommitFailedError:
            continue  # another recording was committed in between: read the table anew
        except (OSError, deltalake.exceptions.DeltaError) as err:
            if found is None and _delta_table(table) is not None:
                continue  # another writer created the table first
            raise _table_error(table, "written", err) from err
    raise ConflictError(f"{table}: {_COMMIT_TRIES} other writers were faster; nothing was written, try again")


def partitions(table: str, version: int) -> set[tuple[str, str]]:
    """`(vehicle, day)` of all partitions that a Delta table had at `version`; none before there was a table."""
    found = _delta_table(table, version) if version >= 0 else None
    return set() if found is None else {(part["vehicle"], part["day"]) for part in found.partitions()}


def read_table(table: str, *, version: int | None = None, columns: list[str] | None = None) -> pl.DataFrame:
    """Return a Delta table, at `version` if given, sorted by vehicle, day, recording and time.

    Raises:
        ConfigError: It lacks one of `columns`.
    """
    found = _delta_table(table, version)
    if found is None:
        raise ObjectNotFoundError(f"{table}: no such table; publish a batch first (trackside ingest URI)")
    names = [field.name for field in found.schema().fields]
    if missing := [column for column in columns or [] if column not in names]:
        others = f" and {len(names) - 10} more" if len(names) > 10 else ""
        raise ConfigError(f"{table}: no column {missing[0]!r}; it has {', '.join(names[:10])}{others}")
    frame = pl.from_arrow(found.to_pyarrow_table(columns=columns))
    assert isinstance(frame, pl.DataFrame)
    order = [column for column in ("vehicle", "day", "recording_id", "t_utc_ns", "row") if column in frame.columns]
    return frame.sort(order, maintain_order=True)


def table_version(table: str) -> int:
    """Newest version of a Delta table; -1 if there is none."""
    found = _delta_table(table)
    return -1 if found is None else int(found.version())


def forget_connections() -> None:
    """Take the endpoint and the credentials from the environment anew."""
    _s3.cache_clear()


def _predicate(recordings: set[tuple[str, str, str]]) -> str:
    """Condition that the rows of `recordings` fulfil, each `(vehicle, day, recording_id)`, and no others."""
    days: dict[tuple[str, str], list[str]] = {}
    for vehicle, day, recording_id in sorted(recordings):
        days.setdefault((vehicle, recording_id), []).append(_quoted(day))
    clauses = [
        f"(vehicle = {_quoted(vehicle)} AND recording_id = {_quoted(recording)} AND day IN ({', '.join(of_recording)}))"
        for (vehicle, recording), of_recording in days.items()
    ]
    return " OR ".join(clauses)


def _quoted(text: str) -> str:
    """Text as it stands in a predicate."""
    return "'" + text.replace("'", "''") + "'"


def _version_of_commit(found: "deltalake.DeltaTable", commit: str, *, after: int) -> int | None:
    """Version that the commit called `commit` made, if it is later than `after`; `None` if there is none."""
    num_later = found.version() - after
    later = found.history(num_later) if num_later > 0 else []
    return next((int(entry["version"]) for entry in later if entry.get(_COMMIT) == commit), None)


def _delta_table(table: str, version: int | None = None) -> "deltalake.DeltaTable | None":
    try:
        return deltalake.DeltaTable(table, version=version, storage_options=_delta_options(table))
    except deltalake.exceptions.TableNotFoundError:
        return None
    except OSError as err:
        raise _table_error(table, "read", err) from err


def _table_error(table: str, done: str, err: Exception) -> StoreError | StoreAccessError:
    """What the table library could not do; of a refusal it has no class of its own, only these words."""
    kind = StoreAccessError if "operation lacked" in str(err) else StoreError
    return kind(f"{table}: the table could not be {done}: {err}")


def _delta_options(table: str) -> dict[str, str] | None:
    """Credentials for the table library; an endpoint without TLS must be allowed by name."""
    if not _is_s3(table):
        return None
    options = {"aws_conditional_put": "etag", "timeout": "60s"}
    if endpoint := _endpoint():
        options["aws_endpoint"] = endpoint
        options["aws_allow_http"] = str(endpoint.startswith("http://")).lower()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"):
        if value := os.environ.get(name):
            options[name.lower()] = value
    return options


def _endpoint() -> str:
    """Address of the store; empty for AWS itself."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _files(folder: str) -> list[Path]:
    """Whole files below a local folder."""
    return [path for path in Path(folder).rglob("*") if path.is_file() and not path.name.startswith(".partial-")]


def _is_s3(location: str) -> bool:
    return location.startswith("s3://")


def _split(location: str) -> tuple[str, str]:
    bucket, _, key = location.removeprefix("s3://").partition("/")
    return bucket, key


@lru_cache(maxsize=1)
def _s3() -> Any:
    """One client a process; endpoint and credentials come from the standard AWS variables."""
    config = botocore.config.Config(
        retries={"total_max_attempts": 4, "mode": "standard"},
        connect_timeout=5,
        read_timeout=60,
        s3={"addressing_style": "path"},
    )
    return boto3.Session().client("s3", config=config)  # the default session would keep the credentials it saw first


@contextmanager
def _translated(location: str) -> Iterator[None]:
    """Say in our words what the store answered: not there, not allowed, lost the race, or not now."""
    try:
        yield
    except botocore.exceptions.ClientError as err:
        code = err.response["Error"]["Code"]
        if code in _MISSING:
            raise ObjectNotFoundError(f"{location}: nothing is stored there") from err
        if code in _EXISTS:
            raise ConflictError(f"{location}: exists already; somebody else wrote it first") from err
        if code in _DENIED:
            raise StoreAccessError(
                f"{location}: the store refused with {code}; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
                "and that the bucket exists"
            ) from err
        raise StoreError(f"{location}: the store answered {code}: {err}") from err
    except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError) as err:
        raise StoreAccessError(f"{location}: {err}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from err
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.HTTPClientError) as err:
        raise StoreError(f"{location}: no answer from the store at {_endpoint() or 'AWS'}: {err}") from err


def _write_file(path: Path, data: bytes, *, if_absent: bool) -> str:
    """Write beside the target, then rename or link, so that a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    partial = Path(name)
    try:
        if if_absent:
            path.hardlink_to(partial)
        else:
            partial.replace(path)
    except FileExistsError as err:
        raise ConflictError(f"{path}: exists already; somebody else wrote it first") from err
    finally:
        partial.unlink(missing_ok=True)
    return str(path)


def _copy_object(source: str, target: str) -> str:
    if _is_s3(target):
        bucket, key = _split(target)
        with local_copy(source) as path, path.open("rb") as file, _translated(target):
            _s3().upload_fileobj(file, bucket, key)
        return target
    return write_bytes(target, read_bytes(source))
