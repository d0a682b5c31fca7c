"""The section about place: where the train was, how well that is known, and where its wheels slipped.

Shape suffixes: M = measured places, E = edges of the cells of `position.Travel`.
"""

from datetime import UTC, datetime

import numpy as np

from pipelines.position import LocatedSlip, Residuals
from pipelines.sync.flow import SyncedRecording
from pipelines.sync.measured import SIGMAS
from pipelines.sync.report.charts import Axis, Band, Dots, Layer, Line, Spans, chart, number_axis
from pipelines.sync.report.elements import NOTHING, duration, section, table

MAX_SLIPS = 20
"""Slips that are listed one by one, those that cost most."""

_KINDS = {"fixes": ("GNSS fix", 2), "balises": ("balise", 5)}


def place(synced: SyncedRecording, x: Axis, first_ns: int) -> str:
    """Time-distance, residuals, uncertainty along the line, and slips; nothing where no place is known."""
    where = synced.where
    if not np.isfinite(where.line_m_E).any():
        return ""
    at_s_E = (where.travel.t_ns_E - first_ns) * 1e-9
    return section(
        "place",
        "Place on the line",
        '<div class="charts">',
        _way(synced, at_s_E, x, first_ns),
        _residuals(synced, at_s_E, x, first_ns),
        _uncertainty(synced),
        "<div>",
        _rests_on(synced),
        "</div></div>",
        _slips(where.slips),
    )


def _way(synced: SyncedRecording, at_s_E: np.ndarray, x: Axis, first_ns: int) -> str:
    where = synced.where
    y = number_axis("km along the line", where.line_m_E * 1e-3)
    balises = where.residuals["balises"]
    passed_m_M = where.at(balises.t_ns_M)[0] + balises.residual_m_M
    layers: list[Layer] = [
        *_slipping(where.slips, first_ns),
        Line(at_s_E, where.line_m_E * 1e-3, "train", 0),
        Dots((balises.t_ns_M - first_ns) * 1e-9, passed_m_M * 1e-3, "balise", 5),
    ]
    return chart("Way", layers, x=x, y=y)


def _slipping(slips: tuple[LocatedSlip, ...], first_ns: int) -> list[Layer]:
    """When the wheels slipped under traction, and when they slid under braking."""
    return [
        Spans(
            np.array([slip.start_ns - first_ns for slip in slips if slip.kind == kind]) * 1e-9,
            np.array([slip.stop_ns - first_ns for slip in slips if slip.kind == kind]) * 1e-9,
            kind,
            colour,
        )
        for kind, colour in (("slip", 4), ("slide", 1))
    ]


def _residuals(synced: SyncedRecording, at_s_E: np.ndarray, x: Axis, first_ns: int) -> str:
    """Measured less estimated places, outliers hollow."""
    where = synced.where
    used_m = np.concatenate([np.abs(own.residual_m_M[own.is_used_M]) for own in where.residuals.values()])
    sigma_m_E = SIGMAS * where.sigma_m_E
    reach_m = 1.2 * max(np.percentile(used_m, 99) if len(used_m) else 0.0, np.nanpercentile(sigma_m_E, 95))
    y = number_axis("measured − estimated, m", np.array([-reach_m, reach_m]))
    layers: list[Layer] = [
        *_slipping(where.slips, first_ns),
        Band(at_s_E, -sigma_m_E, sigma_m_E, f"place ± {SIGMAS:g} σ", 6),
        *(layer for kind, own in where.residuals.items() for layer in _dots(kind, own, first_ns)),
    ]
    num_beyond = sum(int((np.abs(own.residual_m_M) > reach_m).sum()) for own in where.residuals.values())
    note = f"{num_beyond} measurements lie beyond the edges." if num_beyond else ""
    return chart("Residual of what was measured", layers, x=x, y=y, note=note)


def _dots(kind: str, own: Residuals, first_ns: int) -> list[Layer]:
    name, colour = _KINDS[kind]
    at_s_M = (own.t_ns_M - first_ns) * 1e-9
    return [
        Dots(at_s_M[~own.is_used_M], own.residual_m_M[~own.is_used_M], f"{name}, outlier", colour, is_hollow=True),
        Dots(at_s_M[own.is_used_M], own.residual_m_M[own.is_used_M], name, colour),
    ]


def _uncertainty(synced: SyncedRecording) -> str:
    """Standard error over the line, with the stretches on which the wheels slipped."""
    where = synced.where
    x = number_axis("km along the line", where.line_m_E * 1e-3)
    y = number_axis("σ, m", where.sigma_m_E, include=[0.0])
    layers: list[Layer] = [
        *(
            Spans(
                np.array([min(s.from_line_m, s.to_line_m) for s in where.slips if s.kind == kind]) * 1e-3,
                np.array([max(s.from_line_m, s.to_line_m) for s in where.slips if s.kind == kind]) * 1e-3,
                kind,
                colour,
            )
            for kind, colour in (("slip", 4), ("slide", 1))
        ),
        Line(where.line_m_E * 1e-3, where.sigma_m_E, "σ of the place", 2),
    ]
    return chart("Uncertainty along the line", layers, x=x, y=y)


def _rests_on(synced: SyncedRecording) -> str:
    """What the place was found from."""
    stats = synced.position
    rows: list[list[str | int | float | None]] = [
        ["satellite fixes", stats["num_fixes"], _metres(stats.get("fix_sigma_m"))],
        ["balises", stats["num_balises"], _metres(stats.get("balise_sigma_m"))],
        ["of both, outliers", stats["num_gated"], ""],
        ["slips and slides", stats["num_slips"], duration(stats["slip_s"])],
        *(["not placed", reason.replace("_", " "), duration(s)] for reason, s in stats["unplaced_s"].items()),
    ]
    if "wheel_diameter_m" in stats:
        sigma_mm = 1000.0 * stats["wheel_diameter_sigma_m"]
        rows.append(["wheel diameter", f"{1000.0 * stats['wheel_diameter_m']:.2f} mm", f"σ {sigma_mm:.2f} mm"])
        rows.append(["nominal", f"{1000.0 * synced.recording.meta['wheel_nominal_diameter_m']:.1f} mm", ""])
    return table("What the place rests on", ["", "found", "σ or time"], rows)


def _metres(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f} m"


def _slips(slips: tuple[LocatedSlip, ...]) -> str:
    if not slips:
        return ""
    costly = sorted(slips, key=lambda slip: -abs(slip.excess_m))[:MAX_SLIPS]
    rows = [
        [
            f"{datetime.fromtimestamp(slip.start_ns // 10**9, tz=UTC):%H:%M:%S}",
            slip.kind,
            _km(slip.from_line_m),
            _km(slip.to_line_m),
            duration((slip.stop_ns - slip.start_ns) * 1e-9),
            f"{slip.excess_m:+.1f} m",
        ]
        for slip in sorted(costly, key=lambda slip: slip.start_ns)
    ]
    caption = "Slips and slides" + (
        f": the {MAX_SLIPS} that cost most of {len(slips)}" if len(slips) > MAX_SLIPS else ""
    )
    return table(caption, ["UTC", "kind", "from", "to", "for", "wheel against train"], rows)


def _km(line_m: float) -> str:
    return f"km {line_m * 1e-3:.3f}" if np.isfinite(line_m) else NOTHING
