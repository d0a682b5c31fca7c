"""Decide which examples train, which choose the checkpoint and the threshold, and which are held out.

Recordings are divided by time, labelled tables by group. No window of one part overlaps one of another part of the same
vehicle, and no group is divided, because neighbouring windows share most of their samples.

Shape suffixes: N = examples, E = events.
"""

import logging
from collections import Counter
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.config import SplitConfig
from pipelines.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Split:
    """Positions of the examples of each part, ascending."""

    parts: dict[str, np.ndarray]
    """`train`, `validation` and `test`; none is empty and no position is in two."""

    left_out: dict[str, int]
    """Examples that are in no part, by reason."""


def split(index: pl.DataFrame, config: SplitConfig, *, events: pl.DataFrame, kind: str) -> Split:
    """Divide examples as the recipe asks: by group if it names a group column, else by time.

    Args:
        index: One row an example, as `windows.Examples` has it.
        config: Shares, days, group column.
        events: Known events: vehicle, kind, start_utc_ns, end_utc_ns.
        kind: Kind of event that the model must learn to notice and therefore must not train on; empty: none.
    """
    if config.group:
        return by_group(index[config.group], config)
    return by_time(index, config, is_event_N=share_in_events(index, events, kind=kind) > 0)


def by_time(index: pl.DataFrame, config: SplitConfig, *, is_event_N: np.ndarray) -> Split:
    """Train on the past, hold out the future.

    Days before `train_until` may be trained on, or the oldest `train_share` of the days where no `train_until` divides
    them (of a published recording, one may have a part); all later days are held out. A table of a single day is
    divided within the day by `train_share`. Of what may be trained on, the newest
    `validation_share` validates. Whole recordings are taken, because two halves of one trip share its load and weather
    and would flatter each other; a single recording is divided, and windows that overlap the later part are left out.

    Args:
        index: vehicle, day, recording_id, t_start_utc_ns, t_end_utc_ns of every window.
        config: Shares and days.
        is_event_N: Windows that overlap a known event; they are held out or left out.
    """
    days = sorted(index["day"].unique())
    if len(days) > 1:
        is_test_N = (index["day"] >= _first_test_day(days, config)).to_numpy()
    else:
        is_test_N = _newest(index, 1 - config.train_share)
    part_N = np.where(is_test_N, "test", "train").astype(object)
    part_N[_overlapping(index, part_N == "train", is_test_N)] = "overlaps_test"
    part_N[(part_N == "train") & is_event_N] = "known_event"
    may_train_N = np.flatnonzero(part_N == "train")
    part_N[may_train_N[_newest(index[may_train_N], config.validation_share)]] = "validation"
    part_N[_overlapping(index, part_N == "train", part_N == "validation")] = "overlaps_validation"
    return _as_split(part_N, found=f"{len(index)} windows on days {_some(days)}")


def by_group(groups: pl.Series, config: SplitConfig) -> Split:
    """Divide labelled examples so that all examples of one group are in the same part.

    The groups, in the order of their values, give `train_share` of themselves to training, of which the last
    `validation_share` validate; the rest is held out. Each part gets at least one group.
    """
    values = sorted(groups.unique())
    if len(values) < 3:
        raise ConfigError(
            f"split.group is {groups.name!r}, which has {len(values)} values ({_some(values)}), but needs at least 3: "
            "training, validation and held-out examples must not share a group"
        )
    num_trainable = min(max(round(config.train_share * len(values)), 2), len(values) - 1)
    num_validation = min(max(round(config.validation_share * num_trainable), 1), num_trainable - 1)
    part_of = dict.fromkeys(values, "test") | dict.fromkeys(values[:num_trainable], "validation")
    part_of |= dict.fromkeys(values[: num_trainable - num_validation], "train")
    part_N = np.array([part_of[value] for value in groups], dtype=object)
    return _as_split(part_N, found=f"{len(groups)} rows in groups {_some(values)}")


def share_in_events(index: pl.DataFrame, events: pl.DataFrame, *, kind: str) -> np.ndarray:
    """Share of each window's duration that lies in events of `kind` of its own vehicle.

    Events of one vehicle do not overlap each other.

    Example:
        >>> window = {"vehicle": ["07"], "t_start_utc_ns": [0], "t_end_utc_ns": [100]}
        >>> event = {"vehicle": ["07"], "kind": ["leak"], "start_utc_ns": [75], "end_utc_ns": [500]}
        >>> share_in_events(pl.DataFrame(window), pl.DataFrame(event), kind="leak")
        array([0.25])
    """
    share_N = np.zeros(len(index))
    if not kind:
        return share_N
    start_N, end_N = index["t_start_utc_ns"].to_numpy(), index["t_end_utc_ns"].to_numpy()
    vehicle_N = index["vehicle"].to_numpy()
    chosen = events.filter(pl.col("kind") == kind).select("vehicle", "start_utc_ns", "end_utc_ns")
    for vehicle, start_ns, end_ns in chosen.iter_rows():
        inside_ns_N = np.minimum(end_N, end_ns) - np.maximum(start_N, start_ns)
        share_N += np.where(vehicle_N == vehicle, np.maximum(inside_ns_N, 0) / (end_N - start_N), 0.0)
    return share_N


def _first_test_day(days: list[str], config: SplitConfig) -> str:
    if days[0] < config.train_until <= days[-1]:
        return config.train_until
    chosen = days[min(max(round(config.train_share * len(days)), 1), len(days) - 1)]
    if config.train_until:
        logger.warning(
            "split.train_until is %s, but the table has days %s, all on one side of it: train_share %g decides "
            "instead, and days from %s on are held out",
            config.train_until,
            _some(days),
            config.train_share,
            chosen,
        )
    return chosen


def _newest(index: pl.DataFrame, share: float) -> np.ndarray:
    """Mask of the newest `share` of the recordings, or of the windows where there is only one recording."""
    unit = "recording_id" if index.select("vehicle", "recording_id").n_unique() > 1 else "t_start_utc_ns"
    units = index.group_by("vehicle", unit).agg(pl.min("t_start_utc_ns").alias("begin")).sort("begin", "vehicle", unit)
    newest = units.tail(max(round(share * len(units)), 1)).select("vehicle", unit, is_newest=True)
    marked = index.join(newest, on=["vehicle", unit], how="left", maintain_order="left")
    return marked["is_newest"].fill_null(False).to_numpy()


def _overlapping(index: pl.DataFrame, earlier_N: np.ndarray, later_N: np.ndarray) -> np.ndarray:
    """Mask of the windows of `earlier_N` that reach into the first window of `later_N` of their vehicle."""
    first_later = pl.col("t_start_utc_ns").filter("is_later").min().over("vehicle")
    reaches = index.with_columns(is_later=later_N).select((pl.col("t_end_utc_ns") > first_later).fill_null(False))
    return np.asarray(earlier_N & reaches.to_series().to_numpy())


def _as_split(part_N: np.ndarray, *, found: str) -> Split:
    parts = {part: np.flatnonzero(part_N == part) for part in ("train", "validation", "test")}
    left_out = Counter(part_N.tolist())
    for part, positions in parts.items():
        del left_out[part]
        if len(positions) == 0:
            raise ConfigError(
                f"the {part} part would be empty: {found}, of which {sum(map(len, parts.values()))} can be used "
                f"(left out: {dict(left_out) or 'none'}); use more days, another share, or a shorter window or stride"
            )
    return Split(parts=parts, left_out=dict(left_out))


def _some(values: list[str]) -> str:
    """At most ten values, for a message."""
    shown = ", ".join(str(value) for value in values[:10])
    return shown if len(values) <= 10 else f"{shown} and {len(values) - 10} more"
