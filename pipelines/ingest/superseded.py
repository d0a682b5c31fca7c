"""Vehicle days that were published anew: what was trained on an earlier version of the table has seen other rows.

superseded/<source>/<version>.json    written when a commit changed vehicle days that the table had before it
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines import storage
from pipelines.errors import ConflictError


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A commit that changed what was published before."""

    source: str
    version: int
    """Version of the table that the commit made."""

    at: str
    """When it was written down, ISO 8601 in UTC."""

    vehicle_days: frozenset[tuple[str, str]]
    """`(vehicle, day)` of the partitions that were there before and are different now."""


def record(table: str, version: int, vehicle_days: set[tuple[str, str]]) -> None:
    """Write down that the commit of `version` changed `vehicle_days`; once is enough."""
    if not vehicle_days:
        return
    change = {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "vehicle_days": sorted(vehicle_days)}
    with suppress(ConflictError):
        at = storage.lake("superseded", storage.name_of(table), f"{version:012d}.json")
        storage.write_json(at, change, if_absent=True)


def changes() -> list[Change]:
    """All changes of all tables, those of one table oldest first."""
    found = []
    for location in storage.list_objects(storage.lake("superseded")):
        source, name = location.split("/")[-2:]
        stored = storage.read_json(location)
        found.append(
            Change(
                source=source,
                version=int(name.removesuffix(".json")),
                at=stored["at"],
                vehicle_days=frozenset((vehicle, day) for vehicle, day in stored["vehicle_days"]),
            )
        )
    return found
