import time

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from pipelines import steps
from trackside_airflow.sensors import PendingRecordingsSensor

TRIPS = [f"landing/bundle/07/2026-01-12/trip_{number}" for number in range(5)]


def sensor(limit=256):
    return PendingRecordingsSensor(task_id="wait", prefix="bundle/07", wait_s=60, limit=limit, poke_interval=10)


def set_pending(monkeypatch, recordings):
    asked = []
    monkeypatch.setattr(steps, "pending", lambda prefix: asked.append(prefix) or recordings)
    return asked


def test_recordings_that_are_there_are_taken_without_waiting(monkeypatch):
    asked = set_pending(monkeypatch, TRIPS)

    assert sensor().execute({}) == TRIPS
    assert asked == ["bundle/07"]


def test_without_recordings_the_sensor_waits_in_the_triggerer(monkeypatch):
    set_pending(monkeypatch, [])

    with pytest.raises(TaskDeferred) as caught:
        sensor().execute({})

    _, arguments = caught.value.trigger.serialize()
    assert (arguments["prefix"], arguments["poll_s"]) == ("bundle/07", 10)
    assert arguments["deadline"] == pytest.approx(time.time() + 60, abs=10)


def test_what_came_while_waiting_is_taken(monkeypatch):
    set_pending(monkeypatch, TRIPS)

    assert sensor().execute_complete({}, True) == TRIPS


def test_the_run_is_skipped_when_nothing_came(monkeypatch):
    set_pending(monkeypatch, [])

    with pytest.raises(AirflowSkipException, match="no complete recording came below bundle/07 within 60 s"):
        sensor().execute_complete({}, False)


def test_one_run_takes_no_more_than_its_limit(monkeypatch):
    set_pending(monkeypatch, TRIPS)

    assert sensor(limit=2).execute({}) == TRIPS[:2]
