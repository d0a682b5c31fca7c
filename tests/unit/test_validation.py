import json
import re

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
    assert len(verdict.failures) == 1
    assert re.search(
        r"speed_mps: .*max_value 120.*1 rows are not, e\.g\. 412\.5; no train is faster", verdict.failures[0]
    )


def test_a_good_batch_passes_and_missing_readings_are_no_fault(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="no train is faster"))

    verdict = validation.check(pl.DataFrame({"speed_mps": [10.0, None, 119.0]}), suite="odd")

    assert verdict.passed
    assert verdict.failures == ()


def test_a_missing_column_fails_with_a_reason(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="x"))

    verdict = validation.check(pl.DataFrame({"other": [1.0]}), suite="odd")

    assert not verdict.passed
    assert "speed_mps" in verdict.failures[0]
    assert "does not exist" in verdict.failures[0]


def test_data_docs_fetch_nothing_from_other_hosts(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="x"))

    page = validation.check(pl.DataFrame({"speed_mps": [10.0]}), suite="odd").page

    assert "<table" in page
    assert re.findall(r"(?:src|href)=[\"']?(?:https?:)?//[^\"'>]*", page) == []


def test_the_index_links_each_page_and_escapes_what_it_shows(tmp_path, monkeypatch):
    _write_suite(tmp_path, monkeypatch, _between(why="a < b"))
    verdict = validation.check(pl.DataFrame({"speed_mps": [999.0]}), suite="odd")

    page = validation.index_page("trip <1>", {"odd.html": verdict})

    assert '<a href="odd.html">' in page
    assert "trip &lt;1&gt;" in page
    assert "a &lt; b" in page
