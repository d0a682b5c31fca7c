"""The report of time and place in a real browser: on a desk, on a phone, by keyboard, without a network."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

from pipelines.simulate import simulate_trip, write_bundle
from pipelines.sync import folder

FLAGS = ["--no-sandbox", "--disable-gpu"]
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Address of the report of a simulated trip whose name is long."""
    bundle, out = tmp_path_factory.mktemp("trip"), tmp_path_factory.mktemp("out")
    write_bundle(simulate_trip(seed=7, vehicle=1, trip_minutes=12, aba_rate_hz=20.0), bundle)
    manifest = bundle / "meta.json"
    manifest.write_text(manifest.read_text().replace('-2026-01-05-1"', '_of_an_uncommonly_long_and_unbroken_name"'))
    folder.sync(str(bundle), str(out))
    return f"file://{out}/report.html"


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium")
    assert path, "chromium is not on the path; this test needs a real browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(params=[DESK, PHONE], ids=["desk", "phone"])
def page(browser, report, request):
    context = browser.new_context(viewport=request.param)
    page = context.new_page()
    page.asked, page.said = [], []
    page.on("request", lambda asked: page.asked.append(asked.url))
    page.on("console", lambda said: page.said.append(said.text))
    page.goto(report)
    yield page
    context.close()


def test_nothing_but_the_file_is_asked_for_and_the_browser_has_no_complaint(page, report):
    assert page.asked == [report]
    assert page.said == []


def test_the_page_fits_the_window_and_its_text_can_be_read(page):
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    sizes = page.evaluate(
        "[...document.querySelectorAll('span, td, th, p, li')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert sizes
    assert min(sizes) >= 11.0


def test_no_label_of_an_axis_lies_on_another(page):
    overlaps = page.evaluate(
        """[...document.querySelectorAll('.x')].filter(axis => {
             const boxes = [...axis.querySelectorAll('span')].map(e => e.getBoundingClientRect());
             boxes.sort((a, b) => a.left - b.left);
             return boxes.some((box, i) => i > 0 && box.left < boxes[i - 1].right);
           }).length"""
    )
    assert overlaps == 0


def test_every_picture_has_a_size_and_says_what_it_shows(page):
    pictures = page.evaluate(
        """[...document.querySelectorAll('svg')].map(e => [
             e.getAttribute('aria-label'), e.getBoundingClientRect().width, e.getBoundingClientRect().height])"""
    )
    assert len(pictures) > 10
    for label, width, height in pictures:
        assert label
        assert width > 200, label
        assert height > 100, label


def test_links_tables_and_what_is_folded_up_can_be_reached_by_keyboard(page):
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            page.keyboard.press("Enter")

    assert {"A.", "DIV.table", "SUMMARY."} <= reached
    assert page.evaluate("document.querySelector('details').open")
