"""Where a clock was set, as its exchanges show it.

Two exchanges that no drift can reconcile prove a step between them; smaller ones show by the jump that the smooth drift
would need. All steps are judged together: each must be worth its place beside the others.

Shape suffix: X = measurements, oldest first.
"""

import numpy as np

from pipelines.clocks.drift import Drift
from pipelines.clocks.track import SET_SIGMA_NS, Track

MIN_NS = 2e6
"""Smaller jumps are left to the drift."""

MIN_SIGMAS = 5.0
MIN_MEASUREMENTS = 2
"""A clock that is set keeps its new time for at least so many measurements."""

MAX_STEPS = 64
PLAUSIBLE_LOSS = 6.0
"""Log-likelihood that another place of a step may cost and still be possible."""

NEAR = 4
"""A step is moved by up to so many measurements to where it explains most."""


def find_starts(track: Track, wander_ppb: float, starts: list[int]) -> list[int]:
    """Find the steps of a clock.

    Args:
        track: Measured offsets.
        wander_ppb: Random walk of the frequency.
        starts: Where to start the search: positions of measurements before which the clock seems to have been set.

    Returns:
        Positions of the first measurement after each step, ascending.
    """
    starts = _worth_it(track, wander_ppb, starts)
    while len(starts) < MAX_STEPS:
        drift = track.smoothed(wander_ppb, starts, gate_sigmas=np.inf)
        sigmas_X = _sigmas(drift)
        sigmas_X[~_has_room(len(sigmas_X), starts)] = 0.0
        best = int(np.argmax(sigmas_X))
        if sigmas_X[best] < MIN_SIGMAS:
            break
        starts = _moved(track, wander_ppb, sorted([*starts, best]))
    return _worth_it(track, wander_ppb, starts)


def score(track: Track, wander_ppb: float, starts: list[int]) -> float:
    """How likely the measurements are, less what each step costs; compares noise and steps on the same measurements."""
    likelihood = track.smoothed(wander_ppb, starts).log_likelihood
    # A level that starts anew is not predicted, so its measurement must not count as badly predicted either.
    unpredicted = np.log(SET_SIGMA_NS) - np.log(track.sigma_ns_X[starts])
    return float(likelihood + unpredicted.sum() - len(starts) * MIN_SIGMAS**2 / 2)


def plausible_starts(track: Track, wander_ppb: float, starts: list[int]) -> list[tuple[int, int]]:
    """First and last position at which each step would explain the measurements about as well."""
    ranges = []
    for i, start in enumerate(starts):
        others = starts[:i] + starts[i + 1 :]
        sigmas_X = _sigmas(track.smoothed(wander_ppb, others, gate_sigmas=np.inf))
        is_worse_X = sigmas_X**2 / 2 < sigmas_X[start] ** 2 / 2 - PLAUSIBLE_LOSS
        first = start - int(np.argmax(is_worse_X[start::-1])) + 1 if is_worse_X[:start].any() else 1
        last = start + int(np.argmax(is_worse_X[start:])) - 1 if is_worse_X[start:].any() else len(sigmas_X) - 1
        ranges.append((max(first, start - NEAR), min(last, start + NEAR)))
    return ranges


def _sigmas(drift: Drift) -> np.ndarray:
    """Size of the jump that the drift would need before each measurement, in standard errors; 0 for a small one."""
    return np.where(np.abs(drift.shift_K) >= MIN_NS, np.abs(drift.shift_K) / drift.shift_sigma_K, 0.0)


def _has_room(num_measurements: int, starts: list[int]) -> np.ndarray:
    """Where a further step would leave every stretch with enough measurements."""
    has_room_X = np.ones(num_measurements, dtype=bool)
    for start in [0, *starts, num_measurements]:
        has_room_X[max(start - MIN_MEASUREMENTS + 1, 0) : start + MIN_MEASUREMENTS] = False
    return has_room_X


def _worth_it(track: Track, wander_ppb: float, starts: list[int]) -> list[int]:
    """Drop the least significant step until all others are significant beside each other."""
    while starts:
        sigmas = [
            _sigmas(track.smoothed(wander_ppb, starts[:i] + starts[i + 1 :], gate_sigmas=np.inf))[start]
            for i, start in enumerate(starts)
        ]
        least = int(np.argmin(sigmas))
        if sigmas[least] >= MIN_SIGMAS:
            break
        starts = starts[:least] + starts[least + 1 :]
    return starts


def _moved(track: Track, wander_ppb: float, starts: list[int]) -> list[int]:
    """Move every step to where, beside the others, it is most significant."""
    for i, start in enumerate(starts):
        others = starts[:i] + starts[i + 1 :]
        sigmas_X = _sigmas(track.smoothed(wander_ppb, others, gate_sigmas=np.inf))
        sigmas_X[~_has_room(len(sigmas_X), others)] = 0.0
        low = max(start - NEAR, 0)
        best = low + int(np.argmax(sigmas_X[low : start + NEAR + 1]))
        starts = sorted([*others, best]) if sigmas_X[best] > 0.0 else starts
    return starts
