from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.align import Grid, Track, align, align_blocks, doors_open, reach_ns, speed_on_grid, to_frame
from pipelines.channels import Channel, Kind

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


def drawn_track(random, *, num_rows, rate_hz, kind, span_s=20.0, sensor="s"):
    """Rows at irregular instants, some of them together, with some readings missing."""
    at_ms = sorted(random.randrange(int(span_s * 1e3)) for _ in range(num_rows))
    x = [random.uniform(-5.0, 5.0) if random.random() < 0.9 else np.nan for _ in at_ms]
    return track(
        np.array(at_ms) / 1e3, x, channel=Channel(name="x", unit="bar", kind=kind), rate_hz=rate_hz, sensor=sensor
    )


def same(one, other):
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


KINDS = st.sampled_from([Kind.CONTINUOUS, Kind.STATE, Kind.COUNTER])
RATES_HZ = st.sampled_from([0.2, 0.5, 1.0, 1.7, 10.0])


@given(st.integers(0, 60), st.integers(0, 20), RATES_HZ, KINDS, st.randoms(use_true_random=False))
def test_changing_the_future_never_changes_an_aligned_value(num_rows, now, rate_hz, kind, random):
    whole = drawn_track(random, num_rows=num_rows, rate_hz=rate_hz, kind=kind)
    past = np.searchsorted(whole.t_ns_T, START_NS + now * SECOND, side="right")
    future_ns = np.sort([START_NS + now * SECOND + 1 + random.randrange(9 * SECOND) for _ in range(5)])
    other = replace(
        whole,
        t_ns_T=np.r_[whole.t_ns_T[:past], future_ns],
        values={"x": np.r_[whole.values["x"][:past], [random.choice([np.nan, 50.0, -1e9]) for _ in range(5)]]},
    )

    before, after = (align(rows, grid(now + 1), prefix="") for rows in (whole, other))

    assert same(before, after)


@given(st.integers(0, 60), st.integers(0, 20), st.randoms(use_true_random=False))
def test_changing_the_future_never_changes_speed_or_doors(num_rows, now, random):
    t_ns = START_NS + np.sort([random.randrange(20 * SECOND) for _ in range(num_rows)]).astype(np.int64)
    distance_m = np.cumsum([random.random() for _ in t_ns])
    kind = np.array([random.choice(["balise", "door_open", "door_close"]) for _ in t_ns], dtype=object)
    is_past = t_ns <= START_NS + now * SECOND
    end = grid(now + 1)

    def doors(of):
        return doors_open(
            Track(sensor="evt", t_ns_T=t_ns[of], values={"kind": kind[of]}, channels=(), rate_hz=None), end
        )

    def speed(of):
        return speed_on_grid(t_ns[of], distance_m[of], end, rate_hz=10.0)

    for columns in (doors, speed):
        assert same(columns(is_past), columns(np.ones_like(is_past)))


@given(
    st.integers(0, 200),
    RATES_HZ,
    KINDS,
    st.lists(st.integers(0, 200), max_size=8),
    st.integers(1, 40),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_blocks_and_workers_do_not_change_a_bit(num_rows, rate_hz, kind, cuts, part_length, workers, random):
    whole = drawn_track(random, num_rows=num_rows, rate_hz=rate_hz, kind=kind, span_s=60.0)
    expected = align(whole, grid(70), prefix="s_")
    edges = [0, *sorted(min(cut, num_rows) for cut in cuts), num_rows]
    blocks = [
        replace(whole, t_ns_T=whole.t_ns_T[i:j], values={"x": whole.values["x"][i:j]}) for i, j in pairwise(edges)
    ]

    def of_part(part):
        return align(whole.after(part.first_ns - reach_ns(rate_hz, part.period_ns)), part, prefix="s_")

    with ThreadPoolExecutor(workers) as pool:
        by_workers = list(pool.map(of_part, grid(70).parts(part_length)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.align.blocks.PART_ROWS", part_length * max(1.0, rate_hz))
        by_blocks = list(align_blocks({"s_": iter(blocks)}, grid(70)))

    for parts in (by_workers, by_blocks):
        assert same({name: np.concatenate([part[name] for part in parts]) for name in expected}, expected)


def test_sensors_of_different_rates_come_in_blocks_together():
    fast = track(np.arange(0.0, 30.0, 0.01), np.arange(3_000.0), rate_hz=100.0)
    slow = track(np.arange(0.0, 30.0, 2.0), np.arange(15.0), rate_hz=0.5)

    (columns,) = align_blocks({"fast_": [fast], "slow_": [slow]}, grid(31))

    assert same(columns, align(fast, grid(31), prefix="fast_") | align(slow, grid(31), prefix="slow_"))


def test_a_block_of_rows_that_are_too_early_is_refused_with_both_instants():
    early, late = track([0.0, 1.0], [0.0, 0.0]), track([2.0, 3.0], [0.0, 0.0])

    with pytest.raises(
        ValueError, match=f"s: a block of rows begins at {START_NS} ns, before .*{START_NS + 3 * SECOND}"
    ):
        list(align_blocks({"s_": [late, early]}, grid(9)))


@pytest.mark.parametrize("blocks", [[], [track([1.0], [1.0], rate_hz=None)]], ids=["none", "events"])
def test_blocks_of_no_regular_sensor_are_refused(blocks):
    with pytest.raises(ValueError, match="s_: expected one block of a regular sensor"):
        list(align_blocks({"s_": blocks}, grid(9)))


@pytest.mark.parametrize("rate_hz", [1.2, 7.0, 1_000.0])
@pytest.mark.parametrize("seed", range(3))
def test_of_a_ramp_a_fast_channel_is_right_at_the_age_that_it_says(rate_hz, seed):
    random = np.random.default_rng(seed)
    t_s = np.sort(np.arange(0.0, 30.0, 1.0 / rate_hz) + random.uniform(0.0, 0.3 / rate_hz))
    t_s = t_s[random.random(len(t_s)) > 0.1]

    columns = align(track(t_s, 3.0 - 2.0 * t_s, rate_hz=rate_hz), grid(30), prefix="")

    described_s = np.arange(30.0) - columns["x_age_s"]
    assert columns["x_valid"].sum() > 20
    assert columns["x"][columns["x_valid"]] == pytest.approx(3.0 - 2.0 * described_s[columns["x_valid"]], abs=1e-5)


def test_a_filtered_value_is_one_period_old():
    columns = align(track(np.arange(0.0, 20.0, 0.01), np.zeros(2_000), rate_hz=100.0), grid(20), prefix="")

    assert columns["x_age_s"][2:] == pytest.approx(1.0, abs=0.005)


@pytest.mark.parametrize("tone", np.linspace(1.3, 40.0, 50))
def test_what_is_faster_than_the_grid_is_45_db_down(tone):
    t_s = np.arange(0.0, 40.0, 0.001)

    columns = align(track(t_s, np.sin(2 * np.pi * tone * t_s + 0.3), rate_hz=1_000.0), grid(40), prefix="")

    assert np.abs(columns["x"][2:]).max() < 10 ** (-45 / 20)


def test_the_filter_beats_the_mean_of_the_period():
    """The case of the study of resampling: 37 Hz on a slow signal, from 1 kHz to 20 Hz; a mean there has 0.086 RMS."""
    random = np.random.default_rng(0)
    t_s = np.arange(0.0005, 60.0, 0.001)
    x = np.sin(2 * np.pi * 0.3 * t_s) + np.sin(2 * np.pi * 37.0 * t_s) + random.normal(0.0, 0.3, len(t_s))
    twenty_hz = Grid(START_NS, SECOND // 20, 1_200)

    columns = align(track(t_s, x, rate_hz=1_000.0), twenty_hz, prefix="")

    at_s = np.arange(1_200) / 20 - columns["x_age_s"]
    error = (columns["x"] - np.sin(2 * np.pi * 0.3 * at_s))[columns["x_valid"]]
    mean = x.reshape(-1, 50).mean(axis=1) - np.sin(2 * np.pi * 0.3 * (t_s.reshape(-1, 50).mean(axis=1)))
    assert np.sqrt(np.mean(error**2)) < 0.75 * np.sqrt(np.mean(mean**2))


@given(st.integers(1, 200), st.randoms(use_true_random=False))
def test_a_filtered_value_lies_among_the_readings_it_is_made_of(num_rows, random):
    rows = drawn_track(random, num_rows=num_rows, rate_hz=3.0, kind=Kind.CONTINUOUS)

    columns = align(rows, grid(25), prefix="")

    for t_ns, value in zip(grid(25).t_ns_G, columns["x"], strict=True):
        inside = rows.values["x"][(rows.t_ns_T > t_ns - 2 * SECOND) & (rows.t_ns_T <= t_ns)]
        assert np.isnan(value) or np.nanmin(inside) - 1e-12 <= value <= np.nanmax(inside) + 1e-12


def test_no_value_is_filtered_out_of_half_a_window():
    t_s = np.r_[np.arange(0.0, 5.5, 0.1), np.arange(15.5, 20.0, 0.1)]

    is_valid = align(track(t_s, np.ones(len(t_s))), grid(20), prefix="")["x_valid"]

    assert np.flatnonzero(~is_valid).tolist() == [0, *range(7, 17)]


def test_a_slow_channel_is_a_line_one_of_its_periods_ago():
    t_s = np.arange(0.0, 40.0, 4.0)

    columns = align(track(t_s, 2.0 * t_s, rate_hz=0.25), grid(30), prefix="")

    assert columns["x"][4:] == pytest.approx(2.0 * (np.arange(4.0, 30.0) - 4.0))
    assert (columns["x_age_s"][4:] == 4.0).all()


def test_no_line_is_drawn_across_a_gap():
    t_s = np.r_[np.arange(0.0, 21.0, 4.0), 60.0, 64.0]
    x = np.r_[np.arange(6.0), 50.0, 51.0]

    columns = align(track(t_s, x, rate_hz=0.25), grid(70), prefix="")

    assert columns["x"][20:33] == pytest.approx(np.r_[4.0, 4.25, 4.5, 4.75, np.full(9, 5.0)])  # held for three periods
    assert not columns["x_valid"][33:60].any()
    assert columns["x"][60:66] == pytest.approx([50.0, 50.0, 50.0, 50.0, 50.0, 50.25])


def test_a_continuous_channel_as_fast_as_the_grid_is_as_it_was_measured():
    columns = align(track(np.arange(0.7, 10.0), np.arange(10.0), rate_hz=1.0), grid(10), prefix="")

    assert columns["x"][1:].tolist() == list(range(9))
    assert columns["x_age_s"][1:] == pytest.approx(0.3)


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

    assert set(columns) == {"aba_acc_g_rms", "aba_acc_g_rms_valid", "aba_acc_g_rms_age_s"}
    assert columns["aba_acc_g_rms"][2:] == pytest.approx(3.0 / np.sqrt(2.0), rel=1e-3)


def test_a_state_keeps_its_last_value_until_it_is_too_old():
    columns = align(track([0.5, 1.5], [0.0, 1.0], channel=STATE, rate_hz=1.0), grid(8), prefix="")

    assert columns["x"].tolist() == [
        pytest.approx(v, nan_ok=True) for v in (np.nan, 0.0, 1.0, 1.0, 1.0, np.nan, np.nan, np.nan)
    ]
    assert columns["x_valid"].tolist() == [False, True, True, True, True, False, False, False]
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


def test_speed_is_filtered_like_any_channel_and_half_a_row_older():
    t_s = np.arange(0.05, 10.0, 0.1)

    columns = speed_on_grid(START_NS + (t_s * SECOND).astype(np.int64), 0.5 * t_s**2, grid(10), rate_hz=10.0)

    described_s = np.arange(10.0) - columns["odo_speed_mps_age_s"]
    assert columns["odo_speed_mps_age_s"][2:] == pytest.approx(1.05, abs=0.01)
    assert columns["odo_speed_mps"][2:] == pytest.approx(described_s[2:], abs=1e-4)


def test_no_speed_is_made_up_within_a_gap():
    t_s = np.r_[np.arange(0.0, 3.5, 0.1), np.arange(8.5, 12.0, 0.1)]

    speed = speed_on_grid(START_NS + (t_s * SECOND).astype(np.int64), 20.0 * t_s, grid(12), rate_hz=10.0)

    assert np.flatnonzero(speed["odo_speed_mps_valid"]).tolist() == [2, 3, 4, 10, 11]
    assert speed["odo_speed_mps"][speed["odo_speed_mps_valid"]] == pytest.approx(20.0)


@pytest.mark.parametrize("num_rows", [0, 1])
def test_one_row_has_no_speed(num_rows):
    speed = speed_on_grid(START_NS + np.arange(num_rows), np.zeros(num_rows), grid(3), rate_hz=10.0)

    assert not speed["odo_speed_mps_valid"].any()


def test_what_is_not_valid_is_null():
    frame = to_frame({"a": np.array([1.0, np.nan])})

    assert frame["a"].to_list() == [1.0, None]
