"""Finding and stopping all processes of an instance, whoever started them and whatever session they made.

A process belongs to the instance if its environment carries the instance's marker, if it descends from one that
does, or if it was recorded when it started. Names and command lines are never looked at.
"""

import contextlib
import os
import time
from collections.abc import Iterable

import psutil

from pipelines.services.home import ProcessId

INSTANCE_VARIABLE = "TRACKSIDE_INSTANCE"
"""Marks every process of an instance; its value is `Home.instance`."""

SERVICE_VARIABLE = "TRACKSIDE_SERVICE"
"""Marks the processes of one service among them."""

# Two processes with one number cannot start within this time; clocks are read to about 10 ms.
_SAME_START_S = 1.0


def identify(pid: int) -> ProcessId:
    """Record a living process so that it can be recognised later."""
    return ProcessId(pid=pid, started_s=psutil.Process(pid).create_time())


def find(recorded: ProcessId) -> psutil.Process | None:
    """Return the recorded process if it still runs, and None if its number now belongs to another."""
    try:
        process = psutil.Process(recorded.pid)
        same = abs(process.create_time() - recorded.started_s) < _SAME_START_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def kill(recorded: ProcessId, *, limit_s: float = 10.0) -> bool:
    """Kill the recorded process at once and wait for its end, which its parent need not have noticed.

    Returns:
        False if it did not run any more.
    """
    process = find(recorded)
    if process is None:
        return False
    began_s = time.monotonic()
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    while find(recorded):
        if time.monotonic() - began_s > limit_s:
            raise TimeoutError(f"process {recorded.pid} does not end")
        time.sleep(0.02)
    return True


def members(instance: str, recorded: Iterable[ProcessId] = (), *, service: str = "") -> set[psutil.Process]:
    """Find the living processes of an instance, or of one of its services; the caller is never among them."""
    found = {process for process in psutil.process_iter() if _is_marked(process, instance, service)}
    found |= {process for one in recorded if (process := find(one)) is not None}
    for process in tuple(found):
        with contextlib.suppress(psutil.Error):
            found.update(process.children(recursive=True))
    return {process for process in found if process.pid != os.getpid() and _is_alive(process)}


def stop(
    instance: str, recorded: Iterable[ProcessId] = (), *, service: str = "", grace_s: float = 4.0, limit_s: float = 60.0
) -> int:
    """Stop all members and return how many there were; when this returns, none is left.

    Args:
        instance: The instance whose processes are stopped.
        recorded: Processes known to belong to it even if their marker cannot be read.
        service: Stop this service's processes only.
        grace_s: Time between the polite signal and the other one, in seconds.
        limit_s: Give up after this time, in seconds; only a process stuck in the kernel lives that long.
    """
    recorded = tuple(recorded)
    stopped: set[psutil.Process] = set()
    asked: set[psutil.Process] = set()
    began_s = time.monotonic()
    while alive := members(instance, recorded, service=service):
        elapsed_s = time.monotonic() - began_s
        if elapsed_s > limit_s:
            raise TimeoutError(f"processes {sorted(process.pid for process in alive)} do not stop")
        stopped |= alive
        for process in alive - asked if elapsed_s < grace_s else alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate() if elapsed_s < grace_s else process.kill()
        asked |= alive
        time.sleep(0.1)
    return len(stopped)


def _is_marked(process: psutil.Process, instance: str, service: str) -> bool:
    try:
        environ = process.environ()
    except (psutil.Error, OSError):
        return False  # it ended meanwhile, or belongs to another user
    is_member: bool = environ.get(INSTANCE_VARIABLE) == instance
    return is_member and (not service or environ.get(SERVICE_VARIABLE) == service)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
