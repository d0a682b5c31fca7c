import os
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from pipelines.services import processes
from pipelines.services.home import ProcessId
from pipelines.services.processes import INSTANCE_VARIABLE, SERVICE_VARIABLE

SLEEP = "import time; time.sleep(120)"
IGNORE_TERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {SLEEP}"
LEAVE_A_CHILD_BEHIND = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
print(child.pid, flush=True)
child.returncode = 0
"""
LEAVE_AN_UNMARKED_CHILD_BEHIND = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True, env={{}})
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def instance():
    name = uuid.uuid4().hex[:8]
    yield name
    processes.stop(name, grace_s=0.0)


@pytest.fixture
def start(instance):
    """Start Python code as a process of the instance, or, with mark=False, as a stranger."""
    started = []

    def start_code(code, *, mark=True, service="", **options):
        environ = {**os.environ, INSTANCE_VARIABLE: instance, SERVICE_VARIABLE: service} if mark else None
        process = subprocess.Popen([sys.executable, "-c", code], env=environ, **options)
        started.append(process)
        return process

    yield start_code
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_a_child_in_a_session_of_its_own_is_stopped_after_its_parent_has_gone(instance, start):
    parent = start(LEAVE_A_CHILD_BEHIND, stdout=subprocess.PIPE)
    orphan = int(parent.stdout.readline())
    parent.wait()

    num_stopped = processes.stop(instance)

    assert num_stopped == 1
    assert not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE


def test_a_child_that_dropped_the_marker_is_found_through_its_parent(instance, start):
    parent = start(LEAVE_AN_UNMARKED_CHILD_BEHIND, stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())

    found = processes.members(instance)

    assert {process.pid for process in found} == {parent.pid, child}


def test_a_process_of_another_instance_is_not_touched(instance, start):
    stranger = start(SLEEP, mark=False)

    processes.stop(instance)

    assert stranger.poll() is None


def test_a_process_that_ignores_the_polite_signal_is_killed(instance, start):
    stubborn = start(IGNORE_TERM, stdout=subprocess.PIPE)
    stubborn.stdout.readline()

    processes.stop(instance, grace_s=0.2)

    assert stubborn.wait(timeout=5) == -9


def test_one_service_is_stopped_without_the_others(instance, start):
    doomed, other = start(SLEEP, service="ray"), start(SLEEP, service="mlflow")

    processes.stop(instance, service="ray", grace_s=0.2)

    assert doomed.wait(timeout=5) != 0
    assert other.poll() is None


def test_a_recycled_process_number_is_not_the_recorded_process(instance, start):
    successor = start(SLEEP, mark=False)
    recorded = ProcessId(pid=successor.pid, started_s=time.time() - 3600)

    num_stopped = processes.stop(instance, [recorded])

    assert num_stopped == 0
    assert successor.poll() is None


def test_a_recorded_process_is_stopped_even_without_a_marker(instance, start):
    process = start(SLEEP, mark=False)

    num_stopped = processes.stop(instance, [processes.identify(process.pid)])

    assert num_stopped == 1
    assert process.wait(timeout=5) != 0


def test_a_dead_process_is_not_found(start):
    process = start("pass")
    recorded = processes.identify(process.pid)
    process.wait()

    assert processes.find(recorded) is None


def test_a_killed_process_has_ended_though_its_parent_has_not_noticed(instance, start):
    child = start(SLEEP)  # this test is its parent, and does not wait for it
    recorded = processes.identify(child.pid)

    was_killed = processes.kill(recorded)

    assert was_killed
    assert processes.find(recorded) is None
    assert not processes.kill(recorded)
