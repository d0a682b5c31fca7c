from types import SimpleNamespace

import pytest

from pipelines.errors import NonFiniteLossError, TrackingError
from pipelines.ingest import landing
from pipelines.train import follow
from pipelines.train.engine import train_in_process
from pipelines.train.goodput import read_attempts
from pipelines.train.plan import open_store

# The database stores are the server's business; in this process their deprecations would be errors.
pytestmark = pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A server's database; making its tables takes seconds, so the tests of this module share it."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def server(database, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)


@pytest.fixture
def no_server(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(follow, "INTERVAL_S", 0.05)
    monkeypatch.setattr(follow, "PATIENCE_S", 0.0)


def client_and_run(plan):
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("tiny")
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`trackside.run_key` = '{plan.run_key}'")
    return client, run


@pytest.mark.usefixtures("server")
def test_a_training_is_one_finished_run_with_every_step_once(make):
    plan = make("tracked")

    outcome = train_in_process(plan, {"airflow.dag_id": "nightly"})

    client, run = client_and_run(plan)
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "train_loss")]
    assert (run.info.run_id, run.info.status) == (outcome.mlflow_run_id, "FINISHED")
    assert sorted(steps) == list(range(1, plan.total_steps + 1))
    assert run.data.tags["airflow.dag_id"] == "nightly"
    assert run.data.params["plan.workers"] == "1"
    assert 0 < run.data.metrics["goodput/goodput"] <= 1
    assert "figures/loss.png" in [file.path for file in client.list_artifacts(run.info.run_id, "figures")]


@pytest.mark.usefixtures("no_server")
def test_training_goes_on_while_mlflow_is_down_and_is_logged_when_it_is_back(make, monkeypatch, database, tmp_path):
    plan = make("down")
    with pytest.raises(TrackingError):
        train_in_process(plan)
    assert open_store(plan).latest().step == plan.total_steps

    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.chdir(tmp_path)
    train_in_process(plan)

    client, run = client_and_run(plan)
    assert len(client.get_metric_history(run.info.run_id, "train_loss")) == plan.total_steps
    assert len(read_attempts(plan.attempts)) == 1


@pytest.mark.usefixtures("server")
def test_a_training_with_a_verdict_is_a_failed_run_that_says_why(make, recipe):
    plan = make("diverged", recipe=recipe.override(learning_rate=1e30))

    with pytest.raises(NonFiniteLossError):
        train_in_process(plan)

    _, run = client_and_run(plan)
    assert run.info.status == "FAILED"
    assert "must be finite" in run.data.tags["trackside.failure"]


@pytest.mark.parametrize(
    ("links", "address"),
    [
        ({}, "s3://lake/docs/bundle/07/2026-01-12/b/sync/trip 1.html"),
        ({"airflow_documents": "https://a/docs/"}, "https://a/docs/bundle/07/2026-01-12/b/sync/trip%201.html"),
    ],
)
def test_reports_are_looked_for_where_they_are_shown(make, monkeypatch, links, address):
    monkeypatch.setenv("TRACKSIDE_LAKE", "s3://lake")
    monkeypatch.setattr(follow, "load_windows", lambda *_, **__: SimpleNamespace(vehicle_days=DAYS, table_version=3))
    published = [
        {"version": version, "docs": "s3://lake/docs/bundle/07/2026-01-12/b", "parts": [{**PART, "day": day}]}
        for version, day in ((3, "2026-01-12"), (4, "2026-01-12"), (3, "2026-01-13"))
    ]
    monkeypatch.setattr(landing, "published", lambda source: published)

    (report,) = follow._data_reports(make("linked"), links)

    assert (report.recording_id, report.address) == ("trip 1", address)


DAYS = (("07", "2026-01-12"),)
PART = {"vehicle": "07", "recording_id": "trip 1", "page": "sync/trip 1.html"}
