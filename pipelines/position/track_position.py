"""Where on the line the train was, at any instant of a recording.

Shape suffixes: M = measured places in order of time, E = edges of the cells of `Travel`, N = instants asked for.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.compiled import compiled
from pipelines.position.centre_line import CentreLine
from pipelines.position.travel import Travel

PLACED, NO_REFERENCE, OUTSIDE_RECORDING, OFF_ROUTE, UNCERTAIN = range(5)
REASONS = ("", "no_reference", "outside_recording", "off_route", "uncertain")
"""Why there is no place: nothing was measured to tell it from; no row of any sensor is that early or late; the train
was not on the surveyed line; or the last place is too long ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocatedSlip:
    """An interval in which the wheel did not roll with the train, and where that was."""

    start_ns: int
    stop_ns: int
    kind: str
    """`slip`: the wheel spun under traction; `slide`: it was too slow, or locked, under braking."""

    from_line_m: float
    to_line_m: float
    """NaN where the place is unknown."""

    excess_m: float
    """How much further the wheel rolled than the train travelled; negative in a slide."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Residuals:
    """Measured minus estimated places of one kind."""

    t_ns_M: np.ndarray
    residual_m_M: np.ndarray
    is_used_M: np.ndarray
    """False for an outlier."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrackPosition:
    """The way of one train along one line."""

    travel: Travel
    line: CentreLine | None
    line_m_E: np.ndarray
    """NaN where there is a reason."""

    sigma_m_E: np.ndarray
    reason_E: np.ndarray
    """Position in `REASONS`."""

    slips: tuple[LocatedSlip, ...]
    residuals: dict[str, Residuals]
    """Of `fixes` and `balises`."""

    stats: dict[str, Any]
    """num_fixes, num_balises, num_gated; num_breaks: how often the distance was doubted to agree with them; fix_sigma_m
    and balise_sigma_m, as found; wheel_diameter_m and wheel_diameter_sigma_m where a wheel leads; num_slips, slip_s;
    unplaced_s by reason."""

    def at(self, t_ns_N: np.ndarray, clock_sigma_ns_N: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Place and its standard error, in metres along the line.

        Args:
            t_ns_N: Instants, nanoseconds UTC, in any order.
            clock_sigma_ns_N: Standard error of the instants, which adds to that of the place as the train moves.

        Returns:
            `(line_m_N, sigma_m_N)`; NaN where `reason_at` has a reason.
        """
        line_m_N, sigma_m_N, speed_mps_N = _between_edges(
            t_ns_N, self.travel.first_ns, self.travel.cell_ns, self.line_m_E, self.sigma_m_E
        )
        if clock_sigma_ns_N is not None:
            sigma_m_N = np.hypot(sigma_m_N, speed_mps_N * clock_sigma_ns_N * 1e-9)
        return line_m_N, sigma_m_N

    def reason_at(self, t_ns_N: np.ndarray) -> np.ndarray:
        """Why there is no place at instants, as positions in `REASONS`; 0 where there is one."""
        cell_N = (t_ns_N - self.travel.first_ns) // self.travel.cell_ns
        last = len(self.reason_E) - 2
        inside_N = np.clip(cell_N, 0, last)
        reason_N = np.maximum(self.reason_E[inside_N], self.reason_E[inside_N + 1])
        is_outside_N = (reason_N == PLACED) & ((cell_N < 0) | (cell_N > last))
        return np.asarray(np.where(is_outside_N, OUTSIDE_RECORDING, reason_N))

    def km_post(self, line_m_N: np.ndarray) -> np.ndarray:
        """Posted kilometre, in metres; NaN outside the surveyed line."""
        return np.full(len(line_m_N), np.nan) if self.line is None else self.line.km_post_at(line_m_N)


@compiled
def _between_edges(
    t_ns_N: np.ndarray, first_ns: int, cell_ns: int, line_m_E: np.ndarray, sigma_m_E: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place, its standard error and the speed along the line, linear between edges; NaN beyond the first and last."""
    n = len(t_ns_N)
    line_m_N, sigma_m_N, speed_mps_N = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    last = len(line_m_E) - 2
    for i in range(n):
        since_ns = t_ns_N[i] - first_ns
        e = since_ns // cell_ns
        if 0 <= e <= last:
            share = (since_ns - e * cell_ns) / cell_ns
            line_m_N[i] = line_m_E[e] + share * (line_m_E[e + 1] - line_m_E[e])
            sigma_m_N[i] = sigma_m_E[e] + share * (sigma_m_E[e + 1] - sigma_m_E[e])
            speed_mps_N[i] = (line_m_E[e + 1] - line_m_E[e]) / (cell_ns * 1e-9)
    return line_m_N, sigma_m_N, speed_mps_N
