import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from pipelines.train.loop import Dataset, Schedule, fit
from pipelines.train.parallel import Group, current_group

SCHEDULE = Schedule(seed=5, epochs=2, global_batch=6, learning_rate=0.05, warmup_steps=2)


def squared_error(model, x, y):
    return ((model(x)[:, 0] - y) ** 2).mean()


def examples(num):
    x = torch.randn(num, 3, generator=torch.Generator().manual_seed(0))
    return Dataset(x, x.sum(dim=1))


def trained(num_examples):
    torch.manual_seed(1)
    model = nn.Linear(3, 1)
    data = examples(num_examples)
    progress = fit(model, data, data, SCHEDULE, loss=squared_error, group=current_group())
    return [parameter.detach() for parameter in model.parameters()], [point.value for point in progress.curves]


def worker(rank, folder, num_examples):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.save(trained(num_examples), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("num", [1, 2, 5, 7])
def test_the_weighted_average_of_the_shares_is_the_mean_over_the_batch(size, num):
    values = torch.arange(num, dtype=torch.float64) ** 2
    shares = [Group(rank, size).share(torch.arange(num)) for rank in range(size)]

    average = sum(values[indices].mean() * weight for indices, weight in shares) / size

    assert average == pytest.approx(float(values.mean()))


def test_the_shares_of_a_batch_are_the_batch():
    indices = torch.randperm(11)

    shares = [Group(rank, 3).share(indices)[0] for rank in range(3)]

    assert sorted(torch.cat(shares).tolist()) == list(range(11))


def test_two_workers_fit_the_same_model_as_one(tmp_path):
    num_examples = 13  # the last batch has one example, so one worker has none
    mp.spawn(worker, args=(str(tmp_path), num_examples), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    alone = trained(num_examples)

    assert first[1] == second[1] == pytest.approx(alone[1], rel=1e-5)
    for a, b, c in zip(first[0], second[0], alone[0], strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)
