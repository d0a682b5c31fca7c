"""The MLflow side of a training: one run each, whatever died on the way.

The run is found by its tag `trackside.run_key` before it is created, so all attempts and retries share it. Curves
come from the checkpoints: only what is behind a checkpoint is logged, and only steps later than the last one that
MLflow has, so no step is doubled by an attempt that repeats it and none is missing when an attempt dies between a
checkpoint and its logging.

MLflow takes seconds to import, so this module does it inside its functions. Only `MlflowClient` is used, with the run
named in each call: the module-level functions attach metrics to whatever model was logged last.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pipelines.config import Recipe
from pipelines.errors import ConfigError, TrackingAccessError, TrackingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUN_KEY = "trackside.run_key"
"""Tag that a training's run is found by."""

CHECKPOINT = "trackside.checkpoint"
"""Tag of a logged model: where its weights are."""

DATA_REPORTS = "data_reports.json"
NUM_REPORTS_SHOWN = 20
MAX_REPORTS = 1000
"""A training may have seen years of recordings; the table version that the run names has all of them."""

_DESCRIPTION = "mlflow.note.content"

MAX_METRICS_PER_CALL = 1000
MAX_PARAMS_PER_CALL = 100


@dataclass(frozen=True, slots=True)
class Point:
    """One measured value of a training curve."""

    name: str
    step: int
    value: float
    time_ms: int
    """When it was measured, milliseconds since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedData:
    """The table version that a training saw."""

    table: str
    version: int
    digest: str
    """Fingerprint of the examples that were cut from it."""

    counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataReport:
    """The report about time and place of one recording that a training saw."""

    vehicle: str
    day: str
    recording_id: str
    address: str
    """What a browser opens, or where it is stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedCheckpoint:
    """A checkpoint that is kept."""

    location: str
    step: int
    validation_loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """The run of a training, found again."""

    run_id: str
    run_key: str
    tags: Mapping[str, str]

    def set_tags(self, tags: Mapping[str, str]) -> list[str]:
        """Set tags; return what was changed: the run's name, or nothing."""
        if tags.items() <= self.tags.items():
            return []
        with translated():
            for name, value in tags.items():
                _client().set_tag(self.run_id, name, value)
        return [self.run_key]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedRun:
    """The MLflow run of a training."""

    client: Any
    run_id: str
    experiment_id: str
    last_step: dict[str, int] = field(default_factory=dict)
    """Last step that MLflow has of each curve; filled when the curve is first logged."""

    def log_settings(self, recipe: Recipe, plan: Mapping[str, Any], data: TrackedData) -> None:
        """Log the recipe and the plan as parameters and the data as input; saying it again changes nothing."""
        from mlflow.data.delta_dataset_source import DeltaDatasetSource
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param

        values = {**_flat(recipe.model_dump(mode="json")), **_flat({"plan": plan})}
        params = [Param(key, str(value)) for key, value in values.items()]
        source = DeltaDatasetSource(path=data.table, delta_table_version=data.version)
        dataset = Dataset(
            name=f"{recipe.source}@{data.version}",  # of one name and digest, MLflow keeps only the first source
            digest=data.digest[:32],
            source_type="delta_table",
            source=source.to_json(),
            profile=json.dumps(dict(data.counts)),
        )
        with translated():
            for start in range(0, len(params), MAX_PARAMS_PER_CALL):
                self.client.log_batch(self.run_id, params=params[start : start + MAX_PARAMS_PER_CALL])
            self.client.log_inputs(self.run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])

    def log_points(self, points: Sequence[Point]) -> int:
        """Log those points that are later than what MLflow has of their curve; return how many that were."""
        from mlflow.entities import Metric

        with translated():
            for name in {point.name for point in points} - self.last_step.keys():
                history = self.client.get_metric_history(self.run_id, name)
                self.last_step[name] = max((metric.step for metric in history), default=-1)
            new = [point for point in points if point.step > self.last_step[point.name]]
            for start in range(0, len(new), MAX_METRICS_PER_CALL):
                batch = new[start : start + MAX_METRICS_PER_CALL]
                metrics = [Metric(point.name, point.value, point.time_ms, point.step) for point in batch]
                self.client.log_batch(self.run_id, metrics=metrics)
                self.last_step.update((point.name, point.step) for point in batch)
        return len(new)

    def log_checkpoints(self, checkpoints: Sequence[TrackedCheckpoint], model_type: str) -> None:
        """Record each kept checkpoint as a logged model with its step and validation loss, once."""
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus

        with translated():
            found = self.client.search_logged_models(
                [self.experiment_id], filter_string=f"source_run_id = '{self.run_id}'"
            )
            known = {model.tags.get(CHECKPOINT) for model in found if model.status == LoggedModelStatus.READY}
            for checkpoint in checkpoints:
                if checkpoint.location in known:
                    continue
                model = self.client.create_logged_model(
                    self.experiment_id,
                    name=f"step-{checkpoint.step:08d}",
                    source_run_id=self.run_id,
                    tags={CHECKPOINT: checkpoint.location},
                    params={"step": str(checkpoint.step)},
                    model_type=model_type,
                )
                # A name of its own: the same metric would put a second value of this step into the run's curve.
                self.client.log_metric(
                    self.run_id,
                    "checkpoint_validation_loss",
                    checkpoint.validation_loss,
                    step=checkpoint.step,
                    model_id=model.model_id,
                )
                self.client.log_outputs(self.run_id, [LoggedModelOutput(model.model_id, checkpoint.step)])
                self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)

    def log_data_reports(self, reports: Sequence[DataReport]) -> None:
        """Link the reports of the recordings that were trained on: some in the description, many in an artifact.

        A description that somebody has written stays.
        """
        shown = [f"- [{r.vehicle} {r.day} {r.recording_id}]({r.address})" for r in reports[:NUM_REPORTS_SHOWN]]
        head = f"Time and place of the {len(reports)} recordings that this was trained on"
        more = f", the first {len(shown)}; more in `{DATA_REPORTS}`:" if len(shown) < len(reports) else ":"
        with translated():
            table = {"num_recordings": len(reports), "reports": [asdict(r) for r in reports[:MAX_REPORTS]]}
            self.client.log_dict(self.run_id, table, DATA_REPORTS)
            if _DESCRIPTION not in self.client.get_run(self.run_id).data.tags:
                self.client.set_tag(self.run_id, _DESCRIPTION, "\n".join([head + more, "", *shown]))

    def log_curves(self, points: Sequence[Point]) -> None:
        """Draw the loss curves and attach the figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        for name in ("train_loss", "validation_loss"):
            curve = [(point.step, point.value) for point in points if point.name == name]
            if curve:
                axes.plot(*zip(*curve, strict=True), label=name.replace("_", " "))
        axes.set(xlabel="step", ylabel="loss")
        axes.legend()
        self.log_figure(figure, "figures/loss.png")

    def log_figure(self, figure: "Figure", name: str) -> None:
        """Attach a figure under the path `name`."""
        with translated():
            self.client.log_figure(self.run_id, figure, name)

    def log_summary(self, values: Mapping[str, float]) -> None:
        """Log numbers that the run has only one of."""
        with translated():
            for name, value in values.items():
                self.client.log_metric(self.run_id, name, value, step=0)

    def finish(self, status: Literal["FINISHED", "FAILED", "KILLED"], tags: Mapping[str, str] | None = None) -> None:
        """Say how it ended."""
        with translated():
            for key, value in (tags or {}).items():
                self.client.set_tag(self.run_id, key, value)
            self.client.set_terminated(self.run_id, status)

    @contextmanager
    def system_metrics(self) -> Iterator[None]:
        """Sample processor, memory, disk and network of this machine into the run."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        monitor = SystemMetricsMonitor(self.run_id, sampling_interval=2, resume_logging=True)
        monitor.start()
        try:
            yield
        finally:
            monitor.finish()


def open_run(run_key: str, *, experiment: str, tags: Mapping[str, str] | None = None) -> TrackedRun:
    """Find the run of a training, or create it, and mark it as running.

    Args:
        run_key: Identity of the logical training.
        experiment: Name of the experiment; created if need be.
        tags: More tags, for example links back to the orchestrator.
    """
    with translated():
        client = _client()
        experiment_id = _experiment_id(client, experiment)
        run = _find(client, experiment_id, run_key)
        if run is None:
            client.create_run(experiment_id, run_name=run_key, tags={RUN_KEY: run_key})
            # Looked up again, because two may have created one at the same time: then both take the older.
            run = _find(client, experiment_id, run_key)
        for key, value in (tags or {}).items():
            client.set_tag(run.info.run_id, key, value)
        client.update_run(run.info.run_id, status="RUNNING")
    return TrackedRun(client=client, run_id=run.info.run_id, experiment_id=experiment_id)


def run_url(run_key: str, *, experiment: str) -> str:
    """Address of a training's page in MLflow; empty if it has no run yet."""
    with translated():
        client = _client()
        experiment_id = _experiment_id(client, experiment)
        run = _find(client, experiment_id, run_key)
    if run is None:
        return ""
    return f"{os.environ['MLFLOW_TRACKING_URI'].rstrip('/')}/#/experiments/{experiment_id}/runs/{run.info.run_id}"


def links_of(run_key: str, *, experiment: str) -> dict[str, str]:
    """Links back to the orchestrator that the run of a training carries (tags that begin with `airflow`)."""
    with translated():
        client = _client()
        run = _find(client, _experiment_id(client, experiment), run_key)
    return {} if run is None else {name: str(v) for name, v in run.data.tags.items() if name.startswith("airflow")}


def trainings() -> Iterator[Training]:
    """All runs of trainings, whatever their experiment."""
    with translated():
        client = _client()
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        token = ""
        while experiments:
            page = client.search_runs(experiments, filter_string=f"tags.`{RUN_KEY}` LIKE '%'", page_token=token or None)
            for run in page:
                yield Training(run_id=run.info.run_id, run_key=run.data.tags[RUN_KEY], tags=run.data.tags)
            token = page.token
            if not token:
                return


def is_configured() -> bool:
    """Whether there is an MLflow server to log to."""
    return bool(os.environ.get("MLFLOW_TRACKING_URI"))


def _client() -> Any:
    """A client that gives up within a minute; who calls decides how long to go on trying."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    from mlflow import MlflowClient

    return MlflowClient()


def _experiment_id(client: Any, name: str) -> str:
    from mlflow.exceptions import MlflowException

    if found := client.get_experiment_by_name(name):
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name))
    except MlflowException as err:
        if err.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        return str(client.get_experiment_by_name(name).experiment_id)


def _find(client: Any, experiment_id: str, run_key: str) -> Any:
    """The oldest run of a training, or `None`."""
    runs = client.search_runs(
        [experiment_id],
        filter_string=f'tags.`{RUN_KEY}` = "{run_key}"',
        order_by=["attributes.start_time ASC", "attributes.run_id ASC"],
        max_results=1,
    )
    return runs[0] if runs else None


@contextmanager
def translated() -> Iterator[None]:
    """Say in our words what MLflow answered: not allowed, or not now.

    Raises:
        ConfigError: No server is named; MLflow would start a database of its own in the working directory.
    """
    from mlflow.exceptions import MlflowException

    if not is_configured():
        raise ConfigError("MLFLOW_TRACKING_URI is not set; `trackside up` starts a server, and its commands find it")
    try:
        yield
    except MlflowException as err:
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if err.get_http_status_code() in (401, 403):
            raise TrackingAccessError(
                f"MLflow at {uri} refused: {str(err)[:200]}; "
                "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            ) from err
        raise TrackingError(f"MLflow at {uri}: {str(err)[:300]}") from err


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys.

    Example:
        >>> _flat({"train": {"epochs": 3}, "seed": 0})
        {'train.epochs': 3, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
