"""The networks, and the few things that training and scoring do with any of them.

A network takes raw physical values, and its `forward` gives one score an example, larger = more unusual.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.channels import unit_of
from pipelines.config import Recipe, TrainConfig
from pipelines.models.classifier import TableClassifier
from pipelines.models.losses import member_cross_entropy
from pipelines.models.transformer import TransformerForecaster

SCORE_BATCH = 1024
"""Examples that are scored at once."""


def build_model(recipe: Recipe, num_channels: int) -> nn.Module:
    """Build the recipe's network with random weights, drawn from torch's global generator.

    Args:
        recipe: What to build.
        num_channels: Channels of a window, or features of a row.
    """
    window, model = recipe.window, recipe.model
    if window is None:
        return TableClassifier(
            num_features=num_channels,
            members=model.members,
            width=model.width,
            layers=model.layers,
            dropout=model.dropout,
        )
    return TransformerForecaster(
        length=window.length,
        num_channels=num_channels,
        targets=tuple(window.channels.index(target) for target in window.targets),
        temperatures=tuple(c for c, name in enumerate(window.channels) if unit_of(name) == "degC"),
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        dropout=model.dropout,
    )


def fit_statistics(model: nn.Module, x: np.ndarray) -> None:
    """Let a new model take its normalisation from the training examples `x`."""
    _as_any(model).fit_statistics(torch.from_numpy(x))


def batch_loss(recipe: Recipe) -> Callable[[nn.Module, Tensor, Tensor | None], Tensor]:
    """Return the loss `(model, x, y) -> mean over the examples` that the recipe's model is trained with."""
    return _squared_error if recipe.window else partial(_cross_entropy, config=recipe.train)


def calibrate(model: nn.Module, x_NLC: np.ndarray) -> None:
    """Set the unit of a forecaster's scores: a target's usual error on healthy windows that it was not trained on.

    Called once, with the weights that are kept. It makes a target that is hard to forecast count no more than one that
    is easy.
    """
    assert isinstance(model, TransformerForecaster)
    error_NSK = in_batches(model.eval().errors, x_NLC)
    model.usual_error_K.copy_(error_NSK.square().mean(dim=(0, 1)).sqrt().clamp(min=1e-6))


def score_windows(model: nn.Module, x: np.ndarray) -> np.ndarray:
    """Return the score of each window or row, ``score_N``; larger is more unusual."""
    return in_batches(model.eval(), x).numpy()


@torch.no_grad()
def in_batches(function: Callable[[Tensor], Tensor], x: np.ndarray) -> Tensor:
    """Apply `function` to all examples of `x`, `SCORE_BATCH` at once, without gradients."""
    x_contiguous = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    return torch.cat([function(part) for part in torch.split(x_contiguous, SCORE_BATCH)])


def _squared_error(model: nn.Module, x_NLC: Tensor, y_N: Tensor | None) -> Tensor:
    loss: Tensor = _as_any(model).errors(x_NLC).square().mean()
    return loss


def _cross_entropy(model: nn.Module, x_NF: Tensor, y_N: Tensor | None, *, config: TrainConfig) -> Tensor:
    assert y_N is not None
    return member_cross_entropy(
        _as_any(model).logits(x_NF),
        y_N,
        label_smoothing=config.label_smoothing,
        positive_weight=config.positive_weight,
    )


def _as_any(model: nn.Module) -> Any:
    """Torch types every attribute of a module as tensor or module; the methods of ours are neither."""
    return model
