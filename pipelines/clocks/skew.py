"""How far two sensors are apart in time, told by the speed that both of them see.

The clock maps are fitted to measurements of each clock alone. This looks at the result from outside: if GPS time was
taken for UTC, or a latency was not subtracted, the two speeds tell.

Shape suffixes: T = rows of a sensor, R = rows of the reference.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.signal_sync import Reference, fit_signal

MAX_ROWS = 4_000
"""More rows than these make the answer no better where it is needed."""


class Skew(NamedTuple):
    """Time offset between two sensors."""

    skew_ns: int
    """How much later the sensor's stamps are than those of the reference."""

    sigma_ns: float


def skew_of(t_ns_T: np.ndarray, speed_mps_T: np.ndarray, t_ns_R: np.ndarray, distance_m_R: np.ndarray) -> Skew | None:
    """Measure the time offset of a sensor against a reference, at the middle of its rows.

    Args:
        t_ns_T: UTC of the sensor's rows, ascending.
        speed_mps_T: Speed that it reads; NaN where missing.
        t_ns_R: UTC of the reference's rows, ascending.
        distance_m_R: Distance that the reference measured since its first row, in any scale near one.

    Returns:
        The offset; `None` where the speeds do not tell: too few rows, a train that stands or rolls evenly, two trains.
    """
    present = np.flatnonzero(np.isfinite(speed_mps_T))
    some = present[:: max(1, len(present) // MAX_ROWS)]
    fitted = fit_signal("", t_ns_T[some], speed_mps_T[some], Reference.of_rows(t_ns_R, distance_m_R))
    if fitted is None:
        return None
    middle_ns = t_ns_T[some[len(some) // 2]]
    reference_ns, sigma_ns = fitted.to_utc(np.array([middle_ns]))
    return Skew(int(middle_ns - reference_ns[0]), float(sigma_ns[0]))
