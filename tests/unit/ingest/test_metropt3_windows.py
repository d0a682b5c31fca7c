import polars as pl
import pytest

from pipelines.errors import RecordingError
from pipelines.ingest.metropt3_windows import FEATURES, read_windows


def write(tmp_path, *rows, columns=(*FEATURES, "is_anomaly", "fold")):
    path = tmp_path / "windows.csv"
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def row(label="false", fold=1, **values):
    return [*(values.get(name, i / 8) for i, name in enumerate(FEATURES)), label, fold]


def test_the_published_table_is_read_whole(real_data):
    table = read_windows(str(real_data("metropt3-apu-windows", "train.csv")))

    assert table.rows.shape == (4662, 78)
    assert table.rows["is_anomaly"].sum() == 217
    assert table.rows["fold"].unique().sort().to_list() == [0, 1, 2, 3]
    assert (len(table.quarantined), table.num_duplicates, table.ignored_columns) == (0, 16, ())


def test_features_are_named_by_signal_and_statistic_in_the_published_order(real_data):
    path = real_data("metropt3-apu-windows", "train.csv")

    assert (*FEATURES, "is_anomaly", "fold") == tuple(path.read_text().splitlines()[0].split(","))


@pytest.mark.parametrize("columns", [FEATURES, (*FEATURES, "is_anomaly")])
def test_rows_to_be_scored_may_lack_label_and_fold(tmp_path, columns):
    table = read_windows(write(tmp_path, row()[: len(columns)], columns=columns))

    assert table.rows.columns == ["row", *columns]
    assert table.rows.schema[FEATURES[0]] == pl.Float64


@pytest.mark.parametrize(
    ("text", "label"), [("true", True), ("TRUE", True), ("1", True), ("1.0", True), ("False", False), ("0", False)]
)
def test_labels_are_read_in_every_usual_spelling(tmp_path, text, label):
    assert read_windows(write(tmp_path, row(label=text))).rows["is_anomaly"].to_list() == [label]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"TP2_mean": "inf"}, "not_finite"),
        ({"TP2_mean": "NaN"}, "value_missing"),
        ({"TP2_mean": ""}, "value_missing"),
        ({"TP2_mean": "high"}, "not_a_number"),
        ({"label": "maybe"}, "not_an_integer"),
        ({"label": "2"}, "not_a_label"),
        ({"label": ""}, "value_missing"),
        ({"fold": 1.5}, "not_an_integer"),
    ],
)
def test_a_bad_row_is_quarantined_with_its_number_and_reason(tmp_path, bad, reason):
    table = read_windows(write(tmp_path, row(H1_mean=1), row(**bad), row(H1_mean=2)))

    assert table.rows["row"].to_list() == [0, 2]
    assert table.quarantined.select("row", "reason").rows() == [(1, reason)]


def test_missing_columns_are_listed_up_to_ten(tmp_path):
    with pytest.raises(RecordingError, match=r"lacks 74 of 75 columns: TP2_max, .*H1_mean, …; it has TP2_mean"):
        read_windows(write(tmp_path, [1.0], columns=["TP2_mean"]))


def test_duplicates_are_counted_and_kept(tmp_path):
    table = read_windows(write(tmp_path, row(), row(), row(), row(label="true")))

    assert (len(table.rows), table.num_duplicates) == (4, 2)


def test_further_columns_are_named_and_ignored(tmp_path):
    table = read_windows(write(tmp_path, [*row(), "x"], columns=(*FEATURES, "is_anomaly", "fold", "note")))

    assert table.ignored_columns == ("note",)
    assert "note" not in table.rows.columns
