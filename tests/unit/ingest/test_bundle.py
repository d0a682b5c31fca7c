import io

import polars as pl
import pytest

from pipelines.errors import IncompleteRecordingError, RecordingError
from pipelines.ingest import bundle
from pipelines.ingest.reader import Encoding, describe_faults


def refusal_of(location, thing="sensor tmp"):
    recording = bundle.read_bundle(location)
    (found,) = [refusal for refusal in recording.refusals if refusal.thing == thing]
    return found


def parquet_bytes(frame):
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def test_rows_keep_their_raw_stamp_and_their_position(write_bundle):
    recording = bundle.read_bundle(write_bundle())

    sensor = recording.sensors["tmp"]
    assert sensor.rows.rows() == [(0, 1767592127352, 29.6), (1, 1767592128354, 29.2), (2, 1767592129353, None)]
    assert sensor.rows.schema == {"row": pl.Int64, "ts": pl.Int64, "bearing_c": pl.Float64}
    assert (sensor.encoding, sensor.clock_id, sensor.latency_ms) == (Encoding.EPOCH_MS, "axle", 250.0)
    assert sensor.rejected == {}
    assert recording.refusals == ()


def test_parquet_and_csv_of_the_same_rows_read_the_same(write_bundle):
    frame = pl.DataFrame({"ts": [1767592127352, 1767592128354], "bearing_c": pl.Series([29.5, None], dtype=pl.Float32)})

    from_csv = bundle.read_bundle(write_bundle(frame.write_csv(), folder="a"))
    from_parquet = bundle.read_bundle(write_bundle(parquet_bytes(frame), folder="b", entry={"file": "tmp.parquet"}))

    assert from_csv.sensors["tmp"].rows.equals(from_parquet.sensors["tmp"].rows)


def test_a_bundle_without_manifest_is_still_landing(write_bundle, tmp_path):
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "tmp.csv").write_text("ts,bearing_c\n")

    with pytest.raises(IncompleteRecordingError, match=r"meta\.json"):
        list(bundle.read(str(tmp_path / "landing")))


def test_a_torn_manifest_says_where_it_is_torn(write_bundle, tmp_path):
    location = write_bundle()
    manifest = tmp_path / "bundle" / "meta.json"
    manifest.write_text(manifest.read_text()[:40])

    with pytest.raises(RecordingError, match=r"meta\.json is no whole JSON document: .*line 1, column \d+ .*of 40\)"):
        bundle.read_bundle(location)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "valid dictionary"),
        ('{"trip_id": 7, "sensors": {}, "clocks": {}}', "trip_id is '7'"),
        ('{"trip_id": "../x", "sensors": {}, "clocks": {}}', "trip_id is '../x'"),
        ('{"trip_id": "a", "sensors": {}, "clocks": {}}', "time_zero_hint_utc is missing"),
        ('{"trip_id": "a", "sensors": {}, "clocks": {"c": {"kind": "moon"}}}', "clocks.c.kind is 'moon'"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_manifest_that_says_nonsense_is_refused_with_the_key(tmp_path, text, complaint):
    (tmp_path / "meta.json").write_text(text)

    with pytest.raises(RecordingError, match=complaint):
        bundle.read_bundle(str(tmp_path))


def test_good_sensors_go_on_beside_a_refused_one(write_bundle):
    missing = {"file": "dop.csv", "clock_id": "axle", "encoding": "epoch_ns", "channels": {"speed_mps": "m/s"}}

    recording = bundle.read_bundle(write_bundle(sensors={"dop": missing}))

    assert [(refusal.thing, refusal.reason) for refusal in recording.refusals] == [("sensor dop", "file_missing")]
    assert len(recording.sensors["tmp"].rows) == 3


@pytest.mark.parametrize(
    ("entry", "reason", "right"),
    [
        ({"channels": {"bearing_f": "degF"}}, "unknown_channel", "bearing_c [degC]"),
        ({"channels": {"bearing_c": "degF"}}, "wrong_unit", "must be in 'degC'"),
        ({"channels": {"bearing_c": "bar"}}, "wrong_unit", "must be in 'degC'"),
        ({"channels": {"bearing_c": None}}, "wrong_unit", "must be in 'degC'"),
        ({"clock_id": "sun"}, "unknown_clock", "described are axle"),
        ({"encoding": "epoch_weeks"}, "manifest_invalid", "epoch_ms"),
        ({"encoding": "ticks_us_u32"}, "encoding_mismatch", "clock axle is of kind epoch"),
        ({"nominal_rate_hz": -1.0}, "manifest_invalid", "nominal_rate_hz is '-1.0'"),
        ({"file": "tmp.xlsx"}, "file_type", ".csv or .parquet"),
    ],
)
def test_a_wrong_sensor_entry_is_refused_with_what_would_be_right(write_bundle, entry, reason, right):
    found = refusal_of(write_bundle(entry=entry))

    assert found.reason == reason
    assert right in found.message


def test_a_file_outside_the_bundle_is_not_read(write_bundle, tmp_path):
    (tmp_path / "secret.csv").write_text("ts,bearing_c\n1767592127352,29.6\n")
    location = write_bundle()
    manifest = tmp_path / "bundle" / "meta.json"
    manifest.write_text(manifest.read_text().replace("tmp.csv", "../secret.csv"))

    found = refusal_of(location)

    assert found.reason == "manifest_invalid"
    assert "../secret.csv" in found.message


def test_other_spellings_of_the_right_unit_are_accepted(write_bundle):
    recording = bundle.read_bundle(write_bundle(entry={"channels": {"bearing_c": "°C"}}))

    assert recording.refusals == ()


def test_an_unknown_sensor_is_refused_by_name(write_bundle):
    entry = {"file": "x.csv", "clock_id": "axle", "encoding": "epoch_ms", "channels": {"x": "1"}}

    found = refusal_of(write_bundle(sensors={"radio": entry}), thing="sensor radio")

    assert found.reason == "unknown_sensor"
    assert "odo, dop, gnss" in found.message


@pytest.mark.parametrize(
    ("csv", "reason"),
    [
        ("", "file_empty"),
        ("ts,bearing_c\n", "no_rows"),
        ("ts,bearing_c\n1767592127352,29.6\n17675921", "file_truncated"),
        ("ts,temperature\n1767592127352,29.6\n", "column_missing"),
        ("ts,bearing_c,ts\n1767592127352,29.6,1\n", "column_repeated"),
        (b"PAR1\x15\x04", "file_type"),
        (b"\x1f\x8b\x08\x00 rest", "file_type"),
        (b"\xff\xfet\0s\0,\0b\0\n\0", "file_type"),
        ("ts,bearing_c\nyesterday,29.6\ntoday,29.7\n", "encoding_mismatch"),
        ("ts,bearing_c\n1767592127352,12,5\n1767592128352,12,6\n", "no_rows"),
    ],
)
def test_a_csv_file_that_is_none_is_refused(write_bundle, csv, reason):
    found = refusal_of(write_bundle(csv))

    assert found.reason == reason
    assert "tmp.csv" in found.message


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "file_empty"),
        (lambda data: b"ts,bearing_c\n1,2\n", "file_type"),
        (lambda data: data[:-20], "file_truncated"),
        (lambda data: data[:4] + bytes(60) + data[64:], "file_damaged"),
    ],
)
def test_a_parquet_file_that_is_none_is_refused(write_bundle, damage, reason):
    data = parquet_bytes(pl.DataFrame({"ts": [1767592127352] * 40, "bearing_c": [29.5] * 40}))

    found = refusal_of(write_bundle(damage(data), entry={"file": "tmp.parquet"}))

    assert found.reason == reason


def test_a_parquet_column_of_another_type_is_refused(write_bundle):
    data = parquet_bytes(pl.DataFrame({"ts": [1767592127352], "bearing_c": [[29.5]]}))

    assert refusal_of(write_bundle(data, entry={"file": "tmp.parquet"})).reason == "wrong_type"


@pytest.mark.parametrize(
    ("declared", "stamp", "fitting"),
    [
        ("epoch_s", "1767592127352", "epoch_ms (2026-01-05)"),
        ("epoch_ms", "1767592127", "epoch_s (2026-01-05)"),
        ("epoch_ms", "1767592127352000000", "epoch_ns (2026-01-05)"),
        ("epoch_ns", "1767592127352000", "epoch_us (2026-01-05)"),
        ("epoch_ms", "2026-01-05 06:48:44.162", "local_text"),
        ("local_text", "1767592127352", "epoch_ms (2026-01-05)"),
    ],
)
def test_stamps_in_another_encoding_are_refused_with_the_one_that_fits(write_bundle, declared, stamp, fitting):
    found = refusal_of(write_bundle(f"ts,bearing_c\n{stamp},29.6\n{stamp},29.7\n", entry={"encoding": declared}))

    assert found.reason == "encoding_mismatch"
    assert f"{fitting} would fit" in found.message


def test_milliseconds_read_as_seconds_are_reported_with_their_absurd_year(write_bundle):
    found = refusal_of(write_bundle(entry={"encoding": "epoch_s"}))

    assert "the year 57982" in found.message


def test_a_device_that_believes_it_is_1970_is_read_if_its_exchanges_can_tell_the_time(write_bundle):
    csv = "ts,bearing_c\n352,29.6\n1353,29.7\n"

    with_ntp = bundle.read_bundle(write_bundle(csv, clocks={"axle": {"kind": "epoch", "ntp": True}}))
    without = refusal_of(write_bundle(csv, folder="other"))

    assert len(with_ntp.sensors["tmp"].rows) == 2
    assert without.reason == "stamps_implausible"


def test_a_single_wild_stamp_does_not_condemn_the_sensor(write_bundle):
    recording = bundle.read_bundle(write_bundle("ts,bearing_c\n0,29.6\n1767592127352,29.7\n1767592128352,29.8\n"))

    assert recording.sensors["tmp"].rows["row"].to_list() == [0, 1, 2]


def test_rows_with_unreadable_stamps_are_left_out_with_a_reason(write_bundle):
    csv = "ts,bearing_c\n1767592127352,1\n,2\nnoon,3\n99999999999999999,4\n1767592131352,5\n1767592132352.0,6\n"

    sensor = bundle.read_bundle(write_bundle(csv)).sensors["tmp"]

    assert sensor.rows["row"].to_list() == [0, 4, 5]
    assert sensor.faults.sort("row").rows() == [
        (1, "ts", "", "stamp_missing"),
        (2, "ts", "noon", "stamp_unreadable"),
        (3, "ts", "99999999999999999", "stamp_out_of_range"),
    ]


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(write_bundle):
    plain = bundle.read_bundle(write_bundle(folder="a")).sensors["tmp"].rows
    windows = "\ufeffts,bearing_c\n1767592127352,29.6\n1767592128354,29.2\n1767592129353,\n".replace("\n", "\r\n")

    assert bundle.read_bundle(write_bundle(windows, folder="b")).sensors["tmp"].rows.equals(plain)


def test_repeated_headers_and_blank_lines_are_counted_and_keep_their_place(write_bundle):
    csv = "ts,bearing_c\n1767592127352,1\nts,bearing_c\n\ufeffts,bearing_c\n\n1767592128352,2\n"

    sensor = bundle.read_bundle(write_bundle(csv)).sensors["tmp"]

    assert sensor.rows["row"].to_list() == [0, 4]
    assert sensor.rejected == {"blank_line": 1, "repeated_header": 2}


@pytest.mark.parametrize("csv", ["ts;bearing_c\n1767592127352;3,14\n", 'ts,bearing_c\n1767592127352,"3,14"\n'])
def test_decimal_commas_are_numbers(write_bundle, csv):
    assert bundle.read_bundle(write_bundle(csv)).sensors["tmp"].rows["bearing_c"].to_list() == [3.14]


def test_nan_is_missing_infinity_is_rejected_and_text_is_named(write_bundle):
    values = ["NaN", "", "n/a", "inf", "-Infinity", "1e999", "warm", "1.2.3", " 7 "]
    csv = "ts,bearing_c\n" + "".join(f"1767592127{352 + i},{value}\n" for i, value in enumerate(values))

    sensor = bundle.read_bundle(write_bundle(csv)).sensors["tmp"]

    assert sensor.rows["bearing_c"].to_list() == [None] * 8 + [7.0]
    assert sensor.rejected == {"not_a_number": 2, "not_finite": 3}
    assert describe_faults("tmp", sensor.faults)[0] == (
        "tmp.bearing_c: not_a_number, 2 times, in rows 6 ('warm'), 7 ('1.2.3')"
    )


def test_only_the_first_ten_bad_rows_are_named(write_bundle):
    csv = "ts,bearing_c\n" + "".join(f"17675921273{i:02d},{'warm' if i < 15 else i}\n" for i in range(40))

    (sentence,) = describe_faults("tmp", bundle.read_bundle(write_bundle(csv)).sensors["tmp"].faults)

    assert "15 times" in sentence
    assert sentence.count("'warm'") == 10


def test_infinity_in_parquet_is_rejected_and_nan_is_missing(write_bundle):
    frame = pl.DataFrame({"ts": [1767592127352] * 3, "bearing_c": [float("nan"), float("inf"), 1.0]})

    sensor = bundle.read_bundle(write_bundle(parquet_bytes(frame), entry={"file": "tmp.parquet"})).sensors["tmp"]

    assert sensor.rows["bearing_c"].to_list() == [None, None, 1.0]
    assert sensor.rejected == {"not_finite": 1}


def test_an_odd_quote_does_not_swallow_the_lines_after_it(write_bundle):
    csv = 'ts,bearing_c\n1767592127352,"1\n1767592128352,2\n1767592129352,3"\n1767592130352,4\n'

    sensor = bundle.read_bundle(write_bundle(csv)).sensors["tmp"]

    assert sensor.rows["bearing_c"].to_list() == [1.0, 2.0, 3.0, 4.0]


def test_bytes_that_are_no_text_spoil_one_value_only(write_bundle):
    sensor = bundle.read_bundle(write_bundle(b"ts,bearing_c\n1767592127352,\xff\xfe1\n1767592128352,2\n")).sensors[
        "tmp"
    ]

    assert sensor.rows["bearing_c"].to_list() == [None, 2.0]
    assert sensor.rejected == {"not_a_number": 1}


def test_a_line_with_too_many_fields_is_left_out(write_bundle):
    sensor = bundle.read_bundle(write_bundle("ts,bearing_c\n1767592127352,1,9\n1767592128352,2\n")).sensors["tmp"]

    assert sensor.rows["row"].to_list() == [1]
    assert sensor.faults.row(0) == (0, "", "1767592127352,1,9", "too_many_fields")


def test_a_missing_line_break_at_the_end_loses_nothing(write_bundle):
    sensor = bundle.read_bundle(write_bundle("ts,bearing_c\n1767592127352,29.6\n1767592128354,29.2")).sensors["tmp"]

    assert sensor.rows["bearing_c"].to_list() == [29.6, 29.2]


def test_an_extra_column_is_named_and_the_sensor_is_read(write_bundle):
    recording = bundle.read_bundle(write_bundle("row,ts,bearing_c,debug\n9,1767592127352,29.6,x\n"))

    assert recording.sensors["tmp"].rows.rows() == [(0, 1767592127352, 29.6)]
    assert [(refusal.thing, refusal.reason) for refusal in recording.refusals] == [
        ("sensor tmp, column row_stored", "extra_column"),
        ("sensor tmp, column debug", "extra_column"),
    ]


def test_mixed_date_orders_in_local_stamps_are_rejected_not_guessed(write_bundle):
    texts = ["2026-01-05 06:48:44.162", "05/01/2026 06:48:45", "2026-13-05 06:48:46", "2026-01-05 06:48:47"]
    csv = "ts,bearing_c\n" + "".join(f"{text},1\n" for text in texts)

    sensor = bundle.read_bundle(write_bundle(csv, entry={"encoding": "local_text"})).sensors["tmp"]

    assert sensor.rows["ts"].to_list() == [texts[0], texts[3]]
    assert sensor.rejected == {"stamp_unreadable": 2}


@pytest.mark.parametrize("zone", [None, "Mars/Olympus", "../../etc/passwd"])
def test_local_stamps_without_a_zone_are_refused(write_bundle, zone):
    csv = "ts,bearing_c\n2026-01-05 06:48:44.162,1\n"

    assert refusal_of(write_bundle(csv, entry={"encoding": "local_text"}, time_zone=zone)).reason == "no_time_zone"


def test_ticks_beyond_32_bits_are_rejected(write_bundle):
    csv = f"ticks,bearing_c\n{2**32 - 1},1\n5,2\n{2**32},3\n-1,4\n7,5\n"
    clocks = {"axle": {"kind": "ticks", "ntp": True, "ntp_unit": "us_u32"}}

    sensor = bundle.read_bundle(write_bundle(csv, entry={"encoding": "ticks_us_u32"}, clocks=clocks)).sensors["tmp"]

    assert sensor.rows["ticks"].to_list() == [2**32 - 1, 5, 7]
    assert sensor.rejected == {"stamp_out_of_range": 2}


def test_vehicle_and_day_come_from_manifest_path_or_trip(write_bundle):
    landed = bundle.identity(write_bundle(folder="unit-9/2026-02-03/trip-7", vehicle=None))
    loose = bundle.identity(
        write_bundle(folder="somewhere", vehicle=None, time_zero_hint_utc="2026-01-06T00:30:00+01:00")
    )
    named = bundle.identity(write_bundle(folder="unit-9/2026-02-03/trip-8"))

    assert (landed.vehicle, landed.day, landed.recording_id) == ("unit-9", "2026-02-03", "trip-7")
    assert (loose.vehicle, loose.day) == ("trip-7", "2026-01-05")
    assert named.vehicle == "unit-1"


def test_exchanges_are_typed_and_bad_lines_are_named(write_bundle):
    header = "clock_id,server_id,t1_dev,t2_srv,t3_srv,t4_dev,stratum,root_dispersion_ms\n"
    good = "axle,a,1767592096528182164,1767592098065880361,1767592098065903228,1767592096528765281,2,2.383\n"
    log = header + good + good.replace("1767592098065880361", "soon") + good.replace(",2,", ",,")

    recording = bundle.read_bundle(write_bundle(files={"ntp_log.csv": log}))

    assert recording.exchanges.rows() == [
        ("axle", "a", 1767592096528182164, 1767592098065880361, 1767592098065903228, 1767592096528765281, 2, 2.383)
    ]
    messages = [refusal.message for refusal in recording.refusals]
    assert messages == [
        "ntp_log.csv.t2_srv: not_an_integer, 1 time, in row 1 ('soon')",
        "ntp_log.csv.stratum: value_missing, 1 time, in row 2 ('')",
    ]


def test_missing_exchanges_are_refused_only_if_a_clock_should_have_some(write_bundle):
    without = bundle.read_bundle(write_bundle())
    promised = bundle.read_bundle(write_bundle(folder="b", clocks={"axle": {"kind": "epoch", "ntp": True}}))

    assert without.refusals == ()
    assert [(refusal.thing, refusal.reason) for refusal in promised.refusals] == [("ntp_log.csv", "file_missing")]


def test_events_stay_text_and_may_be_none_at_all(write_bundle):
    entry = {"clock_id": "axle", "encoding": "epoch_ms", "nominal_rate_hz": None, "channels": {"kind": "", "ref": ""}}
    full, empty = {"evt": entry | {"file": "evt.csv"}}, {"evt": entry | {"file": "none.csv"}}
    csv = 'ts,kind,ref\n1767592126708,balise,0012\n1767592127708,door_open,""\n'

    events = bundle.read_bundle(write_bundle(sensors=full, files={"evt.csv": csv})).sensors["evt"]
    none = bundle.read_bundle(write_bundle(folder="b", sensors=empty, files={"none.csv": "ts,kind,ref\n"}))

    assert events.rows.select("kind", "ref").rows() == [("balise", "0012"), ("door_open", None)]
    assert len(none.sensors["evt"].rows) == 0
    assert none.refusals == ()


def test_all_bundles_below_a_folder_are_found(write_bundle, tmp_path):
    for day in ("2026-01-05", "2026-01-06"):
        write_bundle(folder=f"fleet/unit-1/{day}/trip")

    found = [(recording.vehicle, recording.day) for recording in bundle.read(str(tmp_path / "fleet"))]

    assert found == [("unit-1", "2026-01-05"), ("unit-1", "2026-01-06")]
