import json

import polars as pl
import pytest

from pipelines import suites, validation


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """Hold columns against one expectation, as a suite would."""
    monkeypatch.setattr(suites, "SUITES", tmp_path)

    def run(type_, columns, **kwargs):
        spec = {"name": "odd", "expectations": [{"type": type_, "kwargs": kwargs, "meta": {"why": "of a reason"}}]}
        (tmp_path / "odd.json").write_text(json.dumps(spec))
        (check,) = validation.check(pl.DataFrame(columns), suite="odd").checks
        return check

    return run
