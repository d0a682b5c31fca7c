import re

import pytest

from trackside_airflow.defaults import run_key


@pytest.mark.parametrize(
    "run_id", ["scheduled__2026-01-12T02:00:00+00:00", "manual__x", "a" * 250, "../../etc", "+", "ü / ü"]
)
def test_a_run_key_is_safe_in_a_path_an_address_and_a_job_id(run_id):
    assert re.fullmatch(r"nightly_retrain-[A-Za-z0-9-]{9,60}", run_key("nightly_retrain", run_id))


@pytest.mark.parametrize(("one", "other"), [("a:b", "a+b"), ("a", "a_"), ("x" * 60 + "1", "x" * 60 + "2")])
def test_runs_that_look_alike_have_different_keys(one, other):
    assert run_key("nightly_retrain", one) != run_key("nightly_retrain", other)


def test_a_run_has_the_same_key_in_every_process():
    key = run_key("nightly_retrain", "scheduled__2026-01-12T02:00:00+00:00")

    assert key == "nightly_retrain-scheduled-2026-01-12T02-00-00-00-00-6329b1f0"
