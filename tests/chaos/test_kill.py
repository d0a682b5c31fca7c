"""The training dies in the middle; the DAG still ends well, with one MLflow run and no step doubled or missing."""

import signal
import time

import mlflow
import pytest

from pipelines import steps, storage
from tests.integration.main_job import (
    RETRAIN_DEADLINE_S,
    airflow_of,
    connected,
    logged_steps,
    mlflow_runs,
    processes_of,
    publish_here,
    small_fleet,
)

pytestmark = pytest.mark.services


@pytest.fixture(scope="module", autouse=True)
def connection(services):
    with connected(services.env):
        yield


@pytest.fixture(scope="module")
def airflow(services, tmp_path_factory, connection):
    publish_here(small_fleet(tmp_path_factory.mktemp("fleet")))
    return airflow_of(services.env)


@pytest.mark.parametrize("victim", ["pipelines.train.engine", "ray::RayTrainWorker"], ids=["driver", "worker"])
def test_a_killed_training_goes_on_in_the_same_run(services, airflow, victim):
    run_id = airflow.trigger("nightly_retrain", {"recipe": "smoke", "epochs": 150})
    plan = _wait_for(lambda: _returned(airflow, run_id, "plan"))
    _wait_for(lambda: _checkpoints(plan))

    victims = processes_of(services.env, victim)
    victims[-1].send_signal(signal.SIGKILL)
    for _ in airflow.follow("nightly_retrain", run_id, deadline_s=RETRAIN_DEADLINE_S):
        pass

    summary = steps.summary(plan)
    counts = logged_steps(summary["mlflow_run"])
    assert airflow.state("nightly_retrain", run_id) == "success"
    assert len(mlflow_runs("smoke", mlflow.get_run(summary["mlflow_run"]).data.tags["trackside.run_key"])) == 1
    assert mlflow.get_run(summary["mlflow_run"]).data.metrics["attempts"] == 2
    assert set(counts.values()) == {1}
    assert len(counts) == summary["facts"]["steps"] == max(counts) - min(counts) + 1


def _returned(airflow, run_id, task_id):
    if {task.task_id: task.state for task in airflow.tasks("nightly_retrain", run_id)}.get(task_id) != "success":
        return None
    return airflow.returned("nightly_retrain", run_id, task_id)


def _checkpoints(plan):
    return [
        name
        for name in storage.list_objects(storage.join(plan.rpartition("/")[0], "checkpoints"))
        if "manifest" in name
    ]


def _wait_for(look, deadline_s=300):
    """What `look` returns once it is something."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"nothing came within {deadline_s} s")
