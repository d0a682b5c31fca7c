"""Rows of simulated trips against the truth about them."""

import numpy as np
import polars as pl
import pytest

from pipelines.clocks.calibrate import calibrate
from pipelines.ingest import bundle
from pipelines.simulate import simulate_trip
from pipelines.simulate.difficulty import level
from pipelines.simulate.fleet import write_bundle

BARS_MS = {"odo": (0.3, 2.0), "aba": (0.3, 2.0), "trk": (0.3, 2.0), "pneu": (0.7, 5.0), "tmp": (8.0, 12.0)}
"""Median and 99 % quantile of the time error that each sensor must stay below."""


@pytest.fixture(scope="module", params=["default", "steps", "close_steps", "drift", "jitter", "autumn"])
def trip(request, tmp_path_factory):
    """A recording, its calibration, and the true instants (null: must be rejected) and reasons of its rows."""
    made = simulate_trip(seed=11, vehicle=1, trip_minutes=12.0, aba_rate_hz=50.0, difficulty=level(request.param))
    folder = tmp_path_factory.mktemp(request.param)
    write_bundle(made, folder)
    recording = bundle.read_bundle(str(folder))
    return recording, calibrate(recording), made.truth.rows


def errors_of(trip, name):
    """Errors and standard errors of the accepted good rows, in nanoseconds."""
    _, calibration, truth = trip
    times = calibration.times[name]
    is_known = truth[name]["t_utc_ns"].is_not_null().to_numpy()
    rows = times.used[is_known[times.used]]
    return times.utc_ns_T[rows] - truth[name]["t_utc_ns"][rows].to_numpy(), times.sigma_ns_T[rows]


@pytest.mark.parametrize("name", BARS_MS)
def test_rows_are_put_where_they_happened(trip, name):
    error_ns, _ = errors_of(trip, name)

    median_ms, p99_ms = np.percentile(np.abs(error_ns), [50, 99]) * 1e-6
    assert median_ms < BARS_MS[name][0]
    assert p99_ms < BARS_MS[name][1]


@pytest.mark.parametrize("name", BARS_MS)
def test_errors_are_as_large_as_they_are_said_to_be(trip, name):
    recording, calibration, _ = trip
    error_ns, sigma_ns = errors_of(trip, name)
    floor_ns = calibration.maps[recording.sensors[name].clock_id].residuals.floor_ns

    assert np.mean(np.abs(error_ns) < 2.0 * sigma_ns + floor_ns) > 0.94


@pytest.mark.parametrize("name", [*BARS_MS, "evt"])
def test_spoilt_and_repeated_rows_go_and_good_ones_stay(trip, name):
    _, calibration, truth = trip
    is_used = calibration.times[name].fault_T == 0
    reason = truth[name]["reason"].fill_null("")
    is_good = truth[name]["t_utc_ns"].is_not_null().to_numpy()

    assert not is_used[reason.is_in(["bad_stamp", "duplicate"]).to_numpy()].any()
    assert (~is_used[is_good]).sum() <= max(1, 0.002 * is_good.sum())


def test_the_table_of_the_truth_is_that_of_the_rows(trip):
    recording, _, truth = trip

    for name, sensor in recording.sensors.items():
        assert sensor.rows["row"].equals(pl.Series("row", truth[name]["row"]).cast(pl.Int64))
