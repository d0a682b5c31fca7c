"""What tests of the main job share: a small landed fleet, the real scheduler, and what MLflow has of a run."""

from collections import Counter
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import mlflow
import psutil
import pytest

from pipelines import steps, storage
from pipelines.airflow_client import AirflowClient
from pipelines.services.home import open_home
from pipelines.simulate import simulate_fleet

INGEST_DEADLINE_S = 600
RETRAIN_DEADLINE_S = 900


@contextmanager
def connected(env):
    """Reach the services with the variables `env`; afterwards this process knows nothing of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        storage.forget_connections()
        mlflow.set_tracking_uri(env["MLFLOW_TRACKING_URI"])
        yield
        mlflow.set_tracking_uri(None)
    storage.forget_connections()


def airflow_of(env):
    return AirflowClient(
        env["TRACKSIDE_AIRFLOW_URL"],
        username=env["TRACKSIDE_AIRFLOW_USERNAME"],
        password=env["TRACKSIDE_AIRFLOW_PASSWORD"],
    )


def small_fleet(folder, *, vehicles=2, days=4, seed=3, start_date=date(2026, 1, 5)):
    """Short trips with slow vibration and no faults of clocks or rows: those that a test is about, it puts there."""
    short = {"trip_minutes": 12, "aba_rate_hz": 50, "clean": True}
    simulate_fleet(folder, seed=seed, vehicles=vehicles, days=days, start_date=start_date, **short)
    return folder


def run_dag(airflow, dag_id, conf, deadline_s):
    """Run a DAG to its end; return the run's id, its state and the last state of each task instance."""
    run_id = airflow.trigger(dag_id, conf)
    tasks = []
    for seen in airflow.follow(dag_id, run_id, deadline_s=deadline_s):
        tasks = seen
    return run_id, airflow.state(dag_id, run_id), {task.label: task.state for task in tasks}


def ingest(airflow, prefix="bundle"):
    return run_dag(airflow, "ingest_sensors", {"prefix": prefix, "wait_s": 60}, INGEST_DEADLINE_S)


def publish_here(folder):
    """Publish a fleet without Airflow, for tests that are about what comes after."""
    for batch in steps.vehicle_days(steps.land(str(folder))):
        steps.publish(steps.validate(steps.synchronise(batch)))


def mlflow_runs(recipe, run_key):
    """All MLflow runs of a training; there should be one."""
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(recipe)
    return client.search_runs([experiment.experiment_id], f"tags.`trackside.run_key` = '{run_key}'")


def logged_steps(run_id, curve="train_loss"):
    """How often each step of a curve was logged."""
    return Counter(metric.step for metric in mlflow.MlflowClient().get_metric_history(run_id, curve))


def processes_of(env, words):
    """Processes of this instance whose command line contains `words`."""
    instance = open_home(Path(env["TRACKSIDE_HOME"])).instance
    found = []
    for process in psutil.process_iter():
        try:
            if words in " ".join(process.cmdline()) and process.environ().get("TRACKSIDE_INSTANCE") == instance:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
