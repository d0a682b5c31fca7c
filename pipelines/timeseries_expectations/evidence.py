"""Expectations of the evidence for a recording: tables of one row a clock, a sensor, or a pair of sensors.

Shape suffixes: C = clocks, P = pairs of sensors, S = sensors.
"""

from abc import ABC

import numpy as np
import pandas as pd
from great_expectations.compatibility import pydantic

from pipelines.timeseries_expectations.base import (
    AtMost,
    Measure,
    Measured,
    NoneFound,
    NotNegative,
    Positive,
    column_of,
    largest,
)

LEAP_SECONDS = {18: "GPS time was read as UTC", 19: "GPS time and TAI were confused", 37: "TAI was read as UTC"}
"""Whole seconds between the time scales, since 2017."""

HOUR_S = 3_600


class WorstClock(Measure):
    """Largest magnitude of a number over clocks."""

    metric_name = "time_series.worst_clock"
    value_keys = ("column", "methods")

    @staticmethod
    def measure(frame: pd.DataFrame, *, column: str, methods: list[str]) -> Measured:
        """Look at the clocks that were tied to UTC by one of `methods` (empty: by any)."""
        method = column_of(frame, "method")
        rows = frame[method.isin(methods)] if methods else frame
        magnitude_C = pd.to_numeric(column_of(rows, column)).abs().to_numpy(dtype=np.float64)
        if np.isnan(magnitude_C).all():
            return Measured(None)
        worst = largest(np.nan_to_num(magnitude_C), ~np.isnan(magnitude_C))
        clock_ids = rows["clock_id"].to_numpy()
        examples = tuple(f"{clock_ids[i]} {magnitude_C[i]:g}" for i in worst)
        return Measured(float(np.nanmax(magnitude_C)), examples, tuple(magnitude_C[worst]))


class ClocksExpectation(AtMost, ABC):
    """A statement about the worst of the clocks."""

    column: pydantic.StrictStr
    """Number that each clock has."""

    methods: list[pydantic.StrictStr] = pydantic.Field(default_factory=list)
    """How the clocks meant were tied to UTC; empty means any."""

    metric_dependencies = ("time_series.worst_clock",)
    success_keys = (*AtMost.success_keys, "column", "methods")


class ExpectClockResidualToBeAtMost(ClocksExpectation):
    """What is left between a clock's map and the measurements that it was fitted to is small.

    Args:
        column: 99th percentile of the residual, in milliseconds.
        methods: How the clocks meant were tied to UTC (`exchanges`, `pairs`, `signal`); empty means any.
        max_ms: Largest residual.
        allow_absent: Whether it is right that no clock has one.
    """

    column: pydantic.StrictStr = "residual_p99_ms"
    max_ms: Positive

    success_keys = (*ClocksExpectation.success_keys, "max_ms")
    bound = "max_ms"
    unit = "ms"
    template = "The residual ($column) of every clock is at most $max_ms ms."


class ExpectClockDriftToBeAtMost(ClocksExpectation):
    """No clock runs faster or slower than a clock of its kind can.

    Args:
        column: Rate against UTC, in parts per million.
        methods: How the clocks meant were tied to UTC; empty means any.
        max_ppm: Largest rate, to either side.
        allow_absent: Whether it is right that no clock has one.
    """

    column: pydantic.StrictStr = "drift_ppm"
    max_ppm: Positive

    success_keys = (*ClocksExpectation.success_keys, "max_ppm")
    bound = "max_ppm"
    unit = "ppm"
    template = "No clock drifts ($column) by more than $max_ppm ppm."


class ExpectClockUncertaintyToBeAtMost(ClocksExpectation):
    """The map of every clock is certain enough at the rows that the clock stamped.

    Args:
        column: Largest standard error at a row, in milliseconds.
        methods: How the clocks meant were tied to UTC; empty means any.
        max_ms: Largest standard error.
        allow_absent: Whether it is right that no clock has one.
    """

    column: pydantic.StrictStr = "sigma_max_ms"
    max_ms: Positive

    success_keys = (*ClocksExpectation.success_keys, "max_ms")
    bound = "max_ms"
    unit = "ms"
    template = "The standard error ($column) of every clock is at most $max_ms ms."


class CertainSkew(Measure):
    """Largest skew between two sensors, less what its standard error may explain, in milliseconds."""

    metric_name = "time_series.certain_skew_ms"
    value_keys = ("num_sigmas",)

    @staticmethod
    def measure(frame: pd.DataFrame, *, num_sigmas: float) -> Measured:
        """Take from each skew so many of its standard errors."""
        skew_ms_P, sigma_ms_P = _skews(frame)
        if not len(skew_ms_P):
            return Measured(None)
        certain_ms_P = np.maximum(np.abs(skew_ms_P) - num_sigmas * sigma_ms_P, 0.0)
        names = _pairs(frame)
        worst = largest(certain_ms_P, certain_ms_P > 0)
        examples = [f"{names[i]} {skew_ms_P[i]:+,.1f} ± {sigma_ms_P[i]:,.1f} ms" for i in worst]
        return Measured(float(certain_ms_P.max()), tuple(examples), tuple(certain_ms_P[worst]))


class ExpectSkewToBeAtMost(AtMost):
    """Two sensors that see the same speed see it at the same time.

    Args:
        num_sigmas: Standard errors of the skew that are granted before it counts.
        max_ms: Largest skew.
        allow_absent: Whether it is right that no two sensors could be compared.
    """

    num_sigmas: NotNegative = pydantic.Field(4.0)
    max_ms: Positive

    metric_dependencies = ("time_series.certain_skew_ms",)
    success_keys = ("allow_absent", "num_sigmas", "max_ms")
    bound = "max_ms"
    unit = "ms"
    template = "Two sensors of the speed agree in time to $max_ms ms, beyond $num_sigmas standard errors."


class LeapOffsets(Measure):
    """Number of pairs of sensors that are apart by the whole seconds between two time scales."""

    metric_name = "time_series.leap_offsets"
    value_keys = ("tolerance_ms",)

    @staticmethod
    def measure(frame: pd.DataFrame, *, tolerance_ms: float) -> Measured:
        """Compare each skew with `LEAP_SECONDS`."""
        skew_ms_P, sigma_ms_P = _skews(frame)
        if not len(skew_ms_P):
            return Measured(None)
        names = _pairs(frame)
        found = [
            f"{names[i]} are {leap_s} s apart: {meaning}"
            for leap_s, meaning in LEAP_SECONDS.items()
            for i in np.flatnonzero(np.abs(np.abs(skew_ms_P) - 1e3 * leap_s) <= tolerance_ms + sigma_ms_P)
        ]
        return Measured(float(len(found)), tuple(found))


class ExpectSkewToBeNoLeapSeconds(NoneFound):
    """No two sensors are apart by the 18 s, 19 s or 37 s between UTC, GPS time and TAI.

    Args:
        tolerance_ms: How exactly the whole seconds have to be met to be called that.
        allow_absent: Whether it is right that no two sensors could be compared.
    """

    tolerance_ms: Positive = pydantic.Field(500.0)

    metric_dependencies = ("time_series.leap_offsets",)
    success_keys = ("allow_absent", "tolerance_ms")
    template = "No two sensors are apart by the leap seconds between UTC, GPS time and TAI."


class HoursApart(Measure):
    """Number of sensors whose rows lie whole hours before or after those of the others."""

    metric_name = "time_series.sensors_hours_apart"
    value_keys = ("column", "tolerance_s")

    @staticmethod
    def measure(frame: pd.DataFrame, *, column: str, tolerance_s: float) -> Measured:
        """Compare how far each sensor is from the others with whole hours."""
        shift_s_S = pd.to_numeric(column_of(frame, column)).to_numpy(dtype=np.float64)
        if np.isnan(shift_s_S).all():
            return Measured(None)
        hours_S = np.nan_to_num(np.rint(shift_s_S / HOUR_S))
        is_apart_S = (hours_S != 0) & (np.abs(shift_s_S - HOUR_S * hours_S) <= tolerance_s)
        names = column_of(frame, "sensor").to_numpy()
        examples = tuple(f"{names[i]} {hours_S[i]:+.0f} h" for i in largest(np.abs(hours_S), is_apart_S))
        return Measured(float(is_apart_S.sum()), examples)


class ExpectSensorsToShareTheHour(NoneFound):
    """No sensor is whole hours apart from the others: its local time was read in the wrong zone or season.

    Args:
        column: How far the rows of a sensor lie after those of the others, in seconds.
        tolerance_s: How exactly the hours have to be met to be called that.
        allow_absent: Whether it is right that there is nothing to compare.
    """

    column: pydantic.StrictStr = "behind_others_s"
    tolerance_s: Positive = pydantic.Field(60.0)

    metric_dependencies = ("time_series.sensors_hours_apart",)
    success_keys = ("allow_absent", "column", "tolerance_s")
    template = "No sensor is whole hours apart from the others ($column)."


def _skews(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    skew_ms_P, sigma_ms_P = (column_of(frame, name).to_numpy(dtype=np.float64) for name in ("skew_ms", "sigma_ms"))
    return skew_ms_P, sigma_ms_P


def _pairs(frame: pd.DataFrame) -> list[str]:
    return [f"{a} and {b}" for a, b in zip(column_of(frame, "sensor"), column_of(frame, "reference"), strict=True)]
