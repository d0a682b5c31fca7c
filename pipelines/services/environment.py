"""The variables that a client, a task or a service of an instance gets, and who may log in where."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pipelines.services.home import Home, open_home
from pipelines.services.ports import HOST
from pipelines.services.processes import INSTANCE_VARIABLE

REPOSITORY = Path(__file__).parents[2]

BUCKET = "trackside"

AIRFLOW_USERS = ("admin", "op", "viewer")
"""One account a role; the role has the name of the account."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """Who may log in where."""

    service: str
    url: str
    username: str
    password: str


def environment(path: Path) -> dict[str, str]:
    """Return the variables with which a client or a task reaches the services of the home."""
    home = open_home(path)
    secrets, ports = home.secrets(), home.ports()
    return {
        "TRACKSIDE_HOME": str(home.path),
        **quiet(),
        **_paths(),
        **_store(secrets, ports),
        **_mlflow(secrets, ports),
        **_ray(secrets, ports),
        **_airflow(home, secrets, ports),
        "TRACKSIDE_AIRFLOW_URL": url("airflow", ports),
        "TRACKSIDE_AIRFLOW_USERNAME": "admin",
        "TRACKSIDE_AIRFLOW_PASSWORD": secrets["airflow_admin_password"],
    }


def marked_environment(path: Path) -> dict[str, str]:
    """Return `environment` for a process that belongs to the instance: `down` stops it.

    A shell or an editor that merely uses the services must not carry the marker, or `down` would end it.
    """
    return {**environment(path), INSTANCE_VARIABLE: open_home(path).instance}


def credentials(path: Path) -> list[Login]:
    """Return the accounts of both user interfaces, Airflow's administrator first."""
    home = open_home(path)
    secrets, ports = home.secrets(), home.ports()
    return [
        *(
            Login(
                service="airflow",
                url=url("airflow", ports),
                username=user,
                password=secrets[f"airflow_{user}_password"],
            )
            for user in AIRFLOW_USERS
        ),
        Login(service="mlflow", url=url("mlflow", ports), username="admin", password=secrets["mlflow_password"]),
    ]


def url(service: str, ports: dict[str, int]) -> str:
    """Return the address of a service that a user sees."""
    return f"http://{HOST}:{ports[service]}"


def task_environment(home: Home) -> dict[str, str]:
    """Return what the processes that run tasks and trainings get: all of `environment`."""
    return {**inherited(), **environment(home.path)}


def trainer_environment(home: Home) -> dict[str, str]:
    """Return what Ray and its jobs get: the store and MLflow, but none of Airflow's keys."""
    secrets, ports = home.secrets(), home.ports()
    return {
        **inherited(),
        "TRACKSIDE_HOME": str(home.path),
        **quiet(),
        **_paths(),
        **_store(secrets, ports),
        **_mlflow(secrets, ports),
        **_ray(secrets, ports),
    }


def store_environment(home: Home) -> dict[str, str]:
    """Return what the object store and MLflow's artifact proxy get."""
    return {**inherited(), **quiet(), **_paths(), **_store(home.secrets(), home.ports())}


def use(path: Path) -> None:
    """Let this process reach the services of the home, and nothing else that the caller's variables may point at."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "MLFLOW_"))]:
        del os.environ[name]
    os.environ.update(environment(path))


def inherited() -> dict[str, str]:
    """Return the caller's environment without what would send a service elsewhere, an AWS profile for example."""
    # Without bytecode files, which PYTHONDONTWRITEBYTECODE asks for, every start takes three times as long.
    foreign = ("AWS_", "AIRFLOW_", "MLFLOW_", "RAY_", "WEED_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    loopback = f"{HOST},localhost"
    return {
        **kept,
        # Ray jobs and Airflow tasks start `python` and `ray` by name.
        "PATH": os.pathsep.join([str(executables()), os.environ.get("PATH", os.defpath)]),
        "NO_PROXY": ",".join(filter(None, (kept.get("NO_PROXY"), loopback))),
        "no_proxy": ",".join(filter(None, (kept.get("no_proxy"), loopback))),
        "PYTHONUNBUFFERED": "1",
        # Airflow and Ray rename their processes; by default that wipes the environment that holds our marker.
        "SPT_NOENV": "1",
    }


def executables() -> Path:
    """Return the folder of the environment's commands."""
    return Path(sys.executable).parent


def quiet() -> dict[str, str]:
    """Return what keeps every part from reporting its use to its makers."""
    return {
        "DO_NOT_TRACK": "1",
        "GX_ANALYTICS_ENABLED": "False",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "plugins")])}


def _store(secrets: dict[str, str], ports: dict[str, int]) -> dict[str, str]:
    return {
        "TRACKSIDE_LAKE": f"s3://{BUCKET}",
        "AWS_ENDPOINT_URL": url("store", ports),
        "AWS_ENDPOINT_URL_S3": url("store", ports),
        "AWS_ACCESS_KEY_ID": secrets["store_access_key"],
        "AWS_SECRET_ACCESS_KEY": secrets["store_secret_key"],
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def _mlflow(secrets: dict[str, str], ports: dict[str, int]) -> dict[str, str]:
    return {
        "MLFLOW_TRACKING_URI": url("mlflow", ports),
        "MLFLOW_TRACKING_USERNAME": "admin",
        "MLFLOW_TRACKING_PASSWORD": secrets["mlflow_password"],
        # A pickle runs code when it is read; models are stored as exported programs instead.
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    }


def _ray(secrets: dict[str, str], ports: dict[str, int]) -> dict[str, str]:
    return {
        "TRACKSIDE_RAY_URL": url("ray", ports),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets["ray_token"],
    }


def _airflow(home: Home, secrets: dict[str, str], ports: dict[str, int]) -> dict[str, str]:
    base_url = url("airflow", ports)
    return {
        "AIRFLOW_HOME": str(home.airflow),
        "AIRFLOW_CONFIG": str(REPOSITORY / "airflow.cfg"),
        "AIRFLOW__API__BASE_URL": base_url,
        "AIRFLOW__API__PORT": str(ports["airflow"]),
        "AIRFLOW__API__SECRET_KEY": secrets["airflow_api_secret_key"],
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets["airflow_jwt_secret"],
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{base_url}/execution/",
        "AIRFLOW__CORE__FERNET_KEY": secrets["airflow_fernet_key"],
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.airflow / "passwords.json"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home.airflow / 'airflow.db'}",
        # `off`: DAGs run when they are triggered, and not by the clock.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": str(os.environ.get("TRACKSIDE_SCHEDULE", "on") != "off"),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home.airflow / "logs"),
        "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(home.airflow / "logs" / "dag_processor"),
    }
