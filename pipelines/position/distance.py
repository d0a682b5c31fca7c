"""Distance as one sensor saw it: pulses of a wheel counted, readings of a speed sensor integrated.

Shape suffixes: T = rows of the sensor by instant, I = intervals between neighbouring rows, U = those of them in which
the counter may have overflowed unseen, N = intervals asked about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

from pipelines.align import Track

MAX_GAP_PERIODS = 3.5
"""What happened between neighbouring rows further apart than this is unknown."""

SPIKE_MPS = 3.0
"""A single reading this far from the median of five is no speed of a train."""

MAX_SPEED_MPS = 120.0
MAX_MEAN_ACCELERATION_MPS2 = 0.5
"""How fast a train changes its speed, at most, averaged over the half minute and more in which nobody looks."""

OTHERS_ERROR = 0.03
"""Relative error of another sensor's distance against the wheel's, at most."""

STAMP_ERROR_M = 1.0
"""Pulses of neighbouring rows are not counted at quite the stamped instants."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """What the manifest says of the wheel that carries the odometer."""

    nominal_diameter_m: float
    pulses_per_rev: float
    counter_bits: int
    """The counter wraps at two to this power."""

    @property
    def pulse_m(self) -> float:
        """Distance between two pulses at the nominal diameter."""
        return float(np.pi * self.nominal_diameter_m / self.pulses_per_rev)

    @property
    def modulus_m(self) -> float:
        """Distance in which the counter comes round once."""
        return 2.0**self.counter_bits * self.pulse_m


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Distance:
    """Distance since the first row."""

    t_ns_T: np.ndarray
    distance_m_T: np.ndarray
    is_counted_I: np.ndarray
    """False where the distance between two rows is a guess."""

    wheel: Wheel | None = None
    """The wheel whose pulses were counted."""

    @property
    def is_gap_I(self) -> np.ndarray:
        """True where nobody looked for so long that the distance may have grown unevenly, even if it is counted."""
        span_ns_I = np.diff(self.t_ns_T)
        return np.asarray(~self.is_counted_I | (span_ns_I > MAX_GAP_PERIODS * np.median(span_ns_I)))

    def at(self, t_ns_N: np.ndarray) -> np.ndarray:
        """Distance at other instants: linear between rows, constant beyond them."""
        since_s_T = (self.t_ns_T - self.t_ns_T[0]) * 1e-9
        return np.asarray(np.interp((t_ns_N - self.t_ns_T[0]) * 1e-9, since_s_T, self.distance_m_T))

    def is_counted(self, start_ns: int, stop_ns: int) -> bool:
        """Tell whether the distance from one instant to another is right, whatever happened in between."""
        first, last = np.searchsorted(self.t_ns_T, [start_ns, stop_ns], side="left")
        return bool(self.is_counted_I[max(first - 1, 0) : last].all())

    def unseen_s(self, start_ns_N: np.ndarray, stop_ns_N: np.ndarray) -> np.ndarray:
        """For how long of each interval nobody looked; a gap counts as a whole, even if it is only touched.

        Example:
            >>> rows_ns = np.array([0, 1, 2, 9, 10]) * 10**9
            >>> seen = Distance(t_ns_T=rows_ns, distance_m_T=np.zeros(5), is_counted_I=np.ones(4, dtype=bool))
            >>> seen.unseen_s(np.array([0, 0, 9]) * 10**9, np.array([1, 5, 12]) * 10**9).tolist()
            [0.0, 7.0, 2.0]
        """
        last = len(self.t_ns_T) - 1
        unseen_s_T = np.concatenate([[0.0], np.cumsum(np.where(self.is_gap_I, np.diff(self.t_ns_T) * 1e-9, 0.0))])
        before_N = np.clip(np.searchsorted(self.t_ns_T, start_ns_N, side="right") - 1, 0, last)
        after_N = np.clip(np.searchsorted(self.t_ns_T, stop_ns_N, side="left"), 0, last)
        outside_ns_N = np.maximum(self.t_ns_T[0] - start_ns_N, 0) + np.maximum(stop_ns_N - self.t_ns_T[-1], 0)
        return np.asarray(np.maximum(unseen_s_T[after_N] - unseen_s_T[before_N], 0.0) + outside_ns_N * 1e-9)


def wheel_of(meta: dict[str, Any]) -> Wheel | None:
    """Take the wheel from a recording's `meta`; `None` if it says too little to turn pulses into metres."""
    if not {"wheel_nominal_diameter_m", "pulses_per_rev", "counter_bits"} <= meta.keys():
        return None
    return Wheel(
        nominal_diameter_m=float(meta["wheel_nominal_diameter_m"]),
        pulses_per_rev=float(meta["pulses_per_rev"]),
        counter_bits=int(meta["counter_bits"]),
    )


def rolled(odometer: Track, wheel: Wheel, others: Sequence[Distance]) -> Distance | None:
    """Turn a pulse counter into distance at the nominal diameter; `None` if it has fewer than two readings.

    Between two rows the counter may overflow more than once unseen. Where it could, the distance that another sensor
    saw says how often; without one the wheel's own speed before and after, if the interval is short enough. Where
    nothing tells, or the counter was reset, the distance is not counted.
    """
    t_ns_T, pulses_T = _present(odometer, "pulses")
    if len(t_ns_T) < 2:
        return None
    span_s_I = np.diff(t_ns_T) * 1e-9
    rolled_m_I = np.diff(pulses_T) * wheel.pulse_m
    rolled_m_I -= np.round(rolled_m_I / wheel.modulus_m) * wheel.modulus_m  # right unless half a round passed unseen
    is_unclear_I = span_s_I * MAX_SPEED_MPS > wheel.modulus_m / 2
    error_m_I = np.zeros(len(span_s_I))
    if is_unclear_I.any():
        expected_m_U, error_m_I[is_unclear_I] = _expected(t_ns_T, rolled_m_I, is_unclear_I, others)
        missed_U = np.round((expected_m_U - rolled_m_I[is_unclear_I]) / wheel.modulus_m)
        rolled_m_I[is_unclear_I] += missed_U * wheel.modulus_m
    is_possible_I = np.abs(rolled_m_I) <= MAX_SPEED_MPS * span_s_I + STAMP_ERROR_M
    is_counted_I = is_possible_I & (error_m_I < wheel.modulus_m / 4)
    return Distance(
        t_ns_T=t_ns_T,
        distance_m_T=np.concatenate([[0.0], np.cumsum(np.where(is_counted_I, rolled_m_I, 0.0))]),
        is_counted_I=is_counted_I,
        wheel=wheel,
    )


def travelled(track: Track) -> Distance | None:
    """Integrate the channel `speed_mps` of a sensor; `None` if it has fewer than two readings."""
    t_ns_T, speed_mps_T = _present(track, "speed_mps")
    if len(t_ns_T) < 2:
        return None
    span_s_I = np.diff(t_ns_T) * 1e-9
    median_mps_T = ndimage.median_filter(speed_mps_T, size=5, mode="nearest")
    speed_mps_T = np.where(np.abs(speed_mps_T - median_mps_T) > SPIKE_MPS, median_mps_T, speed_mps_T)
    return Distance(
        t_ns_T=t_ns_T,
        distance_m_T=np.concatenate([[0.0], np.cumsum((speed_mps_T[1:] + speed_mps_T[:-1]) / 2 * span_s_I)]),
        is_counted_I=span_s_I <= MAX_GAP_PERIODS * np.median(span_s_I),
    )


def _present(track: Track, channel: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a channel that have a reading."""
    is_present_T = ~np.isnan(track.values[channel])
    return track.t_ns_T[is_present_T], track.values[channel][is_present_T]


def _expected(
    t_ns_T: np.ndarray, rolled_m_I: np.ndarray, is_unclear_I: np.ndarray, others: Sequence[Distance]
) -> tuple[np.ndarray, np.ndarray]:
    """Distance to be expected in the unclear intervals, by whoever saw most of it, and its largest error, in metres."""
    start_ns_U, stop_ns_U = t_ns_T[:-1][is_unclear_I], t_ns_T[1:][is_unclear_I]
    expected_m_U = _expected_of_neighbours(t_ns_T, rolled_m_I, is_unclear_I)
    error_m_U = _unseen_error_m((stop_ns_U - start_ns_U) * 1e-9)
    for other in others:
        seen_m_U = other.at(stop_ns_U) - other.at(start_ns_U)
        seen_error_m_U = _unseen_error_m(other.unseen_s(start_ns_U, stop_ns_U)) + OTHERS_ERROR * seen_m_U
        expected_m_U = np.where(seen_error_m_U < error_m_U, seen_m_U, expected_m_U)
        error_m_U = np.minimum(error_m_U, seen_error_m_U)
    return expected_m_U, error_m_U


def _expected_of_neighbours(t_ns_T: np.ndarray, rolled_m_I: np.ndarray, is_unclear_I: np.ndarray) -> np.ndarray:
    """Distance in the unclear intervals if speed went straight from what it was before to what it was after."""
    clear = np.flatnonzero(~is_unclear_I & (np.diff(t_ns_T) > 0))
    unclear = np.flatnonzero(is_unclear_I)
    span_s_I = np.diff(t_ns_T) * 1e-9
    if not len(clear):
        return np.zeros(len(unclear))
    speed_mps = rolled_m_I[clear] / span_s_I[clear]
    after_U = np.searchsorted(clear, unclear)
    before_mps_U = speed_mps[np.maximum(after_U - 1, 0)]
    after_mps_U = speed_mps[np.minimum(after_U, len(clear) - 1)]
    return np.asarray((before_mps_U + after_mps_U) / 2 * span_s_I[unclear])


def _unseen_error_m(unseen_s: np.ndarray) -> np.ndarray:
    """How far from a straight course of the speed a train can get while nobody looks."""
    return MAX_MEAN_ACCELERATION_MPS2 * unseen_s**2 / 4
