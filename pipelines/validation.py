"""Check data against the suites in `expectations/` (Great Expectations) and write Data Docs that a person can read.

A suite is data: one JSON file, each expectation with its reason in `meta.why`. Validation never changes the data; it
answers whether a batch may be trained on, and what would have to be true.
"""

import html
import logging
import os
import re
import warnings
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.errors import SuiteError
from pipelines.suites import read_suite

os.environ["GX_ANALYTICS_ENABLED"] = "False"  # read when the library is imported
logging.getLogger("great_expectations").setLevel(logging.WARNING)  # it tells two hundred things at its import
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own deprecations, at import
    import great_expectations as gx
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

logger = logging.getLogger(__name__)
logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)  # a folder made each time


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What one suite said of one batch."""

    suite: str
    passed: bool
    num_rows: int
    num_checks: int
    failures: tuple[str, ...]
    """One line a failed check: what should be true, how many rows are not, for example which value."""

    page: str
    """Data Docs page of the result, a self-contained HTML document."""

    def summary(self) -> dict[str, Any]:
        """The verdict without its page, ready for JSON."""
        return {
            "suite": self.suite,
            "passed": self.passed,
            "num_rows": self.num_rows,
            "num_checks": self.num_checks,
            "failures": list(self.failures),
        }

    def message(self, batch: str) -> str:
        """A failed verdict in words, cut at ten checks."""
        head = f"{batch}: {len(self.failures)} of {self.num_checks} checks of {self.suite} failed"
        return "\n  ".join([f"{head} over {self.num_rows:,} rows", *self.failures[:10]])


def load_suite(name: str) -> gx.ExpectationSuite:
    """Read a suite and make sure that all of it was understood.

    Great Expectations logs an expectation it does not know and drops it, so a misspelt type would turn a check off
    without failing anything.
    """
    spec = read_suite(name)
    suite = gx.ExpectationSuite(**spec)
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
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("memory").add_dataframe_asset(suite)
    definition = asset.add_batch_definition_whole_dataframe("batch")
    batch = definition.get_batch(batch_parameters={"dataframe": frame.to_pandas()})
    result = batch.validate(expectations, result_format={"result_format": "SUMMARY", "partial_unexpected_count": 3})
    failures = tuple(_describe(item.to_json_dict()) for item in result.results if not item.success)
    logger.info("suite %s: %d rows, %d of %d checks failed", suite, len(frame), len(failures), len(result.results))
    return Verdict(
        suite=suite,
        passed=bool(result.success),
        num_rows=len(frame),
        num_checks=len(result.results),
        failures=failures,
        page=_offline(
            DefaultJinjaPageView().render(ValidationResultsPageRenderer(run_info_at_end=True).render(result))
        ),
    )


def index_page(title: str, verdicts: dict[str, Verdict]) -> str:
    """A page that links the Data Docs pages in `verdicts` (file name → verdict)."""
    rows = "".join(
        f'<tr><td><a href="{html.escape(name)}">{html.escape(verdict.suite)}</a></td>'
        f"<td>{'passed' if verdict.passed else 'FAILED'}</td><td>{verdict.num_checks}</td><td>{verdict.num_rows:,}</td>"
        f"<td>{'<br>'.join(html.escape(failure) for failure in verdict.failures[:10])}</td></tr>"
        for name, verdict in verdicts.items()
    )
    head = "<tr><th>suite</th><th>result</th><th>checks</th><th>rows</th><th>what failed</th></tr>"
    return (
        f"<!DOCTYPE html><html><head><meta charset='utf-8'><title>{html.escape(title)}</title>{_STYLE}</head>"
        f"<body><h1>{html.escape(title)}</h1><table>{head}{rows}</table></body></html>"
    )


def _describe(result: dict[str, Any]) -> str:
    """A failed check in one line: the column, what should be true, what was found."""
    config = result["expectation_config"]
    kwargs = {key: value for key, value in config["kwargs"].items() if key not in {"batch_id", "column"}}
    column = config["kwargs"].get("column", "batch")
    limits = ", ".join(f"{key} {value}" for key, value in kwargs.items())
    rule = config["type"].removeprefix("expect_").replace("_", " ")
    found = result["result"]
    if "unexpected_count" in found:
        examples = ", ".join(str(value) for value in found.get("partial_unexpected_list", [])[:3])
        seen = f"{found['unexpected_count']} rows are not" + (f", e.g. {examples}" if examples else "")
    elif "observed_value" in found:
        seen = f"found {found['observed_value']}"
    else:
        seen = f"it could not be evaluated: {_exception(result.get('exception_info') or {})}"
    return f"{column}: {rule} ({limits}): {seen}; {config['meta']['why']}"


def _exception(info: dict[str, Any]) -> str:
    """The first message of an evaluation that raised (the library keeps one a metric, or one alone)."""
    entries = [info] if "exception_message" in info else [entry for entry in info.values() if isinstance(entry, dict)]
    return next(
        (str(entry["exception_message"]) for entry in entries if entry.get("exception_message")), "no reason given"
    )


def _offline(page: str) -> str:
    """The page without anything that a browser would fetch from another host, with a style of its own."""
    page = re.sub(r"<script\b[^>]*\bsrc=[^>]*>\s*</script>", "", page)
    page = re.sub(r"<link\b[^>]*>", "", page)
    page = re.sub(r"<img\b[^>]*\bsrc=\"https?:[^>]*>", "", page)
    page = re.sub(r"<a\b[^>]*\bhref=\"https?:[^>]*>.*?</a>", "", page, flags=re.DOTALL)
    return page.replace("</head>", f"{_STYLE}</head>", 1)


_STYLE = """<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1f2933 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { border: 1px solid #cbd2d9; padding: .35rem .6rem; text-align: left; vertical-align: top }
th { background: #f1f4f7 }
.fa-check-circle::before { content: "✔"; color: #1b7f4b } .fa-times::before { content: "✘"; color: #b3261e }
.modal, .navbar, .sticky, footer, .ge-breadcrumbs { display: none }
</style>"""
