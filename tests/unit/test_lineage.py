import json
import uuid

import mlflow
import numpy as np
import polars as pl
import pytest

from pipelines import lineage, registry, storage
from pipelines.config import load_recipe
from pipelines.ingest import superseded
from pipelines.tracking import TrackedData, open_run
from pipelines.windows import WindowSet, save_windows

pytestmark = pytest.mark.usefixtures("mlflow", "own_lake")

MONDAY, TUESDAY = ("07", "2026-01-05"), ("07", "2026-01-06")


@pytest.fixture
def own_lake(tmp_path, monkeypatch):
    """An empty lake beside an MLflow that knows of others."""
    monkeypatch.setenv("TRACKSIDE_LAKE", str(tmp_path / "lake"))


@pytest.fixture
def table():
    return storage.lake("tables", "bundle")


@pytest.fixture
def train(table):
    """A tracked run that saw `days` of `version` of the table, registered as a version; returns both names."""

    def make(*days, version, register=True):
        run_key = f"run-{uuid.uuid4().hex}"
        run = open_run(run_key, experiment="lineage")
        run.log_settings(load_recipe("smoke"), {}, TrackedData(table=table, version=version, digest="0", counts={}))
        save_windows(storage.lake("runs", run_key, "windows"), windows_of(table, version, days))
        if not register:
            return run_key, ""
        model = f"model-{run_key}"
        client = mlflow.MlflowClient()
        client.create_registered_model(model)
        made = client.create_model_version(model, source=f"file://{storage.lake('runs', run_key)}", run_id=run.run_id)
        return run_key, f"{model}/{made.version}"

    return make


def windows_of(table, version, days):
    nothing = np.empty((0, 2, 1), dtype=np.float32)
    return WindowSet(
        **{f"{part}_x": nothing for part in ("train", "validation", "test")},
        **{f"{part}_y": None for part in ("train", "validation", "test")},
        test_index=pl.DataFrame(),
        channels=("a",),
        targets=("a",),
        table=table,
        table_version=version,
        digest="0" * 64,
        vehicle_days=tuple(days),
        counts={},
    )


def tags_of(run_key, candidate):
    (run,) = mlflow.MlflowClient().search_runs(
        [mlflow.get_experiment_by_name("lineage").experiment_id], f"tags.`trackside.run_key` = '{run_key}'"
    )
    model, _, version = candidate.partition("/")
    return run.data.tags, mlflow.MlflowClient().get_model_version(model, version).tags


def test_a_late_vehicle_day_marks_the_run_and_the_version_that_saw_it(table, train):
    run_key, candidate = train(MONDAY, TUESDAY, version=3)
    superseded.record(table, 4, {MONDAY})

    (marked,) = lineage.mark_superseded()

    of_run, of_version = tags_of(run_key, candidate)
    mark = json.loads(of_version[lineage.TAG])
    assert marked["marked"] == [run_key, candidate]
    assert of_run[lineage.TAG] == of_version[lineage.TAG]
    assert (mark["table"], mark["old_version"], mark["new_version"]) == (table, 3, 4)
    assert (mark["vehicle_days"], mark["num_vehicle_days"]) == (["07 2026-01-05"], 1)
    assert mark["since"].endswith("Z")


@pytest.mark.parametrize(
    ("seen", "version"),
    [pytest.param([TUESDAY], 3, id="another day"), pytest.param([MONDAY], 4, id="the new version of it")],
)
def test_what_did_not_see_the_old_vehicle_day_is_not_marked(table, train, seen, version):
    run_key, candidate = train(*seen, version=version)
    superseded.record(table, 4, {MONDAY})

    marked = lineage.mark_superseded()

    assert marked == []
    assert all(lineage.TAG not in tags for tags in tags_of(run_key, candidate))


def test_marking_twice_marks_once(table, train):
    train(MONDAY, version=3)
    superseded.record(table, 4, {MONDAY})
    lineage.mark_superseded()

    assert lineage.mark_superseded() == []


def test_a_later_change_widens_the_mark(table, train):
    run_key, candidate = train(MONDAY, TUESDAY, version=3)
    superseded.record(table, 4, {MONDAY})
    lineage.mark_superseded()
    superseded.record(table, 9, {TUESDAY})

    lineage.mark_superseded()

    mark = json.loads(tags_of(run_key, candidate)[1][lineage.TAG])
    assert (mark["new_version"], mark["vehicle_days"]) == (9, ["07 2026-01-05", "07 2026-01-06"])


def test_marking_that_died_half_way_is_completed(table, train, monkeypatch):
    run_key, candidate = train(MONDAY, version=3)
    superseded.record(table, 4, {MONDAY})
    with monkeypatch.context() as patch:
        patch.setattr(registry, "tag_versions", _die)
        with pytest.raises(ConnectionAbortedError):
            lineage.mark_superseded()

    (marked,) = lineage.mark_superseded()

    of_run, of_version = tags_of(run_key, candidate)
    assert marked["marked"] == [candidate]
    assert of_run[lineage.TAG] == of_version[lineage.TAG]


def test_a_run_that_never_became_a_version_is_marked_too(table, train):
    run_key, _ = train(MONDAY, version=3, register=False)
    superseded.record(table, 4, {MONDAY})

    (marked,) = lineage.mark_superseded()

    assert marked["marked"] == [run_key]


def test_many_changed_days_are_counted_and_ten_are_named(table, train):
    days = [("07", f"2026-01-{day:02d}") for day in range(1, 15)]
    run_key, candidate = train(*days, version=0)
    superseded.record(table, 1, set(days))

    (marked,) = lineage.mark_superseded()

    mark = json.loads(tags_of(run_key, candidate)[1][lineage.TAG])
    assert (mark["num_vehicle_days"], len(mark["vehicle_days"])) == (14, 10)
    assert "and 4 more" in marked["superseded"]


def test_without_mlflow_there_is_nothing_to_mark(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")

    assert lineage.mark_superseded() == []


def test_a_change_is_written_down_once(table):
    superseded.record(table, 4, {MONDAY})
    first = superseded.changes()

    superseded.record(table, 4, {MONDAY})

    assert superseded.changes() == first != []


def test_a_vehicle_day_that_was_not_there_before_is_no_change(table):
    superseded.record(table, 4, set())

    assert superseded.changes() == []


def _die(*arguments, **named):
    raise ConnectionAbortedError
