"""All that an evaluation found, in one document that a gate, a page and a person read."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.evaluate.bootstrap import Difference


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A model or a baseline, and its scores on the held-out data."""

    name: str
    """A registry version, or the name of a baseline."""

    scores: dict[str, float]
    """Named numbers; NaN where something could not be measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Scores of a candidate beside champion and baselines, all on the same held-out data."""

    recipe: str
    model: Scored
    champion: Scored | None
    """`None` if there is none yet."""

    baselines: tuple[Scored, ...]
    held_out: str = ""
    """Digest of the data set whose held-out part was scored; reports can be compared if it is the same."""

    difference: Difference | None = None
    """Model minus champion, with its uncertainty; `None` without a champion."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, which knows neither NaN nor infinity: they become null."""
        finite: dict[str, Any] = _finite(asdict(self))
        return finite

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> "Report":
        """The report that `to_dict` was called on; what was null is NaN again."""
        return cls(
            recipe=table["recipe"],
            model=_scored(table["model"]),
            champion=_scored(table["champion"]) if table["champion"] else None,
            baselines=tuple(_scored(item) for item in table["baselines"]),
            held_out=table["held_out"],
            difference=Difference(**_numbers(table["difference"])) if table["difference"] else None,
        )


def beats(report: Report, metric: str, *, margin: float = 0.0) -> dict[str, bool]:
    """Whether the model beats each of its rivals, by their names; larger scores are better.

    A baseline must be surpassed, a champion by more than `margin`: a model that is as good as the one in use is no
    reason to change. A score that is missing or NaN beats nothing, and what has no score cannot be beaten.

    Example:
        >>> chance, champion = Scored(name="chance", scores={"f1": 0.1}), Scored(name="pump/3", scores={"f1": 0.9})
        >>> model = Scored(name="pump/4", scores={"f1": 0.9})
        >>> beats(Report(recipe="pump", model=model, champion=champion, baselines=(chance,)), "f1")
        {'chance': True, 'pump/3': False}
    """
    own = report.model.scores.get(metric, math.nan)
    answer = {rival.name: own > rival.scores.get(metric, math.nan) for rival in report.baselines}
    if report.champion:
        answer[report.champion.name] = own > report.champion.scores.get(metric, math.nan) + margin
    return answer


def _scored(table: dict[str, Any]) -> Scored:
    return Scored(name=table["name"], scores=_numbers(table["scores"]))


def _numbers(table: dict[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in table.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
