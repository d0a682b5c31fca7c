"""The one shape of all benchmark results."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict


class Result(TypedDict):
    """What a benchmark found; JSON as it stands."""

    measured: dict[str, Any]
    """Our figures, the unit in each name."""

    peer: dict[str, Any]
    """The same of something well known that does the same work, or the like, on the same machine just then; of several,
    by name."""

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


class Row(NamedTuple):
    """One figure of a benchmark, as a person reads it."""

    figure: str
    """Dotted where figures lie within one another."""

    values: list[str]
    """Ours, then each peer's; empty where there is none."""

    limit: str


def as_table(result: Result) -> tuple[list[str], list[Row]]:
    """Lay the figures of a result side by side: the names of ours and the peers, and a row for each figure.

    Example:
        >>> as_table(judge({"rows_per_s": 90}, {"rows_per_s": 45}, ratio=2.0, at_least={"rows_per_s": 100}))[1][0]
        Row(figure='rows_per_s', values=['90', '45'], limit='≥ 100')
    """
    peer = result["peer"]
    peers = peer if peer and all(isinstance(own, dict) for own in peer.values()) else {"peer": peer}
    sides = {name: _flat(own) for name, own in ({"ours": result["measured"]} | peers).items() if own}
    if result["ratio"] is not None:
        sides["ours"]["ratio"] = str(result["ratio"])
    limits = {
        name: f"{sign} {limit:g}"
        for side, sign in (("at_least", "≥"), ("at_most", "≤"))
        for name, limit in result["target"][side].items()
    }
    figures = dict.fromkeys(figure for own in sides.values() for figure in own)
    return list(sides), [
        Row(figure, [own.get(figure, "") for own in sides.values()], limits.get(figure, "")) for figure in figures
    ]


def _flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Figures as text, with dotted names."""
    flat: dict[str, str] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat
