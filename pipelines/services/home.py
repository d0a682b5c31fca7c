"""The home of one instance: where its files are, its secrets, and the state its supervisor recorded."""

import base64
import hashlib
import json
import os
import secrets
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pipelines.errors import ServiceError


@dataclass(frozen=True, slots=True)
class Home:
    """A folder that holds everything one instance keeps; two homes can run side by side."""

    path: Path

    @property
    def instance(self) -> str:
        """Eight hex digits that differ between homes; every process of the instance carries them."""
        return hashlib.sha256(str(self.path).encode()).hexdigest()[:8]

    @property
    def secrets_file(self) -> Path:
        """Passwords and keys, readable by the owner only."""
        return self.path / "secrets.json"

    @property
    def ports_file(self) -> Path:
        """The port of every service, kept between runs."""
        return self.path / "ports.json"

    @property
    def state_file(self) -> Path:
        """What the supervisor last knew; absent when nothing runs."""
        return self.path / "state.json"

    @property
    def lock_file(self) -> Path:
        """Held while an instance is being started or stopped."""
        return self.path / "lock"

    @property
    def airflow(self) -> Path:
        """Airflow's database, task logs and password file."""
        return self.path / "airflow"

    @property
    def mlflow(self) -> Path:
        """MLflow's two databases."""
        return self.path / "mlflow"

    @property
    def store(self) -> Path:
        """The object store's volumes."""
        return self.path / "store"

    @property
    def sockets(self) -> Path:
        """Sockets and Ray's sessions; outside the home, because the name of a socket is at most 107 bytes long."""
        return Path(tempfile.gettempdir()) / f"ts-{self.instance}"

    def log(self, service: str) -> Path:
        """The log of a service."""
        return self.path / "logs" / f"{service}.log"

    def prepare(self) -> None:
        """Create the folders, closed to other users, and the secrets on first use."""
        for folder in (self.path, self.path / "logs", self.airflow, self.mlflow, self.store, self.sockets):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.sockets.stat().st_uid != os.getuid():
            raise ServiceError(f"{self.sockets} belongs to another user; set TMPDIR to a folder of your own")
        if not self.secrets_file.exists():
            write_json(self.secrets_file, new_secrets())

    def secrets(self) -> dict[str, str]:
        """Read the secrets; an instance that was never started has none."""
        return _read_table(self.secrets_file)

    def ports(self) -> dict[str, int]:
        """Read the ports; an instance that was never started has none."""
        return {name: int(port) for name, port in _read_table(self.ports_file).items()}


def default_home() -> Path:
    """Return $TRACKSIDE_HOME, or `.trackside` in the current folder."""
    return Path(os.environ.get("TRACKSIDE_HOME") or ".trackside")


def open_home(path: Path) -> Home:
    """Name the home by its one absolute path, so that every caller computes the same instance."""
    return Home(path.expanduser().resolve())


def new_secrets() -> dict[str, str]:
    """Draw all passwords and keys of an instance."""
    return {
        "store_access_key": secrets.token_hex(10),
        "store_secret_key": secrets.token_urlsafe(30),
        "store_signing_key": secrets.token_urlsafe(32),
        "store_read_signing_key": secrets.token_urlsafe(32),
        "mlflow_password": secrets.token_urlsafe(18),
        "mlflow_session_key": secrets.token_urlsafe(32),
        "airflow_admin_password": secrets.token_urlsafe(18),
        "airflow_op_password": secrets.token_urlsafe(18),
        "airflow_viewer_password": secrets.token_urlsafe(18),
        "airflow_fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "airflow_jwt_secret": base64.b64encode(secrets.token_bytes(64)).decode(),
        "airflow_api_secret_key": secrets.token_urlsafe(32),
        "ray_token": secrets.token_hex(32),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one that got the same number."""

    pid: int
    started_s: float
    """When it started, in seconds since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceStatus:
    """What is known about one service."""

    name: str
    state: str = "waiting"
    """waiting, starting, ready, done (ran once), restarting, failed; `status` adds unhealthy and stopped."""
    pid: int | None = None
    started_s: float | None = None
    """When the process started, in seconds since 1970."""
    ready_after_s: float | None = None
    """How long it took from its start until it answered, in seconds."""
    restarts: int = 0
    message: str = ""
    url: str = ""
    log: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What the supervisor recorded."""

    supervisor: ProcessId
    services: tuple[ServiceStatus, ...] = ()


def write_state(home: Home, state: State) -> None:
    """Replace the recorded state."""
    write_json(home.state_file, asdict(state))


def read_state(home: Home) -> State | None:
    """Return the recorded state, or None if nothing was started."""
    try:
        recorded = json.loads(home.state_file.read_text())
    except FileNotFoundError:
        return None
    known = {field.name for field in fields(ServiceStatus)}
    return State(
        supervisor=ProcessId(**recorded["supervisor"]),
        services=tuple(
            ServiceStatus(**{key: value for key, value in service.items() if key in known})
            for service in recorded["services"]
        ),
    )


def write_json(path: Path, content: object) -> None:
    """Write a file that only its owner may read, under a temporary name first: a reader never sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        json.dump(content, file, indent=1)
    Path(temporary).replace(path)


def _read_table(path: Path) -> dict[str, str]:
    try:
        table: dict[str, str] = json.loads(path.read_text())
    except FileNotFoundError:
        raise ServiceError(f"no services were ever started in {path.parent}; run `trackside up` first") from None
    return table
