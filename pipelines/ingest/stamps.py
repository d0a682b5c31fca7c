"""Raw time stamps: typed, checked against their encoding, and otherwise left as they were written.

A stamp that cannot be read takes its row out, with a reason. A whole column that reads as a time between 1990 and 2100
only in another encoding is refused: milliseconds taken for seconds would put a trip behind the year 50000.
"""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from pipelines.ingest.dates import is_iso
from pipelines.ingest.reader import Encoding, RefusedError
from pipelines.ingest.tables import RawTable, as_integers, as_numbers, as_text, leave_out, require_columns

UNIT_NS = {
    Encoding.EPOCH_S: 1_000_000_000,
    Encoding.EPOCH_MS: 1_000_000,
    Encoding.EPOCH_US: 1_000,
    Encoding.EPOCH_NS: 1,
}
"""Nanoseconds in one count of an epoch encoding."""

_PLAUSIBLE_S = (631_152_000, 4_102_444_800)  # 1990-01-01 and 2100-01-01
_LIMIT = {"ticks": 2**32, "gps_week": 2**14, "tow_ms": 7 * 86_400_000}
"""First count that a stamp column cannot have; all begin at zero. Weeks may be counted modulo 1024."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_stamps(table: RawTable, encoding: Encoding, *, where: str, may_be_unset: bool = False) -> RawTable:
    """Type the stamp columns of `encoding` and take out the rows whose stamp cannot be read.

    Args:
        table: Rows as stored.
        encoding: How the stamps should be written.
        where: Name of the file, for messages.
        may_be_unset: Accept a clock that believes to be before 1990: its exchanges will tell what time it was.
    """
    require_columns(table.rows, encoding.columns, where=where)
    num_rows = len(table.rows)
    stored = table.rows[encoding.columns[0]]
    if stored.dtype == pl.Float32:
        raise RefusedError("wrong_type", f"{where}: stamps are Float32, which cannot tell one minute from the next")
    read = _typed(table, encoding)
    if encoding in UNIT_NS and len(read.rows):
        _refuse_implausible(read.rows["ts"], encoding, where=where, may_be_unset=may_be_unset)
    read = _in_range(read, encoding)
    if 2 * len(read.rows) < num_rows:
        _refuse_unreadable(read, encoding, stored, where=where)
    return read


def _typed(table: RawTable, encoding: Encoding) -> RawTable:
    if encoding is Encoding.LOCAL_TEXT:
        return _local_text(table)
    columns = encoding.columns
    convert = as_numbers if encoding is Encoding.EPOCH_S else as_integers
    converted = convert(RawTable(rows=table.rows, faults=table.faults.clear()), columns)
    unreadable = converted.faults.with_columns(reason=pl.lit("stamp_unreadable"))
    is_unreadable = converted.rows["row"].is_in(unreadable["row"].implode())
    read = table.plus(converted.rows.filter(~is_unreadable), unreadable)
    for column in columns:
        read = leave_out(read, column, read.rows[column].is_null(), "stamp_missing")
    return read


def _local_text(table: RawTable) -> RawTable:
    table = as_text(table, ["ts"])
    table = leave_out(table, "ts", table.rows["ts"].is_null(), "stamp_missing")
    return leave_out(table, "ts", ~is_iso(table.rows["ts"]), "stamp_unreadable")


def _in_range(read: RawTable, encoding: Encoding) -> RawTable:
    """Take out what the encoding does not have, or int64 nanoseconds cannot hold."""
    for column in encoding.columns if encoding is not Encoding.LOCAL_TEXT else ():
        limit = _LIMIT.get(column) or 2**63 // UNIT_NS[encoding] - 1
        low = 0 if column in _LIMIT else -limit
        is_outside = ~read.rows[column].is_between(low, limit, closed="left")
        read = leave_out(read, column, is_outside, "stamp_out_of_range")
    return read


def _refuse_unreadable(read: RawTable, encoding: Encoding, stored: pl.Series, *, where: str) -> None:
    examples = read.faults.filter(pl.col("column").is_in(encoding.columns))["found"].head(1).to_list()
    fitting = _fitting(stored)
    raise RefusedError(
        "encoding_mismatch",
        f"{where}: only {len(read.rows)} of {len(stored)} stamps can be read as {encoding.value}"
        + "".join(f"; {text!r} cannot" for text in examples)
        + (f"; {fitting} would fit" if fitting else ""),
    )


def _refuse_implausible(stamps: pl.Series, encoding: Encoding, *, where: str, may_be_unset: bool) -> None:
    """Judge the middle stamp: single wild ones are the business of the clocks."""
    seconds = _middle(stamps) * UNIT_NS[encoding] / 1e9
    if _PLAUSIBLE_S[0] <= seconds < _PLAUSIBLE_S[1]:
        return
    fitting = _fitting(stamps)
    if may_be_unset and not fitting and seconds < _PLAUSIBLE_S[0]:
        return
    raise RefusedError(
        "encoding_mismatch" if fitting else "stamps_implausible",
        f"{where}: stamps read as {encoding.value} lie around the year {_year(seconds)}, but must lie in 1990 to 2100"
        + (f"; {fitting} would fit" if fitting else ""),
    )


def _fitting(stamps: pl.Series) -> str:
    """Encoding in which the middle one of the stamps is a time between 1990 and 2100; empty if there is none."""
    numbers = stamps.cast(pl.Float64, strict=False).drop_nulls().drop_nans()
    if numbers.is_empty():
        texts = stamps.cast(pl.String).drop_nulls()
        return Encoding.LOCAL_TEXT.value if 2 * is_iso(texts).sum() > len(stamps) else ""
    middle = _middle(numbers)
    for encoding, unit_ns in UNIT_NS.items():
        if _PLAUSIBLE_S[0] <= middle * unit_ns / 1e9 < _PLAUSIBLE_S[1]:
            return f"{encoding.value} ({_EPOCH + timedelta(seconds=middle * unit_ns // 1e9):%Y-%m-%d})"
    return ""


def _middle(stamps: pl.Series) -> float:
    return float(np.median(stamps.to_numpy()))


def _year(seconds: float) -> int:
    return 1970 + int(seconds // (365.2425 * 86_400))
