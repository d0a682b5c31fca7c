import time

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from pipelines import steps
from trackside_airflow.sensors import PendingRecordingsSensor

DAYS = [[f"lake/landing/bundle/07/2026-01-{day}/trip_{number}" for number in range(2)] for day in (12, 13, 14)]
TRIPS = [trip for day in DAYS for trip in day]


def sensor(*, limit=256, again=False):
    return PendingRecordingsSensor(
        task_id="wait", prefix="bundle/07", wait_s=60, again=again, limit=limit, poke_interval=10
    )


def set_pending(monkeypatch, recordings):
    asked = []
    monkeypatch.setattr(steps, "pending", lambda prefix, *, again: asked.append((prefix, again)) or recordings)
    return asked


def test_recordings_that_are_there_are_taken_by_vehicle_and_day_without_waiting(monkeypatch):
    asked = set_pending(monkeypatch, TRIPS)

    assert sensor().execute({}) == DAYS
    assert asked == [("bundle/07", False)]


def test_a_forced_run_takes_what_was_processed_before(monkeypatch):
    asked = set_pending(monkeypatch, TRIPS)

    sensor(again=True).execute({})

    assert asked == [("bundle/07", True)]


def test_without_recordings_the_sensor_waits_in_the_triggerer(monkeypatch):
    set_pending(monkeypatch, [])

    with pytest.raises(TaskDeferred) as caught:
        sensor().execute({})

    _, arguments = caught.value.trigger.serialize()
    assert (arguments["prefix"], arguments["poll_s"]) == ("bundle/07", 10)
    assert arguments["deadline"] == pytest.approx(time.time() + 60, abs=10)


def test_what_came_while_waiting_is_taken(monkeypatch):
    set_pending(monkeypatch, TRIPS)

    assert sensor().execute_complete({}, True) == DAYS


def test_the_run_is_skipped_when_nothing_came(monkeypatch):
    set_pending(monkeypatch, [])

    with pytest.raises(AirflowSkipException, match="no complete recording came below bundle/07 within 60 s"):
        sensor().execute_complete({}, False)


def test_one_run_takes_no_more_than_its_limit(monkeypatch):
    set_pending(monkeypatch, TRIPS)

    assert sensor(limit=2).execute({}) == DAYS[:2]
