"""What the suites in `expectations/` let pass, and which of their expectations catches which fault."""

import json
import shutil
from contextlib import suppress

import polars as pl
import pytest

from pipelines import judgement, staging, steps, storage, validation
from pipelines.errors import DataQualityError
from pipelines.ingest import landing
from pipelines.simulate import simulate_trip, write_bundle
from pipelines.suites import columns_of

COVERAGE, GAPS = "expect_column_coverage_to_be_at_least", "expect_column_gaps_to_be_at_most"
AGREE, BETWEEN = "expect_column_pair_to_agree", "expect_column_values_to_be_between"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A trip with the usual faults of its recorder."""
    folder = tmp_path_factory.mktemp("trip") / "bundle"
    write_bundle(simulate_trip(seed=3, trip_minutes=20.0, aba_rate_hz=10.0), folder)
    return folder


@pytest.fixture(scope="module")
def staged_once(bundle, tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKSIDE_LAKE", str(lake))
        return lake, staging.stage(landing.land_bundles(str(bundle)))


@pytest.fixture
def staged(staged_once, monkeypatch):
    """The trip, staged; what a test changes in its report is put back."""
    lake, location = staged_once
    monkeypatch.setenv("TRACKSIDE_LAKE", str(lake))
    report = storage.read_bytes(storage.join(location, staging.REPORT))
    yield location
    storage.write_bytes(storage.join(location, staging.REPORT), report)


def failures_of(staged):
    """What a staged batch fails for: suite, expectation, column."""
    with suppress(DataQualityError):
        judgement.judge(staged)
    verdicts = storage.read_json(storage.join(staged, staging.VERDICT))["suites"]
    return {
        (suite, check["type"], check["kwargs"].get("column") or check["kwargs"].get("column_A"))
        for suite, verdict in verdicts.items()
        for check in verdict["checks"]
        if not check["passed"]
    }


def change_meta(folder, **changes):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | changes))


def change_rows(folder, sensor, change):
    path = folder / json.loads((folder / "meta.json").read_text())["sensors"][sensor]["file"]
    if path.suffix == ".csv":
        change(pl.read_csv(path, infer_schema=False)).write_csv(path)
    else:
        change(pl.read_parquet(path)).write_parquet(path)


def in_other_unit(rows):
    return rows.with_columns((pl.col("speed_mps").cast(pl.Float64) * 1.3).cast(rows.schema["speed_mps"]))


def with_gauges_swapped(rows):
    return rows.rename({"res_bar": "pipe_bar", "pipe_bar": "res_bar"})


FAULTS = {
    "none": (lambda bundle: None, set()),
    "leap seconds forgotten": (
        lambda bundle: change_meta(bundle, gps_minus_utc_s=0),
        {
            ("bundle_skews", "expect_skew_to_be_no_leap_seconds", None),
            ("bundle_skews", "expect_skew_to_be_at_most", None),
        },
    ),
    "a third of a file stored twice": (
        lambda bundle: change_rows(bundle, "trk", lambda rows: pl.concat([rows, rows[: len(rows) // 3]])),
        {("bundle_sensors", BETWEEN, "duplicate_share"), ("bundle_sensors", BETWEEN, "rejected_share")},
    ),
    "odometer lost after a third": (
        lambda bundle: change_rows(bundle, "odo", lambda rows: rows[: len(rows) // 3]),
        {("bundle", COVERAGE, "odo_speed_mps")},
    ),
    "odometer silent in between": (
        lambda bundle: change_rows(
            bundle, "odo", lambda rows: pl.concat([rows[: len(rows) // 10], rows[-len(rows) // 20 :]])
        ),
        {
            ("bundle", COVERAGE, "odo_speed_mps"),
            ("bundle", GAPS, "odo_speed_mps"),
            ("bundle_sensors", BETWEEN, "largest_gap_s"),
        },
    ),
    "two of three rows lost": (
        lambda bundle: change_rows(bundle, "pneu", lambda rows: rows[::3]),
        {("bundle_sensors", BETWEEN, "rate_ratio"), ("bundle_sensors", BETWEEN, "regular_share")},
    ),
    "rows in no order": (
        lambda bundle: change_rows(bundle, "trk", lambda rows: rows.sample(fraction=1.0, shuffle=True, seed=1)),
        {("bundle_sensors", BETWEEN, "out_of_order_share")},
    ),
    "gauges swapped": (
        lambda bundle: change_rows(bundle, "pneu", with_gauges_swapped),
        {("bundle_sensors", BETWEEN, "distrusted_share")},
    ),
    "radar in another unit": (
        lambda bundle: change_rows(bundle, "dop", in_other_unit),
        {("bundle", AGREE, "odo_speed_mps")},
    ),
}


CONSEQUENCES = {
    "leap seconds forgotten": {
        ("bundle", "expect_position_uncertainty_to_be_at_most", None),
        ("bundle", AGREE, "odo_speed_mps"),
    }
}
"""What else is wrong because of a fault, more or less, as well as the chain can help itself."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_recording_is_caught_by_what_is_there_for_it(lake, bundle, tmp_path, fault):
    damage, caught_by = FAULTS[fault]
    damaged = tmp_path / "bundle"
    shutil.copytree(bundle, damaged)
    damage(damaged)

    failures = failures_of(staging.stage(landing.land_bundles(str(damaged))))

    assert failures - CONSEQUENCES.get(fault, set()) == caught_by


def test_local_time_read_in_the_wrong_zone_is_called_by_its_name(lake, bundle, tmp_path):
    shutil.copytree(bundle, tmp_path / "bundle")
    change_meta(tmp_path / "bundle", time_zone="UTC")
    staged = staging.stage(landing.land_bundles(str(tmp_path / "bundle")))

    with pytest.raises(DataQualityError) as raised:
        judgement.judge(staged)

    assert "No sensor is whole hours apart from the others" in str(raised.value)
    assert "pneu +1 h" in str(raised.value)


def set_clock(clock_id, **facts):
    return lambda part: part["clocks"][clock_id].update(facts)


def set_sensor(name, **facts):
    return lambda part: next(one for one in part["sensors"] if one["sensor"] == name).update(facts)


EVIDENCE = {
    "residual": (
        set_clock("axle", residual_p99_ms=300.0),
        ("bundle_clocks", "expect_clock_residual_to_be_at_most", None),
    ),
    "drift": (
        set_clock("axle", drift_ppm=-12_000.0),
        ("bundle_clocks", "expect_clock_drift_to_be_at_most", None),
    ),
    "uncertainty": (
        set_clock("axle", sigma_max_ms=900.0),
        ("bundle_clocks", "expect_clock_uncertainty_to_be_at_most", None),
    ),
    "steps": (set_clock("axle", steps_ms=[5.0] * 30), ("bundle_clocks", BETWEEN, "num_steps_ms")),
    "method": (
        set_clock("axle", method="guess"),
        ("bundle_clocks", "expect_column_values_to_be_in_set", "method"),
    ),
    "hour": (set_sensor("pneu", hour_jumps=1), ("bundle_sensors", BETWEEN, "hour_jumps")),
    "gap": (set_sensor("gnss", largest_gap_s=1200.0), ("bundle_sensors", BETWEEN, "largest_gap_s")),
    "rejected": (set_sensor("tmp", rejected_share=0.3), ("bundle_sensors", BETWEEN, "rejected_share")),
    "skew": (
        lambda part: part["skews"][0].update(skew_ms=800.0, sigma_ms=10.0),
        ("bundle_skews", "expect_skew_to_be_at_most", None),
    ),
}


@pytest.mark.parametrize("number", EVIDENCE)
def test_a_number_that_is_too_large_is_caught_by_its_own_expectation(staged, number):
    change, caught_by = EVIDENCE[number]
    report = storage.read_json(storage.join(staged, staging.REPORT))
    change(report["recordings"][0]["parts"][0])
    storage.write_json(storage.join(staged, staging.REPORT), report)

    assert failures_of(staged) == {caught_by}


def test_a_clock_that_nothing_ties_to_utc_is_judged_by_nothing_it_lacks(staged):
    report = storage.read_json(storage.join(staged, staging.REPORT))
    nothing = dict.fromkeys(("residual_p99_ms", "drift_ppm", "floor_ms"))
    report["recordings"][0]["parts"][0]["clocks"] = {
        "logger": {"method": "unchecked", "sigma_max_ms": 2000.0, "steps_ms": [], **nothing}
    }
    report["recordings"][0]["parts"][0]["skews"] = []
    storage.write_json(storage.join(staged, staging.REPORT), report)

    assert failures_of(staged) == set()


@pytest.mark.parametrize("num_rows", [0, 1])
@pytest.mark.parametrize("source", ["bundle", "modena", "metropt3", "barcelona_lte"])
def test_a_batch_with_next_to_nothing_in_it_is_judged_and_breaks_no_expectation_off(source, num_rows):
    """No sensor has a reading, no number was measured; whether that is right is for the suites to say."""
    texts = {"vehicle": "07", "day": "2026-01-05", "recording_id": "r", "part": "p", "method": "unchecked"}
    texts |= {"sensor": "odo", "reference": "odo", "clock_id": "c"}
    for table in ("", "_sensors", "_clocks", *(["_skews"] if source == "bundle" else [])):
        columns = {name: [text] for name, text in texts.items()} | {"t_utc_ns": [1_767_589_200 * 10**9]}
        columns |= {"skew_ms": [1.0], "sigma_ms": [1.0], "position_sigma_m": [None], "behind_others_s": [None]}
        columns |= {"drift_ppm": [None], "residual_p99_ms": [None], "sigma_max_ms": [None]}
        columns |= {name: [None] for name in columns_of(source + table) if name not in columns}

        verdict = validation.check(pl.DataFrame(columns).head(num_rows), suite=source + table)

        assert [check for check in verdict.checks if "could not be evaluated" in check.observed] == []


def test_the_verdict_keeps_the_numbers_of_every_suite(staged):
    judgement.judge(staged)

    verdicts = storage.read_json(storage.join(staged, staging.VERDICT))["suites"]
    assert set(verdicts) == {"bundle", "bundle_sensors", "bundle_clocks", "bundle_skews"}
    (residual,) = [c for c in verdicts["bundle_clocks"]["checks"] if "residual" in c["type"]]
    assert residual["kwargs"]["max_ms"] == 250
    assert 0 < residual["value"] < 250
    assert residual["passed"]


@pytest.mark.parametrize("source", ["metropt3-apu-raw", "modena-train-imu-gnss", "barcelona-lte-cells"])
def test_published_recordings_pass_as_they_are(lake, real_data, source):
    for location in steps.land(str(real_data(source))):
        assert failures_of(staging.stage([location])) == set(), location
