"""One line for each recording of a batch, with the address of its report."""

from collections.abc import Mapping
from typing import Any

from pipelines.sync.report.elements import Cell, Link, document, heading, table


def overview(title: str, passports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page about several recordings as an HTML document.

    Args:
        title: What they have in common.
        passports: `SyncedRecording.report()` of each, with `simulated`, by the address of its report.
    """
    return document(
        f"{title}: time and place",
        heading(title, is_simulated=any(passport["simulated"] for passport in passports.values())),
        "<main>",
        table(
            "Recordings",
            ["recording", "day", "rows", "used", "clocks tied", "worst clock σ, ms", "place σ, m", "not read"],
            [_line(target, passport) for target, passport in passports.items()],
        ),
        "</main>",
    )


def _line(target: str, passport: Mapping[str, Any]) -> list[Cell]:
    clocks = passport["clocks"].values()
    return [
        Link(passport["recording_id"], target),
        passport["day"],
        sum(passport["rows_in"].values()),
        sum(passport["rows_used"].values()),
        f"{sum(clock['method'] != 'unchecked' for clock in clocks)} of {len(clocks)}",
        max((clock["sigma_max_ms"] for clock in clocks if clock["sigma_max_ms"] is not None), default=None),
        passport["position"].get("sigma_median_m"),
        len(passport["refusals"]),
    ]
