"""Expectations of how the rows of a batch follow each other in time.

The instants are nanoseconds UTC in `time_column`, or stamps with a zone. Rows without an instant are left out: another
expectation counts them. With `partition_by`, only rows that agree in these columns are compared.

Shape suffixes: T = rows that have an instant, I = intervals.
"""

from abc import ABC
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from great_expectations.compatibility import pydantic

from pipelines import cadence
from pipelines.timeseries_expectations.base import (
    AtLeast,
    AtMost,
    Measure,
    Measured,
    NoneFound,
    NotNegative,
    Positive,
    Share,
    TimeSeriesExpectation,
    column_of,
    groups_of,
    instants_of,
    largest,
    utc_ns,
    utc_text,
)


class _Stamped(NamedTuple):
    """Rows that have an instant."""

    rows: pd.DataFrame
    t_ns_T: np.ndarray
    group_T: np.ndarray


class InstantsExpectation(TimeSeriesExpectation, ABC):
    """A statement about rows in time."""

    time_column: pydantic.StrictStr = "t_utc_ns"
    """Their instants."""

    partition_by: list[pydantic.StrictStr] = pydantic.Field(default_factory=list)
    """Columns that part the batch into groups; no time passes between them."""

    success_keys = (*TimeSeriesExpectation.success_keys, "time_column", "partition_by")


class OutsidePeriod(Measure):
    """Share of the rows whose instant is before a first or after a last one."""

    metric_name = "time_series.outside_period_share"
    value_keys = ("time_column", "earliest", "latest")

    @staticmethod
    def measure(frame: pd.DataFrame, *, time_column: str, earliest: str, latest: str) -> Measured:
        """Compare with both."""
        _, t_ns_T, _ = _stamped(frame, time_column, [])
        early_ns, late_ns = utc_ns(earliest), utc_ns(latest)
        beyond_ns_T = np.maximum(early_ns - t_ns_T, t_ns_T - late_ns)
        is_outside_T = beyond_ns_T > 0
        return _share(is_outside_T, [utc_text(t_ns_T[i]) for i in largest(beyond_ns_T, is_outside_T)])


class ExpectInstantsToBeWithinPeriod(InstantsExpectation, NoneFound):
    """No row is from before or after a time in which it could have been recorded.

    Outside, a stamp was read in the wrong unit or of the wrong epoch, or a receiver's week rolled over.

    Args:
        earliest: First instant that can be true, ISO 8601 with its zone: `1990-01-01T00:00:00Z`.
        latest: Last one.
    """

    earliest: pydantic.StrictStr
    latest: pydantic.StrictStr

    metric_dependencies = ("time_series.outside_period_share",)
    success_keys = (*InstantsExpectation.success_keys, "earliest", "latest")
    unit = "%"
    template = "Instants ($time_column) lie between $earliest and $latest."

    @pydantic.validator("earliest", "latest")
    def _is_an_instant(cls, value: str) -> str:
        utc_ns(value)
        return value


class StepsBack(Measure):
    """Share of the rows that are earlier than the row before."""

    metric_name = "time_series.steps_back_share"
    value_keys = ("time_column", "partition_by")

    @staticmethod
    def measure(frame: pd.DataFrame, *, time_column: str, partition_by: list[str]) -> Measured:
        """Compare neighbours as they are stored."""
        _, t_ns_T, group_T = _stamped(frame, time_column, partition_by)
        found = cadence.intervals(t_ns_T, group_T)
        is_back_I = found.length_ns_I < 0
        worst = largest(-found.length_ns_I, is_back_I)
        return _share(is_back_I, [f"{_seconds(-found.length_ns_I[i])} back after {_at(found, i)}" for i in worst])


class ExpectInstantsToNotStepBack(InstantsExpectation, AtMost):
    """Rows lie in the order of their instants.

    A row that is earlier than the one before was stored late, or its clock was set back and nobody noticed.

    Args:
        max_share: Share of the rows that may be earlier than the one before.
    """

    max_share: Share = pydantic.Field(0.0)

    metric_dependencies = ("time_series.steps_back_share",)
    success_keys = (*InstantsExpectation.success_keys, "max_share")
    bound = "max_share"
    unit = "%"
    template = "At most $max_share of the rows are earlier than the row before ($time_column)."


class Repeats(Measure):
    """Share of the rows whose instant another row of their group has too."""

    metric_name = "time_series.repeated_share"
    value_keys = ("time_column", "partition_by")

    @staticmethod
    def measure(frame: pd.DataFrame, *, time_column: str, partition_by: list[str]) -> Measured:
        """Compare neighbours in the order of their instants."""
        _, t_ns_T, group_T = _stamped(frame, time_column, partition_by)
        found = cadence.sorted_intervals(t_ns_T, group_T)
        is_repeat_I = found.length_ns_I == 0
        return _share(is_repeat_I, [_at(found, i) for i in largest(found.length_ns_I, is_repeat_I)])


class ExpectInstantsToBeUnique(InstantsExpectation, AtMost):
    """No two rows of a group share an instant.

    Of two rows at one instant a later join would take one by chance.

    Args:
        max_share: Share of the rows that may repeat an instant.
    """

    max_share: Share = pydantic.Field(0.0)

    metric_dependencies = ("time_series.repeated_share",)
    success_keys = (*InstantsExpectation.success_keys, "max_share")
    bound = "max_share"
    unit = "%"
    template = "At most $max_share of the rows repeat an instant ($time_column)."


class RegularIntervals(Measure):
    """Share of the intervals that are as long as the period."""

    metric_name = "time_series.regular_share"
    value_keys = ("time_column", "partition_by", "period_s", "tolerance_s")

    @staticmethod
    def measure(
        frame: pd.DataFrame, *, time_column: str, partition_by: list[str], period_s: float, tolerance_s: float
    ) -> Measured:
        """Compare intervals between sorted instants with the period."""
        _, t_ns_T, group_T = _stamped(frame, time_column, partition_by)
        found = cadence.sorted_intervals(t_ns_T, group_T)
        if not len(found.length_ns_I):
            return Measured(None)
        off_ns_I = np.abs(found.length_ns_I - period_s * 1e9)
        is_regular_I = off_ns_I <= tolerance_s * 1e9
        worst = largest(off_ns_I, ~is_regular_I)
        examples = tuple(f"{_seconds(found.length_ns_I[i])} after {_at(found, i)}" for i in worst)
        return Measured(float(is_regular_I.mean()), examples)


class ExpectInstantsToKeepCadence(InstantsExpectation, AtLeast):
    """Rows follow each other at a steady period.

    Args:
        period_s: Nominal time from one row to the next.
        tolerance_s: How far an interval may be from it.
        mostly: Share of the intervals that has to keep it. The rest are gaps, which have an expectation of their own.
    """

    period_s: Positive
    tolerance_s: NotNegative
    mostly: Share = pydantic.Field(1.0)

    metric_dependencies = ("time_series.regular_share",)
    success_keys = (*InstantsExpectation.success_keys, "period_s", "tolerance_s", "mostly")
    bound = "mostly"
    unit = "%"
    template = "Rows follow each other every $period_s s ± $tolerance_s s in at least $mostly of the intervals."


class LongestGap(Measure):
    """Longest time without a reading, from the first row of a group to its last."""

    metric_name = "time_series.longest_gap_s"
    value_keys = ("column", "time_column", "partition_by")

    @staticmethod
    def measure(frame: pd.DataFrame, *, column: str, time_column: str, partition_by: list[str]) -> Measured:
        """Look between the readings, and before the first and after the last."""
        found = _gaps(frame, column, time_column, partition_by)
        if found is None:
            return Measured(None)
        longest = largest(found.length_ns_I, found.length_ns_I > 0)
        examples = tuple(f"{_seconds(found.length_ns_I[i])} from {_at(found, i)}" for i in longest)
        sizes_s = tuple(found.length_ns_I[longest] * 1e-9)
        return Measured(float(found.length_ns_I.max(initial=0)) * 1e-9, examples, sizes_s)


class ExpectColumnGapsToBeAtMost(InstantsExpectation, AtMost):
    """A column never goes without a reading for longer than a bound.

    Args:
        column: Whose readings; a row without a value is none.
        max_gap_s: Longest time without a reading, also at the beginning and the end of a group.
        allow_absent: Whether a column without any reading is right.
    """

    column: pydantic.StrictStr
    max_gap_s: NotNegative

    metric_dependencies = ("time_series.longest_gap_s",)
    success_keys = (*InstantsExpectation.success_keys, "column", "max_gap_s")
    bound = "max_gap_s"
    unit = "s"
    template = "$column is never without a reading for longer than $max_gap_s s."


class CoveredShare(Measure):
    """Share of the time of a batch in which a column has a reading that is not too old."""

    metric_name = "time_series.covered_share"
    value_keys = ("column", "time_column", "partition_by", "hold_s")

    @staticmethod
    def measure(
        frame: pd.DataFrame, *, column: str, time_column: str, partition_by: list[str], hold_s: float
    ) -> Measured:
        """Add up the time that each reading covers."""
        found = _gaps(frame, column, time_column, partition_by)
        if found is None:
            return Measured(None)
        bare_ns_I = found.length_ns_I - np.where(found.is_after_reading_I, hold_s * 1e9, 0.0)
        worst = largest(bare_ns_I, bare_ns_I > 0)
        examples = tuple(f"{_seconds(bare_ns_I[i])} uncovered after {_at(found, i)}" for i in worst)
        return Measured(cadence.coverage(found, hold_ns=hold_s * 1e9), examples)


class ExpectColumnCoverageToBeAtLeast(InstantsExpectation, AtLeast):
    """Readings of a column cover enough of the time of the batch.

    Args:
        column: Whose readings; a row without a value is none.
        hold_s: How long a reading covers the time after it: the period of the rows.
        min_share: Share of the time from the first row of a group to its last.
        allow_absent: Whether a column without any reading is right.
    """

    column: pydantic.StrictStr
    hold_s: Positive
    min_share: Share

    metric_dependencies = ("time_series.covered_share",)
    success_keys = (*InstantsExpectation.success_keys, "column", "hold_s", "min_share")
    bound = "min_share"
    unit = "%"
    template = "Readings of $column, each good for $hold_s s, cover at least $min_share of the time."


class HourJumps(Measure):
    """Number of places where an hour is missing or repeated between two readings."""

    metric_name = "time_series.hour_jumps"
    value_keys = ("column", "time_column", "partition_by", "period_s", "tolerance_s")

    @staticmethod
    def measure(
        frame: pd.DataFrame,
        *,
        column: str,
        time_column: str,
        partition_by: list[str],
        period_s: float,
        tolerance_s: float,
    ) -> Measured:
        """Compare neighbouring readings as they are stored."""
        rows, t_ns_T, group_T = _stamped(frame, time_column, partition_by)
        has_reading_T = column_of(rows, column).notna().to_numpy()
        found = cadence.intervals(t_ns_T[has_reading_T], group_T[has_reading_T])
        is_jump_I = cadence.hour_jumps(found, period_ns=period_s * 1e9, tolerance_ns=tolerance_s * 1e9)
        worst = largest(np.abs(found.length_ns_I), is_jump_I)
        kinds = ["an hour is missing" if found.length_ns_I[i] > 0 else "an hour is repeated" for i in worst]
        examples = [f"{kind} after {_at(found, i)}" for kind, i in zip(kinds, worst, strict=True)]
        return Measured(float(is_jump_I.sum()), tuple(examples))


class ExpectColumnToHaveNoHourJump(InstantsExpectation, NoneFound):
    """No hour is missing or repeated, as it is where local time was read across a change of the clocks.

    Args:
        column: Whose readings; a row without a value is none.
        period_s: Usual time from one reading to the next.
        tolerance_s: How exactly the hour has to be met to be called one.
    """

    column: pydantic.StrictStr
    period_s: Positive
    tolerance_s: NotNegative = pydantic.Field(5.0)

    metric_dependencies = ("time_series.hour_jumps",)
    success_keys = (*InstantsExpectation.success_keys, "column", "period_s", "tolerance_s")
    template = "No hour is missing or repeated between readings of $column (daylight saving)."


def _stamped(frame: pd.DataFrame, time_column: str, partition_by: list[str]) -> _Stamped:
    has_instant = column_of(frame, time_column).notna()
    rows = frame if has_instant.all() else frame[has_instant]
    return _Stamped(rows, instants_of(rows[time_column]), groups_of(rows, partition_by))


def _gaps(frame: pd.DataFrame, column: str, time_column: str, partition_by: list[str]) -> cadence.Gaps | None:
    """Stretches without a reading; `None` if there is no reading at all."""
    rows, t_ns_T, group_T = _stamped(frame, time_column, partition_by)
    has_reading_T = column_of(rows, column).notna().to_numpy()
    return cadence.gaps(t_ns_T, has_reading_T, group_T) if has_reading_T.any() else None


def _share(is_wrong: np.ndarray, examples: list[str]) -> Measured:
    return Measured(float(is_wrong.mean()) if len(is_wrong) else 0.0, tuple(examples))


def _seconds(length_ns: Any) -> str:
    return f"{length_ns * 1e-9:,.3f} s"


def _at(found: cadence.Intervals | cadence.Gaps, i: int) -> str:
    return utc_text(found.start_ns_I[i])
