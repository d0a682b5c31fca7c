"""The one table that says what a failed task does, by the class of its error.

A retry without a delay of its own waits as the task's arguments say: twice as long each time. Errors that the table
does not name (a bug, a signal, a worker that died) are retried in the same way, as often as the task may. The classes
are named, not imported, because the DAG side knows the steps and nothing below them.
"""

from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

RETRY_POLICY = ExceptionRetryPolicy(
    [
        RetryRule(
            "pipelines.errors.CapacityError",
            RetryAction.RETRY,
            retry_delay=timedelta(minutes=10),
            reason="the cluster is full; room comes when another job ends",
        ),
        RetryRule(
            [
                "pipelines.errors.ConflictError",
                "pipelines.errors.FetchError",
                "pipelines.errors.IncompleteRecordingError",
                "pipelines.errors.StoreError",
                "pipelines.errors.TrackingError",
                "pipelines.errors.TrainingLostError",
            ],
            RetryAction.RETRY,
            reason="the same call may succeed later",
        ),
        RetryRule(
            [
                "pipelines.errors.CheckpointError",
                "pipelines.errors.ConfigError",
                "pipelines.errors.DataQualityError",
                "pipelines.errors.LedgerError",
                "pipelines.errors.NonFiniteLossError",
                "pipelines.errors.ObjectNotFoundError",
                "pipelines.errors.RecordingError",
                "pipelines.errors.ServiceError",
                "pipelines.errors.StoreAccessError",
                "pipelines.errors.SuiteError",
                "pipelines.errors.TrackingAccessError",
            ],
            RetryAction.FAIL,
            reason="the same call fails again until somebody changes something",
        ),
    ]
)
