"""The services themselves: how each is started, what it needs first, and how to see that it is ready."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from pipelines.services.environment import (
    AIRFLOW_USERS,
    BUCKET,
    executables,
    store_environment,
    task_environment,
    trainer_environment,
    url,
)
from pipelines.services.health import airflow_component_is_alive, answers
from pipelines.services.home import Home, write_json
from pipelines.services.ports import HOST, STORE_ADMIN_GRPC_OFFSET

RAY_OBJECT_STORE_BYTES = 200_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """One process, or tree of processes, that the supervisor keeps running."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    is_ready: Callable[[float], bool]
    """Asked with the time at which the process started, in seconds since 1970."""
    ask_every_s: float = 0.25
    """Time between two such questions while the service starts, in seconds."""
    needs: tuple[str, ...] = ()
    """Services that must be ready before this one starts."""
    runs_once: bool = False
    """Whether it is ready when it has ended well."""
    restarts_alone: bool = False
    """Whether what a dead process left behind may go on: a task of a dead scheduler finishes its work."""
    url: str = ""


def define(home: Home) -> tuple[Service, ...]:
    """Describe the services of a home, in the order in which they are shown."""
    return (_store(home), _mlflow(home), _ray(home), *_airflow(home))


def configure(home: Home) -> None:
    """Write the two files that services read: Airflow's accounts, and MLflow's settings for accounts."""
    secrets = home.secrets()
    write_json(home.airflow / "passwords.json", {user: secrets[f"airflow_{user}_password"] for user in AIRFLOW_USERS})
    (home.mlflow / "auth.ini").write_text(
        f"""[mlflow]
# An account may look at everything; what else it may do is granted one by one.
default_permission = READ
database_uri = sqlite:///{home.mlflow / "accounts.db"}
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
# Checking a password costs 0.1 s of processor time by design; a training logs metrics far more often.
auth_cache_ttl_seconds = 60
"""
    )


def _store(home: Home) -> Service:
    ports, secrets = home.ports(), home.secrets()
    options = {
        "dir": home.store,
        "ip": HOST,
        "ip.bind": HOST,
        "s3.port": ports["store"],
        "s3.port.grpc": ports["store-s3-grpc"],
        "master.port": ports["store-master"],
        "master.port.grpc": ports["store-master-grpc"],
        "volume.port": ports["store-volume"],
        "volume.port.grpc": ports["store-volume-grpc"],
        "filer.port": ports["store-filer"],
        "filer.port.grpc": ports["store-filer-grpc"],
        "filer.localSocket": home.sockets / "filer.sock",
        "s3.localSocket": home.sockets / "s3.sock",
        "admin.port": ports["store-admin"],
        "admin.port.grpc": ports["store-admin"] + STORE_ADMIN_GRPC_OFFSET,
        "admin.ui": "false",
        "webdav": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",
    }
    # Without these keys, anybody on the machine could read and write files around the S3 gateway.
    signing = {
        "WEED_JWT_SIGNING_KEY": secrets["store_signing_key"],
        "WEED_JWT_SIGNING_READ_KEY": secrets["store_read_signing_key"],
        "WEED_JWT_FILER_SIGNING_KEY": secrets["store_signing_key"],
        "WEED_JWT_FILER_SIGNING_READ_KEY": secrets["store_read_signing_key"],
    }
    address = url("store", ports)
    return Service(
        name="store",
        command=(_executable("weed"), "mini", *(f"-{name}={value}" for name, value in options.items())),
        environment={**store_environment(home), **signing},
        is_ready=lambda _: answers(f"{address}/healthz"),
        url=address,
    )


def _mlflow(home: Home) -> Service:
    ports, secrets = home.ports(), home.secrets()
    address = url("mlflow", ports)
    return Service(
        name="mlflow",
        command=(
            sys.executable,
            "-m",
            "pipelines.services.mlflow_server",
            "server",
            f"--host={HOST}",
            f"--port={ports['mlflow']}",
            "--workers=1",
            "--app-name=basic-auth",
            f"--backend-store-uri=sqlite:///{home.mlflow / 'mlflow.db'}",
            f"--artifacts-destination=s3://{BUCKET}/mlflow",
            f"--allowed-hosts={HOST}:{ports['mlflow']},localhost:{ports['mlflow']}",
            "--uvicorn-opts=--no-access-log",
        ),
        environment={
            **store_environment(home),
            "MLFLOW_AUTH_CONFIG_PATH": str(home.mlflow / "auth.ini"),
            "MLFLOW_AUTH_ADMIN_PASSWORD": secrets["mlflow_password"],
            "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets["mlflow_session_key"],
            # Off: eight more processes and 0.9 GB, for jobs that nothing here submits.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        },
        is_ready=lambda _: answers(f"{address}/health"),
        url=address,
    )


def _ray(home: Home) -> Service:
    ports = home.ports()
    address = url("ray", ports)
    agent = f"http://{HOST}:{ports['ray-agent']}"
    token = {"Authorization": f"Bearer {home.secrets()['ray_token']}"}
    options = {
        "node-ip-address": HOST,
        "port": ports["ray-gcs"],
        "object-manager-port": ports["ray-objects"],
        "node-manager-port": ports["ray-nodes"],
        "ray-client-server-port": ports["ray-client"],
        "dashboard-host": HOST,
        "dashboard-port": ports["ray"],
        "dashboard-agent-listen-port": ports["ray-agent"],
        "dashboard-agent-grpc-port": ports["ray-agent-grpc"],
        "runtime-env-agent-port": ports["ray-runtime-env"],
        "metrics-export-port": ports["ray-metrics"],
        # Workers take free ports. By default they claim 10002-19999, and no other port of Ray may lie in there.
        "min-worker-port": 0,
        "max-worker-port": 0,
        "include-dashboard": "true",
        "num-cpus": max(2, os.cpu_count() or 1),
        "object-store-memory": RAY_OBJECT_STORE_BYTES,
        "temp-dir": home.sockets / "ray",
    }
    return Service(
        name="ray",
        command=(
            sys.executable,
            "-m",
            "pipelines.services.ray_head",
            "start",
            "--head",
            "--block",
            "--disable-usage-stats",
            "--no-monitor",  # it would start and stop nodes, and there is one
            *(f"--{name}={value}" for name, value in options.items()),
        ),
        environment={
            **trainer_environment(home),
            # Ray replaces 127.0.0.1 by an address that other machines reach, unless told that there are no others.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "DASHBOARD_METRIC_PORT": str(ports["ray-dashboard-metrics"]),
        },
        is_ready=lambda _: (
            answers(f"{address}/api/version", headers=token) and answers(f"{agent}/api/local_raylet_healthz")
        ),
        url=address,
    )


def _airflow(home: Home) -> tuple[Service, ...]:
    address = url("airflow", home.ports())
    environment = task_environment(home)
    database = Service(
        name="airflow-database",
        command=(sys.executable, "-m", "pipelines.services.airflow_database"),
        environment=environment,
        is_ready=lambda _: True,
        runs_once=True,
    )
    server = Service(
        name="airflow-api",
        command=(_executable("airflow"), "api-server"),
        environment=environment,
        is_ready=lambda _: answers(f"{address}/api/v2/version") and _execution_api_is_warm(address),
        needs=(database.name,),
        url=address,
    )
    return (
        database,
        server,
        *(
            Service(
                name=f"airflow-{component.replace('_', '-')}",
                command=(_executable("airflow"), component.replace("_", "-"), *options),
                environment=environment,
                is_ready=_heartbeat(address, component),
                ask_every_s=1.0,  # the API server answers, and is itself starting
                needs=(database.name,),
                restarts_alone=True,
            )
            for component, options in (
                # Their log servers would listen on all interfaces; the API server reads the files instead.
                ("scheduler", ("--skip-serve-logs",)),
                ("dag_processor", ()),
                ("triggerer", ("--skip-serve-logs",)),
            )
        ),
    )


def _heartbeat(address: str, component: str) -> Callable[[float], bool]:
    return lambda started_s: airflow_component_is_alive(address, component, since_s=started_s)


def _execution_api_is_warm(address: str) -> bool:
    """Send the first request to the API that tasks use; it builds itself meanwhile, for longer than a task waits."""
    nobody = "00000000-0000-0000-0000-000000000000"
    return answers(f"{address}/execution/task-instances/{nobody}/run", codes=(401, 403), method="PATCH", timeout_s=60.0)


def _executable(name: str) -> str:
    return str(executables() / name)
