from datetime import timedelta

import pytest
from airflow.sdk import RetryAction

from pipelines import errors
from pipelines.errors import CapacityError, IncompleteRecordingError, StoreError, TracksideError
from trackside_airflow.retries import RETRY_POLICY


def all_errors():
    return [found for found in vars(errors).values() if isinstance(found, type) and found is not TracksideError]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_every_error_has_a_rule_that_agrees_with_what_it_says_of_itself(error):
    decision = RETRY_POLICY.evaluate(error("what happened"), try_number=1, max_tries=3)

    assert decision.action is (RetryAction.RETRY if error.retryable else RetryAction.FAIL)
    assert decision.reason


def test_errors_of_several_generations_were_tried():
    assert {CapacityError, IncompleteRecordingError} < set(all_errors())


def test_every_name_in_the_table_is_an_error_of_ours():
    named = [error for rule in RETRY_POLICY.rules for error in rule._resolve_exception_classes()]
    written = [name for rule in RETRY_POLICY.rules for name in rule.exception_path.split(",")]

    assert len(named) == len(written) == len(set(written))
    assert all(issubclass(error, TracksideError) for error in named)


def test_a_full_cluster_is_waited_for_longer_than_a_busy_store():
    full = RETRY_POLICY.evaluate(CapacityError("no room"), try_number=1, max_tries=3)
    busy = RETRY_POLICY.evaluate(StoreError("slow down"), try_number=1, max_tries=3)

    assert full.retry_delay >= timedelta(minutes=5)
    assert busy.retry_delay is None  # the task's own, which doubles


@pytest.mark.parametrize("error", [KeyError("bug"), SystemExit(1), ConnectionResetError()])
def test_an_error_that_is_not_ours_is_left_to_the_task(error):
    assert RETRY_POLICY.evaluate(error, try_number=1, max_tries=3).action is RetryAction.DEFAULT
