"""Distance as one sensor saw it, over equal cells of time, so that sensors of any rate can be compared.

Shape suffixes: E = edges of the cells, C = cells, B = blocks of several cells.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

from pipelines.position.distance import Distance

SENSE_S = 2.0
"""Time over which it is judged which way a counter counts, and whether a speed is one at all."""

STANDS_MPS = 0.15
"""Below this mean a speed is the noise of a sensor that cannot read less than zero."""

UNKNOWN_NOISE = 0.1
"""Random walk of a sensor against the leading one if they have too little in common to tell."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steps:
    """Distance of one sensor, cell by cell; the way back counts like the way there."""

    step_m_C: np.ndarray
    is_valid_C: np.ndarray
    """False where the sensor did not look all the time."""

    cell_s: float
    period_s: float
    """Usual time between two rows of the sensor."""

    noise: float = UNKNOWN_NOISE
    """Random walk against the leading sensor, in metres per square root of a second."""


def steps_of(distance: Distance, t_ns_E: np.ndarray) -> Steps:
    """Cut the distance of a sensor into cells."""
    step_m_C, cell_s = np.diff(distance.at(t_ns_E)), float(t_ns_E[1] - t_ns_E[0]) * 1e-9
    # A single step back is the noise of a standing train; that a train runs back shows in the sum.
    is_back_C = sums(step_m_C, num_cells(SENSE_S, cell_s)) < 0.0
    return Steps(
        step_m_C=np.where(is_back_C, -step_m_C, step_m_C),
        is_valid_C=distance.unseen_s(t_ns_E[:-1], t_ns_E[1:]) == 0.0,
        cell_s=cell_s,
        period_s=float(np.median(np.diff(distance.t_ns_T))) * 1e-9,
    )


def steps_of_speed(speed: Distance, t_ns_E: np.ndarray) -> Steps:
    """Cut the distance of a speed sensor into cells, without what it creeps while the train stands."""
    steps = steps_of(speed, t_ns_E)
    length = num_cells(SENSE_S, steps.cell_s)
    stands_C = sums(steps.step_m_C, length) < STANDS_MPS * length * steps.cell_s
    return replace(steps, step_m_C=np.where(stands_C, 0.0, steps.step_m_C))


def num_cells(span_s: float, cell_s: float) -> int:
    """How many cells make up a time; at least one."""
    return max(1, round(span_s / cell_s))


def sums(x_C: np.ndarray, length: int) -> np.ndarray:
    """Sums over windows of `length` cells around each cell; what lies beyond the ends is zero.

    Example:
        >>> sums(np.array([1.0, 2.0, 4.0, 8.0]), 3).tolist()
        [3.0, 7.0, 14.0, 12.0]
    """
    return np.asarray(length * ndimage.uniform_filter1d(x_C, length, mode="constant"))


def blocks(first_C: np.ndarray, second_C: np.ndarray, is_used_C: np.ndarray, length: int) -> tuple[np.ndarray, ...]:
    """Sums of two quantities over blocks of `length` cells, of which all are used.

    Example:
        >>> is_used = np.array([True, True, False, True, True])
        >>> blocks(np.arange(5.0), np.ones(5), is_used, 2)
        (array([1.]), array([2.]))
    """
    stop = len(is_used_C) // length * length
    is_whole_B = is_used_C[:stop].reshape(-1, length).all(axis=1)
    return tuple(x_C[:stop].reshape(-1, length).sum(axis=1)[is_whole_B] for x_C in (first_C, second_C))


def widened(mask_C: np.ndarray, pad_s: float, cell_s: float) -> np.ndarray:
    """True also where a true cell is less than `pad_s` away."""
    return np.asarray(ndimage.maximum_filter1d(mask_C, 2 * round(pad_s / cell_s) + 1))


def runs(mask_C: np.ndarray) -> list[tuple[int, int]]:
    """First cell and the one after the last of every run of true cells.

    Example:
        >>> runs(np.array([True, False, True, True]))
        [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask_C, [False]])))
    return [(int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
