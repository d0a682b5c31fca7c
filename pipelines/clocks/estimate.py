"""The clock estimator alone: a log of exchanges and device stamps in, UTC and its uncertainty out.

No manifest says how the clocks count, so that is inferred: a clock whose stamps all fit 32 bits counts microseconds and
overflows, any other counts nanoseconds since 1970.

Shape suffixes: T = stamps of one clock in stored order.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines import storage
from pipelines.clocks.clock_map import ClockMap, rounded
from pipelines.clocks.exchanges import Exchanges, exchanges_of
from pipelines.clocks.fit import fit_exchanges
from pipelines.clocks.placing import RowStream
from pipelines.clocks.stamps import NO_STAMP, TICKS_MODULUS_NS, follow, in_round_of
from pipelines.errors import RecordingError
from pipelines.ingest.ntp_logs import NtpLog, read_ntp_log
from pipelines.ingest.reader import ClockSpec, RefusedError, describe_faults
from pipelines.ingest.tables import RawTable, as_integers, as_text, read_table, require_columns
from pipelines.progress import OnProgress

TICKS_END = 2**32
NOTHING = pl.DataFrame(schema={"row": pl.Int64, "t_utc_ns": pl.Int64, "sigma_ns": pl.Float64})
BEAT_ROWS = 50
BEAT_SHARE = 0.8
"""Stamps are rows of a regular sensor if at least this share of them is one period after the one before."""


def predict(exchanges: str, stamps: str, out: str, *, maps: str, on_progress: OnProgress) -> dict[str, Any]:
    """Fit every clock of a log and map stamps by it.

    Args:
        exchanges: Log in any format of `pipelines.ingest.ntp_logs`.
        stamps: CSV or Parquet file with `clock_id` and `t_dev` in the unit of that clock; of one clock in the order in
            which they were stored. Where they keep a beat they tell when exactly the clock was set.
        out: CSV or Parquet file for `clock_id, t_dev, t_utc_ns, sigma_ns`, in the order of `stamps`; null where there
            is no map. A constant error up to `floor_ns` of the clock is not part of sigma: nothing can tell it.
        maps: File for the maps, one JSON object a line; empty for none.
        on_progress: Told how far it is.

    Returns:
        By clock what its map says of itself or why there is none; counts; what could not be read.

    Raises:
        RecordingError: A file is not what it should be.
    """
    if Path(out).suffix not in {".csv", ".parquet"}:
        raise RecordingError(f"{storage.name_of(out)} must end in .csv or .parquet")
    on_progress("read", f"{storage.name_of(exchanges)}, {storage.name_of(stamps)}")
    with storage.local_copy(exchanges) as path:
        log = read_ntp_log(path)
    with storage.local_copy(stamps) as path:
        asked = _read_stamps(path)
    logged = _named(log, asked.rows["clock_id"], storage.name_of(stamps))
    facts: dict[str, Any] = {}
    fitted: list[ClockMap] = []
    predicted: list[pl.DataFrame] = []
    for clock_id in sorted({*asked.rows["clock_id"].drop_nulls(), *logged["clock_id"].drop_nulls()}):
        on_progress("fit", clock_id)
        own = asked.rows.filter(pl.col("clock_id") == clock_id)
        clock, found, rows = _one(logged.filter(pl.col("clock_id") == clock_id), own, clock_id)
        facts[clock_id] = found
        fitted += [clock] if clock is not None else []
        predicted.append(rows)
    on_progress("write", storage.name_of(out))
    table = asked.rows.join(pl.concat(predicted), on="row", how="left", maintain_order="left")
    _write(out, table.select("clock_id", "t_dev", "t_utc_ns", "sigma_ns"), maps, fitted)
    unread = describe_faults(storage.name_of(exchanges), log.table.faults)
    return {
        "out": out,
        "format": log.format,
        "num_stamps": len(table),
        "num_mapped": len(table) - table["t_utc_ns"].null_count(),
        "clocks": facts,
        "unread": [*unread, *describe_faults(storage.name_of(stamps), asked.faults)],
    }


def _read_stamps(path: Path) -> RawTable:
    try:
        table = read_table(path)
        require_columns(table.rows, ["clock_id", "t_dev"], where=path.name)
        return as_integers(as_text(table, ["clock_id"]), ["t_dev"])
    except RefusedError as err:
        raise RecordingError(str(err)) from err


def _named(log: NtpLog, asked: pl.Series, stamps: str) -> pl.DataFrame:
    """The exchanges under the name that the stamps use, if the log itself names no clock."""
    names = asked.drop_nulls().unique().to_list()
    if log.format == "exchanges" or not names:
        return log.table.rows
    if len(names) > 1:
        raise RecordingError(
            f"{stamps} names {len(names)} clocks ({', '.join(sorted(names)[:10])}); {log.format} is a log of one"
        )
    return log.table.rows.with_columns(clock_id=pl.lit(names[0]))


def _one(
    logged: pl.DataFrame, asked: pl.DataFrame, clock_id: str
) -> tuple[ClockMap | None, dict[str, Any], pl.DataFrame]:
    """Fit one clock; return its map, what is to be said of it, and its stamps in UTC by row."""
    spec = _spec(logged, clock_id)
    exchanges = exchanges_of(logged, spec)
    facts = {"unit": spec.ntp_unit, "num_stamps": len(asked), "num_mapped": 0}
    if not len(exchanges.dev_ns_X):
        reason = "no exchange of it was logged" if not len(logged) else "none of its exchanges can be used"
        return None, facts | {"method": None, "num_rejected": len(logged), "reason": reason}, NOTHING
    dev_ns_T, is_bad_T = _dev_ns(asked["t_dev"], spec, exchanges)
    good_ns_T = dev_ns_T[~is_bad_T]
    fitted = fit_exchanges(clock_id, exchanges, _row_streams(good_ns_T))
    utc_ns_T, sigma_ns_T = fitted.to_utc(good_ns_T)
    sigma_ns_T = _wide_beside_steps(fitted, good_ns_T, sigma_ns_T)
    median_ms = float(np.median(sigma_ns_T)) * 1e-6 if len(sigma_ns_T) else float("nan")
    facts |= fitted.facts() | {"num_mapped": len(utc_ns_T), "sigma_median_ms": rounded(median_ms)}
    return fitted, facts, _rows(asked["row"].filter(pl.Series(~is_bad_T)), utc_ns_T, sigma_ns_T)


def _rows(row: pl.Series, utc_ns_T: np.ndarray, sigma_ns_T: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame({"row": row, "t_utc_ns": utc_ns_T, "sigma_ns": sigma_ns_T})


def _spec(logged: pl.DataFrame, clock_id: str) -> ClockSpec:
    """How a clock counts, by its stamps in the log."""
    stamps = pl.concat([logged["t1_dev"], logged["t4_dev"]]).drop_nulls()
    if len(stamps) and stamps.is_between(0, TICKS_END - 1).all():
        return ClockSpec(clock_id=clock_id, kind="ticks", ntp=True, ntp_unit="us_u32")
    return ClockSpec(clock_id=clock_id, kind="epoch", ntp=True)


def _dev_ns(stamps: pl.Series, spec: ClockSpec, exchanges: Exchanges) -> tuple[np.ndarray, np.ndarray]:
    """Device time of stamps, a tick counter's without overflows, and which of them are none."""
    if spec.ntp_unit == "ns":
        return stamps.fill_null(0).to_numpy(), stamps.is_null().to_numpy()
    ticks = stamps.set(~stamps.is_between(0, TICKS_END - 1).fill_null(value=False), None)
    dev_ns_T = (ticks * 1_000).fill_null(NO_STAMP).to_numpy()
    dev_ns_T, _ = follow(dev_ns_T, dev_ns_T, TICKS_MODULUS_NS, TICKS_MODULUS_NS // 2, NO_STAMP)
    is_bad_T = ticks.is_null().to_numpy()
    ends_ns = (int(exchanges.dev_ns_X[0]), int(exchanges.dev_ns_X[-1]))
    return in_round_of(dev_ns_T, is_bad_T, ends_ns), is_bad_T


def _row_streams(dev_ns_T: np.ndarray) -> list[RowStream]:
    """The stamps as rows of a sensor, if they keep a beat."""
    if len(dev_ns_T) < BEAT_ROWS:
        return []
    turns_ns = np.diff(dev_ns_T)
    period_ns = float(np.median(turns_ns))
    is_beat = period_ns > 0 and np.mean(np.abs(turns_ns - period_ns) < period_ns / 4) >= BEAT_SHARE
    return [RowStream(dev_ns_T, period_ns)] if is_beat else []


def _wide_beside_steps(fitted: ClockMap, dev_ns_T: np.ndarray, sigma_ns_T: np.ndarray) -> np.ndarray:
    """Where a stamp may be from before a step or after it, it is as uncertain as the step is large."""
    jump_ns = max((abs(step.jump_ns) for step in fitted.steps), default=0)
    return np.where(fitted.is_beside_step(dev_ns_T), np.maximum(sigma_ns_T, jump_ns), sigma_ns_T)


def _write(out: str, table: pl.DataFrame, maps: str, fitted: list[ClockMap]) -> None:
    """Replace both files, or none of them."""
    with ExitStack() as files:
        if maps:
            maps_at = files.enter_context(storage.replacement(maps))
            maps_at.write_text("".join(clock.to_json() + "\n" for clock in fitted))
        out_at = files.enter_context(storage.replacement(out))
        table.write_csv(out_at) if out.endswith(".csv") else table.write_parquet(out_at)
