"""Our training loop beside a plain PyTorch loop: the same model, the same data in memory, one worker."""

import statistics
from typing import Any

import numpy as np
import torch
from torch import nn

from pipelines.bench.measuring import Cost, on_one_core, timed
from pipelines.bench.result import Result, judge
from pipelines.config import Recipe, load_recipe
from pipelines.models import batch_loss, build_model, fit_statistics
from pipelines.train.goodput import Progress
from pipelines.train.loop import Dataset, Schedule, fit
from pipelines.train.parallel import current_group

MIN_RATIO = 0.95
"""Smallest share of the plain loop's samples a second that is good enough."""

WARM_UP_ROUNDS = 2


def run(*, recipe: str = "smoke", num_examples: int = 1024, batch: int = 64, rounds: int = 60) -> Result:
    """Train in turn with both loops on one core, in short rounds; the machine's noise hits both.

    Args:
        recipe: Whose model.
        num_examples: Windows of a round, which is one pass.
        batch: Windows of one step.
        rounds: Rounds of each loop, after a few to warm up.
    """
    found = on_one_core(__name__, variables={}, recipe=recipe, num_examples=num_examples, batch=batch, rounds=rounds)
    return judge(
        {"samples_per_s": found["ours_hz"], "data_stall_share": found["data_stall_share"]},
        {"samples_per_s": found["plain_hz"]},
        ratio=found["ratio"],
        at_least={"ratio": MIN_RATIO},
    )


def measure(*, recipe: str, num_examples: int, batch: int, rounds: int) -> dict[str, Any]:
    """Time both loops, in samples a second of processor time, and keep the median of each, and of the rounds' ratios.

    What a neighbour on the machine costs, through its share of caches and memory, is several per cent; it hits both
    loops of a round alike.
    """
    torch.set_num_threads(1)
    chosen = load_recipe(recipe)
    assert chosen.window is not None
    shape = (num_examples, chosen.window.length, len(chosen.window.channels))
    x_NLC = np.random.default_rng(0).normal(8.0, 1.0, size=shape).astype(np.float32)
    schedule = Schedule(
        seed=0, epochs=1, global_batch=batch, learning_rate=1e-3, warmup_steps=5, checkpoint_every_steps=10**9
    )
    ours_s, plain_s, stalls = [], [], []
    for _ in range(WARM_UP_ROUNDS + rounds):
        progress, cost = _ours(chosen, x_NLC, schedule)
        ours_s.append(cost.cpu_s)
        stalls.append(progress.stall_s / progress.step_s)
        plain_s.append(_plain(chosen, x_NLC, schedule).cpu_s)
    ours_s, plain_s, stalls = ours_s[WARM_UP_ROUNDS:], plain_s[WARM_UP_ROUNDS:], stalls[WARM_UP_ROUNDS:]
    return {
        "ours_hz": round(num_examples / statistics.median(ours_s), 1),
        "plain_hz": round(num_examples / statistics.median(plain_s), 1),
        "ratio": round(statistics.median(plain / ours for plain, ours in zip(plain_s, ours_s, strict=True)), 4),
        "data_stall_share": round(statistics.median(stalls), 5),
    }


def _ours(recipe: Recipe, x_NLC: np.ndarray, schedule: Schedule) -> tuple[Progress, Cost]:
    """What a round takes, the validation at its end included."""
    group = current_group()
    data = Dataset.of(x_NLC, None, group.device)
    held_out = Dataset.of(x_NLC[:1], None, group.device)
    return timed(fit, _model(recipe, x_NLC), data, held_out, schedule, loss=batch_loss(recipe), group=group)


def _plain(recipe: Recipe, x_NLC: np.ndarray, schedule: Schedule) -> Cost:
    """What a round takes in the loop of the PyTorch tutorial, with the same optimiser and learning rates."""
    model, loss, x = _model(recipe, x_NLC), batch_loss(recipe), torch.from_numpy(x_NLC)
    total = schedule.total_steps(len(x))

    def train() -> None:
        optimiser = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, fused=True)
        rates = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: schedule.learning_rate_at(step + 1, total) / schedule.learning_rate
        )
        model.train()
        for _ in range(schedule.epochs):
            for indices in torch.split(torch.randperm(len(x)), schedule.global_batch):
                optimiser.zero_grad()
                value = loss(model, x[indices], None)
                torch.autograd.backward(value)
                optimiser.step()
                rates.step()
                value.item()
            model.eval()
            with torch.no_grad():
                loss(model, x[:1], None).item()
            model.train()

    return timed(train)[1]


def _model(recipe: Recipe, x_NLC: np.ndarray) -> nn.Module:
    torch.manual_seed(0)
    model = build_model(recipe, x_NLC.shape[2])
    fit_statistics(model, x_NLC)
    return model
