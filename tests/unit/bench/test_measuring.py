import time

import pytest

from pipelines.bench import measuring
from pipelines.bench.measuring import Cost

PROBE = """
import json, os, sys
print("noise of a library")
print(json.dumps([sys.argv[1:], os.environ["TRACKSIDE_LAKE"]]))
"""


def test_a_new_interpreter_gets_arguments_and_variables_and_returns_its_last_line():
    assert measuring.run_python(PROBE, "a", "b c", variables={"TRACKSIDE_LAKE": "/x"}) == [["a", "b c"], "/x"]


def test_waiting_costs_wall_time_but_no_processor_time():
    result, cost = measuring.timed(lambda seconds: time.sleep(seconds) or "slept", 0.2)

    assert result == "slept"
    assert cost.wall_s >= 0.2
    assert cost.cpu_s < 0.1


def test_the_rate_of_two_pieces_of_work_is_that_of_their_sum():
    cost = Cost(cpu_s=0.5, wall_s=1.0) + Cost(cpu_s=1.5, wall_s=3.0)

    assert cost.rates(1000) == {"rows_per_s": 500, "rows_per_wall_s": 250}


def test_the_median_is_taken_of_each_time_by_itself():
    costs = [Cost(1.0, 9.0), Cost(2.0, 3.0), Cost(9.0, 4.0)]

    assert measuring.median(costs) == pytest.approx(Cost(2.0, 4.0))


def test_memory_that_is_given_back_counts_while_it_was_held():
    held_bytes = measuring.peak_bytes(lambda: len(b"x" * 300_000_000))

    assert held_bytes == pytest.approx(300_000_000, rel=0.1)


def test_laps_add_up_stages_that_come_back():
    laps = measuring.Laps()

    for stage, seconds in (("read", 0.02), ("write", 0.05), ("read", 0.02)):
        laps.begin(stage, "a file")
        time.sleep(seconds)
    costs = laps.end()

    assert list(costs) == ["read", "write"]
    assert costs["read"].wall_s >= 0.04
    assert costs["write"].wall_s >= 0.05
