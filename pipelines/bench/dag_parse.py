"""What it costs Airflow to read our DAG files, beside the smallest DAG file there can be.

Airflow reads every DAG file again and again, each time in a fork of a process that has loaded Airflow and nothing of
ours. The probe does the same, in a process of its own because this package never imports Airflow. It counts processor
time, of which a busy machine does not ask for more.
"""

import tempfile
from pathlib import Path

from pipelines.bench.measuring import ROOT, run_python
from pipelines.bench.result import Result, judge

MAX_CPU_MS = 100.0
"""Airflow reads the files all the time, and gives up on one after 30 s; our share of that stays out of sight."""

SMALLEST = """
from airflow.sdk import dag, task

@dag(schedule=None)
def smallest():
    task(nothing)()

def nothing():
    pass

smallest()
"""

_PROBE = """
import json, os, runpy, sys, time

def cost_ms(path):
    reader, writer = os.pipe()
    if os.fork() == 0:
        started = time.process_time()
        runpy.run_path(path)
        os.write(writer, repr(1000 * (time.process_time() - started)).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    return float(os.read(reader, 64))

smallest, repeats, *paths = sys.argv[1:]
runpy.run_path(smallest)  # loads Airflow
print(json.dumps({path: min(cost_ms(path) for _ in range(int(repeats))) for path in (smallest, *paths)}))
"""


def run(*, repeats: int = 5) -> Result:
    """Measure what reading the slowest DAG file costs beyond loading Airflow, the best of `repeats` readings."""
    files = sorted((ROOT / "dags").glob("*.py"))
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        smallest = Path(folder) / "smallest.py"
        smallest.write_text(SMALLEST)
        cost_ms = run_python(_PROBE, str(smallest), str(repeats), *map(str, files), variables={"AIRFLOW_HOME": folder})
    smallest_ms = cost_ms[str(smallest)]
    slowest_ms = max(cost_ms[str(path)] for path in files)
    return judge(
        {
            "cpu_ms": round(slowest_ms, 1),
            "cpu_ms_of_dag": {path.stem: round(cost_ms[str(path)], 1) for path in files},
        },
        {"cpu_ms": round(smallest_ms, 1)},
        ratio=round(slowest_ms / smallest_ms, 2),
        at_most={"cpu_ms": MAX_CPU_MS},
    )
