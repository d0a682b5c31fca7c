import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.signal import lfilter

from pipelines.channels import BUNDLE_SENSORS, Channel, Kind
from pipelines.screen import REASONS, Reason, screen
from pipelines.screen.readings import SPIKE_ROWS, frozen, saturated, spike

PRESSURE = Channel(name="res_bar", unit="bar", kind=Kind.CONTINUOUS, low=0.0, high=12.0, spike=0.8)
VIBRATION = Channel(name="acc_g", unit="g", kind=Kind.CONTINUOUS, low=-200.0, high=200.0)


def pressure_bar(size=2_000, seed=0):
    return np.random.default_rng(seed).normal(8.5, 0.02, size=size)


def instants(x_T, rate_hz=10.0):
    return (np.arange(len(x_T)) * 1e9 / rate_hz).astype(np.int64)


def marks(x_T, channel=PRESSURE, *, rate_hz=10.0, t_ns_T=None):
    """Positions of the readings that are not believed, by reason."""
    code_T = screen(instants(x_T, rate_hz or 1.0) if t_ns_T is None else t_ns_T, x_T, channel, rate_hz=rate_hz)
    return {REASONS[code - 1]: np.flatnonzero(code_T == code).tolist() for code in np.unique(code_T[code_T > 0])}


def test_each_fault_gets_its_own_reason():
    x_T = pressure_bar()
    x_T[50], x_T[100], x_T[300], x_T[500] = np.nan, np.inf, 25.5, 1.0
    x_T[700:1_400] = x_T[700]

    assert marks(x_T) == {
        Reason.MISSING: [50],
        Reason.NOT_FINITE: [100],
        Reason.OUT_OF_RANGE: [300],
        Reason.SPIKE: [500],
        Reason.FROZEN: list(range(700, 1_400)),
    }


def test_the_bounds_themselves_are_in_range():
    assert marks(np.array([0.0, 12.0, 12.000001, -1e-6]), rate_hz=None) == {Reason.OUT_OF_RANGE: [2, 3]}


@given(arrays(np.float64, st.integers(0, 200), elements=st.floats(-20, 20) | st.sampled_from([np.nan, np.inf, 5.0])))
def test_a_reading_stays_as_it_was(x_T):
    before = x_T.copy()

    code_T = screen(instants(x_T, 1.0), x_T, PRESSURE, rate_hz=1.0)

    assert np.array_equal(x_T, before, equal_nan=True)
    assert np.array_equal(code_T == 1 + REASONS.index(Reason.MISSING), np.isnan(x_T))


# Spikes


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length", range(1, SPIKE_ROWS + 1))
def test_a_spike_of_a_few_readings_is_found_whole_and_nothing_beside_it(length, seed):
    x_T = pressure_bar(seed=seed)
    at = np.random.default_rng(seed).integers(10, 1_900)
    x_T[at : at + length] += np.random.default_rng(seed).choice([-2.0, 2.0])

    assert marks(x_T) == {Reason.SPIKE: list(range(at, at + length))}


def test_what_lasts_longer_than_a_spike_is_a_change():
    x_T = pressure_bar()
    x_T[500 : 500 + SPIKE_ROWS + 1] -= 2.0

    assert marks(x_T) == {}


def test_a_level_shift_is_no_spike():
    assert marks(np.r_[pressure_bar(50), pressure_bar(50) - 4.0]) == {}


@pytest.mark.parametrize("seed", range(5))
def test_an_emergency_brake_application_is_no_spike(seed):
    t_s = np.arange(0.0, 60.0, 0.1)
    pipe_bar = 5.0 - 5.0 * (1.0 - np.exp(-np.clip(t_s - 20.0, 0.0, None) / 0.4)) * (t_s > 20.0)
    pipe_bar += np.random.default_rng(seed).normal(0.0, 0.008, size=len(t_s))

    assert marks(np.maximum(pipe_bar, 1e-3 * np.arange(len(t_s)) / len(t_s))) == {}


@pytest.mark.parametrize("seed", range(5))
def test_a_compressor_that_switches_on_and_off_is_no_spike(seed):
    t_s = np.arange(0.0, 300.0, 0.1)
    res_bar = 8.0 + 2.0 * np.abs((t_s / 40.0) % 2.0 - 1.0) + np.random.default_rng(seed).normal(0.0, 0.01, len(t_s))

    assert marks(res_bar) == {}


def test_an_impact_is_no_spike_of_vibration():
    x_T = np.random.default_rng(0).normal(0.0, 1.0, size=5_000)
    x_T[2_500] = 180.0

    assert marks(x_T, VIBRATION, rate_hz=1_000.0) == {}


@pytest.mark.parametrize("speed_mps", [0.0, 30.0, 83.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_position_that_jumps_and_comes_back_is_a_spike_however_fast_the_train_is(speed_mps, seed):
    latitude = next(channel for channel in BUNDLE_SENSORS["gnss"] if channel.name == "lat_deg")
    lat_deg = 47.0 + (np.arange(600) * speed_mps + np.random.default_rng(seed).normal(0.0, 1.5, 600)) / 111_320.0
    lat_deg[[100, 300, 301]] += 0.0011
    lat_deg[50:53] = np.nan

    assert marks(lat_deg, latitude, rate_hz=1.0) == {Reason.MISSING: [50, 51, 52], Reason.SPIKE: [100, 300, 301]}


def test_readings_on_both_sides_of_a_gap_are_not_compared():
    x_T = np.r_[pressure_bar(50), 4.0, 4.0, pressure_bar(50)]
    t_ns_T = instants(x_T)
    t_ns_T[50:] += 60 * 10**9
    t_ns_T[52:] += 60 * 10**9

    assert marks(x_T, t_ns_T=t_ns_T) == {}


@pytest.mark.parametrize("at", [1, 48])
def test_a_spike_beside_an_end_is_found_from_the_other_side(at):
    x_T = np.arange(50.0) * 2.0
    x_T[at] += 9.0

    assert np.flatnonzero(spike(instants(x_T, 1.0), x_T, 3.0, 5 * 10**9)).tolist() == [at]


def test_the_readings_after_a_false_start_are_not_blamed_for_it():
    x_T = np.arange(50.0) * 2.0
    x_T[0] = 400.0

    assert not spike(instants(x_T, 1.0), x_T, 3.0, 5 * 10**9)[1:].any()


# Frozen


def test_frozen_finds_exactly_the_stuck_stretch():
    x_T = pressure_bar(600)
    x_T[200:260] = x_T[200]

    assert np.flatnonzero(frozen(x_T, run_length=30)).tolist() == list(range(200, 260))


def test_missing_readings_are_not_frozen():
    assert not frozen(np.full(100, np.nan), run_length=30).any()


def test_a_run_one_short_of_the_limit_is_not_frozen():
    assert not frozen(np.r_[np.arange(5.0), np.full(29, 7.0)], run_length=30).any()
    assert frozen(np.r_[np.arange(5.0), np.full(30, 7.0)], run_length=30).sum() == 30


def test_a_sensor_that_never_moved_is_frozen():
    assert marks(np.full(2_000, 8.5)) == {Reason.FROZEN: list(range(2_000))}


@pytest.mark.parametrize("seed", range(5))
def test_long_runs_are_usual_where_the_resolution_is_coarse(seed):
    random = np.random.default_rng(seed)
    whole_degrees = np.repeat(20.0 + np.cumsum(random.choice([-1.0, 1.0], size=60)), random.integers(20, 200, size=60))
    stuck = np.r_[whole_degrees, np.full(5_000, 77.0)]

    assert marks(whole_degrees, Channel(name="t", unit="degC", kind=Kind.CONTINUOUS), rate_hz=1.0) == {}
    assert frozen(stuck, run_length=60).sum() == 5_000


def test_a_sensor_at_rest_is_not_frozen():
    assert marks(np.zeros(5_000), BUNDLE_SENSORS["dop"][0], rate_hz=20.0) == {}


def test_a_receiver_may_hold_its_position_while_it_stands():
    assert marks(np.full(5_000, 47.1), BUNDLE_SENSORS["gnss"][0], rate_hz=1.0) == {}


@pytest.mark.parametrize("kind", [Kind.STATE, Kind.COUNTER])
def test_a_state_or_counter_may_stay_as_it_is(kind):
    assert marks(np.full(5_000, 3.0), Channel(name="x", unit="bar", kind=kind, low=0.0, high=10.0)) == {}


# Saturated


def vibration_g(seed, size=20_000):
    """Noise of a resonator at 85 Hz, sampled at 1 kHz."""
    noise = np.random.default_rng(seed).normal(0.0, 3.0, size=size)
    return lfilter([1.0], [1.0, -2.0 * 0.93 * np.cos(2.0 * np.pi * 0.085), 0.93**2], noise)


@pytest.mark.parametrize("seed", range(5))
def test_tops_that_are_cut_off_at_one_value_are_saturated(seed):
    x_T = np.clip(np.rint(vibration_g(seed) * 512) / 512, -20.0, 20.0)

    assert marks(x_T, VIBRATION, rate_hz=1_000.0) == {Reason.SATURATED: np.flatnonzero(np.abs(x_T) == 20.0).tolist()}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("resolution", [1 / 512, 0.05, 1.0, 5.0])
def test_the_largest_of_many_readings_is_not_saturated(seed, resolution):
    assert not saturated(np.rint(vibration_g(seed) / resolution) * resolution).any()


@pytest.mark.parametrize("rows_per_turn", [5, 20, 100, 1_000])
@pytest.mark.parametrize("decimals", [1, 2, 3, 9])
def test_the_tops_of_an_oscillation_without_noise_are_not_saturated(rows_per_turn, decimals):
    x_T = np.round(10.0 * np.sin(2.0 * np.pi * np.arange(20_000) / rows_per_turn + 0.1), decimals)

    assert not saturated(x_T).any()


def test_speeds_without_noise_that_are_kept_for_minutes_are_not_saturated():
    run_mps = np.r_[np.arange(0.0, 36.0, 0.05), np.full(2_000, 36.0), np.arange(36.0, 0.0, -0.05), np.zeros(600)]

    assert not saturated(np.tile(run_mps, 8)).any()


@pytest.mark.parametrize("resolution", [1e-9, 0.1, 1.0])
def test_a_level_that_is_approached_and_kept_is_not_saturated(resolution):
    speed_mps = 36.111 * (1.0 - np.exp(-np.arange(2_000) / 100.0)).clip(max=1.0 - 1e-6)
    x_T = np.rint(np.minimum(speed_mps, 36.0) / resolution) * resolution

    assert not saturated(x_T).any()


def test_nothing_is_saturated_where_there_is_nothing():
    assert not saturated(np.full(9, np.nan)).any()
    assert not saturated(np.array([])).any()
    assert not saturated(np.full(9, 3.0)).any()
