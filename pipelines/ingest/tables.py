"""Tables as they arrive: CSV from many hands, or Parquet, brought to one shape with everything odd about them named.

The position in the file is a row's identity: the first line after the header is row 0, and lines that are left out
(blank, repeated headers, too many fields) keep theirs. CSV stays text until a caller asks for numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from pipelines.ingest.reader import FAULT_SCHEMA, RefusedError

BLOCK_BYTES = 8 << 20
"""Bytes of a CSV file that are held at a time while it streams."""

_SEPARATORS = ",;\t|"
_BOM = b"\xef\xbb\xbf"
_UNNAMED = "unnamed_"
_FOUND_CHARACTERS = 80
_NO_SEPARATOR: dict[str, Any] = {
    "separator": "\x1f",  # in no text file
    "quote_char": None,
    "infer_schema": False,
    "truncate_ragged_lines": True,
    "encoding": "utf8-lossy",
}
_MAGIC = {
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a gzip archive",
    b"PK\x03\x04": "a zip archive or spreadsheet",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_WORDS: dict[str, str | None] = {
    **dict.fromkeys(("", "na", "n/a", "nan", "null", "none")),
    **{"true": "1", "false": "0"},
}
"""Words that stand for a missing or a logical value, in lower case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawTable:
    """Rows that could be told apart, and what was wrong with the others."""

    rows: pl.DataFrame
    """`row`, then the columns as they are stored."""

    faults: pl.DataFrame
    """Columns of `FAULT_SCHEMA`."""

    def plus(self, rows: pl.DataFrame, *faults: pl.DataFrame) -> "RawTable":
        """Return other rows with these and further faults."""
        return RawTable(rows=rows, faults=pl.concat([self.faults, *faults]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """First line of a CSV file."""

    names: tuple[str, ...]
    separator: str

    @property
    def num_separators(self) -> int:
        """Separators in a whole line."""
        return len(self.names) - 1


def read_table(path: Path) -> RawTable:
    """Read a `.csv` or `.parquet` file; raise `RefusedError` if it is not one."""
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if path.suffix == ".csv":
        # One block however long: the frame is held whole anyway, and larger blocks parse faster.
        blocks = list(stream_csv(path, block_bytes=max(BLOCK_BYTES, path.stat().st_size)))
        return blocks[0]
    raise RefusedError("file_type", f"{path.name} must end in .csv or .parquet")


def stream_csv(path: Path, *, block_bytes: int = BLOCK_BYTES) -> Iterator[RawTable]:
    """Yield a CSV file in blocks of whole lines; at least one, which is empty if there is only a header."""
    with path.open("rb") as file:
        header = _read_header(file, path.name)
        first_row = 0
        for block, is_last in _blocks(file, block_bytes):
            if is_last:
                _check_last_line(block, header, path.name)
            table, num_lines = _parse_lines(block, header, first_row)
            yield table
            first_row += num_lines


def stream_lines(path: Path) -> Iterator[pl.DataFrame]:
    """Yield a text file without header in blocks of `row` and `line`; at least one, which is empty if the file is."""
    with path.open("rb") as file:
        first_row = 0
        for block, _ in _blocks(file, BLOCK_BYTES):
            lines = pl.read_csv(b"line\n" + block, **_NO_SEPARATOR)
            yield lines.select(pl.int_range(first_row, first_row + pl.len()).alias("row"), "line")
            first_row += len(lines)


def csv_header(path: Path) -> Header:
    """Read only the header of a CSV file."""
    with path.open("rb") as file:
        return _read_header(file, path.name)


def require_columns(rows: pl.DataFrame, needed: Sequence[str], *, where: str) -> None:
    """Raise `RefusedError` unless all `needed` columns are there."""
    if missing := [column for column in needed if column not in rows.columns]:
        found = [column for column in rows.columns if column != "row"]
        raise RefusedError(
            "column_missing",
            f"{where} lacks {len(missing)} of {len(needed)} columns: {_listed(missing)}; it has {_listed(found)}",
        )


def as_numbers(table: RawTable, columns: Sequence[str]) -> RawTable:
    """Make `columns` Float64: NaN and empty are missing (null); infinity and other text are faults, and null too."""
    numbers, faults = [], []
    for column in columns:
        values, is_unread = _parsed(table.rows[column], pl.Float64)
        is_infinite = values.is_infinite().fill_null(value=False)
        numbers.append(values.fill_nan(None).set(is_infinite, None) if is_infinite.any() else values.fill_nan(None))
        faults.append(faults_of(table.rows, column, is_unread, "not_a_number"))
        faults.append(faults_of(table.rows, column, is_infinite, "not_finite"))
    return table.plus(table.rows.with_columns(numbers), *faults)


def as_integers(table: RawTable, columns: Sequence[str]) -> RawTable:
    """Make `columns` Int64: empty is missing (null); whatever is not a whole number is a fault, and null as well."""
    numbers, faults = [], []
    for column in columns:
        values, is_unread = _parsed(table.rows[column], pl.Int64)
        numbers.append(values)
        faults.append(faults_of(table.rows, column, is_unread, "not_an_integer"))
    return table.plus(table.rows.with_columns(numbers), *faults)


def as_text(table: RawTable, columns: Sequence[str]) -> RawTable:
    """Make `columns` text without blanks around it; empty is missing (null)."""
    for column in columns:
        _require_scalar(table.rows[column], "text")
    plain = [pl.col(column).cast(pl.String).str.strip_chars().replace({"": None}) for column in columns]
    return table.plus(table.rows.with_columns(plain))


def only_whole_rows(table: RawTable, columns: Sequence[str]) -> RawTable:
    """Leave out rows that lack a value in any of `columns`; what is missing, rather than unreadable, is a fault too."""
    unread = dict(table.faults.group_by("column").agg("row").iter_rows())
    missing = [
        faults_of(
            table.rows,
            column,
            table.rows[column].is_null() & ~table.rows["row"].is_in(unread.get(column, [])),
            "value_missing",
        )
        for column in columns
    ]
    return table.plus(table.rows.drop_nulls(list(columns)), *missing)


def set_apart(rows: pl.DataFrame, *, found: pl.Expr) -> RawTable:
    """Take out the lines for which the column `reason` has one, as a whole; `found` is what they say."""
    is_bad = rows["reason"].is_not_null()
    faults = rows.filter(is_bad).select(
        "row", column=pl.lit(""), found=found.fill_null("").str.head(_FOUND_CHARACTERS), reason="reason"
    )
    return RawTable(rows=rows.filter(~is_bad).drop("reason"), faults=faults)


def leave_out(table: RawTable, column: str, is_bad: pl.Series, reason: str) -> RawTable:
    """Take rows out because of what is in `column`."""
    if not is_bad.any():
        return table
    return table.plus(table.rows.filter(~is_bad), faults_of(table.rows, column, is_bad, reason))


def faults_of(rows: pl.DataFrame, column: str, is_bad: pl.Series, reason: str) -> pl.DataFrame:
    """Faults for the rows where `is_bad`, with what is stored in `column`."""
    if not is_bad.any():
        return pl.DataFrame(schema=FAULT_SCHEMA)
    return rows.filter(is_bad).select(
        "row",
        column=pl.lit(column),
        found=pl.col(column).cast(pl.String).fill_null("").str.head(_FOUND_CHARACTERS),
        reason=pl.lit(reason),
    )


def _blocks(file: BinaryIO, block_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Yield blocks of whole lines, and whether each is the last; at least one, which is empty if nothing is left."""
    block = file.read(block_bytes) + file.readline()
    while following := file.read(block_bytes) + file.readline():
        yield block, False
        block = following
    yield block, True


def _read_header(file: BinaryIO, name: str) -> Header:
    line = file.readline()
    for magic, kind in _MAGIC.items():
        if line.startswith(magic):
            raise RefusedError("file_type", f"{name} is {kind}, but must be CSV text in UTF-8")
    if b"\0" in line:
        raise RefusedError("file_type", f"{name} starts with binary data, but must be CSV text in UTF-8")
    text = line.removeprefix(_BOM).decode("utf-8", errors="replace").strip("\r\n")
    if not text.strip():
        raise RefusedError("file_empty", f"{name} is empty or starts with a blank line, not with a header")
    separator = max(_SEPARATORS, key=text.count)
    stored = [part.strip(" \"'") for part in text.split(separator)]
    names = tuple({"": f"{_UNNAMED}{i}", "row": "row_stored"}.get(part, part) for i, part in enumerate(stored))
    if all(column.startswith(_UNNAMED) for column in names):
        raise RefusedError("column_missing", f"{name}: the first line {text[:60]!r} names no column")
    if repeated := sorted({column for column in names if names.count(column) > 1}):
        raise RefusedError("column_repeated", f"{name}: column {repeated[0]!r} occurs more than once in the header")
    return Header(names=names, separator=separator)


def _check_last_line(block: bytes, header: Header, name: str) -> None:
    """A file may end without a line break, but not in the middle of a line."""
    if not block or block.endswith(b"\n"):
        return
    last = block[block.rfind(b"\n") + 1 :]
    if (found := last.count(header.separator.encode())) < header.num_separators:
        raise RefusedError(
            "file_truncated",
            f"{name} ends inside a line: {found + 1} of {len(header.names)} fields, no line break: {last[:60]!r}",
        )


def _parse_lines(block: bytes, header: Header, first_row: int) -> tuple[RawTable, int]:
    """Cut lines into text columns; return them and the number of lines."""
    lines = block if not block or block.endswith(b"\n") else block + b"\n"
    num_lines = lines.count(b"\n")
    rows = _split(lines, header, quote='"') if b'"' in lines else _split(lines, header, quote=None)
    if rows is None or len(rows) != num_lines:  # an odd quote swallows lines: take quotes as plain characters
        rows = _split(lines, header, quote=None)
    assert rows is not None
    assert len(rows) == num_lines
    *columns, excess = rows.columns  # positions: a stored name may be anything, even a pattern
    named = [
        (column, name) for column, name in zip(columns, header.names, strict=True) if not name.startswith(_UNNAMED)
    ]
    reason = (
        pl.when(pl.all_horizontal(pl.all().is_null()))
        .then(pl.lit("blank_line"))
        .when(pl.all_horizontal(pl.col(column).str.ends_with(name) for column, name in named))
        .then(pl.lit("repeated_header"))
        .when(pl.col(excess).is_not_null())
        .then(pl.lit("too_many_fields"))
    )
    table = set_apart(
        rows.select(pl.int_range(first_row, first_row + num_lines).alias("row"), pl.all(), reason.alias("reason")),
        found=pl.concat_str(*columns, excess, separator=header.separator, ignore_nulls=True),
    )
    rows = table.rows.drop(excess).rename(dict(zip(columns, header.names, strict=True)))
    return RawTable(rows=rows, faults=table.faults), num_lines


def _split(lines: bytes, header: Header, *, quote: str | None) -> pl.DataFrame | None:
    """Cut lines at the separators into text columns `c0`, `c1` ...; `None` if the quotes do not match.

    One column more than the header has catches what follows a line's last field.
    """
    positions = [f"c{i}" for i in range(len(header.names) + 1)]
    try:
        return pl.read_csv(
            header.separator.join(positions).encode() + b"\n" + lines,
            separator=header.separator,
            quote_char=quote,
            infer_schema=False,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
    except pl.exceptions.ComputeError:
        return None


def parquet_columns(path: Path) -> tuple[str, ...]:
    """Column names of a Parquet file; raise `RecordingError` if it is none."""
    try:
        return tuple(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError) as err:
        raise RefusedError("not_parquet", f"{path.name} is no whole Parquet file: {err}") from err


def _read_parquet(path: Path) -> RawTable:
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(-min(4, path.stat().st_size), 2)
        end = file.read()
    if not start:
        raise RefusedError("file_empty", f"{path.name} has no bytes; a Parquet file has at least 12")
    if start != b"PAR1":
        raise RefusedError("file_type", f"{path.name} starts with {start!r}; a Parquet file starts with b'PAR1'")
    if end != b"PAR1":
        raise RefusedError("file_truncated", f"{path.name} ends without the footer of a Parquet file")
    try:
        stored = pl.read_parquet(path, use_statistics=False).rename({"row": "row_stored"}, strict=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as err:
        raise RefusedError("file_damaged", f"{path.name} cannot be decoded as Parquet: {err}") from err
    rows = stored.select(pl.int_range(pl.len()).alias("row"), pl.all())
    return RawTable(rows=rows, faults=pl.DataFrame(schema=FAULT_SCHEMA))


def _parsed(stored: pl.Series, dtype: type[pl.Float64 | pl.Int64]) -> tuple[pl.Series, pl.Series]:
    """Return the numbers, and where there is something that is none."""
    _require_scalar(stored, "numbers")
    if stored.dtype in (pl.Categorical, pl.Enum):
        stored = stored.cast(pl.String)
    if stored.dtype.is_float() and dtype == pl.Int64:
        stored = stored.fill_nan(None)
        values = stored.cast(dtype, strict=False)
        is_fraction = (values.cast(stored.dtype) != stored).fill_null(value=False)
        values = values.set(is_fraction, None)
        return values, values.is_null() & stored.is_not_null()
    values = stored.cast(dtype, strict=False)
    is_unread = values.is_null() & stored.is_not_null()
    if stored.dtype != pl.String or not is_unread.any():
        return values, is_unread
    plain = _plain(stored.filter(is_unread))
    if dtype == pl.Int64:
        plain = plain.str.replace(r"\.0*$", "")
    again = plain.cast(dtype, strict=False)
    unread_at = is_unread.arg_true()
    still_unread_at = unread_at.filter(again.is_null() & plain.is_not_null())
    is_unread = pl.Series(stored.name, [False]).new_from_index(0, len(stored)).scatter(still_unread_at, True)
    return values.scatter(unread_at, again), is_unread


def _require_scalar(stored: pl.Series, wanted: str) -> None:
    """Dates, lists and bytes are not what any of our sources stores in a column."""
    dtype = stored.dtype
    if not (dtype.is_numeric() or dtype in (pl.String, pl.Boolean, pl.Null, pl.Categorical, pl.Enum)):
        raise RefusedError("wrong_type", f"column {stored.name} holds {dtype}, but must hold {wanted}")


def _plain(text: pl.Series) -> pl.Series:
    """Numbers as other hands write them: blanks or quotes around, a decimal comma, a word for missing."""
    plain = text.str.strip_chars(" \t\r\"'").str.to_lowercase().replace(_WORDS)
    return plain.str.replace(r"^([^.,]*),([^.,]*)$", "${1}.${2}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
