"""What it costs Airflow to read our DAG files, beside the smallest DAG file there can be.

Airflow reads every DAG file again and again, each time in a fork of a process that has loaded Airflow and nothing of
ours. The probe does the same, in a process of its own because this package never imports Airflow. It counts processor
time, of which a busy machine does not ask for more.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

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


def run(*, repeats: int = 5) -> dict[str, dict[str, float]]:
    """Return for each DAG file the milliseconds that reading it costs beyond loading Airflow, and how many times the
    smallest file that is; the best of `repeats` readings.
    """
    files = sorted((ROOT / "dags").glob("*.py"))
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        smallest = Path(folder) / "smallest.py"
        smallest.write_text(SMALLEST)
        command = [sys.executable, "-c", _PROBE, str(smallest), str(repeats), *map(str, files)]
        done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True, check=True)
    cost_ms = json.loads(done.stdout.splitlines()[-1])
    base_ms = cost_ms[str(smallest)]
    return {
        path.stem: {"cpu_ms": round(cost_ms[str(path)], 1), "times_smallest": round(cost_ms[str(path)] / base_ms, 1)}
        for path in files
    }


def _environment(home: str) -> dict[str, str]:
    """The variables of this process, with our folders on the path and an Airflow home that nobody else uses."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "plugins")])
    return {**os.environ, "PYTHONPATH": path, "AIRFLOW_HOME": home}
