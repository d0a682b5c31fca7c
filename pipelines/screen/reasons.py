"""What may be wrong with a reading."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a reading is not believed, strongest first: of several the first counts."""

    MISSING = "missing"
    """There is none."""

    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    """Nothing of its kind can be that small or large."""

    SATURATED = "saturated"
    """The sensor was at the end of its scale: the truth lies beyond."""

    SPIKE = "spike"
    """It left the readings before it, and was back a few readings later, faster than anything true."""

    FROZEN = "frozen"
    """The sensor repeated one reading for too long."""

    CONTRADICTION = "contradiction"
    """Another channel says that this one or itself is wrong (`channels.RULES`)."""


REASONS = tuple(Reason)


def code(reason: Reason) -> int:
    """The number that stands for a reason in arrays; 0 stands for none."""
    return REASONS.index(reason) + 1
