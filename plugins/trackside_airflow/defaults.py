"""What holds for every DAG: its arguments, how it names a run, how it labels a vehicle day."""

import hashlib
import re
from datetime import timedelta
from typing import Any

from trackside_airflow.retries import RETRY_POLICY

DEFAULT_ARGS: dict[str, Any] = {
    "owner": "trackside",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": RETRY_POLICY,
    "execution_timeout": timedelta(hours=1),  # no step works longer; training waits outside the task process
}

RUN_KEY = "{{ run_key(dag_run.dag_id, dag_run.run_id) }}"
"""Template of the name that a DAG run gives to its work; needs the macro `run_key`."""

VEHICLE_DAY_LABEL = (
    "{% set given = task.recordings if task.recordings is defined else "
    "task.staged if task.staged is defined else task.op_args[0] %}"
    "{{ (given if given is string else given[0]).rstrip('/').split('/')[-4:-1] | join(' / ') }}"
)
"""Label of a mapped task in the UI: source, vehicle and service day, as the location of a recording or batch tells."""


def run_key(dag_id: str, run_id: str) -> str:
    """Name a DAG run so that it is safe in paths, addresses and job ids; no two runs share a name.

    Example:
        >>> run_key("nightly_retrain", "scheduled__2026-01-12T02:00:00+00:00")
        'nightly_retrain-scheduled-2026-01-12T02-00-00-00-00-6329b1f0'
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", run_id).strip("-")[:48]
    return f"{dag_id}-{readable}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"
