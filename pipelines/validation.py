"""Check data against the suites in `expectations/` (Great Expectations).

A suite is data: one JSON file, each expectation with its reason in `meta.why`. Validation never changes the data; it
answers whether a batch may be trained on, and what was measured.
"""

import logging
import math
import os
import warnings
from dataclasses import dataclass
from functools import cache
from string import Template
from typing import Any

import polars as pl

from pipelines.errors import SuiteError
from pipelines.suites import read_suite

os.environ["GX_ANALYTICS_ENABLED"] = "False"  # read when the library is imported
logging.getLogger("great_expectations").setLevel(logging.WARNING)  # it tells two hundred things at its import
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own deprecations, at import
    import great_expectations as gx
    from great_expectations.expectations.registry import get_renderer_impl
    from great_expectations.render import LegacyRendererType

    from pipelines.timeseries_expectations.base import MAX_EXAMPLES, utc_text

logger = logging.getLogger(__name__)
logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)  # a folder made each time

IDENTITY = ("sensor", "clock_id", "part", "t_utc_ns", "row")
"""Columns that tell a person which row is meant, where a table has them."""

NOT_RULES = {"batch_id", "result_format", "catch_exceptions"}
"""Arguments of an expectation that say nothing about what is expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One expectation, answered."""

    type: str
    kwargs: dict[str, Any]
    """Columns and bounds, as the suite gives them."""

    expected: str
    """The expectation as a sentence."""

    observed: str
    """What was found, as a text."""

    value: float | None
    """What was found, as a number: the measured value, or the share of the rows that are not as expected; `None` if
    there was nothing to measure."""

    bound: str
    """What the value was held against, as a text."""

    examples: tuple[str, ...]
    """Some of what is wrong, worst first; none if nothing is."""

    why: str
    passed: bool

    @property
    def sentence(self) -> str:
        """The check in one line: what should be true, what was found, for example where, and why it matters."""
        seen = f"{self.observed}, e.g. {'; '.join(self.examples)}" if self.examples else self.observed
        return f"{self.expected.removesuffix('.')}: {seen}; {self.why}"

    def numbers(self) -> dict[str, Any]:
        """What the data passport keeps: the rule, the value, and whether it was kept."""
        return {"type": self.type, "kwargs": self.kwargs, "value": self.value, "passed": self.passed}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What one suite said of one batch."""

    suite: str
    num_rows: int
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every expectation was met."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[str, ...]:
        """One line a failed check."""
        return tuple(check.sentence for check in self.checks if not check.passed)

    def numbers(self) -> dict[str, Any]:
        """The verdict for the data passport: `{passed, num_rows, checks: [{type, kwargs, value, passed}]}`.

        It stands in `verdict.json` of a staged batch and, of what was published, in the outcome of each recording.
        """
        return {
            "passed": self.passed,
            "num_rows": self.num_rows,
            "checks": [check.numbers() for check in self.checks],
        }

    def message(self, batch: str) -> str:
        """A failed verdict in words, cut at ten checks."""
        head = f"{batch}: {len(self.failures)} of {len(self.checks)} checks of {self.suite} failed"
        return "\n  ".join([f"{head} over {self.num_rows:,} rows", *self.failures[:10]])


def load_suite(name: str) -> gx.ExpectationSuite:
    """Read a suite and make sure that all of it was understood.

    Great Expectations logs an expectation it does not know and drops it, so a misspelt type would turn a check off
    without failing anything.

    Raises:
        SuiteError: A type is unknown, or an argument is missing, unknown or out of its range.
    """
    spec = read_suite(name)
    try:
        suite = gx.ExpectationSuite(**spec)
    except ValueError as err:
        raise SuiteError(f"{name}.json: {' '.join(str(err).split())}") from err
    asked = [expectation["type"] for expectation in spec["expectations"]]
    if len(suite.expectations) != len(asked):
        unknown = sorted(set(asked) - {expectation.expectation_type for expectation in suite.expectations})
        raise SuiteError(
            f"{name}.json: {len(asked) - len(suite.expectations)} of {len(asked)} expectations would be skipped; "
            f"unknown type: {', '.join(unknown)}"
        )
    return suite


def check(frame: pl.DataFrame, *, suite: str) -> Verdict:
    """Run the suite called `suite` over `frame`."""
    expectations = load_suite(suite)
    batch = _batches().get_batch(batch_parameters={"dataframe": frame.to_pandas()})
    result = batch.validate(expectations, result_format="BASIC")
    if not result.success:  # again, and name the rows that are wrong: that costs a third more
        rows_named = {
            "result_format": "SUMMARY",
            "partial_unexpected_count": MAX_EXAMPLES,
            "unexpected_index_column_names": [column for column in IDENTITY if column in frame.columns],
        }
        result = batch.validate(expectations, result_format=rows_named)
    verdict = Verdict(suite=suite, num_rows=len(frame), checks=tuple(_answered(item) for item in result.results))
    logger.info(
        "suite %s: %d rows, %d of %d checks failed", suite, len(frame), len(verdict.failures), len(verdict.checks)
    )
    return verdict


@cache
def _batches() -> Any:
    """What makes batches out of frames; making it takes longer than a dozen checks."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("memory").add_dataframe_asset("frames")
    return asset.add_batch_definition_whole_dataframe("whole")


def _answered(item: Any) -> Check:
    config, found = item.expectation_config, item.result
    kwargs = {key: value for key, value in config.kwargs.items() if key not in NOT_RULES}
    observed, value = _observed(item)
    details = found.get("details") or {}
    return Check(
        type=config.type,
        kwargs=kwargs,
        expected=_expected(config),
        observed=observed,
        value=value,
        bound=details.get("bound") or _bound(kwargs),
        examples=() if item.success else tuple(details.get("examples") or _examples(found)),
        why=config.meta["why"],
        passed=bool(item.success),
    )


def _expected(config: Any) -> str:
    """The expectation in words, by the renderer that its type brings along."""
    _, render = get_renderer_impl(config.type, LegacyRendererType.PRESCRIPTIVE)
    told = [content.string_template for content in render(configuration=config, runtime_configuration={})]
    texts = [Template(one["template"]).safe_substitute(_told(one["params"])) for one in told]
    return " ".join(text.strip() for text in texts)


def _told(params: dict[str, Any]) -> dict[str, str]:
    return {name: _number(value) for name, value in params.items()}


def _observed(item: Any) -> tuple[str, float | None]:
    """What was found, as a text and as a number."""
    found = item.result
    if "observed_value" in found:
        value = found["observed_value"]
        return (found.get("details") or {}).get("observed") or f"{value:,}", value
    if "unexpected_count" not in found:
        return f"it could not be evaluated: {_exception(item.exception_info)}", None
    num_wrong, num_rows = found["unexpected_count"], found["element_count"] - found.get("missing_count", 0)
    share = round(num_wrong / num_rows, 6) if num_rows else None
    if not num_wrong:
        return f"all {num_rows:,} rows are" if num_rows else "nothing to measure", share
    return f"{num_wrong:,} of {num_rows:,} rows are not", share


def _bound(kwargs: dict[str, Any]) -> str:
    """What an expectation of Great Expectations itself holds its value against."""
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    if low is not None and high is not None:
        return f"{_number(low)} … {_number(high)}"
    if low is not None or high is not None:
        return f"≥ {_number(low)}" if high is None else f"≤ {_number(high)}"
    return ", ".join(map(str, kwargs["value_set"])) if "value_set" in kwargs else ""


def _examples(found: dict[str, Any]) -> list[str]:
    """Unexpected values, with the rows that they are in where the table tells them apart."""
    if found.get("unexpected_index_column_names"):
        return [_example(values) for values in found["partial_unexpected_index_list"][:MAX_EXAMPLES]]
    return [_number(value) for value in found.get("partial_unexpected_list", [])[:MAX_EXAMPLES]]


def _example(values: dict[str, Any]) -> str:
    """A value with its row: `412.5 at 2026-01-05T05:00:01.000Z`, `0.3 of sensor pneu`."""
    what = [_number(value) for name, value in values.items() if name not in IDENTITY]
    of = [f"of {name} {value}" for name, value in values.items() if name in IDENTITY and name != "t_utc_ns"]
    t_ns = values.get("t_utc_ns", math.nan)
    at = [] if math.isnan(t_ns) else [f"at {utc_text(t_ns)}"]
    return " ".join([*what, *of, *at])


def _number(value: Any) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)


def _exception(info: dict[str, Any]) -> str:
    """The first message of an evaluation that raised (the library keeps one a metric, or one alone)."""
    entries = [info] if "exception_message" in info else [entry for entry in info.values() if isinstance(entry, dict)]
    return next(
        (str(entry["exception_message"]) for entry in entries if entry.get("exception_message")), "no reason given"
    )
