"""The section about sensors: where each has rows, and what was rejected, by reason.

Shape suffix: T = rows of one sensor by instant.
"""

import numpy as np

from pipelines.align import Track
from pipelines.screen.reasons import Reason, code
from pipelines.sync.flow import SyncedRecording
from pipelines.sync.report.charts import Axis, Marks, Spans, timeline
from pipelines.sync.report.elements import NOTHING, Cell, duration, section, table

MISSING = code(Reason.MISSING)
GAP_PERIODS = 5.0
"""Rows further apart than this many periods have a gap between them."""


def sensors(synced: SyncedRecording, x: Axis, first_ns: int) -> str:
    """Coverage over time, rows by fate, and readings that were left out."""
    gaps = {name: _gaps(track) for name, track in synced.tracks.items()}
    return section(
        "sensors",
        "Sensors",
        timeline(
            "Rows over time",
            {name: _presence(synced, name, gaps[name], first_ns) for name in synced.tracks},
            x=x,
            note=f"A gap is longer than {GAP_PERIODS:g} periods of the sensor.",
        ),
        f'<div class="tables"><div>{_fates(synced, gaps)}</div><div>{_left_out(synced)}</div></div>',
    )


def _presence(synced: SyncedRecording, name: str, gaps: np.ndarray, first_ns: int) -> list[Spans | Marks]:
    """Stretches with rows; events one by one; readings that were left out on top."""
    track = synced.tracks[name]
    at_s_T = (track.t_ns_T - first_ns) * 1e-9
    if not len(at_s_T):
        return []
    if track.rate_hz is None:
        return [Marks(at_s_T, "event", 0)]
    fault_T = synced.value_faults[name][synced.times[name].used]
    return [
        Spans(at_s_T[np.r_[0, gaps + 1]], at_s_T[np.r_[gaps, len(at_s_T) - 1]], "rows", 2),
        Marks(at_s_T[fault_T == MISSING], "reading missing", 7),
        Marks(at_s_T[(fault_T > 0) & (fault_T != MISSING)], "reading not believed", 1),
    ]


def _gaps(track: Track) -> np.ndarray:
    """Positions of the rows that a gap follows."""
    if track.rate_hz is None:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.diff(track.t_ns_T) > GAP_PERIODS * 1e9 / track.rate_hz)


def _fates(synced: SyncedRecording, gaps: dict[str, np.ndarray]) -> str:
    reasons = sorted({reason for counts in synced.rejected.values() for reason in counts})
    rows: list[list[Cell]] = []
    for name, track in synced.tracks.items():
        longest_s = float(np.diff(track.t_ns_T)[gaps[name]].max()) * 1e-9 if len(gaps[name]) else 0.0
        rows.append(
            [
                name,
                track.rate_hz if track.rate_hz is not None else "events",
                synced.rows_in[name],
                synced.rows_used[name],
                *(synced.rejected[name].get(reason, 0) for reason in reasons),
                len(gaps[name]),
                duration(longest_s) if longest_s else NOTHING,
            ]
        )
    head = ["sensor", "rate, Hz", "rows", "used", *(reason.replace("_", " ") for reason in reasons), "gaps", "longest"]
    return table("Rows: those that are not used have no place in time, for the reason named", head, rows)


def _left_out(synced: SyncedRecording) -> str:
    rows: list[list[Cell]] = [
        [sensor, channel, reason.replace("_", " "), count]
        for sensor, channels in synced.screened.items()
        for channel, counts in channels.items()
        for reason, count in counts.items()
    ]
    if not rows:
        return ""
    return table(
        "Readings left out: their rows are used without them", ["sensor", "channel", "reason", "readings"], rows
    )
