"""The state of a training as a checkpoint's objects: weights, optimiser, curves.

Everything else that training needs to go on is a function of the recipe and the step: the learning rate, the order of
the samples, the seeds.
"""

import io
from typing import Any

import torch
from torch import Tensor

from pipelines.train.checkpoint import CURVES, Checkpoint, pack_curves, read_curves, read_object
from pipelines.train.loop import Snapshot
from pipelines.train.parallel import CPU

MODEL = "model.pt"
"""Weights and buffers alone: all that scoring needs."""

OPTIMISER = "optimiser.pt"


def pack(snapshot: Snapshot) -> dict[str, bytes]:
    """The objects of a checkpoint, by name."""
    return {
        MODEL: _pack(snapshot.model),
        OPTIMISER: _pack(snapshot.optimiser),
        CURVES: pack_curves(snapshot.curves),
    }


def load(checkpoint: Checkpoint, device: torch.device = CPU) -> Snapshot:
    """Read and verify a whole checkpoint."""
    return Snapshot(
        step=checkpoint.step,
        validation_loss=checkpoint.validation_loss,
        model=load_model(checkpoint, device),
        optimiser=_unpack(read_object(checkpoint, OPTIMISER), device),
        curves=read_curves(checkpoint),
    )


def load_model(checkpoint: Checkpoint, device: torch.device = CPU) -> dict[str, Tensor]:
    """Read and verify the weights and buffers of a checkpoint."""
    state: dict[str, Tensor] = _unpack(read_object(checkpoint, MODEL), device)
    return state


def _pack(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _unpack(data: bytes, device: torch.device) -> Any:
    """Read tensors and plain values; a pickle that would run code is refused by torch."""
    return torch.load(io.BytesIO(data), map_location=device, weights_only=True)
