"""The stages as an orchestrator sees them: names and locations in, names and locations out.

Every step may be run twice: it writes to a place decided by its arguments and replaces what is there. Heavy libraries
are imported inside the steps, because Airflow reads this module each time it parses a DAG file.
"""

from typing import Any

from pipelines.progress import OnProgress, unheard


def source_of(uri: str) -> str:
    """Name of the source that a local file or folder belongs to."""
    from pipelines.ingest import sources

    return sources.detect_source(uri)


def sync(uri: str, *, out: str, on_progress: OnProgress = unheard) -> dict[str, Any]:
    """Synchronise a bundle or any known source into the folder `out`, without a lake; return the report.

    Args:
        uri: A bundle's folder, or a file or folder of a known source.
        out: Folder for `rows.parquet`, `aligned.parquet` and the reports.
        on_progress: Told the stage that begins and what it is about.
    """
    from pipelines.sync import folder

    return folder.sync(uri, out, on_progress)


def source_of_recipe(recipe: str) -> str:
    """Name of the source that a recipe trains on; raise `ConfigError` if there is no such recipe or it is wrong."""
    from pipelines.config import load_recipe

    return load_recipe(recipe).source


def land(uri: str, *, source: str = "auto") -> list[str]:
    """Copy recordings from a local file or folder into the landing area, manifest last; return their locations.

    Maintenance reports (`events.csv`: vehicle, kind, start_utc, end_utc) in the folder land beside them.
    """
    from pipelines.ingest import events, landing

    source = source_of(uri) if source == "auto" else source
    events.land(uri, source=source)
    return landing.land(uri, source=source)


def pending(prefix: str = "", *, again: bool = False) -> list[str]:
    """Return the landed, complete recordings whose present content was neither published nor quarantined yet.

    Args:
        prefix: `<source>`, `<source>/<vehicle>` or `<source>/<vehicle>/<day>`; empty means all.
        again: Return also those that were.
    """
    from pipelines.ingest import landing

    return landing.pending(prefix, again=again)


def vehicle_days(locations: list[str]) -> list[list[str]]:
    """Group landed recordings by vehicle and service day; each group is what `synchronise` takes."""
    from pipelines.ingest import landing

    return landing.vehicle_days(locations)


def outcome_of(location: str) -> dict[str, Any]:
    """What became of the present content of a landed recording: `{outcome, reasons, ...}`; empty if nothing yet."""
    from pipelines import storage
    from pipelines.ingest import landing

    found = landing.outcome_of(location)
    return found if found.get("digest") == storage.digest_of(location) else {}


def predict_clocks(
    exchanges: str,
    stamps: str,
    *,
    out: str,
    maps: str = "",
    on_progress: OnProgress = unheard,
) -> dict[str, Any]:
    """Map device stamps to UTC by a log of NTP exchanges alone; return what is to be said of each clock."""
    from pipelines.clocks import estimate

    return estimate.predict(exchanges, stamps, out, maps=maps, on_progress=on_progress)


def synchronise(locations: list[str]) -> str:
    """Read landed recordings of one vehicle and day, map clocks, align, locate, screen; return where they are staged.

    What cannot be read is put into quarantine with its report; if that is all, `RecordingError` is raised.
    """
    from pipelines import staging

    return staging.stage(locations)


def validate(staged: str) -> str:
    """Return `staged` if it passes the suites of its source; quarantine it and raise `DataQualityError` if not.

    Recordings and days that fail are quarantined one by one; those beside them go on.
    """
    from pipelines import judgement

    return judgement.judge(staged)


def document_path(staged: str, name: str = "index.html") -> str:
    """Path of a document about a staged batch below the lake's `docs` area; read with `read_document`.

    It follows from the location alone: it is asked for after a failed validation too.

    Args:
        staged: Location of the batch.
        name: `index.html`, the validation, or `sync.html`, the time and place of its recordings.
    """
    return "/".join([*staged.rstrip("/").split("/")[-4:], name])


def read_document(path: str) -> tuple[bytes, str] | None:
    """Return content and media type of a document below the lake's `docs` area; `None` if there is none.

    A path that leads out of the area is refused like one of nothing.
    """
    import mimetypes

    from pipelines import storage
    from pipelines.errors import ObjectNotFoundError

    if ".." in path.split("/"):
        return None
    try:
        content = storage.read_bytes(storage.lake("docs", path))
    except ObjectNotFoundError:
        return None
    return content, mimetypes.guess_type(path)[0] or "application/octet-stream"


def publish(staged: str, *, force: bool = False) -> dict[str, Any]:
    """Replace what passed in its source's table, in one commit; return `{table, version, rows_in, rows_out}` and more.

    What is published already stays as it is, and so does what is richer than its new delivery, unless forced.
    """
    from pipelines import publishing

    return publishing.publish(staged, force=force)


def mark_superseded() -> list[dict[str, Any]]:
    """Mark the registered versions and training runs whose data was published anew since; return those that are new."""
    from pipelines import lineage

    return lineage.mark_superseded()


def build_windows(*, recipe: str, run_key: str, workers: int | None = None, epochs: int | None = None) -> str:
    """Cut the newest table version into training, validation and held-out windows; return where they are."""
    from pipelines import runs

    return runs.build_windows(recipe, run_key=run_key, workers=workers, epochs=epochs)


def plan(windows: str) -> str:
    """Decide strategy, workers, batch and steps from the windows and the cluster; return the location of the plan."""
    from pipelines import runs

    return runs.plan(windows)


def submit_training(plan: str, *, links: dict[str, str] | None = None) -> str:
    """Start the training job of a plan on the engine, or find the one that runs already; return its submission id.

    The id is derived from the plan's run key and a generation; a job of this id that runs or succeeded is re-attached
    to, a failed one is followed by the next generation, which resumes from the newest good checkpoint.
    """
    from pipelines import storage
    from pipelines.train import jobs

    run_key = str(storage.read_json(plan)["run_key"])
    return jobs.attach_or_submit(jobs.RayJobs.from_environment(), run_key, plan, links=links)


def training_status(submission_id: str) -> dict[str, str]:
    """Return `{state, message}` of a training job; state is one of PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED.

    While it runs, the message says how far it has come.
    """
    from pipelines.train import jobs

    found = jobs.RayJobs.from_environment().status(submission_id)
    if found is None:
        return {"state": "FAILED", "message": f"the engine does not know {submission_id}: its head was started anew"}
    is_under_way = found.state == "RUNNING" and found.plan
    return {"state": found.state, "message": training_progress(found.plan) if is_under_way else found.message}


def training_progress(plan: str) -> str:
    """How far the training of a plan has come, for a person."""
    from pipelines import storage
    from pipelines.train.goodput import read_attempts

    attempts = read_attempts(storage.join(plan.rpartition("/")[0], "attempts"))
    total = storage.read_json(plan)["total_steps"]
    return f"step {attempts[-1].step} of {total}, attempt {len(attempts)}" if attempts else "workers are starting"


def stop_training(submission_id: str) -> None:
    """Stop a training job; it is no error if it has ended."""
    from pipelines.train import jobs

    jobs.RayJobs.from_environment().stop(submission_id)


def train(plan: str) -> str:
    """Train in this process with one worker, without the engine; return the location of the result."""
    from pipelines.train.engine import train_in_process
    from pipelines.train.plan import load_plan

    train_in_process(load_plan(plan))
    return training_result(plan)


def training_result(plan: str) -> str:
    """Location of the result of a finished training; raise the error that says why there is none."""
    from pipelines import storage
    from pipelines.train import outcome

    run = plan.rpartition("/")[0]
    outcome.read_outcome(run)
    return storage.join(run, outcome.RESULT)


def evaluate(plan: str) -> str:
    """Score the trained model on held-out data beside champion and baselines; return the location of the report."""
    from pipelines import assessment

    return assessment.evaluate(plan)


def register(plan: str, report: str) -> str:
    """Record the trained model with its evidence as a registry version; return `<model name>/<version>`."""
    from pipelines import assessment

    return assessment.register(plan, report)


def promote(
    candidate: str, report: str, *, key: str, decided_by: str, force: bool = False, reason: str = "", dag_run: str = ""
) -> dict[str, Any]:
    """Make the candidate champion if the gate passes; return the decision with its reasons.

    Args:
        candidate: `<model name>/<version>`.
        report: Location of its evaluation report.
        key: Names this act; a retry has the same.
        decided_by: Who asked for it.
        force: Whether to promote against the gate.
        reason: Why, for the ledger.
        dag_run: Run of the orchestrator.
    """
    from pipelines import assessment
    from pipelines.ledger import Act

    act = Act(key=key, decided_by=decided_by, reason=reason or "the gate passed", dag_run=dag_run)
    return assessment.promote(candidate, report, force=force, act=act)


def promote_version(name: str, version: str, *, key: str, decided_by: str, reason: str, force: bool) -> dict[str, Any]:
    """Let the gate decide about a registered version by the report that it was registered with."""
    from pipelines import registry

    report = registry.tag_of(name, version, "trackside.report")
    return promote(f"{name}/{version}", report, key=key, decided_by=decided_by, reason=reason, force=force)


def roll_back(name: str, version: str, *, key: str, decided_by: str, reason: str) -> dict[str, Any]:
    """Make an earlier version champion again (empty: the one before the present); return the line of the ledger."""
    from pipelines import promotion
    from pipelines.ledger import Act

    made = promotion.rollback(name, version, act=Act(key=key, decided_by=decided_by, reason=reason))
    return promotion.as_dict(made)


def model_history(name: str) -> list[dict[str, Any]]:
    """Who made which version champion, when and why: the lines of the ledger, oldest first."""
    from pipelines import promotion

    return promotion.history(name)


def verify_model(name: str) -> list[str]:
    """What does not agree between ledger and registry, in words."""
    from pipelines import promotion

    return promotion.verify(name)


def mlflow_run_url(plan: str) -> str:
    """Address of the MLflow run of a plan's training, for links; empty if it has none yet."""
    from pipelines import storage, tracking

    decided = storage.read_json(plan)
    return tracking.run_url(decided["run_key"], experiment=decided["recipe"]["name"])


def retrain(
    recipe: str,
    *,
    run_key: str,
    decided_by: str,
    workers: int | None = None,
    epochs: int | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """All steps from windows to promotion in this process; return the summary.

    With more than one worker the training runs on the engine, which must be there; else in this process.
    """
    from pipelines import tracking
    from pipelines.errors import ConfigError

    if not tracking.is_configured():
        raise ConfigError(
            "MLFLOW_TRACKING_URI is not set, so nothing could be registered; `trackside up` starts MLflow"
        )
    planned = plan(build_windows(recipe=recipe, run_key=run_key, workers=workers, epochs=epochs))
    _train_and_wait(planned)
    report = evaluate(planned)
    promote(register(planned, report), report, key=run_key, decided_by=decided_by, force=force)
    return summary(planned)


def summary(plan: str) -> dict[str, Any]:
    """What a finished run did: data in and out, training, scores, gate, champion."""
    from pipelines.summary import summarise

    return summarise(plan)


def score(model_uri: str, *, data: str, out: str) -> dict[str, Any]:
    """Apply a registered model to new rows and write one score a row or window; return counts."""
    from pipelines import scoring

    return scoring.score_file(model_uri, data=data, out=out)


def list_models(name: str = "") -> list[dict[str, Any]]:
    """All versions of one registered model, or of all, newest first."""
    from pipelines import registry

    return registry.list_versions(name)


def _train_and_wait(plan: str) -> None:
    import time

    from pipelines import storage

    if storage.read_json(plan)["workers"] == 1:
        train(plan)
        return
    submission_id = submit_training(plan)
    while training_status(submission_id)["state"] in {"PENDING", "RUNNING"}:
        time.sleep(1)
    training_result(plan)
