"""The map from a device clock to UTC, with its uncertainty.

A map is a chain of segments; a segment ends where the clock was set. Within a segment the offset is linear between
knots. Offsets are int64 nanoseconds, and only differences of device times are ever turned into floats.

Shape suffixes: K = knots of a segment, T = rows in stored order.
"""

import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pipelines.compiled import compiled
from pipelines.errors import RecordingError

VERSION = "2"
"""Changes when the same measurements would give another map."""

FORMAT = "trackside-clock-map/1"
"""Changes when a saved map would be read differently."""

UNCHECKED_SIGMA_NS = 2e9
"""Uncertainty of a clock that nothing ties to UTC, although it counts from 1970."""

BEYOND_NS = 86_400 * 10**9
"""How far a map reaches beyond its first and last knot."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Segment:
    """A stretch in which the clock ran freely."""

    dev_ns_K: np.ndarray
    offset_ns_K: np.ndarray
    """What has to be added to device time to get UTC; linear between knots."""

    sigma_ns_K: np.ndarray
    """Standard error of the offset, apart from what is the same for all exchanges: see `Residuals.floor_ns`."""

    measured_ns: tuple[int, int]
    """Device time of the first and last measurement within, or of when the clock was set if there is none."""

    def to_utc(self, dev_ns_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Map device times; return `(utc_ns_T, sigma_ns_T)`."""
        utc_ns_T, sigma_ns_T = _interpolate(dev_ns_T, self.dev_ns_K, self.offset_ns_K, self.sigma_ns_K)
        return utc_ns_T, sigma_ns_T

    def to_dev(self, utc_ns_T: np.ndarray) -> np.ndarray:
        """What the clock showed at instants of UTC."""
        utc_ns_K = self.dev_ns_K + self.offset_ns_K
        dev_ns_T, _ = _interpolate(utc_ns_T, utc_ns_K, -self.offset_ns_K, self.sigma_ns_K)
        return np.asarray(dev_ns_T)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The clock was set between two segments."""

    before_ns: int
    """Last device time known to be in the old segment."""

    after_ns: int
    """First device time known to be in the new segment; earlier than `before_ns` if the clock was set back."""

    jump_ns: int
    """How much the device's time jumped."""

    @property
    def took_ns(self) -> int:
        """How much true time may have gone by between `before_ns` and `after_ns`."""
        return self.after_ns - self.before_ns - self.jump_ns


@dataclass(frozen=True, kw_only=True, slots=True)
class Residuals:
    """How well a map agrees with what it was fitted to."""

    num_exchanges: int = 0
    num_rejected: int = 0
    """Exchanges that were not used: server not synchronised, or outvoted."""

    servers_rejected: tuple[str, ...] = ()
    """Servers of which more than 10 % of the exchanges were outvoted."""

    p99_ns: float = float("nan")
    """99th percentile of what is left of the better half of the measurements (shortest way, or smallest sigma)."""

    floor_ns: float = float("nan")
    """Half the shortest way there and back: a constant asymmetry up to this cannot be seen."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ClockMap:
    """Device time to UTC."""

    clock_id: str
    method: str
    """`exchanges`, `pairs`, `gps`, `signal`, `unchecked` (believed), or `own` (the device's time as it is)."""

    segments: tuple[Segment, ...]
    steps: tuple[Step, ...] = ()
    residuals: Residuals = Residuals()
    version: str = VERSION

    def to_utc(self, dev_ns_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Map device times in stored order; return `(utc_ns_T, sigma_ns_T)`."""
        if not self.steps:
            return self.segments[0].to_utc(dev_ns_T)
        segment_T = np.zeros(len(dev_ns_T), dtype=np.int64)
        for step in self.steps:
            segment_T += _is_after(dev_ns_T, step)
        utc_ns_T, sigma_ns_T = np.empty(len(dev_ns_T), dtype=np.int64), np.empty(len(dev_ns_T))
        for number, segment in enumerate(self.segments):
            of_segment = np.flatnonzero(segment_T == number)
            utc_ns_T[of_segment], sigma_ns_T[of_segment] = segment.to_utc(dev_ns_T[of_segment])
        return utc_ns_T, sigma_ns_T

    def is_beside_step(self, dev_ns_T: np.ndarray) -> np.ndarray:
        """Tell which rows, in stored order, may belong to either side of a step."""
        is_beside_T = np.zeros(len(dev_ns_T), dtype=bool)
        for step in self.steps:
            is_beside_T |= _is_ambiguous(dev_ns_T, step)
        return is_beside_T

    def to_json(self) -> str:
        """The map as text; `from_json` returns the same map, to the nanosecond."""
        segments = [
            {
                "dev_ns": segment.dev_ns_K.tolist(),
                "offset_ns": segment.offset_ns_K.tolist(),
                "sigma_ns": segment.sigma_ns_K.tolist(),
                "measured_ns": list(segment.measured_ns),
            }
            for segment in self.segments
        ]
        return json.dumps(
            {
                "format": FORMAT,
                "version": self.version,
                "clock_id": self.clock_id,
                "method": self.method,
                "segments": segments,
                "steps": [asdict(step) for step in self.steps],
                "residuals": {
                    name: None if value != value else value for name, value in asdict(self.residuals).items()
                },
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "ClockMap":
        """Read a saved map; raise `RecordingError` if it is none, or one of another format."""
        try:
            saved = json.loads(text)
            if saved["format"] != FORMAT:
                raise RecordingError(f"saved clock map has format {saved['format']!r}; {FORMAT!r} can be read")
            return cls(
                clock_id=saved["clock_id"],
                method=saved["method"],
                segments=tuple(_read_segment(segment) for segment in saved["segments"]),
                steps=tuple(Step(**step) for step in saved["steps"]),
                residuals=_read_residuals(saved["residuals"]),
                version=saved["version"],
            )
        except (ValueError, KeyError, TypeError) as err:
            raise RecordingError(f"no saved clock map: {type(err).__name__}: {err}") from err

    def facts(self) -> dict[str, Any]:
        """What a person or a gate wants to know of the map; for JSON, so what is not known is null."""
        return {
            "method": self.method,
            "version": self.version,
            "offset_ms": rounded(self.offset_ns * 1e-6),
            "drift_ppm": rounded(self.drift_ppm),
            "residual_p99_ms": rounded(self.residuals.p99_ns * 1e-6),
            "floor_ms": rounded(self.residuals.floor_ns * 1e-6),
            "num_exchanges": self.residuals.num_exchanges,
            "num_rejected": self.residuals.num_rejected,
            "servers_rejected": list(self.residuals.servers_rejected),
            "steps_ms": [rounded(step.jump_ns * 1e-6) for step in self.steps],
            "steps_t_utc_ns": self.set_ns.tolist(),
        }

    @property
    def set_ns(self) -> np.ndarray:
        """Instants at which the clock was set, nanoseconds UTC."""
        ends = [
            (int(old.to_utc(np.array([step.before_ns]))[0][0]), int(new.to_utc(np.array([step.after_ns]))[0][0]))
            for step, (old, new) in zip(self.steps, pairwise(self.segments), strict=True)
        ]
        return np.array([low_ns + (high_ns - low_ns) // 2 for low_ns, high_ns in ends], dtype=np.int64)

    @property
    def offset_ns(self) -> int:
        """What had to be added to the clock at its first measurement."""
        first = self.segments[0]
        dev_ns = first.measured_ns[0]
        return int(first.to_utc(np.array([dev_ns]))[0][0]) - dev_ns

    @property
    def drift_ppm(self) -> float:
        """Mean rate at which UTC gains on the device between first and last measurement; NaN for a single one."""
        ends = [(s.to_utc(np.array(s.measured_ns))[0], s.measured_ns) for s in self.segments]
        dev_ns = sum(last - first for _, (first, last) in ends)
        utc_ns = sum(int(last - first) for (first, last), _ in ends)
        return (utc_ns - dev_ns) / dev_ns * 1e6 if dev_ns else float("nan")


def rounded(value: float) -> float | None:
    """Six decimals; null where there is no number, which JSON has none for."""
    return round(value, 6) if np.isfinite(value) else None


def identity_map(clock_id: str, *, method: str, sigma_ns: float) -> ClockMap:
    """Return the map of a clock whose time is taken as UTC."""
    ends = np.array([-BEYOND_NS, BEYOND_NS])
    segment = Segment(
        dev_ns_K=ends, offset_ns_K=np.zeros(2, dtype=np.int64), sigma_ns_K=np.full(2, sigma_ns), measured_ns=(0, 0)
    )
    return ClockMap(clock_id=clock_id, method=method, segments=(segment,))


def _read_segment(saved: dict[str, Any]) -> Segment:
    first_ns, last_ns = saved["measured_ns"]
    return Segment(
        dev_ns_K=np.array(saved["dev_ns"], dtype=np.int64),
        offset_ns_K=np.array(saved["offset_ns"], dtype=np.int64),
        sigma_ns_K=np.array(saved["sigma_ns"], dtype=np.float64),
        measured_ns=(int(first_ns), int(last_ns)),
    )


def _read_residuals(saved: dict[str, Any]) -> Residuals:
    known = {name: float("nan") if value is None else value for name, value in saved.items()}
    return Residuals(**known | {"servers_rejected": tuple(saved["servers_rejected"])})


def _is_after(dev_ns_T: np.ndarray, step: Step) -> np.ndarray:
    """Tell which rows were stamped after the clock was set.

    A clock that was set back showed some times twice, so there the order of the rows has to tell, if it can.
    """
    is_after_T: np.ndarray = 2 * (dev_ns_T - step.before_ns) > step.after_ns - step.before_ns
    twice, switch = _twice(dev_ns_T, step)
    if switch:
        is_after_T[twice[:switch]], is_after_T[twice[switch:]] = False, True
    return is_after_T


def _is_ambiguous(dev_ns_T: np.ndarray, step: Step) -> np.ndarray:
    """Tell which rows may have been stamped before the clock was set or after it."""
    if step.jump_ns > 0:
        since_ns_T = dev_ns_T - step.before_ns
        return np.asarray((since_ns_T > step.jump_ns) & (since_ns_T < step.took_ns))
    is_ambiguous_T = np.zeros(len(dev_ns_T), dtype=bool)
    twice, switch = _twice(dev_ns_T, step)
    is_ambiguous_T[twice] = not switch
    return is_ambiguous_T


def _twice(dev_ns_T: np.ndarray, step: Step) -> tuple[np.ndarray, int]:
    """Rows with times that a clock which was set back may have shown twice, and the first of them after the step.

    It is 0 if the order of the rows does not tell.
    """
    since_ns_T = dev_ns_T - step.before_ns
    twice = np.flatnonzero((since_ns_T > step.jump_ns) & (since_ns_T < step.took_ns)) if step.jump_ns < 0 else ()
    drops = np.diff(dev_ns_T[twice]) if len(twice) > 1 else np.zeros(1)
    return np.asarray(twice, dtype=np.int64), int(np.argmin(drops)) + 1 if drops.min() < step.jump_ns / 2 else 0


@compiled
def _interpolate(
    dev_ns_T: np.ndarray, dev_ns_K: np.ndarray, offset_ns_K: np.ndarray, sigma_ns_K: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Apply a segment to rows in any order; fast where they are nearly sorted."""
    utc_ns_T = np.empty(len(dev_ns_T), dtype=np.int64)
    sigma_ns_T = np.empty(len(dev_ns_T))
    last = len(dev_ns_K) - 2
    k = 0
    for i in range(len(dev_ns_T)):
        dev_ns = dev_ns_T[i]
        while k < last and dev_ns >= dev_ns_K[k + 1]:
            k += 1
        while k > 0 and dev_ns < dev_ns_K[k]:
            k -= 1
        width_ns = dev_ns_K[k + 1] - dev_ns_K[k]
        share = (dev_ns - dev_ns_K[k]) / width_ns if width_ns > 0 else 0.0
        gained_ns = np.rint(share * (offset_ns_K[k + 1] - offset_ns_K[k]))
        utc_ns_T[i] = dev_ns + offset_ns_K[k] + np.int64(gained_ns)
        sigma_ns_T[i] = sigma_ns_K[k] + share * (sigma_ns_K[k + 1] - sigma_ns_K[k])
    return utc_ns_T, sigma_ns_T
