"""Mark readings that cannot be true. Screening never changes a value; it says why to distrust it.

Missing readings (NaN) are never marked: they are missing, not wrong.

Shape suffix: T = samples of one channel, oldest first.
"""

from enum import StrEnum

import numpy as np

from pipelines.channels import Channel, Kind
from pipelines.compiled import compiled

FROZEN_S = 60.0
"""An analogue channel with noise does not repeat one value exactly for this long."""

FROZEN_ROWS = 50
"""Nor for fewer rows than this."""

SPIKE_RATE_HZ = (1.0, 50.0)
"""Slower channels change much between two readings; faster ones are vibration, where extremes are the signal."""

SPIKE_RANGE_SHARE = 0.25
"""A spike leaves both of its neighbours by more than this share of the channel's range."""


class Reason(StrEnum):
    """Why a reading is not believed; the first that applies counts."""

    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    SPIKE = "spike"
    FROZEN = "frozen"


def screen(x_T: np.ndarray, channel: Channel, *, rate_hz: float | None) -> dict[Reason, np.ndarray]:
    """Apply the checks that fit a channel; return disjoint masks, only those that mark anything.

    Args:
        x_T: Readings of `channel`; NaN where missing.
        channel: Its kind and the range in which a reading can be true.
        rate_hz: Nominal rate; `None` for a channel without one, which is not checked for spikes or freezing.
    """
    marks = {
        Reason.NOT_FINITE: np.isinf(x_T),
        Reason.OUT_OF_RANGE: out_of_range(x_T, low=channel.low, high=channel.high),
    }
    # A count or a ratio, unit "1", may well jump or repeat.
    if channel.kind is Kind.CONTINUOUS and channel.unit != "1" and rate_hz is not None:
        span = channel.high - channel.low
        if SPIKE_RATE_HZ[0] <= rate_hz <= SPIKE_RATE_HZ[1] and np.isfinite(span):
            can_be_true_T = ~(marks[Reason.NOT_FINITE] | marks[Reason.OUT_OF_RANGE])
            marks[Reason.SPIKE] = spike(np.where(can_be_true_T, x_T, np.nan), height=SPIKE_RANGE_SHARE * span)
        # At exactly zero many sensors rest: a standing train, an idle motor.
        marks[Reason.FROZEN] = frozen(x_T, run_length=max(FROZEN_ROWS, round(FROZEN_S * rate_hz))) & (x_T != 0.0)
    return _disjoint(marks)


def out_of_range(x_T: np.ndarray, *, low: float, high: float) -> np.ndarray:
    """Find readings outside `[low, high]`.

    Example:
        >>> out_of_range(np.array([-1.0, 0.0, 5.0, np.nan, 5.1]), low=0.0, high=5.0).tolist()
        [True, False, False, False, True]
    """
    return np.asarray((x_T < low) | (x_T > high))


def spike(x_T: np.ndarray, *, height: float) -> np.ndarray:
    """Find single readings, of finite ones and NaN, that leave both neighbours to the same side by more than `height`.

    Example:
        >>> spike(np.array([1.0, 1.0, 9.0, 1.0, 1.0, 9.0]), height=5.0).tolist()
        [False, False, True, False, False, False]
    """
    is_spike_T = np.zeros(len(x_T), dtype=bool)
    rise_T, fall_T = x_T[1:-1] - x_T[:-2], x_T[1:-1] - x_T[2:]
    is_spike_T[1:-1] = (np.minimum(np.abs(rise_T), np.abs(fall_T)) > height) & (rise_T * fall_T > 0)
    return is_spike_T


def frozen(x_T: np.ndarray, *, run_length: int) -> np.ndarray:
    """Find readings inside a run of at least `run_length` identical values.

    Args:
        x_T: Samples of one analogue channel, oldest first; NaN is never part of a run.
        run_length: Shortest run that counts as frozen, in samples; 2 or more.

    Returns:
        ``mask_T``, true where the reading is frozen.
    """
    return _in_long_runs(x_T, run_length)


@compiled
def _in_long_runs(x_T: np.ndarray, run_length: int) -> np.ndarray:
    mask_T = np.zeros(len(x_T), dtype=np.bool_)
    first = 0
    for i in range(1, len(x_T) + 1):
        if i < len(x_T) and x_T[i] == x_T[first]:
            continue
        if i - first >= run_length:
            mask_T[first:i] = True
        first = i
    return mask_T


def _disjoint(marks: dict[Reason, np.ndarray]) -> dict[Reason, np.ndarray]:
    """Leave each reading its first reason, and only reasons that occur."""
    kept: dict[Reason, np.ndarray] = {}
    for reason, mask_T in marks.items():
        if not mask_T.any():
            continue
        for earlier_T in kept.values():
            mask_T = mask_T & ~earlier_T
        if mask_T.any():
            kept[reason] = mask_T
    return kept
