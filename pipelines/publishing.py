"""What of a staged batch gets into its source's table, in one commit, and what stays out.

A delivery replaces an earlier one of the same recording only if it takes nothing away: on every day every sensor must
have at least as many good rows, and every channel as many good readings, as the published delivery has. A poorer one
goes to quarantine, unless it is forced.
"""

import logging
from contextlib import suppress
from typing import Any

import polars as pl

from pipelines import storage
from pipelines.errors import DataQualityError, ObjectNotFoundError
from pipelines.ingest import landing, superseded
from pipelines.staging import REPORT, VERDICT, docs_of, load_part, refusals_of, total

_INTENT = "publishing.json"

logger = logging.getLogger(__name__)


def publish(staged: str, *, force: bool = False) -> dict[str, Any]:
    """Replace recordings in their source's table by the parts that passed, in one commit; return what is published.

    A recording whose present content is published already stays as it is.

    Args:
        staged: Location of the batch, with its verdict.
        force: Publish also what is published already, and what is poorer than it.

    Raises:
        DataQualityError: Nothing may be published: all of it would take something away from what is there.
    """
    report = storage.read_json(storage.join(staged, REPORT))
    verdict = storage.read_json(storage.join(staged, VERDICT))
    quarantined = dict(report["quarantined"])
    due: list[dict[str, Any]] = []
    unchanged: list[dict[str, Any]] = []
    for recording in report["recordings"]:
        location, digest = recording["landed"], recording["digest"]
        passed = [part for part in recording["parts"] if part["name"] in verdict["passed"]]
        before = landing.outcome_of(location)
        if not passed:
            quarantined[location] = [verdict["failed"][part["name"]] for part in recording["parts"]]
        elif not force and (before.get("outcome"), before.get("digest")) == ("published", digest):
            unchanged.append(before["published"])
        elif not force and (losses := _losses(before, passed)):
            quarantined[location] = [*losses, *refusals_of(recording["parts"])]
            landing.refuse(location, digest=digest, reasons=quarantined[location])
        else:
            due.append({**recording, "parts": passed})
    if not due and not unchanged:
        raise DataQualityError("\n".join(reason for reasons in quarantined.values() for reason in reasons))
    table = storage.lake("tables", report["source"])
    published = _publish(staged, due, verdict["passport"], table=table) if due else []
    logger.info("%s: %d published, %d unchanged, %d quarantined", staged, len(due), len(unchanged), len(quarantined))
    return {
        "table": table,
        "version": max(evidence["version"] for evidence in published + unchanged),
        "published": [evidence["landed"] for evidence in published],
        "unchanged": [evidence["landed"] for evidence in unchanged],
        "quarantined": quarantined,
        "rows_in": sum(evidence["rows_in"] for evidence in published),
        "rows_out": sum(evidence["rows_out"] for evidence in published),
        "rejected": landing.rejected(published),
        "failed": verdict["failed"],
        "refused": [refusal for recording in due for refusal in refusals_of(recording["parts"])],
    }


def _publish(staged: str, due: list[dict[str, Any]], passport: dict[str, Any], *, table: str) -> list[dict[str, Any]]:
    """Put recordings into the table and write their outcomes; return the evidence for each.

    Whatever dies in between, the same call again ends in the same state: the commit is found by its name.
    """
    frame = pl.concat([load_part(staged, part) for item in due for part in item["parts"]], how="diagonal_relaxed")
    before = [landing.outcome_of(item["landed"]).get("published", {"parts": []}) for item in due]
    gone = {(part["vehicle"], part["day"], part["recording_id"]) for item in before for part in item["parts"]}
    after = _version_before(staged, due, table=table)
    version = storage.write_recordings(table, frame, gone=gone, commit=storage.name_of(staged), after=after)
    touched = {*frame.select("vehicle", "day").unique().rows(), *((vehicle, day) for vehicle, day, _ in gone)}
    superseded.record(table, version, touched & storage.partitions(table, version - 1))
    published = [_published(item, passport, staged=staged, table=table, version=version) for item in due]
    for evidence in published:
        landing.record_published(evidence["landed"], evidence)
    storage.delete_object(storage.join(staged, _INTENT))
    return published


def _version_before(staged: str, due: list[dict[str, Any]], *, table: str) -> int:
    """Version of the table before the first attempt to publish these deliveries, however often it is repeated."""
    location = storage.join(staged, _INTENT)
    since = {item["landed"]: landing.newest_outcome(item["landed"]) for item in due}
    with suppress(ObjectNotFoundError):
        intent = storage.read_json(location)
        if since.items() <= intent["since"].items():  # no other delivery of them was processed meanwhile
            return int(intent["after"])
    after = storage.table_version(table)
    storage.write_json(location, {"after": after, "since": since})
    return after


def _published(
    item: dict[str, Any], passport: dict[str, Any], *, staged: str, table: str, version: int
) -> dict[str, Any]:
    """Evidence for what is published of one recording; it goes into its outcome."""
    return {
        **item,
        "table": table,
        "version": version,
        "rows_in": sum(part["num_rows_in"] for part in item["parts"]),
        "rows_out": sum(part["rows"] for part in item["parts"]),
        "rejected": total([part["rejected_by_reason"] for part in item["parts"]]),
        "docs": docs_of(staged),
        "suites": passport,
    }


def _losses(before: dict[str, Any], parts: list[dict[str, Any]]) -> list[str]:
    """What a delivery would take away from what is published of its recording, in words; empty if nothing."""
    published = before.get("published", {"parts": []})
    new = {part["name"]: _num_good(part) for part in parts}
    poorer = [loss for part in published["parts"] for loss in _losses_of(part, new.get(part["name"], {}))]
    if not poorer:
        return []
    head = (
        f"this delivery is poorer than the one that is published as version {published['version']} and stays so; land "
        "a whole one, or replace it all the same (`trackside ingest URI --force`, or `force` in ingest_sensors)"
    )
    return [head, *poorer[:10]]


def _losses_of(part: dict[str, Any], new: dict[str, int]) -> list[str]:
    old = _num_good(part)
    losses = []
    for thing in sorted(old.keys() | new.keys()):
        sensor = thing.partition(".")[0]
        had, has = (good.get(thing, good.get(sensor, 0)) for good in (old, new))
        if has < had:
            losses.append(f"{part['name']}: {thing} has {has:,} good rows, published are {had:,}")
    return losses


def _num_good(part: dict[str, Any]) -> dict[str, int]:
    """Good rows of each sensor, and of each `sensor.channel` of which not all readings are there and believed."""
    rows: dict[str, int] = part["rows_used"]
    of_channels = {
        f"{sensor}.{channel}": rows[sensor] - sum(counts.values())
        for sensor, channels in part.get("screened", {}).items()
        for channel, counts in channels.items()
    }
    return rows | of_channels
