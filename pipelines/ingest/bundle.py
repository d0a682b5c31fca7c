"""Trip bundles: what a recorder of one vehicle stored during one trip (DESIGN, section "The trip bundle").

A manifest that cannot be read raises. Everything else that is wrong is refused by name, and the good sensors go on.
"""

from collections.abc import Iterator

import polars as pl

from pipelines import storage
from pipelines.channels import Kind
from pipelines.errors import IncompleteRecordingError
from pipelines.ingest.manifest import MANIFEST, Manifest, read_manifest
from pipelines.ingest.ntp_logs import EXCHANGES
from pipelines.ingest.reader import Recording, Refusal, RefusedError, SensorRows, describe_faults
from pipelines.ingest.stamps import read_stamps
from pipelines.ingest.tables import (
    RawTable,
    as_integers,
    as_numbers,
    as_text,
    only_whole_rows,
    read_table,
    require_columns,
)

SOURCE = "bundle"

_NTP_LOG = "ntp_log.csv"
_SIDE_TABLES: dict[str, dict[str, type[pl.DataType]]] = {
    _NTP_LOG: EXCHANGES,
    "route.csv": {"line_m": pl.Float64, "km_post": pl.Float64, "lat_deg": pl.Float64, "lon_deg": pl.Float64},
    "balises.csv": {"ref": pl.String, "line_m": pl.Float64},
}


def read(location: str) -> Iterator[Recording]:
    """Yield the recording of each bundle at or below `location`."""
    for bundle in find_bundles(location):
        yield read_bundle(bundle)


def find_bundles(location: str) -> list[str]:
    """Locations of all bundles at or below `location`."""
    if storage.exists(storage.join(location, MANIFEST)):
        return [location.rstrip("/")]
    manifests = [path for path in storage.list_objects(location) if storage.name_of(path) == MANIFEST]
    if not manifests:
        raise IncompleteRecordingError(
            f"{location}: neither here nor below is a {MANIFEST}; it is written last, so the bundle is still landing"
        )
    return [path.removesuffix(f"/{MANIFEST}") for path in manifests]


def identity(location: str) -> Manifest:
    """Tell vehicle, day and recording of the bundle in the folder `location` by its path and manifest alone."""
    return read_manifest(location)


def read_bundle(location: str) -> Recording:
    """Read the bundle in the folder `location`."""
    manifest = read_manifest(location)
    sensors: dict[str, SensorRows] = {}
    refusals: list[Refusal] = []
    for name in manifest.sensors:
        try:
            sensors[name], unread = _read_sensor(location, manifest, name)
        except RefusedError as err:
            refusals.append(Refusal(thing=f"sensor {name}", reason=err.reason, message=str(err)))
        else:
            refusals += unread
    tables: dict[str, pl.DataFrame] = {}
    for name, schema in _SIDE_TABLES.items():
        try:
            tables[name], unread = _read_side_table(location, name, schema)
        except RefusedError as err:
            is_needed = name == _NTP_LOG and any(clock.ntp for clock in manifest.clocks.values())
            if err.reason != "file_missing" or is_needed:
                refusals.append(Refusal(thing=name, reason=err.reason, message=str(err)))
        else:
            refusals += unread
    return Recording(
        source=SOURCE,
        vehicle=manifest.vehicle,
        day=manifest.day,
        recording_id=manifest.recording_id,
        sensors=sensors,
        clocks=manifest.clocks,
        exchanges=tables.get(_NTP_LOG),
        route=tables.get("route.csv"),
        balises=tables.get("balises.csv"),
        time_zone=manifest.time_zone or "UTC",
        refusals=tuple(refusals),
        meta=manifest.rest,
    )


def _read_sensor(location: str, manifest: Manifest, name: str) -> tuple[SensorRows, list[Refusal]]:
    entry, channels = manifest.sensor(name)
    columns = [channel.name for channel in channels]
    texts = [channel.name for channel in channels if channel.kind is Kind.EVENT]
    table = _read_file(location, entry.file)
    require_columns(table.rows, [*entry.encoding.columns, *columns], where=entry.file)
    stored = table.rows.columns
    may_be_unset = manifest.clocks[entry.clock_id].ntp
    table = read_stamps(table, entry.encoding, where=entry.file, may_be_unset=may_be_unset)
    table = as_numbers(as_text(table, texts), [column for column in columns if column not in texts])
    if table.rows.is_empty() and entry.nominal_rate_hz is not None:
        found = "; ".join(describe_faults(name, table.faults)) or "a header alone"
        raise RefusedError("no_rows", f"{entry.file} has no row that can be used: {found}")
    known = ["row", *entry.encoding.columns, *columns]
    rows = SensorRows(
        sensor=name,
        rows=table.rows.select(known),
        channels=channels,
        clock_id=entry.clock_id,
        encoding=entry.encoding,
        nominal_rate_hz=entry.nominal_rate_hz,
        latency_ms=entry.latency_ms,
        faults=table.faults,
    )
    return rows, [_extra_column(name, entry.file, column) for column in stored if column not in known]


def _extra_column(sensor: str, file: str, column: str) -> Refusal:
    return Refusal(
        thing=f"sensor {sensor}, column {column}",
        reason="extra_column",
        message=f"{file} has a column {column!r} that the manifest does not describe; it was not read",
    )


def _read_side_table(location: str, name: str, schema: dict[str, type]) -> tuple[pl.DataFrame, list[Refusal]]:
    """Read a table in which a row is whole or left out."""
    table = _read_file(location, name)
    require_columns(table.rows, list(schema), where=name)
    for dtype, convert in ((pl.String, as_text), (pl.Int64, as_integers), (pl.Float64, as_numbers)):
        table = convert(table, [column for column, wanted in schema.items() if wanted is dtype])
    table = only_whole_rows(table, list(schema))
    left_out = [
        Refusal(thing=f"{name}, some rows", reason="rows_left_out", message=sentence)
        for sentence in describe_faults(name, table.faults)
    ]
    return table.rows.select(list(schema)), left_out


def _read_file(location: str, name: str) -> RawTable:
    path = storage.join(location, name)
    if not storage.exists(path):
        raise RefusedError("file_missing", f"{name} is not beside {MANIFEST} in {location}")
    with storage.local_copy(path) as file:
        return read_table(file)
