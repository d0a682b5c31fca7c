"""Retrain a model on all published data, and promote it if it has earned it.

1. **build_windows** cuts the newest table version into training, validation and held-out windows.
2. **plan** chooses strategy, workers and batch from the data and what the cluster has.
3. **train** runs the job on the engine and waits without holding a worker (*MLflow run* on the task opens its curves).
   Whatever dies meanwhile, the retry finds the same job, or resumes it from its newest checkpoint, in the same run.
4. **evaluate** scores the model on held-out data beside the champion and naive baselines.
5. **register** records it as a candidate with its evidence.
6. **promote** makes it champion if the gate passes, with a line in the ledger; if not, the task is skipped and its log
   says why.

A run's work is named after the run: cleared tasks find and replace what they wrote before.
"""

from datetime import timedelta

import pendulum
from airflow.sdk import CronDataIntervalTimetable, Param, dag, task

from pipelines import steps
from trackside_airflow.assets import MODEL_CANDIDATE, MODEL_CHAMPION
from trackside_airflow.defaults import DEFAULT_ARGS, RUN_KEY, run_key
from trackside_airflow.operators import PromoteOperator, TrainOperator

PARAMS = {
    "recipe": Param(
        "hot_bearing",
        type="string",
        enum=["hot_bearing", "metro_compressor", "metro_compressor_windows", "smoke"],
        title="Recipe",
        description="What to train. `smoke` takes seconds and proves the way; the others make models.",
    ),
    "workers": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=64,
        title="Workers",
        description="Processes that train together. Empty: as many as the recipe says.",
    ),
    "epochs": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=1000,
        title="Epochs",
        description="Passes over the training windows. Empty: as many as the recipe says.",
    ),
    "force_promote": Param(
        False,
        type="boolean",
        title="Promote against the gate",
        description="Make the model champion even if the gate refuses it. The decision is recorded as forced.",
    ),
}


@dag(
    schedule=CronDataIntervalTimetable("0 2 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # a training takes all data there is, so a missed night needs no second one
    max_active_runs=1,  # two trainings would share the cluster, and race for the alias
    params=PARAMS,
    render_template_as_native_obj=True,  # workers and epochs arrive as numbers or None, force_promote as a boolean
    user_defined_macros={"run_key": run_key},
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["training"],
)
def nightly_retrain():
    windows = task(steps.build_windows)(
        recipe="{{ params.recipe }}", run_key=RUN_KEY, workers="{{ params.workers }}", epochs="{{ params.epochs }}"
    )
    plan = task(steps.plan)(windows)
    trained = TrainOperator(task_id="train", plan=plan, time_limit=timedelta(hours=8), retries=3)
    report = task(steps.evaluate)(plan)
    candidate = task(steps.register, outlets=[MODEL_CANDIDATE])(plan, report)
    PromoteOperator(
        task_id="promote",
        candidate=candidate,
        report=report,
        key=RUN_KEY,
        force="{{ params.force_promote }}",
        outlets=[MODEL_CHAMPION],
    )
    trained >> report


nightly_retrain()
