import json

import pytest

from pipelines import storage
from pipelines.ingest import landing, superseded
from pipelines.summary import summarise
from pipelines.windows import load_windows


@pytest.fixture
def decision(job):
    """Change the stored decision for one test."""
    location = storage.join(job.plan.rpartition("/")[0], "decision.json")
    stored = storage.read_bytes(location)
    yield lambda **changes: storage.write_json(location, json.loads(stored) | changes)
    storage.write_bytes(location, stored)


def test_the_summary_says_what_went_in_and_what_came_out(job):
    summary = summarise(job.plan)

    facts = summary["facts"]
    assert summary["simulated"] is True
    assert facts["recordings"] == "4 published, 0 quarantined"
    assert int(facts["rows in"].replace(",", "")) == sum(item["rows_in"] for item in landing.published("bundle"))
    assert int(facts["aligned rows out"].replace(",", "")) == len(storage.read_table(storage.lake("tables", "bundle")))
    assert facts["rejected rows"] == "none"
    assert facts["workers"] == "1 (1 attempt)"
    assert (facts["candidate"], facts["champion"]) == ("version 1, promoted", "short_trips version 1")
    json.dumps(summary, allow_nan=False)


def test_every_compared_model_has_every_shown_score(job):
    summary = summarise(job.plan)

    assert {"candidate", "last_value", "z_score"} <= summary["scores"].keys()
    assert {"f1", "pr_auc", "event_recall"} <= set(summary["metrics"])
    assert {len(values) for values in summary["scores"].values()} == {len(summary["metrics"])}


@pytest.mark.parametrize(
    ("promoted", "forced", "words"),
    [(False, False, "refused by the gate"), (True, True, "promoted by force against the gate")],
)
def test_the_candidate_is_described_as_it_was_decided(job, decision, promoted, forced, words):
    decision(promoted=promoted, forced=forced)

    assert summarise(job.plan)["facts"]["candidate"] == f"version 1, {words}"


def test_quarantined_recordings_are_counted_apart(job):
    landed = storage.lake("landing", "bundle", "sim009", "2026-01-05", "broken")
    storage.write_bytes(storage.join(landed, "meta.json"), b"{")
    landing.refuse(landed, digest="0", reasons=["torn"])

    facts = summarise(job.plan)["facts"]

    for area in ("landing", "outcomes", "quarantine"):
        storage.delete_objects(storage.lake(area, "bundle", "sim009"))
    assert facts["recordings"] == "4 published, 1 quarantined"


def test_data_that_changed_since_the_training_are_told(job):
    windows = load_windows(job.windows, parts=())
    before = summarise(job.plan)["facts"]
    superseded.record(windows.table, windows.table_version + 1, {windows.vehicle_days[0], ("another", "2026-01-05")})

    facts = summarise(job.plan)["facts"]

    storage.delete_objects(storage.lake("superseded"))
    assert "changed since" not in before
    assert facts["changed since"].startswith(
        f"{' '.join(windows.vehicle_days[0])} (version {windows.table_version} was"
    )
