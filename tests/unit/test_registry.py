from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from mlflow import artifacts

from pipelines import models, registry
from pipelines.config import GateConfig, parse_recipe
from pipelines.errors import ConfigError, ObjectNotFoundError
from pipelines.evaluate import Report, Scored
from pipelines.models import build_model, fit_statistics, score_windows
from pipelines.tracking import open_run

pytestmark = pytest.mark.usefixtures("mlflow")

COLUMNS = ("pressure_bar", "current_a", "oil_c")
GATE = GateConfig(metric="f1", minimum=0.7)


def recipe_of(name):
    return parse_recipe(
        {
            "name": name,
            "source": "metropt3_windows",
            "label": "is_anomaly",
            "model": {"kind": "table_classifier", "width": 8, "layers": 1, "members": 2, "dropout": 0.5},
            "gate": {"metric": "f1", "minimum": 0.5},
        },
        where=name,
    )


@pytest.fixture(scope="module")
def x_NF():
    return np.random.default_rng(0).normal([8, 4, 60], [1, 2, 5], size=(50, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def network(x_NF):
    torch.manual_seed(0)
    model = build_model(recipe_of("any"), num_channels=3)
    fit_statistics(model, x_NF)
    return model.eval()


@pytest.fixture(scope="module")
def make(mlflow, network, x_NF):
    """Register the network as a version of `name`, from the run of a training called `run_key`."""

    def register(name, run_key):
        return registry.register(
            network,
            recipe=recipe_of(name),
            run_id=open_run(run_key, experiment=name).run_id,
            example_x=x_NF[:4],
            columns=COLUMNS,
            threshold=0.25,
            tags={"trackside.report": f"runs/{run_key}/report.json"},
        )

    return register


@pytest.fixture(scope="module")
def pump(make):
    """Two versions of a model, for tests that only read."""
    return [make("pump", run_key) for run_key in ("first", "second")]


def report(f1, *, champion=None, **baselines):
    return Report(
        recipe="pump",
        model=Scored(name="candidate", scores={"f1": f1}),
        champion=None if champion is None else Scored(name="pump/1", scores={"f1": champion}),
        baselines=tuple(Scored(name=name, scores={"f1": score}) for name, score in baselines.items()),
    )


def answers(rules):
    return {rule.name: rule.passed for rule in rules}


def test_the_gate_asks_for_the_minimum_and_more_than_every_baseline():
    rules = registry.gate(GATE, report(0.8, last_value=0.5, z_score=0.8))

    assert answers(rules) == {"minimum score": True, "better than last_value": True, "better than z_score": False}
    assert rules[2].detail == "f1 is 0.8000 against 0.8000 on the same held-out data"


def test_baselines_are_no_rule_where_the_recipe_does_not_ask():
    rules = registry.gate(GATE.model_copy(update={"beat_baselines": False}), report(0.8, last_value=0.9))

    assert answers(rules) == {"minimum score": True}


@pytest.mark.parametrize(("margin", "passed"), [(0.0, True), (0.04, True), (0.06, False)])
def test_the_champion_must_be_surpassed_by_the_margin(margin, passed):
    rules = registry.gate(GATE.model_copy(update={"margin_over_champion": margin}), report(0.8, champion=0.75))

    assert answers(rules)["better than pump/1"] is passed


@pytest.mark.parametrize("f1", [float("nan"), 0.69])
def test_a_score_that_is_too_small_or_not_measured_does_not_pass(f1):
    (rule,) = registry.gate(GATE, report(f1))

    assert not rule.passed
    assert "at least 0.7 is asked" in rule.detail


def test_a_metric_that_the_report_lacks_does_not_pass():
    (rule,) = registry.gate(GateConfig(metric="recall", minimum=0.0), report(0.8))

    assert (rule.passed, rule.detail) == (False, "recall is not measured, at least 0 is asked")


@pytest.mark.parametrize(("champion", "present", "passed"), [(0.7, "1", True), (0.7, "2", False), (None, "1", False)])
def test_a_report_says_nothing_about_a_champion_that_it_did_not_see(champion, present, passed):
    rule = registry.compared_with(present, name="pump", report=report(0.8, champion=champion))

    assert rule.passed is passed
    assert f"the champion is pump/{present}" in rule.detail


def test_registering_the_same_training_twice_makes_one_version(make, pump):
    assert make("pump", "second") == pump[1]
    assert [version["version"] for version in registry.list_versions("pump")] == ["2", "1"]


def test_versions_are_listed_newest_first_with_aliases_and_evidence(make, pump):
    registry.set_champion("pump", pump[0])

    newer, older = registry.list_versions("pump")

    assert (newer["aliases"], older["aliases"]) == ([], ["champion"])
    assert older["tags"]["trackside.report"] == "runs/first/report.json"


@pytest.mark.parametrize("num_rows", [0, 1, 2, 50])
def test_a_loaded_model_scores_as_the_network_did(pump, network, x_NF, num_rows):
    loaded = registry.load(f"models:/pump/{pump[0]}")

    assert (loaded.columns, loaded.shape, loaded.threshold) == (COLUMNS, (3,), 0.25)
    assert loaded.recipe == recipe_of("pump")
    assert np.allclose(loaded.score(x_NF[:num_rows]), score_windows(network, x_NF)[:num_rows], atol=1e-6)


def test_scoring_in_parts_gives_every_row_its_score(pump, network, x_NF, monkeypatch):
    whole_N = score_windows(network, x_NF)
    monkeypatch.setattr(models, "SCORE_BATCH", 7)

    score_N = registry.load(f"models:/pump/{pump[0]}").score(x_NF)

    assert np.allclose(score_N, whole_N, atol=1e-6)


def test_a_version_has_no_pickle_in_it(pump):
    folder = Path(artifacts.download_artifacts(f"models:/pump/{pump[0]}"))

    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert ".pt2" in suffixes
    assert suffixes & {".pkl", ".pickle", ".pth"} == set()


def test_a_model_of_somebody_else_is_refused_before_it_is_unpickled(monkeypatch):
    with mlflow.start_run(run_id=open_run("stranger", experiment="stranger").run_id):
        info = mlflow.pytorch.log_model(
            torch.nn.Linear(2, 1), name="model", serialization_format="pickle", pip_requirements=["torch"]
        )
    mlflow.register_model(info.model_uri, "stranger")
    monkeypatch.setattr(mlflow.pytorch, "load_model", lambda uri: pytest.fail("it was loaded"))

    with pytest.raises(ObjectNotFoundError, match="models:/stranger/1: not a model of this project"):
        registry.load("models:/stranger/1")


@pytest.mark.parametrize(
    "uri", ["models:/pump@blue", "models:/pump/99", "models:/pump/abc", "models:/no@champion", "pump", "/tmp/pump", ""]
)
def test_an_unknown_model_is_answered_with_what_would_be_right(pump, uri):
    with pytest.raises(ObjectNotFoundError, match="no such model; `models:/NAME@champion` or `models:/NAME/VERSION`"):
        registry.load(uri)


@pytest.mark.parametrize("version", ["99", "abc"])
def test_an_unknown_version_is_named(pump, version):
    with pytest.raises(ObjectNotFoundError, match=f"model 'pump' has no version '{version}'"):
        registry.tag_of("pump", version, "trackside.report")


def test_a_tag_that_a_version_lacks_is_named(pump):
    with pytest.raises(ObjectNotFoundError, match=r"pump version 1 has no tag 'trackside\.nothing'"):
        registry.tag_of("pump", pump[0], "trackside.nothing")


def test_without_a_server_nothing_is_listed(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")

    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI is not set"):
        registry.list_versions()
