"""Which vehicle breaks, when and how badly."""

from dataclasses import dataclass

from pipelines.simulate.streams import stream

HOT_BEARING = "hot_bearing"
COMPRESSOR_LEAK = "compressor_leak"
PRONE_TO = (HOT_BEARING, COMPRESSOR_LEAK, HOT_BEARING, None)
"""What the vehicles of a fleet are prone to, in turn; the fourth stays healthy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault in one trip, from its onset to the end of the trip; the workshop repairs it overnight."""

    kind: str
    """`hot_bearing` or `compressor_leak`."""

    onset: float
    """When it starts, as a share of the trip."""

    severity: float
    """hot_bearing: friction in excess of a healthy bearing, 1 is twice as much; compressor_leak: bar per second."""

    def __post_init__(self) -> None:
        """Refuse a kind that nothing would act upon."""
        if self.kind not in (HOT_BEARING, COMPRESSOR_LEAK):
            raise ValueError(f"kind is {self.kind!r}; expected {HOT_BEARING} or {COMPRESSOR_LEAK}")


def plan_fault(*, seed: int, vehicle: int, day: int, trip: int, healthy_days: int) -> Fault | None:
    """Decide whether this trip has a fault.

    Nothing breaks on the first `healthy_days`. On the first trip after them every prone vehicle breaks, so that a fleet
    of any size has something to find; on later trips every other one on average.
    """
    kind = PRONE_TO[vehicle % len(PRONE_TO)]
    if kind is None or day < healthy_days:
        return None
    random = stream(seed, "fault", vehicle, day, trip)
    is_broken = random.random() < 0.5
    onset = random.uniform(0.2, 0.45)
    severity = random.uniform(0.8, 1.8) if kind == HOT_BEARING else random.uniform(0.008, 0.018)
    is_first = day == healthy_days and trip == 0
    return Fault(kind=kind, onset=float(onset), severity=float(severity)) if is_broken or is_first else None
