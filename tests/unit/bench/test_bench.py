import json
from pathlib import Path

import pytest

from pipelines import bench
from pipelines.bench import align, asof, dag_parse, ingest, loop, result, simulate, sync
from pipelines.errors import ConfigError


@pytest.fixture(scope="module")
def results():
    return {
        "dag_parse": dag_parse.run(repeats=2),
        "ingest": ingest.run(trip_minutes=5.0, rounds=1),  # the clocks of a much shorter trip fail their suite
        "simulate": simulate.run(vehicles=1, trip_minutes=1.0, rounds=1),
        "asof": asof.run(num_left=20_000, rounds=1),
        "align": align.run(hours=0.1),
        "sync": sync.run(trip_minutes=4.0, rounds=1, levels=["default"], num_joined=20_000),
        "loop": loop.run(num_examples=64, batch=32, rounds=1),
    }


def test_every_module_that_can_be_run_has_its_name_in_the_table():
    modules = {path.stem for path in Path(bench.__file__).parent.glob("*.py") if "\ndef run(" in path.read_text()}

    assert set(bench.NAMES) == modules - {"__init__"} != set()


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no benchmark 'speed': expected one of dag_parse, .*demo, or all"):
        bench.run("speed")


@pytest.mark.parametrize("name", ["dag_parse", "ingest", "simulate", "align", "loop"])
def test_a_benchmark_returns_ours_and_the_peers_figures_in_the_one_shape(results, name):
    found = results[name]

    assert found.keys() == result.Result.__annotations__.keys()
    assert set() != found["peer"].keys() <= found["measured"].keys()
    assert all(found["measured"][figure] > 0 and found["peer"][figure] > 0 for figure in found["peer"])
    limited = {figure for limits in found["target"].values() for figure in limits}
    assert set() != limited <= found["measured"].keys() | {"ratio"}
    assert json.loads(json.dumps(found)) == found


def test_the_join_is_measured_beside_both_libraries_on_the_same_figures(results):
    found = results["asof"]

    assert found["peer"].keys() == {"pandas", "polars"}
    for peer in found["peer"].values():
        assert peer.keys() <= found["measured"].keys()
        assert peer["rows_per_s"] > 0
    assert json.loads(json.dumps(found)) == found


def test_synchronisation_is_measured_beside_every_peer_on_the_same_figures(results):
    found = results["sync"]
    measured, peers = found["measured"], found["peer"]

    assert found.keys() == result.Result.__annotations__.keys()
    assert peers.keys() == {"pyxdf", "pyxdf_clocks_only", "pandas"}
    for peer in peers.values():
        assert {"median_ms", "p99_ms"} <= peer.keys() <= measured.keys()
        assert peer["p99_ms"].keys() == measured["p99_ms"].keys()
        assert peer["p99_ms"]["aba"] > measured["p99_ms"]["aba"] > 0
    assert {"read", "calibrate", "screen", "align", "locate", "write"} <= measured["stages_cpu_ms"].keys()
    assert measured["rows"] > 200_000
    assert measured["memory_x"] > 0
    assert measured["asof_rows_per_s"] > 0 < peers["pandas"]["asof_rows_per_s"]
    assert measured["bars_missed"] == len(measured["missed"])
    assert json.loads(json.dumps(found)) == found


def test_figures_lie_side_by_side_in_a_table_with_their_limits():
    found = result.judge(
        {"rows_per_s": 90, "p99_ms": {"odo": 0.5}, "missed": ["odo", "dop"]},
        {"pyxdf": {"p99_ms": {"odo": 4.0}}, "pandas": {"rows_per_s": 45}},
        ratio=None,
        at_least={"rows_per_s": 100},
    )

    sides, rows = result.as_table(found)

    assert sides == ["ours", "pyxdf", "pandas"]
    assert rows == [
        ("rows_per_s", ["90", "", "45"], "≥ 100"),
        ("p99_ms.odo", ["0.5", "4.0", ""], ""),
        ("missed", ["odo\ndop", "", ""], ""),
    ]


def test_a_single_peer_and_a_ratio_have_their_place_in_the_table():
    found = result.judge({"cpu_ms": 9}, {"cpu_ms": 3}, ratio=3.0, at_most={"ratio": 2.0})

    assert result.as_table(found) == (["ours", "peer"], [("cpu_ms", ["9", "3"], ""), ("ratio", ["3.0", ""], "≤ 2")])


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
