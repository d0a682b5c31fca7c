import subprocess
import sys

import pytest

import pipelines.train.worker
from pipelines.errors import CheckpointError, NonFiniteLossError, TrainingLostError
from pipelines.train.engine import train_in_process
from pipelines.train.goodput import read_attempts
from pipelines.train.outcome import read_outcome
from pipelines.train.plan import open_store
from pipelines.train.snapshot import load


@pytest.fixture(autouse=True)
def untracked(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_a_training_leaves_its_outcome_behind(make):
    plan = make()

    outcome = train_in_process(plan)

    assert read_outcome(plan.location) == outcome
    assert (outcome.steps, outcome.workers, outcome.attempts) == (plan.total_steps, 1, 1)
    assert outcome.checkpoint == open_store(plan).best().location
    assert 0 < outcome.goodput["goodput"] <= 1


def test_two_trainings_of_one_plan_end_with_the_same_weights(make):
    first, second = (load(open_store(make(name)).latest()) for name in _trained(make, "a", "b"))

    assert [p.value for p in first.curves] == [p.value for p in second.curves]
    assert all((first.model[key] == second.model[key]).all() for key in first.model)


def test_a_training_that_died_is_resumed_from_its_checkpoint(make, monkeypatch):
    reference = make("reference")
    train_in_process(reference)
    plan = make("killed")
    _die_after(monkeypatch, step=8)
    with pytest.raises(RuntimeError):
        train_in_process(plan)
    monkeypatch.undo()

    outcome = train_in_process(plan)

    assert outcome.attempts == 2
    assert [attempt.resumed_from for attempt in read_attempts(plan.attempts)] == [0, 8]
    assert [(p.name, p.step, p.value) for p in _curves(plan)] == [(p.name, p.step, p.value) for p in _curves(reference)]


def test_a_finished_training_is_not_trained_again(make):
    plan = make()
    train_in_process(plan)

    train_in_process(plan)

    assert len(read_attempts(plan.attempts)) == 1


def test_a_loss_that_is_not_finite_leaves_its_verdict_behind(make, recipe):
    plan = make(recipe=recipe.override(learning_rate=1e30))

    with pytest.raises(NonFiniteLossError):
        train_in_process(plan)

    with pytest.raises(NonFiniteLossError, match="must be finite"):
        read_outcome(plan.location)


def test_without_result_and_verdict_the_training_is_lost_and_worth_a_retry(make):
    with pytest.raises(TrainingLostError, match="submitting it again resumes it"):
        read_outcome(make().location)


def test_a_changed_recipe_is_refused_before_any_worker_starts(make, recipe):
    train_in_process(make())
    changed = make(recipe=recipe.override(epochs=4))

    with pytest.raises(CheckpointError, match="a changed recipe needs a run key of its own"):
        train_in_process(changed)


def test_the_driver_of_a_job_loads_nothing_heavy():
    code = "import sys, pipelines.train.engine, pipelines.train.gang; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"torch", "mlflow", "matplotlib"}.isdisjoint(loaded)


def test_asking_for_jobs_loads_nothing_heavy():
    code = "import sys, pipelines.train.jobs, pipelines.train.outcome; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"torch", "ray", "mlflow"}.isdisjoint(loaded)


def _trained(make, *names):
    for name in names:
        train_in_process(make(name))
    return names


def _curves(plan):
    return load(open_store(plan).latest()).curves


def _die_after(monkeypatch, *, step):
    """Let the process fail right after the checkpoint of a step, in the way of a power cut."""
    pack = pipelines.train.worker.pack

    def dying(snapshot):
        if snapshot.step > step:
            raise RuntimeError("power cut")
        return pack(snapshot)

    monkeypatch.setattr(pipelines.train.worker, "pack", dying)
