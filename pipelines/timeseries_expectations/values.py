"""Expectations of values that belong to the same instant: channels that watch the same thing, and where the rows were.

Shape suffix: R = rows with a value in every column that is looked at.
"""

from typing import Any

import numpy as np
import pandas as pd
from great_expectations.compatibility import pydantic

from pipelines.timeseries_expectations.base import (
    AtLeast,
    AtMost,
    Measure,
    Measured,
    Number,
    Positive,
    Share,
    column_of,
    instants_of,
    largest,
    utc_text,
)


class PairAgreement(Measure):
    """Share of the rows in which the difference of two columns is within its limits."""

    metric_name = "time_series.pair_agreement_share"
    value_keys = ("column_A", "column_B", "min_difference", "max_difference", "time_column")

    @staticmethod
    def measure(
        frame: pd.DataFrame,
        *,
        column_A: str,
        column_B: str,
        min_difference: float | None,
        max_difference: float | None,
        time_column: str,
    ) -> Measured:
        """Subtract where both have a value."""
        difference = column_of(frame, column_A) - column_of(frame, column_B)
        rows = frame[difference.notna()]
        difference_R = difference[difference.notna()].to_numpy(dtype=np.float64)
        if not len(difference_R):
            return Measured(None)
        low = -np.inf if min_difference is None else min_difference
        high = np.inf if max_difference is None else max_difference
        excess_R = np.maximum(difference_R - high, low - difference_R)
        worst = largest(excess_R, excess_R > 0)
        values_A, values_B = rows[column_A].to_numpy(), rows[column_B].to_numpy()
        t_ns_R = instants_of(column_of(rows, time_column))
        examples = tuple(f"{values_A[i]:g} against {values_B[i]:g} at {utc_text(t_ns_R[i])}" for i in worst)
        return Measured(float((excess_R <= 0).mean()), examples)


class ExpectColumnPairToAgree(AtLeast):
    """Two channels that watch the same thing do not contradict each other.

    The rule is a limit on A − B, in the unit of both: at most 0.3 for a brake pipe that is fed from the reservoir,
    between -2 and 2 for two sensors of the speed. Rows in which either has no value are not judged.

    Args:
        column_A: Minuend.
        column_B: Subtrahend.
        min_difference: Least difference; none if absent.
        max_difference: Largest difference; none if absent.
        mostly: Share of the rows that have to keep the limits: 0.99 for a limit on the 99 % quantile.
        time_column: Instants, for the examples.
        allow_absent: Whether it is right that the two never have a value together.
    """

    column_A: pydantic.StrictStr
    column_B: pydantic.StrictStr
    min_difference: Number | None = None
    max_difference: Number | None = None
    mostly: Share = pydantic.Field(1.0)
    time_column: pydantic.StrictStr = "t_utc_ns"

    metric_dependencies = ("time_series.pair_agreement_share",)
    success_keys = (
        *AtLeast.success_keys,
        "column_A",
        "column_B",
        "min_difference",
        "max_difference",
        "mostly",
        "time_column",
    )
    bound = "mostly"
    unit = "%"
    template = "$column_A − $column_B is between $min_difference and $max_difference in at least $mostly of the rows."

    @pydantic.root_validator
    def _has_a_limit(cls, values: dict[str, Any]) -> dict[str, Any]:
        low, high = values.get("min_difference"), values.get("max_difference")
        if low is None and high is None:
            raise ValueError("neither min_difference nor max_difference is given, so nothing could disagree")
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_difference {low} is above max_difference {high}, so nothing could agree")
        return values


class PositionSigma(Measure):
    """A quantile of the standard error of the position."""

    metric_name = "time_series.position_sigma_quantile_m"
    value_keys = ("column", "quantile", "time_column")

    @staticmethod
    def measure(frame: pd.DataFrame, *, column: str, quantile: float, time_column: str) -> Measured:
        """Look at the rows that have a position."""
        sigma_m = column_of(frame, column)
        rows = frame[sigma_m.notna()]
        sigma_m_R = rows[column].to_numpy(dtype=np.float64)
        if not len(sigma_m_R):
            return Measured(None)
        found_m = float(np.quantile(sigma_m_R, quantile))
        t_ns_R = instants_of(column_of(rows, time_column))
        worst = largest(sigma_m_R, sigma_m_R > found_m)
        return Measured(found_m, tuple(f"{sigma_m_R[i]:.2f} m at {utc_text(t_ns_R[i])}" for i in worst))


class ExpectPositionUncertaintyToBeAtMost(AtMost):
    """Rows are located well enough to say where on the line a reading was taken.

    Args:
        column: Standard error of the position, in metres.
        quantile: Share of the located rows that has to keep the bound.
        max_m: Bound of their standard error.
        time_column: Instants, for the examples.
        allow_absent: Whether a batch without any position is right.
    """

    column: pydantic.StrictStr = "position_sigma_m"
    quantile: Share = pydantic.Field(0.95)
    max_m: Positive
    time_column: pydantic.StrictStr = "t_utc_ns"

    metric_dependencies = ("time_series.position_sigma_quantile_m",)
    success_keys = (*AtMost.success_keys, "column", "quantile", "max_m", "time_column")
    bound = "max_m"
    unit = "m"
    template = "The standard error of the position ($column) is at most $max_m m in $quantile of the rows."
