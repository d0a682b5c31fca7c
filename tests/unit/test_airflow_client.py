import json
import re
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from pipelines.airflow_client import AirflowClient, TaskState
from pipelines.errors import ServiceError


class PretendAirflow:
    """Answers as Airflow does: a run of one mapped task that is running at the first look and done at the second."""

    def __init__(self):
        self.calls = []
        self.states = ["running", "success"]
        self.is_parsed = True
        self.refusal = None

    def __call__(self, method, path, body):
        self.calls.append((method, path, json.loads(body) if body else None))
        if path == "/auth/token":
            return 201, b'{"access_token": "t"}'
        if self.refusal and method == "POST":
            return self.refusal
        status, answer = self._answer(method, path)
        return status, json.dumps(answer).encode()

    def _answer(self, method, path):
        state = self.states[0]
        if "/taskInstances?" in path:
            tasks = [("land", None, "success"), ("sync", "trip-1", state), ("plan", None, None)]
            tasks = tasks[int(parse_qs(path)["offset"][0]) :][:2]  # two items a page
            if not tasks and len(self.states) > 1:
                self.states.pop(0)
            return 200, {
                "task_instances": [{"task_id": t, "rendered_map_index": index, "state": s} for t, index, s in tasks]
            }
        if "/xcomEntries/" in path:
            return 200, {"value": {"rows": 3}}
        if "/dagRuns/" in path:
            return 200, {"state": state}
        if "/dagRuns" in path:
            return 200, {"dag_run_id": "manual__1", "dag_runs": [{"dag_run_id": "scheduled__1"}]}
        return (200, {"is_paused": False}) if self.is_parsed else (404, {"detail": "not found"})


@pytest.fixture
def airflow():
    return PretendAirflow()


@pytest.fixture
def client(airflow, serve):
    return AirflowClient(serve(airflow) + "/", username="admin", password="secret")


def test_a_run_without_a_date_is_asked_for_before_the_dag_is_unpaused(client, airflow):
    run_id = client.trigger("nightly_retrain", {"recipe": "smoke"})

    changes = [call for call in airflow.calls[1:] if call[0] != "GET"]
    asked = changes[0][2]
    assert run_id == "manual__1"
    assert [call[:2] for call in changes] == [
        ("POST", "/api/v2/dags/nightly_retrain/dagRuns"),
        ("PATCH", "/api/v2/dags/nightly_retrain"),
    ]
    assert (asked["logical_date"], asked["conf"]) == (None, {"recipe": "smoke"})
    assert datetime.fromisoformat(asked["run_after"]) < datetime.now(UTC)  # ahead of runs that wait
    assert changes[1][2] == {"is_paused": False}


def test_following_looks_until_the_run_has_ended(client):
    looks = list(client.follow("nightly_retrain", "manual__1", deadline_s=30, poll_s=0.01))

    assert [[task.state for task in tasks] for tasks in looks] == [
        ["success", "running", "waiting"],
        ["success", "success", "waiting"],
    ]
    assert looks[0][1] == TaskState(task_id="sync", label="sync trip-1", state="running")


def test_a_run_that_does_not_end_is_given_up_at_the_deadline(client, airflow):
    airflow.states = ["running"]

    with pytest.raises(ServiceError, match=r"nightly_retrain manual__1: not finished after 0 s; see http://127.*/dags"):
        list(client.follow("nightly_retrain", "manual__1", deadline_s=0.2, poll_s=0.01))


def test_ids_with_signs_are_quoted(client, airflow):
    client.state("d", "scheduled__2026-01-05T00:00:00+00:00")

    assert airflow.calls[-1][1] == "/api/v2/dags/d/dagRuns/scheduled__2026-01-05T00%3A00%3A00%2B00%3A00"


def test_what_a_task_returned_is_read(client):
    assert client.returned("d", "manual__1", "publish", map_index=2) == {"rows": 3}


def test_the_oldest_active_run_is_found(client):
    assert client.active_run("d") == "scheduled__1"


def test_a_refused_login_says_who_refused(serve):
    address = serve(lambda *_: (401, b'{"detail": "Invalid credentials"}'))

    with pytest.raises(ServiceError, match=r"Airflow answered 401 to POST /auth/token: .*Invalid credentials"):
        AirflowClient(address, username="admin", password="wrong")


def test_a_refusal_is_told_in_the_words_of_airflow(client, airflow):
    airflow.refusal = (400, b'{"detail": "workers: 0 is less than the minimum of 1"}')

    with pytest.raises(ServiceError, match=r"answered 400 to POST .*: .*0 is less than the minimum of 1"):
        client.trigger("nightly_retrain", {"workers": 0})


def test_an_airflow_that_is_down_is_named(nobody):
    with pytest.raises(ServiceError, match=f"Airflow at {re.escape(nobody)} does not answer"):
        AirflowClient(nobody, username="admin", password="secret")


def test_an_airflow_that_goes_down_while_a_dag_is_waited_for_is_named(client, nobody):
    client.url = nobody

    with pytest.raises(ServiceError, match=f"Airflow at {re.escape(nobody)} does not answer"):
        client.unpause("nightly_retrain")


def test_a_dag_that_is_never_parsed_is_named(client, airflow, monkeypatch):
    airflow.is_parsed = False
    seconds = iter(range(0, 10_000, 40))
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    monkeypatch.setattr("time.sleep", lambda _: None)

    with pytest.raises(ServiceError, match="does not know the DAG 'nightly_retrain' after 90 s; see its import errors"):
        client.unpause("nightly_retrain")
