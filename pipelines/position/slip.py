"""Where the wheel that carries the odometer does not roll with the train, told by other speeds or by its acceleration.

Shape suffixes: E = edges of equal cells of time, C = the cells, B = blocks of several cells, W = windows of several
cells around each cell.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from pipelines.position.cells import Steps, blocks, num_cells, runs, sums, widened

logger = logging.getLogger(__name__)

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
"""A slip is reported from when the wheel is off by more than this speed for so long until it is no more."""

MIN_EXCESS_M = 0.3
"""A slip of less than this may be the noise of the sensor that shows it."""

JOIN_S = 1.0
"""What is less than this apart is one slip, unless the wheel first spins and then slides."""

ADHESION_MPS2 = 1.3
"""No train accelerates or brakes harder than this while its wheels roll."""

JERK_S = 0.5
JERK_PAD_S, JERK_APART_S = 2.5, 6.0
"""The acceleration shows the beginning and the end of a slip, up to this far apart, and neither from the very start."""

FAST_MPS = 3.0
SCALE_S, NOISE_S = 5.0, 1.0
"""Times over which sensors are compared in motion to find their scale and how they wander apart."""

MIN_FAST_BLOCKS, MIN_MOVING_BLOCKS = 3, 20
MIN_NOISE = 0.005

FROZEN_S = 20.0
"""No wheel stays locked for so long: the counter stopped counting."""

STUCK_SHARE = 0.2
"""A wheel that rolled less than this share of what another sensor travelled does not turn."""


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


class Checked(NamedTuple):
    """What the comparison of the wheel with the other sensors tells."""

    others: list[Steps]
    """The other sensors at the wheel's scale, without what the rest of them contradict."""

    is_slip_C: np.ndarray
    is_checked_C: np.ndarray
    """True where another sensor could tell."""


def turning(wheel: Steps, others: Sequence[Steps]) -> Steps | None:
    """The wheel without stretches in which its counter stands while the train moves; `None` if it hardly ever turns."""
    is_valid_C = wheel.is_valid_C.copy()
    for start, stop in runs(is_valid_C & (wheel.step_m_C == 0.0)):
        is_long = (stop - start) * wheel.cell_s >= FROZEN_S
        if is_long and any(_moves(other, start, stop) for other in others):
            is_valid_C[start:stop] = False
    for other in others:
        is_both_C = wheel.is_valid_C & other.is_valid_C
        seen_m, rolled_m = other.step_m_C[is_both_C].sum(), wheel.step_m_C[is_both_C].sum()
        if seen_m > FAST_MPS * FROZEN_S and rolled_m < STUCK_SHARE * seen_m:
            logger.info("the odometer counted %.0f m of %.0f m that another sensor saw: not used", rolled_m, seen_m)
            return None
    return replace(wheel, is_valid_C=is_valid_C)


def check(wheel: Steps, others: Sequence[Steps]) -> Checked:
    """Compare the wheel with the other sensors."""
    checked = Checked(list(others), np.zeros(len(wheel.step_m_C), dtype=bool), wheel.is_valid_C)
    for _ in range(2):  # scales and noise are known better once slips are left out of them
        scaled = [to_scale(other, wheel, checked.is_slip_C) for other in checked.others]
        checked = _compared(wheel, scaled)
    return checked._replace(is_slip_C=checked.is_slip_C | (_jerks(wheel) & ~checked.is_checked_C))


def to_scale(other: Steps, leader: Steps, is_slip_C: np.ndarray) -> Steps:
    """Bring a sensor to the scale of the leading one, and measure how much they wander apart."""
    is_both_C = leader.is_valid_C & other.is_valid_C & ~is_slip_C
    lead_m_B, seen_m_B = blocks(leader.step_m_C, other.step_m_C, is_both_C, num_cells(SCALE_S, leader.cell_s))
    is_fast_B = np.minimum(lead_m_B, seen_m_B) > FAST_MPS * SCALE_S
    scale = np.median(lead_m_B[is_fast_B] / seen_m_B[is_fast_B]) if is_fast_B.sum() >= MIN_FAST_BLOCKS else 1.0
    length = num_cells(max(NOISE_S, 2.0 * other.period_s), leader.cell_s)
    lead_m_B, seen_m_B = blocks(leader.step_m_C, scale * other.step_m_C, is_both_C, length)
    apart_m_B = (lead_m_B - seen_m_B)[lead_m_B > 0.5 * length * leader.cell_s]
    noise = other.noise
    if len(apart_m_B) >= MIN_MOVING_BLOCKS:
        spread_m = 1.48 * np.median(np.abs(apart_m_B - np.median(apart_m_B)))
        noise = max(float(spread_m / np.sqrt(length * leader.cell_s)), MIN_NOISE)
    return replace(other, step_m_C=scale * other.step_m_C, noise=noise)


def slips(is_slip_C: np.ndarray, excess_m_C: np.ndarray, t_ns_E: np.ndarray) -> tuple[Slip, ...]:
    """List the slips that show in the excess of the wheel's distance over the train's."""
    cell_s = float(t_ns_E[1] - t_ns_E[0]) * 1e-9
    length, join = num_cells(SHOWS_S, cell_s), np.ones(num_cells(JOIN_S, cell_s), dtype=bool)
    slip_m_C = np.where(is_slip_C, excess_m_C, 0.0)
    found = []
    for sense in (1.0, -1.0):
        shows_C = is_slip_C & (sense * sums(slip_m_C, length) > SHOWS_MPS * length * cell_s)
        for start, stop in runs(ndimage.binary_closing(shows_C, join)):
            excess_m = float(slip_m_C[max(start - length, 0) : stop + length].sum())
            if sense * excess_m > MIN_EXCESS_M:
                found.append(Slip(start_ns=int(t_ns_E[start]), stop_ns=int(t_ns_E[stop]), excess_m=excess_m))
    return tuple(sorted(found, key=lambda slip: slip.start_ns))


def _moves(steps: Steps, start: int, stop: int) -> bool:
    """Tell whether a sensor saw the train move in the cells `[start, stop)`, on average."""
    is_valid_C = steps.is_valid_C[start:stop]
    seen_s = is_valid_C.sum() * steps.cell_s
    return bool(seen_s > FROZEN_S / 2 and steps.step_m_C[start:stop][is_valid_C].sum() > FAST_MPS * seen_s)


def _compared(wheel: Steps, others: Sequence[Steps]) -> Checked:
    """Compare the wheel with sensors of its scale; the steadiest that looks has the word."""
    is_slip_C, is_checked_C = np.zeros((2, len(wheel.step_m_C)), dtype=bool)
    believed = []
    for other in sorted(others, key=lambda other: other.noise):
        is_apart_C, is_valid_C = _apart(wheel, other), other.is_valid_C.copy()
        for start, stop in runs(is_apart_C):
            if any(_contradicts(wheel, other, third, start, stop) for third in others if third is not other):
                is_apart_C[start:stop] = is_valid_C[start:stop] = False
        is_slip_C |= is_apart_C & ~is_checked_C
        is_checked_C |= wheel.is_valid_C & is_valid_C
        believed.append(replace(other, is_valid_C=is_valid_C))
    return Checked(believed, is_slip_C, is_checked_C)


def _apart(wheel: Steps, other: Steps) -> np.ndarray:
    """Cells in which wheel and another sensor differ by more than their noise, over any of several windows."""
    is_both_C = wheel.is_valid_C & other.is_valid_C
    excess_m_C = np.where(is_both_C, wheel.step_m_C - other.step_m_C, 0.0)
    is_apart_C, is_fading_C = np.zeros((2, len(is_both_C)), dtype=bool)
    for window_s in WINDOWS_S:
        length = num_cells(window_s * max(1.0, other.period_s / WINDOWS_S[0]), wheel.cell_s)
        span_s = length * wheel.cell_s
        error_m = other.noise * np.sqrt(span_s)
        excess_m_W = np.abs(sums(excess_m_C, length))
        is_whole_W = sums(is_both_C.astype(np.float64), length) > length - 0.5
        least_m_W = np.maximum(SLIP_MIN_MPS * span_s, SLIP_SHARE * sums(wheel.step_m_C, length))
        is_hit_W = is_whole_W & (excess_m_W > np.maximum(least_m_W, SLIP_SIGMAS * error_m))
        is_apart_C |= ndimage.maximum_filter1d(is_hit_W, length)
        is_fading_C |= is_whole_W & (excess_m_W > np.maximum(least_m_W / 2, FADING_SIGMAS * error_m))
    return np.asarray(ndimage.binary_propagation(is_apart_C, mask=is_apart_C | is_fading_C) & is_both_C)


def _contradicts(wheel: Steps, other: Steps, third: Steps, start: int, stop: int) -> bool:
    """Tell whether a third sensor sides with the wheel against the other one in the cells `[start, stop)`."""
    if not third.is_valid_C[start:stop].all():
        return False
    rolled_m, other_m, third_m = (steps.step_m_C[start:stop].sum() for steps in (wheel, other, third))
    error_m = np.hypot(other.noise, third.noise) * np.sqrt((stop - start) * wheel.cell_s)
    return bool(
        abs(other_m - third_m) > SLIP_SIGMAS * error_m and abs(rolled_m - third_m) < abs(rolled_m - other_m) / 2
    )


def _jerks(wheel: Steps) -> np.ndarray:
    """Cells in which the wheel changes its speed as no train can, those between two such changes, and those nearby."""
    half = num_cells(JERK_S, wheel.cell_s)
    half_s = half * wheel.cell_s
    speed_mps_C = sums(wheel.step_m_C, half) / half_s
    change_mps_C = np.zeros(len(speed_mps_C))
    change_mps_C[half:-half] = speed_mps_C[2 * half :] - speed_mps_C[: -2 * half]
    is_whole_C = sums(wheel.is_valid_C.astype(np.float64), 4 * half + 1) > 4 * half + 0.5
    is_jerk_C = is_whole_C & (np.abs(change_mps_C) > ADHESION_MPS2 * 2.0 * half_s)
    apart = num_cells(JERK_APART_S, wheel.cell_s)
    padded_C = np.pad(is_jerk_C, apart)
    is_between_C = ndimage.minimum_filter1d(ndimage.maximum_filter1d(padded_C, apart), apart)[apart:-apart]
    return widened(is_between_C | is_jerk_C, JERK_PAD_S, wheel.cell_s)
