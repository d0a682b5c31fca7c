from pipelines.ingest import barcelona
from pipelines.ingest.reader import Encoding


def test_a_cell_is_read_by_day_with_its_gaps(real_data):
    path = real_data("barcelona-lte-cells", "LesCorts.csv")

    recordings = list(barcelona.read(str(path)))

    rows = [recording.sensors["cell"].rows for recording in recordings]
    assert sum(map(len, rows)) == 6892
    assert (recordings[0].vehicle, recordings[0].day, recordings[-1].day) == ("LesCorts", "2019-01-12", "2019-01-22")
    assert sum(frame["rb_down"].null_count() for frame in rows) == 195
    assert sum(frame["mcs_up"].null_count() for frame in rows) == 217
    assert {recording.sensors["cell"].encoding for recording in recordings} == {Encoding.LOCAL_TEXT}
    assert recordings[1].sensors["cell"].nominal_rate_hz * 86_400 == len(rows[1]) == 720


def test_columns_keep_their_published_order_and_nothing_is_refused(real_data):
    path = real_data("barcelona-lte-cells", "ElBorn.csv")

    first = next(barcelona.read(str(path)))

    assert first.sensors["cell"].rows.columns[2:] == path.read_text().splitlines()[0].split(",")[1:]
    assert (first.refusals, first.sensors["cell"].rejected) == ((), {})
