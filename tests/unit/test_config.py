import pytest

from pipelines.config import load_recipe, parse_recipe, recipe_names
from pipelines.errors import ConfigError

NAMES = ["hot_bearing", "metro_compressor", "metro_compressor_windows", "smoke"]


def table(**changes):
    return load_recipe("smoke").model_dump() | changes


def test_these_recipes_come_with_the_project():
    assert recipe_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_loads_under_the_name_of_its_file(name):
    assert load_recipe(name).name == name


def test_smoke_sees_what_hot_bearing_sees():
    smoke, full = load_recipe("smoke"), load_recipe("hot_bearing")

    assert (smoke.source, smoke.events) == (full.source, full.events)
    assert (smoke.window.channels, smoke.window.targets) == (full.window.channels, full.window.targets)


def test_a_recipe_survives_the_way_through_json():
    recipe = load_recipe("hot_bearing")

    assert parse_recipe(recipe.model_dump(mode="json"), where="stored") == recipe


def test_another_value_gives_another_digest_and_the_same_value_the_same():
    recipe = load_recipe("smoke")

    assert recipe.digest == load_recipe("smoke").digest
    assert recipe.digest != recipe.override(epochs=3).digest


def test_an_override_that_is_none_keeps_the_recipe():
    recipe = load_recipe("smoke")

    assert recipe.override(workers=None) == recipe


def test_an_unknown_recipe_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no recipe 'hot_baering'.*hot_bearing, metro_compressor"):
        load_recipe("hot_baering")


def test_a_file_that_is_not_toml_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("name = ")

    with pytest.raises(ConfigError, match=r"mine.toml: not valid TOML"):
        load_recipe(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning": 1}, "x.toml: no such key 'learning'"),
        ({"train": {"epoch": 3}}, "no such key 'train.epoch'"),
        ({"train": {"epochs": "3"}}, "train.epochs is '3': Input should be a valid integer"),
        ({"train": {"epochs": 0}}, "train.epochs is 0: Input should be greater than or equal to 1"),
        ({"gate": {"metric": "f1"}}, "key 'gate.minimum' is missing"),
        ({"source": "bundles"}, "source is 'bundles': Input should be 'bundle'"),
        ({"label": "is_anomaly"}, r"exactly one of \[window\] .* and label"),
        ({"window": None}, r"exactly one of \[window\] .* and label"),
    ],
)
def test_a_fault_names_the_key_and_what_would_be_right(changes, message):
    with pytest.raises(ConfigError, match=message):
        parse_recipe(table(**changes), where="x.toml")


def test_a_stride_longer_than_the_window_is_refused():
    window = load_recipe("smoke").window.model_dump() | {"stride_s": 900.0}

    with pytest.raises(ConfigError, match=r"stride_s is 900 s, but must lie in \(0, length_s = 300\]"):
        parse_recipe(table(window=window), where="x.toml")


def test_members_are_refused_where_they_would_be_ignored():
    model = load_recipe("smoke").model.model_dump() | {"members": 4}

    with pytest.raises(ConfigError, match=r"members is 4, but must be 1: only the table_classifier is an ensemble"):
        parse_recipe(table(model=model), where="x.toml")


def test_a_target_that_is_no_channel_is_refused():
    window = load_recipe("smoke").window.model_dump() | {"targets": ("pneu_res_bar",)}

    with pytest.raises(ConfigError, match=r"target 'pneu_res_bar' is not among channels"):
        parse_recipe(table(window=window), where="x.toml")


def test_several_faults_are_told_at_once():
    with pytest.raises(ConfigError, match=r"no such key 'a'; no such key 'b'"):
        parse_recipe(table(a=1, b=2), where="x.toml")
