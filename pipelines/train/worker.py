"""What one worker of a training does, whoever started it."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import torch

from pipelines.errors import TracksideError
from pipelines.models import batch_loss, build_model, fit_statistics
from pipelines.train.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from pipelines.train.goodput import Attempt, Progress, recorded
from pipelines.train.loop import Dataset, Schedule, Snapshot, fit
from pipelines.train.outcome import read_failure, save_failure
from pipelines.train.parallel import Group, current_group
from pipelines.train.plan import Job, Plan, open_store
from pipelines.train.snapshot import load, pack
from pipelines.windows import load_windows

log = logging.getLogger(__name__)


def work(plan: Plan, job: Job, device: str) -> None:
    """Train; an error that a restart would only repeat is left in the store instead of being raised.

    Ray restarts workers whatever they died of, so a worker group that is started after a verdict ends at once.
    """
    if read_failure(plan.location):
        return
    try:
        train(plan, job, current_group(torch.device(device)))
    except TracksideError as err:
        if err.retryable:
            raise
        save_failure(plan.location, err)


def train(plan: Plan, job: Job, group: Group) -> None:
    """Train from the newest good checkpoint to the end of the plan.

    Args:
        plan: What to train.
        job: Who asked for it.
        group: The workers that train together.
    """
    started_at_s = time.time()
    store = open_store(plan, attempt=group.agree(uuid.uuid4().hex[:8]))
    windows = load_windows(plan.windows, parts=("train", "validation"))
    torch.manual_seed(plan.recipe.seed)
    model = build_model(plan.recipe, len(windows.channels))
    fit_statistics(model, windows.train_x)
    model.to(group.device)
    resume = _agreed_start(store, group)
    log.info("attempt %s of %s starts after step %d", store.attempt, plan.run_key, resume.step if resume else 0)

    progress = Progress()
    attempt = Attempt(
        name=store.attempt,
        submission=job.submission,
        submitted_at_s=job.submitted_at_s,
        driver_at_s=job.driver_at_s,
        started_at_s=started_at_s,
        workers=group.size,
    )

    with recorded(plan.attempts, attempt, progress) if group.is_first else nullcontext(), _uploader(store) as upload:
        fit(
            model,
            Dataset.of(windows.train_x, windows.train_y, group.device),
            Dataset.of(windows.validation_x, windows.validation_y, group.device),
            _schedule(plan),
            loss=batch_loss(plan.recipe),
            group=group,
            resume=resume,
            progress=progress,
            on_checkpoint=upload if group.is_first else _ignore,
        )


def _ignore(snapshot: Snapshot) -> None:
    """Rank 0 saves for all."""


@contextmanager
def _uploader(store: CheckpointStore) -> Iterator[Callable[[Snapshot], None]]:
    """Something that saves snapshots while training goes on: the state is copied at once and uploaded by a thread.

    At most one upload is under way, and leaving waits for it; an upload that failed is raised at the next chance.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        under_way: list[Future[Checkpoint]] = []

        def finish() -> None:
            while under_way:
                under_way.pop().result()

        def save(snapshot: Snapshot) -> None:
            objects = pack(snapshot)
            finish()
            under_way.append(
                thread.submit(store.save, objects, step=snapshot.step, validation_loss=snapshot.validation_loss)
            )

        yield save
        finish()


def _agreed_start(store: CheckpointStore, group: Group) -> Snapshot | None:
    """The snapshot that all workers go on from: rank 0 chooses it."""
    newest = store.latest() if group.is_first else None
    location = group.agree(newest.location if newest else "")
    return load(read_checkpoint(location), group.device) if location else None


def _schedule(plan: Plan) -> Schedule:
    """What the loop needs to know of the plan."""
    train = plan.recipe.train
    return Schedule(
        seed=plan.recipe.seed,
        epochs=train.epochs,
        global_batch=plan.global_batch,
        learning_rate=plan.learning_rate,
        warmup_steps=train.warmup_steps,
        weight_decay=train.weight_decay,
        checkpoint_every_steps=plan.checkpoint_every_steps,
    )
