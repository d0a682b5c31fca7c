"""The section about speed: what every sensor that knows it read, by its own stamps and by the corrected ones.

Shape suffix: T = readings of one sensor by instant.
"""

from typing import NamedTuple

import numpy as np

from pipelines.ingest.reader import Encoding
from pipelines.sync.flow import SyncedRecording
from pipelines.sync.report.charts import Axis, Layer, Line, chart, number_axis, time_axis
from pipelines.sync.report.elements import Cell, duration, section, table

ZOOM_S = 40.0
"""Width of the stretch that is shown closely: clocks are seconds off, trips last for hours."""

ODOMETER_S = 0.5
"""The odometer's speed is the distance over this long."""

GAP_S = 5.0
"""Readings further apart than this are not joined."""

FREE_RUNNING = {Encoding.TICKS_US_U32, Encoding.UPTIME_NS}


class _Speed(NamedTuple):
    """Readings of one sensor."""

    sensor: str
    stamp_ns_T: np.ndarray
    """As the device wrote it; of a counter without an epoch, laid at its first row."""

    t_ns_T: np.ndarray
    speed_mps_T: np.ndarray
    is_dated: bool


def speeds(synced: SyncedRecording, x: Axis, first_ns: int) -> str:
    """Speed of every sensor before and after its stamps were corrected; nothing where none measures speed."""
    found = _speeds(synced)
    if not found:
        return ""
    y = number_axis("m/s", np.concatenate([own.speed_mps_T for own in found]), include=[0.0])
    whole = [_line(own, own.t_ns_T, first_ns, colour) for colour, own in enumerate(found, start=2)]
    return section(
        "speed",
        "Speed on one time base",
        _compared(found, y) if len(found) > 1 else "",
        chart("The whole recording, by corrected instants", whole, x=x, y=y),
        _skews(synced),
    )


def _compared(found: list[_Speed], y: Axis) -> str:
    """The same readings before and after, where a difference in time shows best."""
    zoom_ns = _liveliest(found)
    close = time_axis(zoom_ns, zoom_ns + round(ZOOM_S * 1e9))
    before = [_line(own, own.stamp_ns_T, zoom_ns, colour) for colour, own in enumerate(found, start=2)]
    after = [_line(own, own.t_ns_T, zoom_ns, colour) for colour, own in enumerate(found, start=2)]
    return (
        '<div class="charts">'
        + chart("Before: by the stamps of each device", before, x=close, y=y, note=_shifts(found))
        + chart(
            "After: by corrected instants", after, x=close, y=y, note=f"The {ZOOM_S:g} s in which speed changed most."
        )
        + "</div>"
    )


def _skews(synced: SyncedRecording) -> str:
    """How far the corrected instants are apart after all, as far as the speeds tell."""
    rows: list[list[Cell]] = [
        [skew["sensor"], skew["reference"], *(duration(skew[name] * 1e-3) for name in ("skew_ms", "sigma_ms"))]
        for skew in synced.skews
        if skew["skew_ms"] is not None and skew["sigma_ms"] is not None
    ]
    return table("Time that is left between the speeds", ["sensor", "against", "skew", "σ"], rows) if rows else ""


def _speeds(synced: SyncedRecording) -> list[_Speed]:
    found = [
        _speed(synced, name, track.values["speed_mps"])
        for name, track in synced.tracks.items()
        if "speed_mps" in track.values
    ]
    if synced.wheels is not None and len(synced.wheels.t_ns_T) > 1:
        found.insert(0, _speed(synced, "odo", _rolled_mps(synced)))
    return [own for own in found if len(own.t_ns_T) > 1]


def _speed(synced: SyncedRecording, name: str, speed_mps_T: np.ndarray) -> _Speed:
    sensor, used = synced.recording.sensors[name], synced.times[name].used
    is_read_T = np.isfinite(speed_mps_T)
    t_ns_T = synced.tracks[name].t_ns_T[is_read_T]
    stamp_ns_T = synced.calibration.stamps[name].dev_ns_T[used][is_read_T]
    is_dated = sensor.encoding not in FREE_RUNNING
    if not is_dated and len(t_ns_T):
        stamp_ns_T = stamp_ns_T - stamp_ns_T[0] + t_ns_T[0]
    return _Speed(name, stamp_ns_T, t_ns_T, speed_mps_T[is_read_T], is_dated)


def _rolled_mps(synced: SyncedRecording) -> np.ndarray:
    """Speed of the wheels at each row of the odometer, NaN where it has no reading."""
    assert synced.wheels is not None
    t_ns_T, half_ns = synced.tracks["odo"].t_ns_T, round(ODOMETER_S / 2 * 1e9)
    behind_ns_T, ahead_ns_T = t_ns_T - half_ns, t_ns_T + half_ns
    speed_mps_T = (synced.wheels.at(ahead_ns_T) - synced.wheels.at(behind_ns_T)) / ODOMETER_S
    is_unread_T = np.isnan(synced.tracks["odo"].values["pulses"])
    return np.where(is_unread_T | (behind_ns_T < t_ns_T[0]) | (ahead_ns_T > t_ns_T[-1]), np.nan, speed_mps_T)


def _liveliest(found: list[_Speed]) -> int:
    """Start of the stretch of `ZOOM_S` in which the speed of the busiest sensor varies most, nanoseconds UTC."""
    busiest = max(found, key=lambda own: len(own.t_ns_T))
    seconds = np.arange(0.0, (busiest.t_ns_T[-1] - busiest.t_ns_T[0]) * 1e-9, 1.0)
    mps = np.interp(seconds, (busiest.t_ns_T - busiest.t_ns_T[0]) * 1e-9, busiest.speed_mps_T)
    width = int(ZOOM_S)
    if len(mps) <= width:
        return int(busiest.t_ns_T[0])
    spread = np.lib.stride_tricks.sliding_window_view(mps, width).std(axis=1)
    return int(busiest.t_ns_T[0]) + int(spread.argmax()) * 10**9


def _line(own: _Speed, at_ns_T: np.ndarray, zero_ns: int, colour: int) -> Layer:
    return Line((at_ns_T - zero_ns) * 1e-9, own.speed_mps_T, own.sensor, colour, max_gap=GAP_S)


def _shifts(found: list[_Speed]) -> str:
    """How far each sensor's stamps were off, in words."""
    return (
        "Stamps less instants: "
        + ", ".join(
            f"{own.sensor} {duration(float(np.median(own.stamp_ns_T - own.t_ns_T)) * 1e-9)}"
            if own.is_dated
            else f"{own.sensor} counts from power-on, laid at its first row"
            for own in found
        )
        + "."
    )
