from itertools import combinations

import numpy as np
import polars as pl
import pytest

from pipelines.config import SplitConfig
from pipelines.errors import ConfigError
from pipelines.splits import by_group, by_time, share_in_events, split

SECOND_NS = 10**9
NO_EVENTS = pl.DataFrame(schema={"vehicle": pl.String, "kind": pl.String, "start_utc_ns": int, "end_utc_ns": int})


def trips(*, vehicles=2, days=4, trips_per_day=2, windows=10, length_s=60, stride_s=20):
    """Windows of trips six hours apart; neighbouring windows overlap."""
    rows = []
    for vehicle in range(vehicles):
        for day in range(days):
            for trip in range(trips_per_day):
                begin_s = day * 86_400 + (6 * trip + vehicle) * 3_600
                for start_s in range(begin_s, begin_s + windows * stride_s, stride_s):
                    bounds = (start_s * SECOND_NS, (start_s + length_s) * SECOND_NS)
                    rows.append((f"v{vehicle}", f"2026-01-{day + 1:02d}", f"v{vehicle}-{day}-{trip}", *bounds))
    columns = ["vehicle", "day", "recording_id", "t_start_utc_ns", "t_end_utc_ns"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def event(start_s, end_s, *, vehicle="v0", kind="hot_bearing"):
    row = (vehicle, kind, start_s * SECOND_NS, end_s * SECOND_NS)
    return pl.DataFrame([row], schema=NO_EVENTS.schema, orient="row")


def divide(index, *, events=NO_EVENTS, kind="hot_bearing", **config):
    return split(index, SplitConfig(**config), events=events, kind=kind)


def num_overlaps(index, positions, others):
    pairs = index[positions].join(index[others], on="vehicle")
    is_apart = (pl.col("t_end_utc_ns") <= pl.col("t_start_utc_ns_right")) | (
        pl.col("t_end_utc_ns_right") <= pl.col("t_start_utc_ns")
    )
    return len(pairs.filter(~is_apart))


@pytest.mark.parametrize("train_share", [0.2, 0.5, 0.8])
def test_held_out_days_are_later_than_all_others(train_share):
    index = trips()

    parts = divide(index, train_share=train_share).parts

    assert index[parts["train"]]["day"].max() < index[parts["test"]]["day"].min()
    assert index[parts["validation"]]["day"].max() < index[parts["test"]]["day"].min()


def test_days_until_the_given_one_are_trained_on():
    index = trips()

    parts = divide(index, train_until="2026-01-04").parts

    assert index[parts["test"]]["day"].unique().to_list() == ["2026-01-04"]
    assert "2026-01-03" in index[np.concatenate([parts["train"], parts["validation"]])]["day"]


def test_no_recording_is_divided_between_training_and_validation():
    index = trips()

    parts = divide(index, validation_share=0.3).parts

    used = [set(index[parts[part]]["recording_id"]) for part in ("train", "validation", "test")]
    assert [len(part) for part in used] == [6, 2, 8]
    assert len(set.union(*used)) == 16


def test_validation_takes_the_newest_recordings():
    index = trips(vehicles=1)

    parts = divide(index, validation_share=0.25).parts

    assert index[parts["validation"]]["recording_id"].unique().to_list() == ["v0-1-1"]


@pytest.mark.parametrize("shape", [{}, {"days": 1}, {"days": 1, "trips_per_day": 1, "vehicles": 1, "windows": 40}])
def test_no_window_overlaps_one_of_another_part(shape):
    index = trips(**shape)

    parts = divide(index).parts

    assert num_overlaps(index, parts["train"], parts["train"]) > len(parts["train"])
    for one, other in combinations(parts.values(), 2):
        assert num_overlaps(index, one, other) == 0


def test_a_single_recording_is_divided_by_time_and_the_windows_between_are_left_out():
    index = trips(vehicles=1, days=1, trips_per_day=1, windows=20)

    found = divide(index, train_until="2026-04-01", validation_share=0.2)

    assert found.parts["train"].tolist() == [0, 1, 2, 3]
    assert found.parts["validation"].tolist() == [6, 7]
    assert found.parts["test"].tolist() == list(range(10, 20))
    assert found.left_out == {"overlaps_test": 2, "overlaps_validation": 2}


def test_windows_in_a_known_event_are_held_out_but_never_trained_on():
    index = trips(vehicles=1)
    known = pl.concat([event(0, 100), event(3 * 86_400, 3 * 86_400 + 100)])

    found = divide(index, events=known)

    assert found.left_out == {"known_event": 5}
    assert (share_in_events(index[found.parts["test"]], known, kind="hot_bearing") > 0).sum() == 5
    for part in ("train", "validation"):
        assert (share_in_events(index[found.parts[part]], known, kind="hot_bearing") == 0).all()


@pytest.mark.parametrize("other", [{"vehicle": "v1"}, {"kind": "compressor_leak"}])
def test_events_of_another_vehicle_or_kind_leave_out_nothing(other):
    assert divide(trips(vehicles=1), events=event(0, 100, **other)).left_out == {}


def test_splitting_twice_gives_the_same_parts():
    first, second = divide(trips()), divide(trips())

    for part, positions in first.parts.items():
        np.testing.assert_array_equal(positions, second.parts[part])


@pytest.mark.parametrize("train_until", ["2025-01-01", "2026-01-01", "2026-01-05", "2027-01-01"])
def test_a_part_of_a_recording_that_lies_on_one_side_of_the_given_day_is_divided_by_its_share(caplog, train_until):
    index = trips()

    parts = divide(index, train_until=train_until, train_share=0.75).parts

    assert index[parts["test"]]["day"].unique().to_list() == ["2026-01-04"]
    assert f"train_until is {train_until}, but the table has days 2026-01-01" in caplog.text
    assert "days from 2026-01-04 on are held out" in caplog.text


def test_a_part_that_would_be_empty_is_named_with_the_days_and_the_reason():
    index = trips(vehicles=1, days=2, trips_per_day=1)

    with pytest.raises(ConfigError, match=r"train part would be empty: 20 windows on days 2026-01-01, 2026-01-02"):
        by_time(index, SplitConfig(), is_event_N=np.arange(20) > 0)


def test_no_windows_at_all_are_refused_in_words():
    with pytest.raises(ConfigError, match="0 windows"):
        divide(trips().clear())


def test_groups_are_never_divided():
    groups = pl.Series("fold", np.random.default_rng(0).integers(0, 7, size=300))

    parts = by_group(groups, SplitConfig(group="fold")).parts

    used = [set(groups[positions]) for positions in parts.values()]
    assert sum(len(part) for part in used) == len(set.union(*used)) == 7
    assert sum(len(positions) for positions in parts.values()) == 300


def test_four_folds_give_two_to_training_and_one_to_each_of_the_others():
    groups = pl.Series("fold", [0, 1, 2, 3, 0, 1])

    parts = by_group(groups, SplitConfig(group="fold", train_share=0.75)).parts

    assert {part: positions.tolist() for part, positions in parts.items()} == {
        "train": [0, 1, 4, 5],
        "validation": [2],
        "test": [3],
    }


def test_two_groups_are_too_few_and_the_message_says_which_there_are():
    with pytest.raises(ConfigError, match=r"'fold'.*2 values \(0, 1\).*at least 3"):
        by_group(pl.Series("fold", [0, 1, 0]), SplitConfig(group="fold"))


def test_a_share_adds_up_over_the_events_of_a_window():
    window = pl.DataFrame({"vehicle": ["v0"], "t_start_utc_ns": [0], "t_end_utc_ns": [100 * SECOND_NS]})
    known = pl.concat([event(-50, 10), event(90, 95)])

    assert share_in_events(window, known, kind="hot_bearing").tolist() == pytest.approx([0.15])
