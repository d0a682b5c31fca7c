import shutil

import pytest

from pipelines import publishing, staging, storage
from pipelines.errors import DataQualityError, RecordingError
from pipelines.ingest import landing, superseded

from .deliveries import land_day, parts_of, quarantine_report, report_of

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


def let_pass(staged):
    parts = [part["name"] for part in parts_of(staged)]
    storage.write_json(storage.join(staged, staging.VERDICT), {"passed": parts, "failed": {}, "passport": {}})
    return staged


def publish(*landed, **how):
    return publishing.publish(let_pass(staging.stage(list(landed))), **how)


def alter(location, name, *, num_lines=None, text=""):
    """Cut a landed text file to a number of lines, or add to it."""
    file = storage.join(location, name)
    lines = storage.read_bytes(file).decode().splitlines(keepends=True)[:num_lines]
    storage.write_bytes(file, ("".join(lines) + text).encode())


def empty(location, name, *, num_rows):
    """Take the last readings out of a landed file with one channel, and leave their rows."""
    file = storage.join(location, name)
    lines = storage.read_bytes(file).decode().splitlines()
    lines[-num_rows:] = [f"{line.partition(',')[0]}," for line in lines[-num_rows:]]
    storage.write_bytes(file, "\n".join([*lines, ""]).encode())


def rows_by_recording():
    table = storage.read_table(storage.lake("tables", "bundle"))
    return dict(table.group_by("recording_id").len().sort("recording_id").iter_rows())


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

    publishing.publish(staged)

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

    published = publishing.publish(staged)

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
        "readings missing": lambda location: empty(location, "tmp.csv", num_rows=20),
        "a torn manifest": lambda location: storage.write_bytes(storage.join(location, "meta.json"), b"{"),
    }
    return lambda location, way: ways[way](location)


@pytest.mark.parametrize("way", ["fewer rows", "a sensor refused", "readings missing", "a torn manifest"])
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


def test_a_channel_that_lost_readings_is_told_beside_a_sensor_that_lost_rows(landed):
    publish(landed)
    empty(landed, "tmp.csv", num_rows=20)

    with pytest.raises(DataQualityError, match=r"tmp\.bearing_c has \d+ good rows, published are \d+"):
        publish(landed)


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
            publishing.publish(staged)

    again = publishing.publish(let_pass(staging.stage([second])))

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
            publishing.publish(staged)

    again = publishing.publish(staged)

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
