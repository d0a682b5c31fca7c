"""Row stamps as instants of the device's own clock, in int64 nanoseconds, and which of them cannot be true.

A stamp is often known only up to alternatives: a 32-bit counter up to whole overflows, local wall-clock time up to the
hour that is repeated when summer time ends. The alternative nearest to the last row that was trusted is taken, so late
rows and single spoiled stamps do not confuse the count of overflows.

Shape suffixes: T = rows in the order in which they were stored.
"""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import polars as pl

from pipelines.compiled import compiled
from pipelines.errors import RecordingError
from pipelines.ingest.reader import Encoding, SensorRows

GPS_EPOCH_UNIX_S = 315_964_800
GPS_ROLLOVER_WEEKS = 1024
GPS_HINT_WEEKS = 4
"""A recording begins less than this from the hint, and lasts no longer."""

WEEK_S = 7 * 86_400
TICKS_MODULUS_NS = 2**32 * 1_000
NO_STAMP = -(2**63)
"""Stands for a stamp that is missing or cannot be read."""

NEAR_PERIODS = 64
"""Rows may be stored this many periods after their turn."""

NEAR_NS = 10_000_000_000
"""Stamps jump by less than this between rows, unless at least `CONFIRMING_ROWS` agree that time went on elsewhere."""

EVENTS_NEAR_NS = 6 * 3_600 * 10**9
CONFIRMING_ROWS = 4
UNORDERED_SHARE = 0.2
"""With more rows than this out of place the file is in no order of time at all, and is followed by stamp instead."""

FIRST_ROWS = 9

_UNIT_NS = {Encoding.EPOCH_MS: 1_000_000, Encoding.EPOCH_US: 1_000, Encoding.EPOCH_NS: 1, Encoding.UPTIME_NS: 1}


class RowFault(StrEnum):
    """Why a row has no place in time."""

    BAD_STAMP = "bad_stamp"
    """The stamp is missing, or far from those of the rows around it."""

    DUPLICATE = "duplicate"
    """The same instant was stored before."""

    BESIDE_STEP = "beside_step"
    """The clock was set, and whether before or after this row is not certain."""

    NO_CLOCK = "no_clock"
    """Nothing ties the device's clock to UTC."""


class Stamps(NamedTuple):
    """Device time of every row."""

    dev_ns_T: np.ndarray
    is_bad_T: np.ndarray


def read_stamps(sensor: SensorRows, *, time_zone: str, gps_minus_utc_s: int, hint_utc_ns: int | None) -> Stamps:
    """Turn the stamp columns of one sensor into device time.

    Args:
        sensor: Rows as they were stored.
        time_zone: IANA zone of local wall-clock stamps.
        gps_minus_utc_s: Leap seconds that GPS time is ahead of UTC.
        hint_utc_ns: About when the recording started; settles what a first row alone leaves open.

    Returns:
        Device time without overflows (a counter starts within its first round), and which stamps cannot be true.
    """
    modulus_ns = 0
    match sensor.encoding:
        case Encoding.TICKS_US_U32:
            modulus_ns = TICKS_MODULUS_NS
            stamp_T = other_T = _integers(sensor.rows["ticks"], 1_000)
        case Encoding.GPS_TOW:
            stamp_T = other_T = _gps_to_utc_ns(sensor.rows, gps_minus_utc_s, hint_utc_ns)
        case Encoding.LOCAL_TEXT:
            stamp_T, other_T = _local_to_utc_ns(sensor.rows["ts"], time_zone)
        case Encoding.EPOCH_S:
            stamp_T = other_T = _integers((sensor.rows["ts"] * 1_000).round(), 1_000_000)
        case encoding:
            stamp_T = other_T = _integers(sensor.rows["ts"], _UNIT_NS[encoding])
    near_ns = EVENTS_NEAR_NS
    if sensor.nominal_rate_hz is not None:
        near_ns = max(NEAR_NS, round(NEAR_PERIODS / sensor.nominal_rate_hz * 1e9))
    start_ns = hint_utc_ns if hint_utc_ns is not None and modulus_ns == 0 else NO_STAMP
    dev_ns_T, is_bad_T = follow(stamp_T, other_T, modulus_ns, near_ns, start_ns)
    if is_bad_T.sum() > UNORDERED_SHARE * len(is_bad_T) and modulus_ns == 0:
        order = np.argsort(stamp_T, kind="stable")
        dev_ns_T[order], is_bad_T[order] = follow(stamp_T[order], other_T[order], modulus_ns, near_ns, start_ns)
    return Stamps(dev_ns_T, is_bad_T)


def in_round_of(dev_ns_T: np.ndarray, is_bad_T: np.ndarray, ends_ns: tuple[int, int]) -> np.ndarray:
    """Count a tick counter's overflows from the same start as another of its records, which has these ends."""
    good_ns = dev_ns_T[~is_bad_T]
    if not len(good_ns):
        return dev_ns_T
    apart_ns = (sum(ends_ns) - int(good_ns[0]) - int(good_ns[-1])) // 2
    rounds = round(apart_ns / TICKS_MODULUS_NS)
    return dev_ns_T + rounds * TICKS_MODULUS_NS if rounds else dev_ns_T


@compiled
def follow(
    stamp_T: np.ndarray, other_T: np.ndarray, modulus_ns: int, near_ns: int, start_ns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose among the alternatives of every stamp, and mark the stamps that no alternative makes plausible.

    A few rows that agree with each other may be a batch that was stored late, if they lie within the recording so far.
    If they go on before it or after it and the rows then return, or if their stamps stand still, they are spoilt.

    Args:
        stamp_T: Stamps, `NO_STAMP` where there is none.
        other_T: The second reading of each stamp; equal to the first where there is none.
        modulus_ns: Where the counter overflows; 0 for one that does not.
        near_ns: Stamps nearer than this to the last trusted one are trusted.
        start_ns: About when the first row was stamped, or `NO_STAMP`; only chooses among alternatives.

    Returns:
        `(dev_ns_T, is_bad_T)`.
    """
    n = len(stamp_T)
    dev_ns_T = stamp_T.copy()
    is_bad_T = np.zeros(n, dtype=np.bool_)
    typical = _typical(stamp_T, other_T, modulus_ns, near_ns)
    trusted = _nearest(stamp_T[typical], other_T[typical], modulus_ns, start_ns) if typical >= 0 else NO_STAMP
    first = before = trusted
    left, left_row = NO_STAMP, 0
    suspect, num_suspect = NO_STAMP, 0
    suspect_rows = np.empty(CONFIRMING_ROWS, dtype=np.int64)
    for i in range(n):
        if stamp_T[i] == NO_STAMP:
            is_bad_T[i] = True
            continue
        near = _nearest(stamp_T[i], other_T[i], modulus_ns, trusted)
        dev_ns_T[i] = near
        if abs(near - trusted) <= near_ns:
            if near >= trusted:
                before, trusted = trusted, near
            elif near >= before:  # nobody followed the last one forward; a late one is earlier still
                trusted = near
            num_suspect = 0
            continue
        is_bad_T[i] = True
        if num_suspect > 0:
            again = _nearest(stamp_T[i], other_T[i], modulus_ns, suspect)
            if again == suspect:
                continue
            if abs(again - suspect) > near_ns:
                num_suspect = 0
            else:
                dev_ns_T[i] = near = again
        suspect_rows[num_suspect] = i
        suspect, num_suspect = near, num_suspect + 1
        if num_suspect == CONFIRMING_ROWS:
            is_bad_T[suspect_rows] = False
            is_back = left != NO_STAMP and abs(near - left) <= 2 * near_ns and i - left_row <= NEAR_PERIODS
            if is_back and (trusted > near + near_ns or trusted < first - near_ns):
                is_bad_T[left_row : suspect_rows[0]] = True
            left, left_row = trusted, suspect_rows[0]
            before = trusted = near
            num_suspect = 0
    return dev_ns_T, is_bad_T


@compiled
def _typical(stamp_T: np.ndarray, other_T: np.ndarray, modulus_ns: int, near_ns: int) -> np.int64:
    """Of the first few rows, the one that most of them are near to (-1: none has a stamp): the first may be spoiled."""
    first = np.flatnonzero(stamp_T != NO_STAMP)[:FIRST_ROWS]
    best, most = np.int64(-1), 0
    for i in first:
        num_near = 0
        for k in first:
            num_near += abs(_nearest(stamp_T[k], other_T[k], modulus_ns, stamp_T[i]) - stamp_T[i]) <= near_ns
        if num_near > most:
            best, most = i, num_near
    return best


@compiled
def _nearest(stamp: int, other: int, modulus_ns: int, reference: int) -> int:
    if reference == NO_STAMP:
        return stamp
    if modulus_ns > 0:
        return stamp + (reference - stamp + modulus_ns // 2) // modulus_ns * modulus_ns
    return other if abs(other - reference) < abs(stamp - reference) else stamp


def _integers(column: pl.Series, unit_ns: int) -> np.ndarray:
    """Nanoseconds, `NO_STAMP` for null and for numbers that 64 bits of nanoseconds cannot hold."""
    limit = (2**62) // unit_ns
    if column.dtype.is_float():
        column = column.set(~column.is_between(-limit, limit).fill_null(value=False), None)
    counts = column.cast(pl.Int64, strict=False)
    if counts.null_count() == 0 and counts.is_between(-limit, limit).all():
        return counts.to_numpy() * unit_ns
    return (counts.set(~counts.is_between(-limit, limit), None) * unit_ns).fill_null(NO_STAMP).to_numpy()


def _gps_to_utc_ns(rows: pl.DataFrame, gps_minus_utc_s: int, hint_utc_ns: int | None) -> np.ndarray:
    """UTC from week and time of week.

    Weeks may be counted modulo 1024: each is put into the epoch of the hint. One that is then still far from it is a
    receiver's guess before it knew, often week 0.
    """
    week_T = rows["gps_week"].cast(pl.Int64).fill_null(0).clip(0, 10_000).to_numpy()
    tow_ns_T = _integers(rows["tow_ms"], 1_000_000)
    is_unknown_T = (week_T == 0) | (tow_ns_T == NO_STAMP)
    if hint_utc_ns is not None:
        hint_week = (hint_utc_ns // 10**9 - GPS_EPOCH_UNIX_S) // WEEK_S
        week_T = week_T + np.rint((hint_week - week_T) / GPS_ROLLOVER_WEEKS).astype(np.int64) * GPS_ROLLOVER_WEEKS
        is_unknown_T = (np.abs(week_T - hint_week) > GPS_HINT_WEEKS) | (tow_ns_T == NO_STAMP)
    utc_ns_T = (GPS_EPOCH_UNIX_S - gps_minus_utc_s + week_T * WEEK_S) * 10**9 + tow_ns_T
    return np.where(is_unknown_T, NO_STAMP, utc_ns_T)


def _local_to_utc_ns(text: pl.Series, time_zone: str) -> tuple[np.ndarray, np.ndarray]:
    """UTC of local wall-clock text, twice: as if a repeated hour were the first, and the second one."""
    naive = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns", strict=False)
    try:
        first, second = (
            naive.dt.replace_time_zone(time_zone, ambiguous=which, non_existent="null").dt.timestamp("ns")
            for which in ("earliest", "latest")
        )
    except pl.exceptions.ComputeError as err:
        raise RecordingError(f"time_zone is {time_zone!r}; expected an IANA name such as 'Europe/Zurich'") from err
    return first.fill_null(NO_STAMP).to_numpy(), second.fill_null(NO_STAMP).to_numpy()
