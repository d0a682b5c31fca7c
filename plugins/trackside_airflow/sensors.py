"""Waiting for recordings."""

import time
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from pipelines import steps
from trackside_airflow.triggers import PendingRecordingsTrigger


class PendingRecordingsSensor(BaseSensorOperator):
    """Wait in the triggerer until a complete recording is pending; return all that are, by vehicle and service day."""

    template_fields: Sequence[str] = ("prefix", "wait_s", "again")

    def __init__(self, *, prefix: str, wait_s: float, again: bool, limit: int, **kwargs: Any) -> None:
        """Say where to look and how patiently.

        Args:
            prefix: Where to look, as `steps.pending` takes it.
            wait_s: Seconds to wait for the first one; without any by then, the task is skipped.
            again: Whether to take also recordings that were published or refused before.
            limit: Most vehicle days that one run takes; the others are still pending for the next run.
            kwargs: What every sensor takes.
        """
        super().__init__(**kwargs)
        self.prefix = prefix
        self.wait_s = wait_s
        self.again = again
        self.limit = limit

    def execute(self, context: Context) -> list[list[str]]:
        """Look once here, where it costs nothing more, then in the triggerer."""
        pending = steps.pending(self.prefix, again=self.again)
        if not pending:
            deadline = time.time() + float(self.wait_s)
            trigger = PendingRecordingsTrigger(prefix=self.prefix, poll_s=self.poke_interval, deadline=deadline)
            self.defer(trigger=trigger, method_name="execute_complete")
        return self._take(pending)

    def execute_complete(self, context: Context, event: bool) -> list[list[str]]:
        """Look again: more may have come since the trigger saw the first."""
        if not event:
            raise AirflowSkipException(
                f"no complete recording came below {self.prefix or 'the landing area'} within {self.wait_s} s"
            )
        return self._take(steps.pending(self.prefix, again=self.again))

    def _take(self, pending: list[str]) -> list[list[str]]:
        days = steps.vehicle_days(pending)
        taken = days[: self.limit]
        self.log.info(
            "%d recordings of %d vehicle days are due, this run takes %d", len(pending), len(days), len(taken)
        )
        return taken
