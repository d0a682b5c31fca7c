import json
import math

import pytest

from pipelines.evaluate import Report, Scored, beats
from pipelines.evaluate.bootstrap import Difference


def report(*, model=0.9, champion=None, baseline=0.5):
    return Report(
        recipe="pump",
        model=Scored(name="pump/4", scores={"f1": model, "threshold": 0.5}),
        champion=None if champion is None else Scored(name="pump/3", scores={"f1": champion}),
        baselines=(Scored(name="z_score", scores={"f1": baseline}),),
        held_out="abc",
    )


def test_a_report_survives_json():
    difference = Difference(metric="f1", estimate=0.01, low=-0.02, high=0.04, share_better=0.7)
    original = Report(
        recipe="pump",
        model=Scored(name="pump/4", scores={"f1": 0.9}),
        champion=Scored(name="pump/3", scores={"f1": 0.89}),
        baselines=(Scored(name="z_score", scores={"f1": 0.4}),),
        difference=difference,
    )

    assert Report.from_dict(json.loads(json.dumps(original.to_dict(), allow_nan=False))) == original


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_know_become_null_and_come_back_as_nan(value):
    text = json.dumps(report(model=value).to_dict(), allow_nan=False)

    assert math.isnan(Report.from_dict(json.loads(text)).model.scores["f1"])


def test_a_report_without_a_champion_survives_json():
    assert Report.from_dict(json.loads(json.dumps(report().to_dict()))).champion is None


@pytest.mark.parametrize(("model", "answer"), [(0.51, True), (0.5, False), (0.4, False), (math.nan, False)])
def test_a_baseline_must_be_surpassed(model, answer):
    assert beats(report(model=model, baseline=0.5), "f1") == {"z_score": answer}


@pytest.mark.parametrize(("model", "answer"), [(0.7501, True), (0.75, False)])
def test_a_champion_must_be_surpassed_by_more_than_the_margin(model, answer):
    assert beats(report(model=model, champion=0.5), "f1", margin=0.25)["pump/3"] is answer


def test_a_metric_that_nobody_measured_beats_nothing():
    assert beats(report(champion=0.5), "event_recall") == {"z_score": False, "pump/3": False}


def test_a_rival_that_could_not_be_measured_is_not_beaten():
    assert beats(report(baseline=math.nan), "f1") == {"z_score": False}


def test_as_good_as_the_champion_is_no_reason_to_change():
    assert beats(report(model=0.9, champion=0.9), "f1")["pump/3"] is False
