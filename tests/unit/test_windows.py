import numpy as np
import polars as pl
import pytest

from pipelines.config import WindowConfig, load_recipe
from pipelines.errors import ConfigError, ObjectNotFoundError
from pipelines.windows import assemble, cut_windows, examples, labelled_rows, load_windows, save_windows

SECOND_NS = 10**9
CONFIG = WindowConfig(
    length_s=4.0, stride_s=2.0, rate_hz=1.0, channels=("a", "b"), targets=("a",), min_valid_share=0.75
)


def aligned(a, *, b=None, seconds=None, vehicle="07", day="2026-01-05", recording="trip1"):
    seconds = np.arange(len(a)) if seconds is None else seconds
    return pl.DataFrame(
        {
            "vehicle": [vehicle] * len(a),
            "day": [day] * len(a),
            "recording_id": [recording] * len(a),
            "t_utc_ns": np.asarray(seconds, dtype=np.int64) * SECOND_NS,
            "a": pl.Series(a, dtype=pl.Float64),
            "b": pl.Series(np.zeros(len(a)) if b is None else b, dtype=pl.Float64),
        }
    )


def starts(found):
    return (found.index["t_start_utc_ns"] // SECOND_NS).to_list()


def test_windows_overlap_by_length_minus_stride():
    found = cut_windows(aligned(np.arange(8.0)), CONFIG)

    assert found.x[:, :, 0].tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]
    assert found.x.dtype == np.float32


def test_a_window_ends_one_period_after_its_last_sample():
    found = cut_windows(aligned(np.arange(4.0)), CONFIG)

    assert found.index.select("t_start_utc_ns", "t_end_utc_ns").rows() == [(0, 4 * SECOND_NS)]


def test_no_window_crosses_a_recording():
    frame = pl.concat([aligned(np.arange(5.0)), aligned(np.arange(5.0), seconds=np.arange(5, 10), recording="trip2")])

    found = cut_windows(frame, CONFIG)

    assert found.index["recording_id"].to_list() == ["trip1", "trip2"]
    assert starts(found) == [0, 5]


def test_no_window_crosses_a_gap_in_time():
    frame = aligned(np.arange(10.0), seconds=[0, 1, 2, 3, 4, 6, 7, 8, 9, 10])

    assert starts(cut_windows(frame, CONFIG)) == [0, 6]


def test_stretches_too_short_for_a_window_are_counted():
    frame = aligned(np.arange(7.0), seconds=[0, 1, 2, 10, 11, 12, 13])

    found = cut_windows(frame, CONFIG)

    assert starts(found) == [10]
    assert found.left_out == {"stretch_shorter_than_window": 1}


def test_a_missing_reading_takes_the_last_value_and_never_a_later_one():
    found = cut_windows(aligned([5.0, None, 7.0, 8.0]), CONFIG)

    assert found.x[0, :, 0].tolist() == [5, 5, 7, 8]


def test_a_window_with_too_few_valid_readings_is_left_out_by_the_name_of_the_channel():
    found = cut_windows(aligned(np.arange(6.0), b=[1, 1, None, None, 1, 1]), CONFIG)

    assert len(found.x) == 0
    assert found.left_out == {"too_few_valid:b": 2}


def test_a_window_that_starts_before_the_first_reading_is_left_out():
    found = cut_windows(aligned([None, 1.0, 2.0, 3.0, 4.0, 5.0]), CONFIG)

    assert starts(found) == [2]
    assert found.left_out == {"no_recent_reading:a": 1}


def test_a_reading_of_another_recording_fills_nothing():
    frame = pl.concat([aligned(np.ones(4)), aligned([None, 2.0, 3.0, 4.0], seconds=np.arange(4, 8), recording="trip2")])

    assert cut_windows(frame, CONFIG).left_out == {"no_recent_reading:a": 1}


@pytest.mark.parametrize("seed", range(5))
def test_every_window_is_finite_and_in_one_stretch(seed):
    rng = np.random.default_rng(seed)
    seconds = np.cumsum(rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 7], size=400))
    values = [None if is_missing else float(s) for s, is_missing in zip(seconds, rng.random(400) < 0.1, strict=True)]

    found = cut_windows(aligned(values, seconds=seconds), CONFIG)

    assert len(found.x) > 0
    assert np.isfinite(found.x).all()
    spans = (found.index["t_end_utc_ns"] - found.index["t_start_utc_ns"]).unique().to_list()
    assert spans == [4 * SECOND_NS]
    assert (found.x[:, -1, 0] - found.x[:, 0, 0] <= 4).all()


def test_an_empty_table_has_no_windows():
    found = cut_windows(aligned([]), CONFIG)

    assert found.x.shape == (0, 4, 2)
    assert found.left_out == {}


def test_a_channel_that_the_table_does_not_have_is_named():
    with pytest.raises(ConfigError, match=r"'b'.*it has a"):
        cut_windows(aligned(np.ones(4)).drop("b"), CONFIG)


def labelled():
    return pl.DataFrame(
        {
            "vehicle": ["apu"] * 4,
            "day": ["all"] * 4,
            "row": [0, 1, 2, 3],
            "f2": [1.0, 2.0, None, 4.0],
            "f1": [5.0, 6.0, 7.0, 8.0],
            "is_anomaly": [True, None, False, False],
            "fold": [0, 0, 1, 2],
        }
    )


def test_features_are_all_columns_but_label_group_and_identity_in_their_order():
    found = labelled_rows(labelled(), label="is_anomaly", group="fold")

    assert found.channels == ("f2", "f1")
    assert found.x.tolist() == [[1, 5], [4, 8]]
    assert found.y.tolist() == [1, 0]
    assert found.index.rows() == [("apu", "all", 0, 0), ("apu", "all", 3, 2)]


def test_rows_without_label_or_feature_are_counted():
    assert labelled_rows(labelled(), label="is_anomaly", group="fold").left_out == {"no_label": 1, "missing_feature": 1}


def test_the_recipe_decides_between_windows_and_rows():
    assert examples(labelled(), load_recipe("metro_compressor_windows")).y is not None
    with pytest.raises(ConfigError, match="tmp_bearing_c"):
        examples(labelled(), load_recipe("smoke"))


def window_set(values, **changes):
    found = cut_windows(aligned(values), CONFIG)
    parts = {"train": np.array([0, 1]), "validation": np.array([2]), "test": np.array([4, 5])}
    arguments = {"table": "tables/bundle", "table_version": 3, "left_out": {"overlaps_test": 1}} | changes
    return assemble(found, parts, targets=("a",), **arguments)


def test_a_stored_set_reads_back_as_it_was(tmp_path):
    windows = window_set(np.arange(20.0))

    read = load_windows(save_windows(str(tmp_path / "w"), windows))

    for part in ("train_x", "validation_x", "test_x"):
        np.testing.assert_array_equal(getattr(read, part), getattr(windows, part))
    assert read.test_index.equals(windows.test_index)
    assert read.train_y is None
    assert (read.channels, read.targets, read.table, read.table_version) == (("a", "b"), ("a",), "tables/bundle", 3)
    assert (read.digest, read.counts) == (windows.digest, windows.counts)
    assert read.counts == {"train": 2, "validation": 1, "test": 2, "overlaps_test": 1}


def test_labels_are_stored_with_the_rows(tmp_path):
    found = labelled_rows(labelled(), label="is_anomaly", group="fold")
    parts = {"train": np.array([0]), "validation": np.array([1]), "test": np.array([1])}
    windows = assemble(found, parts, targets=(), table="t", table_version=0, left_out={})

    read = load_windows(save_windows(str(tmp_path), windows))

    assert read.train_y.tolist() == [1]
    assert read.test_index["fold"].to_list() == [2]


def test_the_vehicle_days_of_all_examples_are_kept(tmp_path):
    windows = window_set(np.arange(20.0))

    read = load_windows(save_windows(str(tmp_path), windows), parts=())

    assert read.vehicle_days == windows.vehicle_days == (("07", "2026-01-05"),)


def test_parts_that_are_not_asked_for_are_not_read(tmp_path):
    location = save_windows(str(tmp_path), window_set(np.arange(20.0)))
    for file in tmp_path.rglob("test_*"):
        file.unlink()

    read = load_windows(location, parts=("train", "validation"))

    assert (len(read.train_x), len(read.test_x), len(read.test_index)) == (2, 0, 0)


def test_the_digest_follows_the_content_and_not_where_it_came_from():
    windows = window_set(np.arange(20.0))

    assert windows.digest == window_set(np.arange(20.0), table="elsewhere").digest
    assert windows.digest != window_set(np.arange(20.0) + 1e-3).digest


def test_a_set_without_manifest_is_not_there(tmp_path):
    location = save_windows(str(tmp_path), window_set(np.arange(20.0)))
    (tmp_path / "windows.json").unlink()

    with pytest.raises(ObjectNotFoundError):
        load_windows(location)
