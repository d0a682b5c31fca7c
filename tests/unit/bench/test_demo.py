import sys

import pytest

from pipelines import services
from pipelines.bench import demo
from pipelines.errors import ServiceError
from pipelines.services.processes import INSTANCE_VARIABLE

MIB = 2**20

HOLD = f"""
import os, subprocess, sys, time

memory = bytearray(b"x") * (int(sys.argv[1]) * 2**20)
if len(sys.argv) > 2:
    os.environ["{INSTANCE_VARIABLE}"] = sys.argv[2]
    child = "import time; memory = bytearray(b'x') * (60 * 2**20); time.sleep(3)"
    subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
time.sleep(1.5)
"""


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(demo, "SAMPLE_EVERY_S", 0.1)


def test_memory_and_time_of_a_command_are_seen(tmp_path):
    seen = demo.watch([sys.executable, "-c", HOLD, "50"], tmp_path)

    assert 1.5 <= seen.wall_s < 10
    assert 50 * MIB < seen.peak_gib * 2**30 < 110 * MIB


def test_processes_of_the_instance_count_although_they_left_the_command(tmp_path):
    instance = services.open_home(tmp_path).instance

    seen = demo.watch([sys.executable, "-c", HOLD, "20", instance], tmp_path)

    assert 80 * MIB < seen.peak_gib * 2**30 < 160 * MIB


def test_a_command_that_fails_is_reported_with_what_it_said(tmp_path):
    with pytest.raises(ServiceError, match=r"ended with 3 after 0 s; it said\nno room"):
        demo.watch([sys.executable, "-c", "print('no room'); raise SystemExit(3)"], tmp_path)
