import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipelines.errors import CapacityError, ConfigError, TrainingLostError
from pipelines.train.jobs import MAX_GENERATIONS, RayJobs, attach_or_submit, submission_id_of

TOKEN = "secret-token"


class Head(BaseHTTPRequestHandler):
    """Answers like the part of Ray's dashboard that trainings use."""

    def do_GET(self):
        if self.path.startswith("/api/v0/nodes"):
            nodes = self.server.nodes
            return self.answer(200, {"data": {"result": {"result": nodes}}})
        job = self.server.jobs.get(self.path.rsplit("/", 1)[-1])
        return self.answer(200, job) if job else self.answer(404, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
        if self.path == "/api/jobs/":
            if body["submission_id"] in self.server.jobs:
                return self.answer(500, "Traceback\nRuntimeError: Request failed: Job with submission_id exists")
            if self.server.is_broken:
                return self.answer(500, "Traceback\nOSError: No space left on device")
            self.server.jobs[body["submission_id"]] = {"status": "PENDING", "message": "", **body}
        return self.answer(200, {})

    def answer(self, status, value):
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, value = 401, {}
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def head():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Head)
    server.jobs, server.nodes, server.is_broken = {}, [], False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def jobs(head):
    return RayJobs(f"http://127.0.0.1:{head.server_port}", TOKEN)


def test_a_training_is_submitted_once_however_often_it_is_asked_for(head, jobs):
    ids = {attach_or_submit(jobs, "nightly/1", "lake/plan.json") for _ in range(3)}

    assert ids == {submission_id_of("nightly/1", 0)} == set(head.jobs)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUCCEEDED"])
def test_a_job_that_lives_or_is_done_is_attached_to(head, jobs, state):
    first = attach_or_submit(jobs, "nightly/1", "lake/plan.json")
    head.jobs[first]["status"] = state

    assert attach_or_submit(jobs, "nightly/1", "lake/plan.json") == first
    assert len(head.jobs) == 1


@pytest.mark.parametrize("state", ["FAILED", "STOPPED"])
def test_a_job_that_ended_badly_is_followed_by_the_next_generation(head, jobs, state):
    first = attach_or_submit(jobs, "nightly/1", "lake/plan.json")
    head.jobs[first]["status"] = state

    second = attach_or_submit(jobs, "nightly/1", "lake/plan.json")

    assert (first[-3:], second[-3:]) == ("-g0", "-g1")


def test_a_training_that_always_fails_is_given_up(head, jobs):
    for generation in range(MAX_GENERATIONS):
        head.jobs[submission_id_of("nightly/1", generation)] = {"status": "FAILED", "message": "out of memory"}

    with pytest.raises(ConfigError, match=r"10 jobs ended badly.*g9 FAILED: out of memory"):
        attach_or_submit(jobs, "nightly/1", "lake/plan.json")


def test_who_loses_a_race_to_submit_is_attached(head, jobs):
    jobs.submit("one", "python -V")

    jobs.submit("one", "python -V")

    assert jobs.status("one").state == "PENDING"


def test_a_job_that_ray_does_not_take_is_an_error_that_says_why(head, jobs):
    head.is_broken = True

    with pytest.raises(TrainingLostError, match="OSError: No space left on device"):
        jobs.submit("one", "python -V")


def test_the_job_knows_its_plan_and_its_links(head, jobs):
    submitted = attach_or_submit(jobs, "nightly/1", "s3://lake/a plan.json", links={"airflow.dag_id": "nightly"})

    job = head.jobs[submitted]
    assert job["entrypoint"].startswith("python -m pipelines.train.engine 's3://lake/a plan.json' --submission ts-")
    assert job["metadata"]["airflow.dag_id"] == "nightly"


def test_an_unknown_job_has_no_state(jobs):
    assert jobs.status("never") is None


def test_a_wrong_token_is_not_retried_and_never_shown(head):
    stranger = RayJobs(f"http://127.0.0.1:{head.server_port}", "wrong-token")

    with pytest.raises(ConfigError, match="check RAY_AUTH_TOKEN") as raised:
        stranger.status("one")

    assert not raised.value.retryable
    assert "wrong-token" not in str(raised.value) + repr(stranger)


def test_a_head_that_is_down_is_worth_a_retry(head, jobs):
    gone = RayJobs("http://127.0.0.1:9", TOKEN)

    with pytest.raises(TrainingLostError, match="does not answer") as raised:
        gone.status("one")

    assert raised.value.retryable


def test_the_cluster_is_what_the_living_nodes_have(head, jobs):
    head.nodes = [
        {"state": "ALIVE", "resources_total": {"CPU": 4.0, "GPU": 1.0, "memory": 8e9}},
        {"state": "DEAD", "resources_total": {"CPU": 64.0}},
        {"state": "ALIVE", "resources_total": {"CPU": 2.0, "memory": 4e9}},
    ]

    cluster = jobs.cluster()

    assert (cluster.num_cpus, cluster.num_gpus, cluster.memory_bytes) == (6.0, 1.0, 12e9)


def test_a_cluster_without_nodes_is_waited_for(jobs):
    with pytest.raises(CapacityError, match="no living node"):
        jobs.cluster()


def test_names_that_look_alike_have_ids_of_their_own():
    assert submission_id_of("a/b", 0) != submission_id_of("a-b", 0)
