"""Where the wall time of a training went, over all its attempts.

Each attempt keeps one small object, `<run>/attempts/<attempt>.json`, that a thread of rank 0 rewrites every two
seconds. It is the heartbeat for those who watch, and what is left of an attempt that was killed. Vocabulary: ML
Productivity Goodput = scheduling x runtime x program goodput (arXiv 2502.06982).
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from pipelines.errors import TracksideError
from pipelines.storage import join, list_objects, read_json, write_json
from pipelines.tracking import Point

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0


@dataclass(kw_only=True, slots=True)
class Progress:
    """What a training has done so far; another thread may read it while the loop runs."""

    began_at_s: float = 0.0
    """When the first step of this attempt began, seconds since 1970; 0 before that."""

    resumed_from: int = 0
    """Step of the checkpoint that this attempt started from."""

    step: int = 0
    """Last finished step."""

    step_s: float = 0.0
    """Time in training steps, of which `stall_s` was spent waiting for data."""

    stall_s: float = 0.0
    validation_s: float = 0.0
    checkpoint_s: float = 0.0
    curves: list[Point] = field(default_factory=list)
    """All values since the first attempt, in the order of their steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What one worker group did, from the moment its training function began; times in seconds since 1970."""

    name: str
    submission: str
    """Job that the attempt belongs to; one job may restart its workers several times."""

    submitted_at_s: float
    """When the job was asked for."""

    driver_at_s: float
    """When the job began to run."""

    started_at_s: float
    """When the training function began."""

    workers: int
    began_at_s: float = 0.0
    """When the first step began; 0 if it never did."""

    heartbeat_at_s: float = 0.0
    resumed_from: int = 0
    step: int = 0
    step_s: float = 0.0
    stall_s: float = 0.0
    validation_s: float = 0.0
    checkpoint_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """A training's wall time, divided; all but the last four in seconds."""

    wall_s: float
    productive_s: float
    """Steps and validations that count."""

    redone_s: float
    """Steps that an attempt lost and a later one repeated."""

    checkpoint_s: float
    """Training stood still while a checkpoint was written."""

    startup_s: float
    """From the start of a job, or the death of an attempt, to the next first step."""

    waiting_s: float
    """Jobs were asked for but did not run yet, or nobody had asked again after a job died."""

    other_s: float
    """The rest: closing down, steps after the last heartbeat of an attempt that died."""

    scheduling: float
    """Share of the wall time in which a job ran."""

    runtime: float
    """Share of that in which training went forward."""

    program: float
    """Share of the step time that did not wait for data."""

    goodput: float
    """Product of the three."""


@contextmanager
def recorded(folder: str, attempt: Attempt, progress: Progress) -> Iterator[None]:
    """Keep the object of a running attempt up to date: every second, and once more at the end."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(HEARTBEAT_S):
            _write(folder, attempt, progress)

    _write(folder, attempt, progress)
    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        _write(folder, attempt, progress)


def read_attempts(folder: str) -> list[Attempt]:
    """The attempts of a training, oldest first."""
    attempts = [Attempt(**read_json(location)) for location in list_objects(folder)]
    return sorted(attempts, key=lambda attempt: attempt.started_at_s)


def goodput(attempts: list[Attempt], *, finished_at_s: float) -> Goodput:
    """Divide the time from the first request to `finished_at_s`.

    Args:
        attempts: All attempts, oldest first; at least one.
        finished_at_s: When the training had its result.
    """
    wall_s = finished_at_s - attempts[0].submitted_at_s
    productive_s = redone_s = startup_s = waiting_s = 0.0
    ended_at_s, submission = attempts[0].submitted_at_s, ""
    for attempt, following in zip(attempts, [*attempts[1:], None], strict=True):
        kept = _kept_share(attempt, following)
        spent_s = attempt.step_s + attempt.validation_s
        productive_s += kept * spent_s
        redone_s += (1 - kept) * spent_s
        idle_since_s = ended_at_s
        if attempt.submission != submission:
            waiting_s += max(0.0, attempt.driver_at_s - ended_at_s)
            idle_since_s = max(attempt.driver_at_s, ended_at_s)
        startup_s += max(0.0, (attempt.began_at_s or attempt.heartbeat_at_s) - idle_since_s)
        ended_at_s, submission = attempt.heartbeat_at_s, attempt.submission
    checkpoint_s = sum(attempt.checkpoint_s for attempt in attempts)
    step_s = sum(attempt.step_s for attempt in attempts)
    scheduling = 1 - waiting_s / wall_s
    runtime = productive_s / (wall_s - waiting_s)
    program = 1 - sum(attempt.stall_s for attempt in attempts) / step_s if step_s else 0.0
    return Goodput(
        wall_s=wall_s,
        productive_s=productive_s,
        redone_s=redone_s,
        checkpoint_s=checkpoint_s,
        startup_s=startup_s,
        waiting_s=waiting_s,
        other_s=wall_s - productive_s - redone_s - checkpoint_s - startup_s - waiting_s,
        scheduling=scheduling,
        runtime=runtime,
        program=program,
        goodput=scheduling * runtime * program,
    )


def _kept_share(attempt: Attempt, following: Attempt | None) -> float:
    """Share of an attempt's steps that no later attempt had to repeat."""
    done = attempt.step - attempt.resumed_from
    if following is None or done == 0:
        return 1.0
    return max(0, min(attempt.step, following.resumed_from) - attempt.resumed_from) / done


def _write(folder: str, attempt: Attempt, done: Progress) -> None:
    """A heartbeat that the store does not take is not worth ending a training for; the next one follows."""
    record = replace(
        attempt,
        heartbeat_at_s=time.time(),
        began_at_s=done.began_at_s,
        resumed_from=done.resumed_from,
        step=done.step,
        step_s=done.step_s,
        stall_s=done.stall_s,
        validation_s=done.validation_s,
        checkpoint_s=done.checkpoint_s,
    )
    try:
        write_json(join(folder, f"{attempt.name}.json"), asdict(record))
    except TracksideError as err:
        log.warning("heartbeat not written: %s", err)
