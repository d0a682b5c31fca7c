import json
from pathlib import Path

import pytest

from pipelines import storage
from pipelines.errors import RecordingError
from pipelines.ingest import landing


@pytest.fixture(autouse=True)
def lake(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKSIDE_LAKE", str(tmp_path / "lake"))


@pytest.fixture
def fleet(tmp_path):
    for vehicle in ("v1", "v2"):
        _bundle(tmp_path / "fleet" / "bundles" / vehicle / "2026-01-05" / "trip")
    (tmp_path / "fleet" / "truth").mkdir()
    (tmp_path / "fleet" / "truth" / "events.csv").write_text("vehicle,kind\n")
    return tmp_path / "fleet"


def _bundle(folder):
    folder.mkdir(parents=True)
    (folder / "odo.csv").write_text("ts,pulses\n1,2\n")
    (folder / "meta.json").write_text(json.dumps({"trip_id": "trip"}))
    return folder


def test_landing_a_fleet_keeps_vehicle_day_and_trip_and_leaves_the_truth_behind(fleet):
    landed = landing.land_bundles(str(fleet))

    assert [landing.key_of(location) for location in landed] == [
        ("bundle", "v1", "2026-01-05", "trip"),
        ("bundle", "v2", "2026-01-05", "trip"),
    ]


def test_a_bundle_without_its_manifest_is_not_pending_until_it_arrives(fleet):
    manifest = fleet / "bundles" / "v1" / "2026-01-05" / "trip" / "meta.json"
    text = manifest.read_text()
    manifest.unlink()
    landing.land_bundles(str(fleet))
    before = landing.pending("bundle")

    manifest.write_text(text)
    landing.land_bundles(str(fleet))

    assert [landing.key_of(location)[1] for location in before] == ["v2"]
    assert [landing.key_of(location)[1] for location in landing.pending("bundle")] == ["v1", "v2"]


def test_a_recording_with_an_outcome_is_pending_again_only_when_its_content_changes(fleet):
    first, second = landing.land_bundles(str(fleet))
    for location in (first, second):
        landing.record_published(location, {"digest": storage.digest_of(location)})
    before = landing.pending("")

    storage.write_bytes(storage.join(first, "tmp.csv"), b"ts,bearing_c\n1,20\n")

    assert before == []
    assert landing.pending("") == [first]


def test_looking_for_what_is_pending_reads_no_recording_and_no_outcome(fleet, monkeypatch):
    """It is done every few seconds, however many recordings there are."""
    first, second = landing.land_bundles(str(fleet))
    landing.record_published(first, {"digest": storage.digest_of(first)})
    read = []
    monkeypatch.setattr(storage, "read_bytes", read.append)

    assert (landing.pending(""), read) == ([second], [])


def test_all_complete_recordings_are_due_again_when_asked_for(fleet):
    landed = landing.land_bundles(str(fleet))
    for location in landed:
        landing.record_published(location, {"digest": storage.digest_of(location)})
    storage.delete_object(storage.join(landed[1], "meta.json"))

    assert landing.pending("", again=True) == landed[:1]


def test_the_newest_outcome_counts_and_the_older_ones_are_kept(fleet):
    location = landing.land_bundles(str(fleet))[0]
    for digest in ("a" * 64, "b" * 64, "a" * 64):
        landing.record_published(location, {"digest": digest})

    assert landing.outcome_of(location)["digest"] == "a" * 64
    assert landing.newest_outcome(location) == f"000003-{'a' * 16}"
    assert len(storage.list_objects(storage.lake("outcomes"))) == 3


def test_the_same_outcome_again_is_one_outcome(fleet):
    location = landing.land_bundles(str(fleet))[0]
    for _ in range(2):
        landing.refuse(location, digest="c" * 64, reasons=["torn"])

    assert len(storage.list_objects(storage.lake("outcomes"))) == 1


def test_a_refused_redelivery_keeps_what_is_published_in_its_outcome(fleet):
    location = landing.land_bundles(str(fleet))[0]
    landing.record_published(location, {"digest": "a" * 64, "version": 7})

    landing.refuse(location, digest="b" * 64, reasons=["torn"])

    assert landing.outcome_of(location)["outcome"] == "quarantined"
    assert landing.published("bundle") == [{"digest": "a" * 64, "version": 7}]


def test_recordings_of_one_vehicle_and_day_form_a_group(tmp_path):
    root = storage.lake("landing", "bundle")
    locations = [
        f"{root}/{key}" for key in ("v2/2026-01-05/a", "v1/2026-01-06/a", "v1/2026-01-05/b", "v1/2026-01-05/a")
    ]

    groups = landing.vehicle_days(locations)

    assert [[landing.key_of(location)[1:] for location in group] for group in groups] == [
        [("v1", "2026-01-05", "a"), ("v1", "2026-01-05", "b")],
        [("v1", "2026-01-06", "a")],
        [("v2", "2026-01-05", "a")],
    ]


def test_a_stray_file_in_the_landing_area_is_no_recording(fleet, caplog):
    landed = landing.land_bundles(str(fleet))
    storage.write_bytes(storage.lake("landing", "bundle", "notes.txt"), b"hello")

    assert landing.pending("") == landed
    assert "landing/bundle/notes.txt: not in a folder" in caplog.text


def test_a_prefix_limits_what_is_pending(fleet):
    landing.land_bundles(str(fleet))

    assert [landing.key_of(location)[1] for location in landing.pending("bundle/v2")] == ["v2"]


def test_quarantine_keeps_the_original_with_its_report(fleet):
    location = landing.land_bundles(str(fleet))[0]

    kept = landing.quarantine(location, digest="0123456789abcdef", reasons=["torn"])
    landing.quarantine(location, digest="0123456789abcdef", reasons=["torn", "late"])

    assert storage.read_json(storage.join(kept, "report.json"))["reasons"] == ["torn", "late"]
    assert storage.read_bytes(storage.join(kept, "original", "odo.csv")) == b"ts,pulses\n1,2\n"
    assert storage.exists(storage.join(location, "odo.csv"))


def test_a_second_bad_delivery_does_not_replace_the_first_in_quarantine(fleet):
    location = landing.land_bundles(str(fleet))[0]
    first = landing.quarantine(location, digest="1" * 64, reasons=["torn"])
    storage.write_bytes(storage.join(location, "odo.csv"), b"ts,pulses\n")

    second = landing.quarantine(location, digest="2" * 64, reasons=["empty"])

    assert storage.read_bytes(storage.join(first, "original", "odo.csv")) == b"ts,pulses\n1,2\n"
    assert storage.read_bytes(storage.join(second, "original", "odo.csv")) == b"ts,pulses\n"


def test_the_same_delivery_again_changes_nothing(fleet):
    for location in landing.land_bundles(str(fleet)):
        landing.record_published(location, {"digest": storage.digest_of(location)})

    landing.land_bundles(str(fleet))

    assert landing.pending("") == []


def test_a_file_lands_with_a_manifest_that_names_it(tmp_path):
    (tmp_path / "apu.csv").write_text("timestamp,TP2\n")

    location = landing.land_file(str(tmp_path / "apu.csv"), source="metropt3", vehicle="metro-apu")

    assert landing.key_of(location) == ("metropt3", "metro-apu", "all", "apu")
    assert landing.content_of(location) == storage.join(location, "apu.csv")
    assert landing.pending("metropt3") == [location]


def test_a_file_whose_redelivery_breaks_off_is_not_pending(tmp_path, monkeypatch):
    file = tmp_path / "apu.csv"
    file.write_text("timestamp,TP2\n")
    landing.land_file(str(file), source="metropt3", vehicle="metro-apu")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "copy_tree", broken_off)
        with pytest.raises(OSError, match="disk full"):
            landing.land_file(str(file), source="metropt3", vehicle="metro-apu")

    assert landing.pending("metropt3") == []


def broken_off(source, target):
    Path(target, "apu.csv").write_text("time")
    raise OSError("disk full")


def test_a_folder_without_bundles_is_refused_with_what_would_be_right(tmp_path):
    with pytest.raises(RecordingError, match=r"a bundle is a folder with sensor files and, last, meta\.json"):
        landing.land_bundles(str(tmp_path))
