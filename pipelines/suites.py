"""The expectation suites as data: where they are, and which columns they look at.

Apart from `validation`, because Great Expectations takes seconds to import and not every step needs it.
"""

import json
from pathlib import Path
from typing import Any

from pipelines.errors import SuiteError

SUITES = Path(__file__).parents[1] / "expectations"


def read_suite(name: str) -> dict[str, Any]:
    """The suite `expectations/<name>.json` as it is written; each of its expectations must say why it is there."""
    path = SUITES / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in SUITES.glob("*.json")))
        raise SuiteError(f"no suite {name!r}: expected one of {known}")
    try:
        spec: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as err:
        raise SuiteError(f"{path.name}: not valid JSON: {err}") from err
    unexplained = [one["type"] for one in spec["expectations"] if not one.get("meta", {}).get("why")]
    if unexplained:
        raise SuiteError(f"{path.name}: {unexplained[0]} has no meta.why; each expectation says why it is there")
    return spec


def columns_of(suite: str) -> list[str]:
    """Columns that a suite looks at, one by one or in pairs."""
    columns = {
        expectation["kwargs"].get(name)
        for expectation in read_suite(suite)["expectations"]
        for name in ("column", "column_A", "column_B")
    }
    return sorted(column for column in columns if column)
