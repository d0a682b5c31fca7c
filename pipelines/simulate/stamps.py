"""How a device writes the time of a row: the encodings of the trip bundle.

Shape suffix: T = rows.
"""

import numpy as np
import polars as pl

from pipelines.simulate.clocks import GPS_MINUS_UTC_S

GPS_EPOCH_UNIX_S = 315_964_800
WEEK_MS = 7 * 86_400 * 1_000
UNIT_NS = {
    "epoch_s": 1_000_000,
    "epoch_ms": 1_000_000,
    "epoch_us": 1_000,
    "epoch_ns": 1,
    "local_text": 1_000_000,
    "ticks_us_u32": 1_000,
    "gps_tow": 1_000_000,
}
"""Smallest step that an encoding can express."""


def encode(encoding: str, device_ns_T: np.ndarray, *, time_zone: str) -> dict[str, pl.Series]:
    """Write device times, in nanoseconds, as the stamp column or columns of `encoding`, rounded to its unit.

    Example:
        >>> encode("local_text", np.array([1_767_600_000_123_400_000]), time_zone="Europe/Zurich")["ts"][0]
        '2026-01-05 09:00:00.123'
    """
    unit_ns = UNIT_NS[encoding]
    units_T = device_ns_T if unit_ns == 1 else (device_ns_T + unit_ns // 2) // unit_ns
    match encoding:
        case "ticks_us_u32":
            return {"ticks": pl.Series(units_T.astype(np.uint32))}
        case "gps_tow":
            gps_ms_T = units_T + (GPS_MINUS_UTC_S - GPS_EPOCH_UNIX_S) * 1_000
            return {"gps_week": pl.Series(gps_ms_T // WEEK_MS), "tow_ms": pl.Series(gps_ms_T % WEEK_MS)}
        case "local_text":
            utc = pl.Series(units_T).cast(pl.Datetime("ms")).dt.replace_time_zone("UTC")
            return {"ts": utc.dt.convert_time_zone(time_zone).dt.to_string("%Y-%m-%d %H:%M:%S%.3f")}
        case "epoch_s":
            return {"ts": pl.Series(units_T / 1_000)}
        case _:
            return {"ts": pl.Series(units_T)}
