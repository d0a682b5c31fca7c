import json
import re

import numpy as np
import pytest
from mlflow import MlflowClient

from pipelines import ledger, promotion, registry, storage
from pipelines.config import parse_recipe
from pipelines.errors import ConfigError, ConflictError, LedgerError, ObjectNotFoundError
from pipelines.ledger import Act
from pipelines.models import build_model, fit_statistics
from pipelines.registry import Rule
from pipelines.tracking import open_run

pytestmark = pytest.mark.usefixtures("mlflow")

PASSED, FAILED = (Rule(name="r", passed=passed, detail="0.5 of 0.7") for passed in (True, False))


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def lake(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKSIDE_LAKE", str(tmp_path))


@pytest.fixture(scope="module")
def registered(mlflow):
    """A real version, as every other is a copy of it."""
    recipe = parse_recipe(
        {
            "name": "original",
            "source": "metropt3_windows",
            "label": "is_anomaly",
            "model": {"kind": "table_classifier", "width": 4, "layers": 1, "members": 1},
            "gate": {"metric": "f1", "minimum": 0.5},
        },
        where="original",
    )
    x_NF = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    network = build_model(recipe, num_channels=3)
    fit_statistics(network, x_NF)
    version = registry.register(
        network.eval(),
        recipe=recipe,
        run_id=open_run("original", experiment="original").run_id,
        example_x=x_NF[:4],
        columns=("a", "b", "c"),
        threshold=0.5,
        tags={},
    )
    return f"models:/original/{version}"


@pytest.fixture
def versions(registered, request):
    """Name of a model with three versions."""
    name = re.sub(r"\W+", "_", request.node.name)
    for _ in range(3):
        MlflowClient().copy_model_version(registered, name)
    return name


def act(key="night-1", **changes):
    return Act(**{"key": key, "decided_by": "ada", "reason": "it is better", **changes})


def promote(name, version, *, previous="", rules=(PASSED,), force=False, act=None):
    act = act or Act(key=version, decided_by="ada", reason="it is better")
    return promotion.promote(
        name,
        version,
        previous=previous,
        rules=rules,
        force=force,
        act=act,
    )


def moves(name):
    return [(line.change.from_version, line.change.to_version) for line in ledger.read(name)]


def test_a_refusal_moves_nothing_and_is_kept_with_the_version(versions):
    refused = promote(versions, "1", rules=(PASSED, FAILED))

    assert (refused.promoted, refused.forced, refused.reasons) == (False, False, ["r: 0.5 of 0.7"])
    assert (promotion.champion(versions), moves(versions)) == ("", [])
    assert registry.tag_of(versions, "1", "trackside.gate") == "failed"


def test_a_promotion_is_a_line_in_the_ledger_and_then_an_alias(versions):
    decision = promote(versions, "1", act=act(dag_run="nightly_retrain/night-1"))

    (line,) = ledger.read(versions)
    assert (decision.promoted, decision.previous) == (True, "")
    assert (line.change.decided_by, line.change.dag_run) == ("ada", "nightly_retrain/night-1")
    assert line.change.mlflow_run == registry.run_of(versions, "1")
    assert line.change.gate == ({"name": "r", "passed": True, "detail": "0.5 of 0.7"},)
    assert registry.champion_version(versions) == "1"
    assert promotion.verify(versions) == []


def test_force_against_the_gate_is_called_so_and_force_that_was_not_needed_is_not(versions):
    forced = promote(versions, "1", rules=(FAILED,), force=True)
    passed = promote(versions, "2", previous="1", rules=(PASSED,), force=True)

    assert (forced.promoted, forced.forced, passed.promoted, passed.forced) == (True, True, True, False)
    assert [line.change.is_forced for line in ledger.read(versions)] == [True, False]
    assert json.loads(registry.tag_of(versions, "1", "trackside.decision"))["forced"] is True


@pytest.mark.parametrize("step", ["append", "set_champion", "set_model_tag"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_promoter_killed_at_any_step_leaves_one_line_and_one_champion_after_the_retry(
    versions, monkeypatch, step, moment
):
    promote(versions, "1")
    module = ledger if step == "append" else registry
    real = getattr(module, step)

    def die(*arguments):
        if moment == "after":
            real(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, step, die)
        with pytest.raises(Killed):
            promote(versions, "2", previous="1")
    decision = promote(versions, "2", previous=promotion.champion(versions))

    assert decision.promoted
    assert moves(versions) == [("", "1"), ("1", "2")]
    assert registry.champion_version(versions) == "2"
    assert promotion.verify(versions) == []


def test_a_retry_says_what_the_first_attempt_did(versions):
    promote(versions, "1")
    first = promote(versions, "2", previous="1")

    again = promote(versions, "2", previous=promotion.champion(versions))

    assert again == first
    assert again.previous == "1"


def test_a_late_retry_does_not_undo_what_was_decided_since_nor_claim_to_have_promoted(versions):
    promote(versions, "1")
    promote(versions, "2", previous="1")
    promotion.rollback(versions, "", act=act("night-2", reason="false alarms"))

    with pytest.raises(ConflictError, match="is version 1, where version 2 was expected"):
        promote(versions, "2", previous="1")

    assert promotion.champion(versions) == "1"
    assert len(ledger.read(versions)) == 3


def test_a_key_that_a_promotion_used_does_not_answer_for_a_rollback(versions):
    promote(versions, "1", act=act("same"))
    promote(versions, "2", previous="1", act=act("other"))

    line = promotion.rollback(versions, "", act=act("same"))

    assert (line.change.action, line.change.to_version) == ("rollback", "1")


def test_a_candidate_compared_with_a_champion_that_is_one_no_longer_is_not_promoted(versions):
    promote(versions, "1")

    with pytest.raises(ConflictError, match="is version 1, where version none was expected"):
        promote(versions, "2", previous="")

    assert promotion.champion(versions) == "1"


def test_rolling_back_twice_goes_two_champions_back(versions):
    for version, previous in (("1", ""), ("2", "1"), ("3", "2")):
        promote(versions, version, previous=previous)

    first = promotion.rollback(versions, "", act=act("a"))
    second = promotion.rollback(versions, "", act=act("b"))

    assert [first.change.to_version, second.change.to_version] == ["2", "1"]
    assert [first.change.action, first.change.reason] == ["rollback", "it is better"]
    assert registry.champion_version(versions) == "1"


def test_a_rollback_retried_is_one_rollback(versions):
    promote(versions, "1")
    promote(versions, "2", previous="1")

    lines = [promotion.rollback(versions, "", act=act("same")) for _ in range(2)]

    assert lines[0] == lines[1]
    assert len(ledger.read(versions)) == 3


@pytest.mark.parametrize(
    ("version", "reason", "error", "words"),
    [
        ("", "why", ConfigError, "replaced no other version"),
        ("1", "why", ConfigError, "is the champion already"),
        ("9", "why", ObjectNotFoundError, "no such model"),
        ("2", " ", ConfigError, "needs a reason"),
    ],
)
def test_a_rollback_that_makes_no_sense_is_refused_with_what_would(versions, version, reason, error, words):
    promote(versions, "1")

    with pytest.raises(error, match=words):
        promotion.rollback(versions, version, act=act(reason=reason))

    assert promotion.champion(versions) == "1"
    assert len(ledger.read(versions)) == 1


def test_an_alias_that_somebody_moved_past_the_ledger_is_found_and_set_back(versions):
    promote(versions, "1")
    registry.set_champion(versions, "3")

    found = promotion.verify(versions)
    settled = promotion.champion(versions)

    (problem,) = found
    assert problem.startswith("the alias champion points to version 3, but the ledger made version 1 champion")
    assert (settled, registry.champion_version(versions)) == ("1", "1")


def test_nothing_is_decided_upon_a_ledger_that_was_tampered_with(versions):
    promote(versions, "1")
    promote(versions, "2", previous="1")
    storage.delete_object(storage.lake("ledger", versions, "00000002.json"))

    with pytest.raises(LedgerError, match="the end of the ledger was altered, removed"):
        promote(versions, "3", previous="2")

    assert registry.champion_version(versions) == "2"
    assert promotion.verify(versions) != []


def test_a_champion_from_before_the_ledger_is_where_the_first_line_starts_from(versions):
    registry.set_champion(versions, "1")

    before = promotion.champion(versions)
    promote(versions, "2", previous=before)

    assert moves(versions) == [("1", "2")]
    assert promotion.verify(versions) == []
