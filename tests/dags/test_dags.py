"""What holds for the DAG files, together and one by one."""

import ast
import configparser
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import ParamValidationError

from pipelines.config import recipe_names

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "dags").glob("*.py"))
HEAVY = {
    "boto3",
    "deltalake",
    "great_expectations",
    "matplotlib",
    "mlflow",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "ray",
    "scipy",
    "sklearn",
    "torch",
}


@pytest.fixture(scope="module")
def dagbag():
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=ROOT / "dags")
    assert bag.import_errors == {}
    return bag


@pytest.fixture
def ingest_sensors(dagbag):
    return dagbag.dags["ingest_sensors"]


@pytest.fixture
def nightly_retrain(dagbag):
    return dagbag.dags["nightly_retrain"]


def edges(dag):
    return {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}


def test_one_dag_per_file_named_after_it(dagbag):
    assert set(dagbag.dags) == {path.stem for path in FILES} == {"ingest_sensors", "nightly_retrain"}


def test_every_dag_and_every_parameter_is_explained(dagbag):
    for dag in dagbag.dags.values():
        assert dag.doc_md
        assert dag.tags
        for name in dag.params:
            schema = dag.params.get_param(name).schema
            assert schema.get("title"), f"{dag.dag_id}: {name}"
            assert schema.get("description") or dag.params.get_param(name).description, f"{dag.dag_id}: {name}"


def test_every_task_is_retried_by_the_one_table(dagbag):
    from trackside_airflow.retries import RETRY_POLICY

    for dag in dagbag.dags.values():
        for task in dag.tasks:
            assert task.retries >= 1, task.task_id
            assert task.retry_policy is RETRY_POLICY, task.task_id
            assert task.retry_exponential_backoff > 1, task.task_id


def test_runs_do_not_overlap_and_missed_ones_are_not_made_up(dagbag):
    for dag in dagbag.dags.values():
        assert (dag.max_active_runs, dag.catchup) == (1, False), dag.dag_id


def test_a_scheduled_night_covers_the_day_before_it(nightly_retrain):
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    timetable = coerce_to_core_timetable(nightly_retrain.timetable)
    restriction = TimeRestriction(earliest=nightly_retrain.start_date, latest=None, catchup=True)
    first = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)

    assert first.data_interval.end - first.data_interval.start == timedelta(days=1)
    assert first.run_after == first.data_interval.end


def test_vehicle_days_pass_three_tasks_in_order_before_anything_is_marked(ingest_sensors):
    assert edges(ingest_sensors) == {
        "wait_for_recordings": ["vehicle_day.synchronise"],
        "vehicle_day.synchronise": ["vehicle_day.validate"],
        "vehicle_day.validate": ["vehicle_day.publish"],
        "vehicle_day.publish": ["all_published", "mark_superseded"],
        "mark_superseded": [],
        "all_published": [],
    }


def test_each_vehicle_day_has_a_chain_of_its_own(ingest_sensors):
    from airflow.sdk.definitions.taskgroup import MappedTaskGroup

    group = ingest_sensors.task_group.children["vehicle_day"]

    assert isinstance(group, MappedTaskGroup)
    assert {task.trigger_rule for task in group.iter_tasks()} == {"all_success"}


def test_a_vehicle_day_that_failed_does_not_keep_the_others_from_being_marked(ingest_sensors):
    assert ingest_sensors.get_task("mark_superseded").trigger_rule == "all_done_min_one_success"


def test_a_run_in_which_a_vehicle_day_failed_has_failed(ingest_sensors):
    """A run is judged by its leaves, and marking succeeds whatever happened before it."""
    assert ingest_sensors.get_task("all_published").trigger_rule == "all_success"
    assert ingest_sensors.get_task("all_published").inherits_from_empty_operator  # it takes no slot of a worker


def test_ingestion_leaves_a_slot_of_the_machine_to_others(ingest_sensors):
    airflow_cfg = configparser.ConfigParser()
    airflow_cfg.read(ROOT / "airflow.cfg")

    assert ingest_sensors.max_active_tasks < int(airflow_cfg["core"]["parallelism"])


def test_a_model_is_trained_judged_registered_and_promoted_in_order(nightly_retrain):
    assert edges(nightly_retrain) == {
        "build_windows": ["plan"],
        "plan": ["evaluate", "register", "train"],
        "train": ["evaluate"],
        "evaluate": ["promote", "register"],
        "register": ["promote"],
        "promote": [],
    }


def test_each_asset_comes_from_the_task_that_makes_it(dagbag):
    outlets = {
        asset.name: f"{dag.dag_id}.{task.task_id}"
        for dag in dagbag.dags.values()
        for task in dag.tasks
        for asset in task.outlets
    }

    assert outlets == {
        "aligned_data": "ingest_sensors.vehicle_day.publish",
        "model_candidate": "nightly_retrain.register",
        "model_champion": "nightly_retrain.promote",
    }


def test_the_form_offers_exactly_the_recipes_that_exist(nightly_retrain):
    assert nightly_retrain.params.get_param("recipe").schema["enum"] == recipe_names() != []


@pytest.mark.parametrize(
    ("dag_id", "name", "value"),
    [
        ("nightly_retrain", "recipe", "no_such_recipe"),
        ("nightly_retrain", "recipe", None),
        ("nightly_retrain", "workers", 0),
        ("nightly_retrain", "workers", 65),
        ("nightly_retrain", "workers", "2"),
        ("nightly_retrain", "epochs", 0),
        ("nightly_retrain", "epochs", 1001),
        ("nightly_retrain", "epochs", 1.5),
        ("nightly_retrain", "force_promote", "yes"),
        ("ingest_sensors", "prefix", "../quarantine"),
        ("ingest_sensors", "prefix", "bundle/07/2026-01-12/trip_1"),
        ("ingest_sensors", "prefix", "/bundle"),
        ("ingest_sensors", "wait_s", -1),
        ("ingest_sensors", "wait_s", 3600),
        ("ingest_sensors", "force", "yes"),
    ],
)
def test_a_wrong_parameter_is_refused_before_the_run_starts(dagbag, dag_id, name, value):
    with pytest.raises(ParamValidationError):
        dagbag.dags[dag_id].params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    ("dag_id", "name", "value"),
    [
        ("nightly_retrain", "recipe", "hot_bearing"),
        ("nightly_retrain", "workers", None),
        ("nightly_retrain", "workers", 64),
        ("nightly_retrain", "epochs", 1000),
        ("nightly_retrain", "force_promote", True),
        ("ingest_sensors", "prefix", ""),
        ("ingest_sensors", "prefix", "bundle/07/2026-01-12"),
        ("ingest_sensors", "wait_s", 0),
        ("ingest_sensors", "force", True),
    ],
)
def test_a_right_parameter_is_accepted(dagbag, dag_id, name, value):
    assert dagbag.dags[dag_id].params.get_param(name).resolve(value) == value


@pytest.mark.parametrize(
    "params",
    [
        {"recipe": "smoke", "workers": None, "epochs": None, "force_promote": False},
        {"recipe": "smoke", "workers": 2, "epochs": 3, "force_promote": True},
    ],
)
def test_parameters_reach_the_steps_with_their_own_types(nightly_retrain, params):
    context = {"params": params, "dag_run": SimpleNamespace(dag_id="nightly_retrain", run_id="manual__2026-01-12")}
    environment = nightly_retrain.get_template_env()

    def rendered(value):
        return nightly_retrain.get_task("plan").render_template(value, context, jinja_env=environment)

    arguments = rendered(nightly_retrain.get_task("build_windows").op_kwargs)
    assert {key: arguments[key] for key in ("recipe", "workers", "epochs")} == {
        key: params[key] for key in ("recipe", "workers", "epochs")
    }
    assert arguments["run_key"].startswith("nightly_retrain-manual-2026-01-12-")
    assert rendered(nightly_retrain.get_task("promote").force) is params["force_promote"]


def test_force_reaches_both_ends_of_the_ingestion_as_a_boolean(ingest_sensors):
    environment = ingest_sensors.get_template_env()
    context = {"params": {"prefix": "bundle/07", "wait_s": 0, "force": True}}

    def rendered(value):
        return ingest_sensors.get_task("wait_for_recordings").render_template(value, context, jinja_env=environment)

    assert rendered(ingest_sensors.get_task("wait_for_recordings").again) is True
    assert rendered(ingest_sensors.get_task("vehicle_day.publish").op_kwargs)["force"] is True


@pytest.mark.parametrize(
    ("task_id", "given"),
    [
        ("vehicle_day.synchronise", {"recordings": ["s3://trackside/landing/bundle/07/2026-01-12/trip_1"]}),
        ("vehicle_day.validate", {"staged": "s3://trackside/staging/bundle/07/2026-01-12/0123456789ab"}),
        ("vehicle_day.publish", {"op_args": ["s3://trackside/staging/bundle/07/2026-01-12/0123456789ab"]}),
    ],
)
def test_a_mapped_task_shows_which_vehicle_and_day_it_is_about(ingest_sensors, task_id, given):
    task = SimpleNamespace(**given)
    template = ingest_sensors.get_task(task_id).map_index_template

    label = ingest_sensors.get_template_env().from_string(template).render(task=task)

    assert label == "bundle / 07 / 2026-01-12"


def test_there_are_dag_files():
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_reading_a_dag_file_loads_nothing_heavy(path):
    code = f"import runpy, sys; runpy.run_path({str(path)!r}); print(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")])}

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    loaded = set(done.stdout.split())
    assert "trackside_airflow.defaults" in loaded
    assert HEAVY.isdisjoint(loaded)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dag_file_imports_airflow_sdk_our_plugin_and_the_steps_only(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}

    foreign = {
        name
        for name in imported
        if not name.startswith(("airflow.sdk.", "trackside_airflow.", "datetime.")) and name != "pipelines.steps"
    }
    assert foreign <= {"pendulum"}
    assert "pipelines.steps" in imported


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dag_file_only_wires_one_statement_a_task(path):
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]

    assert functions
    for function in functions:
        assert {type(statement) for statement in function.body} <= {ast.Assign, ast.Expr}, function.name
