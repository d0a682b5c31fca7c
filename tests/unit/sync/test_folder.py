import json
import shutil

import numpy as np
import polars as pl
import pytest

from pipelines import storage
from pipelines.clocks.clock_map import ClockMap
from pipelines.errors import ObjectNotFoundError, RecordingError
from pipelines.sync import folder

FILES = {"rows.parquet", "aligned.parquet", "clock_maps.json", "report.html", "report.json"}


@pytest.fixture
def bundle(short_bundle, tmp_path):
    """A copy of a short bundle that may be broken."""
    return shutil.copytree(short_bundle, tmp_path / "bundle")


def names(out):
    return {path.name for path in out.iterdir()}


def test_a_bundle_becomes_files_that_agree(bundle, tmp_path):
    report = folder.sync(str(bundle), str(tmp_path / "out"))

    assert names(tmp_path / "out") == FILES
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    rows = pl.read_parquet(tmp_path / "out" / "rows.parquet")
    for name, sensor in report["sensors"].items():
        of_sensor = rows.filter(sensor=name)
        assert sensor["rows"] == of_sensor.height == sensor["used"] + sum(sensor["rejected"].values())
        assert sensor["used"] == of_sensor["t_utc_ns"].count()
        num_screened = sum(sum(counts.values()) for counts in sensor["screened"].values())
        assert (of_sensor["value_ok"] == 0).any() == (num_screened > 0)
    assert pl.read_parquet(tmp_path / "out" / "aligned.parquet").height == report["rows"]
    assert report["simulated"] is True


def test_clocks_are_reported_with_their_servers_and_the_instants_of_their_steps(bundle, tmp_path):
    report = folder.sync(str(bundle), str(tmp_path / "out"))

    logged = pl.read_csv(bundle / "ntp_log.csv").filter(pl.col("stratum") < 16)
    for clock_id, clock in report["clocks"].items():
        assert len(clock["steps_ms"]) == len(clock["steps_t_utc_ns"])
        counted = {server["server"]: server["num_exchanges"] for server in clock["servers"]}
        assert counted == dict(logged.filter(clock_id=clock_id)["server_id"].value_counts().iter_rows())


def test_saved_maps_give_the_rows_their_instants_again(bundle, tmp_path):
    folder.sync(str(bundle), str(tmp_path / "out"))

    saved = json.loads((tmp_path / "out" / "clock_maps.json").read_text())["control"]
    rows = pl.read_parquet(tmp_path / "out" / "rows.parquet").filter(sensor="odo")
    stamps_ns = pl.read_csv(bundle / "odo.csv")["ts"].to_numpy() * 1_000_000
    mapped_ns, _ = ClockMap.from_json(json.dumps(saved)).to_utc(stamps_ns)
    apart_ms = np.abs((rows["t_utc_ns"].to_numpy() - mapped_ns) * 1e-6)
    assert np.nanmedian(apart_ms) < 10.0  # what is left is the jitter of the stamps


def test_slips_are_reported_with_their_place(bundle, tmp_path):
    report = folder.sync(str(bundle), str(tmp_path / "out"))

    assert len(report["position"]["slips"]) == report["position"]["num_slips"]
    for slip in report["position"]["slips"]:
        assert slip["kind"] in {"slip", "slide"}
        assert slip["start_ns"] < slip["stop_ns"]
        assert slip["from_line_m"] <= slip["to_line_m"]


def test_the_same_bundle_gives_the_same_bytes(bundle, tmp_path):
    for out in ("first", "second"):
        folder.sync(str(bundle), str(tmp_path / out))

    for name in FILES:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


def test_progress_names_the_stages_and_the_sensors(bundle, tmp_path):
    told = []

    folder.sync(str(bundle), str(tmp_path / "out"), lambda *what: told.append(what))

    stages = ["read", "calibrate", "screen", "tie", "compare", "align", "locate", "write", "draw"]
    assert list(dict.fromkeys(stage for stage, _ in told)) == stages
    assert {("calibrate", "vibration: aba"), ("screen", "aba"), ("align", "aba"), ("write", "aba")} <= set(told)


def test_a_sensor_that_is_refused_does_not_stop_the_others(bundle, tmp_path):
    (bundle / "odo.csv").write_text("ts,wheel\n1,2\n")

    report = folder.sync(str(bundle), str(tmp_path / "out"))

    (refusal,) = report["refusals"]
    assert (refusal["thing"], refusal["reason"]) == ("sensor odo", "column_missing")
    assert "odo.csv" in refusal["message"]
    assert "odo" not in report["sensors"]
    assert "gnss" in report["sensors"]


@pytest.mark.parametrize("absent", [["route.csv", "balises.csv"], ["ntp_log.csv"], ["gnss.csv", "evt.csv"]])
def test_bundles_may_lack_what_a_recorder_did_not_have(bundle, tmp_path, absent):
    for name in absent:
        (bundle / name).unlink()

    folder.sync(str(bundle), str(tmp_path / "out"))

    assert names(tmp_path / "out") == FILES


def test_a_bundle_of_another_maker_needs_no_vehicle(bundle, tmp_path):
    meta = json.loads((bundle / "meta.json").read_text())
    for key in ("vehicle", "simulated"):
        del meta[key]
    (bundle / "meta.json").write_text(json.dumps(meta))

    report = folder.sync(str(bundle), str(tmp_path / "out"))

    assert (report["vehicle"], report["simulated"]) == (meta["trip_id"], False)


def test_a_bundle_of_which_nothing_can_be_used_says_why_and_writes_nothing(bundle, tmp_path):
    for path in bundle.iterdir():
        if path.name != "meta.json":
            path.write_bytes(b"")

    with pytest.raises(RecordingError, match=r"no row has a place in time: odo\.\w+ "):
        folder.sync(str(bundle), str(tmp_path / "out"))

    assert not (tmp_path / "out").exists()


def test_files_of_an_earlier_run_stay_when_a_later_one_dies(bundle, tmp_path, monkeypatch):
    out = tmp_path / "out"
    folder.sync(str(bundle), str(out))
    before = {name: (out / name).read_bytes() for name in FILES}
    (bundle / "tmp.csv").unlink()

    def die(path, *_):
        path.write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(folder, "write_rows", die)
    with pytest.raises(OSError, match="the disk is full"):
        folder.sync(str(bundle), str(out))

    assert {name: (out / name).read_bytes() for name in names(out)} == before


def test_of_several_recordings_each_has_a_folder(short_bundle, tmp_path):
    for name in ("first", "second"):
        shutil.copytree(short_bundle, tmp_path / "drop" / "sim001" / "2026-01-05" / name)
    meta = tmp_path / "drop" / "sim001" / "2026-01-05" / "second" / "meta.json"
    meta.write_text(meta.read_text().replace("-2026-01-05-1", "-2026-01-05-2"))

    report = folder.sync(str(tmp_path / "drop"), str(tmp_path / "out"))

    assert report["failed"] == []
    for own in report["recordings"]:
        assert names(tmp_path / "out" / own["vehicle"] / own["day"] / own["recording_id"]) == FILES


def test_a_table_without_time_is_refused_by_name(tmp_path):
    from pipelines.ingest.metropt3_windows import FEATURES

    (tmp_path / "windows.csv").write_text(",".join([*FEATURES, "is_anomaly", "fold"]) + "\n")

    with pytest.raises(RecordingError, match=r"windows\.csv is a table of metropt3_windows: its rows have an order"):
        folder.sync(str(tmp_path / "windows.csv"), str(tmp_path / "out"))


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ObjectNotFoundError, match="nowhere"):
        folder.sync(str(tmp_path / "nowhere"), str(tmp_path / "out"))


def test_a_folder_in_the_store_is_written_like_a_local_one(lake, short_bundle):
    report = folder.sync(str(short_bundle), storage.lake("synced"))

    assert storage.read_json(storage.lake("synced", "report.json")) == report
