import re
from xml.etree import ElementTree

import numpy as np
import pytest

from pipelines.sync.report.charts import (
    BUCKETS,
    HEIGHT,
    MAX_DOTS,
    WIDTH,
    Axis,
    Band,
    Dots,
    Line,
    Marks,
    Spans,
    chart,
    number_axis,
    time_axis,
    timeline,
)

UNIT = Axis("", 0.0, 1.0, ())


def paths(html):
    """Path data by the class of the path, without the grid."""
    picture = ElementTree.fromstring(re.search(r"<svg.*</svg>", html).group())
    return {path.get("class"): path.get("d") for path in picture if path.get("class") != "grid"}


def drawn(layer, x=UNIT, y=UNIT):
    (path,) = paths(chart("a chart", [layer], x=x, y=y)).values()
    return path


def a(*values):
    return np.array(values, dtype=float)


def test_the_origin_is_at_the_lower_left():
    assert drawn(Line(a(0, 1), a(0, 1), "", 0)) == f"M0 {HEIGHT}L{WIDTH} 0"


def test_a_line_is_interrupted_by_what_is_not_known_and_by_gaps():
    unknown = drawn(Line(a(0, 0.25, 0.5, 0.75, 1), a(0, 0, np.nan, 0, 0), "", 0))
    gap = drawn(Line(a(0, 0.1, 0.9, 1), a(0, 0, 0, 0), "", 0, max_gap=0.5))

    assert unknown == f"M0 {HEIGHT}L{WIDTH // 4} {HEIGHT}M{3 * WIDTH // 4} {HEIGHT}L{WIDTH} {HEIGHT}"
    assert gap.count("M") == 2


def test_points_outside_the_time_shown_are_left_out_and_those_too_high_are_on_the_edge():
    path = drawn(Dots(a(-1, 0.5, 2), a(0.5, 7.0, 0.5), "", 0))

    assert path == f"M{WIDTH // 2} 0h0"


@pytest.mark.parametrize("seed", range(3))
def test_of_many_points_of_a_line_the_extremes_are_kept(seed):
    y_N = np.random.default_rng(seed).uniform(0.2, 0.8, size=100_000)
    y_N[[31_234, 77_777]] = 0.0, 1.0

    path = drawn(Line(np.linspace(0, 1, len(y_N)), y_N, "", 0))

    heights = [int(pair.split(" ")[1]) for pair in path[1:].split("L")]
    assert (min(heights), max(heights)) == (0, HEIGHT)
    assert len(heights) <= 3 * BUCKETS


def test_of_many_dots_some_are_drawn():
    path = drawn(Dots(np.linspace(0, 1, 100_000), np.zeros(100_000), "", 0))

    assert MAX_DOTS / 2 < path.count("M") <= MAX_DOTS


def test_a_band_is_a_closed_outline():
    assert drawn(Band(a(0, 1), a(0, 0), a(1, 1), "", 0)) == f"M0 0L{WIDTH} 0L{WIDTH} {HEIGHT}L0 {HEIGHT}z"


def test_a_span_is_cut_at_the_edges_and_one_beyond_them_is_not_drawn():
    assert drawn(Spans(a(-1, 3), a(0.5, 4), "", 0)) == f"M0 0H{WIDTH // 2}V{HEIGHT}H0z"


def test_a_mark_is_a_vertical_stroke():
    assert drawn(Marks(a(0.5), "", 0)) == f"M{WIDTH // 2} 0V{HEIGHT}"


def test_the_legend_names_what_is_drawn_once_and_nothing_else():
    layers = [
        Dots(a(0.5), a(0.5), "server", 2),
        Dots(a(0.6), a(0.5), "server", 2),
        Dots(a(0.5), a(0.5), "liar", 3, is_hollow=True),
        Line(a(), a(), "absent", 0),
        Line(a(0, 1), a(0, 0), "", 0),
    ]

    html = chart("a chart", layers, x=UNIT, y=UNIT)

    assert re.findall(r"</i>([^<]*)</li>", html) == ["server", "liar"]
    assert 'class="dots c3 hollow"' in html


def test_names_from_a_recording_are_not_taken_for_markup():
    html = chart("<b>", [Dots(a(0.5), a(0.5), "<script>", 2)], x=UNIT, y=UNIT, note='"&')

    assert "<script>" not in html
    assert "<b>" not in html.replace("<b></b>", "")
    assert "&quot;&amp;" in html


def test_a_timeline_has_its_rows_from_top_to_bottom():
    html = timeline("rows", {"odo": [Spans(a(0), a(1), "rows", 2)], "evt": [Marks(a(0.5), "event", 0)]}, x=UNIT)

    tops = {name: int(re.match(r"M\d+ (\d+)", path).group(1)) for name, path in paths(html).items()}
    assert tops["span c2"] < HEIGHT / 2 < tops["mark c0"]
    assert html.index(">odo<") < html.index(">evt<")


def test_times_are_written_where_they_are():
    first_ns = int(np.datetime64("2026-10-25T00:58:30", "ns").astype(np.int64))

    axis = time_axis(first_ns, first_ns + 1800 * 10**9)

    assert axis.label == "UTC, 2026-10-25"
    assert (axis.low, axis.high) == (0.0, 1800.0)
    assert [text for _, text in axis.ticks] == ["01:00", "01:05", "01:10", "01:15", "01:20", "01:25"]
    assert axis.ticks[0][0] == pytest.approx(90.0)


def test_short_times_are_written_with_seconds():
    axis = time_axis(0, 40 * 10**9)

    assert [text for _, text in axis.ticks] == ["00:00:00", "00:00:10", "00:00:20", "00:00:30", "00:00:40"]


@pytest.mark.parametrize("days", [1, 30, 4000])
def test_however_long_a_recording_its_axis_has_few_ticks(days):
    assert len(time_axis(0, days * 86_400 * 10**9).ticks) <= 10


@pytest.mark.parametrize("values", [[], [np.nan], [3.0], [0.0, 0.0], [1e9, 1e9], [-1e-6, 1e-6], [1e-300, 2e-300]])
def test_an_axis_over_next_to_nothing_has_a_length(values):
    axis = number_axis("m", np.array(values))

    assert axis.high > axis.low
    assert np.isfinite(axis.scaled(np.array(values))).all() or not np.isfinite(values).all()


@pytest.mark.parametrize("seed", range(5))
def test_ticks_are_round_and_within_the_axis(seed):
    random = np.random.default_rng(seed)
    values = random.normal(size=10) * 10.0 ** random.integers(-6, 6)

    axis = number_axis("m", values)

    assert 2 <= len(axis.ticks) <= 8
    for place, text in axis.ticks:
        assert axis.low <= place <= axis.high
        assert float(text.replace(",", "")) == pytest.approx(place, abs=1e-9 * axis.span)
