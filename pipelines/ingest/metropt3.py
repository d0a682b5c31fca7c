"""MetroPT-3: the air production unit of a metro train, as published (UCI data set 791), and its known failures.

The file is one CSV of 1.5 million rows, about ten seconds apart, with naive stamps. Neither the data set nor the papers
name a zone; the failure reports use the same wall clock, so both are read as UTC, and no hour is lost or doubled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from pipelines.channels import METROPT3_CHANNELS
from pipelines.ingest.days import Layout, read_days
from pipelines.ingest.reader import Recording

SOURCE = "metropt3"
VEHICLE = "metro-apu"
FAILURE = "apu_failure"
"""Kind of the known failures, as recipes name it in `events`."""

_MINUTE_NS = 60 * 10**9
_LAYOUT = Layout(
    source=SOURCE,
    sensor="apu",
    channels=METROPT3_CHANNELS,
    stamp_column="timestamp",
    row_number_column="Unnamed: 0",
    clock_id="logger",
    nominal_rate_hz=0.1,
)


def read(location: str) -> Iterator[Recording]:
    """Yield one recording a service day from the CSV file at `location`; any size streams."""
    return read_days(location, _LAYOUT, vehicle=VEHICLE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A stretch during which the unit was failing, `[start_utc_ns, end_utc_ns)`."""

    start_utc_ns: int
    end_utc_ns: int
    severity: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureList:
    """Failures of the unit that somebody published."""

    title: str
    doi: str
    failures: tuple[Failure, ...]


def failure_events(published: FailureList) -> pl.DataFrame:
    """Return failures as labelled events: vehicle, kind, start_utc_ns, end_utc_ns, severity, doi."""
    return pl.DataFrame(
        [
            (VEHICLE, FAILURE, failure.start_utc_ns, failure.end_utc_ns, failure.severity, published.doi)
            for failure in published.failures
        ],
        schema={
            "vehicle": pl.String,
            "kind": pl.String,
            "start_utc_ns": pl.Int64,
            "end_utc_ns": pl.Int64,
            "severity": pl.String,
            "doi": pl.String,
        },
        orient="row",
    )


def _failure(start: str, end: str, severity: str) -> Failure:
    """The printed end is the last minute of the failure, hence `23:59` where one goes on after midnight."""
    return Failure(start_utc_ns=_utc_ns(start), end_utc_ns=_utc_ns(end) + _MINUTE_NS, severity=severity)


def _utc_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9


FAILURES_REPORTED = FailureList(
    title="Failure reports of the company, in the data set's description (UCI data set 791)",
    doi="10.24432/C5VW3R",
    failures=(
        _failure("2020-04-18 00:00", "2020-04-18 23:59", "high"),
        _failure("2020-05-29 23:30", "2020-05-30 06:00", "high"),
        _failure("2020-06-05 10:00", "2020-06-07 14:30", "high"),
        _failure("2020-07-15 14:30", "2020-07-15 19:00", "high"),
    ),
)
"""Four air leaks. The maintenance of the second is printed as 30 April, before it began; 30 May must be meant."""

FAILURES_DETAILED = FailureList(
    title="Table II of Davari et al., DSAA 2021, as two independent repositories give it",
    doi="10.1109/DSAA53316.2021.9564181",
    failures=(
        _failure("2020-04-12 11:50", "2020-04-12 23:30", "high"),
        _failure("2020-04-18 00:00", "2020-04-18 23:59", "high"),
        _failure("2020-04-19 00:00", "2020-04-19 01:30", "high"),
        _failure("2020-04-29 03:20", "2020-04-29 04:00", "high"),
        _failure("2020-04-29 22:00", "2020-04-29 22:20", "high"),
        _failure("2020-05-13 14:00", "2020-05-13 23:59", "high"),
        _failure("2020-05-18 05:00", "2020-05-18 05:30", "high"),
        _failure("2020-05-19 10:10", "2020-05-19 11:00", "high"),
        _failure("2020-05-19 22:10", "2020-05-19 23:59", "high"),
        _failure("2020-05-20 00:00", "2020-05-20 20:00", "high"),
        _failure("2020-05-23 09:50", "2020-05-23 10:10", "high"),
        _failure("2020-05-29 23:30", "2020-05-29 23:59", "high"),
        _failure("2020-05-30 00:00", "2020-05-30 06:00", "high"),
        _failure("2020-06-01 15:00", "2020-06-01 15:40", "high"),
        _failure("2020-06-03 10:00", "2020-06-03 11:00", "high"),
        _failure("2020-06-05 10:00", "2020-06-05 23:59", "high"),
        _failure("2020-06-06 00:00", "2020-06-06 23:59", "high"),
        _failure("2020-06-07 00:00", "2020-06-07 14:30", "high"),
        _failure("2020-07-08 17:30", "2020-07-08 19:00", "high"),
        _failure("2020-07-15 14:30", "2020-07-15 19:00", "medium"),
        _failure("2020-07-17 04:30", "2020-07-17 05:30", "high"),
    ),
)
"""Twenty-one intervals; the windows table is labelled by them."""
