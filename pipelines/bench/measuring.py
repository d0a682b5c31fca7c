"""Measuring in a process of its own: on one core, in processor time, of which a busy machine does not ask for more."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[2]

_ONE_THREAD = dict.fromkeys(
    ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "TOKIO_WORKER_THREADS"), "1"
)
"""Read when the libraries are imported, therefore not to be set in a process that runs already."""

_ON_ONE_CORE = """
import importlib, json, logging, os, sys

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
logging.basicConfig(level=logging.ERROR)
module, function, arguments = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), function)(**json.loads(arguments))))
"""


class Cost(NamedTuple):
    """What a piece of work took."""

    cpu_s: float
    wall_s: float

    def __add__(self, other: object) -> "Cost":
        """One after the other."""
        assert isinstance(other, Cost)
        return Cost(self.cpu_s + other.cpu_s, self.wall_s + other.wall_s)

    def rates(self, num_rows: int) -> dict[str, Any]:
        """Rows a second of processor and of wall time."""
        return {"rows_per_s": round(num_rows / self.cpu_s), "rows_per_wall_s": round(num_rows / self.wall_s)}


def timed(function: Callable[..., T], *arguments: Any, **named: Any) -> tuple[T, Cost]:
    """Call a function; return its result and what it took, all threads of this process included."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    result = function(*arguments, **named)
    return result, Cost(time.process_time() - cpu_s, time.perf_counter() - wall_s)


class Laps:
    """What the stages of a piece of work take that says when each of them begins."""

    def __init__(self) -> None:
        """Begin with no stage."""
        self.costs: dict[str, Cost] = {}
        self._stage = ""
        self._began = Cost(time.process_time(), time.perf_counter())

    def begin(self, stage: str, thing: str = "") -> None:
        """End the stage before; time of a stage that comes back is added to what it has."""
        now = Cost(time.process_time(), time.perf_counter())
        if self._stage:
            lap = Cost(now.cpu_s - self._began.cpu_s, now.wall_s - self._began.wall_s)
            self.costs[self._stage] = self.costs.get(self._stage, Cost(0.0, 0.0)) + lap
        self._stage, self._began = stage, now

    def end(self) -> dict[str, Cost]:
        """End the last stage; return what each took."""
        self.begin("")
        return self.costs


def peak_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """Call a function; return by how much it raised the memory of this process at its worst, its result included."""
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from what is held now
    before = _status_bytes("VmRSS")
    function(*arguments)
    return _status_bytes("VmHWM") - before


def _status_bytes(field: str) -> int:
    """A size from the kernel's account of this process."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def median(costs: Sequence[Cost]) -> Cost:
    """The medians of both times."""
    return Cost(statistics.median(cost.cpu_s for cost in costs), statistics.median(cost.wall_s for cost in costs))


def on_one_core(module: str, function: str = "measure", *, variables: dict[str, str], **arguments: Any) -> Any:
    """Call `function(**arguments)` of a module in a process with one core and one thread of each library.

    Args:
        module: Full name of the module.
        function: Name of the function.
        variables: Environment variables for it.
        arguments: Keyword arguments, ready for JSON, as the result must be.
    """
    return run_python(_ON_ONE_CORE, module, function, json.dumps(arguments), variables=_ONE_THREAD | variables)


def run_python(code: str, *arguments: str, variables: dict[str, str]) -> Any:
    """Run code in a new interpreter, the repository on its path; return the JSON value in its last line of output."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "plugins")])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
