"""The report as one page: the numbers that matter, then the evidence for each."""

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape

import numpy as np

from pipelines.clocks.clock_map import VERSION
from pipelines.sync.flow import SyncedRecording
from pipelines.sync.report.charts import time_axis
from pipelines.sync.report.clocks import clocks
from pipelines.sync.report.elements import document, duration, heading, links, numbers, warnings
from pipelines.sync.report.place import place
from pipelines.sync.report.sensors import sensors
from pipelines.sync.report.speeds import speeds


def page(synced: SyncedRecording, beside: Mapping[str, str] | None = None) -> str:
    """Return the report as a self-contained HTML document.

    Args:
        synced: The recording.
        beside: Names and relative addresses of the files that lie beside the page.
    """
    first_ns, last_ns = _ends(synced)
    x = time_axis(first_ns, last_ns)
    parts = {
        "clocks": clocks(synced, x, first_ns),
        "sensors": sensors(synced, x, first_ns),
        "speed": speeds(synced, x, first_ns),
        "place": place(synced, x, first_ns),
    }
    recording = synced.recording
    title = f"{recording.vehicle} · {recording.day} · {recording.recording_id}"
    return document(
        f"{title}: time and place",
        heading(title, is_simulated=bool(recording.meta.get("simulated"))),
        f"<p>{_when(synced, first_ns, last_ns)}</p>",
        f"<main>{numbers(_glance(synced))}{warnings(_warnings(synced))}",
        f"<nav>{links({anchor.capitalize(): f'#{anchor}' for anchor, part in parts.items() if part})}</nav>",
        *parts.values(),
        f"</main><footer><p>{links(beside or {})}</p><p>Trackside, clock maps of version {VERSION}. ",
        "σ is a standard error; ± 2 σ holds 95 of 100.</p></footer>",
    )


def _ends(synced: SyncedRecording) -> tuple[int, int]:
    """First and last instant of any row, nanoseconds UTC."""
    ends = [track.t_ns_T[[0, -1]] for track in synced.tracks.values() if len(track.t_ns_T)]
    return (min(int(pair[0]) for pair in ends), max(int(pair[1]) for pair in ends)) if ends else (0, 10**9)


def _when(synced: SyncedRecording, first_ns: int, last_ns: int) -> str:
    start = datetime.fromtimestamp(first_ns // 10**9, tz=UTC)
    return (
        f"Source {escape(synced.recording.source)}, from {start:%Y-%m-%d %H:%M:%S} UTC for "
        f"{duration((last_ns - first_ns) * 1e-9)}, aligned at {synced.rate_hz:g} Hz."
    )


def _glance(synced: SyncedRecording) -> dict[str, tuple[str, str]]:
    """The verdict in numbers."""
    num_in, num_used = sum(synced.rows_in.values()), sum(synced.rows_used.values())
    shown = {
        "Rows": (f"{num_in:,}", f"of {len(synced.rows_in)} sensors"),
        "Used": (f"{num_used / max(num_in, 1):.3%}", f"{num_in - num_used:,} rows rejected"),
        "Left out": (f"{_num_screened(synced):,}", "readings of rows that are used"),
        "Clocks": (f"{_num_tied(synced)} of {len(_stamping(synced))}", "tied to UTC"),
    }
    worst = max(synced.clocks.items(), key=lambda item: item[1]["sigma_max_ms"] or 0.0, default=None)
    if worst is not None and worst[1]["sigma_max_ms"] is not None:
        shown["Worst clock"] = (f"σ {duration(worst[1]['sigma_max_ms'] * 1e-3)}", worst[0])
    place = synced.position
    if "sigma_p95_m" in place:
        shown["Position"] = (f"σ {place['sigma_median_m']:.2f} m", f"95 % below {place['sigma_p95_m']:.2f} m")
    if "wheel_diameter_m" in place:
        nominal_m = synced.recording.meta["wheel_nominal_diameter_m"]
        change = place["wheel_diameter_m"] / nominal_m - 1.0
        shown["Wheel diameter"] = (f"{1000 * place['wheel_diameter_m']:.1f} mm", f"{change:+.2%} of nominal")
    if synced.wheels is not None:
        shown["Slip and slide"] = (duration(float(place["slip_s"])), "of this trip")
    return shown


def _num_screened(synced: SyncedRecording) -> int:
    return sum(
        count for channels in synced.screened.values() for counts in channels.values() for count in counts.values()
    )


def _num_tied(synced: SyncedRecording) -> int:
    return sum(facts["method"] != "unchecked" for facts in synced.clocks.values())


def _stamping(synced: SyncedRecording) -> set[str]:
    """Clocks that stamp a sensor, with a map or without."""
    return {sensor.clock_id for sensor in synced.recording.sensors.values()}


def _warnings(synced: SyncedRecording) -> list[str]:
    """What a person should know before believing any of it."""
    unchecked = [clock_id for clock_id, facts in synced.clocks.items() if facts["method"] == "unchecked"]
    lying = {server for facts in synced.clocks.values() for server in facts["servers_rejected"]}
    return [
        *(f"Not read: {refusal.message}" for refusal in synced.refusals),
        *(f"Nothing ties clock {clock_id} to UTC: its stamps are believed as they are." for clock_id in unchecked),
        *(
            f"Clock {clock_id} has no map: the rows that it stamps have no place in time."
            for clock_id in sorted(_stamping(synced) - synced.clocks.keys())
        ),
        *(f"Server {server} contradicts the others and is not believed." for server in sorted(lying)),
        *([] if np.isfinite(synced.where.line_m_E).any() else ["Nothing tells where on the line this was recorded."]),
    ]
