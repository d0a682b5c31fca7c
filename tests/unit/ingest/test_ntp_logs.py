import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.errors import RecordingError
from pipelines.ingest.ntp_logs import HOST, read_ntp_log

SHARED_DATA = Path(os.environ.get("TRACKSIDE_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
RAWSTATS = (
    "56285 54575.160 128.4.1.1 192.168.1.5 3565350574.400229473 3565350574.442385200 3565350574.442436000 "
    "3565350575.154505763 0 4 4 1 8 -21 0.000000 0.000320 .PPS.\n"
)
OLD_RAWSTATS = (
    "50928 2132.543 128.4.1.1 128.4.1.20 3102453281.584327000 3102453281.586228000 3102453281.586300000 "
    "3102453281.588100000\n"
)
PEERSTATS = "48773 10847.650 127.127.4.1 9714 -0.001605376 0.000000000 0.001424877 0.000958674\n"
MEASUREMENTS = (
    "2016-11-09 05:40:50 203.0.113.15    N  2 111 111 1111  10 10 1.0  -4.966e-03  2.296e-01  1.577e-05  1.615e-01  "
    "7.446e-03 CB00717B 4B D K\n"
)
STATISTICS = (
    "2016-08-10 05:40:50 203.0.113.15     6.261e-03 -3.247e-03  2.220e-03  1.874e-06  1.080e-06 7.8e-02  16   0   8 "
    " 0.00\n"
)
BANNER = (
    "=====\n   Date (UTC) Time     IP Address   L St 123 567 ABCD  LP RP Score    Offset  Peer del. Peer disp.\n=====\n"
)
LOGS = {
    "rawstats": RAWSTATS,
    "peerstats": PEERSTATS,
    "measurements": BANNER + MEASUREMENTS,
    "statistics": BANNER + STATISTICS,
}


def read(tmp_path, text, name="some.log"):
    (tmp_path / name).write_text(text)
    return read_ntp_log(tmp_path / name)


def offset_and_delay_s(log):
    (row,) = log.table.rows.iter_rows(named=True)
    offset_ns = ((row["t2_srv"] - row["t1_dev"]) + (row["t3_srv"] - row["t4_dev"])) / 2
    delay_ns = (row["t4_dev"] - row["t1_dev"]) - (row["t3_srv"] - row["t2_srv"])
    return offset_ns * 1e-9, delay_ns * 1e-9


@pytest.mark.parametrize("name", LOGS)
def test_the_format_is_told_by_the_content(tmp_path, name):
    log = read(tmp_path, LOGS[name])

    assert log.format == name
    assert log.table.rows["clock_id"].to_list() == [HOST]
    assert log.table.faults.is_empty()


def test_the_four_timestamps_of_rawstats_are_exact(tmp_path):
    (row,) = read(tmp_path, RAWSTATS).table.rows.iter_rows(named=True)

    since_1970_s = 3_565_350_574 - 2_208_988_800
    assert row["t1_dev"] == since_1970_s * 10**9 + 400_229_473
    assert row["t2_srv"] == since_1970_s * 10**9 + 442_385_200
    assert row["t3_srv"] == since_1970_s * 10**9 + 442_436_000
    assert row["t4_dev"] == (since_1970_s + 1) * 10**9 + 154_505_763
    assert (row["server_id"], row["stratum"], row["root_dispersion_ms"]) == ("128.4.1.1", 1, 0.32)


def test_rawstats_of_old_daemons_end_after_the_timestamps(tmp_path):
    log = read(tmp_path, OLD_RAWSTATS)

    assert offset_and_delay_s(log)[1] == pytest.approx(0.003701, abs=1e-9)
    assert log.table.rows["stratum"].to_list() == [0]


def test_ntp_seconds_that_overflowed_in_2036_are_of_the_day_beside_them(tmp_path):
    mjd = 40_587 + 25_000
    after_s = (25_000 * 86_400 + 2_208_988_800) % 2**32
    text = f"{mjd} 0.5 10.0.0.1 10.0.0.2 " + " ".join(f"{1_000_000_000 + after_s}.{i}00000000" for i in range(4)) + "\n"

    log = read(tmp_path, text)

    assert abs(log.table.rows["t1_dev"][0] - 25_000 * 86_400 * 10**9) <= 2**31 * 10**9


@pytest.mark.parametrize("leap_and_stratum", ["3 4 4 1", "0 4 4 0", "0 4 4 16"])
def test_a_server_that_says_it_is_not_synchronised_has_stratum_16(tmp_path, leap_and_stratum):
    log = read(tmp_path, RAWSTATS.replace(" 0 4 4 1 8 ", f" {leap_and_stratum} 8 "))

    assert log.table.rows["stratum"].to_list() == [16]


@pytest.mark.parametrize(
    ("text", "offset_s", "delay_s"),
    [
        (PEERSTATS, -0.001605376, 0.0),
        (MEASUREMENTS, -4.966e-03, 0.2296),
        (STATISTICS, 3.247e-03, 6 * 2.220e-03),  # the only one that counts a clock which is ahead as positive
    ],
)
def test_stamps_made_of_offset_and_delay_say_the_same(tmp_path, text, offset_s, delay_s):
    assert offset_and_delay_s(read(tmp_path, text)) == pytest.approx((offset_s, delay_s), abs=2e-9)


def test_chrony_marks_servers_that_are_not_synchronised(tmp_path):
    assert read(tmp_path, MEASUREMENTS.replace(" N ", " ? ")).table.rows["stratum"].to_list() == [16]


def test_a_line_that_is_cut_off_is_named_and_the_others_are_read(tmp_path):
    log = read(tmp_path, RAWSTATS + RAWSTATS[:60] + "\n" + RAWSTATS)

    assert log.table.rows["row"].to_list() == [0, 2]
    assert log.table.faults.select("row", "reason").rows() == [(1, "not_rawstats")]


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n", "61016 2.878 0.000001853 -33.344 0.000003510 0.002074 3\n"])
def test_what_is_no_log_of_exchanges_is_refused(tmp_path, text):
    with pytest.raises(RecordingError, match=r"some\.log: not a log of NTP exchanges"):
        read(tmp_path, text)


def test_a_real_day_of_peerstats_is_read_whole():
    path = SHARED_DATA / "ntpd-loopstats-peerstats" / "peerstats"
    if not path.is_file():
        pytest.skip("the ntpd logs are not here")

    log = read_ntp_log(path)

    assert (log.format, len(log.table.rows)) == ("peerstats", 11_699)
    assert log.table.rows["server_id"].n_unique() == 4


@pytest.mark.parametrize("name", LOGS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_arrives_is_read_or_refused(tmp_path, name, data):
    original = (LOGS[name] * 3).encode()
    start = data.draw(st.integers(0, len(original)))
    end = data.draw(st.integers(start, min(len(original), start + 40)))
    odd = st.sampled_from([b"", b"\n", b"\r", b"\0", b"\xff", b" ", b"1e999", b"-", b"99999999999999999999"])
    (tmp_path / "some.log").write_bytes(original[:start] + data.draw(odd | st.binary(max_size=20)) + original[end:])

    try:
        log = read_ntp_log(tmp_path / "some.log")
    except RecordingError:
        return
    assert log.format in LOGS
