import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.align import Grid, Track, align, doors_open, make_grid, speed_on_grid, to_frame
from pipelines.channels import Channel, Kind
from pipelines.errors import RecordingError

SECOND = 10**9
START_NS = 1_767_600_000 * SECOND
CONTINUOUS = Channel(name="x", unit="bar", kind=Kind.CONTINUOUS)
STATE = Channel(name="x", unit="1", kind=Kind.STATE)


def track(t_s, x, *, channel=CONTINUOUS, rate_hz=10.0, sensor="s"):
    t_ns = START_NS + np.rint(np.asarray(t_s, dtype=float) * SECOND).astype(np.int64)
    return Track(
        sensor=sensor, t_ns_T=t_ns, values={"x": np.asarray(x, dtype=float)}, channels=(channel,), rate_hz=rate_hz
    )


def grid(length=10, period_s=1):
    return Grid(START_NS, period_s * SECOND, length)


@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=60),
    st.integers(0, 20),
    st.sampled_from([0.5, 1.0, 10.0]),
    st.sampled_from(list(Kind)[:3]),
    st.randoms(use_true_random=False),
)
def test_changing_the_future_never_changes_an_aligned_value(at_ms, now, rate_hz, kind, random):
    t_s = np.sort(at_ms) / 1_000
    x = np.array([random.gauss(0.0, 1.0) for _ in t_s])
    channel = Channel(name="x", unit="bar", kind=kind)
    is_past = t_s <= now
    other_t_s = np.r_[t_s[is_past], now + 1e-3 + np.sort([random.uniform(0.0, 9.0) for _ in range(5)])]
    other_x = np.r_[x[is_past], [random.gauss(50.0, 9.0) for _ in range(5)]]

    before = align(track(t_s, x, channel=channel, rate_hz=rate_hz), grid(21), prefix="")
    after = align(track(other_t_s, other_x, channel=channel, rate_hz=rate_hz), grid(21), prefix="")

    for name in before:
        assert np.array_equal(before[name][: now + 1], after[name][: now + 1], equal_nan=True), name


def test_a_fast_channel_is_averaged_over_the_last_period():
    t_s = np.arange(0.1, 3.01, 0.1)
    x = np.repeat([1.0, 2.0, 3.0], 10)

    columns = align(track(t_s, x), grid(4), prefix="s_")

    assert columns["s_x"].tolist() == [pytest.approx(v, nan_ok=True) for v in (np.nan, 1.0, 2.0, 3.0)]
    assert columns["s_x_age_s"][1:].tolist() == [0.0, 0.0, 0.0]


def test_vibration_far_above_the_grid_does_not_show_up_in_the_mean():
    t_s = np.arange(0.0, 20.0, 0.001)
    x = 5.0 + np.sin(2 * np.pi * 37.0 * t_s + 0.3)

    mean = align(track(t_s, x, rate_hz=1_000.0), grid(20), prefix="")["x"][1:]

    assert np.abs(mean - 5.0).max() < 0.01


def test_of_axle_box_acceleration_the_energy_is_kept():
    t_s = np.arange(0.0005, 5.0, 0.001)
    channel = Channel(name="acc_g", unit="g", kind=Kind.CONTINUOUS)
    acceleration = Track(
        sensor="aba",
        t_ns_T=START_NS + (t_s * SECOND).astype(np.int64),
        values={"acc_g": 3.0 * np.sin(2 * np.pi * 80.0 * t_s)},
        channels=(channel,),
        rate_hz=1_000.0,
    )

    columns = align(acceleration, grid(5), prefix="aba_")

    assert set(columns) == {"aba_acc_g_rms", "aba_acc_g_rms_age_s"}
    assert columns["aba_acc_g_rms"][1:] == pytest.approx(3.0 / np.sqrt(2.0), rel=1e-3)


def test_a_state_keeps_its_last_value_until_it_is_too_old():
    columns = align(track([0.5, 1.5], [0.0, 1.0], channel=STATE, rate_hz=1.0), grid(8), prefix="")

    assert columns["x"].tolist() == [
        pytest.approx(v, nan_ok=True) for v in (np.nan, 0.0, 1.0, 1.0, 1.0, np.nan, np.nan, np.nan)
    ]
    assert columns["x_age_s"][1:5].tolist() == [0.5, 0.5, 1.5, 2.5]


def test_a_missing_reading_is_not_carried_as_a_value():
    columns = align(track([0.5, 1.5], [4.0, np.nan], channel=STATE, rate_hz=1.0), grid(3), prefix="")

    assert columns["x"][2] == 4.0
    assert columns["x_age_s"][2] == 1.5


def test_doors_are_unknown_before_the_first_event():
    events = Track(
        sensor="evt",
        t_ns_T=START_NS + np.array([1, 2, 3, 5]) * SECOND,
        values={"kind": np.array(["balise", "door_open", "balise", "door_close"], dtype=object)},
        channels=(),
        rate_hz=None,
    )

    assert doors_open(events, grid(7))["evt_doors_open"].tolist() == [
        pytest.approx(v, nan_ok=True) for v in (np.nan, np.nan, 1.0, 1.0, 1.0, 0.0, 0.0)
    ]


def test_speed_comes_from_the_rows_that_bound_the_period():
    t_s = np.arange(0.05, 10.0, 0.1)

    speed = speed_on_grid(START_NS + (t_s * SECOND).astype(np.int64), 20.0 * t_s, grid(10))["odo_speed_mps"]

    assert np.isnan(speed[0])
    assert speed[2:] == pytest.approx(20.0)


def test_no_speed_is_made_up_within_a_gap():
    t_s = np.r_[np.arange(0.0, 3.0, 0.1), np.arange(9.0, 12.0, 0.1)]

    speed = speed_on_grid(START_NS + (t_s * SECOND).astype(np.int64), 20.0 * t_s, grid(12))["odo_speed_mps"]

    assert np.isnan(speed[6:9]).all()
    assert speed[[2, 3, 11]] == pytest.approx(20.0)


def test_the_grid_covers_all_rows_on_whole_periods():
    made = make_grid([track([0.3, 7.2], [0.0, 0.0]), track([-2.5], [0.0])], rate_hz=0.5)

    assert (made.first_ns - START_NS) / SECOND == -2.0
    assert (made.t_ns_G[-1] - START_NS) / SECOND == 8.0
    assert made.period_ns == 2 * SECOND


def test_clocks_that_are_years_apart_are_refused_by_name_of_the_fault():
    with pytest.raises(RecordingError, match="differ by years"):
        make_grid([track([0.0], [0.0]), track([1e8], [0.0])], rate_hz=1.0)


def test_no_rows_give_no_grid():
    assert make_grid([track([], [])], rate_hz=1.0).length == 0


def test_what_is_not_valid_is_null():
    frame = to_frame({"a": np.array([1.0, np.nan])})

    assert frame["a"].to_list() == [1.0, None]
