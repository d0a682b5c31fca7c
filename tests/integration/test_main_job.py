"""The main job through the real scheduler and servers: a fleet lands, is ingested, trained on, judged and promoted."""

import json
import re
import shutil
import threading
import time
from datetime import date
from pathlib import Path

import mlflow
import polars as pl
import psutil
import pytest
import requests

from pipelines import steps, storage
from pipelines.ingest import landing

from .main_job import RETRAIN_DEADLINE_S, airflow_of, connected, ingest, logged_steps, mlflow_runs, run_dag, small_fleet

pytestmark = pytest.mark.services


@pytest.fixture(scope="module", autouse=True)
def connection(services):
    with connected(services.env):
        yield


@pytest.fixture(scope="module")
def airflow(services, connection):
    return airflow_of(services.env)


@pytest.fixture(scope="module")
def talked_to(services):
    """Addresses that processes of the services talked to while the tests ran."""
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.wait(0.3):
            for process in psutil.process_iter():
                try:
                    if process.environ().get("TRACKSIDE_HOME") == str(services.home):
                        remote = [c.raddr.ip for c in process.net_connections("inet") if c.raddr]
                        seen.update(remote)
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield seen
    stop.set()
    thread.join()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory, talked_to):
    return small_fleet(tmp_path_factory.mktemp("fleet"), seed=5, start_date=date(2026, 2, 2))  # no other test's


@pytest.fixture(scope="module")
def ingested(airflow, fleet):
    """One bundle of the fleet has a truncated sensor file, another a torn manifest; the rest is whole."""
    bundles = sorted((fleet / "bundles").glob("*/*/*"))
    whole = {bundle: (bundle / "meta.json").read_bytes() for bundle in bundles}
    (bundles[0] / "meta.json").write_bytes(whole[bundles[0]][:100])
    aba = bundles[1] / "aba.parquet"
    aba_bytes = aba.read_bytes()
    aba.write_bytes(aba_bytes[: len(aba_bytes) // 2])
    landed = steps.land(str(fleet))
    first = ingest(airflow)
    after_first = landing.outcomes("bundle")
    (bundles[0] / "meta.json").write_bytes(whole[bundles[0]])
    aba.write_bytes(aba_bytes)
    steps.land(str(fleet))
    second = ingest(airflow)
    return {"landed": landed, "first": first, "after_first": after_first, "second": second}


@pytest.fixture(scope="module")
def retrained(airflow, ingested):
    conf = {"recipe": "smoke", "force_promote": True}  # other tests may have left a champion that is as good
    run_id, state, tasks = run_dag(airflow, "nightly_retrain", conf, RETRAIN_DEADLINE_S)
    assert state == "success", tasks
    return run_id


@pytest.fixture(scope="module")
def summary(airflow, retrained):
    return steps.summary(airflow.returned("nightly_retrain", retrained, "plan"))


def test_a_broken_recording_fails_alone(ingested):
    _, state, tasks = ingested["first"]

    failed = [label for label, state in tasks.items() if state == "failed"]
    assert state == "failed"
    assert len(failed) == 1
    assert failed[0].startswith("vehicle_day.synchronise")
    assert sum(label.startswith("vehicle_day.publish") and s == "success" for label, s in tasks.items()) == 7


def test_what_was_refused_is_in_quarantine_with_its_reason(ingested):
    broken, truncated = ingested["landed"][:2]

    assert "meta.json" in _quarantined(broken)[0]["reasons"][0]
    assert "aba.parquet" in _quarantined(truncated)[0]["reasons"][0]


def test_a_repaired_recording_is_taken_in_by_the_next_run(ingested):
    _, state, tasks = ingested["second"]

    assert state == "success"
    assert sum(label.startswith("vehicle_day.publish") for label in tasks) == 2
    assert {outcome["outcome"] for outcome in landing.outcomes("bundle")} == {"published"}
    assert steps.pending() == []


def test_each_task_of_a_vehicle_day_is_named_after_it(ingested):
    labels = [label for label in ingested["first"][2] if label.startswith("vehicle_day.")]

    days = {f"bundle / {vehicle} / {day}" for _, vehicle, day, _ in map(landing.key_of, ingested["landed"])}
    assert len(days) == 8
    assert all(any(day in label for day in days) for label in labels if ingested["first"][2][label] == "success")


def test_every_landed_row_is_used_or_rejected_for_a_reason(ingested, fleet):
    for location in ingested["landed"]:
        _, vehicle, day, recording = landing.key_of(location)
        (part,) = landing.outcome_of(location)["published"]["parts"]
        folder = fleet / "bundles" / vehicle / day / recording
        for sensor, entry in storage.read_json(str(folder / "meta.json"))["sensors"].items():
            file = folder / entry["file"]
            stored = len(pl.read_parquet(file) if file.suffix == ".parquet" else pl.read_csv(file))
            assert part["rows_used"][sensor] + sum(part["rejected"][sensor].values()) == stored, (recording, sensor)


def test_the_table_has_each_recording_once(ingested):
    table = storage.read_table(storage.lake("tables", "bundle"))

    landed = {landing.key_of(location)[3] for location in ingested["landed"]}
    assert len(landed) == 8
    assert landed <= set(table["recording_id"])
    assert table.select("vehicle", "t_utc_ns").is_unique().all()


def test_data_docs_are_served_behind_the_login(services, ingested):
    path = landing.outcome_of(ingested["landed"][2])["published"]["docs"].partition("/docs/")[2]
    document = f"{services.env['TRACKSIDE_AIRFLOW_URL']}/trackside/docs/{path}"

    anonymous = requests.get(f"{document}/index.html", timeout=30)
    token = _token(services.env)
    page = requests.get(f"{document}/index.html", headers={"Authorization": f"Bearer {token}"}, timeout=30)

    assert anonymous.status_code in (401, 403)
    assert page.status_code == 200
    assert "(simulated)" in page.text
    assert "bundle_sensors" in page.text


def test_training_is_one_mlflow_run_with_every_step_once(summary, retrained):
    run = mlflow.get_run(summary["mlflow_run"])
    runs = mlflow_runs("smoke", run.data.tags["trackside.run_key"])

    counts = logged_steps(run.info.run_id)
    assert [found.info.run_id for found in runs] == [run.info.run_id]
    assert run.info.status == "FINISHED"
    assert set(counts.values()) == {1}
    assert sorted(counts) == list(range(min(counts), summary["facts"]["steps"] + min(counts)))


def test_the_run_carries_recipe_data_scores_and_figures(summary):
    run = mlflow.get_run(summary["mlflow_run"])
    figures = {artifact.path for artifact in mlflow.MlflowClient().list_artifacts(run.info.run_id, "figures")}

    assert run.data.params["window.length_s"] == "300.0"
    assert run.inputs.dataset_inputs[0].dataset.source_type == "delta_table"
    assert {"test/pr_auc", "baseline_last_value/f1", "goodput/goodput"} <= run.data.metrics.keys()
    assert {
        "figures/loss.png",
        "figures/scores.png",
        "figures/precision_recall.png",
        "figures/worst_window.png",
    } <= figures


def test_kept_checkpoints_are_logged_models_with_their_step(summary):
    run = mlflow.get_run(summary["mlflow_run"])
    models = mlflow.search_logged_models(
        experiment_ids=[run.info.experiment_id],
        filter_string=f"source_run_id = '{run.info.run_id}'",
        output_format="list",
    )

    checkpoints = [model for model in models if "trackside.checkpoint" in model.tags]
    assert checkpoints
    assert all(storage.list_objects(model.tags["trackside.checkpoint"]) for model in checkpoints)
    assert len({model.params["step"] for model in checkpoints}) == len(checkpoints)


def test_the_champion_is_the_candidate_with_its_evidence_and_links(summary, retrained):
    version = mlflow.MlflowClient().get_model_version_by_alias("smoke", "champion")

    assert version.version == summary["champion"]
    assert version.run_id == summary["mlflow_run"]
    assert version.tags["trackside.simulated"] == "true"
    assert version.tags["trackside.table"].startswith("s3://trackside/tables/bundle@")
    assert requests.utils.quote(retrained) in version.tags["airflow_run"]


def test_a_late_recording_joins_its_day_and_marks_the_model_that_was_trained_without_it(
    airflow, ingested, fleet, summary, tmp_path
):
    _, vehicle, day, recording = landing.key_of(ingested["landed"][0])
    late = tmp_path / vehicle / day / f"{recording}-late"
    shutil.copytree(fleet / "bundles" / vehicle / day / recording, late)
    manifest = json.loads((late / "meta.json").read_text())
    (late / "meta.json").write_text(json.dumps(manifest | {"trip_id": late.name}))
    steps.land(str(tmp_path))

    run_id, state, tasks = ingest(airflow)

    marked = [name for run in airflow.returned("ingest_sensors", run_id, "mark_superseded") for name in run["marked"]]
    version = mlflow.MlflowClient().get_model_version("smoke", summary["champion"])
    mark = json.loads(version.tags["trackside.data_superseded"])
    assert (state, tasks["mark_superseded"]) == ("success", "success")
    assert f"smoke/{summary['champion']}" in marked
    assert mark["vehicle_days"] == [f"{vehicle} {day}"]
    assert mark["old_version"] < mark["new_version"]
    assert mlflow.get_run(summary["mlflow_run"]).data.tags["trackside.data_superseded"]


def test_a_large_file_that_is_delivered_again_has_the_same_digest(connection, tmp_path):
    """It travels in several parts, and the store's own print of it depends on them."""
    (tmp_path / "aba.parquet").write_bytes(bytes(range(256)) * 80_000)
    target = storage.lake("landing", "large", "07", "2026-01-12", "trip")

    digests = []
    for _ in range(2):
        storage.copy_tree(str(tmp_path), target)
        digests.append(storage.digest_of(target))

    storage.delete_objects(target)
    assert digests[0] == digests[1]


def test_the_same_delivery_again_is_not_taken_in(airflow, ingested, fleet):
    before = storage.table_version(storage.lake("tables", "bundle"))

    steps.land(str(fleet))

    assert steps.pending() == []
    assert storage.table_version(storage.lake("tables", "bundle")) == before


def test_the_task_links_to_its_mlflow_run(services, summary, retrained):
    links = _links(services.env, f"nightly_retrain/dagRuns/{requests.utils.quote(retrained)}/taskInstances/train/links")

    assert links["MLflow run"].endswith(summary["mlflow_run"])


def test_a_synchronisation_links_to_a_page_that_leads_to_the_charts_of_its_recordings(services, ingested):
    run = requests.utils.quote(ingested["second"][0])
    task = f"ingest_sensors/dagRuns/{run}/taskInstances/vehicle_day.synchronise/links?map_index=0"

    address = _links(services.env, task)["Time and place"]

    (first, *_) = re.findall(r'<a href="(sync/.*?)"', _page(services.env, address))
    assert "Clocks" in _page(services.env, address.removesuffix("sync.html") + first)


def test_the_run_of_a_training_leads_to_the_charts_of_what_it_saw(services, summary, tmp_path):
    path = mlflow.MlflowClient().download_artifacts(summary["mlflow_run"], "data_reports.json", str(tmp_path))

    reports = json.loads(Path(path).read_text())["reports"]
    assert reports
    assert reports[0]["recording_id"] in _page(services.env, reports[0]["address"])


def test_the_champion_scores_new_rows_from_the_shell(fleet, summary, tmp_path):
    bundle = sorted((fleet / "bundles").glob("*/*/*"))[-1]

    result = steps.score("models:/smoke@champion", data=str(bundle), out=str(tmp_path / "scores.csv"))

    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "vehicle,recording_id,t_start_utc,t_end_utc,score,is_anomaly"
    assert len(lines) - 1 == result["rows"] == result["scored"] > 0


def test_a_value_that_the_form_forbids_is_refused(services):
    answer = requests.post(
        f"{services.env['TRACKSIDE_AIRFLOW_URL']}/api/v2/dags/nightly_retrain/dagRuns",
        json={"logical_date": None, "conf": {"recipe": "smoke", "workers": 0}},
        headers={"Authorization": f"Bearer {_token(services.env)}"},
        timeout=30,
    )

    assert answer.status_code == 400
    assert "workers" in answer.text


def test_nothing_talked_to_another_host(talked_to, summary):
    time.sleep(1)

    assert "127.0.0.1" in talked_to  # the watch sees something
    assert {ip for ip in talked_to if not _is_here(ip)} == set()


def _quarantined(location):
    objects = storage.list_objects(storage.lake("quarantine", *landing.key_of(location)))
    return [storage.read_json(found) for found in objects if storage.name_of(found) == "report.json"]


def _links(env, task):
    url = f"{env['TRACKSIDE_AIRFLOW_URL']}/api/v2/dags/{task}"
    return requests.get(url, headers={"Authorization": f"Bearer {_token(env)}"}, timeout=30).json()["extra_links"]


def _page(env, address):
    """A page of ours, which nobody sees who does not say who they are."""
    assert requests.get(address, timeout=30).status_code == 401
    answer = requests.get(address, headers={"Authorization": f"Bearer {_token(env)}"}, timeout=30)
    assert answer.status_code == 200, address
    return answer.text


def _token(env):
    login = {"username": env["TRACKSIDE_AIRFLOW_USERNAME"], "password": env["TRACKSIDE_AIRFLOW_PASSWORD"]}
    return requests.post(f"{env['TRACKSIDE_AIRFLOW_URL']}/auth/token", json=login, timeout=60).json()["access_token"]


def _is_here(ip):
    return ip.startswith("127.") or ip in {"::1", "::ffff:127.0.0.1", "0.0.0.0", "::"}
