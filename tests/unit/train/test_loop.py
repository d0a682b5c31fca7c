import copy

import pytest
import torch
from torch import nn

from pipelines.errors import NonFiniteLossError
from pipelines.train.loop import Dataset, Schedule, fit, mean_loss

SCHEDULE = Schedule(seed=5, epochs=3, global_batch=8, learning_rate=0.01, warmup_steps=3, checkpoint_every_steps=4)


def squared_error(model, x, y):
    return ((model(x)[:, 0] - y) ** 2).mean()


@pytest.fixture
def data():
    """27 rows, so that the last batch of each pass is smaller than the others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(27, 3, generator=generator)
    return Dataset(x, x @ torch.tensor([1.0, -2.0, 0.5]))


def build():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))


def losses(progress):
    return [(point.step, point.value) for point in progress.curves if point.name == "train_loss"]


class Killed(Exception):
    pass


def test_training_makes_the_loss_smaller(data):
    model = build()
    before = mean_loss(model, data, loss=squared_error, batch=8)

    fit(model, data, data, SCHEDULE, loss=squared_error)

    assert mean_loss(model, data, loss=squared_error, batch=8) < 0.9 * before


@pytest.mark.parametrize("killed_at", [4, 8, 11])
def test_a_killed_and_resumed_training_equals_the_uninterrupted_one_bit_for_bit(data, killed_at):
    whole = build()
    uninterrupted = fit(whole, data, data, SCHEDULE, loss=squared_error)
    kept = []

    def keep_until_killed(snapshot):
        kept.append(copy.deepcopy(snapshot))
        if snapshot.step >= killed_at:
            raise Killed

    with pytest.raises(Killed):
        fit(build(), data, data, SCHEDULE, loss=squared_error, on_checkpoint=keep_until_killed)
    resumed_model = build()
    resumed = fit(resumed_model, data, data, SCHEDULE, loss=squared_error, resume=kept[-1])

    assert losses(resumed) == losses(uninterrupted)
    assert all(torch.equal(a, b) for a, b in zip(resumed_model.parameters(), whole.parameters(), strict=True))


def test_the_curve_has_every_step_once(data):
    progress = fit(build(), data, data, SCHEDULE, loss=squared_error)

    assert [step for step, _ in losses(progress)] == list(range(1, SCHEDULE.total_steps(27) + 1))


def test_checkpoints_come_at_the_interval_and_at_the_end_of_each_pass(data):
    steps = []

    fit(
        build(),
        data,
        data,
        Schedule(seed=0, epochs=2, global_batch=4, learning_rate=0.01, checkpoint_every_steps=5),
        loss=squared_error,
        on_checkpoint=lambda snapshot: steps.append(snapshot.step),
    )

    assert steps == [5, 7, 10, 14]


def test_every_pass_visits_each_example_once_in_another_order():
    batches = [SCHEDULE.batch_at(step, 27) for step in range(1, 9)]
    first, second = torch.cat(batches[:4]), torch.cat(batches[4:])

    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(27))
    assert first.tolist() != second.tolist()


def test_a_loss_that_is_not_finite_stops_before_the_optimiser_sees_it(data):
    model = build()
    seen = []

    def poisoned(model, x, y):
        seen.append([parameter.detach().clone() for parameter in model.parameters()])
        return squared_error(model, x, y) * (float("nan") if len(seen) == 3 else 1)

    with pytest.raises(NonFiniteLossError, match=r"step 3.*is nan"):
        fit(model, data, data, Schedule(seed=0, epochs=1, global_batch=8, learning_rate=0.1), loss=poisoned)

    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), seen[-1], strict=True))


def test_weights_that_became_nan_are_never_checkpointed(data):
    def infinite_slope(model, x, y):
        return squared_error(model, x, y) + (model(x).sum() * 0).sqrt()

    every_step = Schedule(seed=0, epochs=1, global_batch=8, learning_rate=0.1, checkpoint_every_steps=1)
    with pytest.raises(NonFiniteLossError, match="step 1: the validation loss is nan"):
        fit(build(), data, data, every_step, loss=infinite_slope, on_checkpoint=lambda snapshot: pytest.fail("kept"))


def test_the_data_are_never_waited_for(data):
    progress = fit(build(), data, data, SCHEDULE, loss=squared_error)

    assert 0 < progress.stall_s < 0.5 * progress.step_s
