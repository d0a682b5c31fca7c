import re

import pytest

from pipelines import data_docs
from pipelines.validation import Check, Verdict


def check(*, passed, **changes):
    given = {
        "type": "expect_column_gaps_to_be_at_most",
        "kwargs": {"column": "speed_mps", "max_gap_s": 60.0},
        "expected": "speed_mps is never without a reading for longer than 60 s.",
        "observed": "312 s",
        "value": 312.0,
        "bound": "≤ 60 s",
        "examples": () if passed else ("312.000 s from 2026-01-05T05:00:29.000Z",),
        "why": "a < b & c",
    }
    return Check(**{**given, **changes}, passed=passed)


@pytest.fixture
def pages():
    """Both pages of a batch that failed."""
    verdict = Verdict(suite="odd", num_rows=1200, checks=(check(passed=True, why="good"), check(passed=False)))
    identity = {"landed": "lake/landing/<odd>", "content": "39da3f"}
    index = data_docs.index_page(
        "trip <1>",
        identity=identity,
        verdicts={"odd.html": verdict},
        refused={"07_2026-01-05": "speed <was> lost"},
        links={"what was quarantined": "quarantine.json"},
    )
    return index, data_docs.suite_page("trip <1>", identity=identity, verdict=verdict)


def text_of(page):
    return re.sub(r"<[^>]+>", " ", page.partition("</style>")[2])


def test_a_page_says_what_was_expected_and_found_the_bound_and_why(pages):
    text = text_of(pages[1])

    for part in ("speed_mps is never without", "312 s", "≤ 60 s", "from 2026-01-05T05:00:29.000Z", "a &lt; b &amp; c"):
        assert part in text


def test_what_failed_comes_first(pages):
    assert pages[1].index(">failed<") < pages[1].index(">passed<")
    assert "1 of 2 checks failed" in pages[1]


def test_the_index_leads_to_every_page_and_says_what_is_not_published(pages):
    index = pages[0]

    assert '<a href="odd.html">' in index
    assert '<a href="quarantine.json">' in index
    assert "speed &lt;was&gt; lost" in index
    assert "lake/landing/&lt;odd&gt;" in index
    assert '<a href="index.html">' in pages[1]


def test_nothing_of_the_data_becomes_markup(pages):
    for page in pages:
        assert "<1>" not in page
        assert "<odd>" not in page
        assert "<was>" not in page


def test_pages_fetch_nothing_and_run_nothing(pages):
    for page in pages:
        assert re.findall(r"(?:src|href)=[\"']?(?:https?:)?//[^\"'>]*", page) == []
        assert "<script" not in page
        assert "@import" not in page


def test_a_batch_in_which_all_passed_says_so():
    verdict = Verdict(suite="odd", num_rows=1, checks=(check(passed=True),))

    page = data_docs.index_page("trip", identity={}, verdicts={"odd.html": verdict}, refused={}, links={})

    assert "all 1 checks passed" in page
    assert "Not published" not in page
