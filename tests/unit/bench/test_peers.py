import numpy as np
import polars as pl
import pytest

from pipelines.bench import accuracy, peers
from pipelines.clocks.calibrate import calibrate
from pipelines.ingest.bundle import read_bundle
from pipelines.simulate import Difficulty, simulate_trip, write_bundle

TICKING = Difficulty(num_steps={}, lying_share=0.0, radar_encoding="ticks_us_u32")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A trip whose clocks neither step nor are lied to, and its stamps."""
    trip = simulate_trip(seed=2, trip_minutes=12.0, aba_rate_hz=50.0, difficulty=TICKING)
    folder = tmp_path_factory.mktemp("peers") / "bundle"
    write_bundle(trip, folder)
    recording = read_bundle(str(folder))
    return trip, recording, calibrate(recording).stamps


def test_pyxdf_puts_undisturbed_clocks_within_what_is_published_of_it(undisturbed):
    """Below 1 ms on a good network, says the Lab Streaming Layer; stamps late by jitter come on top."""
    trip, recording, stamps = undisturbed

    errors_ms = accuracy.time_errors_ms(trip, peers.with_pyxdf(recording, stamps, dejitter=False))

    assert np.median(np.abs(errors_ms["aba"])) < 1.0
    assert np.median(np.abs(errors_ms["trk"])) < 1.0
    assert np.median(np.abs(errors_ms["tmp"])) < 10.0
    assert np.median(np.abs(errors_ms["gnss"])) == 0.0


def test_pyxdf_lays_a_line_through_the_rows_if_asked(undisturbed):
    _, recording, stamps = undisturbed

    found = {
        is_straight: peers.with_pyxdf(recording, stamps, dejitter=is_straight)
        .filter(pl.col("sensor") == "trk")["t_utc_ns"]
        .diff(2, null_behavior="drop")
        for is_straight in (True, False)
    }

    assert found[True].std() < 2.0  # rounding to nanoseconds
    assert found[False].std() > 1e5


def test_a_counter_without_exchanges_is_beyond_pyxdf(undisturbed):
    _, recording, stamps = undisturbed

    sensors = set(peers.with_pyxdf(recording, stamps, dejitter=True)["sensor"])

    assert sensors == recording.sensors.keys() - {"dop"}


def test_believed_stamps_are_off_by_the_error_of_their_clock(undisturbed):
    trip, recording, stamps = undisturbed

    errors_ms = accuracy.time_errors_ms(trip, peers.as_stamped(recording, stamps))

    for sensor, clock_id in (("odo", "control"), ("trk", "geometry"), ("pneu", "brake")):
        offset_ms = trip.truth.facts["clocks"][clock_id]["offset_s"] * 1e3
        assert np.median(errors_ms[sensor]) == pytest.approx(offset_ms, abs=80.0), sensor
    assert np.abs(errors_ms["aba"]).min() < 600e3  # a counter starts when the hint says, which is within ten minutes


def test_pandas_joins_the_last_row_of_every_sensor_before_each_instant(undisturbed):
    _, recording, stamps = undisturbed
    rows = peers.as_stamped(recording, stamps)
    gnss = rows.filter(pl.col("sensor") == "gnss").join(recording.sensors["gnss"].rows, on="row")
    grid_ns = np.sort(gnss["t_utc_ns"].to_numpy())[100:200] + 500_000_000

    joined = peers.joined_with_pandas(recording, rows, grid_ns)

    assert len(joined) == len(grid_ns)
    assert "aba_acc_g" in joined
    speed = dict(zip(gnss["t_utc_ns"], gnss["speed_mps"], strict=True))
    expected = [speed[int(t) - 500_000_000] for t in grid_ns]
    assert np.array_equal(joined["gnss_speed_mps"].to_numpy(), np.array(expected, dtype=float), equal_nan=True)
