"""Put the rows of all sensors on one regular UTC grid, looking only backwards.

The value at a grid instant `t` depends on rows at or before `t` alone. A state or counter keeps its last value, and so
does a continuous channel as slow as the grid; a faster continuous channel is averaged over the last grid period, which
keeps what is too fast for the grid from showing up as something slow. A value that is too old is absent.

Shape suffixes: T = rows of one sensor by instant, G = grid instants.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from pipelines.channels import Channel, Kind
from pipelines.compiled import compiled
from pipelines.errors import RecordingError

RATE_HZ = {"bundle": 1.0, "metropt3": 0.1, "barcelona_lte": 1 / 120}
"""Grid of a source, in hertz; `DEFAULT_RATE_HZ` for one not named here."""

DEFAULT_RATE_HZ = 1.0
MAX_AGE_PERIODS = 3.0
"""A value is used for this many periods of its sensor, or of the grid if that is slower."""

MAX_GRID = 20_000_000
"""More instants than this are no recording but a clock that is wrong by years."""

VIBRATION = {("aba", "acc_g")}
"""Channels whose energy is of interest, not their mean: the column is `<name>_rms`."""


class Grid(NamedTuple):
    """Instants `first_ns, first_ns + period_ns, …`."""

    first_ns: int
    period_ns: int
    length: int

    @property
    def t_ns_G(self) -> np.ndarray:
        """All instants, nanoseconds UTC."""
        return self.first_ns + np.arange(self.length, dtype=np.int64) * self.period_ns


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Track:
    """Screened rows of one sensor, by instant."""

    sensor: str
    t_ns_T: np.ndarray
    """Nanoseconds UTC, ascending."""

    values: dict[str, np.ndarray]
    """Per channel: float64, NaN where there is no reading; texts of an event stream."""

    channels: tuple[Channel, ...]
    rate_hz: float | None
    """`None` for an event stream."""


def make_grid(tracks: list[Track], rate_hz: float) -> Grid:
    """Lay a grid of whole periods since 1970 over all rows: the last instant is the first at or after the last row."""
    period_ns = round(1e9 / rate_hz)
    ends = [(int(track.t_ns_T[0]), int(track.t_ns_T[-1])) for track in tracks if len(track.t_ns_T)]
    if not ends:
        return Grid(0, period_ns, 0)
    first, last = -(-min(end[0] for end in ends) // period_ns), -(-max(end[1] for end in ends) // period_ns)
    if last - first >= MAX_GRID:
        raise RecordingError(
            f"rows span {(last - first) * period_ns / 8.64e13:,.0f} days, more than {MAX_GRID:,} instants at "
            f"{rate_hz:g} Hz: clocks of this recording differ by years; correct its stamps or remove the sensor"
        )
    return Grid(first * period_ns, period_ns, last - first + 1)


def align(track: Track, grid: Grid, *, prefix: str) -> dict[str, np.ndarray]:
    """Return the columns of one sensor on the grid.

    Args:
        track: Rows of the sensor.
        grid: Where to.
        prefix: Put before every channel's name.

    Returns:
        Per channel its value (NaN: not valid) and `<name>_age_s`, how old the newest row in it is.
    """
    if track.rate_hz is None:
        return {}
    columns: dict[str, np.ndarray] = {}
    is_fast = track.rate_hz * grid.period_ns > 2e9
    max_age_ns = round(MAX_AGE_PERIODS * max(1e9 / track.rate_hz, grid.period_ns))
    for channel in track.channels:
        t_ns_T, x_T = _present(track, channel.name)
        name = prefix + channel.name
        if is_fast and channel.kind is Kind.CONTINUOUS:
            mean_G, rms_G, newest_G = _averages(t_ns_T, x_T, *grid)
            is_vibration = (track.sensor, channel.name) in VIBRATION
            name, value_G = (f"{name}_rms", rms_G) if is_vibration else (name, mean_G)
            age_ns_G = np.where(newest_G < 0, np.nan, grid.t_ns_G - newest_G)
        else:
            value_G, age_ns_G = as_of(t_ns_T, x_T, grid, max_age_ns=max_age_ns)
        columns[name] = value_G
        columns[f"{name}_age_s"] = (age_ns_G * 1e-9).astype(np.float32)
    return columns


def as_of(t_ns_T: np.ndarray, x_T: np.ndarray, grid: Grid, *, max_age_ns: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the last value at or before every grid instant and its age in ns; NaN if older than `max_age_ns`.

    Example:
        >>> as_of(np.array([5, 25]), np.array([1.0, 2.0]), Grid(0, 10, 5), max_age_ns=12)[0].tolist()
        [nan, 1.0, nan, 2.0, nan]
    """
    if not len(t_ns_T):
        return np.full(grid.length, np.nan), np.full(grid.length, np.nan)
    last_G = np.searchsorted(t_ns_T, grid.t_ns_G, side="right") - 1
    age_ns_G = (grid.t_ns_G - t_ns_T[last_G]).astype(np.float64)
    age_ns_G[(last_G < 0) | (age_ns_G > max_age_ns)] = np.nan
    return np.where(np.isnan(age_ns_G), np.nan, x_T[last_G]), age_ns_G


def doors_open(events: Track, grid: Grid) -> dict[str, np.ndarray]:
    """Return `evt_doors_open`: 1 after a door opened, 0 after it closed, NaN before the first of either."""
    kind_T = events.values["kind"]
    is_door_T = np.isin(kind_T, ["door_open", "door_close"])
    is_open_T = (kind_T[is_door_T] == "door_open").astype(np.float64)
    open_G, age_ns_G = as_of(events.t_ns_T[is_door_T], is_open_T, grid, max_age_ns=np.inf)
    return {"evt_doors_open": open_G, "evt_doors_open_age_s": (age_ns_G * 1e-9).astype(np.float32)}


def speed_on_grid(t_ns_T: np.ndarray, distance_m_T: np.ndarray, grid: Grid) -> dict[str, np.ndarray]:
    """Return `odo_speed_mps`: distance rolled over the last grid period, between the rows that were the last then."""
    if not len(t_ns_T):
        nothing_G = np.full(grid.length, np.nan)
        return {"odo_speed_mps": nothing_G, "odo_speed_mps_age_s": nothing_G.astype(np.float32)}
    now_G = np.searchsorted(t_ns_T, grid.t_ns_G, side="right") - 1
    then_G = np.searchsorted(t_ns_T, grid.t_ns_G - grid.period_ns, side="right") - 1
    age_ns_G = (grid.t_ns_G - t_ns_T[now_G]).astype(np.float64)
    span_ns_G = (t_ns_T[now_G] - t_ns_T[then_G]).astype(np.float64)
    is_valid_G = (then_G >= 0) & (span_ns_G > 0) & (span_ns_G < 3 * grid.period_ns) & (age_ns_G < 3 * grid.period_ns)
    rolled_m_G = distance_m_T[now_G] - distance_m_T[then_G]
    speed_mps_G = np.divide(rolled_m_G, span_ns_G * 1e-9, out=np.full(grid.length, np.nan), where=is_valid_G)
    age_s_G = np.where(is_valid_G, age_ns_G * 1e-9, np.nan).astype(np.float32)
    return {"odo_speed_mps": speed_mps_G, "odo_speed_mps_age_s": age_s_G}


def to_frame(columns: dict[str, np.ndarray]) -> pl.DataFrame:
    """Make a frame of columns in which a value that is not there is null."""
    return pl.DataFrame(columns, nan_to_null=True)


def _present(track: Track, channel: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a channel that have a reading."""
    x_T = track.values[channel]
    is_present_T = ~np.isnan(x_T)
    return (track.t_ns_T, x_T) if is_present_T.all() else (track.t_ns_T[is_present_T], x_T[is_present_T])


@compiled
def _averages(
    t_ns_T: np.ndarray, x_T: np.ndarray, first_ns: int, period_ns: int, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, root mean square and newest instant (-1: none) of the rows in `(t - period, t]` of every grid instant."""
    mean_G, rms_G = np.full(length, np.nan), np.full(length, np.nan)
    newest_G = np.full(length, -1, dtype=np.int64)
    i = 0
    for g in range(length):
        end_ns = first_ns + g * period_ns
        total, total_square, count = 0.0, 0.0, 0
        while i < len(t_ns_T) and t_ns_T[i] <= end_ns:
            if t_ns_T[i] > end_ns - period_ns:
                total += x_T[i]
                total_square += x_T[i] * x_T[i]
                count += 1
            i += 1
        if count > 0:
            mean_G[g], rms_G[g] = total / count, np.sqrt(total_square / count)
            newest_G[g] = t_ns_T[i - 1]
    return mean_G, rms_G, newest_G
