"""The group of processes that train together: which share of a batch is mine, and what do all of us have.

A group of one needs no process group at all, so the same loop runs inside any Python process. Backend: nccl where
every worker has a GPU, gloo otherwise.
"""

import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger(__name__)

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Group:
    """One process's place among those that train together."""

    rank: int = 0
    """Zero-based number of this process."""

    size: int = 1
    """Processes that train together."""

    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for the group: it alone writes checkpoints and records."""
        return self.rank == 0

    def share(self, indices_B: Tensor) -> tuple[Tensor, float]:
        """This process's part of a global batch, and its weight in the average over the processes.

        The weights make the average of the processes' mean losses the exact mean over the global batch, also where the
        batch does not divide evenly. A process with nothing to do takes one example with weight zero, because
        it must take part in the exchange of gradients.

        Example:
            >>> [Group(rank, 2).share(torch.arange(3)) for rank in range(2)]
            [(tensor([0, 2]), 1.3333333333333333), (tensor([1]), 0.6666666666666666)]
        """
        mine = indices_B[self.rank :: self.size]
        if len(mine) == 0:
            return indices_B[:1], 0.0
        return mine, len(mine) * self.size / len(indices_B)

    def wrap(self, module: nn.Module) -> nn.Module:
        """Make the backward pass of `module` average its gradients over the group; all start with rank 0's weights."""
        if self.size == 1:
            return module
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=ids, forward_sync_buffers=False, gradient_as_bucket_view=True)

    def seed(self, value: int) -> None:
        """Set the random numbers that this process's device draws from (`torch.manual_seed` sets all devices: 1 ms)."""
        if self.device.type == "cuda":
            torch.cuda.manual_seed(value)
        else:
            torch.default_generator.manual_seed(value)

    def mean(self, value: Tensor) -> float:
        """Average of a scalar over the group; every process gets the same number."""
        if self.size == 1:
            return float(value.detach())
        total = value.detach().to(self.device, torch.float64)
        dist.all_reduce(total)
        return float(total) / self.size

    def agree(self, text: str) -> str:
        """Rank 0's `text`, in every process."""
        if self.size == 1:
            return text
        box = [text]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]


ALONE = Group()


def current_group(device: torch.device = CPU) -> Group:
    """The group of the process group that an engine has set up in this process; a group of one where there is none.

    CPU workers share the machine's cores, so each computes with one thread: two with all cores each are slower, and the
    order of sums, hence the last bit of the result, would depend on the machine.
    """
    if device.type == "cpu":
        torch.set_num_threads(1)
    if not dist.is_initialized():
        log.info("one worker on %s, no process group", device)
        return Group(device=device)
    group = Group(dist.get_rank(), dist.get_world_size(), device)
    log.info("worker %d of %d on %s, backend %s", group.rank, group.size, device, dist.get_backend())
    return group
