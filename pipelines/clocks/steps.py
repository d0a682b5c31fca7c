"""Where a clock was set, as its exchanges show it.

Two exchanges that no drift can reconcile prove a step between them; smaller ones show by the jump that the smooth drift
would need. All steps are judged together: each must be worth its place beside the others.

Shape suffix: X = measurements, oldest first.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.track import SET_SIGMA_NS, Track
from pipelines.compiled import compiled

MIN_NS = 2e6
"""Smaller jumps are left to the drift."""

MIN_SIGMAS = 5.0
MIN_MEASUREMENTS = 2
"""A clock that is set keeps its new time for at least so many measurements."""

SHARING = 24
"""Measurements on each side of a step whose errors may all be of one sign."""

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
        jumps = _jumps(track, wander_ppb, starts)
        gain_X = np.where(jumps.sigmas_X >= MIN_SIGMAS, jumps.gain_X, 0.0)
        if not gain_X.any():
            break
        starts = _moved(track, wander_ppb, sorted([*starts, int(np.argmax(gain_X))]))
    return _worth_it(track, wander_ppb, starts)


def score(track: Track, wander_ppb: float, starts: list[int]) -> float:
    """How likely the measurements are, less what each step costs; compares noise and steps on the same measurements."""
    likelihood = track.smoothed(wander_ppb, starts).log_likelihood
    # A level that starts anew is not predicted, so its measurement must not count as badly predicted either.
    unpredicted = np.log(SET_SIGMA_NS) - np.log(track.sigma_ns_X[starts])
    cost = MIN_SIGMAS**2 / 2 + np.log(len(track.level_ns_X))  # of its size, and of its place
    return float(likelihood + unpredicted.sum() - len(starts) * cost)


def plausible_starts(track: Track, wander_ppb: float, starts: list[int]) -> list[tuple[int, int]]:
    """First and last position at which each step would explain the measurements about as well."""
    ranges = []
    for i, start in enumerate(starts):
        gain_X = _jumps(track, wander_ppb, starts[:i] + starts[i + 1 :]).gain_X
        is_worse_X = gain_X < gain_X[start] - PLAUSIBLE_LOSS
        first = start - int(np.argmax(is_worse_X[start::-1])) + 1 if is_worse_X[:start].any() else 1
        last = start + int(np.argmax(is_worse_X[start:])) - 1 if is_worse_X[start:].any() else len(gain_X) - 1
        ranges.append((max(first, start - NEAR), min(last, start + NEAR)))
    return ranges


class _Jumps(NamedTuple):
    """Jumps that the drift would need just before each measurement."""

    gain_X: np.ndarray
    """How much likelier the measurements would be; the best place of a step has the largest."""

    sigmas_X: np.ndarray
    """Size of the jump in standard errors, with what does not average out; 0 for one that is left to the drift."""


def _jumps(track: Track, wander_ppb: float, starts: list[int]) -> _Jumps:
    drift = track.smoothed(wander_ppb, starts, gate_sigmas=np.inf)
    size_ns_X = np.abs(drift.shift_K)
    sigmas_X = size_ns_X / np.hypot(
        drift.shift_sigma_K, _shared_sigma_ns(track.since_s_X, track.sigma_ns_X, wander_ppb)
    )
    gain_X = (size_ns_X / drift.shift_sigma_K) ** 2 / 2
    gain_X[~_has_room(len(gain_X), starts)] = 0.0
    return _Jumps(gain_X, np.where(size_ns_X >= MIN_NS, sigmas_X, 0.0))


@compiled
def _shared_sigma_ns(since_s_X: np.ndarray, sigma_ns_X: np.ndarray, wander_ppb: float) -> np.ndarray:
    """What does not average out of the measurements just before and just after each: one way may be congested.

    Quiet measurements count most, unless the clock may have wandered since.
    """
    n = len(since_s_X)
    shared_ns_X = np.zeros(n)
    for i in range(n):
        for first, stop in ((max(i - SHARING, 0), i), (i, min(i + SHARING, n))):
            weights, weighted_ns = 0.0, 0.0
            for k in range(first, stop):
                weight = 1.0 / (sigma_ns_X[k] ** 2 + wander_ppb**2 * abs(since_s_X[k] - since_s_X[i]) ** 3 / 3.0)
                weights += weight
                weighted_ns += weight * sigma_ns_X[k]
            if weights > 0.0:
                shared_ns_X[i] += (weighted_ns / weights) ** 2
    return np.sqrt(shared_ns_X)


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
            _jumps(track, wander_ppb, starts[:i] + starts[i + 1 :]).sigmas_X[start] for i, start in enumerate(starts)
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
        low = max(start - NEAR, 0)
        gain_X = _jumps(track, wander_ppb, others).gain_X[low : start + NEAR + 1]
        starts = sorted([*others, low + int(np.argmax(gain_X))]) if gain_X.any() else starts
    return starts
