import numpy as np
import polars as pl
import pytest

NS = 10**9
KEEP_CADENCE = "expect_instants_to_keep_cadence"
START_NS = 1_767_589_200 * NS  # 2026-01-05T05:00:00Z


def instants(num_rows, period_s=1.0):
    return START_NS + np.rint(np.arange(num_rows) * period_s * 1e9).astype(np.int64)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_repeat_an_instant_are_counted_wherever_they_lie(judge, seed):
    rng = np.random.default_rng(seed)
    t_ns = np.concatenate([instants(1000), rng.choice(instants(1000), size=7, replace=False)])

    check = judge("expect_instants_to_be_unique", {"t_utc_ns": rng.permutation(t_ns)})

    assert not check.passed
    assert check.value == pytest.approx(7 / 1006, abs=1e-6)
    assert len(check.examples) == 3


def test_two_vehicles_may_share_an_instant(judge):
    columns = {"t_utc_ns": np.repeat(instants(10), 2), "vehicle": ["07", "08"] * 10}

    assert judge("expect_instants_to_be_unique", columns, partition_by=["vehicle"]).passed
    assert not judge("expect_instants_to_be_unique", columns).passed


def test_a_row_that_steps_back_is_told_with_its_instant(judge):
    t_ns = instants(100)
    t_ns[60] -= 5 * NS

    check = judge("expect_instants_to_not_step_back", {"t_utc_ns": t_ns})

    assert not check.passed
    assert check.value == pytest.approx(1 / 99, abs=1e-6)
    assert check.examples == ("4.000 s back after 2026-01-05T05:00:59.000Z",)


def test_groups_that_lie_one_after_the_other_step_back_nowhere(judge):
    columns = {"t_utc_ns": np.tile(instants(50), 2), "vehicle": ["07"] * 50 + ["08"] * 50}

    assert judge("expect_instants_to_not_step_back", columns, partition_by=["vehicle"]).passed
    assert not judge("expect_instants_to_not_step_back", columns).passed


def test_a_share_of_late_rows_may_be_granted(judge):
    t_ns = instants(100)
    t_ns[60] -= 5 * NS

    assert judge("expect_instants_to_not_step_back", {"t_utc_ns": t_ns}, max_share=0.02).passed


@pytest.mark.parametrize("seed", range(3))
def test_an_alternating_period_keeps_its_cadence_but_not_that_of_one_of_both(judge, seed):
    steps_s = np.random.default_rng(seed).choice([9, 10], size=500)
    columns = {"t_utc_ns": START_NS + np.cumsum(steps_s) * NS}

    assert judge(KEEP_CADENCE, columns, period_s=9.5, tolerance_s=0.6).passed
    of_nine = judge(KEEP_CADENCE, columns, period_s=9, tolerance_s=0.1)
    assert not of_nine.passed
    assert of_nine.value == pytest.approx((steps_s[1:] == 9).mean(), abs=1e-6)


def test_a_gap_breaks_a_cadence_that_grants_none(judge):
    t_ns = np.delete(instants(100), slice(40, 50))

    check = judge(KEEP_CADENCE, {"t_utc_ns": t_ns}, period_s=1, tolerance_s=0.01)

    assert not check.passed
    assert check.examples == ("11.000 s after 2026-01-05T05:00:39.000Z",)
    assert judge(KEEP_CADENCE, {"t_utc_ns": t_ns}, period_s=1, tolerance_s=0.01, mostly=0.95).passed


def test_one_row_has_no_cadence(judge):
    check = judge(KEEP_CADENCE, {"t_utc_ns": instants(1)}, period_s=1, tolerance_s=0.1)

    assert not check.passed
    assert (check.value, check.observed) == (None, "nothing to measure")
    assert judge(KEEP_CADENCE, {"t_utc_ns": instants(1)}, period_s=1, tolerance_s=0.1, allow_absent=True).passed


@pytest.mark.parametrize(
    ("first", "last", "gap_s", "where"),
    [(30, 51, 22.0, "05:00:29"), (0, 20, 20.0, "05:00:00"), (80, 100, 20.0, "05:01:19")],
    ids=["between readings", "before the first", "after the last"],
)
def test_the_longest_time_without_a_reading_is_found(judge, first, last, gap_s, where):
    speed_mps = np.full(100, 20.0)
    speed_mps[first:last] = np.nan
    columns = {"t_utc_ns": instants(100), "speed_mps": speed_mps}

    check = judge("expect_column_gaps_to_be_at_most", columns, column="speed_mps", max_gap_s=10)

    assert not check.passed
    assert check.value == gap_s
    assert check.examples[0] == f"{gap_s:.3f} s from 2026-01-05T{where}.000Z"
    assert judge("expect_column_gaps_to_be_at_most", columns, column="speed_mps", max_gap_s=gap_s).passed


def test_no_time_passes_between_days(judge):
    columns = {
        "t_utc_ns": np.concatenate([instants(50), instants(50) + 86_400 * NS]),
        "day": ["2026-01-05"] * 50 + ["2026-01-06"] * 50,
        "speed_mps": np.full(100, 20.0),
    }

    kwargs = {"column": "speed_mps", "max_gap_s": 1}
    assert judge("expect_column_gaps_to_be_at_most", columns, partition_by=["day"], **kwargs).passed
    assert judge("expect_column_gaps_to_be_at_most", columns, **kwargs).value == 86_400 - 49


def test_a_column_that_is_never_there_fails_unless_a_vehicle_may_lack_it(judge):
    columns = {"t_utc_ns": instants(50), "speed_mps": np.full(50, np.nan)}

    for type_, kwargs in (
        ("expect_column_gaps_to_be_at_most", {"max_gap_s": 10}),
        ("expect_column_coverage_to_be_at_least", {"hold_s": 1, "min_share": 0.5}),
    ):
        assert not judge(type_, columns, column="speed_mps", **kwargs).passed
        assert judge(type_, columns, column="speed_mps", allow_absent=True, **kwargs).passed


@pytest.mark.parametrize("seed", range(3))
def test_coverage_is_the_share_of_time_not_of_rows(judge, seed):
    rng = np.random.default_rng(seed)
    has_reading = rng.random(1000) < 0.7
    columns = {"t_utc_ns": instants(1000, 2.0), "speed_mps": np.where(has_reading, 20.0, np.nan)}

    held = judge("expect_column_coverage_to_be_at_least", columns, column="speed_mps", hold_s=2, min_share=0.9)
    half = judge("expect_column_coverage_to_be_at_least", columns, column="speed_mps", hold_s=1, min_share=0.9)

    assert not held.passed
    assert held.value == pytest.approx(has_reading[:-1].mean(), abs=1e-6)
    assert half.value == pytest.approx(has_reading[:-1].mean() / 2, abs=1e-6)


@pytest.mark.parametrize(("hours", "word"), [(1, "missing"), (-1, "repeated")])
def test_an_hour_that_is_missing_or_repeated_is_called_that(judge, hours, word):
    t_ns = instants(100)
    t_ns[40:] += hours * 3600 * NS

    check = judge("expect_column_to_have_no_hour_jump", {"t_utc_ns": t_ns}, column="t_utc_ns", period_s=1)

    assert not check.passed
    assert check.examples == (f"an hour is {word} after 2026-01-05T05:00:39.000Z",)


def test_a_break_that_is_not_an_hour_is_no_clock_change(judge):
    t_ns = instants(100)
    t_ns[40:] += 3000 * NS

    assert judge("expect_column_to_have_no_hour_jump", {"t_utc_ns": t_ns}, column="t_utc_ns", period_s=1).passed


def test_stamps_in_the_wrong_unit_are_outside_any_period(judge):
    check = judge(
        "expect_instants_to_be_within_period",
        {"t_utc_ns": instants(10) // 1000},
        earliest="1990-01-01T00:00:00Z",
        latest="2100-01-01T00:00:00Z",
    )

    assert not check.passed
    assert check.examples[0].startswith("1970-01-21T")


def test_stamps_with_a_zone_are_instants_too(judge):
    stamps = pl.Series(instants(10)).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone("Europe/Rome")

    check = judge(KEEP_CADENCE, {"t": stamps}, time_column="t", period_s=2, tolerance_s=0.1)

    assert check.value == 0.0
    assert check.examples[0] == "1.000 s after 2026-01-05T05:00:00.000Z"


def test_stamps_without_a_zone_are_refused(judge):
    stamps = pl.Series(instants(10)).cast(pl.Datetime("ns"))

    check = judge("expect_instants_to_be_unique", {"t": stamps}, time_column="t")

    assert not check.passed
    assert "stamps with a zone" in check.observed


def test_rows_without_an_instant_are_left_to_another_expectation(judge):
    t_ns = [*instants(10).tolist(), None, *instants(20)[10:].tolist()]

    assert judge(KEEP_CADENCE, {"t_utc_ns": t_ns}, period_s=1, tolerance_s=0.001).passed
