"""Take in what the recorders have landed: every complete recording becomes part of its source's aligned table.

1. **wait_for_recordings** waits, without holding a worker, until a recording whose manifest has arrived is pending.
   If none comes in time, the run is skipped.
2. **vehicle_day**, once for each vehicle and service day, and labelled so: **synchronise** reads its recordings, maps
   their clocks to UTC, aligns, locates and screens their rows (*Time and place* on the task opens its charts);
   **validate** lets them pass their suites of expectations (*Data Docs* on the task opens the report); **publish**
   replaces them in the table, in one commit.
3. **mark_superseded** marks the registered versions and training runs that saw a vehicle day which has changed since.
   **all_published** does nothing, but lets the run fail if a vehicle day did.

A recording that cannot be read, or fails its suite, is put into quarantine; the others of its day go on, and a day of
which nothing is left fails alone. A repeated delivery changes nothing. A late or corrected one updates its vehicle day;
one that is poorer than what is published is set aside, and the published one stays (*Replace all the same* overrules).
Clearing a failed task repeats it; everything it writes is replaced.
"""

import pendulum
from airflow.sdk import CronDataIntervalTimetable, Param, TriggerRule, dag, task, task_group

from pipelines import steps
from trackside_airflow.assets import ALIGNED_DATA
from trackside_airflow.defaults import DEFAULT_ARGS, VEHICLE_DAY_LABEL
from trackside_airflow.operators import AllSucceeded, SynchroniseOperator, ValidateOperator
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
    "force": Param(
        False,
        type="boolean",
        title="Replace all the same",
        description="Process also what was published or refused before; a poorer delivery may replace a richer one.",
    ),
}


@dag(
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # a run takes whatever is pending, however old
    max_active_runs=1,  # two runs would take the same recordings
    max_active_tasks=3,  # of the four that one machine runs at once, so that a training finds its turn
    params=PARAMS,
    render_template_as_native_obj=True,  # wait_s arrives as a number, force as a boolean
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["data"],
)
def ingest_sensors():
    pending = PendingRecordingsSensor(
        task_id="wait_for_recordings",
        prefix="{{ params.prefix }}",
        wait_s="{{ params.wait_s }}",
        again="{{ params.force }}",
        limit=256,  # Airflow maps over at most 1024, and a run should end before the next
        poke_interval=10,
    )
    published = vehicle_day.expand(recordings=pending.output)
    published >> [
        task(steps.mark_superseded, trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)(),
        AllSucceeded(task_id="all_published"),
    ]


@task_group
def vehicle_day(recordings):
    staged = SynchroniseOperator(task_id="synchronise", recordings=recordings, map_index_template=VEHICLE_DAY_LABEL)
    passed = ValidateOperator(task_id="validate", staged=staged.output, map_index_template=VEHICLE_DAY_LABEL)
    task(steps.publish, outlets=[ALIGNED_DATA], map_index_template=VEHICLE_DAY_LABEL)(
        passed.output, force="{{ params.force }}"
    )


ingest_sensors()
