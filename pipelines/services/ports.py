"""Which port is whose. A user sees four of them; the others only have to be free."""

import random
import socket
from collections.abc import Mapping

import psutil

from pipelines.errors import ServiceError

HOST = "127.0.0.1"

PUBLIC_PORTS = {"airflow": 8080, "mlflow": 5000, "store": 8333, "ray": 8265}
"""The ports a user opens or configures, and their defaults."""

INTERNAL_PORTS = (
    "store-master",
    "store-master-grpc",
    "store-volume",
    "store-volume-grpc",
    "store-filer",
    "store-filer-grpc",
    "store-s3-grpc",
    "store-admin",
    "ray-gcs",
    "ray-objects",
    "ray-nodes",
    "ray-client",
    "ray-agent",
    "ray-agent-grpc",
    "ray-runtime-env",
    "ray-metrics",
    "ray-dashboard-metrics",
)

STORE_ADMIN_GRPC_OFFSET = 10_000
"""Where the store's own workers look for its administration, above `store-admin`; its option for that is not heeded."""

# Below the range from which Linux takes the ports of outgoing connections, so that none of those can come between.
_FREE_RANGE = range(20_000, 32_000)


def choose_ports(
    overrides: Mapping[str, int], environ: Mapping[str, str], previous: Mapping[str, int]
) -> dict[str, int]:
    """Decide the port of every service before anything starts.

    Args:
        overrides: Ports the caller insists on; 0 means any free one.
        environ: Where `TRACKSIDE_PORT_<NAME>` is looked up.
        previous: Ports of the last run; internal ones stay the same as long as they are free.
    """
    wanted = {name: _wanted(name, overrides, environ) for name in PUBLIC_PORTS}
    if unknown := sorted(overrides.keys() - wanted):
        raise ServiceError(f"no service has a port named {unknown[0]!r}; expected one of {', '.join(wanted)}")
    ports: dict[str, int] = {}
    for name, port in wanted.items():
        if port in ports.values():
            raise ServiceError(f"port {port} was asked for twice, the second time for {name}")
        if port and not is_free(port):
            raise ServiceError(_taken(name, port))
        ports[name] = port or _free_port(ports)
    for name in INTERNAL_PORTS:
        port = previous.get(name, 0)
        ports[name] = port if port and _is_usable(name, port, ports) else _free_port(ports, name)
    return ports


def is_free(port: int) -> bool:
    """Say whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As servers do: a connection of the last run that is still closing does not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _wanted(name: str, overrides: Mapping[str, int], environ: Mapping[str, str]) -> int:
    variable = f"TRACKSIDE_PORT_{name.upper()}"
    value = overrides.get(name, environ.get(variable, PUBLIC_PORTS[name]))
    try:
        port = int(value)
    except ValueError:
        port = -1
    if not 0 <= port < 65_536:
        raise ServiceError(f"{variable} is {value!r}, but a port is a number from 0 (any free one) to 65535")
    return port


def _free_port(taken: Mapping[str, int], name: str = "") -> int:
    for port in random.sample(_FREE_RANGE, k=1000):
        if _is_usable(name, port, taken):
            return port
    raise ServiceError(f"no free port between {_FREE_RANGE.start} and {_FREE_RANGE.stop}")


def _is_usable(name: str, port: int, taken: Mapping[str, int]) -> bool:
    needed = {port, port + STORE_ADMIN_GRPC_OFFSET} if name == "store-admin" else {port}
    return needed.isdisjoint(taken.values()) and all(is_free(one) for one in needed)


def _taken(name: str, port: int) -> str:
    return (
        f"{name} cannot start: port {port} is in use by {_listener(port)}. Stop that, or choose another port with "
        f"`--port {name}={port + 10}` or TRACKSIDE_PORT_{name.upper()}={port + 10} (0 takes any free one)"
    )


def _listener(port: int) -> str:
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                return f"process {process.pid} ({' '.join(process.cmdline())[:80] or process.name()})"
    except psutil.Error:
        pass
    return "another program (perhaps services of another home, or of another user)"
