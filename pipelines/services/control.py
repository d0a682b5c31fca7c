"""Start, stop and ask the services of a home."""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.errors import ServiceError
from pipelines.services import processes
from pipelines.services.definitions import Service, configure, define
from pipelines.services.environment import BUCKET, REPOSITORY, inherited, url
from pipelines.services.home import Home, ProcessId, ServiceStatus, State, open_home, read_state, write_json
from pipelines.services.ports import PUBLIC_PORTS, choose_ports
from pipelines.services.processes import INSTANCE_VARIABLE

LARGEST_LOG_BYTES = 20_000_000

Progress = Callable[[tuple[ServiceStatus, ...]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """What `up` leaves behind."""

    home: Path
    was_up: bool
    """Whether everything ran already, so that nothing was started."""
    services: tuple[ServiceStatus, ...]
    elapsed_s: float


def up(
    path: Path,
    *,
    ports: Mapping[str, int] | None = None,
    wait_s: float = 300.0,
    on_progress: Progress = lambda services: None,
) -> Status:
    """Start the services of a home and return when all of them are ready.

    Args:
        path: The home; created if need be.
        ports: Ports to use instead of the usual ones, by service: airflow, mlflow, store, ray; 0 means any free one.
        wait_s: How long to wait until all are ready, in seconds.
        on_progress: Called with the state of all services whenever one of them changes.
    """
    began_s = time.monotonic()
    home = open_home(path)
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(home):
        was_up = _supervisor(home) is not None
        if was_up:
            _refuse_other_ports(home, ports or {})
        else:
            _launch(home, ports or {})
    try:
        services = _wait(home, wait_s, on_progress)
    except BaseException:
        if not was_up:
            down(path)
        raise
    return Status(home=home.path, was_up=was_up, services=services, elapsed_s=round(time.monotonic() - began_s, 1))


def down(path: Path) -> int:
    """Stop every process of the home and return how many there were; it is no error if there were none."""
    home = open_home(path)
    if not home.path.exists():
        return 0
    with _locked(home):
        num_stopped = _stop_everything(home)
        home.state_file.unlink(missing_ok=True)
    return num_stopped


def status(path: Path) -> list[ServiceStatus]:
    """Ask every service whether it is well now; an empty list if none was started."""
    home = open_home(path)
    state = read_state(home)
    if state is None:
        return []
    services = {service.name: service for service in define(home)}
    with ThreadPoolExecutor(max_workers=len(services)) as pool:
        asked = list(pool.map(lambda known: _check(services[known.name], known), state.services))
    if processes.find(state.supervisor) is None:
        lost = "its supervisor is gone, nothing would start it again; run `trackside up`"
        return [replace(service, message=lost) for service in asked]
    return asked


def _launch(home: Home, overrides: Mapping[str, int]) -> None:
    _stop_everything(home)  # what a killed supervisor, or a crash in here, left behind
    previous = home.ports() if home.ports_file.exists() else {}
    ports = choose_ports(overrides, os.environ, previous)
    shutil.rmtree(home.sockets, ignore_errors=True)  # and sessions of earlier runs of Ray
    home.prepare()
    write_json(home.ports_file, ports)
    configure(home)
    for log in (home.path / "logs").glob("*.log"):
        if log.stat().st_size > LARGEST_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
    home.state_file.unlink(missing_ok=True)
    # Not a `Popen`: the supervisor outlives the caller, which has no use for a handle that warns about just that.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "pipelines.services.supervisor", str(home.path)],
        {**inherited(), "PYTHONPATH": str(REPOSITORY), INSTANCE_VARIABLE: home.instance},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(home.log("supervisor")), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _wait(home: Home, wait_s: float, on_progress: Progress) -> tuple[ServiceStatus, ...]:
    deadline_s = time.monotonic() + wait_s
    seen: tuple[ServiceStatus, ...] = ()
    has_bucket = False
    while True:
        services = _alive_state(home, deadline_s).services
        if services != seen:
            on_progress(services)
            seen = services
        if failed := next((one for one in services if one.state == "failed"), None):
            raise ServiceError(_explain(home, failed, failed.message))
        if not has_bucket and any(one.name == "store" and one.state == "ready" for one in services):
            _create_bucket(home)
            has_bucket = True
        if all(one.state in ("ready", "done") for one in services):
            return services
        if time.monotonic() > deadline_s:
            late = next(one for one in services if one.state not in ("ready", "done"))
            raise ServiceError(_explain(home, late, f"is not ready after {wait_s:.0f} s"))
        time.sleep(0.1)


def _alive_state(home: Home, deadline_s: float) -> State:
    """Return the supervisor's state, waiting for its first line; fail if it ended."""
    grace_s = min(deadline_s, time.monotonic() + 30.0)
    while (state := read_state(home)) is None:
        if time.monotonic() > grace_s:
            break
        time.sleep(0.05)
    if state is None or processes.find(state.supervisor) is None:
        log = home.log("supervisor")
        raise ServiceError(
            f"the supervisor of the services ended, or was stopped; its log, {log}, ends with\n{_tail(log)}"
        )
    return state


def _create_bucket(home: Home) -> None:
    import boto3  # takes longer to import than all the rest of this module
    from botocore.config import Config
    from botocore.exceptions import ClientError

    secrets = home.secrets()
    client = boto3.client(
        "s3",
        endpoint_url=url("store", home.ports()),
        region_name="us-east-1",
        aws_access_key_id=secrets["store_access_key"],
        aws_secret_access_key=secrets["store_secret_key"],
        config=Config(proxies={}, retries={"max_attempts": 10, "mode": "standard"}),
    )
    try:
        client.create_bucket(Bucket=BUCKET)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
            raise ServiceError(f"the store refuses to create the bucket {BUCKET!r}: {error}") from error
    finally:
        client.close()


def _check(service: Service, known: ServiceStatus) -> ServiceStatus:
    if known.state != "ready":
        return known
    if known.pid is None or known.started_s is None or processes.find(_process(known)) is None:
        return replace(known, state="stopped")
    return known if service.is_ready(known.started_s) else replace(known, state="unhealthy")


def _process(service: ServiceStatus) -> ProcessId:
    assert service.pid is not None
    assert service.started_s is not None
    return ProcessId(pid=service.pid, started_s=service.started_s)


def _supervisor(home: Home) -> ProcessId | None:
    state = read_state(home)
    return state.supervisor if state and processes.find(state.supervisor) else None


def _stop_everything(home: Home) -> int:
    state = read_state(home)
    recorded: list[ProcessId] = []
    if state:
        recorded = [_process(service) for service in state.services if service.pid and service.started_s]
        # The supervisor goes first, and at once, or it would start again what the next line stops.
        if processes.kill(state.supervisor):
            return 1 + processes.stop(home.instance, recorded)
    return processes.stop(home.instance, recorded)


def _refuse_other_ports(home: Home, overrides: Mapping[str, int]) -> None:
    current = home.ports()
    for name, port in overrides.items():
        if name not in current:
            raise ServiceError(f"no service has a port named {name!r}; expected one of {', '.join(PUBLIC_PORTS)}")
        if port and current.get(name) != port:
            raise ServiceError(
                f"the services of {home.path} are up with {name} on port {current.get(name)}, not {port}; "
                "run `trackside down` first"
            )


def _explain(home: Home, service: ServiceStatus, what: str) -> str:
    log = home.log(service.name)
    return f"{service.name} {what}; its log, {log}, ends with\n{_tail(log)}"


def _tail(log: Path, num_lines: int = 15) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()[-num_lines:]
    except FileNotFoundError:
        return "  (nothing)"
    return "\n".join(f"  {line[:300]}" for line in lines) or "  (nothing)"


@contextmanager
def _locked(home: Home) -> Iterator[None]:
    with home.lock_file.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
