"""A long CSV of one vehicle with wall-clock stamps, cut into service days while it streams.

Memory holds one block of the file and two days, whatever the file's size: rows may be out of order by up to a day.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import polars as pl

from pipelines import storage
from pipelines.channels import Channel
from pipelines.errors import RecordingError
from pipelines.ingest.dates import DayOrder, day_order, is_ambiguous, is_iso, to_iso
from pipelines.ingest.reader import (
    FAULT_SCHEMA,
    ClockSpec,
    Encoding,
    Recording,
    Refusal,
    RefusedError,
    SensorRows,
    describe_faults,
)
from pipelines.ingest.tables import RawTable, as_numbers, as_text, csv_header, faults_of, require_columns, stream_csv

logger = logging.getLogger(__name__)

_DAYS_HELD = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What a source's files look like."""

    source: str
    sensor: str
    channels: tuple[Channel, ...]
    stamp_column: str
    row_number_column: str | None = None
    """A column that only counts rows, under this name or none."""

    clock_id: str
    nominal_rate_hz: float

    def name_of(self, stored: str) -> str:
        """Our name of a stored column: upper and lower case do not matter."""
        return {name.casefold(): name for name in self.columns}.get(stored.casefold(), stored)

    def is_known(self, stored: str) -> bool:
        """Whether a stored column is one that the source has."""
        is_row_number = self.row_number_column is not None and stored in (self.row_number_column, "unnamed_0")
        return is_row_number or self.name_of(stored) in self.columns

    @property
    def columns(self) -> list[str]:
        """Stamp and channels."""
        return [self.stamp_column, *(channel.name for channel in self.channels)]


def read_days(location: str, layout: Layout, *, vehicle: str) -> Iterator[Recording]:
    """Yield one recording a service day, oldest first, from the CSV file at `location`.

    Naive stamps are taken for UTC as they are published. Rows whose stamp cannot be read belong to no day; they are
    reported with the next recording.
    """
    with storage.local_copy(location) as path:
        days: dict[str, list[pl.DataFrame]] = {}
        faults = pl.DataFrame(schema={**FAULT_SCHEMA, "day": pl.String})
        finished = ""
        for table in _typed_blocks(path, layout):
            for (day,), rows in table.rows.partition_by("day", as_dict=True, include_key=False).items():
                if day <= finished:
                    raise RecordingError(
                        f"{path.name}: row {rows['row'][0]} belongs to {day}, but {finished} is complete already; "
                        "sort the file by time: rows may be out of order by a day at most"
                    )
                days.setdefault(day, []).append(rows)
            faults = pl.concat([faults, table.faults.join(table.rows.select("row", "day"), on="row", how="left")])
            for day in sorted(days)[:-_DAYS_HELD]:
                finished = day
                due, faults = _due(faults, day)
                yield _recording(day, days.pop(day), due, path, layout, vehicle)
        if not days:
            found = "; ".join(describe_faults(layout.sensor, faults)) or "only a header"
            raise RefusedError("no_rows", f"{path.name} has no row that can be used: {found}")
        for day in sorted(days):
            due, faults = _due(faults, day)
            yield _recording(day, days[day], due, path, layout, vehicle)


def _due(faults: pl.DataFrame, day: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divide faults into those to be reported with `day` (its own, and those of no day) and the others."""
    is_due = (faults["day"] == day).fill_null(value=True)
    return faults.filter(is_due).drop("day"), faults.filter(~is_due)


def _typed_blocks(path: Path, layout: Layout) -> Iterator[RawTable]:
    """Yield `row`, `ts` in ISO notation, the channels as numbers, and `day`."""
    channels = [channel.name for channel in layout.channels]
    order: DayOrder | None = None
    for table in _named_blocks(path, layout):
        stored = table.rows[layout.stamp_column]
        if order is None and not is_iso(stored).all():
            order = _order_in_file(path, layout)
        iso = to_iso(stored, order or DayOrder()).alias("ts")
        rows = table.rows.with_columns(iso, iso.str.head(10).alias("day")).filter(iso.is_not_null())
        faults = _stamp_faults(table.rows.filter(iso.is_null()), layout.stamp_column)
        typed = as_numbers(table.plus(rows, *faults), channels)
        yield typed.plus(typed.rows.select("row", "ts", *channels, "day"))


def _stamp_faults(unread: pl.DataFrame, column: str) -> list[pl.DataFrame]:
    """Say why the stamps of these rows were not read."""
    is_missing = unread[column].is_null()
    is_open = is_ambiguous(unread[column])
    return [
        faults_of(unread, column, is_missing, "stamp_missing"),
        faults_of(unread, column, is_open, "date_ambiguous"),
        faults_of(unread, column, ~is_missing & ~is_open, "stamp_unreadable"),
    ]


def _named_blocks(path: Path, layout: Layout) -> Iterator[RawTable]:
    """Yield the blocks of the file as text, their columns under our names."""
    names = [layout.name_of(stored) for stored in csv_header(path).names]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(
            "column_repeated", f"{path.name}: column {repeated[0]!r} occurs more than once in the header"
        )
    for table in stream_csv(path):
        rows = table.rows.rename(layout.name_of)
        require_columns(rows, layout.columns, where=path.name)
        yield as_text(table.plus(rows), [layout.stamp_column])


def _order_in_file(path: Path, layout: Layout) -> DayOrder:
    """Look through the whole file for stamps that tell where the day stands."""
    order = reduce(add, (day_order(table.rows[layout.stamp_column]) for table in _named_blocks(path, layout)))
    logger.info("%s: stamps are not in ISO notation: %s", path.name, order)
    if not order.is_told and order.num_ambiguous > order.num_plain:
        raise RefusedError(
            "date_ambiguous",
            f"{path.name}: {order.num_ambiguous} stamps can be read with the day first or with the month first, and "
            f"the others do not tell ({order.num_day_first} show the day first, {order.num_month_first} the month); "
            "write them as YYYY-MM-DD HH:MM:SS",
        )
    return order


def _recording(
    day: str, rows: list[pl.DataFrame], faults: pl.DataFrame, path: Path, layout: Layout, vehicle: str
) -> Recording:
    return Recording(
        source=layout.source,
        vehicle=vehicle,
        day=day,
        recording_id=path.stem,
        sensors={
            layout.sensor: SensorRows(
                sensor=layout.sensor,
                rows=pl.concat(rows),
                channels=layout.channels,
                clock_id=layout.clock_id,
                encoding=Encoding.LOCAL_TEXT,
                nominal_rate_hz=layout.nominal_rate_hz,
                faults=faults,
            )
        },
        clocks={layout.clock_id: ClockSpec(clock_id=layout.clock_id, kind="epoch")},
        time_zone="UTC",
        refusals=tuple(
            Refusal(
                thing=f"column {column}",
                reason="extra_column",
                message=f"{path.name} has a column {column!r} that {layout.source} does not have; it was not read",
            )
            for column in csv_header(path).names
            if not layout.is_known(column)
        ),
    )
