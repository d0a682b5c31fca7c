import json
import re
from pathlib import Path

import pytest

from pipelines.config import load_recipe, parse_recipe
from pipelines.errors import ConfigError, TrackingAccessError, TrackingError
from pipelines.tracking import DataReport, Point, TrackedCheckpoint, TrackedData, open_run, run_url

pytestmark = pytest.mark.usefixtures("mlflow")


@pytest.fixture
def run(request):
    return open_run(f"run of {request.node.name}", experiment="tiny")


def curve(steps, name="train_loss"):
    return [Point(name, step, 1 / step, 1_700_000_000_000 + step) for step in steps]


def logged(run, name="train_loss"):
    return sorted((metric.step, metric.value) for metric in run.client.get_metric_history(run.run_id, name))


def test_all_attempts_of_a_training_share_one_run():
    first = open_run("nightly/1", experiment="tiny", tags={"airflow.dag_id": "nightly"})
    second = open_run("nightly/1", experiment="tiny", tags={"airflow.run_id": "scheduled"})

    assert first.run_id == second.run_id
    tags = first.client.get_run(first.run_id).data.tags
    assert (tags["airflow.dag_id"], tags["airflow.run_id"]) == ("nightly", "scheduled")


def test_trainings_have_runs_of_their_own():
    assert open_run("it's 1", experiment="tiny").run_id != open_run("it's 2", experiment="tiny").run_id


def test_a_later_attempt_logs_only_what_is_missing(run):
    run.log_points(curve(range(1, 61)))
    again = open_run(f"run of {_key(run)}", experiment="tiny")

    added = again.log_points(curve(range(1, 101)))

    assert added == 40
    assert logged(run) == [(step, 1 / step) for step in range(1, 101)]


def test_an_attempt_that_died_while_it_logged_leaves_no_gap(run):
    run.log_points(curve(range(1, 11)))

    open_run(f"run of {_key(run)}", experiment="tiny").log_points(
        curve(range(1, 21)) + curve([10, 20], name="validation_loss")
    )

    assert [step for step, _ in logged(run)] == list(range(1, 21))
    assert [step for step, _ in logged(run, "validation_loss")] == [10, 20]


def test_long_curves_are_logged_in_several_calls(run):
    assert run.log_points(curve(range(1, 2502))) == 2501
    assert len(logged(run)) == 2501


def test_each_kept_checkpoint_is_one_logged_model_with_its_loss(run):
    kept = [TrackedCheckpoint(location=f"lake/step-{n}", step=n, validation_loss=1 / n) for n in (10, 20)]
    run.log_points(curve([10, 20], name="validation_loss"))

    run.log_checkpoints(kept, "transformer_forecaster")
    run.log_checkpoints(kept, "transformer_forecaster")

    models = run.client.search_logged_models([run.experiment_id], f"source_run_id = '{run.run_id}'")
    found = {model.tags["trackside.checkpoint"]: {m.key: m.value for m in model.metrics} for model in models}
    assert len(models) == 2
    assert found == {
        "lake/step-10": {"checkpoint_validation_loss": 0.1},
        "lake/step-20": {"checkpoint_validation_loss": 0.05},
    }
    assert logged(run, "validation_loss") == [(10, 0.1), (20, 0.05)]


def test_metrics_after_a_checkpoint_are_the_runs_alone(run):
    run.log_checkpoints([TrackedCheckpoint(location="lake/a", step=1, validation_loss=1.0)], "t")

    run.log_points(curve([1, 2]))
    run.log_summary({"goodput/goodput": 0.5})

    (model,) = run.client.search_logged_models([run.experiment_id], f"source_run_id = '{run.run_id}'")
    assert {metric.key for metric in model.metrics} == {"checkpoint_validation_loss"}


def test_recipe_plan_and_data_are_on_the_run_and_may_be_said_twice(run):
    recipe = parse_recipe(
        {
            "name": "tiny",
            "source": "metropt3_windows",
            "label": "y",
            "model": {"kind": "table_classifier"},
            "gate": {"metric": "pr_auc", "minimum": 0.5},
        },
        where="tiny",
    )
    data = TrackedData(table="s3://lake/tables/metropt3", version=7, digest="d" * 64, counts={"train": 5})

    for _ in range(2):
        run.log_settings(recipe, {"workers": 2}, data)

    stored = run.client.get_run(run.run_id)
    (dataset,) = stored.inputs.dataset_inputs
    assert stored.data.params["train.epochs"] == "5"
    assert stored.data.params["plan.workers"] == "2"
    assert dataset.dataset.digest == "d" * 32
    assert '"delta_table_version": 7' in dataset.dataset.source


def test_the_same_examples_of_another_version_are_another_input():
    sources = []
    for version in (7, 8):
        run = open_run(f"same examples of {version}", experiment="tiny")
        data = TrackedData(table="s3://lake/tables/metropt3", version=version, digest="e" * 64, counts={})
        run.log_settings(load_recipe("metro_compressor"), {}, data)
        (dataset,) = run.client.get_run(run.run_id).inputs.dataset_inputs
        sources.append(json.loads(dataset.dataset.source)["delta_table_version"])

    assert sources == [7, 8]


def reports(number):
    return [
        DataReport(vehicle="07", day="2026-01-12", recording_id=f"trip {i}", address=f"https://airflow/docs/{i}.html")
        for i in range(number)
    ]


def logged_reports(run, tmp_path):
    path = run.client.download_artifacts(run.run_id, "data_reports.json", str(tmp_path))
    return json.loads(Path(path).read_text()), run.client.get_run(run.run_id).data.tags["mlflow.note.content"]


def test_the_reports_of_the_data_are_linked_and_may_be_said_twice(run, tmp_path):
    for _ in range(2):
        run.log_data_reports(reports(2))

    table, description = logged_reports(run, tmp_path)
    assert table["num_recordings"] == len(table["reports"]) == 2
    assert "[07 2026-01-12 trip 1](https://airflow/docs/1.html)" in description


def test_of_very_many_reports_some_are_linked_and_all_are_counted(run, tmp_path):
    run.log_data_reports(reports(3000))

    table, description = logged_reports(run, tmp_path)
    assert (table["num_recordings"], len(table["reports"])) == (3000, 1000)
    assert description.count("https://") == 20
    assert "of the 3000 recordings" in description


def test_a_description_that_a_person_wrote_stays(run):
    run.client.set_tag(run.run_id, "mlflow.note.content", "mine")

    run.log_data_reports(reports(1))

    assert run.client.get_run(run.run_id).data.tags["mlflow.note.content"] == "mine"


def test_a_run_left_running_by_a_kill_is_continued_and_finished(run):
    assert run.client.get_run(run.run_id).info.status == "RUNNING"

    again = open_run(f"run of {_key(run)}", experiment="tiny")
    again.finish("FINISHED")

    assert run.client.get_run(run.run_id).info.status == "FINISHED"


def test_the_machine_is_sampled_into_the_run(run, monkeypatch):
    import time

    with run.system_metrics():
        time.sleep(5)

    assert any(key.startswith("system/cpu") for key in run.client.get_run(run.run_id).data.metrics)


def test_the_page_of_a_training_is_found_by_its_key(run, monkeypatch):
    address = run_url(f"run of {_key(run)}", experiment="tiny")

    assert address.endswith(f"/#/experiments/{run.experiment_id}/runs/{run.run_id}")
    assert run_url("never", experiment="tiny") == ""


def test_a_server_that_is_down_is_worth_a_retry(monkeypatch, nobody):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", nobody)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(TrackingError, match=re.escape(nobody)) as raised:
        open_run("run", experiment="tiny")

    assert raised.value.retryable


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_not_worth_a_retry(monkeypatch, status, serve):
    address = serve(lambda *_: (status, b"no"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    with pytest.raises(TrackingAccessError, match=f"{address} refused.*check MLFLOW_TRACKING_USERNAME") as raised:
        open_run("run", experiment="tiny")

    assert not raised.value.retryable


def test_without_a_server_nothing_is_tracked_in_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI is not set"):
        open_run("run", experiment="tiny")

    assert list(tmp_path.iterdir()) == []


def _key(run):
    return run.client.get_run(run.run_id).data.tags["trackside.run_key"].removeprefix("run of ")
