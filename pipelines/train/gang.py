"""Ray Train without what this project does not use: processes and imports that cost seconds at every start.

`ProcessGroup` does what `ray.train.torch.TorchConfig` does, without importing torch in the driver and in Ray's
controller, which have no use for it: that takes three seconds of processor time each, one after the other, at every
start of a job.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


class Trainer(DataParallelTrainer):  # type: ignore[misc]
    """A trainer that starts two processes less.

    One would hand out shards of Ray data sets. The other would free the workers' places if the controller died before
    the driver; ours ends with the controller, and Ray then frees everything that belongs to the job.
    """

    def _create_default_callbacks(self) -> list[Any]:
        unused = DatasetsCallback, PlacementGroupCleanerCallback
        return [callback for callback in super()._create_default_callbacks() if not isinstance(callback, unused)]


@dataclass(frozen=True, kw_only=True)
class ProcessGroup(BackendConfig):  # type: ignore[misc]
    """Which backend connects the workers, and how long one may be silent before it counts as lost."""

    backend: str
    timeout_s: float

    @property
    def backend_cls(self) -> type[Backend]:
        """Who carries it out."""
        return _Gang


class _Gang(Backend):  # type: ignore[misc]
    """Connects the workers of a group before training starts, and parts them after it."""

    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: ProcessGroup) -> None:
        """Let every worker join at an address that rank 0 chose."""
        address = worker_group.execute_single(0, _free_address)
        joining = [
            worker_group.execute_single_async(
                rank,
                _join,
                address=address,
                position=(rank, len(worker_group)),
                backend=backend_config.backend,
                timeout_s=backend_config.timeout_s,
            )
            for rank in range(len(worker_group))
        ]
        ray.get(joining)

    def on_shutdown(self, worker_group: Any, backend_config: ProcessGroup) -> None:
        """Leave the group; a worker that hangs is ended by Ray in any case."""
        ray.get(worker_group.execute_async(_leave), timeout=10)


def _free_address() -> str:
    from ray.train._internal.utils import get_address_and_port

    host, port = get_address_and_port()
    return f"tcp://{host}:{port}"


def _join(*, address: str, position: tuple[int, int], backend: str, timeout_s: float) -> None:
    import torch.distributed as dist

    import pipelines.train.worker  # noqa: F401 - while the others start too, rather than after them

    rank, size = position
    dist.init_process_group(
        backend, init_method=address, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
    )


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
