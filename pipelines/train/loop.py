"""The training loop. It knows neither ranks nor engine: its group says which share of a batch is its own.

Everything random is a pure function of the recipe's seed and the step: the order of the samples, and the seed of the
random features (dropout). So a run that was killed and resumed at the same world size goes on bit for bit as if
nothing had happened, and no generator state has to be stored. At another world size the global batches and their
order stay the same.

Shape suffixes: N = examples, B = examples of one global batch.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.errors import CheckpointError, NonFiniteLossError
from pipelines.tracking import Point
from pipelines.train.goodput import Progress
from pipelines.train.parallel import ALONE, Group

Loss = Callable[[nn.Module, Tensor, Tensor | None], Tensor]
"""Mean loss of a model over the examples `x`, `y`."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set in memory."""

    x: Tensor
    """One example a row."""

    y: Tensor | None = None
    """Labels, where the model is taught with any."""

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray | None, device: torch.device) -> "Dataset":
        """Put arrays on the device that trains."""
        return cls(torch.as_tensor(x, device=device), None if y is None else torch.as_tensor(y, device=device))

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.x)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor | None]:
        """The examples with these numbers."""
        indices = indices.to(self.x.device)
        return self.x.index_select(0, indices), None if self.y is None else self.y.index_select(0, indices)


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """How far and how fast to train."""

    seed: int
    epochs: int
    global_batch: int
    """Examples of one optimiser step, over all processes."""

    learning_rate: float
    """Peak, reached at the end of the warm-up."""

    warmup_steps: int = 0
    weight_decay: float = 0.0
    checkpoint_every_steps: int = 50
    """The end of an epoch makes a checkpoint too."""

    def steps_per_epoch(self, num_examples: int) -> int:
        """Steps of one pass; the last batch may be smaller."""
        return math.ceil(num_examples / self.global_batch)

    def total_steps(self, num_examples: int) -> int:
        """Steps of the whole training."""
        return self.epochs * self.steps_per_epoch(num_examples)

    def learning_rate_at(self, step: int, total_steps: int) -> float:
        """Linear warm-up to the peak, then half a cosine down to zero; steps are counted from 1.

        Example:
            >>> schedule = Schedule(seed=0, epochs=1, global_batch=1, learning_rate=1.0, warmup_steps=2)
            >>> [round(schedule.learning_rate_at(step, 6), 3) for step in range(1, 7)]
            [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
        """
        warmup = min(self.warmup_steps, total_steps - 1)
        if step <= warmup:
            return self.learning_rate * step / warmup
        done = (step - 1 - warmup) / (total_steps - warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))

    def batch_at(self, step: int, num_examples: int) -> Tensor:
        """Numbers of the examples of one global batch: a pure function of seed and step."""
        epoch, position = divmod(step - 1, self.steps_per_epoch(num_examples))
        start = position * self.global_batch
        return _epoch_order(self.seed, epoch, num_examples)[start : start + self.global_batch]


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Everything that training needs to go on from a step as if it had never stopped."""

    step: int
    validation_loss: float
    model: dict[str, Tensor]
    optimiser: dict[str, Any]
    curves: list[Point]


def fit(
    model: nn.Module,
    train: Dataset,
    validation: Dataset,
    schedule: Schedule,
    *,
    loss: Loss,
    group: Group = ALONE,
    resume: Snapshot | None = None,
    progress: Progress | None = None,
    on_checkpoint: Callable[[Snapshot], None] = lambda snapshot: None,
) -> Progress:
    """Fit `model` in place.

    Args:
        model: On the group's device, its initial weights and statistics set.
        train: All training examples; each process has them all and takes its share of every batch.
        validation: Dataset whose mean loss goes with each checkpoint.
        schedule: How far and how fast.
        loss: What is minimised.
        group: The processes that train together.
        resume: Where to go on; `None` starts at the beginning.
        progress: Filled while the loop runs, for those who watch.
        on_checkpoint: Called with each snapshot, in every process; it must not keep the tensors, which go on changing.

    Raises:
        CheckpointError: What to resume from does not fit the model.
        NonFiniteLossError: The loss became NaN or infinite; the optimiser did not see it.
    """
    progress = progress or Progress()
    objective = group.wrap(_Objective(model, loss))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=schedule.weight_decay, fused=True)
    if resume:
        _restore(model, optimiser, resume)
        progress.resumed_from = progress.step = resume.step
        progress.curves.extend(resume.curves)
    total_steps = schedule.total_steps(len(train))
    steps_per_epoch = schedule.steps_per_epoch(len(train))
    feature_seed = _mix(schedule.seed, group.rank)

    model.train()
    progress.began_at_s = time.time()
    for step in range(progress.step + 1, total_steps + 1):
        start = time.perf_counter()
        indices, weight = group.share(schedule.batch_at(step, len(train)))
        batch = train.take(indices)
        ready = time.perf_counter()
        group.seed(feature_seed + step)
        rate = schedule.learning_rate_at(step, total_steps)
        value = _train_step(objective, optimiser, batch, weight=weight, rate=rate, group=group, step=step)
        now_ms = time.time_ns() // 1_000_000
        progress.curves += [Point("train_loss", step, value, now_ms), Point("learning_rate", step, rate, now_ms)]
        progress.step = step
        progress.stall_s += ready - start
        progress.step_s += time.perf_counter() - start

        if step % schedule.checkpoint_every_steps == 0 or step % steps_per_epoch == 0:
            _checkpoint(model, optimiser, validation, schedule, loss, group, progress, on_checkpoint)
    return progress


def mean_loss(model: nn.Module, examples: Dataset, *, loss: Loss, batch: int, group: Group = ALONE) -> float:
    """Mean loss over all examples, without training; each process computes its share of the batches."""
    model.eval()
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for start in range(group.rank * batch, len(examples), group.size * batch):
            x = examples.x[start : start + batch]
            y = None if examples.y is None else examples.y[start : start + batch]
            total += len(x) * float(loss(model, x, y))
    model.train()
    return group.mean(total) * group.size / len(examples)


class _Objective(nn.Module):
    """A model and its loss as one module, so that whatever the loss calls on the model takes part in the averaging."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x: Tensor, y: Tensor | None) -> Tensor:
        return self.loss(self.model, x, y)


def _restore(model: nn.Module, optimiser: torch.optim.Optimizer, snapshot: Snapshot) -> None:
    try:
        model.load_state_dict(snapshot.model)
        optimiser.load_state_dict(snapshot.optimiser)
    except (RuntimeError, ValueError) as err:
        raise CheckpointError(
            f"the checkpoint of step {snapshot.step} does not fit the model, whose code has changed since: {err}"
        ) from err


def _train_step(
    objective: nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor | None],
    *,
    weight: float,
    rate: float,
    group: Group,
    step: int,
) -> float:
    """One optimiser step; return the mean loss over the global batch before it."""
    local = objective(*batch) * weight
    value = group.mean(local)
    if not math.isfinite(value):
        raise NonFiniteLossError(
            f"step {step}: the training loss is {value}, but must be finite; the weights are those of step {step - 1}. "
            "Lower train.learning_rate, or look for extreme values in the windows"
        )
    optimiser.zero_grad()
    local.backward()
    for parameters in optimiser.param_groups:
        parameters["lr"] = rate
    optimiser.step()
    return value


def _checkpoint(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    validation: Dataset,
    schedule: Schedule,
    loss: Loss,
    group: Group,
    progress: Progress,
    on_checkpoint: Callable[[Snapshot], None],
) -> None:
    """Measure the validation loss and hand a snapshot over; weights that are not finite never get that far."""
    start = time.perf_counter()
    value = mean_loss(model, validation, loss=loss, batch=schedule.global_batch, group=group)
    if not math.isfinite(value):
        raise NonFiniteLossError(
            f"step {progress.step}: the validation loss is {value}, but must be finite; no checkpoint was made of it"
        )
    progress.curves.append(Point("validation_loss", progress.step, value, time.time_ns() // 1_000_000))
    measured = time.perf_counter()
    on_checkpoint(
        Snapshot(
            step=progress.step,
            validation_loss=value,
            model=model.state_dict(),
            optimiser=optimiser.state_dict(),
            curves=progress.curves,
        )
    )
    progress.validation_s += measured - start
    progress.checkpoint_s += time.perf_counter() - measured


@lru_cache(maxsize=1)
def _epoch_order(seed: int, epoch: int, num_examples: int) -> Tensor:
    """The order in which one pass visits the examples."""
    return torch.randperm(num_examples, generator=torch.Generator().manual_seed(_mix(seed, epoch)))


def _mix(*parts: int) -> int:
    """A seed that differs whenever one of `parts` does."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 2)
