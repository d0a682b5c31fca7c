import shutil

import pytest

from pipelines import staging, storage
from pipelines.errors import DataQualityError, IncompleteRecordingError, RecordingError
from pipelines.ingest import landing, superseded
from pipelines.ingest.metropt3_windows import FEATURES
from pipelines.suites import columns_of

pytestmark = pytest.mark.usefixtures("lake")


@pytest.fixture
def landed(fleet):
    """The first trip of the fleet, landed."""
    return land_day(fleet, "2026-01-05")


@pytest.fixture
def second(landed, tmp_path):
    """A second trip of the same vehicle and day, landed."""
    folder = tmp_path / "late" / "sim001" / "2026-01-05" / "sim001-2026-01-05-2"
    shutil.copytree(landed, folder)
    manifest = folder / "meta.json"
    manifest.write_text(manifest.read_text().replace("sim001-2026-01-05-1", "sim001-2026-01-05-2"))
    return landing.land_bundles(str(folder))[0]


def die(*arguments, **named):
    """What a killed process looks like from within."""
    raise ConnectionAbortedError


@pytest.fixture
def land_table(tmp_path):
    """Land a table of compressor windows; each row is given as the features in which it differs from the first."""

    def land(*rows):
        lines = [",".join([*FEATURES, "is_anomaly", "fold"])]
        lines += [",".join([*(str(row.get(name, 1.5)) for name in FEATURES), "0", "1"]) for row in rows]
        (tmp_path / "windows.csv").write_text("\n".join(lines) + "\n")
        return landing.land_file(str(tmp_path / "windows.csv"), source="metropt3_windows", vehicle="metro-apu")

    return land


def land_day(fleet, day):
    return landing.land_bundles(str(fleet / "bundles" / "sim001" / day))[0]


def report_of(staged):
    return storage.read_json(storage.join(staged, staging.REPORT))


def parts_of(staged):
    return [part for recording in report_of(staged)["recordings"] for part in recording["parts"]]


def let_pass(staged):
    parts = [part["name"] for part in parts_of(staged)]
    storage.write_json(storage.join(staged, staging.VERDICT), {"passed": parts, "failed": {}, "passport": {}})
    return staged


def publish(*landed, **how):
    return staging.publish(let_pass(staging.stage(list(landed))), **how)


def alter(location, name, *, num_lines=None, text=""):
    """Cut a landed text file to a number of lines, or add to it."""
    file = storage.join(location, name)
    lines = storage.read_bytes(file).decode().splitlines(keepends=True)[:num_lines]
    storage.write_bytes(file, ("".join(lines) + text).encode())


def rows_by_recording():
    table = storage.read_table(storage.lake("tables", "bundle"))
    return dict(table.group_by("recording_id").len().sort("recording_id").iter_rows())


def quarantine_report(location):
    at = landing.quarantine_of(location, storage.digest_of(location))
    return storage.read_json(storage.join(at, "report.json"))


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


def test_what_is_published_is_told_and_no_longer_pending(landed):
    published = publish(landed)

    (evidence,) = landing.published("bundle")
    assert (published["version"], published["published"]) == (0, [landed])
    assert len(storage.read_table(published["table"])) == published["rows_out"] == evidence["rows_out"]
    assert evidence["rows_in"] == published["rows_in"]
    assert landing.pending("") == []


def test_what_changed_while_it_was_processed_is_pending_again(landed):
    staged = let_pass(staging.stage([landed]))
    alter(landed, "route.csv", text="\n")

    staging.publish(staged)

    assert landing.pending("") == [landed]


def test_what_did_not_pass_is_not_published(landed):
    staged = staging.stage([landed])
    (part,) = parts_of(staged)
    other = {**part, "name": "sim001_2026-01-06_x"}
    shutil.copy(f"{staged}/{part['name']}.parquet", f"{staged}/{other['name']}.parquet")
    report = report_of(staged)
    report["recordings"][0]["parts"] = [part, other]
    storage.write_json(storage.join(staged, staging.REPORT), report)
    verdict = {"passed": [part["name"]], "failed": {other["name"]: "too hot"}, "passport": {}}
    storage.write_json(storage.join(staged, staging.VERDICT), verdict)

    published = staging.publish(staged)

    assert published["rows_out"] == part["rows"]
    assert published["failed"] == {"sim001_2026-01-06_x": "too hot"}


def test_recordings_of_one_day_become_one_version(landed, second):
    published = publish(landed, second)

    assert published["version"] == 0
    assert sorted(published["published"]) == sorted([landed, second])
    assert list(rows_by_recording()) == ["sim001-2026-01-05-1", "sim001-2026-01-05-2"]


def test_a_broken_recording_does_not_hold_back_another_of_its_day(landed, second):
    storage.write_bytes(storage.join(second, "meta.json"), b"{")

    published = publish(landed, second)

    assert published["published"] == [landed]
    assert "meta.json" in published["quarantined"][second][0]
    assert landing.pending("") == []


def test_a_recording_that_is_landing_again_waits_for_the_next_time(landed, second):
    storage.delete_object(storage.join(second, "meta.json"))

    published = publish(landed, second)

    assert (published["published"], published["quarantined"]) == ([landed], {})
    assert landing.outcome_of(second) == {}


def test_a_repeated_delivery_changes_nothing(landed, fleet):
    first = publish(landed)
    outcomes = storage.list_objects(storage.lake("outcomes"))

    again = publish(land_day(fleet, "2026-01-05"))

    assert (again["published"], again["unchanged"]) == ([], [landed])
    assert storage.table_version(first["table"]) == first["version"]
    assert storage.list_objects(storage.lake("outcomes")) == outcomes


def test_a_repeated_delivery_is_published_again_when_forced(landed):
    first = publish(landed)

    again = publish(landed, force=True)

    assert (again["published"], again["version"]) == ([landed], first["version"] + 1)
    assert rows_by_recording() == {"sim001-2026-01-05-1": first["rows_out"]}


def test_a_late_recording_joins_its_day_and_leaves_the_others(landed, second):
    first = publish(landed)

    late = publish(second)

    assert late["version"] == 1
    assert rows_by_recording()["sim001-2026-01-05-1"] == first["rows_out"]


def test_a_corrected_delivery_replaces_the_one_before(landed):
    original = storage.read_bytes(storage.join(landed, "tmp.csv"))
    whole = publish(landed)
    alter(landed, "tmp.csv", num_lines=-20)
    publish(landed, force=True)
    shorter = landing.published("bundle")[0]["parts"][0]["rows_used"]["tmp"]
    storage.write_bytes(storage.join(landed, "tmp.csv"), original)

    corrected = publish(landed)

    (evidence,) = landing.published("bundle")
    assert corrected["published"] == [landed]
    assert evidence["parts"][0]["rows_used"]["tmp"] == shorter + 20
    assert rows_by_recording() == {"sim001-2026-01-05-1": whole["rows_out"]}


@pytest.fixture
def damage():
    """Ways in which a redelivery may be poorer than what was delivered before."""
    ways = {
        "fewer rows": lambda location: alter(location, "tmp.csv", num_lines=-20),
        "a sensor refused": lambda location: storage.write_bytes(storage.join(location, "aba.parquet"), b"PAR1"),
        "a torn manifest": lambda location: storage.write_bytes(storage.join(location, "meta.json"), b"{"),
    }
    return lambda location, way: ways[way](location)


@pytest.mark.parametrize("way", ["fewer rows", "a sensor refused", "a torn manifest"])
def test_a_damaged_redelivery_is_set_aside_and_the_published_one_stays(landed, damage, way):
    whole = publish(landed)
    rows = storage.read_table(whole["table"])
    damage(landed, way)

    with pytest.raises((DataQualityError, RecordingError)):
        publish(landed)

    outcome = landing.outcome_of(landed)
    assert storage.table_version(whole["table"]) == whole["version"]
    assert storage.read_table(whole["table"]).equals(rows)
    assert (outcome["outcome"], outcome["published"]["version"]) == ("quarantined", whole["version"])
    assert set(quarantine_report(landed)["reasons"]) == set(outcome["reasons"]) != set()
    assert landing.pending("") == []


def test_a_poorer_redelivery_is_told_what_it_lacks_and_how_to_force_it(landed):
    publish(landed)
    num_rows = parts_of(staging.stage([landed]))[0]["rows_used"]["tmp"]
    alter(landed, "tmp.csv", num_lines=-20)

    with pytest.raises(
        DataQualityError, match=rf"tmp has {num_rows - 20} good rows, published are {num_rows}"
    ) as raised:
        publish(landed)

    assert "published as version 0 and stays so" in str(raised.value)
    assert "--force" in str(raised.value)


def test_a_poorer_redelivery_replaces_the_published_one_when_forced(landed):
    publish(landed)
    alter(landed, "tmp.csv", num_lines=-20)
    with pytest.raises(DataQualityError):
        publish(landed)

    publish(landed, force=True)

    outcome = landing.outcome_of(landed)
    assert (outcome["outcome"], outcome["published"]["version"]) == ("published", 1)


def test_a_content_that_comes_back_is_published_again(landed):
    original = storage.read_bytes(storage.join(landed, "tmp.csv"))
    publish(landed)
    alter(landed, "tmp.csv", num_lines=-20)
    publish(landed, force=True)
    storage.write_bytes(storage.join(landed, "tmp.csv"), original)

    back = publish(landed)

    assert (back["published"], back["version"]) == ([landed], 2)


def test_only_vehicle_days_that_were_there_before_are_superseded(landed, second, fleet):
    publish(landed)
    publish(land_day(fleet, "2026-01-06"))
    first = superseded.changes()

    publish(second)

    (change,) = superseded.changes()
    assert first == []
    assert (change.version, change.vehicle_days) == (2, {("sim001", "2026-01-05")})


DYING = {
    "before the commit": (storage, "write_recordings"),
    "between commit and record of what it changed": (superseded, "record"),
    "between commit and outcome": (landing, "record_published"),
    "before the end": (storage, "delete_object"),
}


@pytest.mark.parametrize("moment", DYING)
def test_publishing_that_died_ends_in_the_same_state_when_repeated(landed, second, monkeypatch, moment):
    publish(landed)
    staged = let_pass(staging.stage([second]))
    with monkeypatch.context() as patch:
        patch.setattr(*DYING[moment], die)
        with pytest.raises(ConnectionAbortedError):
            staging.publish(staged)

    again = staging.publish(let_pass(staging.stage([second])))

    assert (again["version"], storage.table_version(again["table"])) == (1, 1)
    assert [change.version for change in superseded.changes()] == [1]
    assert landing.newest_outcome(second).startswith("000001-")
    assert landing.pending("") == []
    assert set(rows_by_recording()) == {"sim001-2026-01-05-1", "sim001-2026-01-05-2"}


def test_a_batch_that_died_between_two_outcomes_is_not_committed_twice(landed, second, monkeypatch):
    record, recorded = landing.record_published, []

    def record_one(location, evidence):
        if recorded:
            die()
        recorded.append(location)
        record(location, evidence)

    staged = let_pass(staging.stage([landed, second]))
    with monkeypatch.context() as patch:
        patch.setattr(landing, "record_published", record_one)
        with pytest.raises(ConnectionAbortedError):
            staging.publish(staged)

    again = staging.publish(staged)

    assert (len(again["published"]), len(again["unchanged"])) == (1, 1)
    assert storage.table_version(again["table"]) == again["version"] == 0
    assert len(rows_by_recording()) == 2


def test_another_delivery_after_one_that_died_is_published_on_its_own(landed, monkeypatch):
    original = storage.read_bytes(storage.join(landed, "tmp.csv"))
    with monkeypatch.context() as patch:
        patch.setattr(landing, "record_published", die)
        with pytest.raises(ConnectionAbortedError):
            publish(landed)
    alter(landed, "tmp.csv", num_lines=-20)
    publish(landed)
    storage.write_bytes(storage.join(landed, "tmp.csv"), original)

    back = publish(landed)

    assert back["version"] == 2  # and not the version of the commit that died, which was replaced since
