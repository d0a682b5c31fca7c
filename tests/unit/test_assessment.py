import json
from pathlib import Path

import numpy as np
import pytest

from pipelines import assessment, lineage, publishing, registry, runs, staging, steps, storage
from pipelines.errors import ConfigError
from pipelines.evaluate import Report
from pipelines.ingest import landing, superseded
from pipelines.ingest.metropt3_windows import FEATURES
from pipelines.ledger import Act
from pipelines.train.outcome import read_outcome
from pipelines.train.plan import load_plan
from pipelines.windows import load_windows

ACT = Act(key="by hand", decided_by="ada", reason="a test")

LABELLED = """
name = "labelled_windows"
source = "metropt3_windows"
label = "is_anomaly"

[split]
group = "fold"

[model]
kind = "table_classifier"
width = 16
layers = 1

[train]
workers = 1
epochs = 8
batch_per_worker = 32
reference_batch = 32
learning_rate = 0.01
warmup_steps = 1

[gate]
metric = "f1"
minimum = 0.99
"""


@pytest.fixture(scope="module")
def labelled(mlflow, tmp_path_factory):
    """Plan and report of a classifier that was trained on rows of noise, a third of them called anomalies."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "labelled.toml").write_text(LABELLED)
    rng = np.random.default_rng(0)
    x_NF = rng.normal(size=(240, len(FEATURES)))
    x_NF[:, [name.endswith("_max") for name in FEATURES]] += 20
    x_NF[:, [name.endswith("_min") for name in FEATURES]] -= 19
    lines = [",".join([*FEATURES, "is_anomaly", "fold"])]
    for n, row in enumerate(x_NF):
        lines.append(",".join([*map(str, row), str(int(n % 3 == 0)), str(n // 60)]))
    (folder / "windows.csv").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKSIDE_LAKE", str(folder / "lake"))
        landed = landing.land_file(str(folder / "windows.csv"), source="metropt3_windows", vehicle="metro-apu")
        publishing.publish(steps.validate(staging.stage([landed])))
        plan = runs.plan(runs.build_windows(str(folder / "labelled.toml"), run_key="labelled"))
        steps.train(plan)
        return plan, assessment.evaluate(plan)


@pytest.fixture
def retrained(job):
    """A second training of the same recipe, not yet evaluated."""
    plan = runs.plan(runs.build_windows(job.recipe, run_key="second", epochs=2))
    steps.train(plan)
    return plan


def report_at(location):
    return Report.from_dict(storage.read_json(location))


def test_candidate_and_baselines_are_scored_on_the_same_held_out_windows(job):
    report = report_at(job.report)

    rows = {item.name: _num_rows(item.scores) for item in (report.model, *report.baselines)}
    assert {"candidate", "last_value", "z_score", "highest_level"} <= rows.keys()
    assert set(rows.values()) == {load_windows(job.windows).counts["test"]}
    assert report.held_out == load_windows(job.windows).digest
    assert report.champion is None


def test_hot_windows_are_the_positive_ones(job):
    scores = report_at(job.report).model.scores

    assert 0 < scores["true_positives"] + scores["false_negatives"] < load_windows(job.windows).counts["test"]
    assert {"event_recall", "false_alarms_per_month", "pr_auc"} <= scores.keys()


def test_few_healthy_windows_are_above_the_threshold(job):
    plan, windows = load_plan(job.plan), load_windows(job.windows)
    loaded = registry.load(f"models:/{job.candidate}")

    is_alarm_N = loaded.score(windows.validation_x) >= loaded.threshold

    assert loaded.threshold == pytest.approx(report_at(job.report).model.scores["threshold"])
    assert is_alarm_N.mean() <= 1 - assessment.HEALTHY_QUANTILE + 1 / len(is_alarm_N)
    assert loaded.recipe == plan.recipe


def test_scores_and_figures_are_in_the_run_of_the_training(job):
    import mlflow

    run_id = read_outcome(load_plan(job.plan).location).mlflow_run_id
    client = mlflow.MlflowClient()

    metrics = client.get_run(run_id).data.metrics
    figures = {figure.path for figure in client.list_artifacts(run_id, "figures")}
    assert metrics["test/pr_auc"] == pytest.approx(report_at(job.report).model.scores["pr_auc"])
    assert "baseline_last_value/f1" in metrics
    assert {"figures/scores.png", "figures/precision_recall.png", "figures/worst_window.png"} <= figures


def test_the_run_of_a_training_leads_to_the_report_of_every_recording_that_it_saw(job, tmp_path):
    from mlflow import MlflowClient

    run_id = read_outcome(load_plan(job.plan).location).mlflow_run_id
    path = MlflowClient().download_artifacts(run_id, "data_reports.json", str(tmp_path))

    reports = json.loads(Path(path).read_text())["reports"]
    assert {(r["vehicle"], r["day"]) for r in reports} == set(load_windows(job.windows).vehicle_days)
    for report in reports:
        assert report["recording_id"] in storage.read_bytes(report["address"]).decode()


def test_a_version_carries_its_evidence(job):
    (version,) = registry.list_versions("short_trips")

    tags = version["tags"]
    assert tags["trackside.run_key"] == "first"
    assert tags["trackside.table"] == f"{job.lake}/tables/bundle@3"
    assert tags["trackside.data"] == load_windows(job.windows).digest
    assert int(tags["trackside.rows_in"]) == sum(item["rows_in"] for item in landing.published("bundle"))
    assert tags["trackside.simulated"] == "true"
    assert float(tags["trackside.clock_residual_p99_ms"]) < 250
    assert float(tags["trackside.clock_sigma_max_ms"]) < 500
    assert float(tags["trackside.skew_ms"]) < 500
    assert float(tags["trackside.position_sigma_p95_m"]) < 50


def test_the_evidence_counts_the_checks_that_the_data_passed(job):
    (version,) = registry.list_versions("short_trips")

    passed = json.loads(version["tags"]["trackside.suites"])

    assert set(passed) == {"bundle", "bundle_sensors", "bundle_clocks", "bundle_skews"}
    for suite, text in passed.items():
        num_passed, num_checks = map(int, text.split(" of "))
        assert num_passed == num_checks > 0, suite


def test_registering_again_finds_the_version(job):
    assert assessment.register(job.plan, job.report) == job.candidate == "short_trips/1"


def test_quarantined_recordings_do_not_keep_a_model_from_its_evidence(job):
    landed = storage.lake("landing", "bundle", "sim009", "2026-01-05", "broken")
    storage.write_bytes(storage.join(landed, "meta.json"), b"{")
    landing.refuse(landed, digest="0", reasons=["torn"])

    candidate = assessment.register(job.plan, job.report)

    for area in ("landing", "outcomes", "quarantine"):
        storage.delete_objects(storage.lake(area, "bundle", "sim009"))
    assert candidate == job.candidate


def test_the_decision_of_the_gate_lies_beside_the_report(job):
    decision = storage.read_json(storage.join(job.report.rpartition("/")[0], "decision.json"))

    assert (decision["model"], decision["version"], decision["promoted"]) == ("short_trips", "1", True)
    assert [rule["name"] for rule in decision["rules"]] == ["minimum score"]


def test_a_later_candidate_is_compared_with_the_champion(retrained):
    report = report_at(assessment.evaluate(retrained))

    champion = report_at(retrained.replace("second", "first").replace("plan.json", "report.json")).model
    assert report.champion.name == "short_trips/1"
    assert report.champion.scores["pr_auc"] == pytest.approx(champion.scores["pr_auc"])
    assert report.difference is not None


def test_a_champion_that_reads_other_channels_is_refused_with_what_to_do(retrained, monkeypatch):
    champion = registry.load("models:/short_trips@champion")
    monkeypatch.setattr(registry, "load", lambda uri: _with_columns(champion, ("tmp_bearing_c", "trk_rail_temp_c")))

    with pytest.raises(ConfigError, match=r"short_trips/1 reads .*trk_rail_temp_c.* a recipe whose input changes"):
        assessment.evaluate(retrained)


def test_a_labelled_table_is_judged_by_its_own_labels(labelled):
    plan, report = labelled
    scores = report_at(report).model.scores

    windows = load_windows(load_plan(plan).windows)
    assert scores["true_positives"] + scores["false_negatives"] == windows.test_y.sum()
    assert scores["threshold"] == assessment.LABEL_THRESHOLD
    assert "event_recall" not in scores


def test_a_candidate_below_the_minimum_is_refused_unless_forced(labelled, monkeypatch):
    """Its data changed between training and registration, which the version must tell."""
    plan, report = labelled
    monkeypatch.setenv("TRACKSIDE_LAKE", plan.partition("/runs/")[0])
    superseded.record(storage.lake("tables", "metropt3_windows"), 1, {("metro-apu", "all")})
    candidate = assessment.register(plan, report)

    refused = assessment.promote(candidate, report, force=False, act=ACT)
    forced = assessment.promote(candidate, report, force=True, act=ACT)

    assert (refused["promoted"], refused["forced"]) == (False, False)
    assert any(reason.startswith("minimum score: f1 is 0.") for reason in refused["reasons"])
    assert (forced["promoted"], forced["forced"]) == (True, True)
    assert registry.champion_version("labelled_windows") == candidate.partition("/")[2]
    assert json.loads(registry.tag_of("labelled_windows", "1", "trackside.decision"))["forced"] is True
    assert json.loads(registry.tag_of("labelled_windows", "1", lineage.TAG))["new_version"] == 1


def _num_rows(scores):
    return sum(scores[f"{kind}_{side}"] for kind in ("true", "false") for side in ("positives", "negatives"))


def _with_columns(model, columns):
    from dataclasses import replace

    return replace(model, columns=columns)
