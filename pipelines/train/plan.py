"""The plan of one training: everything that was decided before it starts, and why."""

from dataclasses import asdict, dataclass
from typing import Any

from pipelines.config import Recipe, parse_recipe
from pipelines.errors import CapacityError, ConfigError
from pipelines.storage import join, read_json, write_json
from pipelines.train.checkpoint import CheckpointStore
from pipelines.train.jobs import Cluster
from pipelines.windows import WindowSet, load_windows

PLAN = "plan.json"

WORKER_BASE_BYTES = 450 * 2**20
"""Resident memory of a worker process that has imported torch and the engine, before any data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One training, decided."""

    run_key: str
    """Identity of the logical run; all attempts and retries share it."""

    location: str
    """Folder that everything about the run lies in."""

    windows: str
    """Location of the windows that are trained on."""

    recipe: Recipe
    strategy: str
    """`ddp`: every worker has the whole model and a share of each batch."""

    workers: int
    backend: str
    batch_per_worker: int
    global_batch: int
    learning_rate: float
    """Peak, after scaling."""

    total_steps: int
    checkpoint_every_steps: int
    memory_per_worker_bytes: int
    """Expected resident memory of one worker."""

    reasons: tuple[str, ...]
    """Why these numbers, in sentences."""

    @property
    def checkpoints(self) -> str:
        """Folder of the checkpoints."""
        return join(self.location, "checkpoints")

    @property
    def attempts(self) -> str:
        """Folder of the records of the attempts."""
        return join(self.location, "attempts")

    def decisions(self) -> dict[str, Any]:
        """What was decided, apart from the recipe and the places."""
        kept = ("strategy", "workers", "backend", "batch_per_worker", "global_batch", "learning_rate", "total_steps")
        return {name: getattr(self, name) for name in kept}

    def save(self) -> str:
        """Store the plan as `plan.json` in its folder; return where."""
        return write_json(join(self.location, PLAN), {**asdict(self), "recipe": self.recipe.model_dump(mode="json")})


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One job of a training: a run of the engine, which may start workers several times."""

    submission: str
    submitted_at_s: float
    driver_at_s: float


def load_plan(location: str) -> Plan:
    """Read a stored plan."""
    stored = read_json(location)
    recipe = parse_recipe(stored["recipe"], where=location)
    return Plan(**{**stored, "recipe": recipe, "reasons": tuple(stored["reasons"])})


def open_store(plan: Plan, *, attempt: str = "") -> CheckpointStore:
    """The checkpoints of a plan."""
    return CheckpointStore(
        prefix=plan.checkpoints,
        recipe_digest=plan.recipe.digest,
        attempt=attempt,
        keep_last=plan.recipe.train.keep_last,
        keep_best=plan.recipe.train.keep_best,
    )


def make_plan(windows_location: str, recipe: Recipe, run_key: str, cluster: Cluster, *, location: str) -> Plan:
    """Decide workers, batch, learning rate and steps.

    Args:
        windows_location: Windows to train on.
        recipe: What is trained.
        run_key: Identity of the logical run.
        cluster: What the engine has.
        location: Folder of the run.

    Raises:
        ConfigError: There is nothing to train or to validate on.
        CapacityError: Not even one worker fits now.
    """
    windows = load_windows(windows_location, parts=("train", "validation"))
    num_train, num_validation = len(windows.train_x), len(windows.validation_x)
    if num_train == 0 or num_validation == 0:
        raise ConfigError(
            f"{windows_location}: {num_train} training and {num_validation} validation examples, but both must be "
            f"1 or more; left out: {windows.counts}"
        )
    memory_bytes = _memory_per_worker(recipe, windows)
    workers, reasons = _choose_workers(recipe, cluster, memory_bytes=memory_bytes, num_examples=num_train)
    train = recipe.train
    global_batch = workers * train.batch_per_worker
    rate, rate_reason = _scale_learning_rate(recipe, global_batch)
    backend = "nccl" if cluster.num_gpus >= workers else "gloo"
    steps_per_epoch = -(-num_train // global_batch)
    reasons += [
        f"strategy ddp: the model and its optimiser fit into one worker ({memory_bytes / 2**20:.0f} MiB with the data)",
        f"backend {backend}: the cluster has {cluster.num_gpus:g} GPUs for {workers} workers",
        rate_reason,
        f"{train.epochs} epochs of {steps_per_epoch} steps: {num_train} examples in global batches of {global_batch}",
    ]
    return Plan(
        run_key=run_key,
        location=location,
        windows=windows_location,
        recipe=recipe,
        strategy="ddp",
        workers=workers,
        backend=backend,
        batch_per_worker=train.batch_per_worker,
        global_batch=global_batch,
        learning_rate=rate,
        total_steps=train.epochs * steps_per_epoch,
        checkpoint_every_steps=train.checkpoint_every_steps,
        memory_per_worker_bytes=memory_bytes,
        reasons=tuple(reasons),
    )


def _choose_workers(recipe: Recipe, cluster: Cluster, *, memory_bytes: int, num_examples: int) -> tuple[int, list[str]]:
    """As many workers as the recipe asks for, unless the cluster or the data have less to offer."""
    wanted = recipe.train.workers
    limits = {
        f"the recipe asks for {wanted}": wanted,
        f"the cluster has {cluster.num_cpus:g} CPUs ({cluster.source})": int(cluster.num_cpus),
        f"{num_examples} examples fill no more batches of {recipe.train.batch_per_worker}": max(
            1, num_examples // recipe.train.batch_per_worker
        ),
    }
    if cluster.memory_bytes:
        room = int(cluster.memory_bytes // memory_bytes)
        limits[f"{cluster.memory_bytes / 2**30:.1f} GiB hold {room} of {memory_bytes / 2**30:.2f} GiB each"] = room
    workers = min(limits.values())
    if workers < 1:
        short = min(limits, key=lambda reason: limits[reason])
        raise CapacityError(f"recipe {recipe.name} needs at least 1 worker, but {short}")
    decisive = [reason for reason, limit in limits.items() if limit == workers]
    return workers, [f"{workers} workers: " + "; ".join(decisive)]


def _scale_learning_rate(recipe: Recipe, global_batch: int) -> tuple[float, str]:
    """Linear rule: a batch k times as large takes steps k times as long (Goyal et al. 2017), after a warm-up."""
    train = recipe.train
    if train.lr_scaling == "none":
        return train.learning_rate, f"learning rate {train.learning_rate:g}: the recipe forbids scaling"
    rate = train.learning_rate * global_batch / train.reference_batch
    return rate, (
        f"learning rate {rate:g}: {train.learning_rate:g} for a batch of {train.reference_batch}, scaled linearly to "
        f"{global_batch}, reached after {train.warmup_steps} steps"
    )


def _memory_per_worker(recipe: Recipe, windows: WindowSet) -> int:
    """Process, data, and four copies of the weights: weights, gradients and AdamW's two moments."""
    from pipelines.models import build_model  # imports torch, which those who only read a plan do without

    model = build_model(recipe, len(windows.channels))
    weights: int = sum(tensor.nbytes for tensor in model.state_dict().values())
    arrays = [windows.train_x, windows.train_y, windows.validation_x, windows.validation_y]
    data = sum(array.nbytes for array in arrays if array is not None)
    return WORKER_BASE_BYTES + data + 4 * weights
