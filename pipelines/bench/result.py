"""The one shape of all benchmark results."""

from collections.abc import Mapping
from typing import Any, TypedDict


class Result(TypedDict):
    """What a benchmark found; JSON as it stands."""

    measured: dict[str, Any]
    """Our figures, the unit in each name."""

    peer: dict[str, Any]
    """The same of something well known that does the same work, or the like, on the same machine just then."""

    ratio: float | None
    """Ours to the peer's; `None` where there is no peer."""

    target: dict[str, dict[str, float]]
    """Limits by `at_least` or `at_most` and figure, which is one of `measured` or `ratio`."""

    passed: bool
    """Whether every limit of `target` is kept."""


def judge(
    measured: dict[str, Any],
    peer: dict[str, Any],
    *,
    ratio: float | None,
    at_least: Mapping[str, float] | None = None,
    at_most: Mapping[str, float] | None = None,
) -> Result:
    """Hold figures against their limits.

    Example:
        >>> judge({"rows_per_s": 90}, {"rows_per_s": 45}, ratio=2.0, at_least={"rows_per_s": 100})["passed"]
        False
    """
    figures = measured | {"ratio": ratio}
    lowest, highest = dict(at_least or {}), dict(at_most or {})
    return Result(
        measured=measured,
        peer=peer,
        ratio=ratio,
        target={"at_least": lowest, "at_most": highest},
        passed=all(figures[name] >= limit for name, limit in lowest.items())
        and all(figures[name] <= limit for name, limit in highest.items()),
    )
