"""The tasks that need more of Airflow than a function call: a link, a deferral, a skip."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, Context, TaskInstanceState
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from pipelines import steps
from trackside_airflow.links import DataDocsLink, MlflowRunLink, TimeAndPlaceLink, links_to
from trackside_airflow.triggers import TIMED_OUT, TrainingTrigger


class SynchroniseOperator(BaseOperator):
    """Bring landed recordings of one vehicle and day onto one time and one line; the charts are one click away."""

    template_fields: Sequence[str] = ("recordings",)
    operator_extra_links = (TimeAndPlaceLink(),)

    def __init__(self, *, recordings: list[str], **kwargs: Any) -> None:
        """Take the locations of the recordings."""
        super().__init__(**kwargs)
        self.recordings = recordings
        self.staged = ""

    def execute(self, context: Context) -> str:
        """Return the location of the staged batch; it stays known to the link, which is asked for afterwards."""
        self.staged = steps.synchronise(self.recordings)
        return self.staged


class ValidateOperator(BaseOperator):
    """Let a staged batch pass its suites, or fail with what is wrong; the report is one click away."""

    template_fields: Sequence[str] = ("staged",)
    operator_extra_links = (DataDocsLink(),)

    def __init__(self, *, staged: str, **kwargs: Any) -> None:
        """Take the location of the staged batch."""
        super().__init__(**kwargs)
        self.staged = staged

    def execute(self, context: Context) -> str:
        """Return the location of what passed."""
        return steps.validate(self.staged)


class AllSucceeded(EmptyOperator):
    """Fail the run if a task before it failed: a run is judged by its last tasks, and others of them may succeed."""


class TrainOperator(BaseOperator):
    """Run the training of a plan on the engine while no worker is held; return the location of its result.

    Whatever dies meanwhile (task process, worker, triggerer, scheduler), the job goes on: a restarted triggerer watches
    it again, and a retry finds it, because `steps.submit_training` looks before it starts anything. It is stopped when
    a person clears the task or marks it, and when it takes longer than `time_limit`.
    """

    template_fields: Sequence[str] = ("plan",)
    operator_extra_links = (MlflowRunLink(),)

    def __init__(self, *, plan: str, time_limit: timedelta, poll_s: float = 3.0, **kwargs: Any) -> None:
        """Say what to train and how patiently.

        Args:
            plan: Location of the plan.
            time_limit: How long one attempt may take.
            poll_s: Seconds between two looks at the job.
            kwargs: What every operator takes.
        """
        super().__init__(**kwargs)
        self.plan = plan
        self.time_limit = time_limit
        self.poll_s = poll_s

    def execute(self, context: Context) -> None:
        """Start the job or find it, then wait in the triggerer."""
        submission_id = steps.submit_training(self.plan, links=links_to(context))
        if not _is_still_running(context):  # then Airflow refuses to defer, and no trigger would ever stop the job
            steps.stop_training(submission_id)
        self.log.info("training job %s, waiting for it in the triggerer", submission_id)
        deadline = time.time() + self.time_limit.total_seconds()
        self.defer(
            trigger=TrainingTrigger(submission_id=submission_id, poll_s=self.poll_s, deadline=deadline),
            method_name="execute_complete",
        )

    def execute_complete(self, context: Context, event: dict[str, str]) -> str:
        """Return the result, or raise the error that says why there is none; its class decides about a retry."""
        self.log.info("training job %s is %s: %s", event["submission_id"], event["state"], event["message"])
        if event["state"] == TIMED_OUT:
            steps.stop_training(event["submission_id"])
            raise AirflowException(
                f"training job {event['submission_id']} had not ended after {self.time_limit} and was stopped "
                f"({event['message']}); a retry resumes from its newest checkpoint"
            )
        return steps.training_result(self.plan)


def _is_still_running(context: Context) -> bool:
    """Whether nobody has cleared or marked the task since it started."""
    ti = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index)
    return TaskInstanceState.RUNNING in states.get(ti.run_id, {}).values()


class PromoteOperator(BaseOperator):
    """Let the gate decide about a candidate; a refusal skips the task, so that nobody is told of a new champion."""

    template_fields: Sequence[str] = ("candidate", "report", "key", "force")

    def __init__(self, *, candidate: str, report: str, key: str, force: bool, **kwargs: Any) -> None:
        """Say what is to be decided.

        Args:
            candidate: `<model name>/<version>`.
            report: Location of its evaluation report.
            key: Names the act in the ledger; the same in every retry.
            force: Whether to promote against the gate.
            kwargs: What every operator takes.
        """
        super().__init__(**kwargs)
        self.candidate = candidate
        self.report = report
        self.key = key
        self.force = force

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the decision; skipped or not, it is the task's XCom."""
        run = context["dag_run"]
        decision = steps.promote(
            self.candidate,
            self.report,
            key=self.key,
            decided_by=run.triggering_user_name or "schedule",
            force=self.force,
            dag_run=f"{run.dag_id}/{run.run_id}",
        )
        if not decision["promoted"]:
            context["ti"].xcom_push(key="return_value", value=decision)
            raise AirflowSkipException(f"{self.candidate} was not promoted: {'; '.join(decision['reasons'])}")
        return decision
