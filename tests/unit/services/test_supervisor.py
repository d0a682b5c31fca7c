import os
import signal
import sys
import threading
import time

import pytest

from pipelines.services import supervisor as module
from pipelines.services.definitions import Service
from pipelines.services.home import open_home, read_state
from pipelines.services.supervisor import Supervisor

SLEEP = "import time; time.sleep(120)"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a supervisor over some services, in this process; gives a function that waits for a state."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(module, "FIRST_DELAY_S", 0.05)
    monkeypatch.setattr(module, "POLL_S", 0.02)
    monkeypatch.setattr(module, "WATCH_S", 0.02)
    home = open_home(tmp_path / "home")
    home.prepare()
    supervisors = []

    def start(*services):
        supervisor = Supervisor(home, services)
        supervisors.append(supervisor)
        threading.Thread(target=supervisor.run, daemon=True).start()

        def wait_for(name, state, *, restarts=0):
            deadline_s = time.monotonic() + 20
            while time.monotonic() < deadline_s:
                recorded = read_state(home)
                known = {service.name: service for service in recorded.services} if recorded else {}
                if name in known and (known[name].state, known[name].restarts) == (state, restarts):
                    return known[name]
                time.sleep(0.02)
            raise AssertionError(f"{name} is not {state} but {known.get(name)}")

        return wait_for

    yield start
    for supervisor in supervisors:
        supervisor.stop()


def service(name, code, **fields):
    environ = dict(os.environ)
    defaults = {"is_ready": lambda _: True, "ask_every_s": 0.02}
    return Service(name=name, command=(sys.executable, "-c", code), environment=environ, **{**defaults, **fields})


def test_a_killed_service_is_started_again_and_counted(run):
    wait_for = run(service("worker", SLEEP))
    first = wait_for("worker", "ready")

    os.kill(first.pid, signal.SIGKILL)

    second = wait_for("worker", "ready", restarts=1)
    assert second.pid != first.pid


def test_a_service_that_ends_before_it_is_ready_fails_at_once(run):
    wait_for = run(service("worker", "raise SystemExit(3)", is_ready=lambda _: False))

    assert wait_for("worker", "failed").message == "ended with exit code 3"


def test_a_command_that_does_not_exist_fails_at_once(run):
    wait_for = run(Service(name="worker", command=("/no/such/file",), environment={}, is_ready=lambda _: True))

    assert "/no/such/file" in wait_for("worker", "failed").message


def test_a_service_waits_for_what_it_needs(run, tmp_path):
    marker = tmp_path / "prepared"
    prepare = f"import pathlib, time; time.sleep(0.3); pathlib.Path({str(marker)!r}).touch()"
    check = f"import pathlib, sys; sys.exit(0 if pathlib.Path({str(marker)!r}).exists() else 4)"

    wait_for = run(
        service("first", prepare, runs_once=True), service("second", check, needs=("first",), runs_once=True)
    )

    assert wait_for("second", "done").state == "done"


def test_a_service_fails_with_what_it_needs(run):
    wait_for = run(service("first", "raise SystemExit(1)", runs_once=True), service("second", SLEEP, needs=("first",)))

    assert wait_for("second", "failed").message == "first did not start"


def test_a_service_that_dies_again_and_again_is_given_up(run, monkeypatch):
    monkeypatch.setattr(module, "MAX_RESTARTS_IN_A_ROW", 2)
    monkeypatch.setattr(module, "LONGEST_DELAY_S", 0.05)

    wait_for = run(service("worker", "import time; time.sleep(0.4)"))

    assert wait_for("worker", "failed", restarts=2).message == "ended with exit code 0"


def test_a_start_that_was_too_slow_is_tried_again(run, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "HASTY_END_S", 0.0)
    marker = tmp_path / "second try"
    code = f"""
import pathlib, time
marker = pathlib.Path({str(marker)!r})
if not marker.exists():
    marker.touch()
    raise SystemExit(1)
marker.with_name("ready").touch()
time.sleep(120)
"""

    wait_for = run(service("worker", code, is_ready=lambda _: (tmp_path / "ready").exists()))

    assert wait_for("worker", "ready", restarts=1).pid
