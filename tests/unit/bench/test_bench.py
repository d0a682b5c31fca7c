import json
from pathlib import Path

import pytest

from pipelines import bench
from pipelines.bench import align, asof, dag_parse, ingest, loop, result, simulate
from pipelines.errors import ConfigError


@pytest.fixture(scope="module")
def results():
    return {
        "dag_parse": dag_parse.run(repeats=2),
        "ingest": ingest.run(trip_minutes=5.0, rounds=1),  # the clocks of a much shorter trip fail their suite
        "simulate": simulate.run(vehicles=1, trip_minutes=1.0, rounds=1),
        "asof": asof.run(num_left=20_000, rounds=1),
        "align": align.run(hours=0.1),
        "loop": loop.run(num_examples=64, batch=32, rounds=1),
    }


def test_every_module_that_can_be_run_has_its_name_in_the_table():
    modules = {path.stem for path in Path(bench.__file__).parent.glob("*.py") if "\ndef run(" in path.read_text()}

    assert set(bench.NAMES) == modules - {"__init__"} != set()


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no benchmark 'speed': expected one of dag_parse, .*demo, or all"):
        bench.run("speed")


@pytest.mark.parametrize("name", ["dag_parse", "ingest", "simulate", "asof", "align", "loop"])
def test_a_benchmark_returns_ours_and_the_peers_figures_in_the_one_shape(results, name):
    found = results[name]

    assert found.keys() == result.Result.__annotations__.keys()
    assert set() != found["peer"].keys() <= found["measured"].keys()
    assert all(found["measured"][figure] > 0 and found["peer"][figure] > 0 for figure in found["peer"])
    limited = {figure for limits in found["target"].values() for figure in limits}
    assert set() != limited <= found["measured"].keys() | {"ratio"}
    assert json.loads(json.dumps(found)) == found


def test_all_runs_every_benchmark_once_and_in_order(monkeypatch):
    ran = []

    class Fake:
        def __init__(self, name):
            self.name = name

        def run(self):
            ran.append(self.name)
            return result.judge({"n": 1}, {}, ratio=None, at_least={"n": 1})

    monkeypatch.setattr(bench, "import_module", Fake)

    found = bench.run("all")

    assert ran == [f"pipelines.bench.{name}" for name in bench.NAMES]
    assert list(found) == list(bench.NAMES)


def test_a_figure_on_its_limit_passes_and_one_beyond_it_does_not():
    limits = {"at_least": {"rows_per_s": 10}, "at_most": {"peak_gib": 6, "ratio": 2}}

    assert result.judge({"rows_per_s": 10, "peak_gib": 6}, {}, ratio=2, **limits)["passed"]
    assert not result.judge({"rows_per_s": 9, "peak_gib": 6}, {}, ratio=2, **limits)["passed"]
    assert not result.judge({"rows_per_s": 10, "peak_gib": 7}, {}, ratio=2, **limits)["passed"]
    assert not result.judge({"rows_per_s": 10, "peak_gib": 6}, {}, ratio=3, **limits)["passed"]


def test_the_stages_of_ingestion_add_up_to_the_rate_of_the_whole(results):
    measured = results["ingest"]["measured"]

    summed_s = sum(measured["stages"][stage]["cpu_ms"] for stage in ("stage", "validate", "publish")) / 1000
    assert measured["rows"] / summed_s == pytest.approx(measured["rows_per_s"], rel=0.02)


def test_every_dag_file_is_read(results):
    costs_ms = results["dag_parse"]["measured"]["cpu_ms_of_dag"]

    assert costs_ms.keys() == {path.stem for path in (Path(bench.__file__).parents[2] / "dags").glob("*.py")} != set()
    assert results["dag_parse"]["measured"]["cpu_ms"] == max(costs_ms.values())
