"""The daemon that starts the services of a home in order, and starts again one that died.

Started by `up` as `python -m pipelines.services.supervisor HOME`, in a session of its own. It has no memory worth
saving: what others need is in the state file, and `down` works without it.
"""

import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from pipelines.services import processes
from pipelines.services.definitions import Service, define
from pipelines.services.home import Home, ServiceStatus, State, open_home, write_state
from pipelines.services.processes import INSTANCE_VARIABLE, SERVICE_VARIABLE

log = logging.getLogger(__name__)

POLL_S = 0.2
WATCH_S = 0.5

FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 30.0
"""A service that dies again and again is started after 1, 2, 4 … 30 s."""

MAX_RESTARTS_IN_A_ROW = 8
"""One that dies this often without having lived for `GOOD_LIFE_S` is given up."""

GOOD_LIFE_S = 120.0

MAX_FIRST_TRIES = 3
HASTY_END_S = 25.0
"""A service that never was ready and ends sooner than this has a wrong setting, which trying again does not mend.
Later, the machine was too busy: Ray, for one, gives itself 30 s."""

GOOD_STATES = ("ready", "done")


class Supervisor:
    """Keeps the services of one home running, a thread a service."""

    def __init__(self, home: Home, services: tuple[Service, ...]) -> None:
        """Nothing starts before `run`."""
        self._home = home
        self._services = services
        self._self = processes.identify(os.getpid())
        self._statuses = {
            service.name: ServiceStatus(name=service.name, url=service.url, log=str(home.log(service.name)))
            for service in services
        }
        self._lock = threading.RLock()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Start everything and watch until the process is ended."""
        self._note(self._services[0].name)
        threads = [threading.Thread(target=self._keep, args=(service,), daemon=True) for service in self._services]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.error("no service is left to watch")

    def stop(self) -> None:
        """Stop every process of the home but this one."""
        with self._lock:
            self._stopping.set()
        processes.stop(self._home.instance)
        self._home.state_file.unlink(missing_ok=True)

    def _keep(self, service: Service) -> None:
        """Start the service, and start it again whenever it ends, until there is no hope."""
        if not self._wait_for(service):
            return
        in_a_row, was_ever_ready = 0, False
        while True:
            began_s = time.monotonic()
            try:
                was_ready, code = self._live(service)
            except OSError as error:
                self._note(service.name, state="failed", message=f"cannot be started: {error}")
                return
            if service.runs_once and code == 0:
                self._note(service.name, state="done", pid=None)
                return
            lived_s = time.monotonic() - began_s
            in_a_row = 0 if was_ready and lived_s > GOOD_LIFE_S else in_a_row + 1
            was_ever_ready = was_ever_ready or was_ready
            never_will = not was_ever_ready and (lived_s < HASTY_END_S or in_a_row >= MAX_FIRST_TRIES)
            if never_will or in_a_row > MAX_RESTARTS_IN_A_ROW:
                self._note(service.name, state="failed", pid=None, message=_ending(code))
                return
            self._make_ready_for_restart(service, _ending(code))
            time.sleep(min(FIRST_DELAY_S * 2 ** max(0, in_a_row - 1), LONGEST_DELAY_S))

    def _wait_for(self, service: Service) -> bool:
        """Wait for what the service needs; return whether that is there."""
        while not all(self._statuses[name].state in GOOD_STATES for name in service.needs):
            if any(self._statuses[name].state == "failed" for name in service.needs):
                self._note(service.name, state="failed", message=f"{' and '.join(service.needs)} did not start")
                return False
            time.sleep(POLL_S)
        return True

    def _make_ready_for_restart(self, service: Service, ending: str) -> None:
        log.warning("%s %s; it will be started again", service.name, ending)
        restarts = self._statuses[service.name].restarts + 1
        self._note(service.name, state="restarting", pid=None, restarts=restarts, message=ending)
        if not service.restarts_alone:
            processes.stop(self._home.instance, service=service.name, grace_s=2.0)

    def _live(self, service: Service) -> tuple[bool, int]:
        """Run the service once; return whether it ever was ready, and its exit code."""
        with self._lock:
            if self._stopping.is_set():
                threading.Event().wait()  # until the process ends
            process = self._start(service)
        started_s, began_s = processes.identify(process.pid).started_s, time.monotonic()
        self._note(service.name, state="starting", pid=process.pid, started_s=started_s)
        while process.poll() is None and (service.runs_once or not service.is_ready(started_s)):
            time.sleep(service.ask_every_s)
        if process.poll() is not None:
            return False, process.returncode
        after_s = round(time.monotonic() - began_s, 2)
        log.info("%s is ready after %.1f s", service.name, after_s)
        self._note(service.name, state="ready", ready_after_s=after_s, message="")
        while process.poll() is None:
            time.sleep(WATCH_S)
        return True, process.returncode

    def _start(self, service: Service) -> subprocess.Popen[bytes]:
        with self._home.log(service.name).open("ab") as output:
            log.info("starting %s: %s", service.name, shlex.join(service.command))
            return subprocess.Popen(
                service.command,
                cwd=self._home.path,
                env={
                    **service.environment,
                    INSTANCE_VARIABLE: self._home.instance,
                    SERVICE_VARIABLE: service.name,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _note(self, name: str, **changes: Any) -> None:
        with self._lock:
            self._statuses[name] = replace(self._statuses[name], **changes)
            write_state(self._home, State(supervisor=self._self, services=tuple(self._statuses.values())))


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def main(path: Path) -> None:
    """Supervise the services of a home until told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    home = open_home(path)
    supervisor = Supervisor(home, define(home))

    def stop(number: int, _: FrameType | None) -> None:
        log.info("stopping everything, on %s", signal.Signals(number).name)
        supervisor.stop()
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    supervisor.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
