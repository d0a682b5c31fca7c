import csv

import numpy as np
import pytest
import torch

from pipelines import registry
from pipelines.config import load_recipe
from pipelines.errors import ObjectNotFoundError, RecordingError
from pipelines.ingest.metropt3_windows import FEATURES
from pipelines.models import build_model, fit_statistics, score_windows
from pipelines.scoring import score_file
from pipelines.tracking import open_run

pytestmark = pytest.mark.usefixtures("mlflow")

MODEL = "models:/compressor_scores/1"


@pytest.fixture(scope="module")
def compressor(mlflow):
    """A registered classifier of compressor windows."""
    recipe = load_recipe("metro_compressor_windows").model_copy(update={"name": "compressor_scores"})
    x_NF = np.random.default_rng(0).normal(size=(60, len(FEATURES))).astype(np.float32)
    torch.manual_seed(0)
    model = build_model(recipe, num_channels=len(FEATURES))
    fit_statistics(model, x_NF)
    registry.register(
        model.eval(),
        recipe=recipe,
        run_id=open_run("scores", experiment=recipe.name).run_id,
        example_x=x_NF[:4],
        columns=FEATURES,
        threshold=float(np.median(score_windows(model, x_NF))),
        tags={},
    )


@pytest.fixture
def table(tmp_path):
    """Write a table without labels; each row is given as the features in which it differs from 0.5."""

    def write(*rows):
        lines = [",".join(FEATURES)]
        lines += [row if isinstance(row, str) else ",".join(str(row.get(f, 0.5)) for f in FEATURES) for row in rows]
        path = tmp_path / "new.csv"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write


def lines_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_scored_in_the_order_of_the_file_and_bad_ones_say_why(compressor, table, tmp_path):
    data = table({}, {"TP2_mean": "high"}, {"H1_var": -3.0}, {"TP2_mean": "inf", "TP3_max": ""}, "1,2,3", {})

    counts = score_file(MODEL, data=data, out=str(tmp_path / "scores.csv"))

    lines = lines_of(tmp_path / "scores.csv")
    assert [line["row"] for line in lines] == ["0", "1", "2", "3", "4", "5"]
    assert [bool(line["score"]) for line in lines] == [True, False, True, False, False, True]
    assert [bool(line["reason"]) for line in lines] == [False, True, False, True, True, False]
    assert lines[1]["reason"] == "TP2_mean 'high': not_a_number"
    assert lines[3]["reason"] == "TP2_mean 'inf': not_finite; TP3_max '': value_missing"
    assert lines[4]["reason"].startswith("TP2_median '': value_missing; TP2_var '': value_missing; ")
    assert len(lines[4]["reason"].split("; ")) == 10  # and not all that is wrong with a line that was cut off
    assert lines[0]["score"] == lines[5]["score"]
    assert (counts["rows"], counts["scored"]) == (6, 3)


def test_an_anomaly_is_a_score_at_or_above_the_threshold(compressor, table, tmp_path):
    rng = np.random.default_rng(1)
    data = table(*(dict(zip(FEATURES, rng.normal(size=len(FEATURES)), strict=True)) for _ in range(20)))

    counts = score_file(MODEL, data=data, out=str(tmp_path / "scores.csv"))

    lines = lines_of(tmp_path / "scores.csv")
    threshold = np.float32(counts["threshold"])
    assert all((np.float32(line["score"]) >= threshold) == (line["is_anomaly"] == "true") for line in lines)
    assert 0 < counts["anomalies"] == sum(line["is_anomaly"] == "true" for line in lines) < 20


def test_a_table_of_bad_rows_alone_has_no_score_and_every_reason(compressor, table, tmp_path):
    counts = score_file(MODEL, data=table({"TP2_mean": "x"}, {"TP2_mean": "y"}), out=str(tmp_path / "scores.csv"))

    assert (counts["rows"], counts["scored"], counts["anomalies"]) == (2, 0, 0)
    assert [line["reason"] for line in lines_of(tmp_path / "scores.csv")] == [
        "TP2_mean 'x': not_a_number",
        "TP2_mean 'y': not_a_number",
    ]


def test_an_empty_table_is_nothing_to_score(compressor, table, tmp_path):
    with pytest.raises(RecordingError, match=r"new\.csv: nothing to score"):
        score_file(MODEL, data=table(), out=str(tmp_path / "scores.csv"))

    assert not (tmp_path / "scores.csv").exists()


def test_a_table_without_a_feature_names_it(compressor, tmp_path):
    (tmp_path / "new.csv").write_text("TP2_mean\n1.0\n")

    with pytest.raises(RecordingError, match=r"new\.csv.*TP2_max"):
        score_file(MODEL, data=str(tmp_path / "new.csv"), out=str(tmp_path / "scores.csv"))


def test_windows_of_recordings_are_scored_with_their_bounds(job, fleet, tmp_path):
    counts = score_file("models:/short_trips@champion", data=str(fleet / "bundles"), out=str(tmp_path / "scores.csv"))

    lines = lines_of(tmp_path / "scores.csv")
    trips = {line["recording_id"] for line in lines}
    assert counts["rows"] == counts["scored"] == len(lines)
    assert trips == {f"sim001-2026-01-{day:02d}-1" for day in (5, 6, 7, 8)}
    start, end = (np.datetime64(lines[0][name].removesuffix("Z")) for name in ("t_start_utc", "t_end_utc"))
    assert end - start == np.timedelta64(60, "s")
    assert str(start).startswith("2026-01-05T05:")


def test_data_that_are_not_there_are_named(job, tmp_path):
    with pytest.raises((ObjectNotFoundError, RecordingError), match="nowhere"):
        score_file("models:/short_trips@champion", data=str(tmp_path / "nowhere"), out=str(tmp_path / "scores.csv"))
