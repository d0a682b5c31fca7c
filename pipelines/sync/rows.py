"""Instant, place and reason of every row of every sensor, whether it is used or not.

Shape suffixes: T = rows of one sensor as the reader kept them, F = rows of its file, B = rows of one batch.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.clocks.row_times import FAULTS, RowTimes
from pipelines.ingest.reader import SensorRows
from pipelines.progress import OnProgress, unheard
from pipelines.screen import REASONS
from pipelines.sync import passport
from pipelines.sync.flow import SyncedRecording

BATCH_ROWS = 1 << 18
"""Rows that are worked out and written at a time."""

_CODED = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    {
        "sensor": _CODED,
        "row": pa.int64(),
        "t_utc_ns": pa.int64(),
        "sigma_ns": pa.float64(),
        "line_m": pa.float64(),
        "position_sigma_m": pa.float64(),
        "km_post": pa.float64(),
        "value_ok": pa.int8(),
        "reason": _CODED,
    }
)
"""`row`: zero-based position in the sensor's file. `t_utc_ns`: physical instant, null where the row is rejected.
`sigma_ns`: standard error of that instant, of the clock's map and of the rest of the stamp's delay. `line_m`,
`position_sigma_m`, `km_post` (posted, in metres): null where nothing is known. `value_ok`: 0 where a reading of the row
is missing, is not believed or could not be read. `reason`: why the row was rejected, or else why its reading is not
used; null where all is well. Files have plain text in the coded columns."""


_ENCODING = {
    **dict.fromkeys(["row", "t_utc_ns"], "DELTA_BINARY_PACKED"),
    **dict.fromkeys(["sigma_ns", "line_m", "position_sigma_m", "km_post"], "BYTE_STREAM_SPLIT"),
}
"""Of neighbouring rows the leading bytes are alike: so encoded, the file is two thirds as large, and written faster."""


def write_rows(path: Path, synced: SyncedRecording, on_progress: OnProgress = unheard) -> int:
    """Write all rows as a Parquet file, sensor by sensor in the order of their files; return how many there are."""
    num_rows = 0
    with pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=["sensor", "reason"],
        column_encoding=_ENCODING,
        store_schema=False,  # so that readers take the codes for the text they stand for
    ) as writer:
        for sensor in synced.recording.sensors:
            on_progress("write", sensor)
            for batch in batches(synced, sensor):
                writer.write_table(batch)
                num_rows += batch.num_rows
    return num_rows


def batches(synced: SyncedRecording, sensor: str) -> Iterator[pa.Table]:
    """Rows of one sensor in the order of its file, `BATCH_ROWS` at a time, with the columns of `SCHEMA`."""
    kept, times = synced.recording.sensors[sensor], synced.times[sensor]
    fates = _fates(kept, times, synced.value_faults[sensor])
    for first in range(0, len(fates.row_F), BATCH_ROWS):
        yield _batch(synced, sensor, fates, slice(first, first + BATCH_ROWS))


class _Fates(NamedTuple):
    """What became of each row of a sensor's file."""

    row_F: np.ndarray
    """Position in the file, ascending."""

    kept_F: np.ndarray
    """Position among the rows that the reader kept; -1 where it left the row out."""

    is_timed_F: np.ndarray
    is_believed_F: np.ndarray
    """False where a reading of the row is missing, is not believed or could not be read."""

    reason_F: np.ndarray
    """Position in `names`; 0 where there is none."""

    names: list[str]


def _fates(kept: SensorRows, times: RowTimes, value_fault_T: np.ndarray) -> _Fates:
    left, unread = passport.left_out(kept), passport.unread(kept)
    own = sorted({*left["reason"], *unread["reason"]})
    names = ["", *FAULTS, *REASONS, *own]
    code_of = {name: names.index(name) for name in own}

    row_T = kept.rows["row"].to_numpy()
    reason_of_fault = np.array([0, *range(len(FAULTS) + 1, len(FAULTS) + len(REASONS) + 1)], dtype=np.uint8)
    value_reason_T = reason_of_fault[value_fault_T]
    if unread.height:
        by_row = np.argsort(row_T)
        at = by_row[np.searchsorted(row_T, unread["row"], sorter=by_row)]
        value_reason_T[at] = _codes(unread["reason"], code_of)
    reason_T = np.where(times.fault_T > 0, times.fault_T, value_reason_T)

    row_F = np.concatenate([row_T, left["row"].to_numpy()])
    order = slice(None) if (row_F[1:] > row_F[:-1]).all() else np.argsort(row_F, kind="stable")
    nobody = np.full(left.height, -1)
    return _Fates(
        row_F=row_F[order],
        kept_F=np.concatenate([np.arange(len(row_T)), nobody])[order],
        is_timed_F=np.concatenate([times.fault_T == 0, nobody == 0])[order],
        is_believed_F=np.concatenate([value_reason_T == 0, (left["column"] != "").to_numpy()])[order],
        reason_F=np.concatenate([reason_T, _codes(left["reason"], code_of)])[order],
        names=names,
    )


def _codes(reasons: pl.Series, code_of: dict[str, int]) -> np.ndarray:
    return reasons.replace_strict(code_of).cast(pl.UInt8).to_numpy()  # of nothing, the result has no type


def _batch(synced: SyncedRecording, sensor: str, fates: _Fates, part: slice) -> pa.Table:
    times = synced.times[sensor]
    kept_B, is_timed_B = fates.kept_F[part], fates.is_timed_F[part]
    t_ns_B = times.utc_ns_T[kept_B]
    line_m_B, position_sigma_m_B = synced.where.at(t_ns_B, times.sigma_ns_T[kept_B])
    line_m_B[~is_timed_B] = position_sigma_m_B[~is_timed_B] = np.nan
    km_post_B = synced.where.km_post(line_m_B)
    return pa.table(
        [
            _coded(np.zeros(len(kept_B), dtype=np.int32), [sensor]),
            pa.array(fates.row_F[part]),
            pa.array(t_ns_B, mask=~is_timed_B),
            pa.array(times.sigma_ns_T[kept_B], mask=~is_timed_B),
            pa.array(line_m_B, mask=np.isnan(line_m_B)),
            pa.array(position_sigma_m_B, mask=np.isnan(position_sigma_m_B)),
            pa.array(km_post_B, mask=np.isnan(km_post_B)),
            pa.array(fates.is_believed_F[part].astype(np.int8)),
            _coded(fates.reason_F[part].astype(np.int32), fates.names),
        ],
        schema=SCHEMA,
    )


def _coded(code_B: np.ndarray, names: list[str]) -> pa.DictionaryArray:
    """Text as positions in `names`, of which the empty one is null."""
    empty = names.index("") if "" in names else -1
    return pa.DictionaryArray.from_arrays(pa.array(code_B, mask=code_B == empty), names)
