import hashlib
import json

import polars as pl
import pytest

from pipelines.simulate import simulate_fleet, simulate_trip, write_bundle
from pipelines.simulate.trip import START_DATE

SMALL = {"trip_minutes": 4.0, "aba_rate_hz": 100.0}
SECTION_7_ENCODINGS = {
    "epoch_ms": ["ts"],
    "epoch_us": ["ts"],
    "epoch_ns": ["ts"],
    "epoch_s": ["ts"],
    "local_text": ["ts"],
    "ticks_us_u32": ["ticks"],
    "gps_tow": ["gps_week", "tow_ms"],
}


def read(path):
    return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)


def digests(folder, only="*"):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob(f"*/{only}/**/*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    out = tmp_path_factory.mktemp("fleet")
    return out, simulate_fleet(out, seed=3, vehicles=4, days=4, **SMALL)


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        simulate_fleet(tmp_path / name, seed=5, vehicles=1, days=2, **SMALL)

    assert digests(tmp_path / "one") == digests(tmp_path / "two") != {}
    assert (tmp_path / "one/truth/events.csv").read_bytes() == (tmp_path / "two/truth/events.csv").read_bytes()


def test_another_seed_gives_another_fleet(tmp_path):
    for seed in (5, 6):
        simulate_fleet(tmp_path / str(seed), seed=seed, vehicles=1, days=1, **SMALL)

    one, two = digests(tmp_path / "5"), digests(tmp_path / "6")
    same = {path.rsplit("/", 1)[1] for path in one if one[path] == two.get(path)}
    assert same == {"route.csv", "balises.csv"}


def test_more_vehicles_and_days_change_nothing_of_the_others(tmp_path):
    simulate_fleet(tmp_path / "few", seed=5, vehicles=1, days=2, healthy_days=1, **SMALL)
    simulate_fleet(tmp_path / "many", seed=5, vehicles=2, days=3, healthy_days=1, **SMALL)

    few, many = digests(tmp_path / "few"), digests(tmp_path / "many")
    assert few.items() < many.items()


def test_a_bundle_holds_what_its_manifest_lists_and_nothing_half_written(fleet):
    out, summary = fleet
    assert len(summary.bundles) == 16
    for bundle in summary.bundles:
        meta = json.loads((bundle / "meta.json").read_text())

        listed = {sensor["file"] for sensor in meta["sensors"].values()}

        assert {path.name for path in bundle.iterdir()} == listed | {
            "meta.json",
            "ntp_log.csv",
            "route.csv",
            "balises.csv",
        }
        assert bundle.relative_to(out / "bundles").parts == (meta["vehicle"], bundle.parent.name, meta["trip_id"])


def test_the_manifest_is_the_last_file_to_appear(tmp_path, monkeypatch):
    trip = simulate_trip(seed=1, **SMALL)
    moved = []
    rename = type(tmp_path).replace
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda self, target: (moved.append(target.name), rename(self, target))[1]
    )

    write_bundle(trip, tmp_path)

    assert moved[-1] == "meta.json"
    assert sorted(moved) == sorted(path.name for path in tmp_path.iterdir())


def test_every_manifest_says_that_it_is_simulated(fleet):
    out, summary = fleet
    manifests = [json.loads((bundle / "meta.json").read_text()) for bundle in summary.bundles]
    truths = [json.loads(path.read_text()) for path in out.glob("truth/*/*/*/truth.json")]

    assert len(truths) == len(manifests) == 16
    assert all(content["simulated"] is True for content in manifests + truths)


def test_manifest_and_columns_follow_the_bundle_format(fleet):
    _, summary = fleet
    encodings, suffixes = set(), set()
    for bundle in summary.bundles[::5]:
        meta = json.loads((bundle / "meta.json").read_text())
        assert meta.keys() == {
            "trip_id",
            "vehicle",
            "simulated",
            "sensors",
            "clocks",
            "time_zone",
            "wheel_nominal_diameter_m",
            "pulses_per_rev",
            "counter_bits",
            "gps_minus_utc_s",
            "time_zero_hint_utc",
        }
        for sensor in meta["sensors"].values():
            assert sensor.keys() == {"file", "clock_id", "encoding", "nominal_rate_hz", "latency_ms", "channels"}
            columns = SECTION_7_ENCODINGS[sensor["encoding"]] + list(sensor["channels"])
            assert read(bundle / sensor["file"]).columns == columns
            assert sensor["clock_id"] in meta["clocks"]
            encodings.add(sensor["encoding"])
            suffixes.add(sensor["file"].rsplit(".")[-1])
    assert encodings == SECTION_7_ENCODINGS.keys()
    assert suffixes == {"csv", "parquet"}


def test_truth_has_one_row_for_each_row_of_the_file(fleet):
    out, summary = fleet
    for bundle in summary.bundles[::5]:
        truth = out / "truth" / bundle.relative_to(out / "bundles")
        for name, sensor in json.loads((bundle / "meta.json").read_text())["sensors"].items():
            of_rows = pl.read_parquet(truth / f"{name}.parquet")

            assert of_rows.columns == ["row", "t_utc_ns", "line_m", "value_ok", "reason"]
            assert of_rows["row"].to_list() == list(range(read(bundle / sensor["file"]).height))


def test_stamps_in_decimal_seconds_have_three_decimals(fleet):
    _, summary = fleet
    lines = (summary.bundles[0] / "tmp.csv").read_text().splitlines()[1:]

    assert lines
    assert all(len(line.split(",")[0].split(".")[1]) == 3 for line in lines)


def test_nothing_breaks_in_the_first_half_and_enough_breaks_in_the_second(fleet):
    _, summary = fleet
    kinds = [event.kind for event in summary.events]

    assert kinds.count("hot_bearing") >= 2
    assert kinds.count("compressor_leak") >= 1
    assert min((event.start_utc.date() - START_DATE).days for event in summary.events) == 2
    assert all(event.start_utc < event.end_utc for event in summary.events)


@pytest.mark.parametrize("seed", range(3))
def test_even_the_smallest_fleet_of_two_days_has_an_event(tmp_path, seed):
    summary = simulate_fleet(tmp_path, seed=seed, vehicles=1, days=2, **SMALL)

    events = pl.read_csv(tmp_path / "truth/events.csv")
    assert events.columns == ["vehicle", "kind", "start_utc", "end_utc", "trip_id"]
    assert events.height == len(summary.events) >= 1


def test_writing_twice_replaces_and_leaves_no_temporary_file(tmp_path):
    for _ in range(2):
        simulate_fleet(tmp_path, seed=5, vehicles=1, days=1, **SMALL)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if path.name.startswith(".")]


def test_a_fleet_without_days_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected 1 or more"):
        simulate_fleet(tmp_path, seed=1, vehicles=1, days=0)
