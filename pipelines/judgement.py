"""Whether a staged batch may be trained on, part by part, with a report that a person can read.

A batch of many recordings or days is judged as a whole first, and part by part only if that fails, so that one bad day
does not hold back the others.
"""

import logging
from typing import Any

import polars as pl

from pipelines import data_docs, storage, validation
from pipelines.errors import DataQualityError
from pipelines.ingest import landing
from pipelines.staging import OVERVIEW, REPORT, VERDICT, docs_of, load_part
from pipelines.validation import Verdict

logger = logging.getLogger(__name__)


def judge(staged: str) -> str:
    """Let a staged batch pass its suites; return `staged`.

    Raises:
        DataQualityError: No part of it may be published; the originals are in quarantine with this message.
    """
    report = storage.read_json(storage.join(staged, REPORT))
    parts = [part for recording in report["recordings"] for part in recording["parts"]]
    verdicts = _check(report["source"], staged, parts)
    failed = {} if _passed(verdicts) else _failed(report["source"], staged, parts, verdicts)
    good = [part for part in parts if part["name"] not in failed]
    of_good = _check(report["source"], staged, good) if failed and good else verdicts
    _write_docs(staged, report, verdicts, failed)
    verdict = {
        "passed": [part["name"] for part in good],
        "failed": failed,
        "suites": _numbers(verdicts),
        "passport": _numbers(of_good) if good else {},
    }
    storage.write_json(storage.join(staged, VERDICT), verdict)
    for recording in report["recordings"]:
        _set_aside(recording, failed)
    if failed:
        message = "\n".join([*list(failed.values())[:10], f"full report: {docs_of(staged)}/index.html"])
        if not good:
            raise DataQualityError(message)
        logger.warning("%d of %d parts go on; not these: %s", len(good), len(parts), message)
    return staged


def _failed(source: str, staged: str, parts: list[dict[str, Any]], verdicts: dict[str, Verdict]) -> dict[str, str]:
    """Why parts of a batch that failed as a whole may not be published, by their names."""
    if len(parts) == 1:
        name = parts[0]["name"]
        return {name: _message(verdicts, batch=f"{source} {name}")}
    failed = {}
    for part in parts:
        of_part = _check(source, staged, [part])
        if not _passed(of_part):
            failed[part["name"]] = _message(of_part, batch=f"{source} {part['name']}")
    if failed:
        return failed
    # Only together are they wrong, and no part can be blamed for it.
    return {part["name"]: _message(verdicts, batch=f"{source} as a whole") for part in parts}


def _set_aside(recording: dict[str, Any], failed: dict[str, str]) -> None:
    """Put a recording into quarantine if parts of it failed; if all did, that is its outcome."""
    reasons = [failed[part["name"]] for part in recording["parts"] if part["name"] in failed]
    if len(reasons) == len(recording["parts"]):
        landing.refuse(recording["landed"], digest=recording["digest"], reasons=reasons)
    elif reasons:
        landing.quarantine(recording["landed"], digest=recording["digest"], reasons=reasons)


def _check(source: str, staged: str, parts: list[dict[str, Any]]) -> dict[str, Verdict]:
    """Run the suites of a source over parts: one over their rows, and one over each table of evidence that has any."""
    frame = pl.concat([load_part(staged, part) for part in parts], how="diagonal_relaxed")
    verdicts = {source: validation.check(frame, suite=source)}
    for table, rows in _evidence(parts).items():
        if rows:
            suite = f"{source}_{table}"
            verdicts[suite] = validation.check(pl.DataFrame(rows, infer_schema_length=None), suite=suite)
    return verdicts


def _evidence(parts: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What parts say about themselves, as tables: one row a sensor, a clock, a pair of sensors."""
    return {
        "sensors": [{"part": part["name"], **sensor} for part in parts for sensor in part["sensors"]],
        "clocks": [
            {"part": part["name"], "clock_id": clock_id, **_countable(clock)}
            for part in parts
            for clock_id, clock in part.get("clocks", {}).items()
        ],
        "skews": [{"part": part["name"], **skew} for part in parts for skew in part.get("skews", [])],
    }


def _countable(clock: dict[str, Any]) -> dict[str, Any]:
    """Facts of a clock, with lists told by their length."""
    return {
        f"num_{name}" if isinstance(fact, list) else name: len(fact) if isinstance(fact, list) else fact
        for name, fact in clock.items()
    }


def _numbers(verdicts: dict[str, Verdict]) -> dict[str, Any]:
    return {suite: verdict.numbers() for suite, verdict in verdicts.items()}


def _passed(verdicts: dict[str, Verdict]) -> bool:
    return all(verdict.passed for verdict in verdicts.values())


def _message(verdicts: dict[str, Verdict], *, batch: str) -> str:
    return "\n".join(verdict.message(batch) for verdict in verdicts.values() if not verdict.passed)


def _write_docs(staged: str, report: dict[str, Any], verdicts: dict[str, Verdict], failed: dict[str, str]) -> None:
    """Write the Data Docs of a batch, its index last."""
    docs = docs_of(staged)
    identity = _identity(report, failed)
    title = " ".join(staged.split("/")[-4:-1])
    if any(part["simulated"] for recording in report["recordings"] for part in recording["parts"]):
        title += " (simulated)"
    links = {"time and place of every recording": OVERVIEW}
    if failed:
        links["what was quarantined, and why"] = "quarantine.json"
        storage.write_json(storage.join(docs, "quarantine.json"), {**identity, "reasons": failed})
    pages = {f"{name}.html": verdict for name, verdict in verdicts.items()}
    for name, verdict in pages.items():
        page = data_docs.suite_page(title, identity=identity, verdict=verdict)
        storage.write_bytes(storage.join(docs, name), page.encode())
    index = data_docs.index_page(title, identity=identity, verdicts=pages, refused=failed, links=links)
    storage.write_bytes(storage.join(docs, "index.html"), index.encode())


def _identity(report: dict[str, Any], failed: dict[str, str]) -> dict[str, str]:
    """What a batch is made of, for a person."""
    recordings = report["recordings"]
    identity = {
        "landed": _few([recording["landed"] for recording in recordings]),
        "content": _few([recording["digest"] for recording in recordings]),
        "parts": _few([part["name"] for recording in recordings for part in recording["parts"]]),
    }
    refused = [one for one in recordings if any(part["name"] in failed for part in one["parts"])]
    if refused:
        identity["quarantine"] = _few([landing.quarantine_of(one["landed"], one["digest"]) for one in refused])
    return identity


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
