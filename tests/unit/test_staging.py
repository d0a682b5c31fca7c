import pytest

from pipelines import staging, storage
from pipelines.errors import IncompleteRecordingError, RecordingError
from pipelines.ingest import landing
from pipelines.ingest.metropt3_windows import FEATURES
from pipelines.suites import columns_of

from .deliveries import land_day, parts_of, quarantine_report, report_of

pytestmark = pytest.mark.usefixtures("lake")


@pytest.fixture
def landed(fleet):
    """The first trip of the fleet, landed."""
    return land_day(fleet, "2026-01-05")


@pytest.fixture
def land_table(tmp_path):
    """Land a table of compressor windows; each row is given as the features in which it differs from the first."""

    def land(*rows):
        lines = [",".join([*FEATURES, "is_anomaly", "fold"])]
        lines += [",".join([*(str(row.get(name, 1.5)) for name in FEATURES), "0", "1"]) for row in rows]
        (tmp_path / "windows.csv").write_text("\n".join(lines) + "\n")
        return landing.land_file(str(tmp_path / "windows.csv"), source="metropt3_windows", vehicle="metro-apu")

    return land


def test_a_recording_is_staged_under_its_own_name_with_every_row_accounted_for(landed, lake):
    staged = staging.stage([landed])

    (part,) = parts_of(staged)
    assert staged.rpartition("/")[0] == f"{lake}/staging/bundle/sim001/2026-01-05"
    assert (part["name"], part["simulated"]) == ("sim001_2026-01-05_sim001-2026-01-05-1", True)
    assert part["num_rows_in"] == sum(part["rows_in"].values()) > 1000
    assert part["num_rows_in"] == sum(part["rows_used"].values()) + sum(part["rejected_by_reason"].values())
    assert len(staging.load_part(staged, part)) == part["rows"]


def test_every_recording_has_a_report_that_the_overview_of_its_batch_leads_to(landed):
    staged = staging.stage([landed])

    (part,) = parts_of(staged)
    overview = storage.read_bytes(storage.join(staging.docs_of(staged), "sync.html")).decode()
    report = storage.read_bytes(storage.join(staging.docs_of(staged), part["page"])).decode()
    assert f'<a href="{part["page"]}">{part["recording_id"]}</a>' in overview
    assert part["recording_id"] in report
    assert '<span class="badge">simulated</span>' in overview
    assert '<span class="badge">simulated</span>' in report


def test_staging_twice_leaves_the_same_bytes(landed):
    first = {at: storage.read_bytes(at) for at in storage.list_objects(staging.stage([landed]))}
    second = {at: storage.read_bytes(at) for at in storage.list_objects(staging.stage([landed]))}

    assert len(first) == 2
    assert first == second


def test_a_share_of_a_dozen_rows_is_not_judged(landed):
    (part,) = parts_of(staging.stage([landed]))

    share_of = {sensor["sensor"]: sensor["rejected_share"] for sensor in part["sensors"]}
    assert share_of["evt"] is None
    assert share_of["aba"] == 0.0


def test_a_torn_manifest_is_quarantined_and_no_longer_pending(landed):
    manifest = storage.join(landed, "meta.json")
    storage.write_bytes(manifest, storage.read_bytes(manifest)[:100])

    with pytest.raises(RecordingError, match=r"meta\.json"):
        staging.stage([landed])

    assert "meta.json" in quarantine_report(landed)["reasons"][0]
    assert landing.pending("") == []


def test_a_repaired_recording_is_pending_again_and_staged(landed):
    manifest = storage.join(landed, "meta.json")
    whole = storage.read_bytes(manifest)
    storage.write_bytes(manifest, whole[:100])
    with pytest.raises(RecordingError):
        staging.stage([landed])

    storage.write_bytes(manifest, whole)

    assert landing.pending("") == [landed]
    (recording,) = report_of(staging.stage([landed]))["recordings"]
    assert recording["digest"] == storage.digest_of(landed)


def test_a_recording_without_its_manifest_is_worth_a_retry_and_not_quarantined(landed):
    storage.delete_object(storage.join(landed, "meta.json"))

    with pytest.raises(IncompleteRecordingError):
        staging.stage([landed])

    assert storage.list_objects(storage.lake("quarantine")) == []
    assert storage.list_objects(storage.lake("outcomes")) == []


def test_a_broken_sensor_is_quarantined_and_the_others_go_on(landed):
    aba = storage.join(landed, "aba.parquet")
    storage.write_bytes(aba, storage.read_bytes(aba)[:1000])

    (part,) = parts_of(staging.stage([landed]))

    assert [refusal["thing"] for refusal in part["refusals"]] == ["sensor aba"]
    assert "aba.parquet" in quarantine_report(landed)["reasons"][0]
    assert {sensor["sensor"] for sensor in part["sensors"]} == {"odo", "dop", "gnss", "pneu", "trk", "tmp", "evt"}


def test_columns_of_an_absent_sensor_are_there_and_empty(landed):
    storage.write_bytes(storage.join(landed, "tmp.csv"), b"")
    storage.write_bytes(storage.join(landed, "tmp.parquet"), b"")

    staged = staging.stage([landed])

    frame = staging.load_part(staged, parts_of(staged)[0])
    assert set(columns_of("bundle")) <= set(frame.columns)
    assert frame["tmp_bearing_c"].null_count() == len(frame) > 0


def test_a_recording_of_which_nothing_can_be_read_is_quarantined(landed):
    for location in storage.list_objects(landed):
        if location.endswith((".csv", ".parquet")):
            storage.write_bytes(location, b"")

    with pytest.raises(RecordingError, match=r"no row of it could be read"):
        staging.stage([landed])

    assert len(quarantine_report(landed)["reasons"]) == 1


def test_a_bad_row_of_a_labelled_table_counts_once(land_table):
    staged = staging.stage([land_table({}, {"TP2_mean": "high"}, {"TP2_mean": "inf", "TP3_mean": "inf"}, {})])

    (part,) = parts_of(staged)
    assert (part["name"], part["rows"], part["num_rows_in"]) == ("metro-apu_all_windows", 2, 4)
    assert part["rejected_by_reason"] == {"not_a_number": 1, "not_finite": 1}
    assert staging.load_part(staged, part)["row"].to_list() == [0, 3]
