import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from pipelines import services as local
from pipelines.errors import ServiceError
from pipelines.services import processes
from pipelines.services.home import open_home, read_state

pytestmark = pytest.mark.services

ANY_PORTS = dict.fromkeys(("airflow", "mlflow", "store", "ray"), 0)


@pytest.fixture
def own_home(tmp_path):
    """A home beside the one that all tests share, gone afterwards with everything in it."""
    yield tmp_path
    local.down(tmp_path)
    shutil.rmtree(open_home(tmp_path).sockets, ignore_errors=True)


def answer(url, *, token="", body=None):
    """Return the status code and the body with which a URL answers."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, data=json.dumps(body).encode() if body else None, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def state_of(services, name):
    return next(one for one in local.status(services.home) if one.name == name)


def s3(services, secret=None):
    return boto3.client(
        "s3",
        endpoint_url=services.env["AWS_ENDPOINT_URL_S3"],
        region_name="us-east-1",
        aws_access_key_id=services.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=secret or services.env["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"max_attempts": 0}),
    )


def test_every_service_is_ready(services):
    states = {one.name: one.state for one in local.status(services.home)}

    assert states == {
        "store": "ready",
        "mlflow": "ready",
        "ray": "ready",
        "airflow-database": "done",
        "airflow-api": "ready",
        "airflow-scheduler": "ready",
        "airflow-dag-processor": "ready",
        "airflow-triggerer": "ready",
    }


def test_starting_a_second_time_changes_nothing(services):
    before = {one.name: one.pid for one in local.status(services.home)}

    again = local.up(services.home)

    assert again.was_up
    assert {one.name: one.pid for one in again.services} == before


def test_starting_a_second_time_on_another_port_is_refused(services):
    with pytest.raises(ServiceError, match="trackside down"):
        local.up(services.home, ports={"mlflow": 1})


def test_nothing_listens_beyond_this_machine(services):
    listening = {}
    for process in processes.members(open_home(services.home).instance):
        with suppress(psutil.NoSuchProcess):  # a task that ended meanwhile
            found = [c.laddr.ip for c in process.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN]
            listening |= dict.fromkeys(found, process.name())

    assert listening
    assert listening.keys() <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, listening


def test_no_command_line_shows_a_secret(services):
    home = open_home(services.home)
    commands = []
    for process in processes.members(home.instance):
        with suppress(psutil.NoSuchProcess):
            commands.append(" ".join(process.cmdline()))

    assert commands
    assert not [name for name, secret in home.secrets().items() if any(secret in command for command in commands)]


@pytest.mark.parametrize(
    ("service", "path"),
    [
        ("TRACKSIDE_AIRFLOW_URL", "/api/v2/dags"),
        ("TRACKSIDE_AIRFLOW_URL", "/execution/variables/x"),
        ("MLFLOW_TRACKING_URI", "/api/2.0/mlflow/experiments/search?max_results=1"),
        ("MLFLOW_TRACKING_URI", "/"),
        ("TRACKSIDE_RAY_URL", "/api/jobs/"),
        ("AWS_ENDPOINT_URL_S3", "/trackside"),
    ],
)
def test_without_credentials_the_door_stays_shut(services, service, path):
    code, _ = answer(services.env[service] + path)

    assert code in (401, 403)


def test_files_cannot_be_read_around_the_gateway_of_the_store(services):
    s3(services).put_object(Bucket="trackside", Key="secret.txt", Body=b"x")
    ports = open_home(services.home).ports()

    code, _ = answer(f"http://127.0.0.1:{ports['store-filer']}/buckets/trackside/secret.txt")

    assert code == 401


def test_the_store_refuses_a_wrong_key_and_takes_the_right_one(services):
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        s3(services, secret="wrong").list_objects_v2(Bucket="trackside")

    s3(services).put_object(Bucket="trackside", Key="a", Body=b"1")

    assert s3(services).get_object(Bucket="trackside", Key="a")["Body"].read() == b"1"


def test_the_second_of_two_conditional_writers_loses(services):
    client = s3(services)
    client.put_object(Bucket="trackside", Key="once", Body=b"1", IfNoneMatch="*")

    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket="trackside", Key="once", Body=b"2", IfNoneMatch="*")


def test_each_account_of_airflow_may_do_what_its_role_says(services):
    def may_see_the_configuration_of_pools(login):
        _, body = answer(f"{login.url}/auth/token", body={"username": login.username, "password": login.password})
        token = json.loads(body)["access_token"]
        reads, _ = answer(f"{login.url}/api/v2/dags", token=token)
        creates, _ = answer(f"{login.url}/api/v2/pools", token=token, body={"name": f"of_{login.username}", "slots": 1})
        return reads, creates

    accounts = {login.username: login for login in local.credentials(services.home) if login.service == "airflow"}

    assert may_see_the_configuration_of_pools(accounts["admin"]) == (200, 201)
    assert may_see_the_configuration_of_pools(accounts["op"]) == (200, 201)
    assert may_see_the_configuration_of_pools(accounts["viewer"]) == (200, 403)


def test_mlflow_is_reached_with_the_environment_alone(services):
    code = """
import mlflow
mlflow.set_experiment("from the environment")
with mlflow.start_run() as run:
    mlflow.log_text("hello", "greeting.txt")
print(mlflow.artifacts.load_text(run.info.artifact_uri + "/greeting.txt"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **services.env}, capture_output=True, text=True, check=False
    )

    assert done.stdout.strip().endswith("hello"), done.stderr[-2000:]
    objects = s3(services).list_objects_v2(Bucket="trackside", Prefix="mlflow/")
    assert any(one["Key"].endswith("greeting.txt") for one in objects["Contents"])


def test_a_job_on_ray_sees_the_lake_but_none_of_airflows_keys(services):
    url, token = services.env["TRACKSIDE_RAY_URL"], services.env["RAY_AUTH_TOKEN"]
    entrypoint = (
        """python -c 'import os; print(sorted(name for name in os.environ if "AIRFLOW" in name or "LAKE" in name))'"""
    )
    _, body = answer(f"{url}/api/jobs/", token=token, body={"entrypoint": entrypoint})
    job = json.loads(body)["submission_id"]

    deadline_s = time.monotonic() + 120
    status = ""
    while status not in ("SUCCEEDED", "FAILED") and time.monotonic() < deadline_s:
        time.sleep(1)
        status = json.loads(answer(f"{url}/api/jobs/{job}", token=token)[1])["status"]
    log = json.loads(answer(f"{url}/api/jobs/{job}/logs", token=token)[1])["logs"]

    assert status == "SUCCEEDED", log
    assert "['TRACKSIDE_LAKE']" in log


@pytest.mark.parametrize("name", ["mlflow", "store"])
def test_a_killed_service_is_started_again(services, name):
    before = state_of(services, name)

    os.kill(before.pid, signal.SIGKILL)

    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        after = state_of(services, name)
        if after.state == "ready" and after.restarts == before.restarts + 1:
            break
        time.sleep(0.5)
    assert (after.state, after.restarts) == ("ready", before.restarts + 1)
    assert after.pid != before.pid


def test_what_was_stored_survives_a_killed_store(services):
    s3(services).put_object(Bucket="trackside", Key="kept", Body=b"1")
    test_a_killed_service_is_started_again(services, "store")

    assert s3(services).get_object(Bucket="trackside", Key="kept")["Body"].read() == b"1"


def test_a_port_in_use_is_reported_before_anything_starts(services, own_home):
    taken = int(services.env["MLFLOW_TRACKING_URI"].rsplit(":", 1)[1])

    with pytest.raises(ServiceError, match=f"mlflow cannot start: port {taken} is in use by process"):
        local.up(own_home, ports={**ANY_PORTS, "mlflow": taken})

    assert processes.members(open_home(own_home).instance) == set()
    assert not (own_home / "logs").exists()


def test_a_service_that_cannot_start_is_named_with_its_log_and_nothing_is_left(own_home):
    (own_home / "store").mkdir()
    (own_home / "store" / "filerldb2").write_text("a file, where the store expects the folder of its database")

    with pytest.raises(ServiceError, match="store ended with exit code") as failure:
        local.up(own_home, ports=ANY_PORTS)

    assert str(own_home / "logs" / "store.log") in str(failure.value)
    assert "goroutine" in str(failure.value), "the end of the log is missing"
    assert processes.members(open_home(own_home).instance) == set()


def test_down_leaves_nothing_even_after_the_supervisor_was_killed(own_home):
    local.up(own_home, ports=ANY_PORTS, wait_s=600)
    home = open_home(own_home)
    env = local.environment(own_home)
    answer(
        f"{env['TRACKSIDE_RAY_URL']}/api/jobs/",
        token=env["RAY_AUTH_TOKEN"],
        body={"entrypoint": "setsid sleep 600 & setsid sleep 600"},
    )
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **env})
    deadline_s = time.monotonic() + 60
    while sum(process.name() == "sleep" for process in processes.members(home.instance)) < 2:
        assert time.monotonic() < deadline_s, "the job on Ray did not start"
        time.sleep(0.5)
    os.kill(read_state(home).supervisor.pid, signal.SIGKILL)
    time.sleep(1)
    lost = local.status(own_home)

    num_stopped = local.down(own_home)

    assert "supervisor is gone" in lost[0].message
    assert num_stopped > 20
    assert processes.members(home.instance) == set()
    assert local.status(own_home) == []
    assert local.down(own_home) == 0
    assert not Path(home.state_file).exists()
    assert stranger.poll() is None, "a process that merely uses the services was stopped"
    stranger.kill()
    stranger.wait()
