"""How far the train travelled: the wheel where it rolls, another speed where it slips, slides or nobody counts.

Distances are those of the leading sensor: the wheel at its nominal diameter if there is one that turns, else the speed
sensor with the most readings. The others are brought to its scale. Forward is not told from backward.

Shape suffixes: E = edges of equal cells of time, C = the cells between them, B = blocks of several cells.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

from pipelines.position.distance import Distance

logger = logging.getLogger(__name__)

CELL_S = 0.1
MAX_CELLS = 4_000_000
"""Longer recordings get longer cells."""

WINDOWS_S = (0.5, 1.0, 2.0)
"""Times over which two distances are compared, for a sensor of 2 Hz or more; a slower one needs longer ones."""

SLIP_SIGMAS = 5.0
SLIP_MIN_MPS = 0.08
SLIP_SHARE = 0.003
"""The wheel slips where it differs from another speed by more than all of: this many standard errors, this speed, this
share of the speed. No sensor's zero and scale are quite constant."""

FADING_SIGMAS = 1.5
"""A slip begins and ends gently: the wheel is not trusted as far as the speeds differ by more than this."""

SHOWS_S, SHOWS_MPS = 0.5, 0.2
"""A slip is reported from the first to the last time in which the wheel is off by more than this speed for so long."""

PAD_S = 0.3
"""A wheel is not trusted for this long on either side of a slip."""

ADHESION_MPS2 = 1.3
"""No train accelerates or brakes harder than this while its wheels roll."""

JERK_PAD_S = 2.5
JERK_APART_S = 6.0
"""Where only the acceleration shows a slip, it shows the beginning and the end of it, up to this far apart."""

DRIVES_MPS2 = 0.4
"""Standard deviation of the mean acceleration while nothing measures the speed."""

UNCHECKED_NOISE = 0.1
"""Random walk of a wheel that no other sensor checks: it may slip too little to show in its acceleration."""

BLIND_NOISE = 15.0
"""Random walk where no speed is known, neither there nor nearby, in metres per square root of a second."""

UNKNOWN_NOISE = 0.1
"""Random walk of a sensor against the leading one if they have too little in common to tell."""

MIN_NOISE = 0.005
FAST_MPS = 3.0
STANDS_MPS = 0.15
"""Below this mean a speed is the noise of a sensor that cannot read less than zero."""

FROZEN_S = 20.0
"""No wheel stays locked for so long: the counter stopped counting."""

STUCK_SHARE = 0.2
"""A wheel that rolled less than this share of what another sensor travelled is none that can lead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slip:
    """An interval in which the wheel did not roll with the train."""

    start_ns: int
    stop_ns: int
    excess_m: float
    """How much further the wheel rolled than the train travelled; negative in a slide."""

    @property
    def kind(self) -> str:
        """`slip`: the wheel spins under traction; `slide`: it is too slow, or locked, under braking."""
        return "slip" if self.excess_m > 0.0 else "slide"


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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Steps:
    """Distance of one sensor, cell by cell."""

    step_m_C: np.ndarray
    is_valid_C: np.ndarray
    period_s: float
    noise: float = UNKNOWN_NOISE
    """Random walk against the leading sensor, in metres per square root of a second."""


def travel(wheel: Distance | None, speeds: Sequence[Distance], *, first_ns: int, last_ns: int) -> Travel:
    """Follow the train from `first_ns` to `last_ns`, nanoseconds UTC, by everything that measures how far it goes.

    Args:
        wheel: Distance rolled; absent: the speed sensors alone.
        speeds: Distances of the speed sensors.
        first_ns: Where to begin.
        last_ns: Where to end; at or after `first_ns`.
    """
    cell_ns = max(round(CELL_S * 1e9), -(-(last_ns - first_ns) // MAX_CELLS))
    t_ns_E = first_ns + np.arange(-(-(last_ns - first_ns) // cell_ns) + 2, dtype=np.int64) * cell_ns
    cell_s = cell_ns * 1e-9
    others = sorted((_steps_of_speed(speed, t_ns_E) for speed in speeds), key=lambda other: other.period_s)
    rolled = _steps_of_wheel(wheel, t_ns_E, others) if wheel is not None else None
    is_slip_C = np.zeros(len(t_ns_E) - 1, dtype=bool)
    if rolled is not None:
        leader = rolled
        others, is_slip_C, is_checked_C = _checked(rolled, others, cell_s)
    else:
        leader, *others = others or [_blind(len(is_slip_C))]
        others = [_scaled(other, leader, is_slip_C, cell_s) for other in others]
        is_checked_C = leader.is_valid_C
    is_trusted_C = leader.is_valid_C & ~_widened(is_slip_C, PAD_S, cell_s)
    step_m_C, noise_m2_C = _composed(leader, is_trusted_C, others, cell_s)
    noise_m2_C[is_trusted_C & ~is_checked_C & (step_m_C > 0.0)] = UNCHECKED_NOISE**2 * cell_s
    if wheel is not None and rolled is not None:
        step_m_C = _matched(step_m_C, noise_m2_C, wheel, rolled.is_valid_C, t_ns_E)
    return Travel(
        first_ns=first_ns,
        cell_ns=cell_ns,
        distance_m_E=np.concatenate([[0.0], np.cumsum(step_m_C)]),
        noise_m2_C=noise_m2_C,
        is_rolling_C=is_trusted_C & (rolled is not None),
        wheels=wheel,
        is_wheel_leading=rolled is not None,
        slips=_slips(is_slip_C, leader.step_m_C - step_m_C, t_ns_E, cell_s),
    )


def _blind(num_cells: int) -> _Steps:
    """A sensor that sees nothing."""
    return _Steps(step_m_C=np.zeros(num_cells), is_valid_C=np.zeros(num_cells, dtype=bool), period_s=0.0)


def _steps(distance: Distance, t_ns_E: np.ndarray) -> _Steps:
    step_m_C = np.diff(distance.at(t_ns_E))
    # Counters that count down backwards, and speeds below zero, are told by their sum, not by noise around zero.
    is_backward_C = sums(step_m_C, 21) < 0.0
    return _Steps(
        step_m_C=np.where(is_backward_C, -step_m_C, step_m_C),
        is_valid_C=distance.unseen_s(t_ns_E[:-1], t_ns_E[1:]) == 0.0,
        period_s=float(np.median(np.diff(distance.t_ns_T))) * 1e-9,
    )


def _steps_of_speed(speed: Distance, t_ns_E: np.ndarray) -> _Steps:
    steps = _steps(speed, t_ns_E)
    stands_C = sums(steps.step_m_C, 21) < STANDS_MPS * 21 * (t_ns_E[1] - t_ns_E[0]) * 1e-9
    return replace(steps, step_m_C=np.where(stands_C, 0.0, steps.step_m_C))


def _steps_of_wheel(wheel: Distance, t_ns_E: np.ndarray, others: Sequence[_Steps]) -> _Steps | None:
    """Steps of a wheel, less where its counter stands while the train moves; `None` if it hardly ever moves."""
    rolled = _steps(wheel, t_ns_E)
    cell_s = float(t_ns_E[1] - t_ns_E[0]) * 1e-9
    is_valid_C = rolled.is_valid_C.copy()
    for start, stop in runs(is_valid_C & (rolled.step_m_C == 0.0)):
        span_s = (stop - start) * cell_s
        if span_s >= FROZEN_S and any(_moves(other, start, stop, cell_s) for other in others):
            is_valid_C[start:stop] = False
    for other in others:
        is_both_C = rolled.is_valid_C & other.is_valid_C
        seen_m = other.step_m_C[is_both_C].sum()
        if seen_m > FAST_MPS * FROZEN_S and rolled.step_m_C[is_both_C].sum() < STUCK_SHARE * seen_m:
            logger.info("the odometer counts less than %g of the distance that others see: not used", STUCK_SHARE)
            return None
    return replace(rolled, is_valid_C=is_valid_C)


def _moves(steps: _Steps, start: int, stop: int, cell_s: float) -> bool:
    """Tell whether a sensor saw the train move in the cells `[start, stop)`, on average."""
    is_valid_C = steps.is_valid_C[start:stop]
    seen_s = is_valid_C.sum() * cell_s
    return bool(seen_s > 0.5 * FROZEN_S and steps.step_m_C[start:stop][is_valid_C].sum() > FAST_MPS * seen_s)


def _scaled(other: _Steps, leader: _Steps, is_slip_C: np.ndarray, cell_s: float) -> _Steps:
    """Bring a sensor to the scale of the leading one, and measure how much they wander apart."""
    is_both_C = leader.is_valid_C & other.is_valid_C & ~is_slip_C
    lead_m_B, seen_m_B = _blocks(leader.step_m_C, other.step_m_C, is_both_C, round(5.0 / cell_s))
    is_fast_B = (lead_m_B > FAST_MPS * 5.0) & (seen_m_B > FAST_MPS * 5.0)
    scale = float(np.median(lead_m_B[is_fast_B] / seen_m_B[is_fast_B])) if is_fast_B.sum() >= 3 else 1.0
    span_s = max(1.0, 2.0 * other.period_s)
    lead_m_B, seen_m_B = _blocks(leader.step_m_C, other.step_m_C, is_both_C, round(span_s / cell_s))
    is_moving_B = lead_m_B > 0.5 * span_s
    apart_m_B = (lead_m_B - scale * seen_m_B)[is_moving_B]
    noise = other.noise
    if len(apart_m_B) >= 20:
        noise = max(1.48 * float(np.median(np.abs(apart_m_B - np.median(apart_m_B)))) / np.sqrt(span_s), MIN_NOISE)
    return replace(other, step_m_C=scale * other.step_m_C, noise=noise)


def _checked(rolled: _Steps, others: list[_Steps], cell_s: float) -> tuple[list[_Steps], np.ndarray, np.ndarray]:
    """Compare the wheel with the other sensors.

    Returns:
        The other sensors at the wheel's scale, without what the rest of them contradict; where the wheel slips; where
        another sensor could tell.
    """
    is_slip_C = np.zeros(len(rolled.step_m_C), dtype=bool)
    for _ in range(2):  # scales and noise are known better once slips are left out of them
        others = [_scaled(other, rolled, is_slip_C, cell_s) for other in others]
        others, is_slip_C, is_checked_C = _slipping(rolled, others, cell_s)
    return others, is_slip_C | (_jerks(rolled, cell_s) & ~is_checked_C), is_checked_C


def _slipping(rolled: _Steps, others: Sequence[_Steps], cell_s: float) -> tuple[list[_Steps], np.ndarray, np.ndarray]:
    """See `_checked`, at scales that are known already."""
    is_slip_C, is_checked_C = np.zeros((2, len(rolled.step_m_C)), dtype=bool)
    believed = []
    for other in sorted(others, key=lambda other: other.noise):
        is_apart_C = _apart(rolled, other, cell_s)
        is_valid_C = other.is_valid_C.copy()
        for start, stop in runs(is_apart_C):
            if any(_contradicts(rolled, other, third, start, stop, cell_s) for third in others if third is not other):
                is_apart_C[start:stop] = is_valid_C[start:stop] = False
        is_slip_C |= is_apart_C & ~is_checked_C
        is_checked_C |= rolled.is_valid_C & is_valid_C
        believed.append(replace(other, is_valid_C=is_valid_C))
    return believed, is_slip_C, is_checked_C


def _apart(rolled: _Steps, other: _Steps, cell_s: float) -> np.ndarray:
    """Cells in which wheel and another sensor differ by more than their noise, over any of several windows."""
    is_both_C = rolled.is_valid_C & other.is_valid_C
    excess_m_C = np.where(is_both_C, rolled.step_m_C - other.step_m_C, 0.0)
    is_apart_C, is_fading_C = np.zeros(len(is_both_C), dtype=bool), np.zeros(len(is_both_C), dtype=bool)
    for window_s in WINDOWS_S:
        length = max(1, round(window_s * max(1.0, other.period_s / WINDOWS_S[0]) / cell_s))
        span_s = length * cell_s
        error_m = other.noise * np.sqrt(span_s)
        excess_m_W = np.abs(sums(excess_m_C, length))
        is_whole_W = sums(is_both_C.astype(np.float64), length) > length - 0.5
        least_m_W = np.maximum(SLIP_MIN_MPS * span_s, SLIP_SHARE * sums(rolled.step_m_C, length))
        is_hit_W = is_whole_W & (excess_m_W > np.maximum(least_m_W, SLIP_SIGMAS * error_m))
        is_apart_C |= ndimage.maximum_filter1d(is_hit_W, length)
        is_fading_C |= is_whole_W & (excess_m_W > np.maximum(least_m_W / 2, FADING_SIGMAS * error_m))
    return np.asarray(ndimage.binary_propagation(is_apart_C, mask=is_apart_C | is_fading_C) & is_both_C)


def _contradicts(rolled: _Steps, other: _Steps, third: _Steps, start: int, stop: int, cell_s: float) -> bool:
    """Tell whether a third sensor sides with the wheel against the other one in the cells `[start, stop)`."""
    if not third.is_valid_C[start:stop].all():
        return False
    rolled_m = rolled.step_m_C[start:stop].sum()
    excess_m = rolled_m - other.step_m_C[start:stop].sum()
    third_excess_m = rolled_m - third.step_m_C[start:stop].sum()
    error_m = np.hypot(other.noise, third.noise) * np.sqrt((stop - start) * cell_s)
    is_other_alone = abs(excess_m - third_excess_m) > SLIP_SIGMAS * error_m
    return bool(is_other_alone and abs(third_excess_m) < abs(excess_m) / 2)


def _jerks(rolled: _Steps, cell_s: float) -> np.ndarray:
    """Cells in which the wheel changes its speed as no train can, and those between two such changes."""
    half = max(1, round(0.5 / cell_s))
    speed_mps_C = sums(rolled.step_m_C, half) / (half * cell_s)
    change_mps_C = np.zeros(len(speed_mps_C))
    change_mps_C[half:-half] = speed_mps_C[2 * half :] - speed_mps_C[: -2 * half]
    is_whole_C = sums(rolled.is_valid_C.astype(np.float64), 4 * half + 1) > 4 * half + 0.5
    is_jerk_C = is_whole_C & (np.abs(change_mps_C) > ADHESION_MPS2 * 2 * half * cell_s)
    apart = round(JERK_APART_S / cell_s)
    padded_C = np.pad(is_jerk_C, apart)  # closing takes what lies beyond the ends for false
    is_between_C = ndimage.maximum_filter1d(padded_C, apart)
    is_between_C = ndimage.minimum_filter1d(is_between_C, apart)[apart:-apart]
    return _widened(is_between_C | is_jerk_C, JERK_PAD_S, cell_s) if is_jerk_C.any() else is_jerk_C


def _composed(
    leader: _Steps, is_trusted_C: np.ndarray, others: Sequence[_Steps], cell_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Take every cell from the leading sensor, else from the steadiest other one, else from its neighbours in time."""
    step_m_C = np.where(is_trusted_C, leader.step_m_C, 0.0)
    noise_m2_C = np.zeros(len(step_m_C))
    is_known_C = is_trusted_C.copy()
    for other in sorted(others, key=lambda other: other.noise):
        is_used_C = other.is_valid_C & ~is_known_C
        step_m_C[is_used_C] = other.step_m_C[is_used_C]
        noise_m2_C[is_used_C] = other.noise**2 * cell_s
        is_known_C |= is_used_C
    nearby = max(1, round(1.0 / cell_s))
    known_m_C = np.where(is_known_C, step_m_C, np.nan)
    for start, stop in runs(~is_known_C):
        before_m, after_m = known_m_C[max(start - nearby, 0) : start], known_m_C[stop : stop + nearby]
        span_s = (stop - start) * cell_s
        error_m2 = BLIND_NOISE**2 * span_s
        if len(before_m) or len(after_m):
            ends_m = [np.nanmean(part) for part in (before_m, after_m) if len(part)]
            step_m_C[start:stop] = np.linspace(ends_m[0], ends_m[-1], stop - start)
            error_m2 = min(error_m2, (DRIVES_MPS2 * span_s**2 / (8 if len(ends_m) == 2 else 2)) ** 2)
        noise_m2_C[start:stop] = error_m2 / (stop - start)
    return step_m_C, noise_m2_C


def _matched(
    step_m_C: np.ndarray, noise_m2_C: np.ndarray, wheel: Distance, is_valid_C: np.ndarray, t_ns_E: np.ndarray
) -> np.ndarray:
    """Correct what was put into a gap of the odometer by what its counter says of the gap as a whole.

    The difference goes to where the distance is least certain.
    """
    matched_m_C = step_m_C.copy()
    for start, stop in runs(~is_valid_C):
        if start == 0 or stop == len(step_m_C) or not wheel.is_counted(int(t_ns_E[start]), int(t_ns_E[stop])):
            continue
        counted_m = abs(float(np.diff(wheel.at(t_ns_E[[start, stop]]))[0]))
        filled_m = float(step_m_C[start:stop].sum())
        noise_m2 = noise_m2_C[start:stop].sum()
        if noise_m2 > 0.0 and abs(counted_m - filled_m) < 4.0 * np.sqrt(noise_m2) + 0.2:
            matched_m_C[start:stop] += (counted_m - filled_m) * noise_m2_C[start:stop] / noise_m2
    return matched_m_C


def _slips(is_slip_C: np.ndarray, excess_m_C: np.ndarray, t_ns_E: np.ndarray, cell_s: float) -> tuple[Slip, ...]:
    length = max(1, round(SHOWS_S / cell_s))
    shows_C = np.abs(sums(excess_m_C, length)) > SHOWS_MPS * length * cell_s
    slips = []
    for start, stop in runs(is_slip_C):
        shown = start + np.flatnonzero(shows_C[start:stop])
        if len(shown):
            first, last = int(shown[0]), int(shown[-1])
            excess_m = float(excess_m_C[start:stop].sum())
            slips.append(Slip(start_ns=int(t_ns_E[first]), stop_ns=int(t_ns_E[last + 1]), excess_m=excess_m))
    return tuple(slips)


def _widened(mask_C: np.ndarray, pad_s: float, cell_s: float) -> np.ndarray:
    return np.asarray(ndimage.maximum_filter1d(mask_C, 2 * round(pad_s / cell_s) + 1))


def sums(x_C: np.ndarray, length: int) -> np.ndarray:
    """Sums over windows of `length` cells around each; what lies beyond the ends is zero."""
    return np.convolve(x_C, np.ones(length))[(length - 1) // 2 :][: len(x_C)]


def _blocks(first_C: np.ndarray, second_C: np.ndarray, is_used_C: np.ndarray, length: int) -> tuple[np.ndarray, ...]:
    """Sums of two quantities over blocks of `length` cells that are used as a whole."""
    stop = len(is_used_C) // length * length
    is_whole_B = is_used_C[:stop].reshape(-1, length).all(axis=1)
    return tuple(x_C[:stop].reshape(-1, length).sum(axis=1)[is_whole_B] for x_C in (first_C, second_C))


def runs(mask_C: np.ndarray) -> list[tuple[int, int]]:
    """First cell and the one after the last of every run of true cells.

    Example:
        >>> runs(np.array([True, False, True, True]))
        [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask_C, [False]])))
    return [(int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
