import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.channels import BUNDLE_SENSORS
from pipelines.clocks.calibrate import calibrate
from pipelines.clocks.fit import fit_pairs
from pipelines.ingest import modena
from pipelines.ingest.reader import ClockSpec, Encoding, Recording, SensorRows

SHARED_DATA = Path(os.environ.get("TRACKSIDE_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
START_MS = 1_767_600_000_000


def recording(sensors, **fields):
    return Recording(source="bundle", vehicle="v", day="2026-01-05", recording_id="r", sensors=sensors, **fields)


def pressure(ts, *, values=None, encoding=Encoding.EPOCH_MS, rate_hz=10.0, latency_ms=0.0):
    n = len(ts)
    noise = np.random.default_rng(0).normal(8.5, 0.1, size=(3, n))
    columns = dict(zip(("res_bar", "pipe_bar", "comp_on"), noise, strict=True)) if values is None else values
    return SensorRows(
        sensor="pneu",
        rows=pl.DataFrame({"row": range(n), **dict(zip(encoding.columns, [ts], strict=True)), **columns}),
        channels=BUNDLE_SENSORS["pneu"],
        clock_id="c",
        encoding=encoding,
        nominal_rate_hz=rate_hz,
        latency_ms=latency_ms,
    )


def events(ts, kinds):
    return SensorRows(
        sensor="evt",
        rows=pl.DataFrame({"row": range(len(ts)), "ts": ts, "kind": kinds, "ref": [""] * len(ts)}),
        channels=BUNDLE_SENSORS["evt"],
        clock_id="c",
        encoding=Encoding.EPOCH_MS,
        nominal_rate_hz=None,
    )


def test_the_stamp_is_taken_the_latency_after_the_instant():
    ts = START_MS + np.arange(0, 5_000, 100)

    times = calibrate(recording({"pneu": pressure(ts, latency_ms=40.0)})).times["pneu"]

    assert (times.utc_ns_T == (ts - 40) * 1_000_000).all()


def test_rows_stored_late_are_used_in_their_place():
    ts = START_MS + np.r_[0, 100, 300, 400, 200, 500]

    times = calibrate(recording({"pneu": pressure(ts)})).times["pneu"]

    assert times.used.tolist() == [0, 1, 4, 2, 3, 5]
    assert times.num_rejected == {}


def test_a_row_that_was_stored_twice_is_used_once():
    ts = START_MS + np.r_[0, 100, 200, 200, 300]
    sensor = pressure(ts)
    again = sensor.rows[[0, 1, 2, 2, 4]].with_columns(row=pl.Series(range(5)))

    times = calibrate(recording({"pneu": pressure(ts, values=dict(again.drop("row", "ts").to_dict()))})).times["pneu"]

    assert times.num_rejected == {"duplicate": 1}
    assert times.used.tolist() == [0, 1, 2, 4]


def test_two_different_rows_may_share_a_millisecond():
    times = calibrate(recording({"pneu": pressure(START_MS + np.r_[0, 100, 200, 200, 300])})).times["pneu"]

    assert times.num_rejected == {}


def test_of_a_clock_that_stands_still_two_rows_are_used():
    times = calibrate(recording({"pneu": pressure(np.full(50, START_MS))})).times["pneu"]

    assert times.num_rejected == {"duplicate": 48}


def test_two_events_at_one_instant_are_both_used():
    sensors = {"evt": events([START_MS, START_MS, START_MS + 9_000], ["door_open", "balise", "door_close"])}

    assert calibrate(recording(sensors)).times["evt"].used.tolist() == [0, 1, 2]


def test_an_event_outside_the_trip_is_rejected():
    sensors = {
        "pneu": pressure(START_MS + np.arange(0, 60_000, 100)),
        "evt": events(
            [START_MS + 5_000, START_MS + 4_000_000, START_MS + 9_000], ["door_open", "balise", "door_close"]
        ),
    }

    times = calibrate(recording(sensors)).times["evt"]

    assert times.num_rejected == {"bad_stamp": 1}
    assert times.used.tolist() == [0, 2]


def exchanges_of_clock(offsets_ns, dev_ns, *, rtt_ns=400_000):
    """A log of honest exchanges with one server."""
    utc_ns = dev_ns + offsets_ns
    return pl.DataFrame(
        {
            "clock_id": ["c"] * len(dev_ns),
            "server_id": ["ntp-a"] * len(dev_ns),
            "t1_dev": dev_ns - rtt_ns // 2,
            "t2_srv": utc_ns,
            "t3_srv": utc_ns,
            "t4_dev": dev_ns + rtt_ns // 2,
            "stratum": [1] * len(dev_ns),
            "root_dispersion_ms": [1.0] * len(dev_ns),
        }
    )


def tied(ts, *, offset_ms=0, rate_hz=10.0):
    """A recording whose clock runs `offset_ms` behind UTC for half an hour from `START_MS` on."""
    dev_ns = (START_MS - offset_ms) * 1_000_000 + np.arange(0, 1_800, 16) * 10**9
    return recording(
        {"pneu": pressure(ts, rate_hz=rate_hz)},
        clocks={"c": ClockSpec(clock_id="c", kind="epoch", ntp=True)},
        exchanges=exchanges_of_clock(np.full(len(dev_ns), offset_ms * 1_000_000), dev_ns),
    )


def test_rows_days_from_all_exchanges_have_no_clock():
    ts = np.r_[START_MS + np.arange(0, 60_000, 100), START_MS + 3 * 86_400_000 + np.arange(0, 60_000, 100)]

    times = calibrate(tied(ts)).times["pneu"]

    assert times.num_rejected == {"no_clock": 600}
    assert times.used.tolist() == list(range(600))


def test_a_sensor_that_is_not_as_fast_as_declared_is_corrected_by_its_own_beat():
    random = np.random.default_rng(0)
    true_ms = START_MS + np.arange(0, 600_000, 100)
    ts = true_ms + random.exponential(2.0, len(true_ms)).astype(np.int64)

    times = calibrate(tied(ts, rate_hz=50.0)).times["pneu"]

    assert np.abs(times.utc_ns_T - true_ms * 1_000_000).max() < 1e6


def test_a_few_rows_are_as_uncertain_as_stamps_usually_are():
    times = calibrate(tied(START_MS + np.array([500]))).times["pneu"]

    assert times.used.tolist() == [0]
    assert 2e6 < times.sigma_ns_T[0] < 5e6


def test_events_are_as_uncertain_as_the_stamps_of_their_device():
    random = np.random.default_rng(0)
    late_ms = random.exponential(5.0, 3_000).astype(np.int64)
    made = tied(START_MS + np.arange(3_000) * 100 + late_ms)
    made.sensors["evt"] = events(START_MS + np.array([1_000, 50_000]), ["door_open", "door_close"])

    calibration = calibrate(made)

    assert calibration.times["pneu"].sigma_ns_T.max() < 1e6
    assert 5e6 < calibration.times["evt"].sigma_ns_T.min() < 9e6


def test_an_event_at_a_time_that_the_clock_showed_twice_is_as_uncertain_as_the_step():
    # The clock is set back by 800 ms after 900 s; the rows are regular, so when is known to within 100 ms.
    true_ms = np.arange(0, 1_800_000, 100)
    shown_ms = START_MS + true_ms - np.where(true_ms < 900_000, 0, 800)
    at_s = np.arange(0, 1_800, 16)
    made = recording(
        {"pneu": pressure(shown_ms), "evt": events(START_MS + np.array([800_000, 899_700, 950_000]), ["a", "b", "c"])},
        clocks={"c": ClockSpec(clock_id="c", kind="epoch", ntp=True)},
        exchanges=exchanges_of_clock(
            np.where(at_s < 900, 0, 800_000_000), (START_MS + at_s * 1_000 - np.where(at_s < 900, 0, 800)) * 1_000_000
        ),
    )

    calibration = calibrate(made)

    sigma_ns_T = calibration.times["evt"].sigma_ns_T
    assert calibration.times["evt"].num_rejected == {}
    assert sigma_ns_T[1] == pytest.approx(400e6, rel=0.05)
    assert sigma_ns_T[[0, 2]].max() < 10e6
    assert calibration.times["pneu"].num_rejected == {}
    assert np.abs(calibration.times["pneu"].utc_ns_T - (START_MS + true_ms) * 1_000_000).max() < 1e6


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([Encoding.EPOCH_MS, Encoding.TICKS_US_U32, Encoding.UPTIME_NS]),
    st.lists(st.integers(-(2**53), 2**53), max_size=30),
    st.lists(st.integers(0, 2**44), max_size=4),
    st.booleans(),
    st.sampled_from([0.1, 10.0, 1_000.0, None]),
)
def test_whatever_stamps_say_every_row_is_used_or_has_a_fault(encoding, stamps, asked, has_ntp, rate_hz):
    kind = "epoch" if encoding is Encoding.EPOCH_MS else "ticks"
    ticks = [stamp % 2**32 for stamp in stamps] if encoding is Encoding.TICKS_US_U32 else stamps
    made = recording(
        {"pneu": pressure(np.array(ticks, dtype=np.int64), encoding=encoding, rate_hz=rate_hz)},
        clocks={"c": ClockSpec(clock_id="c", kind=kind, ntp=has_ntp)},
        exchanges=exchanges_of_clock(np.zeros(len(asked), dtype=np.int64), np.array(asked, dtype=np.int64)),
    )

    times = calibrate(made).times["pneu"]

    assert sorted(times.used.tolist()) == np.flatnonzero(times.fault_T == 0).tolist()
    assert (np.diff(times.utc_ns_T[times.used]) >= 0).all()
    assert (times.sigma_ns_T[times.used] > 0).all()


def test_a_tick_counter_without_any_tie_has_no_clock():
    sensor = pressure(np.arange(100) * 100_000, encoding=Encoding.TICKS_US_U32)

    calibration = calibrate(recording({"pneu": sensor}, clocks={"c": ClockSpec(clock_id="c", kind="ticks")}))

    assert calibration.maps == {}
    assert calibration.times["pneu"].num_rejected == {"no_clock": 100}


def test_times_by_a_sensors_own_clock_are_on_its_beat():
    """As they will be once the clock is tied: who ties it by late stamps puts the rows earlier by the mean delay."""
    random = np.random.default_rng(4)
    turns_ms = np.arange(0, 600_000, 100)
    stamped_ms = np.rint(turns_ms + random.exponential(4.0, len(turns_ms))).astype(np.int64)
    sensor = pressure((START_MS + stamped_ms).tolist())
    calibration = calibrate(recording({"pneu": sensor}))

    own = calibration.own_times(sensor)

    assert np.median(stamped_ms - turns_ms) > 2.0
    assert np.abs((own.utc_ns_T - START_MS * 10**6) * 1e-6 - turns_ms).max() < 1.0


def test_a_node_clock_is_tied_by_pairs_of_device_time_and_utc():
    uptime_ns = (np.arange(0, 60, 0.1) * 1e9).astype(np.int64)
    pairs = pl.DataFrame(
        {"t_dev_ns": [0, 50_000_000_000], "t_utc_ns": [START_MS * 1_000_000] * 2, "sigma_ns": [1_000] * 2}
    )
    pairs = pairs.with_columns(t_utc_ns=pl.col("t_utc_ns") + (pl.col("t_dev_ns") * 1.003).cast(pl.Int64))
    sensor = pressure(uptime_ns, encoding=Encoding.UPTIME_NS)

    times = calibrate(recording({"pneu": sensor}, time_pairs=pairs)).times["pneu"]

    assert times.utc_ns_T == pytest.approx(START_MS * 1_000_000 + uptime_ns * 1.003, abs=1e4)


def test_the_node_of_a_real_train_runs_three_parts_per_thousand_slow():
    runs = sorted((SHARED_DATA / "modena-train-imu-gnss").glob("20221019_*_SN1_sample.csv"))
    if not runs:
        pytest.skip("the Modena logs are not here")
    pairs = pl.concat(part.time_pairs for run in runs for part in modena.read(str(run)) if part.time_pairs is not None)
    assert pairs.height >= 4

    fitted = fit_pairs(
        "node", *(pairs[name].to_numpy() for name in ("t_dev_ns", "t_utc_ns")), pairs["sigma_ns"].to_numpy()
    )

    assert 3_000.0 < fitted.drift_ppm < 3_300.0
    mapped_ns, sigma_ns = fitted.to_utc(pairs["t_dev_ns"].to_numpy())
    assert (np.abs(mapped_ns - pairs["t_utc_ns"].to_numpy()) < 4 * sigma_ns + 4e6).all()
