"""Input that ties a clock or a place to nothing, or to a lie: what comes back is uncertain or rejected, never a guess.

Truth is known, so "uncertain" is measured: an accepted row lies within three times its standard error.
"""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.ingest import bundle
from pipelines.simulate.fleet import write_bundle
from pipelines.simulate.trip import simulate_trip
from pipelines.sync import synchronise
from pipelines.sync.rows import batches

FLOOR_NS = 30e6
"""Half of the longest of the shortest round trips (cellular): what no clock map can see, which it states apart."""


@pytest.fixture(scope="module")
def trip():
    return simulate_trip(seed=5, trip_minutes=12.0, aba_rate_hz=20.0)


@pytest.fixture(scope="module")
def recording(trip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad") / trip.trip_id
    write_bundle(trip, folder)
    return bundle.read_bundle(str(folder))


def without(recording, clock_id):
    return replace(recording, exchanges=recording.exchanges.filter(pl.col("clock_id") != clock_id))


def only_first(recording, clock_id):
    is_own = pl.col("clock_id") == clock_id
    first = recording.exchanges.filter(is_own & (pl.col("stratum") < 16)).head(1)
    return replace(recording, exchanges=pl.concat([recording.exchanges.filter(~is_own), first]))


def all_lie(recording, clock_id):
    """Every server is wrong, each by its own."""
    lies_ns = dict(
        zip(recording.exchanges["server_id"].unique().sort(), [300_000_000, -500_000_000, 900_000_000], strict=True)
    )
    lie_ns = pl.col("server_id").replace_strict(lies_ns, return_dtype=pl.Int64)
    lied = recording.exchanges.with_columns(
        pl.when(pl.col("clock_id") == clock_id).then(pl.col(stamp) + lie_ns).otherwise(pl.col(stamp)).alias(stamp)
        for stamp in ("t2_srv", "t3_srv")
    )
    return replace(recording, exchanges=lied)


def with_rows(recording, sensor, change):
    own = recording.sensors[sensor]
    return replace(recording, sensors=recording.sensors | {sensor: replace(own, rows=change(own.rows))})


def rows_of(synced, sensor):
    return pl.concat([pl.from_arrow(batch) for batch in batches(synced, sensor)])


def errors(trip, synced, sensor):
    """Of the accepted rows of a sensor: error and standard error, in nanoseconds."""
    rows = rows_of(synced, sensor).join(
        trip.truth.rows[sensor].select(pl.col("row").cast(pl.Int64), truth="t_utc_ns"), on="row"
    )
    rows = rows.drop_nulls(["t_utc_ns", "truth"])
    return (rows["t_utc_ns"] - rows["truth"]).abs().to_numpy(), rows["sigma_ns"].to_numpy()


@pytest.mark.parametrize("damage", [without, only_first, all_lie])
@pytest.mark.parametrize(("clock_id", "sensor"), [("geometry", "trk"), ("brake", "pneu"), ("axle", "tmp")])
def test_a_clock_that_is_hardly_tied_is_as_uncertain_as_it_is_wrong(trip, recording, damage, clock_id, sensor):
    synced = synchronise(damage(recording, clock_id))

    error_ns, sigma_ns = errors(trip, synced, sensor)
    assert len(error_ns)
    assert np.median(sigma_ns) > 20e6
    assert (error_ns <= 3.0 * sigma_ns + FLOOR_NS).mean() > 0.99


def test_a_counter_without_exchanges_has_no_place_in_time(recording):
    synced = synchronise(without(recording, "vibration"))

    assert synced.rows_used["aba"] == 0
    assert synced.rejected["aba"] == {"no_clock": synced.rows_in["aba"]}


def test_what_one_clock_lacks_does_not_touch_the_others(trip, recording):
    synced = synchronise(without(recording, "geometry"))

    error_ns, _ = errors(trip, synced, "pneu")
    assert np.percentile(error_ns, 99) < 5e6


def test_fixes_of_week_0_are_rejected_and_the_balises_say_where_the_train_is(trip, recording):
    synced = synchronise(with_rows(recording, "gnss", lambda rows: rows.with_columns(gps_week=pl.lit(0, pl.Int64))))

    assert synced.rows_used["gnss"] == 0
    assert set(synced.rejected["gnss"]) == {"bad_stamp"}
    assert place_errors(trip, synced, "pneu").max() < 20.0


def test_an_odometer_that_never_moves_is_not_believed(trip, recording):
    synced = synchronise(with_rows(recording, "odo", lambda rows: rows.with_columns(pulses=pl.lit(77, pl.Int64))))

    assert np.median(place_errors(trip, synced, "pneu")) < 2.0


def test_beyond_a_route_that_ends_too_early_there_is_no_place(trip, recording):
    half = recording.route.head(recording.route.height // 3)

    synced = synchronise(replace(recording, route=half, balises=recording.balises.head(0)))

    rows = rows_of(synced, "pneu")
    assert rows["line_m"].drop_nulls().is_between(half["line_m"].min() - 100.0, half["line_m"].max() + 100.0).all()
    assert rows["t_utc_ns"].null_count() < 0.01 * rows.height


@pytest.mark.parametrize("sensor", ["tmp", "pneu", "trk"])
def test_a_file_of_one_row_gives_that_row_its_instant_or_none(trip, recording, sensor):
    synced = synchronise(with_rows(recording, sensor, lambda rows: rows.head(1)))

    error_ns, sigma_ns = errors(trip, synced, sensor)
    assert synced.rows_in[sensor] == 1
    assert (error_ns <= 3.0 * sigma_ns + FLOOR_NS).all()


def test_two_sensors_that_write_one_clock_in_two_units_agree(trip, recording):
    tmp = recording.sensors["tmp"]
    coarse = tmp.rows.with_columns(pl.col("ts").round(1))

    synced = synchronise(
        replace(recording, sensors=recording.sensors | {"coarse": replace(tmp, sensor="coarse", rows=coarse)})
    )

    fine_ns, _ = errors(trip, synced, "tmp")
    assert synced.rows_used["coarse"] > 0.95 * synced.rows_used["tmp"]
    assert np.percentile(fine_ns, 99) < 12e6


def place_errors(trip, synced, sensor):
    rows = rows_of(synced, sensor).join(
        trip.truth.rows[sensor].select(pl.col("row").cast(pl.Int64), truth="line_m", at="t_utc_ns"), on="row"
    )
    rows = rows.drop_nulls(["line_m", "truth", "at"])
    assert len(rows)
    return (rows["line_m"] - rows["truth"]).abs().to_numpy()
