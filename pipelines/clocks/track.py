"""Measured offsets of one clock over true time, and the smooth drift through them.

A clock's frequency walks at random, so its offset is smoothed as a level whose slope wanders. Where the clock was set,
the level starts anew and the slope goes on.

Shape suffixes: X = measurements, oldest first, K = knots: measurements and instants that are only asked about.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.drift import GATE_SIGMAS, Drift, smooth_drift

SLOPE_PRIOR_PPB = 5e6
"""Clocks run up to a few parts per thousand wrong: real train nodes were 3.3 off."""

SET_SIGMA_NS = 1e12
"""How far a clock may be set: anywhere."""


class Track(NamedTuple):
    """Measured offsets of one clock."""

    since_s_X: np.ndarray
    """True time since the first measurement."""

    level_ns_X: np.ndarray
    """Offset from the clock to UTC, relative to some line; NaN where it is only asked for."""

    sigma_ns_X: np.ndarray
    """Standard error of the measured offset."""

    def smoothed(self, wander_ppb: float, starts: list[int], *, gate_sigmas: float = GATE_SIGMAS) -> Drift:
        """Estimate the offset at every measurement.

        Args:
            wander_ppb: Random walk of the frequency, in ppb per square root of a second.
            starts: Positions of the first measurement after each time the clock was set.
            gate_sigmas: Measurements further than this from the prediction lose weight.
        """
        step_s_X = np.diff(self.since_s_X, prepend=self.since_s_X[0])
        slope_noise_X = wander_ppb**2 * step_s_X
        level_noise_X = slope_noise_X * step_s_X**2 / 3
        level_noise_X[starts] += SET_SIGMA_NS**2
        return smooth_drift(
            step_s_X, self.level_ns_X, self.sigma_ns_X, level_noise_X, slope_noise_X, SLOPE_PRIOR_PPB, gate_sigmas
        )
