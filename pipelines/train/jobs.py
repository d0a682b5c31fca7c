"""Training jobs on Ray, through its Jobs REST API: submit, look, stop. Nothing here imports ray.

The id of a job is chosen before it is submitted, from the run key and a generation, so whoever asks twice finds the
same job: a retry, a scheduler that crashed between submitting and remembering, or two that race.
"""

import hashlib
import json
import logging
import os
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from pipelines.errors import CapacityError, ConfigError, TrainingLostError

log = logging.getLogger(__name__)

MAX_GENERATIONS = 10
"""Jobs of one run key, after which something other than bad luck is the matter."""

ENDED_BADLY = ("FAILED", "STOPPED")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """What Ray says about a job."""

    state: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""

    message: str
    plan: str = ""
    """Location of the plan that it works on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """What the engine could give to one training."""

    num_cpus: float
    num_gpus: float = 0.0
    memory_bytes: float = 0.0
    """Memory that may be promised to workers; 0 means that nobody counts it."""

    source: str = ""
    """Who said so."""


@dataclass(frozen=True, slots=True)
class RayJobs:
    """The Jobs API of one Ray head."""

    url: str
    token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls) -> "RayJobs":
        """The head that `TRACKSIDE_RAY_URL` names, with the token in `RAY_AUTH_TOKEN`."""
        url = os.environ.get("TRACKSIDE_RAY_URL")
        if not url:
            raise ConfigError(
                "TRACKSIDE_RAY_URL is not set; it must be the address of Ray's dashboard, http://host:8265"
            )
        return cls(url.rstrip("/"), os.environ.get("RAY_AUTH_TOKEN", ""))

    def submit(
        self,
        submission_id: str,
        entrypoint: str,
        *,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a job; it is no error if a job of this id exists already."""
        job = {
            "submission_id": submission_id,
            "entrypoint": entrypoint,
            "metadata": dict(metadata or {}),
            "runtime_env": {"env_vars": dict(env)} if env else {},
        }
        response = self._call("POST", "/api/jobs/", job)
        if response.ok:
            log.info("job %s submitted", submission_id)
        elif self.status(submission_id) is None:
            # Ray answers a duplicate with a bare 500, so the id is looked up to tell it from a real failure.
            raise TrainingLostError(f"job {submission_id} was not taken by {self.url}: {_first_line(response)}")

    def status(self, submission_id: str) -> JobState | None:
        """The state of a job; `None` if Ray does not know the id."""
        response = self._call("GET", f"/api/jobs/{submission_id}")
        if response.status_code == 404:
            return None
        job = self._json(response)
        plan = (job.get("metadata") or {}).get("plan", "")
        return JobState(state=job["status"], message=job.get("message") or "", plan=plan)

    def stop(self, submission_id: str) -> None:
        """Stop a job; it is no error if it has ended or is unknown."""
        self._call("POST", f"/api/jobs/{submission_id}/stop")

    def logs(self, submission_id: str) -> str:
        """What the job has printed so far."""
        return str(self._json(self._call("GET", f"/api/jobs/{submission_id}/logs"))["logs"])

    def cluster(self) -> Cluster:
        """What all living nodes have together."""
        listed = self._json(self._call("GET", "/api/v0/nodes?detail=1"))["data"]["result"]["result"]
        nodes = [node["resources_total"] for node in listed if node["state"] == "ALIVE"]
        if not nodes:
            raise CapacityError(f"Ray at {self.url} has no living node")
        return Cluster(
            num_cpus=sum(node.get("CPU", 0.0) for node in nodes),
            num_gpus=sum(node.get("GPU", 0.0) for node in nodes),
            memory_bytes=sum(node.get("memory", 0.0) for node in nodes),
            source=f"Ray, {len(nodes)} node{'s' if len(nodes) > 1 else ''}",
        )

    def _call(self, method: str, path: str, body: Any = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            response = requests.request(method, self.url + path, json=body, headers=headers, timeout=30)
        except requests.ConnectionError as err:
            raise TrainingLostError(f"Ray at {self.url} does not answer: {err}") from err
        except requests.Timeout as err:
            raise CapacityError(f"Ray at {self.url} is too busy: no answer within 30 s") from err
        if response.status_code in (401, 403):
            raise ConfigError(f"Ray at {self.url} refused the token ({response.status_code}); check RAY_AUTH_TOKEN")
        return response

    def _json(self, response: requests.Response) -> Any:
        if not response.ok:
            raise TrainingLostError(f"{response.url}: Ray answered {response.status_code}: {_first_line(response)}")
        return response.json()


def local_cluster() -> Cluster:
    """What trains where there is no engine: one worker in the process that asks."""
    return Cluster(num_cpus=1, source="this process, no engine")


def attach_or_submit(jobs: RayJobs, run_key: str, plan_location: str, *, links: Mapping[str, str] | None = None) -> str:
    """Make sure that a job works on the plan or has finished it; return its id.

    A job that waits, runs or succeeded is attached to. One that failed or was stopped is followed by the next
    generation, which resumes from the newest good checkpoint.
    """
    for generation in range(MAX_GENERATIONS):
        submission_id = submission_id_of(run_key, generation)
        found = jobs.status(submission_id)
        if found is None:
            jobs.submit(
                submission_id,
                entrypoint(plan_location, submission_id, links or {}),
                metadata={"run_key": run_key, "plan": plan_location, **(links or {})},
            )
            return submission_id
        if found.state not in ENDED_BADLY:
            log.info("attached to job %s (%s)", submission_id, found.state)
            return submission_id
        last_words = f"{submission_id} {found.state}: {found.message}"
        log.warning("job %s", last_words)
    raise ConfigError(
        f"run {run_key}: {MAX_GENERATIONS} jobs ended badly, the last was {last_words}; "
        "read its log, then start under a new run key"
    )


def submission_id_of(run_key: str, generation: int) -> str:
    """The id of a job: readable, unique, and always the same for the same training.

    Example:
        >>> submission_id_of("nightly_retrain/2026-03-01T02:00", 1)
        'ts-nightly-retrain-2026-03-01t02-00-6b938fef-g1'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", run_key.lower()).strip("-")[:40]
    return f"ts-{slug}-{hashlib.sha256(run_key.encode()).hexdigest()[:8]}-g{generation}"


def entrypoint(plan_location: str, submission_id: str, links: Mapping[str, str]) -> str:
    """The command that a job runs on the cluster."""
    words = ["python", "-m", "pipelines.train.engine", plan_location, "--submission", submission_id]
    words += ["--submitted-at", f"{time.time():.3f}", "--links", json.dumps(dict(links))]
    return shlex.join(words)


def _first_line(response: requests.Response) -> str:
    lines = [line for line in response.text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"
