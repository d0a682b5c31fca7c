import json

import polars as pl
import pytest

from pipelines import suites, validation
from pipelines.errors import SuiteError

SUITE_NAMES = sorted(path.stem for path in suites.SUITES.glob("*.json"))


def _write_suite(folder, monkeypatch, expectation):
    (folder / "odd.json").write_text(json.dumps({"name": "odd", "expectations": [expectation]}))
    monkeypatch.setattr(suites, "SUITES", folder)


def _between(**meta):
    kwargs = {"column": "speed_mps", "min_value": 0, "max_value": 120}
    return {"type": "expect_column_values_to_be_between", "kwargs": kwargs, "meta": meta}


def test_there_are_suites():
    assert {"bundle", "bundle_sensors", "metropt3", "metropt3_windows"} <= set(SUITE_NAMES)


@pytest.mark.parametrize("name", SUITE_NAMES)
def test_every_suite_is_understood_whole_and_says_why(name):
    suite = validation.load_suite(name)

    assert suite.expectations
    assert all(expectation.meta["why"] for expectation in suite.expectations)


def test_a_misspelt_expectation_is_refused_by_name(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, {**_between(why="x"), "type": "expect_column_values_to_be_betwen"})

    with pytest.raises(SuiteError, match=r"1 of 1 expectations would be skipped; unknown type: .*betwen"):
        validation.load_suite("odd")


def test_an_expectation_without_a_reason_is_refused(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between())

    with pytest.raises(SuiteError, match=r"no meta\.why"):
        validation.load_suite("odd")


def test_an_unknown_suite_names_those_that_exist():
    with pytest.raises(SuiteError, match=r"no suite 'bundel': expected one of .*bundle"):
        validation.load_suite("bundel")


def test_a_failed_check_names_column_limits_and_examples(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="no train is faster"))

    verdict = validation.check(pl.DataFrame({"speed_mps": [10.0, 412.5, None]}), suite="odd")

    assert not verdict.passed
    assert verdict.failures == (
        "speed_mps values must be greater than or equal to 0 and less than or equal to 120: "
        "1 of 2 rows are not, e.g. 412.5; no train is faster",
    )


def test_examples_say_which_row_they_are_from(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="x"))
    speeds = {"speed_mps": [10.0, 412.5]}

    (at,) = validation.check(pl.DataFrame({"t_utc_ns": [0, 10**9], **speeds}), suite="odd").checks
    (of,) = validation.check(pl.DataFrame({"sensor": ["odo", "dop"], **speeds}), suite="odd").checks

    assert at.examples == ("412.5 at 1970-01-01T00:00:01.000Z",)
    assert of.examples == ("412.5 of sensor dop",)


def test_a_row_without_an_instant_is_told_without_one(tmp_path, monkeypatch):
    not_null = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "t_utc_ns"}, "meta": {"why": "x"}}
    _write_suite(tmp_path, monkeypatch, not_null)

    (check,) = validation.check(pl.DataFrame({"t_utc_ns": [0, None], "vehicle": ["07", "07"]}), suite="odd").checks

    assert not check.passed
    assert check.observed == "1 of 2 rows are not"


def test_a_good_batch_passes_and_missing_readings_are_no_fault(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="no train is faster"))

    verdict = validation.check(pl.DataFrame({"speed_mps": [10.0, None, 119.0]}), suite="odd")

    assert verdict.passed
    assert verdict.failures == ()
    assert [check.observed for check in verdict.checks] == ["all 2 rows are"]


def test_one_batch_says_nothing_of_the_next(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="x"))

    verdicts = [validation.check(pl.DataFrame({"speed_mps": [v]}), suite="odd") for v in (10.0, 999.0, 10.0)]

    assert [verdict.passed for verdict in verdicts] == [True, False, True]


def test_the_passport_keeps_rule_value_and_answer(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="x"))

    numbers = validation.check(pl.DataFrame({"speed_mps": [10.0, 412.5, 11.0, 12.0]}), suite="odd").numbers()

    assert json.loads(json.dumps(numbers)) == {
        "passed": False,
        "num_rows": 4,
        "checks": [
            {
                "type": "expect_column_values_to_be_between",
                "kwargs": {"column": "speed_mps", "min_value": 0.0, "max_value": 120.0},
                "value": 0.25,
                "passed": False,
            }
        ],
    }


def test_a_missing_column_fails_with_a_reason(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="x"))

    verdict = validation.check(pl.DataFrame({"other": [1.0]}), suite="odd")

    assert not verdict.passed
    assert "speed_mps" in verdict.failures[0]
    assert "does not exist" in verdict.failures[0]
