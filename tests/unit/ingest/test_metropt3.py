from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from pipelines.channels import METROPT3_CHANNELS
from pipelines.errors import RecordingError
from pipelines.ingest import days, metropt3, tables
from pipelines.ingest.reader import Encoding, describe_faults

NAMES = [channel.name for channel in METROPT3_CHANNELS]
HEADER = ",".join(["", "timestamp", *NAMES])


def line(stamp, i=0, **values):
    return ",".join([str(10 * i), stamp, *(str(values.get(name, 1.5)) for name in NAMES)])


def write(tmp_path, *lines, header=HEADER, name="apu.csv"):
    path = tmp_path / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)


def rows_of(location):
    return pl.concat([recording.sensors["apu"].rows for recording in metropt3.read(location)])


def test_the_published_head_is_one_day_without_faults(real_data):
    path = real_data("metropt3-apu-raw", "metropt3_2020-02-01_1000rows.csv")

    (recording,) = metropt3.read(str(path))

    apu = recording.sensors["apu"]
    assert (recording.vehicle, recording.day, recording.time_zone) == ("metro-apu", "2020-02-01", "UTC")
    assert (len(apu.rows), apu.encoding, apu.nominal_rate_hz) == (1000, Encoding.LOCAL_TEXT, 0.1)
    assert (apu.rejected, recording.refusals) == ({}, ())
    assert apu.rows.row(-1)[:2] == (999, "2020-02-01 02:45:01")
    assert apu.rows.select(pl.col(NAMES).null_count().sum()).row(0) == (0,) * 15


def test_each_service_day_is_a_recording_and_rows_keep_their_position(tmp_path):
    stamps = ["2020-02-01 23:59:50", "2020-02-02 00:00:00", "2020-02-02 00:00:10", "2020-02-04 00:00:00"]

    recordings = list(metropt3.read(write(tmp_path, *map(line, stamps))))

    assert [recording.day for recording in recordings] == ["2020-02-01", "2020-02-02", "2020-02-04"]
    assert [recording.sensors["apu"].rows["row"].to_list() for recording in recordings] == [[0], [1, 2], [3]]


@pytest.mark.parametrize("first", ["Unnamed: 0", "", '""', "\ufeff", "\ufeffUnnamed: 0"])
def test_every_published_form_of_the_header_is_read(tmp_path, first):
    header = first + HEADER.replace("timestamp", "Timestamp")

    (recording,) = metropt3.read(write(tmp_path, line("2020-02-01 00:00:00"), header=header))

    assert recording.num_rows == 1
    assert recording.refusals == ()


def test_a_file_without_row_numbers_and_with_a_further_column_is_read(tmp_path):
    text = line("2020-02-01 00:00:00").removeprefix("0,") + ",9"

    (recording,) = metropt3.read(write(tmp_path, text, header=HEADER.removeprefix(",") + ",label"))

    assert recording.num_rows == 1
    assert [(refusal.thing, refusal.reason) for refusal in recording.refusals] == [("column label", "extra_column")]


def test_missing_columns_are_listed_up_to_ten(tmp_path):
    location = write(tmp_path, "2020-02-01 00:00:00,1.0", header="timestamp,TP2")

    with pytest.raises(
        RecordingError, match=r"lacks 14 of 16 columns: TP3, H1, .*Towers, MPG, …; it has timestamp, TP2"
    ):
        list(metropt3.read(location))


def test_two_columns_that_differ_only_in_case_are_refused(tmp_path):
    location = write(tmp_path, line("2020-02-01 00:00:00") + ",7", header=HEADER + ",tp2")

    with pytest.raises(RecordingError, match="'TP2' occurs more than once"):
        list(metropt3.read(location))


def test_repeated_headers_do_not_shift_positions(tmp_path):
    location = write(tmp_path, line("2020-02-01 00:00:00"), HEADER, line("2020-02-01 00:00:10"))

    (recording,) = metropt3.read(location)

    assert recording.sensors["apu"].rows["row"].to_list() == [0, 2]
    assert recording.sensors["apu"].rejected == {"repeated_header": 1}


def test_decimal_commas_are_read(tmp_path):
    text = line("2020-02-01 00:00:00", TP2="-0.012").replace(",", ";").replace(".", ",")

    assert rows_of(write(tmp_path, text, header=HEADER.replace(",", ";")))["TP2"].to_list() == [-0.012]


def test_dates_of_other_notations_are_read_once_the_file_tells_their_order(tmp_path):
    location = write(tmp_path, line("03/02/2020 07:00:00"), line("13/02/2020 07:00:00"))

    assert rows_of(location)["ts"].to_list() == ["2020-02-03 07:00:00", "2020-02-13 07:00:00"]


def test_evidence_for_the_order_of_dates_may_come_blocks_later(tmp_path, monkeypatch):
    monkeypatch.setattr(days, "stream_csv", lambda path: tables.stream_csv(path, block_bytes=300))
    stamps = [f"{day:02d}/02/2020 07:00:00" for day in range(1, 20)]

    recordings = list(metropt3.read(write(tmp_path, *map(line, stamps))))

    assert [recording.day for recording in recordings] == [f"2020-02-{day:02d}" for day in range(1, 20)]


def test_ambiguous_dates_are_refused_rather_than_guessed(tmp_path):
    location = write(tmp_path, line("03/02/2020 07:00:00"), line("04/02/2020 07:00:00"))

    with pytest.raises(RecordingError, match=r"day first or with the month first.*write them as YYYY-MM-DD"):
        list(metropt3.read(location))


def test_single_ambiguous_and_unreadable_stamps_are_left_out_with_their_reason(tmp_path):
    stamps = ["2020-02-01 00:00:00", "03/02/2020 07:00:00", "soon", "", "2020-02-01 00:00:10"]

    (recording,) = metropt3.read(write(tmp_path, *map(line, stamps)))

    apu = recording.sensors["apu"]
    assert apu.rows["row"].to_list() == [0, 4]
    assert apu.rejected == {"date_ambiguous": 1, "stamp_missing": 1, "stamp_unreadable": 1}


def test_faults_are_reported_with_the_day_they_belong_to(tmp_path):
    lines = [line("2020-02-01 00:00:00", TP2="x"), line("2020-02-02 00:00:00", H1="inf")]

    first, second = metropt3.read(write(tmp_path, *lines))

    assert describe_faults("apu", first.sensors["apu"].faults) == ["apu.TP2: not_a_number, 1 time, in row 0 ('x')"]
    assert describe_faults("apu", second.sensors["apu"].faults) == ["apu.H1: not_finite, 1 time, in row 1 ('inf')"]


def test_rows_a_little_late_go_to_their_own_day(tmp_path):
    stamps = ["2020-02-01 23:59:50", "2020-02-02 00:00:00", "2020-02-01 23:59:55", "2020-02-03 00:00:00"]

    recordings = list(metropt3.read(write(tmp_path, *map(line, stamps))))

    assert [recording.sensors["apu"].rows["row"].to_list() for recording in recordings] == [[0, 2], [1], [3]]


def test_a_file_that_returns_to_a_finished_day_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(days, "stream_csv", lambda path: tables.stream_csv(path, block_bytes=100))
    stamps = [f"2020-02-{day:02d} 00:00:00" for day in (1, 2, 3, 4, 5, 1)]

    with pytest.raises(RecordingError, match=r"row 5 belongs to 2020-02-01.*sort the file by time"):
        list(metropt3.read(write(tmp_path, *map(line, stamps))))


def test_blocks_of_any_size_give_the_same_rows(tmp_path, monkeypatch):
    start = datetime(2020, 2, 1, 23, tzinfo=UTC)
    lines = [line(f"{start + timedelta(seconds=10 * i):%Y-%m-%d %H:%M:%S}", i, TP2=i) for i in range(900)]
    location = write(tmp_path, *lines)
    whole = rows_of(location)

    monkeypatch.setattr(days, "stream_csv", lambda path: tables.stream_csv(path, block_bytes=777))

    assert rows_of(location).equals(whole)
    assert len(whole) == 900


@pytest.mark.parametrize("content", ["", HEADER + "\n", HEADER + "\n" + line("soon") + "\n"])
def test_a_file_without_a_single_row_is_an_error(tmp_path, content):
    path = tmp_path / "apu.csv"
    path.write_text(content)

    with pytest.raises(RecordingError, match=r"apu\.csv"):
        list(metropt3.read(str(path)))


def test_the_detailed_failures_are_those_of_the_published_table(real_data):
    published = pl.read_csv(real_data("metropt3-apu-raw", "failure_intervals_21.csv"), try_parse_dates=True)

    events = metropt3.failure_events(metropt3.FAILURES_DETAILED)

    minute_ns = 60 * 10**9
    assert events["start_utc_ns"].to_list() == (published["start"].dt.epoch("ns")).to_list()
    assert (events["end_utc_ns"] - minute_ns).to_list() == (published["end"].dt.epoch("ns")).to_list()
    assert events["severity"].to_list() == published["severity"].to_list()
    assert len(events) == 21


def test_failures_that_go_on_after_midnight_have_no_gap():
    last_of_june_5, first_of_june_6 = metropt3.FAILURES_DETAILED.failures[15:17]

    assert last_of_june_5.end_utc_ns == first_of_june_6.start_utc_ns


def test_the_reported_failures_cover_detailed_ones():
    detailed = metropt3.FAILURES_DETAILED.failures

    for reported in metropt3.FAILURES_REPORTED.failures:
        assert any(each.start_utc_ns == reported.start_utc_ns for each in detailed)
        assert any(each.end_utc_ns == reported.end_utc_ns for each in detailed)
    assert len(metropt3.FAILURES_REPORTED.failures) == 4
