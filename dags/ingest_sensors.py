"""Take in what the recorders have landed: every complete recording becomes a partition of its source's aligned table.

1. **wait_for_recordings** waits, without holding a worker, until a recording whose manifest has arrived is pending.
   If none comes in time, the run is skipped.
2. **recording**, once for each of them, labelled with its vehicle, service day and name:
   **synchronise** maps its clocks to UTC, aligns and locates its rows; **validate** lets it pass its suite of
   expectations (*Data Docs* on the task opens the report); **publish** replaces its partitions of the table.

A recording that cannot be read, or fails its suite, is put into quarantine and fails alone; the others go on. Clearing
a failed task repeats it; everything it writes is replaced.
"""

import pendulum
from airflow.sdk import CronDataIntervalTimetable, Param, dag, task, task_group

from pipelines import steps
from trackside_airflow.assets import ALIGNED_DATA
from trackside_airflow.defaults import DEFAULT_ARGS, RECORDING_LABEL
from trackside_airflow.operators import ValidateOperator
from trackside_airflow.sensors import PendingRecordingsSensor

PARAMS = {
    "prefix": Param(
        "",
        type="string",
        pattern=r"^([a-z][a-z0-9_]*(/[^/\s]+){0,2})?$",
        title="Which recordings",
        description="`<source>[/<vehicle>[/<day>]]`, such as `bundle/07` or `bundle/07/2026-01-12`. Empty: all.",
    ),
    "wait_s": Param(
        1800,
        type="integer",
        minimum=0,
        maximum=3000,
        title="Patience, in seconds",
        description="How long to wait for the first complete recording before the run is skipped.",
    ),
}


@dag(
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # a run takes whatever is pending, however old
    max_active_runs=1,  # two runs would take the same recordings
    params=PARAMS,
    render_template_as_native_obj=True,  # wait_s arrives as a number
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["data"],
)
def ingest_sensors():
    pending = PendingRecordingsSensor(
        task_id="wait_for_recordings",
        prefix="{{ params.prefix }}",
        wait_s="{{ params.wait_s }}",
        limit=256,  # Airflow maps over at most 1024, and a run should end before the next
        poke_interval=10,
    )
    recording.expand(location=pending.output)


@task_group
def recording(location):
    staged = task(steps.synchronise, map_index_template=RECORDING_LABEL)(location)
    passed = ValidateOperator(task_id="validate", staged=staged, map_index_template=RECORDING_LABEL)
    task(steps.publish, outlets=[ALIGNED_DATA], map_index_template=RECORDING_LABEL)(passed.output)


ingest_sensors()
