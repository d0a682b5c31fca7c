"""MetroPT-3 as a labelled table: five statistics of fifteen signals over one window of two compressor cycles.

The table has no time stamps. `is_anomaly` says whether most of the window lies in one of the 21 published failures, and
`fold` keeps neighbouring windows together; a table of rows to be scored may lack both.
"""

import logging
from dataclasses import dataclass

import polars as pl

from pipelines import storage
from pipelines.channels import METROPT3_CHANNELS
from pipelines.ingest.tables import (
    RawTable,
    as_integers,
    as_numbers,
    faults_of,
    only_whole_rows,
    read_table,
    require_columns,
)

logger = logging.getLogger(__name__)

SOURCE = "metropt3_windows"
STATISTICS = ("mean", "max", "min", "median", "var")
FEATURES = tuple(f"{channel.name}_{statistic}" for channel in METROPT3_CHANNELS for statistic in STATISTICS)
"""The 75 feature columns, in the order in which they are published."""

LABEL = "is_anomaly"
GROUP = "fold"


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowTable:
    """Rows that may be used, and the others apart."""

    rows: pl.DataFrame
    """`row` (position in the file), `FEATURES` (Float64), and where the file has them `is_anomaly` (Boolean) and `fold`
    (Int64)."""

    quarantined: pl.DataFrame
    """`row`, `column`, the text `found` and a `reason`: one line for each thing that is wrong with a row."""

    num_duplicates: int
    """Rows that repeat an earlier one in every column; they are kept."""

    ignored_columns: tuple[str, ...]
    """Columns of the file that the published table does not have."""


def read_windows(location: str) -> WindowTable:
    """Read a window table (`.csv` or `.parquet`); rows with a missing, unreadable or infinite value are set apart.

    Raises:
        RecordingError: Columns are missing, or the file is no table.
    """
    name = storage.name_of(location)
    with storage.local_copy(location) as path:
        table = read_table(path)
    require_columns(table.rows, FEATURES, where=name)
    columns = [*FEATURES, *(column for column in (LABEL, GROUP) if column in table.rows.columns)]
    ignored = tuple(column for column in table.rows.columns if column not in ("row", *columns))
    typed = _only_labels(as_integers(as_numbers(table, FEATURES), columns[len(FEATURES) :]))
    whole = only_whole_rows(typed, columns)
    rows = whole.rows.select("row", *columns)
    quarantined = whole.faults.sort("row", maintain_order=True)
    num_duplicates = len(rows) - rows.n_unique(columns)
    logger.info("%s: %d rows, %d repeated, %d faults", name, len(rows), num_duplicates, len(quarantined))
    return WindowTable(rows=rows, quarantined=quarantined, num_duplicates=num_duplicates, ignored_columns=ignored)


def _only_labels(table: RawTable) -> RawTable:
    """Turn the label, where there is one, into a logical value; other numbers than 0 and 1 are faults."""
    if LABEL not in table.rows.columns:
        return table
    labels = table.rows[LABEL]
    is_other = ~labels.is_in([0, 1]).fill_null(value=True)
    faults = faults_of(table.rows, LABEL, is_other, "not_a_label")
    return table.plus(table.rows.with_columns(labels.set(is_other, None).cast(pl.Boolean)), faults)
