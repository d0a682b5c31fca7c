import inspect
import json
import re

import great_expectations as gx
import pandas as pd
import pytest
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.render.renderer import ValidationResultsPageRenderer
from great_expectations.render.renderer.inline_renderer import InlineRenderer
from great_expectations.render.view import DefaultJinjaPageView

import pipelines.timeseries_expectations as pack
from pipelines import suites, validation
from pipelines.errors import SuiteError

EXAMPLES = [
    pack.ExpectInstantsToKeepCadence(period_s=10, tolerance_s=0.5),
    pack.ExpectClockDriftToBeAtMost(max_ppm=5000),
    pack.ExpectClockResidualToBeAtMost(max_ms=10, methods=["exchanges"]),
    pack.ExpectClockUncertaintyToBeAtMost(max_ms=500),
    pack.ExpectColumnCoverageToBeAtLeast(column="x", hold_s=1, min_share=0.9),
    pack.ExpectColumnGapsToBeAtMost(column="x", max_gap_s=60, partition_by=["vehicle", "day"]),
    pack.ExpectColumnPairToAgree(column_A="x", column_B="y", max_difference=0.3),
    pack.ExpectColumnToHaveNoHourJump(column="x", period_s=1),
    pack.ExpectInstantsToBeUnique(),
    pack.ExpectInstantsToBeWithinPeriod(earliest="1990-01-01T00:00:00Z", latest="2100-01-01T00:00:00Z"),
    pack.ExpectInstantsToNotStepBack(max_share=0.01),
    pack.ExpectPositionUncertaintyToBeAtMost(max_m=5),
    pack.ExpectSensorsToShareTheHour(),
    pack.ExpectSkewToBeAtMost(max_ms=500),
    pack.ExpectSkewToBeNoLeapSeconds(),
]


def load(tmp_path, monkeypatch, type_, **kwargs):
    spec = {"name": "odd", "expectations": [{"type": type_, "kwargs": kwargs, "meta": {"why": "x"}}]}
    (tmp_path / "odd.json").write_text(json.dumps(spec))
    monkeypatch.setattr(suites, "SUITES", tmp_path)
    return validation.load_suite("odd")


def test_every_expectation_of_the_pack_has_an_example_here():
    assert {type(example).__name__ for example in EXAMPLES} == set(pack.__all__)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.expectation_type)
def test_an_expectation_survives_the_way_through_json(example):
    suite = gx.ExpectationSuite(name="odd", expectations=[example])

    again = gx.ExpectationSuite(**json.loads(json.dumps(suite.to_json_dict())))

    assert again.expectations == [example]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.expectation_type)
def test_every_argument_decides_and_is_explained(example):
    own = set(type(example).__fields__) - set(BatchExpectation.__fields__)
    told_by_the_base = {"allow_absent", "time_column", "partition_by"}

    assert own == set(type(example).success_keys)
    assert [name for name in own - told_by_the_base if f"{name}: " not in inspect.getdoc(type(example))] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.expectation_type)
def test_great_expectations_own_pages_show_the_sentence(example):
    (content,) = InlineRenderer(render_object=example.configuration).get_rendered_content()

    assert content.value.template == type(example).template
    assert set(content.value.params) == set(type(example)._arguments_told(example.configuration.kwargs))


def test_a_page_of_great_expectations_itself_shows_sentence_value_and_example():
    rows = pd.DataFrame({"t_utc_ns": [0, 10**9, 10**11], "x": [1.0, 2.0, 3.0]})
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("memory").add_dataframe_asset("frames")
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch(batch_parameters={"dataframe": rows})

    result = batch.validate(
        gx.ExpectationSuite(name="odd", expectations=[pack.ExpectColumnGapsToBeAtMost(column="x", max_gap_s=60)])
    )
    page = DefaultJinjaPageView().render(ValidationResultsPageRenderer(run_info_at_end=True).render(result))

    text = " ".join(re.sub(r"<[^>]+>", "", page).split())
    assert "x is never without a reading for longer than 60 s" in text
    assert "99 s; 99.000 s from 1970-01-01T00:00:01.000Z" in text


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"column": "x", "max_gap_s": "60"}, "'60' is not a number"),
        ({"column": "x", "max_gap_s": True}, "True is not a number"),
        ({"column": "x", "max_gap_s": -1}, "greater than or equal to 0"),
        ({"column": 7, "max_gap_s": 60}, "str type expected"),
        ({"max_gap_s": 60}, "column field required"),
        ({"column": "x", "max_gap_s": 60, "max_gap_m": 1}, "max_gap_m extra fields not permitted"),
        ({"column": "x", "max_gap_s": 60, "allow_absent": "no"}, "allow_absent"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_suite_is_loaded(tmp_path, monkeypatch, kwargs, message):
    with pytest.raises(SuiteError, match=message) as raised:
        load(tmp_path, monkeypatch, "expect_column_gaps_to_be_at_most", **kwargs)

    assert "odd.json" in str(raised.value)
    assert "ExpectColumnGapsToBeAtMost" in str(raised.value)


@pytest.mark.parametrize(
    ("type_", "kwargs", "message"),
    [
        ("expect_instants_to_keep_cadence", {"period_s": 0, "tolerance_s": 1}, "greater than 0"),
        (
            "expect_instants_to_keep_cadence",
            {"period_s": 1, "tolerance_s": 1, "mostly": 1.5},
            "less than or equal to 1",
        ),
        ("expect_column_pair_to_agree", {"column_A": "x", "column_B": "y"}, "nothing could disagree"),
        (
            "expect_column_pair_to_agree",
            {"column_A": "x", "column_B": "y", "min_difference": 2, "max_difference": 1},
            "nothing could agree",
        ),
        (
            "expect_instants_to_be_within_period",
            {"earliest": "1990-01-01T00:00:00", "latest": "2100-01-01T00:00:00Z"},
            "has no zone",
        ),
        ("expect_instants_to_be_within_period", {"earliest": "yesterday", "latest": "today"}, "yesterday"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(tmp_path, monkeypatch, type_, kwargs, message):
    with pytest.raises(SuiteError, match=message):
        load(tmp_path, monkeypatch, type_, **kwargs)


def test_a_misspelt_type_of_the_pack_is_refused_by_name(tmp_path, monkeypatch):
    with pytest.raises(SuiteError, match="unknown type: expect_instants_to_keep_cadense"):
        load(tmp_path, monkeypatch, "expect_instants_to_keep_cadense", period_s=1, tolerance_s=1)


def test_a_column_that_is_not_there_fails_and_says_which_are(judge):
    check = judge("expect_column_gaps_to_be_at_most", {"t_utc_ns": [1]}, column="speed_mps", max_gap_s=1)

    assert not check.passed
    assert "column 'speed_mps' does not exist; the batch has t_utc_ns" in check.observed
