import json
import shutil
import sys

import pytest

from pipelines import cli, storage
from pipelines.errors import RecordingError


@pytest.fixture
def trackside(monkeypatch, capsys, tmp_path):
    """Call the command line as a shell does; return exit code, standard output and standard error."""
    monkeypatch.setenv("TRACKSIDE_HOME", str(tmp_path / "home"))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["trackside", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


def test_simulate_prints_one_json_object_and_nothing_else(trackside, tmp_path, monkeypatch):
    from pipelines import simulate

    small = {"trip_minutes": 3, "aba_rate_hz": 20}
    real = simulate.simulate_fleet
    monkeypatch.setattr(simulate, "simulate_fleet", lambda out, **asked: real(out, **asked, **small))

    code, out, err = trackside("simulate", "--out", tmp_path, "--seed", 3, "--vehicles", 1, "--days", 1, "--json")

    found = json.loads(out)
    assert (code, out.count("\n"), err) == (0, 1, "")
    assert len(found["bundles"]) == 1
    assert found["num_rows"] > 1000


def test_sync_prints_its_report_as_one_json_object_and_nothing_else(trackside, fleet, tmp_path):
    (bundle,) = (fleet / "bundles" / "sim001" / "2026-01-05").iterdir()

    code, out, err = trackside("sync", bundle, "--out", tmp_path / "out", "--json")

    assert (code, out.count("\n"), err) == (0, 1, "")
    assert json.loads(out) == storage.read_json(f"{tmp_path}/out/report.json")


def test_of_several_recordings_one_that_fails_does_not_stop_the_others_and_is_exit_code_1(trackside, fleet, tmp_path):
    good, broken = (next(day.iterdir()) for day in sorted((fleet / "bundles" / "sim001").iterdir())[:2])
    for bundle in (good, broken):
        shutil.copytree(bundle, tmp_path / "drop" / bundle.name)
    for path in (tmp_path / "drop" / broken.name).iterdir():
        if path.name != "meta.json":
            path.write_bytes(b"")

    code, out, _ = trackside("sync", tmp_path / "drop", "--out", tmp_path / "out", "--json")

    report = json.loads(out)
    assert code == 1
    assert [recording["recording_id"] for recording in report["recordings"]] == [good.name]
    assert len(report["failed"]) == 1
    assert broken.name in report["failed"][0]


def test_a_bundle_that_cannot_be_synchronised_is_one_message_and_exit_code_1(trackside, tmp_path):
    (tmp_path / "meta.json").write_text("{")

    code, out, err = trackside("sync", tmp_path, "--out", tmp_path / "out")

    assert (code, out) == (1, "")
    assert err.startswith(f"RecordingError: {tmp_path}/meta.json is no whole JSON document")


@pytest.mark.parametrize("option", ["--vehicles", "--days"])
def test_a_fleet_of_nothing_is_refused(trackside, tmp_path, option):
    code, out, err = trackside("simulate", "--out", tmp_path, "--seed", 1, option, 0)

    assert (code, out) == (2, "")
    assert option in err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_difficulty_is_named_beside_the_known_ones(trackside, tmp_path):
    code, out, err = trackside("simulate", "--out", tmp_path, "--seed", 1, "--difficulty", "easy")

    assert (code, out) == (1, "")
    assert "no difficulty 'easy'; expected one of default, lan, wifi" in err
    assert list(tmp_path.iterdir()) == []


def test_a_broken_bundle_fails_and_the_good_one_beside_it_is_published(trackside, lake, fleet, tmp_path):
    good, broken = sorted((fleet / "bundles" / "sim001").iterdir())[:2]
    for day in (good, broken):
        shutil.copytree(day, tmp_path / "drop" / "sim001" / day.name)
    (manifest,) = (tmp_path / "drop" / "sim001" / broken.name).rglob("meta.json")
    manifest.write_text(manifest.read_text()[:100])

    code, out, err = trackside("ingest", tmp_path / "drop", "--json")

    found = json.loads(out)
    assert code == 1
    assert [location.split("/")[-2] for item in found["published"] for location in item["published"]] == [good.name]
    assert [location.split("/")[-2] for location in found["failed"]] == [broken.name]
    assert "meta.json" in next(iter(found["failed"].values()))
    assert "RecordingError: " in err
    assert storage.read_table(storage.lake("tables", "bundle"))["day"].unique().to_list() == [good.name]


def test_an_error_of_ours_is_one_message_and_exit_code_1(trackside, lake, tmp_path):
    code, out, err = trackside("ingest", tmp_path / "nowhere")

    assert (code, out) == (1, "")
    assert err == f"ObjectNotFoundError: {tmp_path}/nowhere: neither a file nor a folder with files\n"


def test_brackets_in_a_message_are_not_taken_for_markup(trackside, lake, monkeypatch):
    def refuse(locations):
        raise RecordingError("values in [0, 1] or [/b] are expected")

    monkeypatch.setattr(cli.steps, "land", lambda uri: [storage.lake("landing", "bundle", "07", "2026-01-12", "a")])
    monkeypatch.setattr(cli.steps, "synchronise", refuse)

    code, _, err = trackside("ingest", "x")

    assert code == 1
    assert "RecordingError: values in [0, 1] or [/b] are expected" in err


@pytest.mark.parametrize("port", ["airflow", "airflow=", "airflow=http", "=", "airflow=70000", "airflow=-1"])
def test_a_bad_port_is_refused_with_an_example(trackside, port):
    code, _, err = trackside("up", "--port", port)

    assert code == 1
    assert f"ConfigError: --port '{port}': SERVICE=NUMBER would be right, for example airflow=8090" in err


@pytest.mark.parametrize("workers", ["two", "1:2:3", ":", "4:2", "-1", "1.5"])
def test_bad_workers_are_refused_before_any_work(trackside, lake, workers):
    code, _, err = trackside("train", "smoke", f"--workers={workers}", "--data", "nowhere")

    assert code == 1
    assert f"ConfigError: --workers '{workers}': a number or MIN:MAX would be right" in err


@pytest.mark.parametrize(("text", "workers"), [("", None), ("3", 3), ("2:4", 4), ("2:2", 2)])
def test_workers_are_a_number_or_a_range(trackside, lake, monkeypatch, text, workers):
    asked = {}
    monkeypatch.setattr(cli.steps, "retrain", lambda recipe, **how: asked.update(how, recipe=recipe) or {"done": True})

    code, out, _ = trackside("train", "smoke", f"--workers={text}", "--json")

    assert (code, json.loads(out)) == (0, {"done": True})
    assert (asked["recipe"], asked["workers"]) == ("smoke", workers)


def test_an_unknown_recipe_is_refused_before_anything_lands(trackside, lake, fleet):
    code, _, err = trackside("train", "hot_baering", "--data", fleet)

    assert code == 1
    assert "ConfigError: no recipe 'hot_baering'" in err
    assert not lake.exists()


def test_data_of_another_source_than_the_recipe_trains_on_are_refused_before_anything_lands(trackside, lake, fleet):
    code, _, err = trackside("train", "metro_compressor", "--data", fleet)

    assert code == 1
    assert "is bundle, but recipe metro_compressor trains on metropt3" in err
    assert not lake.exists()


def test_the_same_delivery_again_is_said_to_be_unchanged(trackside, lake, fleet):
    day = fleet / "bundles" / "sim001" / "2026-01-05"
    trackside("ingest", day)
    before = {location: storage.read_bytes(location) for location in storage.list_objects(str(lake))}

    code, out, _ = trackside("ingest", day, "--json")

    found = json.loads(out)
    assert code == 0
    assert (found["published"], found["failed"]) == ([], {})
    assert [location.split("/")[-2] for location in found["unchanged"]] == ["2026-01-05"]
    assert {location: storage.read_bytes(location) for location in storage.list_objects(str(lake))} == before


def test_what_an_ingestion_that_died_did_not_mark_is_marked_by_the_next_one(trackside, lake, fleet, monkeypatch):
    day = fleet / "bundles" / "sim001" / "2026-01-05"
    with monkeypatch.context() as patch:
        patch.setattr(cli.steps, "mark_superseded", _die)
        with pytest.raises(ConnectionAbortedError):
            trackside("ingest", day)
    monkeypatch.setattr(cli.steps, "mark_superseded", lambda: [{"run_key": "first"}])

    code, out, _ = trackside("ingest", day, "--json")

    found = json.loads(out)
    assert (code, len(found["unchanged"]), found["superseded"]) == (0, 1, [{"run_key": "first"}])


def test_a_refused_delivery_again_is_refused_with_the_same_reason(trackside, lake, fleet, tmp_path):
    shutil.copytree(fleet / "bundles" / "sim001" / "2026-01-05", tmp_path / "drop" / "sim001" / "2026-01-05")
    (manifest,) = (tmp_path / "drop").rglob("meta.json")
    manifest.write_text(manifest.read_text()[:100])
    trackside("ingest", tmp_path / "drop")

    code, out, _ = trackside("ingest", tmp_path / "drop", "--json")

    (reason,) = json.loads(out)["failed"].values()
    assert code == 1
    assert "refused before, unchanged since; --force tries again" in reason
    assert "no whole JSON document" in reason


def test_an_unknown_strategy_is_refused_before_any_work(trackside, lake):
    code, _, err = trackside("train", "smoke", "--strategy", "magic", "--data", "nowhere")

    assert code == 1
    assert "ConfigError: --strategy 'magic': auto or ddp would be right" in err


def test_models_are_listed_as_one_json_object(trackside, job):
    code, out, _ = trackside("models", "list", "short_trips", "--json")

    (version,) = json.loads(out)["versions"]
    assert code == 0
    assert (version["model"], version["version"], version["aliases"]) == ("short_trips", "1", ["champion"])


def test_a_version_is_shown_with_its_evidence(trackside, job):
    code, out, _ = trackside("models", "show", "short_trips", "1", "--json")

    assert code == 0
    assert json.loads(out)["tags"]["trackside.simulated"] == "true"


def test_a_version_that_is_not_there_is_named(trackside, job):
    code, _, err = trackside("models", "show", "short_trips", "9")

    assert code == 1
    assert "model 'short_trips' has no version '9'; see `trackside models list short_trips`" in err


def test_without_services_the_status_is_exit_code_1_and_still_json(trackside):
    code, out, _ = trackside("status", "--json")

    assert (code, json.loads(out)) == (1, {"services": []})


def test_without_a_server_the_models_are_not_looked_for_in_the_working_directory(
    trackside, lake, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    code, _, err = trackside("models", "list")

    assert code == 1
    assert "ConfigError: MLFLOW_TRACKING_URI is not set" in err
    assert not (tmp_path / "mlflow.db").exists()


def test_the_history_of_a_model_says_who_decided_and_verify_finds_nothing_wrong(trackside, job):
    history = trackside("models", "history", "short_trips", "--json")
    verified = trackside("models", "verify", "short_trips")

    (line,) = json.loads(history[1])["lines"]
    assert (line["change"]["to_version"], line["change"]["decided_by"]) == ("1", "ada")
    assert verified[:2] == (0, "the ledger of short_trips is whole, and the registry agrees with it\n")


def test_a_rollback_without_a_reason_is_refused(trackside, job):
    code, out, err = trackside("models", "rollback", "short_trips")

    assert (code, out) == (2, "")
    assert "--reason" in err


def _die():
    raise ConnectionAbortedError
