"""What the expectations of this pack share: a number measured on a batch, one bound, and a sentence for Data Docs.

An expectation is two classes, as Great Expectations wants it: a `Measure`, its metric provider, takes the number from
the rows; a `TimeSeriesExpectation` holds it against the bound. A new one fills in the class attributes of both.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from string import Template
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from great_expectations.compatibility import pydantic
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render import LegacyDiagnosticRendererType, LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.renderer_configuration import RendererValueType

MAX_EXAMPLES = 3


class Number(pydantic.ConstrainedFloat):
    """A finite number that was written as one: the text "5" is refused."""

    allow_inf_nan = False

    @classmethod
    def __get_validators__(cls) -> Iterator[Any]:
        """Look at the type before the limits."""
        yield _as_number
        yield from super().__get_validators__()


class Positive(Number):
    """A number above zero."""

    gt = 0


class NotNegative(Number):
    """A number, zero or above."""

    ge = 0


class Share(NotNegative):
    """A part of one."""

    le = 1


class Measured(NamedTuple):
    """What was found in a batch."""

    value: float | None
    """`None`: the batch has nothing to measure."""

    examples: tuple[str, ...] = ()
    """The worst offenders first, at most `MAX_EXAMPLES`."""

    sizes: tuple[float, ...] = ()
    """Value of each example by itself, where only those that break the bound are offenders."""


class Measure(TableMetricProvider):
    """A number taken from the columns of a batch.

    Subclasses name it (`metric_name`), name the arguments that it takes from the expectation (`value_keys`), and take
    it (`measure`).
    """

    measure: ClassVar[Callable[..., Measured]]
    """Takes the batch, a pandas frame, and the arguments by name."""

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls: type["Measure"],
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> Measured:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        return cls.measure(frame, **metric_value_kwargs)


class TimeSeriesExpectation(BatchExpectation, ABC):
    """A statement about a batch of rows with instants, or of evidence about sensors and clocks; one number decides.

    Subclasses say by which measure (`metric_dependencies`), what is expected, in words (`template`), and in which unit
    the number is told (`unit`).
    """

    allow_absent: pydantic.StrictBool = False
    """Whether the expectation is met where there is nothing to measure, because a vehicle lacks the sensor."""

    success_keys: ClassVar[tuple[str, ...]] = ("allow_absent",)
    unit: ClassVar[str] = ""
    """`%` for a share."""

    template: ClassVar[str]
    """What is expected, with the names of arguments as `$name`."""

    @abstractmethod
    def is_met(self, value: float) -> bool:
        """Whether a measured value is right."""

    @abstractmethod
    def bound_text(self) -> str:
        """What the value is held against, for a person."""

    def told(self, value: float) -> str:
        """A value with its unit."""
        return f"{figure(100 * value)} %" if self.unit == "%" else f"{figure(value)} {self.unit}".rstrip()

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        (metric,) = self.metric_dependencies
        value, examples, sizes = metrics[metric]
        is_met = self.allow_absent if value is None else self.is_met(value)
        pairs = zip_longest(examples, sizes)
        details = {
            "observed": "nothing to measure" if value is None else self.told(value),
            "bound": self.bound_text(),
            "examples": [] if is_met else [text for text, size in pairs if size is None or not self.is_met(size)],
        }
        observed = None if value is None else round(float(value), 6)
        return {"success": is_met, "result": {"observed_value": observed, "details": details}}

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[RenderedStringTemplateContent]:
        """Say what is expected on the pages of Great Expectations' own Data Docs."""
        params = cls._arguments_told((configuration or result.expectation_config).kwargs)
        text = {"template": cls.template, "params": params}
        return [RenderedStringTemplateContent(content_block_type="string_template", string_template=text)]

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: Any) -> Any:
        """Say what is expected wherever else it is rendered."""
        for name, text in cls._arguments_told(renderer_configuration.kwargs).items():
            renderer_configuration.add_param(name=name, param_type=RendererValueType.STRING, value=text)
        renderer_configuration.template_str = cls.template
        return renderer_configuration

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> str:
        """Say what was found, with examples, on the pages of Great Expectations' own Data Docs."""
        details = result.result.get("details") if result else None
        return "; ".join([details["observed"], *details["examples"]]) if details else "--"

    @classmethod
    def _arguments_told(cls, kwargs: dict[str, Any]) -> dict[str, str]:
        """Texts of the arguments that the template names, defaults included."""
        told = {}
        for name in Template(cls.template).get_identifiers():
            field = cls.__fields__[name]
            told[name] = _text(kwargs.get(name, field.default), is_share=field.type_ is Share)
        return told


class AtMost(TimeSeriesExpectation, ABC):
    """The value may be as large as the argument called `bound`."""

    bound: ClassVar[str]

    def is_met(self, value: float) -> bool:
        """Whether the value is no larger."""
        return bool(value <= getattr(self, self.bound))

    def bound_text(self) -> str:
        """The largest value that is right."""
        return f"≤ {self.told(getattr(self, self.bound))}"


class AtLeast(TimeSeriesExpectation, ABC):
    """The value must be as large as the argument called `bound`."""

    bound: ClassVar[str]

    def is_met(self, value: float) -> bool:
        """Whether the value is no smaller."""
        return bool(value >= getattr(self, self.bound))

    def bound_text(self) -> str:
        """The smallest value that is right."""
        return f"≥ {self.told(getattr(self, self.bound))}"


class NoneFound(TimeSeriesExpectation, ABC):
    """The value is a count of what must not be."""

    unit = "found"

    def is_met(self, value: float) -> bool:
        """Whether there is none."""
        return value == 0

    def bound_text(self) -> str:
        """No number above zero is right."""
        return "none"


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """A column of the batch.

    Raises:
        ValueError: There is none of this name.
    """
    if name not in frame.columns:
        raise ValueError(f"column {name!r} does not exist; the batch has {', '.join(map(str, frame.columns[:10]))}")
    return frame[name]


def instants_of(column: pd.Series) -> np.ndarray:
    """A column of instants, none of them missing, as int64 nanoseconds UTC.

    Raises:
        ValueError: The column has neither whole nanoseconds nor stamps with a zone.
    """
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return np.asarray(column.dt.tz_convert("UTC").dt.as_unit("ns").astype("int64"))
    if pd.api.types.is_numeric_dtype(column.dtype) and (column % 1 == 0).all():
        return np.asarray(column, dtype=np.int64)
    raise ValueError(
        f"column {column.name!r} is {column.dtype}, but instants are whole nanoseconds UTC, or stamps with a zone"
    )


def groups_of(frame: pd.DataFrame, partition_by: Iterable[str]) -> np.ndarray:
    """Number of the group that each row belongs to; one group where there is nothing to part it by."""
    names = list(partition_by)
    if not names:
        return np.zeros(len(frame), dtype=np.int64)
    keys = [column_of(frame, name) for name in names]
    return np.asarray(frame.groupby(keys, sort=False, dropna=False, observed=True).ngroup())


def utc_text(t_ns: int) -> str:
    """An instant for a person, to the millisecond.

    Example:
        >>> utc_text(1_767_589_432_508_980_200)
        '2026-01-05T05:03:52.508Z'
    """
    seconds, rest_ns = divmod(int(t_ns), 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns // 10**6:03d}Z"


def utc_ns(text: str) -> int:
    """An instant as nanoseconds.

    Raises:
        ValueError: The text is no ISO 8601 instant, or has no zone.

    Example:
        >>> utc_ns("1970-01-01T01:00:00+01:00")
        0
    """
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no zone; 1990-01-01T00:00:00Z would be right")
    return (instant - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1_000


def figure(value: float) -> str:
    """A number for a person, to four digits.

    Example:
        >>> figure(17_936.3), figure(91.1514), figure(0.05), figure(0)
        ('17,936', '91.15', '0.05', '0')
    """
    decimals = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, max(decimals, 0)):,.12g}"


def largest(size: np.ndarray, is_wrong: np.ndarray) -> np.ndarray:
    """Positions of the few largest of those that are wrong."""
    wrong = np.flatnonzero(is_wrong)
    return wrong[np.argsort(-size[wrong], kind="stable")[:MAX_EXAMPLES]]


def _as_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value


def _text(value: Any, *, is_share: bool) -> str:
    if value is None:
        return "no limit"
    if is_share:
        return f"{100 * value:g} %"
    if isinstance(value, int | float):
        return f"{value:g}"
    return " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
