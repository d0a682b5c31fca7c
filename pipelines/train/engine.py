"""Run a plan: in this process, or on Ray with workers that may die.

`python -m pipelines.train.engine PLAN` is the driver of a Ray job. Ray starts the workers and starts them again when
one is lost; everything that must survive (checkpoints, curves, records of the attempts, the result) goes through the
store, so a driver that dies loses nothing either: the next job of the same plan resumes.

The driver alone talks to MLflow. It follows the checkpoints as they appear in the store, so workers need neither
MLflow nor its credentials, and training goes on while MLflow is down.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from pipelines import tracking
from pipelines.errors import TracksideError, TrainingLostError
from pipelines.storage import join
from pipelines.train import follow
from pipelines.train.checkpoint import read_curves
from pipelines.train.goodput import goodput, read_attempts
from pipelines.train.outcome import Outcome, clear_failure, read_failure, save_failure
from pipelines.train.plan import PLAN, Job, Plan, load_plan, open_store

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

COLLECTIVE_TIMEOUT_S = 60
"""A worker that has not answered for so long is lost. Ray's default is half an hour, which a silent hang would cost."""

RAY_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "60",
    # For the placement alone: ends the wait for a node that is dead but still counted; the next try counts anew.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10",
    # A process of its own, which costs seconds at every start, for a notice that nobody here reads.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def main() -> None:
    """Drive a Ray job; the exit status says whether the training is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", help="location of plan.json")
    parser.add_argument("--submission", required=True, help="id of this job")
    parser.add_argument("--submitted-at", type=float, required=True, help="when it was asked for, seconds since 1970")
    parser.add_argument("--links", type=json.loads, default={}, help="JSON object of tags for the MLflow run")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    job = Job(submission=arguments.submission, submitted_at_s=arguments.submitted_at, driver_at_s=time.time())
    try:
        train_on_ray(load_plan(arguments.plan), job, arguments.links)
    except TracksideError as err:
        log.error("%s: %s", type(err).__name__, err)
        sys.exit(1)


def train_on_ray(plan: Plan, job: Job, links: Mapping[str, str]) -> Outcome:
    """Train with the plan's workers on the Ray cluster that this process is a job of."""
    return _conducted(plan, links, lambda: _run_workers(plan, job))


def train_in_process(plan: Plan, links: Mapping[str, str] | None = None) -> Outcome:
    """Train with one worker in this process, without Ray; the global batch stays that of the plan."""
    from pipelines.train.worker import work  # imports torch, which the driver of a Ray job does without

    now_s = time.time()
    job = Job(submission=f"pid-{os.getpid()}-{now_s:.0f}", submitted_at_s=now_s, driver_at_s=now_s)
    device = "cuda:0" if plan.backend == "nccl" else "cpu"
    return _conducted(plan, links or {}, lambda: work(plan, job, device))


def _conducted(plan: Plan, links: Mapping[str, str], run: Callable[[], None]) -> Outcome:
    """Everything around the workers: refuse foreign checkpoints, keep MLflow up to date, leave the outcome behind."""
    clear_failure(plan.location)
    store = open_store(plan)
    is_tracked = tracking.is_configured()
    try:
        newest = store.latest()
        if newest is None or newest.step < plan.total_steps:
            with follow.following(plan, store, links) if is_tracked else nullcontext():
                run()
            if failure := read_failure(plan.location):
                raise failure
    except TracksideError as err:
        if not err.retryable:
            save_failure(plan.location, err)
            if is_tracked:
                follow.fail(plan, links, str(err))
        raise
    attempts = read_attempts(plan.attempts)
    spent = goodput(attempts, finished_at_s=time.time())
    summary = {f"goodput/{name}": value for name, value in asdict(spent).items()} | {"attempts": len(attempts)}
    best, newest_points = store.best(), read_curves(store.kept()[-1])
    outcome = Outcome(
        run_key=plan.run_key,
        steps=plan.total_steps,
        train_loss=[point.value for point in newest_points if point.name == "train_loss"][-1],
        validation_loss=best.validation_loss,
        checkpoint=best.location,
        workers=attempts[-1].workers,
        attempts=len(attempts),
        goodput=asdict(spent),
        mlflow_run_id=follow.complete(plan, store, links, summary) if is_tracked else "",
    )
    outcome.save(plan.location)
    log.info("%s done: %s", plan.run_key, outcome)
    return outcome


def _run_workers(plan: Plan, job: Job) -> None:
    """Start the workers on Ray and return when they are done; Ray replaces those that are lost."""
    os.environ.update(RAY_SETTINGS)
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError

    from pipelines.train.gang import ProcessGroup, Trainer

    ray.init(address="auto", log_to_driver=True, configure_logging=False)
    with tempfile.TemporaryDirectory(prefix="ray-train-") as scratch:  # Ray's own checkpoints are not used
        trainer = Trainer(
            _work_on_ray,
            train_loop_config={"plan": join(plan.location, PLAN), "job": asdict(job)},
            backend_config=ProcessGroup(backend=plan.backend, timeout_s=COLLECTIVE_TIMEOUT_S),
            scaling_config=ScalingConfig(num_workers=plan.workers, use_gpu=plan.backend == "nccl"),
            run_config=RunConfig(
                name=job.submission,
                storage_path=scratch,
                failure_config=FailureConfig(max_failures=plan.recipe.train.max_failures),
            ),
        )
        try:
            trainer.fit()
        except TrainingFailedError as err:
            raise TrainingLostError(f"{plan.run_key}: Ray gave up: {str(err)[-1000:]}") from err


def _work_on_ray(config: dict[str, Any]) -> None:
    """What Ray runs in each worker."""
    from pipelines.train.worker import work

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    plan, device = load_plan(config["plan"]), "cpu"
    if plan.backend == "nccl":
        from ray.train.torch import get_device

        device = str(get_device())
    work(plan, Job(**config["job"]), device)


if __name__ == "__main__":
    from pipelines.train import engine  # so that workers unpickle functions of a module, not of `__main__`

    engine.main()
