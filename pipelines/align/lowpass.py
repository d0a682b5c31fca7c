"""Filter out what is too fast for the grid before the rate drops.

A sample every period shows anything faster than half that rate as something slow (aliasing). The filter is a
linear-phase FIR designed by `scipy.signal.firwin` and evaluated at the rows' own instants: late, irregular and missing
rows keep their place under it. It reaches back two periods. That is short: half the grid's rate is only 5 dB down, as
in a plain mean over the last period, but all beyond 1.3 times the grid's rate is 45 dB down, where the mean has 13 dB.
A longer filter would be steeper, and later. None of the weights is negative, so a value is a weighted mean of its rows
and never beyond them.

A symmetric filter describes the middle of its window, one period ago. With rows missing that moment shifts; it is the
weighted mean of the rows' instants, which is exact wherever the signal is straight.

Shape suffixes: T = rows of one sensor by instant, G = instants asked for, W = weights from the newest to the oldest.
"""

from functools import cache

import numpy as np
from scipy.signal import firwin

from pipelines.compiled import compiled

SPAN_PERIODS = 2
MIN_WEIGHT = 0.5
"""A value needs rows that carry this share of the weight of a window without a gap."""

_STEPS = 2_048
"""Weights a period: between two of them the nearest is taken."""


def low_passed(
    t_ns_T: np.ndarray, x_T: np.ndarray, at_ns_G: np.ndarray, *, period_ns: int, rows_per_period: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the filtered readings of the last two periods at each instant, and how old that value is.

    Args:
        t_ns_T: Instants of the rows, ascending.
        x_T: Readings; NaN is none.
        at_ns_G: Instants asked for, ascending.
        period_ns: Period of the grid; the filter cuts off at half its rate.
        rows_per_period: How many rows a period has when none is missing.

    Returns:
        `(x_G, age_s_G)`, float64 and float32, NaN where too few rows are there.
    """
    x_G, age_s_G = np.empty(len(at_ns_G)), np.empty(len(at_ns_G), dtype=np.float32)
    _low_passed(t_ns_T, x_T, at_ns_G, period_ns, _weights(), MIN_WEIGHT * rows_per_period, x_G, age_s_G)
    return x_G, age_s_G


@cache
def _weights() -> np.ndarray:
    """Weights of a window, scaled so that rows a period apart have a total weight of 1."""
    weight_W = firwin(SPAN_PERIODS * _STEPS + 1, 0.5, fs=_STEPS) * _STEPS
    return np.asarray(np.maximum(weight_W, 0.0))  # the outermost are zero but for rounding


@compiled
def _low_passed(
    t_ns_T: np.ndarray,
    x_T: np.ndarray,
    at_ns_G: np.ndarray,
    period_ns: int,
    weight_W: np.ndarray,
    min_weight: float,
    x_G: np.ndarray,
    age_s_G: np.ndarray,
) -> None:
    steps_per_ns = _STEPS / period_ns
    first = 0
    for g in range(len(at_ns_G)):
        while first < len(t_ns_T) and t_ns_T[first] <= at_ns_G[g] - SPAN_PERIODS * period_ns:
            first += 1
        total, total_weight, total_age_ns = 0.0, 0.0, 0.0
        i = first
        while i < len(t_ns_T) and t_ns_T[i] <= at_ns_G[g]:
            if not np.isnan(x_T[i]):
                age_ns = at_ns_G[g] - t_ns_T[i]
                weight = weight_W[int(age_ns * steps_per_ns + 0.5)]
                total += weight * x_T[i]
                total_weight += weight
                total_age_ns += weight * age_ns
            i += 1
        if total_weight >= min_weight:
            x_G[g], age_s_G[g] = total / total_weight, total_age_ns / total_weight * 1e-9
        else:
            x_G[g] = age_s_G[g] = np.nan
