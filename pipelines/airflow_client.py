"""A client of Airflow's REST API (version 2): trigger a DAG, follow its run, read what a task returned."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import requests

from pipelines.errors import ServiceError

FINISHED = {"success", "failed"}

PAGE = 100
"""Most items that Airflow puts into one answer."""

AHEAD = timedelta(days=7)
"""How far back the start of a triggered run is dated: further than the last interval of any DAG here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskState:
    """One task instance of a run, as it stands now."""

    task_id: str
    label: str
    """Task id, with the rendered map index of a mapped task."""

    state: str


class AirflowClient:
    """One login, used for all calls."""

    def __init__(self, url: str, *, username: str, password: str) -> None:
        """Log in; raise `ServiceError` if Airflow does not answer or refuses."""
        self.url = url.rstrip("/")
        self._session = requests.Session()
        answer = self._call("POST", "/auth/token", json={"username": username, "password": password})
        self._session.headers["Authorization"] = f"Bearer {answer['access_token']}"

    def trigger(self, dag_id: str, conf: dict[str, Any]) -> str:
        """Start a run of a DAG now, ahead of runs that wait for their turn, and return the run's id.

        Airflow takes waiting runs by the time from which they may start, and an unpaused DAG has one from its last
        interval.
        """
        self._wait_until_parsed(dag_id)
        now = datetime.now(UTC)
        asked = {
            "dag_run_id": f"manual__{now.isoformat()}",
            "logical_date": None,
            "conf": conf,
            "run_after": (now - AHEAD).isoformat(),
        }
        answer = self._call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=asked)
        self.unpause(dag_id)
        return str(answer["dag_run_id"])

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run a DAG; waits until Airflow has read its file.

        Whatever `catchup` says, Airflow then also starts the interval that ended last.
        """
        self._wait_until_parsed(dag_id)
        self._call("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def active_run(self, dag_id: str) -> str:
        """Id of the oldest run that is going on or waits for its turn; empty if there is none."""
        answer = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns?state=running&state=queued&order_by=run_after")
        return str(answer["dag_runs"][0]["dag_run_id"]) if answer["dag_runs"] else ""

    def run_ids(self, dag_id: str) -> set[str]:
        """Ids of the newest hundred runs."""
        answer = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns?limit=100&order_by=-run_after")
        return {item["dag_run_id"] for item in answer["dag_runs"]}

    def conf(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """What a run was triggered with."""
        conf: dict[str, Any] = self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}")["conf"]
        return conf

    def state(self, dag_id: str, run_id: str) -> str:
        """State of a run: queued, running, success or failed."""
        return str(self._call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}")["state"])

    def tasks(self, dag_id: str, run_id: str) -> list[TaskState]:
        """All task instances of a run."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances?limit={PAGE}"
        items: list[dict[str, Any]] = []
        while page := self._call("GET", f"{path}&offset={len(items)}")["task_instances"]:
            items += page
        return [
            TaskState(
                task_id=item["task_id"],
                label=f"{item['task_id']} {item['rendered_map_index'] or ''}".strip(),
                state=item["state"] or "waiting",
            )
            for item in items
        ]

    def returned(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        """What a task returned (its XCom)."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/xcomEntries/return_value"
        return self._call("GET", f"{path}?map_index={map_index}&deserialize=true")["value"]

    def follow(self, dag_id: str, run_id: str, *, deadline_s: float, poll_s: float = 1.0) -> Iterator[list[TaskState]]:
        """Yield the task instances of a run at every look, until the run has ended."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            state = self.state(dag_id, run_id)
            yield self.tasks(dag_id, run_id)
            if state in FINISHED:
                return
            time.sleep(poll_s)
        raise ServiceError(f"{dag_id} {run_id}: not finished after {deadline_s:.0f} s; see {self.url}/dags/{dag_id}")

    def _wait_until_parsed(self, dag_id: str, wait_s: float = 90) -> None:
        """A DAG file that was just put there is known only after the dag-processor has read it."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            if self._send("GET", f"/api/v2/dags/{dag_id}").ok:
                return
            time.sleep(1)
        raise ServiceError(f"Airflow does not know the DAG {dag_id!r} after {wait_s:.0f} s; see its import errors")

    def _call(self, method: str, path: str, **kwargs: Any) -> Any:
        answer = self._send(method, path, **kwargs)
        if not answer.ok:
            raise ServiceError(f"Airflow answered {answer.status_code} to {method} {path}: {answer.text[:500]}")
        return answer.json() if answer.content else None

    def _send(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        try:
            return self._session.request(method, f"{self.url}{path}", timeout=60, **kwargs)
        except requests.RequestException as err:
            raise ServiceError(f"Airflow at {self.url} does not answer: {err}") from err
