"""The model registry: versions that carry their evidence, and the rules by which one may become champion.

A version is exported with `torch.export` (MLflow's `pt2` format), so that loading one never runs a stranger's pickle.
What a scorer must know beside the network (recipe, columns, alarm threshold) travels in the model's metadata.
"""

import json
import logging
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from pipelines import tracking
from pipelines.config import GateConfig, Recipe, parse_recipe
from pipelines.errors import ObjectNotFoundError
from pipelines.evaluate import Report, Scored, beats
from pipelines.models import in_batches

os.environ.setdefault("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
import mlflow  # after the two switches, which are read at its import
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

CHAMPION = "champion"

_UNKNOWN = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}
"""What MLflow answers about a name, a version or an alias that it does not have."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule of the gate, answered."""

    name: str
    passed: bool
    detail: str
    """The numbers that decided."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A registered model, ready to score raw values."""

    uri: str
    module: nn.Module
    recipe: Recipe
    columns: tuple[str, ...]
    """Columns of its input, in order."""

    shape: tuple[int, ...]
    """Shape of one example."""

    threshold: float
    """Scores at or above it are anomalies."""

    def score(self, x: np.ndarray) -> np.ndarray:
        """Return ``score_N`` of examples in raw physical values; larger is more unusual."""
        return in_batches(self.module, x).numpy()


def register(
    model: nn.Module,
    *,
    recipe: Recipe,
    run_id: str,
    example_x: np.ndarray,
    columns: tuple[str, ...],
    threshold: float,
    tags: dict[str, str],
) -> str:
    """Export `model`, attach it to its MLflow run and make it a version of the registered model `recipe.name`.

    Args:
        model: The trained network, in evaluation mode.
        recipe: What it was made from.
        run_id: MLflow run of its training.
        example_x: At least two examples, so that the batch dimension stays free in the export.
        columns: Columns of the input, in order.
        threshold: Alarm threshold of its scores.
        tags: Evidence that the version carries.

    Returns:
        The version. A run that already has one keeps it: registering twice is registering once.
    """
    with tracking.translated():
        client = mlflow.MlflowClient()
        if versions := client.search_model_versions(f"name = '{recipe.name}' and run_id = '{run_id}'"):
            return str(versions[0].version)
        with torch.no_grad():
            score_N = model(torch.from_numpy(example_x)).numpy()
        with mlflow.start_run(run_id=run_id):
            info = mlflow.pytorch.log_model(
                model,
                name="model",
                signature=mlflow.models.infer_signature(example_x, score_N),
                input_example=example_x,
                serialization_format="pt2",
                pip_requirements=[f"torch=={torch.__version__.split('+')[0]}"],
                metadata={
                    "recipe": recipe.model_dump_json(),
                    "columns": json.dumps(columns),
                    "shape": json.dumps(example_x.shape[1:]),
                    "threshold": threshold,
                },
            )
        version = mlflow.register_model(info.model_uri, recipe.name, tags=tags)
    logger.info("registered %s version %s from run %s", recipe.name, version.version, run_id)
    return str(version.version)


def load(uri: str) -> LoadedModel:
    """Load a registered model, for example `models:/hot_bearing@champion` or `models:/hot_bearing/3`."""
    if not uri.startswith("models:/"):
        raise _no_model(uri)
    with tracking.translated():
        try:
            info = mlflow.models.get_model_info(uri)
        except MlflowException as err:
            if err.error_code in _UNKNOWN:
                raise _no_model(uri) from err
            raise
        if "recipe" not in (info.metadata or {}):
            raise ObjectNotFoundError(f"{uri}: not a model of this project: its metadata has no recipe")
        module = mlflow.pytorch.load_model(uri)
    return LoadedModel(
        uri=uri,
        module=module,
        recipe=parse_recipe(json.loads(info.metadata["recipe"]), where=uri),
        columns=tuple(json.loads(info.metadata["columns"])),
        shape=tuple(json.loads(info.metadata["shape"])),
        threshold=float(info.metadata["threshold"]),
    )


def champion_version(name: str) -> str:
    """Version that the alias `champion` of a registered model points to; empty if there is none."""
    with tracking.translated():
        try:
            return str(mlflow.MlflowClient().get_model_version_by_alias(name, CHAMPION).version)
        except MlflowException as err:
            if err.error_code in _UNKNOWN:
                return ""
            raise


def set_champion(name: str, version: str) -> None:
    """Point the alias `champion` of a registered model at a version; only `promotion` decides about that."""
    with tracking.translated():
        mlflow.MlflowClient().set_registered_model_alias(name, CHAMPION, version)


def model_tag(name: str, tag: str) -> str:
    """A tag of a registered model as a whole; empty if there is no such model or tag."""
    with tracking.translated():
        try:
            return str(mlflow.MlflowClient().get_registered_model(name).tags.get(tag, ""))
        except MlflowException as err:
            if err.error_code in _UNKNOWN:
                return ""
            raise


def set_model_tag(name: str, tag: str, value: str) -> None:
    """Set a tag of a registered model as a whole."""
    with tracking.translated():
        mlflow.MlflowClient().set_registered_model_tag(name, tag, value)


def set_tags(name: str, version: str, tags: dict[str, str]) -> None:
    """Set tags of a registered version."""
    with tracking.translated():
        client = mlflow.MlflowClient()
        for tag, value in tags.items():
            client.set_model_version_tag(name, version, tag, value)


def run_of(name: str, version: str) -> str:
    """MLflow run that a registered version came from; raise `ObjectNotFoundError` if there is no such version."""
    return str(_version(name, version).run_id)


def tag_of(name: str, version: str, tag: str) -> str:
    """A tag of a registered version; raise `ObjectNotFoundError` if there is no such version or tag."""
    tags = _version(name, version).tags
    if tag not in tags:
        raise ObjectNotFoundError(f"{name} version {version} has no tag {tag!r}: it was not registered by this project")
    return str(tags[tag])


def tag_versions(run_id: str, tags: dict[str, str]) -> list[str]:
    """Set tags of all versions registered from a run; return `<model name>/<version>` of those that lacked one."""
    with tracking.translated():
        client = mlflow.MlflowClient()
        found = client.search_model_versions(f"run_id = '{run_id}'")
        changed = [version for version in found if not tags.items() <= version.tags.items()]
        for version in changed:
            for name, value in tags.items():
                client.set_model_version_tag(version.name, version.version, name, value)
    return [f"{version.name}/{version.version}" for version in changed]


def gate(rules: GateConfig, report: Report) -> tuple[Rule, ...]:
    """Answer each rule of the gate with its numbers; a score that was not measured does not pass."""
    metric = rules.metric
    score = report.model.scores.get(metric, math.nan)
    answers = [
        Rule(
            name="minimum score",
            passed=score >= rules.minimum,
            detail=f"{metric} is {_number(score)}, at least {rules.minimum:g} is asked",
        )
    ]
    rivals = {rival.name: rival.scores.get(metric, math.nan) for rival in _rivals(rules, report)}
    for name, is_beaten in beats(report, metric, margin=rules.margin_over_champion).items():
        if name in rivals:
            numbers = f"{metric} is {_number(score)} against {_number(rivals[name])} on the same held-out data"
            answers.append(Rule(name=f"better than {name}", passed=is_beaten, detail=numbers))
    return tuple(answers)


def compared_with(present: str, *, name: str, report: Report) -> Rule:
    """Whether the report's champion is the one that is champion now; an old report says nothing about a newer one."""
    then = report.champion.name if report.champion else "none"
    return Rule(
        name="compared with the present champion",
        passed=then == f"{name}/{present}",
        detail=f"the champion is {name}/{present}, the report compares with {then}",
    )


def _rivals(rules: GateConfig, report: Report) -> list[Scored]:
    champion = [report.champion] if report.champion else []
    return [*champion, *(report.baselines if rules.beat_baselines else ())]


def list_versions(name: str = "") -> list[dict[str, Any]]:
    """All versions of one registered model, or of all, newest first, with their aliases and tags."""
    with tracking.translated():
        client = mlflow.MlflowClient()
        models = [model for model in client.search_registered_models() if name in ("", model.name)]
        return [
            {
                "model": model.name,
                "version": str(version.version),
                "aliases": sorted(alias for alias, at in model.aliases.items() if str(at) == str(version.version)),
                "run_id": version.run_id,
                "created": version.creation_timestamp,
                "tags": dict(version.tags),
            }
            for model in models
            for version in sorted(
                client.search_model_versions(f"name = '{model.name}'"), key=lambda found: -int(found.version)
            )
        ]


def _version(name: str, version: str) -> ModelVersion:
    with tracking.translated():
        try:
            return mlflow.MlflowClient().get_model_version(name, version)
        except MlflowException as err:
            if err.error_code in _UNKNOWN:
                raise ObjectNotFoundError(f"model {name!r} has no version {version!r}") from err
            raise


def _no_model(uri: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"{uri!r}: no such model; `models:/NAME@champion` or `models:/NAME/VERSION` would be right"
    )


def _number(value: float) -> str:
    return "not measured" if math.isnan(value) else f"{value:.4f}"
