"""The section about clocks: what each was off, how well that is known, and which servers said so.

Shape suffixes: X = measurements of one clock, oldest first, N = points along its map.
"""

from html import escape

import numpy as np

from pipelines.clocks.clock_map import ClockMap, Segment
from pipelines.sync.flow import SyncedRecording
from pipelines.sync.measured import SIGMAS, Measured
from pipelines.sync.report.charts import Axis, Band, Dots, Layer, Line, Marks, chart, number_axis
from pipelines.sync.report.elements import NOTHING, Cell, details, duration, section, table

POINTS = 300
"""Points along a segment of a map."""

NO_EPOCH_NS = 10**17
"""A clock that is years off does not count from 1970 but from its power-on."""


def clocks(synced: SyncedRecording, x: Axis, first_ns: int) -> str:
    """A table of all clocks, and charts of those that were compared with a server or a receiver.

    Args:
        synced: The recording.
        x: Axis of time.
        first_ns: Instant of its zero.
    """
    maps = synced.calibration.maps
    charts = [
        f'<h3>Clock {escape(clock_id)}</h3><div class="charts">{_offsets(maps[clock_id], own, x, first_ns)}'
        f"{_residuals(maps[clock_id], own, x, first_ns)}</div>"
        for clock_id, own in synced.measured.items()
    ]
    return section("clocks", "Clocks", _summary(synced), *charts, details("Servers", _servers(synced)))


def _summary(synced: SyncedRecording) -> str:
    stamped: dict[str, list[str]] = {}
    for name, sensor in synced.recording.sensors.items():
        stamped.setdefault(sensor.clock_id, []).append(name)
    head = ["clock", "stamps", "tied to UTC by", "offset", "drift, ppm", "steps", "residual p99", "σ at most", "floor"]
    return table(
        "What was added to each clock to get UTC. Floor: half the shortest round trip; no exchange sees further",
        head,
        [
            [
                clock_id,
                ", ".join(stamped.get(clock_id, [])),
                _METHODS.get(facts["method"], facts["method"]),
                _offset(facts["offset_ms"]),
                facts["drift_ppm"],
                ", ".join(_span(step) for step in facts["steps_ms"]) or "none",
                _span(facts["residual_p99_ms"]),
                _span(facts["sigma_max_ms"]),
                _span(facts["floor_ms"]),
            ]
            for clock_id, facts in synced.clocks.items()
        ],
    )


_METHODS = {
    "exchanges": "NTP exchanges",
    "pairs": "GNSS time pairs",
    "gps": "its own GNSS time",
    "signal": "a speed it shares",
    "unchecked": "nothing: believed",
}


def _offset(milliseconds: float | None) -> str:
    """An offset; of a clock that counts from its power-on, when that was."""
    if milliseconds is None or abs(milliseconds) * 1e6 < NO_EPOCH_NS:
        return _span(milliseconds)
    return f"since {np.datetime64(round(milliseconds), 'ms').item():%Y-%m-%d %H:%M:%S}"


def _span(milliseconds: float | None) -> str:
    return NOTHING if milliseconds is None else duration(milliseconds * 1e-3)


def _servers(synced: SyncedRecording) -> str:
    rows: list[list[Cell]] = [
        [
            clock_id,
            server["server"],
            server["num_exchanges"],
            server["num_exchanges"] - server["num_believed"],
            _span(server["shortest_rtt_ms"]),
            _span(server["residual_median_ms"]),
        ]
        for clock_id, facts in synced.clocks.items()
        for server in facts["servers"]
    ]
    head = ["clock", "server", "exchanges", "not believed", "shortest round trip", "median residual"]
    return table("What each server said of each clock", head, rows) if rows else ""


def _offsets(clock: ClockMap, measured: Measured, x: Axis, first_ns: int) -> str:
    """Offset over time: every exchange, the map through them, and the steps."""
    has_epoch = abs(int(measured.offset_ns_X[0])) < NO_EPOCH_NS
    zero_ns = 0 if has_epoch else clock.offset_ns
    at_s_N, offset_ns_N, _ = _along(clock, x, first_ns, zero_ns)
    unit, size_ns = _unit(offset_ns_N)
    measured_X = (measured.offset_ns_X - zero_ns) / size_ns
    y = number_axis(f"UTC − device, {unit}", offset_ns_N / size_ns, include=np.percentile(measured_X, [1, 99]))
    layers: list[Layer] = [
        Line(at_s_N, offset_ns_N / size_ns, "map", 0),
        *_dots(measured, (measured.utc_ns_X - first_ns) * 1e-9, measured_X),
        Marks((clock.set_ns - first_ns) * 1e-9, "clock was set", 1),
    ]
    note = "" if has_epoch else "Relative to the start: the device counts from its power-on."
    return chart("Offset", layers, x=x, y=y, note=note)


def _residuals(clock: ClockMap, measured: Measured, x: Axis, first_ns: int) -> str:
    """What the map leaves of every exchange, with its uncertainty."""
    at_s_N, _, sigma_ns_N = _along(clock, x, first_ns, 0)
    believed_ns = np.abs(measured.residual_ns_X[measured.is_believed_X])
    usual_ns = float(np.percentile(believed_ns, 98)) if len(believed_ns) else 0.0
    reach_ns = max(1.2 * usual_ns, 1.3 * SIGMAS * _largest(sigma_ns_N))
    unit, size_ns = _unit(np.array([reach_ns]))
    y = number_axis(f"measured − map, {unit}", np.array([-reach_ns, reach_ns]) / size_ns)
    floor_ns = clock.residuals.floor_ns
    layers: list[Layer] = [
        Band(at_s_N, -SIGMAS * sigma_ns_N / size_ns, SIGMAS * sigma_ns_N / size_ns, f"map ± {SIGMAS:g} σ", 6),
        Line(at_s_N, np.zeros(len(at_s_N)), "", 0),
        *_dots(measured, (measured.utc_ns_X - first_ns) * 1e-9, measured.residual_ns_X / size_ns),
        Marks((clock.set_ns - first_ns) * 1e-9, "", 1),  # as in the chart beside it
    ]
    if floor_ns < reach_ns:
        layers += [
            Line(at_s_N, np.full(len(at_s_N), side * floor_ns / size_ns), "± floor", 7, True) for side in (-1, 1)
        ]
    beyond = int((np.abs(measured.residual_ns_X) > reach_ns).sum())
    note = f"Floor ± {duration(floor_ns * 1e-9)}." + (f" {beyond} exchanges lie beyond the edges." if beyond else "")
    return chart("Residual", layers, x=x, y=y, note=note)


def _dots(measured: Measured, at_s_X: np.ndarray, y_X: np.ndarray) -> list[Layer]:
    """Exchanges in the colour of their server, hollow where they were not believed."""
    layers: list[Layer] = []
    for number, server in enumerate(measured.servers):
        colour = 2 + number % 5
        of_server_X = measured.server_X == number
        good_X, bad_X = of_server_X & measured.is_believed_X, of_server_X & ~measured.is_believed_X
        layers.append(Dots(at_s_X[bad_X], y_X[bad_X], f"{server}, not believed", colour, is_hollow=True))
        layers.append(Dots(at_s_X[good_X], y_X[good_X], server, colour))
    return layers


def _along(clock: ClockMap, x: Axis, first_ns: int, zero_ns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Instants within the axis, offset beyond `zero_ns` and standard error of the map there; NaN between segments."""
    parts = []
    for number, segment in enumerate(clock.segments):
        start_ns, stop_ns = first_ns, first_ns + round(x.high * 1e9)
        if number:
            start_ns = max(start_ns, _utc_ns(segment, clock.steps[number - 1].after_ns))
        if number < len(clock.steps):
            stop_ns = min(stop_ns, _utc_ns(segment, clock.steps[number].before_ns))
        utc_ns_N = np.linspace(start_ns, max(start_ns, stop_ns), POINTS).astype(np.int64)
        dev_ns_N = segment.to_dev(utc_ns_N)
        offset_ns_N, sigma_ns_N = (utc_ns_N - dev_ns_N) - zero_ns, segment.to_utc(dev_ns_N)[1]
        parts.append(np.stack([(utc_ns_N - first_ns) * 1e-9, offset_ns_N, sigma_ns_N]))
        parts.append(np.full((3, 1), np.nan))
    at_s_N, offset_ns_N, sigma_ns_N = np.concatenate(parts[:-1], axis=1)
    return at_s_N, offset_ns_N, sigma_ns_N


def _utc_ns(segment: Segment, dev_ns: int) -> int:
    return int(segment.to_utc(np.array([dev_ns]))[0][0])


def _unit(values_ns: np.ndarray) -> tuple[str, float]:
    """The unit in which the largest of the values is a number of few digits."""
    largest = _largest(values_ns)
    for unit, size_ns in (("µs", 1e3), ("ms", 1e6)):
        if largest < 1000 * size_ns:
            return unit, size_ns
    return "s", 1e9


def _largest(values: np.ndarray) -> float:
    """The largest magnitude of the finite values; 0 if there is none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
