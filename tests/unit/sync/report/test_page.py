import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from pipelines.channels import METROPT3_CHANNELS
from pipelines.ingest import bundle
from pipelines.ingest.reader import Encoding, Recording, Refusal, SensorRows
from pipelines.simulate.fleet import write_bundle
from pipelines.simulate.trip import simulate_trip
from pipelines.sync import synchronise
from pipelines.sync.report import page

VOID = {"meta", "path"}


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A simulated trip with a lying server, three steps of one clock, and a receiver that lags for ten seconds."""
    trip = simulate_trip(seed=7, vehicle=1, aba_rate_hz=20.0)
    folder = tmp_path_factory.mktemp("trip") / trip.trip_id
    write_bundle(trip, folder)
    recording = bundle.read_bundle(str(folder))
    gnss = recording.sensors["gnss"]
    place, is_late = pl.col("lat_deg", "lon_deg"), pl.col("row").is_between(500, 509)
    late = gnss.rows.with_columns(pl.when(is_late).then(place.shift(8)).otherwise(place))
    return replace(recording, sensors=recording.sensors | {"gnss": replace(gnss, rows=late)})


@pytest.fixture(scope="module")
def synced(recording):
    return synchronise(recording)


@pytest.fixture(scope="module")
def html(synced):
    return page(synced, beside={"all rows": "rows.parquet"})


class Outline(HTMLParser):
    """Which elements are open, what they say, and every attribute."""

    def __init__(self, html):
        super().__init__()
        self.open, self.attributes, self.texts = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))


def cells(html, caption):
    """Rows of the table under a caption, without its head."""
    (body,) = re.findall(rf'<p class="caption">{caption}.*?<tbody>(.*?)</tbody>', html)
    rows = re.findall("<tr>(.*?)</tr>", body)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall("<td.*?</td>", row)] for row in rows]


def test_the_page_is_well_formed_and_every_link_leads_somewhere(html):
    outline = Outline(html)

    assert outline.open == []
    anchors = {value for _, name, value in outline.attributes if name == "id"}
    links = [value for tag, name, value in outline.attributes if (tag, name) == ("a", "href")]
    assert "rows.parquet" in links
    assert {link[1:] for link in links if link.startswith("#")} == anchors


def test_the_page_fetches_and_runs_nothing(html):
    outline = Outline(html)

    assert not [name for _, name, _ in outline.attributes if name in {"src", "srcset"} or name.startswith("on")]
    assert "<script" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert not re.findall(r"https?://", html)
    assert "default-src 'none'" in html


def test_the_page_says_that_it_is_simulated_only_if_it_is(html, short):
    honest = page(synchronise(replace(short, meta={k: v for k, v in short.meta.items() if k != "simulated"})))

    assert '<span class="badge">simulated</span>' in html
    assert "simulated" not in honest


def test_every_clock_is_in_the_summary_with_its_evidence(html, synced):
    rows = {row[0]: row for row in cells(html, "What was added")}

    assert set(rows) == set(synced.clocks)
    for clock_id, facts in synced.clocks.items():
        assert (rows[clock_id][5] == "none") == (not facts["steps_ms"])
    assert rows["gps"][2] == "its own GNSS time"


def test_a_lying_server_is_named_and_its_exchanges_are_hollow(html, synced):
    lying = {server for facts in synced.clocks.values() for server in facts["servers_rejected"]}

    assert lying
    for server in lying:
        assert f"Server {server} contradicts the others and is not believed." in html
        assert f"{server}, not believed</li>" in html


def test_steps_are_drawn_where_the_clock_was_set(synced):
    html = page(synced)

    for clock_id, clock in synced.calibration.maps.items():
        if clock.method != "exchanges":
            continue
        (part,) = re.findall(rf"<h3>Clock {clock_id}</h3>(.*?)(?=<h3>|<details>)", html)
        marks = re.findall(r'<path class="mark c1" d="(.*?)"', part)
        assert [mark.count("M") for mark in marks] == [len(clock.steps)] * 2 if clock.steps else not marks


def test_rows_are_counted_by_fate(html, synced):
    for row in cells(html, "Rows: those"):
        name, rows, used = row[0], row[2], row[3]
        assert (rows, used) == (f"{synced.rows_in[name]:,}", f"{synced.rows_used[name]:,}")


def test_speed_is_shown_by_the_stamps_of_the_devices_and_by_corrected_instants(html):
    before, after = (
        re.findall(rf"<figcaption>{title}.*?</figure>", html, re.DOTALL)[0] for title in ("Before: ", "After: ")
    )

    for figure in (before, after):
        assert re.findall(r"</i>([^<]*)</li>", figure) == ["odo", "dop", "gnss"]
    lines = [re.findall(r'<path class="line c\d" d="(.*?)"', figure) for figure in (before, after)]
    assert lines[0][2] == lines[1][2]  # the receiver's time is right
    assert lines[0][1] != lines[1][1]


def test_the_place_is_shown_with_what_it_rests_on(html, synced):
    found = {row[0]: row[1] for row in cells(html, "What the place rests on")}

    assert found["satellite fixes"] == f"{synced.position['num_fixes']:,}"
    assert found["wheel diameter"] == f"{1000 * synced.position['wheel_diameter_m']:.2f} mm"
    (residuals,) = re.findall(r"<figcaption>Residual of what was measured.*?</figure>", html)
    assert {"GNSS fix", "GNSS fix, outlier", "balise"} <= set(re.findall(r"</i>([^<]*)</li>", residuals))


def test_slips_are_listed_by_time_and_drawn_on_the_way(html, synced):
    slips = synced.where.slips

    assert 0 < len(slips) <= 20
    assert [row[1] for row in cells(html, "Slips and slides")] == [slip.kind for slip in slips]
    (way,) = re.findall(r"<figcaption>Way.*?</figure>", html)
    assert sum(path.count("M") for path in re.findall(r'<path class="span c\d" d="(.*?)"', way)) == len(slips)


def test_the_time_left_between_the_speeds_is_said(html, synced):
    assert [row[0] for row in cells(html, "Time that is left")] == [skew["sensor"] for skew in synced.skews]
    assert synced.skews


def test_one_speed_alone_is_not_compared(short):
    sensors = {name: short.sensors[name] for name in ("gnss", "pneu")}

    html = page(synchronise(replace(short, sensors=sensors)))

    assert "The whole recording, by corrected instants" in html
    assert "Before: " not in html
    assert "Slip and slide" not in html


def test_what_was_not_read_is_said_with_its_reason_and_escaped(short):
    refusal = Refusal(thing="sensor odo", reason="file_missing", message="odo.csv is <not> there")

    html = page(synchronise(replace(short, refusals=(refusal,))))

    assert "Not read: odo.csv is &lt;not&gt; there" in html


def test_names_in_a_recording_are_not_taken_for_markup(short):
    nasty = "<img src=x>"
    clocks = {name: replace(clock, clock_id=nasty) for name, clock in short.clocks.items() if name == "control"}
    sensors = {"odo": replace(short.sensors["odo"], clock_id=nasty)}
    exchanges = short.exchanges.filter(clock_id="control").with_columns(clock_id=pl.lit(nasty), server_id=pl.lit(nasty))

    html = page(
        synchronise(
            replace(short, vehicle=nasty, sensors=sensors, clocks={nasty: clocks["control"]}, exchanges=exchanges)
        )
    )

    assert "<h3>Clock &lt;img src=x&gt;</h3>" in html
    assert "<img" not in html


def test_the_same_recording_gives_the_same_page(synced):
    assert page(synced) == page(synced)


def test_a_recording_of_a_source_with_one_unchecked_clock_has_a_short_page():
    rows = pl.DataFrame(
        {"row": range(100), "ts": [f"2020-02-01 00:{i // 6:02d}:{i % 6 * 10:02d}" for i in range(100)]}
        | {channel.name: np.ones(100) for channel in METROPT3_CHANNELS}
    )
    sensor = SensorRows(
        sensor="apu",
        rows=rows,
        channels=METROPT3_CHANNELS,
        clock_id="logger",
        encoding=Encoding.LOCAL_TEXT,
        nominal_rate_hz=0.1,
    )
    recording = Recording(source="metropt3", vehicle="apu", day="2020-02-01", recording_id="r", sensors={"apu": sensor})

    html = page(synchronise(recording))

    assert "Nothing ties clock logger to UTC: its stamps are believed as they are." in html
    assert "Nothing tells where on the line this was recorded." in html
    assert "speed" not in html.lower()
    assert Outline(html).open == []
