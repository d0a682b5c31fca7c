import uuid

import polars as pl
import pytest

from pipelines import runs, storage
from pipelines.config import load_recipe
from pipelines.errors import ConfigError, ObjectNotFoundError
from pipelines.train.plan import load_plan
from pipelines.windows import load_windows

pytestmark = pytest.mark.usefixtures("lake")


RECIPE = """
name = "brief"
source = "bundle"

[window]
length_s = 10.0
stride_s = 5.0
rate_hz = 1.0
channels = CHANNELS
targets = TARGETS

[model]
kind = "transformer_forecaster"
width = 8
layers = 1
heads = 2

[gate]
metric = "pr_auc"
minimum = 0.0
"""


@pytest.fixture
def recipe(tmp_path):
    """Write a recipe that looks at these channels of the bundle table; return where it is."""

    def write(*channels):
        path = tmp_path / "brief.toml"
        path.write_text(RECIPE.replace("CHANNELS", str([*channels])).replace("TARGETS", str([channels[0]])))
        return str(path)

    return write


def publish(*values):
    """Add a recording of one minute a day to the table; each value is that of a day's temperature."""
    for day, value in enumerate(values, start=5):
        frame = pl.DataFrame(
            {
                "vehicle": "v1",
                "day": f"2026-01-{day:02d}",
                "recording_id": f"trip-{day}",
                "t_utc_ns": [(day * 86_400 + second) * 10**9 for second in range(60)],
                "tmp_bearing_c": float(value),
                "dop_speed_mps": 20.0,
            }
        )
        table = storage.lake("tables", "bundle")
        storage.write_recordings(table, frame, gone=[], commit=uuid.uuid4().hex, after=-1)


def test_the_windows_of_a_run_say_which_table_version_they_were_cut_from(recipe, lake):
    publish(30, 31, 32, 33)

    location = runs.build_windows(recipe("tmp_bearing_c", "dop_speed_mps"), run_key="night-1")

    windows = load_windows(location)
    assert location == f"{lake}/runs/night-1/windows"
    assert (windows.table, windows.table_version) == (f"{lake}/tables/bundle", 3)
    assert windows.channels == ("tmp_bearing_c", "dop_speed_mps")
    assert set(windows.test_x[:, :, 0].ravel()) == {32.0, 33.0}


def test_a_run_takes_the_newest_version_of_the_table(recipe):
    publish(30, 31, 32, 33)
    first = runs.build_windows(recipe("tmp_bearing_c"), run_key="night-1")
    publish(30, 31, 32, 40)

    second = runs.build_windows(recipe("tmp_bearing_c"), run_key="night-2")

    assert load_windows(first).test_x.max() == 33.0
    assert load_windows(second).test_x.max() == 40.0


def test_what_the_trigger_overrides_is_stored_with_the_run(recipe):
    publish(30, 31, 32, 33)
    written = recipe("tmp_bearing_c")

    windows = runs.build_windows(written, run_key="night-1", workers=1, epochs=3)

    of_run = runs.recipe_of(windows.removesuffix("/windows"))
    assert (of_run.train.workers, of_run.train.epochs) == (1, 3)
    assert of_run == load_recipe(written).override(workers=1, epochs=3)


def test_the_plan_lies_beside_the_windows_and_knows_its_run(recipe):
    publish(30, 31, 32, 33)
    windows = runs.build_windows(recipe("tmp_bearing_c"), run_key="night-1", workers=1)

    plan = load_plan(runs.plan(windows))

    assert (plan.run_key, plan.windows, plan.workers) == ("night-1", windows, 1)
    assert plan.location == windows.removesuffix("/windows")


def test_an_override_that_is_no_good_is_refused_before_the_table_is_read(recipe):
    with pytest.raises(ConfigError, match=r"train\.workers is 0"):
        runs.build_windows(recipe("tmp_bearing_c"), run_key="night-1", workers=0)


def test_without_a_table_the_run_says_what_to_do(recipe):
    with pytest.raises(ObjectNotFoundError, match="tables/bundle: no such table; publish a batch first"):
        runs.build_windows(recipe("tmp_bearing_c"), run_key="night-1")


def test_a_channel_that_the_table_lacks_is_named_beside_those_it_has(recipe):
    publish(30, 31, 32, 33)

    with pytest.raises(ConfigError, match=r"'tmp_baering_c'.*it has .*tmp_bearing_c"):
        runs.build_windows(recipe("tmp_baering_c"), run_key="night-1")
