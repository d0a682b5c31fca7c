"""What the triggerer watches while a task waits without holding a worker.

The steps block, so they run in threads: one triggerer watches many tasks on one event loop. A step that raises ends the
trigger, and with it the attempt; the task's retry finds the same job or the same recordings again.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from pipelines import steps

ENDED = {"SUCCEEDED", "FAILED", "STOPPED"}
"""States of a training job that no longer change."""

TIMED_OUT = "TIMED_OUT"
"""State that an event reports when the task has waited as long as it may."""


class TrainingTrigger(BaseTrigger):
    """Fires with `{submission_id, state, message}` when a training job has ended, or at the deadline."""

    def __init__(self, *, submission_id: str, poll_s: float, deadline: float) -> None:
        """Say which job to look at, every how many seconds, and until when (Unix time)."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.submission_id = submission_id
        self.poll_s = poll_s
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how another triggerer makes this trigger again."""
        arguments = {"submission_id": self.submission_id, "poll_s": self.poll_s, "deadline": self.deadline}
        return f"{__name__}.{type(self).__name__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the job; what it says goes to the task's log whenever it says something new."""
        last: dict[str, str] = {}
        while True:
            status = await asyncio.to_thread(steps.training_status, self.submission_id)
            if status != last:
                self.log.info("%s is %s: %s", self.submission_id, status["state"], status["message"])
                last = status
            if status["state"] in ENDED:
                yield self._event(status["state"], status["message"])
                return
            if time.time() > self.deadline:
                yield self._event(TIMED_OUT, f"last seen {status['state']}: {status['message']}")
                return
            await asyncio.sleep(self.poll_s)

    async def on_kill(self) -> None:
        """Stop the job, because a person has cleared the task or marked it.

        Airflow does not call this when the triggerer stops or dies. It does when another triggerer has taken over from
        this one, thought dead; the retry then resumes from the newest checkpoint. Asking for the task's state first
        would tell the two apart, but the first such question takes a triggerer half a minute, and the kill is lost.
        """
        await asyncio.to_thread(steps.stop_training, self.submission_id)
        self.log.info("%s was stopped because its task was", self.submission_id)

    def _event(self, state: str, message: str) -> TriggerEvent:
        payload = {"submission_id": self.submission_id, "state": state, "message": message}
        return TriggerEvent(payload)  # type: ignore[no-untyped-call]


class PendingRecordingsTrigger(BaseTrigger):
    """Fires with whether a complete recording is waiting: true as soon as one is, false at the deadline."""

    def __init__(self, *, prefix: str, poll_s: float, deadline: float) -> None:
        """Say where to look (as `steps.pending` takes it), every how many seconds, and until when (Unix time)."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.prefix = prefix
        self.poll_s = poll_s
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Say how another triggerer makes this trigger again."""
        arguments = {"prefix": self.prefix, "poll_s": self.poll_s, "deadline": self.deadline}
        return f"{__name__}.{type(self).__name__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until something is there or the deadline has passed."""
        while not await asyncio.to_thread(steps.pending, self.prefix):
            if time.time() > self.deadline:
                yield TriggerEvent(False)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poll_s)
        yield TriggerEvent(True)  # type: ignore[no-untyped-call]
