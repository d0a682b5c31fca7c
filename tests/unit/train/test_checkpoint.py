from pathlib import Path

import pytest
import torch
from torch import nn

from pipelines.errors import CheckpointError
from pipelines.tracking import Point
from pipelines.train.checkpoint import CheckpointStore, read_curves
from pipelines.train.loop import Snapshot
from pipelines.train.snapshot import load, load_model, pack


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(prefix=str(tmp_path / "checkpoints"), recipe_digest="abc", attempt="a", keep_last=2)


def save(store, step, loss=1.0):
    return store.save({"model.pt": f"weights {step}".encode()}, step=step, validation_loss=loss)


def steps(store):
    return [checkpoint.step for checkpoint in store.kept()]


def test_a_snapshot_comes_back_as_it_was(store):
    model = nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    curves = [Point("train_loss", 1, 0.1 + 0.2, 1700000000000)]
    snapshot = Snapshot(
        step=7, validation_loss=0.5, model=model.state_dict(), optimiser=optimiser.state_dict(), curves=curves
    )

    checkpoint = store.save(pack(snapshot), step=7, validation_loss=0.5)
    back = load(checkpoint)

    assert (back.step, back.validation_loss, back.curves) == (7, 0.5, curves)
    assert all(torch.equal(back.model[name], value) for name, value in model.state_dict().items())
    assert torch.equal(back.optimiser["state"][0]["exp_avg"], optimiser.state_dict()["state"][0]["exp_avg"])
    assert read_curves(checkpoint) == curves


def test_the_newest_and_the_best_are_kept(store):
    for step, loss in [(1, 0.9), (2, 0.1), (3, 0.5), (4, 0.6), (5, 0.7)]:
        save(store, step, loss)

    assert steps(store) == [2, 4, 5]
    assert store.best().step == 2


def test_a_retired_checkpoint_leaves_nothing_behind(store):
    for step in range(1, 6):
        save(store, step, loss=1 / step)

    assert {path.parent.name for path in Path(store.prefix).rglob("*") if path.is_file()} == {
        "step-00000004-a",
        "step-00000005-a",
    }


def test_without_checkpoints_there_is_no_latest(store):
    assert store.latest() is None


def test_a_folder_without_manifest_is_passed_over(store):
    save(store, 1)
    torn = save(store, 2)
    Path(torn.location, "manifest.json").unlink()

    assert store.latest().step == 1


@pytest.mark.parametrize("damage", [b"weights 3", b"weights", b""])
def test_a_damaged_checkpoint_is_passed_over_and_the_reason_logged(store, caplog, damage):
    save(store, 1)
    newest = save(store, 2)
    Path(newest.location, "model.pt").write_bytes(damage)

    assert store.latest().step == 1
    assert "step-00000002-a/model.pt: SHA-256" in caplog.text


def test_a_damaged_best_gives_way_to_the_next_best(store):
    for step, loss in [(1, 0.1), (2, 0.5), (3, 0.4)]:
        newest = save(store, step, loss)
    Path(newest.location).with_name("step-00000001-a").joinpath("model.pt").unlink()

    assert store.best().step == 3


def test_a_torn_manifest_is_passed_over(store, caplog):
    save(store, 1)
    Path(save(store, 2).location, "manifest.json").write_bytes(b'{"step": 2, ')

    assert store.latest().step == 1
    assert "not a checkpoint's manifest" in caplog.text


def test_if_all_are_damaged_nothing_is_started_anew_silently(store):
    Path(save(store, 1).location, "model.pt").unlink()

    with pytest.raises(CheckpointError, match="step-00000001-a and all others are damaged"):
        store.latest()


def test_a_checkpoint_of_another_recipe_is_refused(store):
    save(store, 1)
    other = CheckpointStore(prefix=store.prefix, recipe_digest="xyz")

    with pytest.raises(CheckpointError, match="made by recipe abc, but this training has recipe xyz"):
        other.latest()


def test_of_one_step_made_twice_both_are_kept_apart(store):
    save(store, 1)
    again = CheckpointStore(prefix=store.prefix, recipe_digest="abc", attempt="b")
    save(again, 1)

    assert [Path(c.location).name for c in store.kept()] == ["step-00000001-a", "step-00000001-b"]


def test_a_checkpoint_that_would_run_code_is_refused(store):
    import io
    import pickle

    class Bomb:
        def __reduce__(self):
            return print, ("boom",)

    buffer = io.BytesIO()
    torch.save({"weight": Bomb()}, buffer)
    checkpoint = store.save({"model.pt": buffer.getvalue()}, step=1, validation_loss=1.0)

    with pytest.raises(pickle.UnpicklingError):
        load_model(checkpoint)
