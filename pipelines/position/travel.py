"""How far the train travelled: the wheel where it rolls, another speed where it slips, slides or nobody counts.

Distances are those of the leading sensor: the wheel at its nominal diameter if there is one that turns, else the speed
sensor with the most readings. The others are brought to its scale. Forward is not told from backward.

Shape suffixes: E = edges of equal cells of time, C = the cells between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.position.cells import Steps, num_cells, runs, steps_of, steps_of_speed, widened
from pipelines.position.distance import Distance
from pipelines.position.slip import Slip, check, slips, to_scale, turning

CELL_S = 0.1
MAX_CELLS = 1_000_000
"""Longer recordings get longer cells."""

PAD_S = 0.3
"""A wheel is not trusted for this long on either side of a slip."""

UNCHECKED_NOISE = 0.1
"""Random walk of a wheel that no other sensor checks: it may slip too little to show in its acceleration."""

BLIND_NOISE = 15.0
"""Random walk where no speed is known, neither there nor nearby, in metres per square root of a second."""

NEARBY_S = 1.0
DRIVES_MPS2 = 0.4
"""Standard deviation of the mean acceleration while nothing measures the speed."""

MATCH_SIGMAS, MATCH_M = 4.0, 0.2
"""The counter is believed about a gap as a whole if it agrees this well with what others saw."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Travel:
    """Distance travelled over time."""

    first_ns: int
    cell_ns: int
    distance_m_E: np.ndarray
    noise_m2_C: np.ndarray
    """Variance of the distance in each cell, beyond what the leading sensor itself has."""

    is_rolling_C: np.ndarray
    """True where the distance is that of a wheel that rolls."""

    wheels: Distance | None
    """Distance rolled, slip and gaps and all."""

    is_wheel_leading: bool
    """False where there is no odometer, or none that turns: distances are then those of a speed sensor."""

    slips: tuple[Slip, ...]

    @property
    def t_ns_E(self) -> np.ndarray:
        """Edges of the cells, nanoseconds UTC."""
        return self.first_ns + np.arange(len(self.distance_m_E), dtype=np.int64) * self.cell_ns

    @property
    def noise_m2_E(self) -> np.ndarray:
        """Variance that the distance has gathered up to each edge, beyond what the leading sensor itself has."""
        return np.concatenate([[0.0], np.cumsum(self.noise_m2_C)])

    @property
    def cell_s(self) -> float:
        """Length of a cell."""
        return self.cell_ns * 1e-9

    def distance_at(self, t_ns: np.ndarray) -> np.ndarray:
        """Distance at other instants: linear within cells, constant beyond the first and the last."""
        return self.between_edges(self.distance_m_E, t_ns)

    def between_edges(self, x_E: np.ndarray, t_ns: np.ndarray) -> np.ndarray:
        """Interpolate a quantity that is known at the edges."""
        return np.asarray(np.interp((t_ns - self.first_ns) / self.cell_ns, np.arange(len(x_E)), x_E))


def travel(wheels: Distance | None, speeds: Sequence[Distance], *, first_ns: int, last_ns: int) -> Travel:
    """Follow the train from `first_ns` to `last_ns`, nanoseconds UTC, by everything that measures how far it goes.

    Args:
        wheels: Distance rolled; absent: the speed sensors alone.
        speeds: Distances of the speed sensors.
        first_ns: Where to begin.
        last_ns: Where to end; at or after `first_ns`.
    """
    cell_ns = max(round(CELL_S * 1e9), -(-(last_ns - first_ns) // MAX_CELLS))
    t_ns_E = first_ns + np.arange(-(-(last_ns - first_ns) // cell_ns) + 2, dtype=np.int64) * cell_ns
    others = sorted((steps_of_speed(speed, t_ns_E) for speed in speeds), key=lambda other: other.period_s)
    wheel = turning(steps_of(wheels, t_ns_E), others) if wheels is not None else None
    is_slip_C = np.zeros(len(t_ns_E) - 1, dtype=bool)
    if wheel is not None:
        leader = wheel
        others, is_slip_C, is_checked_C = check(wheel, others)
    else:
        leader, *others = others or [_blind(t_ns_E)]
        others = [to_scale(other, leader, is_slip_C) for other in others]
        is_checked_C = leader.is_valid_C
    is_trusted_C = leader.is_valid_C & ~widened(is_slip_C, PAD_S, leader.cell_s)
    step_m_C, noise_m2_C = _composed(leader, is_trusted_C, others)
    noise_m2_C[is_trusted_C & ~is_checked_C & (step_m_C > 0.0)] = UNCHECKED_NOISE**2 * leader.cell_s
    if wheel is not None and wheels is not None:
        step_m_C = _matched(step_m_C, noise_m2_C, wheels, wheel.is_valid_C, t_ns_E)
    return Travel(
        first_ns=first_ns,
        cell_ns=cell_ns,
        distance_m_E=np.concatenate([[0.0], np.cumsum(step_m_C)]),
        noise_m2_C=noise_m2_C,
        is_rolling_C=is_trusted_C & (wheel is not None),
        wheels=wheels,
        is_wheel_leading=wheel is not None,
        slips=slips(is_slip_C, leader.step_m_C - step_m_C, t_ns_E),
    )


def _blind(t_ns_E: np.ndarray) -> Steps:
    """A sensor that sees nothing."""
    nothing_C = np.zeros(len(t_ns_E) - 1)
    cell_s = float(t_ns_E[1] - t_ns_E[0]) * 1e-9
    return Steps(step_m_C=nothing_C, is_valid_C=nothing_C > 0.0, cell_s=cell_s, period_s=cell_s)


def _composed(leader: Steps, is_trusted_C: np.ndarray, others: Sequence[Steps]) -> tuple[np.ndarray, np.ndarray]:
    """Take every cell from the leading sensor, else from the steadiest other one, else from its neighbours in time."""
    step_m_C, noise_m2_C = np.where(is_trusted_C, leader.step_m_C, 0.0), np.zeros(len(is_trusted_C))
    is_known_C = is_trusted_C.copy()
    for other in sorted(others, key=lambda other: other.noise):
        is_used_C = other.is_valid_C & ~is_known_C
        step_m_C[is_used_C] = other.step_m_C[is_used_C]
        noise_m2_C[is_used_C] = other.noise**2 * other.cell_s
        is_known_C |= is_used_C
    known_m_C, nearby = np.where(is_known_C, step_m_C, np.nan), num_cells(NEARBY_S, leader.cell_s)
    for start, stop in runs(~is_known_C):
        around_m = known_m_C[max(start - nearby, 0) : start], known_m_C[stop : stop + nearby]
        ends_m = [float(np.nanmean(side_m)) for side_m in around_m if len(side_m)]
        span_s = (stop - start) * leader.cell_s
        error_m2 = BLIND_NOISE**2 * span_s
        if ends_m:
            step_m_C[start:stop] = np.linspace(ends_m[0], ends_m[-1], stop - start)
            error_m2 = min(error_m2, (DRIVES_MPS2 * span_s**2 / (8.0 if len(ends_m) == 2 else 2.0)) ** 2)
        noise_m2_C[start:stop] = error_m2 / (stop - start)
    return step_m_C, noise_m2_C


def _matched(
    step_m_C: np.ndarray, noise_m2_C: np.ndarray, wheels: Distance, is_valid_C: np.ndarray, t_ns_E: np.ndarray
) -> np.ndarray:
    """Correct what was put into a gap of the odometer by what its counter says of the gap as a whole.

    The difference goes to where the distance is least certain.
    """
    matched_m_C = step_m_C.copy()
    for start, stop in runs(~is_valid_C):
        if start == 0 or stop == len(step_m_C) or not wheels.is_counted(int(t_ns_E[start]), int(t_ns_E[stop])):
            continue
        counted_m = abs(float(np.diff(wheels.at(t_ns_E[[start, stop]]))[0]))
        filled_m = float(step_m_C[start:stop].sum())
        noise_m2 = noise_m2_C[start:stop].sum()
        if noise_m2 > 0.0 and abs(counted_m - filled_m) < MATCH_SIGMAS * np.sqrt(noise_m2) + MATCH_M:
            matched_m_C[start:stop] += (counted_m - filled_m) * noise_m2_C[start:stop] / noise_m2
    return matched_m_C
