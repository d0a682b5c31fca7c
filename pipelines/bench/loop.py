"""Our training loop against a plain PyTorch loop: the same model, the same data in memory, one worker."""

import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from pipelines.config import Recipe, load_recipe
from pipelines.models import batch_loss, build_model, fit_statistics
from pipelines.train.loop import Dataset, Schedule, fit
from pipelines.train.parallel import current_group

TARGET = 0.95
"""Smallest share of the plain loop's samples a second that is good enough."""


def bench_loop(*, recipe: str = "smoke", num_examples: int = 512, batch: int = 64, rounds: int = 7) -> dict[str, Any]:
    """Train in turn with both loops, in short rounds, and compare the medians; the machine's noise hits both.

    Args:
        recipe: Whose model.
        num_examples: Windows of one pass; a round is four passes.
        batch: Windows of one step.
        rounds: Rounds of each loop; the first is a warm-up and does not count.
    """
    chosen = load_recipe(recipe)
    assert chosen.window is not None
    shape = (num_examples, chosen.window.length, len(chosen.window.channels))
    x_NLC = np.random.default_rng(0).normal(8.0, 1.0, size=shape).astype(np.float32)
    schedule = Schedule(
        seed=0, epochs=4, global_batch=batch, learning_rate=1e-3, warmup_steps=5, checkpoint_every_steps=10**9
    )
    ours_hz, plain_hz, stalls = [], [], []
    for _ in range(rounds):
        rate_hz, stall = _ours(chosen, x_NLC, schedule)
        ours_hz.append(rate_hz)
        stalls.append(stall)
        plain_hz.append(_plain(chosen, x_NLC, schedule))
    ours, plain = statistics.median(ours_hz[1:]), statistics.median(plain_hz[1:])
    ratio = statistics.median(a / b for a, b in zip(ours_hz[1:], plain_hz[1:], strict=True))
    return {
        "ours_samples_per_s": round(ours, 1),
        "plain_samples_per_s": round(plain, 1),
        "ratio": round(ratio, 4),
        "target_ratio": TARGET,
        "data_stall_share": round(statistics.median(stalls[1:]), 5),
        "passed": ratio >= TARGET,
    }


def _ours(recipe: Recipe, x_NLC: np.ndarray, schedule: Schedule) -> tuple[float, float]:
    """Samples a second in training steps, and the share of that time spent waiting for data."""
    group = current_group()
    data = Dataset.of(x_NLC, None, group.device)
    nothing = Dataset.of(x_NLC[:1], None, group.device)  # the plain loop does not validate either
    progress = fit(_model(recipe, x_NLC), data, nothing, schedule, loss=batch_loss(recipe), group=group)
    return schedule.epochs * len(data) / progress.step_s, progress.stall_s / progress.step_s


def _plain(recipe: Recipe, x_NLC: np.ndarray, schedule: Schedule) -> float:
    """The loop of the PyTorch tutorial, with the same optimiser and learning rates; samples a second."""
    model, loss, x = _model(recipe, x_NLC), batch_loss(recipe), torch.from_numpy(x_NLC)
    optimiser = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, fused=True)
    total = schedule.total_steps(len(x))
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: schedule.learning_rate_at(step + 1, total) / schedule.learning_rate
    )
    model.train()
    start = time.perf_counter()
    for _ in range(schedule.epochs):
        for indices in torch.split(torch.randperm(len(x)), schedule.global_batch):
            optimiser.zero_grad()
            value = loss(model, x[indices], None)
            torch.autograd.backward(value)
            optimiser.step()
            rates.step()
            value.item()
    return schedule.epochs * len(x) / (time.perf_counter() - start)


def _model(recipe: Recipe, x_NLC: np.ndarray) -> nn.Module:
    torch.manual_seed(0)
    model = build_model(recipe, x_NLC.shape[2])
    fit_statistics(model, x_NLC)
    return model
