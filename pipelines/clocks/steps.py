"""Where a clock was set, as its exchanges show it.

Two exchanges that no drift can reconcile prove a step between them; smaller ones show by the jump that the smooth drift
would need. All steps are judged together: each must be worth its place beside the others.

Shape suffix: X = measurements, oldest first.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.track import SET_SIGMA_NS, Track

MIN_NS = 2e6
"""Smaller jumps are left to the drift."""

MIN_SIGMAS = 5.0
MIN_MEASUREMENTS = 2
"""A clock that is set keeps its new time for at least so many measurements."""

SHARING = 8
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
    sigmas_X = size_ns_X / np.hypot(drift.shift_sigma_K, _shared_sigma_ns(track.sigma_ns_X))
    gain_X = (size_ns_X / drift.shift_sigma_K) ** 2 / 2
    gain_X[~_has_room(len(gain_X), starts)] = 0.0
    return _Jumps(gain_X, np.where(size_ns_X >= MIN_NS, sigmas_X, 0.0))


def _shared_sigma_ns(sigma_ns_X: np.ndarray) -> np.ndarray:
    """What does not average out of the measurements just before and just after each: one way may be congested."""
    weight_X = sigma_ns_X**-2.0
    summed, inverse = (np.concatenate([[0.0], np.cumsum(x)]) for x in (weight_X, weight_X * sigma_ns_X))
    at = np.arange(len(sigma_ns_X))
    sides = [(np.maximum(at - SHARING, 0), at), (at, np.minimum(at + SHARING, len(at)))]
    before_ns_X, after_ns_X = (
        (inverse[stop] - inverse[first]) / np.maximum(summed[stop] - summed[first], 1e-300) for first, stop in sides
    )
    return np.asarray(np.hypot(before_ns_X, after_ns_X))


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
            _significance(_jumps(track, wander_ppb, starts[:i] + starts[i + 1 :]), start)
            for i, start in enumerate(starts)
        ]
        least = int(np.argmin(sigmas))
        if sigmas[least] >= MIN_SIGMAS:
            break
        starts = starts[:least] + starts[least + 1 :]
    return starts


def _significance(jumps: _Jumps, start: int) -> float:
    """Standard errors of a step at its most telling place: just beside it the ways may be congested."""
    near = slice(max(start - NEAR, 0), start + NEAR + 1)
    tells_X = jumps.gain_X[near] >= jumps.gain_X[start] / 2
    return float(jumps.sigmas_X[near][tells_X].max())


def _moved(track: Track, wander_ppb: float, starts: list[int]) -> list[int]:
    """Move every step to where, beside the others, it is most significant."""
    for i, start in enumerate(starts):
        others = starts[:i] + starts[i + 1 :]
        low = max(start - NEAR, 0)
        gain_X = _jumps(track, wander_ppb, others).gain_X[low : start + NEAR + 1]
        starts = sorted([*others, low + int(np.argmax(gain_X))]) if gain_X.any() else starts
    return starts
