from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.clocks.stamps import NO_STAMP, TICKS_MODULUS_NS, follow, read_stamps
from pipelines.errors import RecordingError
from pipelines.ingest.reader import Encoding, SensorRows

SECOND = 10**9


def read(encoding, columns, *, rate_hz=10.0, time_zone="UTC", gps_minus_utc_s=18, hint_utc_ns=None):
    rows = pl.DataFrame(columns).with_row_index("row")
    sensor = SensorRows(sensor="x", rows=rows, channels=(), clock_id="c", encoding=encoding, nominal_rate_hz=rate_hz)
    return read_stamps(sensor, time_zone=time_zone, gps_minus_utc_s=gps_minus_utc_s, hint_utc_ns=hint_utc_ns)


def local_text(utc_seconds, zone):
    moments = [datetime.fromtimestamp(s, tz=UTC).astimezone(ZoneInfo(zone)) for s in utc_seconds]
    return [f"{m:%Y-%m-%d %H:%M:%S}.{m.microsecond // 1000:03d}" for m in moments]


@pytest.mark.parametrize(
    ("encoding", "written", "unit_ns"),
    [
        (Encoding.EPOCH_NS, 1_767_600_000_123_456_789, 1),
        (Encoding.EPOCH_US, 1_767_600_000_123_456, 1_000),
        (Encoding.EPOCH_MS, 1_767_600_000_123, 1_000_000),
        (Encoding.UPTIME_NS, 43_280_187_001, 1),
    ],
)
def test_integer_stamps_keep_every_nanosecond(encoding, written, unit_ns):
    stamps = read(encoding, {"ts": [written]})

    assert stamps.dev_ns_T.tolist() == [written * unit_ns]
    assert stamps.dev_ns_T.dtype == np.int64


def test_decimal_seconds_are_whole_milliseconds():
    stamps = read(Encoding.EPOCH_S, {"ts": [1_767_600_000.001, 1_767_600_000.999]})

    assert (stamps.dev_ns_T // 1_000_000).tolist() == [1_767_600_000_001, 1_767_600_000_999]
    assert (stamps.dev_ns_T % 1_000_000 == 0).all()


def test_gps_time_is_leap_seconds_ahead_of_utc():
    # iTOW 294829 s of the week that starts on 2022-10-16 is 09:53:31 UTC (Modena train logs).
    stamps = read(Encoding.GPS_TOW, {"gps_week": [2232], "tow_ms": [294_829_000]}, rate_hz=1.0)

    expected = datetime(2022, 10, 19, 9, 53, 31, tzinfo=UTC)
    assert stamps.dev_ns_T.tolist() == [int(expected.timestamp()) * SECOND]


def test_weeks_counted_modulo_1024_are_put_into_the_epoch_of_the_hint():
    hint_utc_ns = int(datetime(2022, 10, 19, 10, 0, tzinfo=UTC).timestamp()) * SECOND
    columns = {"gps_week": [2232 % 1024, 2232 % 1024], "tow_ms": [294_829_000, 294_830_000]}

    stamps = read(Encoding.GPS_TOW, columns, rate_hz=1.0, hint_utc_ns=hint_utc_ns)

    assert abs(stamps.dev_ns_T[0] - hint_utc_ns) < 3_600 * SECOND


def test_rows_with_week_0_are_bad_and_the_others_go_on():
    hint_utc_ns = int(datetime(2026, 1, 5, 5, 0, tzinfo=UTC).timestamp()) * SECOND
    week = np.r_[np.zeros(60, dtype=np.int64), np.full(20, 2400), np.zeros(2, dtype=np.int64), np.full(18, 2400)]
    columns = {"gps_week": week, "tow_ms": 104_400_000 + np.arange(100) * 1_000}

    for hint in (hint_utc_ns, None):
        stamps = read(Encoding.GPS_TOW, columns, rate_hz=1.0, hint_utc_ns=hint)

        assert (stamps.is_bad_T == (week == 0)).all()
        assert (np.diff(stamps.dev_ns_T[week != 0][:20]) == SECOND).all()


def test_a_receiver_that_never_knew_the_week_has_no_good_row():
    hint_utc_ns = int(datetime(2026, 1, 5, 5, 0, tzinfo=UTC).timestamp()) * SECOND
    columns = {"gps_week": np.zeros(50, dtype=np.int64), "tow_ms": 104_400_000 + np.arange(50) * 1_000}

    assert read(Encoding.GPS_TOW, columns, rate_hz=1.0, hint_utc_ns=hint_utc_ns).is_bad_T.all()


def test_the_end_of_a_gps_week_is_no_gap():
    columns = {"gps_week": [2399, 2399, 2400, 2400], "tow_ms": [604_798_000, 604_799_000, 0, 1_000]}

    stamps = read(Encoding.GPS_TOW, columns, rate_hz=1.0)

    assert np.diff(stamps.dev_ns_T).tolist() == [SECOND] * 3
    assert not stamps.is_bad_T.any()


def test_the_hour_that_summer_time_repeats_is_told_by_the_order_of_rows():
    start = datetime(2026, 10, 24, 23, 30, tzinfo=UTC).timestamp()  # 01:30 in Berlin; clocks go back at 01:00 UTC
    utc_seconds = start + np.arange(0.0, 7_200.0, 0.5)
    text = local_text(utc_seconds, "Europe/Berlin")
    assert len(set(text)) < len(text)

    stamps = read(Encoding.LOCAL_TEXT, {"ts": text}, rate_hz=2.0, time_zone="Europe/Berlin")

    assert (stamps.dev_ns_T == (utc_seconds * 1_000).astype(np.int64) * 1_000_000).all()
    assert not stamps.is_bad_T.any()


@pytest.mark.parametrize("hour", [0, 1])
def test_a_recording_that_starts_in_the_repeated_hour_follows_the_hint(hour):
    start = datetime(2026, 10, 25, hour, 20, tzinfo=UTC)
    text = local_text([start.timestamp() + i for i in range(20)], "Europe/Berlin")
    hint = start + timedelta(minutes=9)

    stamps = read(
        Encoding.LOCAL_TEXT,
        {"ts": text},
        rate_hz=1.0,
        time_zone="Europe/Berlin",
        hint_utc_ns=int(hint.timestamp()) * SECOND,
    )

    assert stamps.dev_ns_T[0] == int(start.timestamp()) * SECOND


def test_one_late_row_does_not_end_the_repeated_hour():
    utc_seconds = datetime(2026, 10, 25, 0, 59, 50, tzinfo=UTC).timestamp() + np.arange(20.0)
    utc_seconds[[11, 12, 13, 14]] = utc_seconds[[12, 13, 14, 11]]  # one row of the second hour is stored late

    stamps = read(
        Encoding.LOCAL_TEXT, {"ts": local_text(utc_seconds, "Europe/Berlin")}, rate_hz=1.0, time_zone="Europe/Berlin"
    )

    assert (stamps.dev_ns_T == (utc_seconds * SECOND).astype(np.int64)).all()
    assert not stamps.is_bad_T.any()


def test_an_unknown_zone_is_named():
    with pytest.raises(RecordingError, match="time_zone is 'Europe/Bern_'; expected an IANA name"):
        read(Encoding.LOCAL_TEXT, {"ts": ["2026-01-05 09:00:00.000"]}, time_zone="Europe/Bern_")


@example(0, [(493, 0), (495, 0)])
@example(0, [(367, 0), (369, 46_682_625)])
@given(
    st.integers(0, 2**32 - 1),
    st.lists(
        st.tuples(st.integers(20, 990), st.integers(0, 2**32 - 1)), max_size=12, unique_by=lambda item: item[0] // 3
    ),
)
def test_a_counter_that_overflows_is_followed_through_spoiled_ticks(first, spoiled):
    true_us = first + np.arange(1_000) * 10_000_000  # 2.8 h: the counter overflows twice or more
    ticks = true_us % 2**32
    for row, value in spoiled:
        ticks[row] = value

    stamps = read(Encoding.TICKS_US_U32, {"ticks": ticks}, rate_hz=0.1)

    is_spoiled = np.isin(np.arange(1_000), [row for row, _ in spoiled])
    assert (stamps.dev_ns_T == true_us * 1_000)[~is_spoiled].all()
    assert not stamps.is_bad_T[~is_spoiled].any()


def test_a_long_gap_is_no_fault():
    dev_ms = np.r_[np.arange(0, 10_000, 100), np.arange(900_000, 910_000, 100)] + 1_767_600_000_000

    stamps = read(Encoding.EPOCH_MS, {"ts": dev_ms})

    assert not stamps.is_bad_T.any()


def test_spoiled_stamps_are_found_even_in_the_first_row():
    dev_ms = np.arange(1_767_600_000_000, 1_767_600_010_000, 100)
    dev_ms[[0, 1, 40]] = [0, 1_767_700_000_000, 0]

    stamps = read(Encoding.EPOCH_MS, {"ts": dev_ms})

    assert np.flatnonzero(stamps.is_bad_T).tolist() == [0, 1, 40]


@pytest.mark.parametrize("wrong", [lambda ms: ms * 0, lambda ms: ms + 7_200_000, lambda ms: ms - 86_400_000])
def test_a_burst_of_spoilt_stamps_is_no_new_time(wrong):
    dev_ms = np.arange(1_767_600_000_000, 1_767_600_100_000, 100)
    dev_ms[500:521] = wrong(dev_ms[500:521])

    stamps = read(Encoding.EPOCH_MS, {"ts": dev_ms})

    assert np.flatnonzero(stamps.is_bad_T).tolist() == list(range(500, 521))


def test_a_batch_that_was_stored_minutes_late_is_good():
    dev_ms = np.arange(1_767_600_000_000, 1_767_601_000_000, 100)
    stored = np.r_[0:1_000, 1_050:6_000, 1_000:1_050, 6_000:10_000]

    assert not read(Encoding.EPOCH_MS, {"ts": dev_ms[stored]}).is_bad_T.any()


def test_a_clock_that_was_set_for_good_is_followed():
    dev_ms = np.arange(1_767_600_000_000, 1_767_600_100_000, 100)
    dev_ms[500:] += 7_200_000

    assert not read(Encoding.EPOCH_MS, {"ts": dev_ms}).is_bad_T.any()


def test_missing_stamps_are_bad():
    stamps = read(Encoding.EPOCH_MS, {"ts": [1_767_600_000_000, None, 1_767_600_000_100]})

    assert stamps.is_bad_T.tolist() == [False, True, False]


def test_a_file_in_no_order_of_time_loses_no_row():
    dev_ms = np.random.default_rng(0).permutation(np.arange(1_767_600_000_000, 1_767_600_600_000, 100))

    stamps = read(Encoding.EPOCH_MS, {"ts": dev_ms})

    assert not stamps.is_bad_T.any()


def test_rows_without_any_stamp_are_all_bad():
    nothing = np.full(5, NO_STAMP)

    _, is_bad_T = follow(nothing, nothing, TICKS_MODULUS_NS, SECOND, NO_STAMP)

    assert is_bad_T.all()
