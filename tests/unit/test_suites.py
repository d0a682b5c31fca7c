import json

import pytest

from pipelines import suites
from pipelines.errors import SuiteError
from pipelines.ingest.metropt3_windows import FEATURES


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write `odd.json`, the only suite there is."""
    monkeypatch.setattr(suites, "SUITES", tmp_path)
    return (tmp_path / "odd.json").write_text


def expectation(**kwargs):
    return {"type": "expect_x", "kwargs": kwargs, "meta": {"why": "x"}}


def test_columns_are_named_once_in_order(write):
    write(
        json.dumps(
            {
                "name": "odd",
                "expectations": [
                    expectation(column="b"),
                    expectation(column="a", min_value=0),
                    expectation(column="b", max_value=1),
                    expectation(column_list=["c", "d"]),
                    expectation(min_value=1),
                ],
            }
        )
    )

    assert suites.columns_of("odd") == ["a", "b"]


def test_the_suite_of_the_labelled_table_looks_at_every_feature():
    assert set(FEATURES) <= set(suites.columns_of("metropt3_windows"))


@pytest.mark.parametrize("meta", [{}, {"meta": {}}, {"meta": {"why": ""}}])
def test_an_expectation_that_does_not_say_why_is_refused_by_name(write, meta):
    write(json.dumps({"name": "odd", "expectations": [{"type": "expect_x", "kwargs": {}, **meta}]}))

    with pytest.raises(SuiteError, match=r"odd\.json: expect_x has no meta\.why"):
        suites.read_suite("odd")


def test_a_suite_that_is_not_json_is_named(write):
    write('{"name": "odd", ')

    with pytest.raises(SuiteError, match=r"odd\.json: not valid JSON: .*line 1"):
        suites.read_suite("odd")
