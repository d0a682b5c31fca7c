"""From what a sensor measured to the rows of its file, and the truth about each of them.

Shape suffixes: T = rows as they were measured, R = rows as they are stored.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from pipelines.simulate.clocks import Clock
from pipelines.simulate.damage import (
    BAD_STAMP,
    BAD_VALUE,
    DUPLICATE,
    MISSING_VALUE,
    NO_REASON,
    REASONS,
    Damage,
    pick,
    spoil,
    stamping_delay_ns,
    store,
)
from pipelines.simulate.sensors import Reading, Sensor
from pipelines.simulate.stamps import encode


def record(
    sensor: Sensor,
    reading: Reading,
    clock: Clock,
    line_m_at: Callable[[np.ndarray], np.ndarray],
    random: np.random.Generator,
    *,
    damage: Damage,
    time_zone: str,
) -> tuple[pl.DataFrame, pl.DataFrame, np.ndarray]:
    """Stamp the rows, damage them and store them; return them, the truth about them, and when each was measured."""
    num_measured = len(reading.since_ns_T)
    stamped_ns_T = reading.since_ns_T + round(sensor.latency_ms * 1e6)
    if damage.jitter_ms > 0.0:
        stamped_ns_T = stamped_ns_T + stamping_delay_ns(num_measured, damage, random)
    device_ns_T = clock.read(stamped_ns_T)
    line_m_T = line_m_at(reading.since_ns_T)

    columns, reason_T = _damage_values(sensor, reading.columns, damage, random)
    stored = store(num_measured, sensor.rate_hz or 1.0, damage, random)
    source_R = stored.source_R
    bad_stamp_R = pick(len(source_R), damage.bad_stamp_share, random)
    bad_stamp_R = bad_stamp_R[~_is_repeated(stored.is_duplicate_R)[bad_stamp_R]]
    device_ns_R = spoil(device_ns_T[source_R], bad_stamp_R, random, kind=clock.spec.kind)
    reason_R = reason_T[source_R]
    value_ok_R = (reason_R == NO_REASON).astype(np.int8)
    reason_R[bad_stamp_R] = BAD_STAMP
    reason_R[stored.is_duplicate_R] = DUPLICATE
    is_rejected_R = (reason_R == BAD_STAMP) | (reason_R == DUPLICATE)

    frame = pl.DataFrame(
        encode(sensor.encoding, device_ns_R, time_zone=time_zone)
        | {name: series.gather(source_R) for name, series in columns.items()}
    )
    measured_utc_ns_R = clock.start_ns + reading.since_ns_T[source_R]
    truth = pl.DataFrame(
        {
            "row": np.arange(len(source_R)),
            "t_utc_ns": pl.Series(measured_utc_ns_R).scatter(np.flatnonzero(is_rejected_R), None),
            "line_m": np.round(line_m_T[source_R], 4),
            "value_ok": value_ok_R,
            "reason": _reason_text(reason_R),
        }
    )
    return frame, truth, measured_utc_ns_R


def _damage_values(
    sensor: Sensor, measured: dict[str, Any], damage: Damage, random: np.random.Generator
) -> tuple[dict[str, pl.Series], np.ndarray]:
    """Return the channels with absent and impossible readings, and the reason code of every measured row."""
    num_rows = len(next(iter(measured.values())))
    reason_T = np.full(num_rows, NO_REASON, dtype=np.uint8)
    columns: dict[str, pl.Series] = {}
    for name, values in measured.items():
        series = pl.Series(values)
        if series.dtype.is_float():
            series = series.fill_nan(None)
            reason_T[series.is_null().to_numpy()] = MISSING_VALUE
        missing = pick(num_rows, damage.missing_share, random)
        if len(missing):
            series = series.scatter(missing, None)
            reason_T[missing] = MISSING_VALUE
        bad = pick(num_rows, damage.bad_value_share, random)
        bad = bad[series.is_not_null().to_numpy()[bad]]
        if len(bad) and (name in sensor.spike or name in sensor.jump):
            series = series.scatter(bad, sensor.spike.get(name, series.gather(bad) + sensor.jump.get(name, 0.0)))
            reason_T[bad] = np.minimum(reason_T[bad], BAD_VALUE)
        columns[name] = series
    return columns, reason_T


def _reason_text(reason_R: np.ndarray) -> pl.Series:
    """Spell the codes out; no reason is null."""
    text = pl.Series([None], dtype=pl.String).new_from_index(0, len(reason_R))
    where = np.flatnonzero(reason_R != NO_REASON)
    return text.scatter(where, [REASONS[code] for code in reason_R[where]]) if len(where) else text


def _is_repeated(is_duplicate_R: np.ndarray) -> np.ndarray:
    """Mark duplicates and the rows that they repeat, so that of each pair one good row remains."""
    is_repeated_R = is_duplicate_R.copy()
    is_repeated_R[:-1] |= is_duplicate_R[1:]
    return is_repeated_R
