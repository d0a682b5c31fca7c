"""The benchmarks: each measures against a peer in the same run, where there is one, and says whether that is enough.

A module of this package with a function `run` is a benchmark; `result` says what it returns.
"""

import logging
from importlib import import_module

from pipelines.bench.result import Result, as_table
from pipelines.errors import ConfigError

__all__ = ["NAMES", "Result", "as_table", "run"]

NAMES = ("dag_parse", "simulate", "ingest", "asof", "align", "sync", "loop", "demo")
"""Modules of this package, imported when they are run; `demo` is the last one because it takes minutes."""

logger = logging.getLogger(__name__)


def run(name: str) -> dict[str, Result]:
    """Run the benchmark called `name`, or `all` of them one after the other; return the results by name."""
    if name not in {*NAMES, "all"}:
        raise ConfigError(f"no benchmark {name!r}: expected one of {', '.join(NAMES)}, or all")
    results: dict[str, Result] = {}
    for each in NAMES if name == "all" else (name,):
        results[each] = import_module(f"pipelines.bench.{each}").run()
        logger.info("%s: %s", each, results[each])
    return results
