"""Expectations for time series, for Great Expectations: cadence, gaps, order, coverage, clocks, skew, place, agreement.

Importing this package makes its types known to Great Expectations, so that a suite may name them:

    {"type": "expect_column_gaps_to_be_at_most", "kwargs": {"column": "speed_mps", "max_gap_s": 60},
     "meta": {"why": "after a minute without speed the position is a guess"}}

`instants` looks at rows in time, `values` at what rows say together, `evidence` at tables of one row a clock, sensor
or pair of sensors. All of them work on pandas batches; `base` says what a new one needs.
"""

from pipelines.timeseries_expectations.evidence import (
    ExpectClockDriftToBeAtMost,
    ExpectClockResidualToBeAtMost,
    ExpectClockUncertaintyToBeAtMost,
    ExpectSensorsToShareTheHour,
    ExpectSkewToBeAtMost,
    ExpectSkewToBeNoLeapSeconds,
)
from pipelines.timeseries_expectations.instants import (
    ExpectColumnCoverageToBeAtLeast,
    ExpectColumnGapsToBeAtMost,
    ExpectColumnToHaveNoHourJump,
    ExpectInstantsToBeUnique,
    ExpectInstantsToBeWithinPeriod,
    ExpectInstantsToKeepCadence,
    ExpectInstantsToNotStepBack,
)
from pipelines.timeseries_expectations.values import ExpectColumnPairToAgree, ExpectPositionUncertaintyToBeAtMost

__all__ = [
    "ExpectClockDriftToBeAtMost",
    "ExpectClockResidualToBeAtMost",
    "ExpectClockUncertaintyToBeAtMost",
    "ExpectColumnCoverageToBeAtLeast",
    "ExpectColumnGapsToBeAtMost",
    "ExpectColumnPairToAgree",
    "ExpectColumnToHaveNoHourJump",
    "ExpectInstantsToBeUnique",
    "ExpectInstantsToBeWithinPeriod",
    "ExpectInstantsToKeepCadence",
    "ExpectInstantsToNotStepBack",
    "ExpectPositionUncertaintyToBeAtMost",
    "ExpectSensorsToShareTheHour",
    "ExpectSkewToBeAtMost",
    "ExpectSkewToBeNoLeapSeconds",
]
