"""The main job, twice over: how long it takes and how much memory all its processes have together.

It starts at `trackside demo`, with the environment installed. Nothing else does the same, so it has no peer; its times
are those on the wall, because that is what the user waits for.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from pipelines import services
from pipelines.bench.measuring import ROOT
from pipelines.bench.result import Result, judge
from pipelines.errors import ServiceError
from pipelines.services import processes

MAX_FIRST_S = 360.0
MAX_SECOND_S = 180.0
MAX_PEAK_GIB = 6.0

SAMPLE_EVERY_S = 2.0
"""How often memory is looked at; adding up 4 GiB of pages takes a fifth of a second of processor time."""

_TAIL_LINES = 15


class Watched(NamedTuple):
    """What a command took, the services that it started included."""

    wall_s: float
    peak_gib: float


def run() -> Result:
    """Run the demo in a fresh home on free ports, once more while its services are up, and stop them."""
    home = Path(tempfile.mkdtemp(prefix="trackside-bench-"))
    any_port = [f"--port={name}=0" for name in ("airflow", "mlflow", "store", "ray")]
    command = [sys.executable, "-m", "pipelines.cli", "demo", *any_port]
    try:
        first, second = watch(command, home), watch(command, home)
    finally:
        services.down(home)
        for folder in (home, services.open_home(home).sockets):
            shutil.rmtree(folder, ignore_errors=True)
    return judge(
        {
            "first_s": round(first.wall_s, 1),
            "second_s": round(second.wall_s, 1),
            "peak_gib": round(max(first.peak_gib, second.peak_gib), 2),
            "load_average": round(os.getloadavg()[0], 1),
        },
        {},
        ratio=None,
        at_most={"first_s": MAX_FIRST_S, "second_s": MAX_SECOND_S, "peak_gib": MAX_PEAK_GIB},
    )


def watch(command: list[str], home: Path) -> Watched:
    """Run a command that starts services in `home`; raise what it said if it fails."""
    instance = services.open_home(home).instance
    log = home / "bench.log"
    began_s, peak_bytes = time.monotonic(), 0
    with log.open("w") as output:
        running = psutil.Popen(
            command,
            env={**os.environ, "TRACKSIDE_HOME": str(home)},
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        while running.poll() is None:
            peak_bytes = max(peak_bytes, _memory_bytes({running, *_children(running), *processes.members(instance)}))
            with contextlib.suppress(psutil.TimeoutExpired):
                running.wait(SAMPLE_EVERY_S)
    wall_s = time.monotonic() - began_s
    if running.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        raise ServiceError(f"{' '.join(command)} ended with {running.returncode} after {wall_s:.0f} s; it said\n{tail}")
    return Watched(wall_s=wall_s, peak_gib=peak_bytes / 2**30)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        children: list[psutil.Process] = process.children(recursive=True)
        return children
    return []


def _memory_bytes(found: Iterable[psutil.Process]) -> int:
    """Memory of processes together, each page that several of them share counted once in all."""
    total = 0
    for process in found:
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            total += process.memory_full_info().pss
    return total
