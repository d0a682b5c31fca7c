"""Keep MLflow up to date with a training while it runs, from the checkpoints that it leaves in the store."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import quote

from pipelines import storage, tracking
from pipelines.errors import TracksideError
from pipelines.ingest import landing
from pipelines.tracking import DataReport, TrackedCheckpoint, TrackedData, TrackedRun
from pipelines.train.checkpoint import CheckpointStore, read_curves
from pipelines.train.plan import Plan
from pipelines.windows import load_windows

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
PATIENCE_S = 120.0
"""How long an MLflow that is down may delay the end of a training."""


@contextmanager
def following(plan: Plan, store: CheckpointStore, links: Mapping[str, str]) -> Iterator[None]:
    """Log each new checkpoint's part of the curves while the body runs; an MLflow that is down does not disturb it."""
    stop = threading.Event()
    thread = threading.Thread(target=_follow, args=(plan, store, links, stop), name="mlflow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def complete(plan: Plan, store: CheckpointStore, links: Mapping[str, str], summary: Mapping[str, float]) -> str:
    """Bring the MLflow run of a finished training to its end and return its id; waits for a server that is down."""
    checkpoints = store.kept()
    points = read_curves(checkpoints[-1])
    kept = [TrackedCheckpoint(location=c.location, step=c.step, validation_loss=c.validation_loss) for c in checkpoints]

    def attempt() -> str:
        run = _open(plan, links)
        run.log_points(points)
        run.log_checkpoints(kept, plan.recipe.model.kind)
        run.log_curves(points)
        if reports := _data_reports(plan, links):
            run.log_data_reports(reports)
        run.log_summary(summary)
        run.finish("FINISHED")
        return run.run_id

    return _patiently(attempt)


def fail(plan: Plan, links: Mapping[str, str], reason: str) -> None:
    """Mark the MLflow run of a training that ended with a verdict; the verdict matters more than the mark."""
    try:
        _patiently(lambda: _open(plan, links).finish("FAILED", {"trackside.failure": reason}))
    except TracksideError as err:
        log.warning("MLflow was not told of the failure: %s", err)


def _follow(plan: Plan, store: CheckpointStore, links: Mapping[str, str], stop: threading.Event) -> None:
    """Until told to stop, wait for a new checkpoint and log it.

    Before the first checkpoint MLflow is not even imported, so that its import does not delay the start of the workers.
    """
    logged = 0
    run: TrackedRun | None = None
    with ExitStack() as sampling:
        while not stop.wait(INTERVAL_S):
            try:
                checkpoints = store.kept()
                if not checkpoints or checkpoints[-1].step <= logged:
                    continue
                if run is None:
                    run = _open(plan, links)
                    sampling.enter_context(run.system_metrics())
                run.log_points(read_curves(checkpoints[-1]))
                logged = checkpoints[-1].step
            except Exception as err:  # MLflow's client lets much through; whatever it is, `complete` does it all again
                log.warning("not logged now, but with the next checkpoint: %s", err)


def _open(plan: Plan, links: Mapping[str, str]) -> TrackedRun:
    run = tracking.open_run(plan.run_key, experiment=plan.recipe.name, tags=links)
    windows = load_windows(plan.windows, parts=())
    data = TrackedData(table=windows.table, version=windows.table_version, digest=windows.digest, counts=windows.counts)
    run.log_settings(plan.recipe, plan.decisions(), data)
    return run


def _data_reports(plan: Plan, links: Mapping[str, str]) -> list[DataReport]:
    """Where the reports of the recordings are that the plan's windows were cut from, as published for them.

    Airflow's server shows them, so that is where they are looked for if Airflow started the training.
    """
    windows = load_windows(plan.windows, parts=())
    seen = set(windows.vehicle_days)
    shown_at = links.get("airflow_documents")
    return [
        DataReport(
            vehicle=part["vehicle"],
            day=part["day"],
            recording_id=part["recording_id"],
            address=_address(storage.join(evidence["docs"], part["page"]), shown_at),
        )
        for evidence in landing.published(plan.recipe.source)
        if evidence["version"] <= windows.table_version
        for part in evidence["parts"]
        if "page" in part and (part["vehicle"], part["day"]) in seen
    ]


def _address(location: str, shown_at: str | None) -> str:
    """Address of a document of the lake: below `shown_at`, or where it is stored."""
    return shown_at + quote(location.removeprefix(storage.lake("docs") + "/")) if shown_at else location


def _patiently(act: Callable[[], str | None]) -> str:
    """Repeat `act` while MLflow is down, for two minutes."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act() or ""
        except TracksideError as err:
            if not err.retryable or time.monotonic() > deadline:
                raise
            log.warning("trying again in 5 s: %s", err)
            time.sleep(5)
