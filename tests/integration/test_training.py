"""Trainings on the real Ray, store and MLflow, with processes killed in the middle."""

import os
import signal
import time
import uuid

import psutil
import pytest

from pipelines import storage
from pipelines.config import parse_recipe
from pipelines.train.goodput import read_attempts
from pipelines.train.jobs import RayJobs, attach_or_submit
from pipelines.train.outcome import read_outcome
from pipelines.train.plan import make_plan, open_store
from pipelines.windows import save_windows

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


@pytest.fixture
def jobs(services, monkeypatch):
    for name, value in services.env.items():
        monkeypatch.setenv(name, value)
    storage._s3.cache_clear()
    yield RayJobs.from_environment()
    storage._s3.cache_clear()


@pytest.fixture
def plan(jobs, pressure_windows):
    """Two workers, about four hundred steps, a checkpoint every twenty."""
    windows = pressure_windows(train=2048, validation=256, length=64)
    recipe = parse_recipe(
        {
            "name": "killed_in_the_middle",
            "source": "bundle",
            "window": {
                "length_s": 64.0,
                "stride_s": 64.0,
                "rate_hz": 1.0,
                "channels": ["res_bar", "pipe_bar"],
                "targets": ["res_bar"],
            },
            "model": {"kind": "transformer_forecaster", "width": 64, "layers": 2},
            "train": {"workers": 2, "epochs": 25, "batch_per_worker": 64, "checkpoint_every_steps": 20},
            "gate": {"metric": "pr_auc", "minimum": 0.5},
        },
        where="test",
    )
    run_key = f"test/{uuid.uuid4().hex[:8]}"
    run = storage.lake("runs", run_key)
    made = make_plan(save_windows(storage.join(run, "windows"), windows), recipe, run_key, jobs.cluster(), location=run)
    made.save()
    return made


def test_a_killed_worker_costs_no_step_and_no_second_run(jobs, services, plan):
    job = attach_or_submit(jobs, plan.run_key, f"{plan.location}/plan.json", links={"airflow.dag_id": "test"})
    _wait_for_step(plan, jobs, job, 60)
    os.kill(_processes(services, "ray::RayTrainWorker")[0], signal.SIGKILL)

    assert _end(jobs, job) == "SUCCEEDED", jobs.logs(job)

    outcome = read_outcome(plan.location)
    assert outcome.attempts == 2
    assert read_attempts(plan.attempts)[1].resumed_from >= 60
    _assert_one_clean_run(plan, outcome)


def test_a_killed_driver_is_followed_by_a_job_that_resumes(jobs, services, plan):
    first = attach_or_submit(jobs, plan.run_key, f"{plan.location}/plan.json")
    _wait_for_step(plan, jobs, first, 60)
    for pid in _processes(services, f"pipelines.train.engine {plan.location}"):
        os.kill(pid, signal.SIGKILL)
    assert _end(jobs, first) == "FAILED"

    second = attach_or_submit(jobs, plan.run_key, f"{plan.location}/plan.json")
    assert _end(jobs, second) == "SUCCEEDED", jobs.logs(second)

    assert (first[-2:], second[-2:]) == ("g0", "g1")
    assert read_attempts(plan.attempts)[-1].resumed_from >= 60
    _assert_one_clean_run(plan, read_outcome(plan.location))


def _assert_one_clean_run(plan, outcome):
    """One MLflow run, finished, with every step once, and a logged model for each kept checkpoint."""
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name(plan.recipe.name)
    runs = client.search_runs([experiment.experiment_id], f"tags.`trackside.run_key` = '{plan.run_key}'")
    assert [run.info.run_id for run in runs] == [outcome.mlflow_run_id]
    assert runs[0].info.status == "FINISHED"
    assert runs[0].inputs.dataset_inputs[0].dataset.name == "bundle@3"
    steps = [metric.step for metric in client.get_metric_history(outcome.mlflow_run_id, "train_loss")]
    assert sorted(steps) == list(range(1, plan.total_steps + 1))
    models = client.search_logged_models([experiment.experiment_id], f"source_run_id = '{outcome.mlflow_run_id}'")
    kept = {checkpoint.location for checkpoint in open_store(plan).kept()}
    assert {model.tags["trackside.checkpoint"] for model in models} == kept


def _wait_for_step(plan, jobs, job, step):
    """Until a checkpoint of this step or a later one is in the store."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        kept = open_store(plan).kept()
        if kept and kept[-1].step >= step:
            return
        assert jobs.status(job).state in ("PENDING", "RUNNING"), jobs.logs(job)
        time.sleep(0.2)
    pytest.fail(f"no checkpoint of step {step} within 300 s: {jobs.logs(job)}")


def _end(jobs, job):
    """State of a job when it has ended."""
    deadline = time.monotonic() + 400
    while (state := jobs.status(job).state) in ("PENDING", "RUNNING"):
        assert time.monotonic() < deadline, jobs.logs(job)
        time.sleep(0.5)
    return state


def _processes(services, words):
    """Processes of these services whose command line has these words."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if words in " ".join(process.info["cmdline"] or []):
            try:
                belongs = process.environ().get("TRACKSIDE_HOME") == str(services.home)
            except psutil.Error:
                continue
            if belongs:
                found.append(process.pid)
    assert found, f"no process {words!r}"
    return found
