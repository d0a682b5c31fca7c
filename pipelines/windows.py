"""Cut aligned tables into the examples that a model is trained on, and keep them.

Shape suffixes: T = rows of a table, C = channels, N = windows or examples, L = samples per window, F = features.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines import storage
from pipelines.config import Recipe, WindowConfig
from pipelines.errors import ConfigError

PARTS = ("train", "validation", "test")
IDENTITY = ("vehicle", "day", "recording_id", "row", "t_utc_ns", "line_m")
"""Columns of a table that say what a row is about; never features."""

_MANIFEST = "windows.json"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Examples:
    """All examples of a table, before they are divided into parts."""

    x: np.ndarray
    """``x_NLC`` of recordings or ``x_NF`` of a labelled table, float32, finite, raw physical values."""

    y: np.ndarray | None
    """``y_N`` of a labelled table, float32; `None` for recordings."""

    index: pl.DataFrame
    """One row an example. Recordings: vehicle, day, recording_id, t_start_utc_ns, t_end_utc_ns (half-open). Labelled
    tables: their identity columns and the group column."""

    channels: tuple[str, ...]
    """Names along the last axis of `x`."""

    left_out: dict[str, int]
    """Windows or rows that are not in `x`, by reason."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WindowSet:
    """What one training sees: three parts that share no row, and where they came from."""

    train_x: np.ndarray
    train_y: np.ndarray | None
    validation_x: np.ndarray
    validation_y: np.ndarray | None
    test_x: np.ndarray
    test_y: np.ndarray | None
    test_index: pl.DataFrame
    """Row of `Examples.index` of each held-out example."""

    channels: tuple[str, ...]
    targets: tuple[str, ...]
    """Channels whose error is the anomaly score; empty for a labelled table."""

    table: str
    """Location of the table, and its version: together they can be read again."""

    table_version: int
    digest: str
    """SHA-256 of the examples, their index and the names of the channels."""

    vehicle_days: tuple[tuple[str, str], ...]
    """Vehicle and service day of all examples, whatever their part; sorted."""

    counts: dict[str, int]
    """Examples in each part, and those left out, by reason."""


def sliding_windows(x_TC: np.ndarray, *, length: int, stride: int) -> np.ndarray:
    """Cut one recording into overlapping windows.

    Args:
        x_TC: Equally spaced samples, oldest first, each channel in its own unit.
        length: Samples per window.
        stride: Samples between the starts of neighbouring windows.

    Returns:
        ``x_NLC``, a read-only view of the input. Samples after the last full window are left out, so a recording
        shorter than `length` gives ``N = 0``.

    Example:
        >>> sliding_windows(np.arange(6.0)[:, None], length=3, stride=2)[..., 0]
        array([[0., 1., 2.],
               [2., 3., 4.]])
    """
    if len(x_TC) < length:
        return np.empty((0, length, x_TC.shape[1]), dtype=x_TC.dtype)
    x_NCL = np.lib.stride_tricks.sliding_window_view(x_TC, length, axis=0)[::stride]
    return x_NCL.swapaxes(1, 2)


def table_columns(recipe: Recipe) -> list[str] | None:
    """Columns of the source's table that `examples` needs; `None` means all of them."""
    if recipe.window is None:
        return None
    return ["vehicle", "day", "recording_id", "t_utc_ns", *recipe.window.channels]


def examples(frame: pl.DataFrame, recipe: Recipe) -> Examples:
    """Turn a table into examples: windows of recordings, or the rows of a labelled table."""
    if recipe.window is None:
        return labelled_rows(frame, label=recipe.label, group=recipe.split.group)
    return cut_windows(frame, recipe.window)


def cut_windows(frame: pl.DataFrame, config: WindowConfig) -> Examples:
    """Cut an aligned table into windows that cross neither a recording nor a gap in time.

    A missing reading is filled with the last valid one before it, never with one after it. `min_valid_share` bounds
    both the missing readings of a window and the age, in samples, of a reading that fills a gap.

    Args:
        frame: Aligned rows, sorted by vehicle, day and time; null = no valid reading.
        config: Lengths, channels, and the share of readings that must be valid.
    """
    _require_columns(frame, config.channels)
    period_ns = round(1e9 / config.rate_hz)
    max_missing = int((1 - config.min_valid_share) * config.length + 1e-9)
    x_TC = frame.select(pl.col(config.channels).cast(pl.Float32).fill_null(float("nan"))).to_numpy()
    t_utc_ns_T = frame["t_utc_ns"].to_numpy()
    run_start_T = _run_starts(frame, t_utc_ns_T, period_ns=period_ns)
    filled_TC = _fill_forward(x_TC, run_start_T, max_age=max_missing)
    start_N, num_short = _window_starts(run_start_T, length=config.length, stride=config.stride)
    fault_N = np.full(len(start_N), "", dtype=object)
    for c, channel in enumerate(config.channels):
        num_missing_N = _count_in_windows(np.isnan(x_TC[:, c]), start_N, config.length)
        num_unfilled_N = _count_in_windows(np.isnan(filled_TC[:, c]), start_N, config.length)
        fault_N[(fault_N == "") & (num_missing_N > max_missing)] = f"too_few_valid:{channel}"
        fault_N[(fault_N == "") & (num_unfilled_N > 0)] = f"no_recent_reading:{channel}"
    start_N, left_out = start_N[fault_N == ""], Counter(fault_N[fault_N != ""].tolist())
    x_NLC = sliding_windows(filled_TC, length=config.length, stride=1)[start_N]
    index = frame.select("vehicle", "day", "recording_id")[start_N].with_columns(
        t_start_utc_ns=t_utc_ns_T[start_N], t_end_utc_ns=t_utc_ns_T[start_N + config.length - 1] + period_ns
    )
    return Examples(
        x=np.ascontiguousarray(x_NLC),
        y=None,
        index=index,
        channels=config.channels,
        left_out=dict(left_out + Counter(stretch_shorter_than_window=num_short)),
    )


def labelled_rows(frame: pl.DataFrame, *, label: str, group: str) -> Examples:
    """Take every row of a labelled table as an example.

    Its features are all columns that are neither label nor group nor identity. Rows without a label, or with a missing
    or infinite feature, are left out.
    """
    _require_columns(frame, (label, group) if group else (label,))
    features = [column for column in frame.columns if column not in {*IDENTITY, label, group}]
    x_NF = frame.select(pl.col(features).cast(pl.Float32).fill_null(float("nan"))).to_numpy()
    y_N = frame[label].cast(pl.Float32).fill_null(float("nan")).to_numpy()
    is_labelled_N = np.isfinite(y_N)
    is_complete_N = np.isfinite(x_NF).all(axis=1)
    keep_N = np.flatnonzero(is_labelled_N & is_complete_N)
    reasons = {"no_label": ~is_labelled_N, "missing_feature": is_labelled_N & ~is_complete_N}
    return Examples(
        x=np.ascontiguousarray(x_NF[keep_N]),
        y=y_N[keep_N],
        index=frame.select([c for c in frame.columns if c in {*IDENTITY, group}])[keep_N],
        channels=tuple(features),
        left_out={reason: int(mask.sum()) for reason, mask in reasons.items() if mask.any()},
    )


def assemble(
    found: Examples,
    parts: dict[str, np.ndarray],
    *,
    targets: tuple[str, ...],
    table: str,
    table_version: int,
    left_out: dict[str, int],
) -> WindowSet:
    """Put the parts that a split chose together into one set.

    Args:
        found: All examples.
        parts: Positions in `found` of the examples of each of `PARTS`.
        targets: Channels whose error is the score.
        table: Location of the table that the examples came from.
        table_version: Its version.
        left_out: Examples that the split put into no part, by reason.
    """
    values: dict[str, Any] = {"channels": found.channels, "targets": targets, "test_index": found.index[parts["test"]]}
    for part in PARTS:
        values[f"{part}_x"] = found.x[parts[part]]
        values[f"{part}_y"] = None if found.y is None else found.y[parts[part]]
    used = found.index.select("vehicle", "day")[np.concatenate([parts[part] for part in PARTS])]
    return WindowSet(
        **values,
        table=table,
        table_version=table_version,
        digest=_digest(values),
        vehicle_days=tuple(used.unique().sort("vehicle", "day").rows()),
        counts={part: len(parts[part]) for part in PARTS} | found.left_out | left_out,
    )


def save_windows(location: str, windows: WindowSet) -> str:
    """Store a set below `location` and return `location`.

    The arrays lie in a folder named after their content and the manifest, which names that folder, is written last: who
    reads while the set is replaced sees the old one or the new one.
    """
    folder = storage.join(location, windows.digest[:16])
    for part in PARTS:
        storage.write_array(storage.join(folder, f"{part}_x.npy"), getattr(windows, f"{part}_x"))
        if (y := getattr(windows, f"{part}_y")) is not None:
            storage.write_array(storage.join(folder, f"{part}_y.npy"), y)
    storage.write_parquet(storage.join(folder, "test_index.parquet"), windows.test_index)
    manifest = {
        "folder": windows.digest[:16],
        "is_labelled": windows.train_y is not None,
        "channels": list(windows.channels),
        "targets": list(windows.targets),
        "table": windows.table,
        "table_version": windows.table_version,
        "digest": windows.digest,
        "vehicle_days": windows.vehicle_days,
        "counts": windows.counts,
    }
    storage.write_json(storage.join(location, _MANIFEST), manifest)
    return location


def load_windows(location: str, *, parts: tuple[str, ...] = PARTS) -> WindowSet:
    """Read a stored set; the arrays of parts that are not asked for are empty, and so is the index without `test`."""
    manifest = storage.read_json(storage.join(location, _MANIFEST))
    folder = storage.join(location, manifest["folder"])
    values: dict[str, Any] = {}
    for part in PARTS:
        for name in (f"{part}_x", f"{part}_y"):
            is_stored = name.endswith("x") or manifest["is_labelled"]
            empty = np.empty((0,), dtype=np.float32) if is_stored else None
            wanted = is_stored and part in parts
            values[name] = storage.read_array(storage.join(folder, f"{name}.npy")) if wanted else empty
    index_at = storage.join(folder, "test_index.parquet")
    return WindowSet(
        **values,
        test_index=storage.read_parquet(index_at) if "test" in parts else pl.DataFrame(),
        channels=tuple(manifest["channels"]),
        targets=tuple(manifest["targets"]),
        table=manifest["table"],
        table_version=manifest["table_version"],
        digest=manifest["digest"],
        vehicle_days=tuple((vehicle, day) for vehicle, day in manifest["vehicle_days"]),
        counts=manifest["counts"],
    )


def _require_columns(frame: pl.DataFrame, wanted: tuple[str, ...]) -> None:
    if missing := [column for column in wanted if column not in frame.columns]:
        found = [column for column in frame.columns if column not in IDENTITY]
        raise ConfigError(
            f"the recipe asks for column {missing[0]!r}, which the table does not have; it has {', '.join(found[:10])}"
            + (f" and {len(found) - 10} more" if len(found) > 10 else "")
        )


def _run_starts(frame: pl.DataFrame, t_utc_ns_T: np.ndarray, *, period_ns: float) -> np.ndarray:
    """For every row, the first row of its gapless stretch within one recording."""
    is_new_T = np.ones(len(frame), dtype=bool)
    step_ns = np.diff(t_utc_ns_T)
    changes = frame.select(
        pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in ("vehicle", "day", "recording_id"))
    ).to_series()
    is_new_T[1:] = changes.to_numpy()[1:] | (np.abs(step_ns - period_ns) > 0.5 * period_ns)
    return np.asarray(np.maximum.accumulate(np.where(is_new_T, np.arange(len(frame)), 0)))


def _window_starts(run_start_T: np.ndarray, *, length: int, stride: int) -> tuple[np.ndarray, int]:
    """First rows of all windows, and how many stretches are too short for one.

    Example:
        >>> _window_starts(np.array([0, 0, 0, 0, 4, 5, 5, 5]), length=2, stride=2)
        (array([0, 2, 5]), 1)
    """
    row_T = np.arange(len(run_start_T))
    is_start_T = (row_T - run_start_T) % stride == 0
    is_start_T[max(len(row_T) - length + 1, 0) :] = False
    start_N = np.flatnonzero(is_start_T)
    fits_N = run_start_T[start_N + length - 1] == run_start_T[start_N]
    num_short = int((np.bincount(run_start_T)[np.unique(run_start_T)] < length).sum()) if len(run_start_T) else 0
    return start_N[fits_N], num_short


def _fill_forward(x_TC: np.ndarray, run_start_T: np.ndarray, *, max_age: int) -> np.ndarray:
    """Copy of `x_TC` whose missing readings are the last valid ones of the same stretch, at most `max_age` samples old.

    Example:
        >>> _fill_forward(np.array([[1.0], [np.nan], [np.nan], [np.nan]]), np.zeros(4, dtype=int), max_age=2)[:, 0]
        array([ 1.,  1.,  1., nan])
    """
    row_T = np.arange(len(x_TC))
    filled_TC = x_TC.copy()
    for c in range(x_TC.shape[1]):
        is_missing_T = np.isnan(x_TC[:, c])
        if not is_missing_T.any():
            continue
        last_valid_T = np.maximum.accumulate(np.where(is_missing_T, -1, row_T))
        can_fill_T = is_missing_T & (last_valid_T >= np.maximum(run_start_T, row_T - max_age))
        filled_TC[can_fill_T, c] = x_TC[last_valid_T[can_fill_T], c]
    return filled_TC


def _count_in_windows(mask_T: np.ndarray, start_N: np.ndarray, length: int) -> np.ndarray:
    """How many rows of each window are true in `mask_T`."""
    before_T = np.concatenate([[0], np.cumsum(mask_T)])
    return np.asarray(before_T[start_N + length] - before_T[start_N])


def _digest(values: dict[str, Any]) -> str:
    hasher = hashlib.sha256()
    for name, value in sorted(values.items()):
        if isinstance(value, np.ndarray):
            hasher.update(f"{name} {value.dtype} {value.shape}".encode())
            hasher.update(np.ascontiguousarray(value).data)
        else:
            text = value.write_csv() if isinstance(value, pl.DataFrame) else repr(value)
            hasher.update(f"{name} {text}".encode())
    return hasher.hexdigest()
