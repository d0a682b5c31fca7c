"""Exchanges with time servers, as recorders, ntpd and chrony log them, brought to the columns of `ntp_log.csv`.

The format is told by the content: ntpd's and chrony's files have no header of names, and any name.

    exchanges     CSV or Parquet with the columns of `EXCHANGES` (DESIGN.md, section 7); many clocks
    rawstats      ntpd: MJD, second, server, own address, then the four timestamps in NTP seconds, leap, version, mode,
                  stratum, poll, precision, root delay, root dispersion
    peerstats     ntpd: MJD, second, server, status word, offset, delay, dispersion[, jitter]
    measurements  chrony: date, time, server, leap, stratum, three columns of tests, two polls, score, offset, delay,
                  dispersion, root delay, root dispersion, ...
    statistics    chrony: date, time, server, standard deviation, offset (positive where the clock is ahead, unlike
                  everywhere else), its standard deviation, ...

The daemons' logs are of one clock, the host's, which counts from 1970; it is called `HOST`. Where only offset and delay
were logged, four timestamps are made that say the same.
"""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

from pipelines.errors import RecordingError
from pipelines.ingest.reader import RefusedError
from pipelines.ingest.tables import (
    RawTable,
    as_integers,
    as_numbers,
    as_text,
    read_table,
    require_columns,
    set_apart,
    stream_lines,
)

EXCHANGES: dict[str, type[pl.DataType]] = {
    "clock_id": pl.String,
    "server_id": pl.String,
    "t1_dev": pl.Int64,
    "t2_srv": pl.Int64,
    "t3_srv": pl.Int64,
    "t4_dev": pl.Int64,
    "stratum": pl.Int64,
    "root_dispersion_ms": pl.Float64,
}
HOST = "host"
"""The clock of a daemon's log."""

UNSYNCHRONISED_STRATUM = 16
UNSPECIFIED_STRATUM = 0
FIRST_LINES = 50
"""Lines by which the format is told."""

_MJD_OF_1970 = 40_587
_NTP_SECONDS_OF_1970 = 2_208_988_800
_BOUND_SIGMAS = 3.0
"""Where a log states a standard error but no delay, the truth is taken to be this many of them away at most."""

_MJD = r"^\s*[1-9]\d{4}\s+\d{1,5}(\.\d+)?\s+\S+\s+"
_DATE = r"^\s*\d{4}-\d\d-\d\d\s+\d\d:\d\d:\d\d\s+\S+\s+"
_NUMBER = r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?"
_BANNER = r"^\s*(=|Date|#|$)"


class NtpLog(NamedTuple):
    """A log of exchanges as it was read."""

    format: str
    """`exchanges`, `rawstats`, `peerstats`, `measurements` or `statistics`."""

    table: RawTable
    """`row`, then the columns of `EXCHANGES`; null where a cell is empty or could not be read, which is a fault."""


def read_ntp_log(path: Path) -> NtpLog:
    """Read exchanges in any known format.

    Raises:
        RecordingError: The file is of no known format, or no line of it could be read.
    """
    if path.suffix == ".parquet":
        return NtpLog("exchanges", _read_exchanges(path))
    format_ = _format_of(path)
    if format_ == "exchanges":
        return NtpLog(format_, _read_exchanges(path))
    lines = pl.concat(stream_lines(path)).filter(~pl.col("line").fill_null("").str.contains(_BANNER))
    pattern, convert = _FORMATS[format_]
    is_whole = pl.col("line").str.contains(pattern)
    reason = pl.when(~is_whole).then(pl.lit(f"not_{format_}"))
    table = set_apart(lines.with_columns(reason=reason), found=pl.col("line"))
    if not len(table.rows):
        raise RecordingError(f"{path.name}: no line of it can be read as {format_}")
    fields = pl.col("line").str.strip_chars().str.replace_all(r"\s+", " ").str.split(" ")
    rows = table.rows.select("row", *(expr.alias(name) for name, expr in convert(fields).items()))
    return NtpLog(format_, RawTable(rows=rows.select("row", *EXCHANGES), faults=table.faults))


def _format_of(path: Path) -> str:
    """Tell the format of a text file by its first lines."""
    with path.open("rb") as file:
        lines = [line.decode("utf-8", errors="replace") for line in islice(file, FIRST_LINES)]
    first = next((line.strip() for line in lines if line.strip()), "")
    if "t1_dev" in first:
        return "exchanges"
    counts = {
        name: int(pl.Series(lines, dtype=pl.String).str.contains(pattern).sum())
        for name, (pattern, _) in _FORMATS.items()
    }
    best = max(counts, key=lambda name: counts[name])
    if counts[best]:
        return best
    raise RecordingError(
        f"{path.name}: not a log of NTP exchanges: it begins {first[:60]!r}; expected a header with "
        f"{', '.join(EXCHANGES)}, or ntpd's rawstats or peerstats, or chrony's measurements.log or statistics.log"
    )


def _read_exchanges(path: Path) -> RawTable:
    try:
        table = read_table(path)
        require_columns(table.rows, list(EXCHANGES), where=path.name)
        for dtype, convert in ((pl.String, as_text), (pl.Int64, as_integers), (pl.Float64, as_numbers)):
            table = convert(table, [column for column, wanted in EXCHANGES.items() if wanted is dtype])
    except RefusedError as err:
        raise RecordingError(str(err)) from err
    return RawTable(rows=table.rows.select("row", *EXCHANGES), faults=table.faults)


def _rawstats(fields: pl.Expr) -> dict[str, pl.Expr]:
    day_s = (_integer(fields, 0) - _MJD_OF_1970) * 86_400
    leap, stratum = _integer(fields, 8), _integer(fields, 11)
    is_synchronised = (leap.fill_null(0) < 3) & (stratum.fill_null(1) > 0)  # 3: alarm; stratum 0: "ask me less"
    stamps = {name: _ntp_ns(_field(fields, 4 + i), day_s) for i, name in enumerate(_STAMPS)}
    return _row(
        server=_field(fields, 2),
        stamps=stamps,
        stratum=pl.when(is_synchronised).then(stratum.fill_null(UNSPECIFIED_STRATUM)).otherwise(UNSYNCHRONISED_STRATUM),
        root_dispersion_s=_number(fields, 15),
    )


def _peerstats(fields: pl.Expr) -> dict[str, pl.Expr]:
    at_ns = (_integer(fields, 0) - _MJD_OF_1970) * 86_400 * 10**9 + _decimal_ns(_field(fields, 1))
    offset_s, delay_s = _number(fields, 4), _number(fields, 5)
    return _row(server=_field(fields, 2), stamps=_equivalent(at_ns, offset_s, delay_s))


def _measurements(fields: pl.Expr) -> dict[str, pl.Expr]:
    offset_s, delay_s = _number(fields, 11), _number(fields, 12)
    stratum = _integer(fields, 4)
    return _row(
        server=_field(fields, 2),
        stamps=_equivalent(_chrony_ns(fields), offset_s, delay_s),
        stratum=pl.when(_field(fields, 3) == "?").then(UNSYNCHRONISED_STRATUM).otherwise(stratum),
        root_dispersion_s=_number(fields, 15),
    )


def _statistics(fields: pl.Expr) -> dict[str, pl.Expr]:
    offset_s, sigma_s = -_number(fields, 4), _number(fields, 5)
    return _row(
        server=_field(fields, 2), stamps=_equivalent(_chrony_ns(fields), offset_s, 2.0 * _BOUND_SIGMAS * sigma_s)
    )


_STAMPS = ("t1_dev", "t2_srv", "t3_srv", "t4_dev")
_FORMATS: dict[str, tuple[str, Callable[[pl.Expr], dict[str, pl.Expr]]]] = {
    "rawstats": (_MJD + r"\S+(\s+\d{9,10}\.\d+){4}(\s|$)", _rawstats),
    "peerstats": (_MJD + rf"[0-9a-fA-F]+(\s+{_NUMBER}){{3,4}}\s*$", _peerstats),
    "measurements": (_DATE + rf"[-N+?]\s+\d+(\s+\S+){{3}}(\s+{_NUMBER}){{3}}(\s+{_NUMBER}){{5}}(\s|$)", _measurements),
    "statistics": (_DATE + rf"{_NUMBER}(\s+{_NUMBER}){{5,}}(\s|$)", _statistics),
}


def _field(fields: pl.Expr, index: int) -> pl.Expr:
    return fields.list.get(index, null_on_oob=True)


def _number(fields: pl.Expr, index: int) -> pl.Expr:
    return _field(fields, index).cast(pl.Float64, strict=False)


def _integer(fields: pl.Expr, index: int) -> pl.Expr:
    return _field(fields, index).cast(pl.Int64, strict=False)


def _row(
    *,
    server: pl.Expr,
    stamps: dict[str, pl.Expr],
    stratum: pl.Expr | None = None,
    root_dispersion_s: pl.Expr | None = None,
) -> dict[str, pl.Expr]:
    """The columns of `EXCHANGES` by what a log says."""
    return {
        "clock_id": pl.lit(HOST),
        "server_id": server,
        **stamps,
        "stratum": pl.lit(UNSPECIFIED_STRATUM, dtype=pl.Int64) if stratum is None else stratum.cast(pl.Int64),
        "root_dispersion_ms": pl.lit(None, dtype=pl.Float64) if root_dispersion_s is None else root_dispersion_s * 1e3,
    }


def _equivalent(at_ns: pl.Expr, offset_s: pl.Expr, delay_s: pl.Expr) -> dict[str, pl.Expr]:
    """Four timestamps that have this offset and delay, half-way at this time of the device."""
    half_ns = (delay_s.abs() * 5e8).round().cast(pl.Int64, strict=False)
    served_ns = at_ns + (offset_s * 1e9).round().cast(pl.Int64, strict=False)
    return {"t1_dev": at_ns - half_ns, "t2_srv": served_ns, "t3_srv": served_ns, "t4_dev": at_ns + half_ns}


def _chrony_ns(fields: pl.Expr) -> pl.Expr:
    text = pl.concat_str(_field(fields, 0), pl.lit(" "), _field(fields, 1))
    return text.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns", strict=False).dt.timestamp("ns")


def _decimal_ns(seconds: pl.Expr) -> pl.Expr:
    """Nanoseconds of a decimal number of seconds, exact."""
    whole = seconds.str.extract(r"^(\d+)").cast(pl.Int64, strict=False)
    part = seconds.str.extract(r"\.(\d+)").fill_null("0").str.head(9).str.pad_end(9, "0").cast(pl.Int64, strict=False)
    return whole * 10**9 + part


def _ntp_ns(seconds: pl.Expr, day_s: pl.Expr) -> pl.Expr:
    """Nanoseconds since 1970 of NTP seconds since 1900, which overflow in 2036; the day says how often they did."""
    unix_ns = _decimal_ns(seconds) - _NTP_SECONDS_OF_1970 * 10**9
    eras = ((day_s * 10**9 - unix_ns) / (2**32 * 1e9)).round().cast(pl.Int64, strict=False)
    return unix_ns + eras * 2**32 * 10**9
