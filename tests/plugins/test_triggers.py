import asyncio
import time
from types import SimpleNamespace

import pytest
from airflow.sdk.module_loading import import_string

from pipelines import steps
from trackside_airflow.triggers import TIMED_OUT, PendingRecordingsTrigger, TrainingTrigger

LATER = time.time() + 3600


def training_trigger(deadline=LATER):
    return TrainingTrigger(submission_id="job-g0", poll_s=0.0, deadline=deadline)


def pending_trigger(deadline=LATER):
    return PendingRecordingsTrigger(prefix="bundle", poll_s=0.0, deadline=deadline)


def payloads(trigger):
    async def collect():
        return [event.payload async for event in trigger.run()]

    return asyncio.run(collect())


@pytest.fixture
def stopped(monkeypatch):
    """The jobs that were stopped."""
    jobs = []
    monkeypatch.setattr(steps, "stop_training", jobs.append)
    return jobs


@pytest.mark.parametrize("trigger", [training_trigger(), pending_trigger()], ids=lambda trigger: type(trigger).__name__)
def test_another_triggerer_can_make_the_same_trigger_again(trigger):
    class_path, arguments = trigger.serialize()

    assert import_string(class_path)(**arguments).serialize() == (class_path, arguments)


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_the_trigger_fires_once_when_the_job_has_ended(monkeypatch, state):
    seen = iter([("PENDING", "queued"), ("RUNNING", "step 10"), (state, "the end")])
    monkeypatch.setattr(
        steps, "training_status", lambda submission_id: dict(zip(("state", "message"), next(seen), strict=True))
    )

    assert payloads(training_trigger()) == [{"submission_id": "job-g0", "state": state, "message": "the end"}]


def test_the_trigger_logs_progress_once_for_each_new_message(monkeypatch):
    seen = iter(["step 1, loss 0.9", "step 1, loss 0.9", "step 2, loss 0.8"])
    monkeypatch.setattr(
        steps,
        "training_status",
        lambda submission_id: (
            {"state": "RUNNING", "message": message}
            if (message := next(seen, ""))
            else {"state": "SUCCEEDED", "message": "done"}
        ),
    )
    trigger = training_trigger()
    lines = []
    trigger._log = SimpleNamespace(info=lambda text, *arguments: lines.append(text % arguments))

    payloads(trigger)

    assert lines == [
        "job-g0 is RUNNING: step 1, loss 0.9",
        "job-g0 is RUNNING: step 2, loss 0.8",
        "job-g0 is SUCCEEDED: done",
    ]


def test_the_trigger_gives_up_at_its_deadline_and_says_what_it_saw_last(monkeypatch):
    monkeypatch.setattr(steps, "training_status", lambda submission_id: {"state": "RUNNING", "message": "step 7"})

    [event] = payloads(training_trigger(deadline=time.time() - 1))

    assert event == {"submission_id": "job-g0", "state": TIMED_OUT, "message": "last seen RUNNING: step 7"}


def test_a_status_that_cannot_be_had_ends_the_trigger_with_its_error(monkeypatch):
    def no_answer(submission_id):
        raise ConnectionError("engine restarts")

    monkeypatch.setattr(steps, "training_status", no_answer)

    with pytest.raises(ConnectionError, match="engine restarts"):
        payloads(training_trigger())


def test_the_job_is_stopped_when_a_person_clears_or_marks_its_task(stopped):
    asyncio.run(training_trigger().on_kill())

    assert stopped == ["job-g0"]


def test_the_job_goes_on_when_the_triggerer_shuts_down(monkeypatch, stopped):
    monkeypatch.setattr(steps, "training_status", lambda submission_id: {"state": "RUNNING", "message": ""})
    trigger = TrainingTrigger(submission_id="job-g0", poll_s=60.0, deadline=LATER)

    async def shut_down():
        running = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await trigger.cleanup()

    asyncio.run(shut_down())

    assert stopped == []


def test_the_trigger_fires_as_soon_as_a_recording_is_pending(monkeypatch):
    seen = iter([[], [], ["landing/bundle/07/2026-01-12/trip_1"]])
    monkeypatch.setattr(steps, "pending", lambda prefix: next(seen))

    assert payloads(pending_trigger()) == [True]


def test_the_trigger_says_that_nothing_came_by_the_deadline(monkeypatch):
    monkeypatch.setattr(steps, "pending", lambda prefix: [])

    assert payloads(pending_trigger(deadline=time.time() - 1)) == [False]


def test_a_slow_step_does_not_block_the_other_triggers(monkeypatch):
    def slow(prefix):
        time.sleep(0.3)
        return ["somewhere"]

    monkeypatch.setattr(steps, "pending", slow)

    async def together():
        started = time.monotonic()
        await asyncio.gather(*(anext(pending_trigger().run()) for _ in range(4)))
        return time.monotonic() - started

    assert asyncio.run(together()) < 4 * 0.3
