"""The as-of join that alignment uses, beside those of pandas and polars on the same rows.

The left side has a row a millisecond, the right one a tenth as many, late by chance and with gaps: each left row gets
the last reading at or before it, unless that is more than 50 ms old. Ours gives its age too.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl

from pipelines.align import as_of
from pipelines.bench.measuring import Cost, median, on_one_core, peak_bytes, timed
from pipelines.bench.result import Result, judge

MIN_ROWS_PER_S = 60e6
MAX_EXTRA_PER_OUTPUT = 1.0
"""What a join may hold beside its rows and its result, as a share of the result."""

SEED = 7
TOLERANCE_NS = 50_000_000


class _Rows(NamedTuple):
    left_ns: np.ndarray
    right_ns: np.ndarray
    x: np.ndarray


def run(*, num_left: int = 50_000_000, rounds: int = 3) -> Result:
    """Join on one core, each library in a process of its own; the median of `rounds`."""
    found = {name: on_one_core(__name__, variables={}, name=name, num_left=num_left, rounds=rounds) for name in _JOINS}
    answers = {name: one.pop("answer") for name, one in found.items()}
    if len({str(answer) for answer in answers.values()}) > 1:
        raise AssertionError(f"the joins differ: {answers}")
    ours = found.pop("ours")
    fastest = max(one["rows_per_s"] for one in found.values())
    return judge(
        {**ours, "rows": num_left},
        found,
        ratio=round(ours["rows_per_s"] / fastest, 2),
        at_least={"rows_per_s": MIN_ROWS_PER_S},
        at_most={"extra_per_output": MAX_EXTRA_PER_OUTPUT},
    )


def measure(*, name: str, num_left: int, rounds: int) -> dict[str, Any]:
    """Join with one library: what it took, the memory it held, and an answer to compare."""
    prepare, join, output_of = _JOINS[name]
    join(prepare(_rows(1_000)))  # compiles, starts threads
    rows = prepare(_rows(num_left))
    held_bytes = peak_bytes(join, rows)  # before an allocator keeps what the rounds gave back
    costs: list[Cost] = []
    for _ in range(rounds):
        joined, cost = timed(join, rows)
        costs.append(cost)
        output = output_of(joined)
        del joined
    x, output_bytes = output[0], sum(column.nbytes for column in output)
    return {
        **median(costs).rates(num_left),
        "held_bytes": held_bytes,
        "output_bytes": output_bytes,
        "extra_per_output": round(max(held_bytes - output_bytes, 0) / output_bytes, 3),
        "answer": {"num_none": int(np.isnan(x).sum()), "sum": math.fsum(x[~np.isnan(x)])},
    }


def _rows(num_left: int) -> _Rows:
    random = np.random.default_rng(SEED)
    right_ns = np.arange(num_left // 10, dtype=np.int64) * 10_000_000
    right_ns += random.integers(0, 8_000_000, size=len(right_ns))
    is_lost = np.zeros(len(right_ns), dtype=bool)
    for first in random.integers(0, len(right_ns), size=1 + len(right_ns) // 2_000):
        is_lost[first : first + random.integers(2, 200)] = True
    right_ns = right_ns[~is_lost]
    return _Rows(np.arange(num_left, dtype=np.int64) * 1_000_000, right_ns, random.normal(size=len(right_ns)))


def _ours(rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
    return as_of(rows.right_ns, rows.x, rows.left_ns, max_age_ns=TOLERANCE_NS)


def _pandas_frames(rows: _Rows) -> tuple[pd.DataFrame, pd.DataFrame]:
    return pd.DataFrame({"t": rows.left_ns}), pd.DataFrame({"t": rows.right_ns, "x": rows.x})


def _pandas(frames: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return pd.merge_asof(*frames, on="t", tolerance=TOLERANCE_NS)


def _polars_frames(rows: _Rows) -> tuple[pl.DataFrame, pl.DataFrame]:
    left, right = pl.DataFrame({"t": rows.left_ns}), pl.DataFrame({"t": rows.right_ns, "x": rows.x})
    return left.set_sorted("t"), right.set_sorted("t")


def _polars(frames: tuple[pl.DataFrame, pl.DataFrame]) -> pl.DataFrame:
    left, right = frames
    return left.join_asof(right, on="t", tolerance=TOLERANCE_NS)


class _Join(NamedTuple):
    """A library: how it wants its rows, how it joins them, and the columns that it made."""

    prepare: Callable[[_Rows], Any]
    join: Callable[[Any], Any]
    output_of: Callable[[Any], tuple[np.ndarray, ...]]


_JOINS = {
    "ours": _Join(lambda rows: rows, _ours, lambda output: output),
    "pandas": _Join(_pandas_frames, _pandas, lambda frame: (frame["x"].to_numpy(),)),
    "polars": _Join(_polars_frames, _polars, lambda frame: (frame["x"].fill_null(math.nan).to_numpy(),)),
}
