import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipelines.channels import Channel, Kind
from pipelines.screen import Reason, frozen, out_of_range, screen, spike

PRESSURE = Channel(name="res_bar", unit="bar", kind=Kind.CONTINUOUS, low=0.0, high=12.0)


def pressure_bar(size=2_000):
    return np.random.default_rng(0).normal(8.5, 0.2, size=size)


def test_frozen_finds_exactly_the_stuck_stretch():
    x_T = pressure_bar(600)
    x_T[200:260] = x_T[200]

    assert np.flatnonzero(frozen(x_T, run_length=30)).tolist() == list(range(200, 260))


def test_missing_readings_are_not_frozen():
    assert not frozen(np.full(100, np.nan), run_length=30).any()


def test_a_run_one_short_of_the_limit_is_not_frozen():
    assert not frozen(np.r_[np.arange(5.0), np.full(29, 7.0)], run_length=30).any()
    assert frozen(np.r_[np.arange(5.0), np.full(30, 7.0)], run_length=30).sum() == 30


def test_a_level_shift_is_no_spike():
    assert not spike(np.r_[np.full(50, 8.0), np.full(50, 2.0)], height=1.0).any()


def test_the_bounds_themselves_are_in_range():
    assert out_of_range(np.array([0.0, 12.0, 12.000001]), low=0.0, high=12.0).tolist() == [False, False, True]


def test_each_fault_gets_its_own_reason():
    x_T = pressure_bar()
    x_T[100], x_T[300], x_T[500] = np.inf, 25.5, 1.0
    x_T[700:1_400] = x_T[700]

    marks = screen(x_T, PRESSURE, rate_hz=10.0)

    assert {reason: np.flatnonzero(mask).tolist() for reason, mask in marks.items()} == {
        Reason.NOT_FINITE: [100],
        Reason.OUT_OF_RANGE: [300],
        Reason.SPIKE: [500],
        Reason.FROZEN: list(range(700, 1_400)),
    }


def test_a_sensor_at_rest_is_not_frozen():
    speed = Channel(name="speed_mps", unit="m/s", kind=Kind.CONTINUOUS, low=-1.0, high=120.0)

    assert screen(np.zeros(5_000), speed, rate_hz=20.0) == {}


def test_an_impact_is_no_spike_of_vibration():
    vibration = Channel(name="acc_g", unit="g", kind=Kind.CONTINUOUS, low=-200.0, high=200.0)
    x_T = np.random.default_rng(0).normal(0.0, 1.0, size=5_000)
    x_T[2_500] = 180.0

    assert screen(x_T, vibration, rate_hz=1_000.0) == {}


@pytest.mark.parametrize("kind", [Kind.STATE, Kind.COUNTER])
def test_a_state_or_counter_may_stay_as_it_is(kind):
    channel = Channel(name="x", unit="bar", kind=kind, low=0.0, high=10.0)

    assert screen(np.full(5_000, 3.0), channel, rate_hz=10.0) == {}


@given(arrays(np.float64, st.integers(0, 200), elements=st.floats(-20, 20) | st.sampled_from([np.nan, np.inf, 5.0])))
def test_a_reading_has_one_reason_at_most_and_stays_as_it_was(x_T):
    before = x_T.copy()

    marks = screen(x_T, PRESSURE, rate_hz=1.0)

    assert np.array_equal(x_T, before, equal_nan=True)
    assert all(mask.any() for mask in marks.values())
    assert np.sum([mask.astype(int) for mask in marks.values()], axis=0, initial=0).max(initial=0) <= 1
    assert not any(mask[np.isnan(x_T)].any() for mask in marks.values())
