from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from pipelines.ingest.reader import FAULT_SCHEMA
from pipelines.sync import rows as module
from pipelines.sync import synchronise
from pipelines.sync.rows import SCHEMA, batches, write_rows


@pytest.fixture(scope="module")
def synced(short):
    return synchronise(short)


def rows_of(synced, sensor):
    return pl.from_arrow(pa.concat_tables(batches(synced, sensor)))


def with_sensor(recording, name, **change):
    return replace(recording, sensors=recording.sensors | {name: replace(recording.sensors[name], **change)})


def test_the_file_has_every_row_of_every_sensor_once_and_plain_types(synced, short_trip, tmp_path):
    num_rows = write_rows(tmp_path / "rows.parquet", synced)

    stored = pl.read_parquet(tmp_path / "rows.parquet")
    assert num_rows == stored.height == short_trip.num_rows
    assert stored.columns == SCHEMA.names
    assert stored.schema["sensor"] == stored.schema["reason"] == pl.String
    for name, frame in short_trip.frames.items():
        assert stored.filter(sensor=name)["row"].to_list() == list(range(frame.height))


def test_rejected_rows_have_a_reason_and_neither_instant_nor_place(synced):
    for name in synced.recording.sensors:
        rows = rows_of(synced, name)
        rejected = rows.filter(pl.col("t_utc_ns").is_null())
        counted = dict(rejected["reason"].value_counts().sort("reason").iter_rows())
        assert counted == synced.rejected[name]
        unknown = rejected.select("sigma_ns", "line_m", "position_sigma_m", "km_post")
        assert unknown.null_count().row(0) == (rejected.height,) * 4


def test_instants_are_those_of_the_calibration(synced):
    rows, times = rows_of(synced, "aba"), synced.times["aba"]

    is_good_T = times.fault_T == 0
    assert is_good_T.any()
    assert rows.filter(pl.col("t_utc_ns").is_not_null())["t_utc_ns"].to_list() == times.utc_ns_T[is_good_T].tolist()


def test_a_reading_that_is_not_believed_is_marked_and_its_row_keeps_its_instant(short):
    values = short.sensors["tmp"].rows["bearing_c"].to_list()
    values[20] = 900.0
    broken = with_sensor(short, "tmp", rows=short.sensors["tmp"].rows.with_columns(bearing_c=pl.Series(values)))

    row = rows_of(synchronise(broken), "tmp").row(20, named=True)

    assert (row["value_ok"], row["reason"]) == (0, "out_of_range")
    assert row["t_utc_ns"] is not None


def test_rows_that_the_reader_left_out_are_there_with_its_reason(short):
    sensor = short.sensors["pneu"]
    faults = [
        [3, "ts", "yesterday", "stamp_unreadable"],
        [5, "", "x", "line_broken"],
        [9, "res_bar", "ten", "not_a_number"],
    ]
    left = with_sensor(
        short,
        "pneu",
        rows=sensor.rows.filter(~pl.col("row").is_in([3, 5])),
        faults=pl.DataFrame(faults, schema=FAULT_SCHEMA, orient="row"),
    )

    rows = rows_of(synchronise(left), "pneu")

    assert rows["row"].to_list() == list(range(sensor.rows.height))
    assert rows[[3, 5, 9]]["reason"].to_list() == ["stamp_unreadable", "line_broken", "not_a_number"]
    assert rows[[3, 5, 9]]["value_ok"].to_list() == [1, 0, 0]
    assert rows[[3, 5, 9]]["t_utc_ns"].is_null().to_list() == [True, True, False]


def test_an_unread_reading_is_found_in_rows_that_are_not_kept_in_the_order_of_their_file(short):
    sensor = short.sensors["pneu"]
    faults = pl.DataFrame([[9, "res_bar", "ten", "not_a_number"]], schema=FAULT_SCHEMA, orient="row")
    shuffled = with_sensor(short, "pneu", rows=sensor.rows.sample(fraction=1.0, shuffle=True, seed=1), faults=faults)

    rows = rows_of(synchronise(shuffled), "pneu")

    assert rows["row"].to_list() == list(range(sensor.rows.height))
    assert rows.filter(reason="not_a_number")["row"].to_list() == [9]


def test_a_row_that_is_rejected_and_false_too_says_why_it_is_rejected(short):
    without = replace(short, exchanges=None)
    sensor = without.sensors["aba"]
    faults = pl.DataFrame([[0, "acc_g", "x", "not_a_number"]], schema=FAULT_SCHEMA, orient="row")

    row = rows_of(synchronise(with_sensor(without, "aba", rows=sensor.rows, faults=faults)), "aba").row(0, named=True)

    assert (row["t_utc_ns"], row["value_ok"], row["reason"]) == (None, 0, "no_clock")


@pytest.mark.parametrize("batch_rows", [7, 1000])
def test_rows_do_not_depend_on_how_many_are_worked_out_at_a_time(synced, monkeypatch, batch_rows):
    whole = rows_of(synced, "odo")

    monkeypatch.setattr(module, "BATCH_ROWS", batch_rows)

    assert rows_of(synced, "odo").equals(whole)


def test_rows_are_where_the_train_was(synced, short_trip):
    truth = short_trip.truth.rows["odo"]["line_m"].to_numpy()

    line_m = rows_of(synced, "odo")["line_m"].to_numpy()

    error_m = np.abs(line_m - truth)[~np.isnan(line_m)]
    assert len(error_m) > 0.9 * len(line_m)
    assert np.median(error_m) < 1.5


def test_posted_kilometres_are_those_of_the_route(synced):
    rows = rows_of(synced, "odo").drop_nulls("km_post")
    route = synced.recording.route

    assert rows.height > 0.9 * synced.rows_used["odo"]
    near = np.abs(route["line_m"].to_numpy()[:, None] - rows["line_m"].to_numpy()[None, ::500]).argmin(axis=0)
    error_m = np.abs(route["km_post"].to_numpy()[near] - rows["km_post"].to_numpy()[::500])
    assert np.median(error_m) <= np.diff(route["line_m"]).max()


def test_reasons_are_kept_as_bytes_and_not_as_objects(synced):
    fates = module._fates(synced.recording.sensors["aba"], synced.times["aba"], synced.value_faults["aba"])

    assert (fates.reason_F.dtype, fates.is_believed_F.dtype, fates.is_timed_F.dtype) == (np.uint8, bool, bool)
