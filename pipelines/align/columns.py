"""The columns of a sensor on the grid: a value, whether there is one, and how old it is.

Which value depends on the kind of the channel and on the two rates:

| channel                          | value at the grid instant `t`                        | age                 |
|----------------------------------|------------------------------------------------------|---------------------|
| state, counter                   | last reading at or before `t`                        | that of the reading |
| continuous, as fast as the grid  | the same                                             | the same            |
| continuous, slower than the grid | on the line between two readings, one row period ago | one row period      |
| continuous, faster than the grid | low-passed over the last two grid periods            | one grid period     |
| vibration, faster than the grid  | root of the low-passed square: its energy            | one grid period     |

The age is the time from the instant that the value describes to `t`; who compares two channels to better than that has
to take both ages into account. A reading is carried for `MAX_AGE_PERIODS` periods at most, and no line joins two that
are further apart.

Shape suffixes: T = rows of one sensor by instant, G = grid instants.
"""

import numpy as np
import polars as pl

from pipelines.align.as_of import as_of, on_line
from pipelines.align.grid import Grid
from pipelines.align.lowpass import SPAN_PERIODS, low_passed
from pipelines.align.track import Track
from pipelines.channels import Channel, Kind

MAX_AGE_PERIODS = 3.0
"""A value is used for this many periods of its sensor, or of the grid if that is slower."""

SAME_RATE = 0.01
"""Rates that differ by no more than this share are the same."""

VIBRATION = {("aba", "acc_g")}
"""Channels whose energy is of interest, not their mean: the column is `<name>_rms`."""

SPEED = Channel(name="speed_mps", unit="m/s", kind=Kind.CONTINUOUS)
FOREVER_NS = 2**63 - 1
"""Longer than any reading is old: the largest int64."""


def align(track: Track, grid: Grid, *, prefix: str) -> dict[str, np.ndarray]:
    """Return the columns of one sensor on the grid; none of an event stream.

    Args:
        track: Rows of the sensor.
        grid: Where to.
        prefix: Put before every channel's name.

    Returns:
        Per channel its value (NaN: not valid), `<name>_valid` and `<name>_age_s`.
    """
    if track.rate_hz is None:
        return {}
    columns: dict[str, np.ndarray] = {}
    at_ns_G = grid.t_ns_G
    for channel in track.channels:
        is_vibration = _is_filtered(track, channel, grid) and (track.sensor, channel.name) in VIBRATION
        x_T = track.values[channel.name]
        if is_vibration:
            square_G, age_s_G = _carried(track, channel, x_T * x_T, grid, at_ns_G)
            columns |= _named(f"{prefix}{channel.name}_rms", np.sqrt(square_G), age_s_G)
        else:
            columns |= _named(prefix + channel.name, *_carried(track, channel, x_T, grid, at_ns_G))
    return columns


def reach_ns(rate_hz: float, period_ns: int) -> int:
    """How far back from a grid instant the rows lie that its values depend on."""
    return max(SPAN_PERIODS * period_ns, _delay_ns(rate_hz) + _max_age_ns(rate_hz, period_ns))


def doors_open(events: Track, grid: Grid) -> dict[str, np.ndarray]:
    """Return `evt_doors_open`: 1 after a door opened, 0 after it closed, none before the first of either."""
    kind_T = events.values["kind"]
    is_door_T = np.isin(kind_T, ["door_open", "door_close"])
    is_open_T = (kind_T[is_door_T] == "door_open").astype(np.float64)
    open_G, age_s_G = as_of(events.t_ns_T[is_door_T], is_open_T, grid.t_ns_G, max_age_ns=FOREVER_NS)
    return _named("evt_doors_open", open_G, age_s_G)


def speed_on_grid(t_ns_T: np.ndarray, distance_m_T: np.ndarray, grid: Grid, *, rate_hz: float) -> dict[str, np.ndarray]:
    """Return `odo_speed_mps`: distance rolled from row to row over the time that took, on the grid as any channel.

    Rows at one instant, and rows more than `MAX_AGE_PERIODS` periods of `rate_hz` apart, give no speed.
    """
    speed_mps_T = rolled_speed(t_ns_T, distance_m_T, max_span_ns=_max_age_ns(rate_hz, 0))
    # Known as soon as the later of two rows is there, and true half way between them.
    track = Track(sensor="odo", t_ns_T=t_ns_T[1:], values={SPEED.name: speed_mps_T}, channels=(SPEED,), rate_hz=rate_hz)
    speed_mps_G, age_s_G = _carried(track, SPEED, speed_mps_T, grid, grid.t_ns_G)
    return _named("odo_speed_mps", speed_mps_G, age_s_G + np.float32(0.5 / rate_hz))


def rolled_speed(t_ns_T: np.ndarray, distance_m_T: np.ndarray, *, max_span_ns: int) -> np.ndarray:
    """Speed from each row to the next, in m/s; NaN between rows at one instant or more than `max_span_ns` apart.

    Example:
        >>> rolled_speed(np.array([0, 1, 1, 9]) * 10**9, np.array([0.0, 5.0, 5.0, 6.0]), max_span_ns=3 * 10**9).tolist()
        [5.0, nan, nan]
    """
    span_ns_T = np.diff(t_ns_T)
    speed_mps_T = np.full(len(span_ns_T), np.nan)
    has_speed_T = (span_ns_T > 0) & (span_ns_T <= max_span_ns)
    np.divide(np.diff(distance_m_T), span_ns_T * 1e-9, out=speed_mps_T, where=has_speed_T)
    return speed_mps_T


def to_frame(columns: dict[str, np.ndarray]) -> pl.DataFrame:
    """Make a frame of columns in which a value that is not there is null."""
    return pl.DataFrame(columns, nan_to_null=True)


def _named(name: str, x_G: np.ndarray, age_s_G: np.ndarray) -> dict[str, np.ndarray]:
    return {name: x_G, f"{name}_valid": ~np.isnan(x_G), f"{name}_age_s": age_s_G}


def _carried(
    track: Track, channel: Channel, x_T: np.ndarray, grid: Grid, at_ns_G: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values of a regular channel on the grid, and their ages in seconds."""
    assert track.rate_hz is not None
    max_age_ns = _max_age_ns(track.rate_hz, grid.period_ns)
    if _is_filtered(track, channel, grid):
        rows_per_period = _rows_per_period(track, grid)
        return low_passed(track.t_ns_T, x_T, at_ns_G, period_ns=grid.period_ns, rows_per_period=rows_per_period)
    if channel.kind is Kind.CONTINUOUS and _rows_per_period(track, grid) < 1.0 - SAME_RATE:
        return on_line(track.t_ns_T, x_T, at_ns_G, delay_ns=_delay_ns(track.rate_hz), max_gap_ns=max_age_ns)
    return as_of(track.t_ns_T, x_T, at_ns_G, max_age_ns=max_age_ns)


def _delay_ns(rate_hz: float) -> int:
    """How long the line between two readings is waited for."""
    return round(1e9 / rate_hz)


def _max_age_ns(rate_hz: float, period_ns: int) -> int:
    return round(MAX_AGE_PERIODS * max(1e9 / rate_hz, period_ns))


def _is_filtered(track: Track, channel: Channel, grid: Grid) -> bool:
    return channel.kind is Kind.CONTINUOUS and _rows_per_period(track, grid) > 1.0 + SAME_RATE


def _rows_per_period(track: Track, grid: Grid) -> float:
    assert track.rate_hz is not None
    return track.rate_hz * grid.period_ns * 1e-9
