"""What was trained on data that has changed since.

A run keeps the version of its table and the vehicle days that its examples came from; a commit that changes a vehicle
day is written down by the ingestion (`ingest.superseded`). A run is superseded if a vehicle day that it saw was changed
by a later version. Its mark, a tag of its MLflow run and of the versions registered from it, follows from these two
alone, so that marking again, or after a crash, changes nothing.
"""

import json
import logging
from dataclasses import asdict, dataclass
from typing import Any

from pipelines import registry, runs, storage, tracking
from pipelines.ingest import superseded
from pipelines.ingest.superseded import Change
from pipelines.windows import WindowSet

TAG = "trackside.data_superseded"

_SHOWN = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """What has changed of the data that a run was trained on."""

    table: str
    old_version: int
    """Version of the table that the run saw."""

    new_version: int
    """Version that changed it last."""

    vehicle_days: tuple[str, ...]
    """Vehicle and service day of what has changed, as `07 2026-01-12`; sorted."""

    since: str
    """When the first of them changed, ISO 8601 in UTC."""

    @property
    def tag(self) -> dict[str, str]:
        """The mark as a tag; its value is JSON with ten vehicle days at most, and their number."""
        stored = asdict(self) | {"vehicle_days": self.vehicle_days[:_SHOWN], "num_vehicle_days": len(self.vehicle_days)}
        return {TAG: json.dumps(stored)}

    def __str__(self) -> str:
        """In words."""
        num_more = len(self.vehicle_days) - _SHOWN
        days = ", ".join(self.vehicle_days[:_SHOWN]) + (f" and {num_more} more" if num_more > 0 else "")
        return f"{days} (version {self.old_version} was trained on, {self.new_version} is newer, since {self.since})"


def mark_superseded() -> list[dict[str, Any]]:
    """Bring the marks of all training runs, and of the versions registered from them, up to date.

    Returns:
        `{run_key, marked, superseded}` for each run with a mark that is new or has changed, where `marked` names the
        run and `<model name>/<version>` of what was registered from it. Nothing where there is no MLflow.
    """
    if not tracking.is_configured():
        return []
    changes = superseded.changes()
    marked = []
    for run in tracking.trainings() if changes else ():
        mark = _mark(runs.windows_of(run.run_key), changes)
        if mark and (changed := [*run.set_tags(mark.tag), *registry.tag_versions(run.run_id, mark.tag)]):
            logger.warning("%s: trained on data that has changed since: %s", ", ".join(changed), mark)
            marked.append({"run_key": run.run_key, "marked": changed, "superseded": str(mark)})
    return marked


def mark_of(windows: WindowSet) -> Mark | None:
    """What has changed of the data that windows were cut from; `None` if it is as it was."""
    return _mark(windows, superseded.changes())


def _mark(windows: WindowSet | None, changes: list[Change]) -> Mark | None:
    """Compare what a run saw, `None` where this lake does not know it, with what has changed."""
    if windows is None:
        return None
    source, seen = storage.name_of(windows.table), frozenset(windows.vehicle_days)
    later = [c for c in changes if c.source == source and c.version > windows.table_version and c.vehicle_days & seen]
    if not later:
        return None
    return Mark(
        table=windows.table,
        old_version=windows.table_version,
        new_version=later[-1].version,
        vehicle_days=tuple(sorted({" ".join(day) for change in later for day in change.vehicle_days & seen})),
        since=later[0].at,
    )
