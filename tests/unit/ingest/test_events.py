import polars as pl
import pytest

from pipelines.errors import RecordingError
from pipelines.ingest import events

HEADER = "vehicle,kind,start_utc,end_utc"
GOOD = "v1,hot_bearing,2026-01-06T05:26:22Z,2026-01-06T06:00:00Z"
START_NS, END_NS = 1_767_677_182 * 10**9, 1_767_679_200 * 10**9

pytestmark = pytest.mark.usefixtures("lake")


@pytest.fixture
def land(tmp_path):
    """Land a folder whose reports are these lines."""

    def write(*lines, header=HEADER, name="events.csv"):
        path = tmp_path / "reports" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *lines]) + "\n")
        events.land(str(tmp_path / "reports"), source="bundle")

    return write


def test_a_report_is_read_in_utc(land):
    land(GOOD, "v2,leak,2026-01-06T06:26:22.5+01:00,2026-01-06T08:00:00+0200")

    assert events.load("bundle").rows() == [
        ("v1", "hot_bearing", START_NS, END_NS),
        ("v2", "leak", START_NS + 5 * 10**8, END_NS),
    ]


def test_the_same_report_lands_once_and_a_new_one_joins_it(land):
    land(GOOD)
    land(GOOD, GOOD, GOOD.replace("v1", "v2"))

    assert events.load("bundle")["vehicle"].to_list() == ["v1", "v2"]


def test_the_truth_of_a_simulated_fleet_is_its_report(land):
    land(GOOD + ",trip-1", header=HEADER + ",trip_id", name="truth/events.csv")

    assert events.load("bundle").columns == ["vehicle", "kind", "start_utc_ns", "end_utc_ns"]


def test_a_folder_without_reports_changes_nothing(tmp_path):
    events.land(str(tmp_path), source="bundle")

    assert events.load("bundle").is_empty()
    assert events.load("bundle").schema == pl.Schema(events.SCHEMA)


def test_published_failures_stay_when_reports_land(land, tmp_path):
    published = len(events.load("metropt3"))
    land(GOOD)

    events.land(str(tmp_path / "reports"), source="metropt3")

    assert published == 21
    assert len(events.load("metropt3")) == 22


@pytest.mark.parametrize(
    "bad",
    [
        "v1,hot_bearing,yesterday,2026-01-06T06:00:00Z",
        "v1,hot_bearing,2026-01-06 05:26:22,2026-01-06 06:00:00",
        "v1,hot_bearing,2026-01-06T05:26:22Z,",
        "v1,hot_bearing,2026-01-06T07:00:00Z,2026-01-06T06:00:00Z",
        "v1,hot_bearing,2026-01-06T06:00:00Z,2026-01-06T06:00:00Z",
        "v1,,2026-01-06T05:26:22Z,2026-01-06T06:00:00Z",
        ",hot_bearing,2026-01-06T05:26:22Z,2026-01-06T06:00:00Z",
        "v1,hot_bearing",
    ],
    ids=["no stamp", "no zone", "no end", "end first", "no length", "no kind", "no vehicle", "cut off"],
)
def test_a_bad_line_is_named_with_what_it_says_and_nothing_of_its_file_lands(land, bad):
    with pytest.raises(RecordingError, match=r"events\.csv: line 3: vehicle .*would be right") as raised:
        land(GOOD, bad)

    assert all(repr(value) in str(raised.value) for value in bad.split(",") if value)
    assert events.load("bundle").is_empty()


def test_a_missing_column_is_named(land):
    with pytest.raises(RecordingError, match=r"events\.csv: column 'end_utc' is missing; expected vehicle, kind"):
        land("v1,leak,2026-01-06T05:26:22Z", header="vehicle,kind,start_utc")


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00\x01,\x80\n\x81", HEADER.encode() + b"\na,b,c,d,e\n"])
def test_what_is_no_table_of_reports_is_named(data, tmp_path):
    (tmp_path / "events.csv").write_bytes(data)

    with pytest.raises(RecordingError, match=r"events\.csv: no CSV table with vehicle, kind, start_utc, end_utc"):
        events.land(str(tmp_path), source="bundle")
