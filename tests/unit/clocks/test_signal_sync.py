import numpy as np
import pytest

from pipelines.clocks.signal_sync import fit_signal

START_NS = 1_767_600_000_000_000_000


def drive(t_s):
    """Distance and speed of a train that stops now and then."""
    grid_s = np.arange(-20.0, t_s[-1] + 20.0, 0.01)
    speed_mps = np.clip(14.0 + 16.0 * np.sin(grid_s / 57.0) + 6.0 * np.sin(grid_s / 13.0), 0.0, None)
    return np.interp(t_s, grid_s, np.cumsum(speed_mps) * 0.01), np.interp(t_s, grid_s, speed_mps)


def reference(duration_s=1_200.0):
    t_s = np.arange(0.0, duration_s, 0.1)
    return START_NS + (t_s * 1e9).astype(np.int64), np.floor(drive(t_s)[0] / 0.03) * 0.03


def radar(*, offset_s, drift_ppm, scale=1.002, duration_s=1_200.0):
    t_s = np.arange(0.0, duration_s, 0.05)
    utc_ns = START_NS + (t_s * 1e9).astype(np.int64)
    dev_ns = utc_ns + round(offset_s * 1e9) + (t_s * drift_ppm * 1e3).astype(np.int64)
    return utc_ns, dev_ns, drive(t_s)[1] * scale + np.random.default_rng(0).normal(0.0, 0.12, len(t_s))


@pytest.mark.parametrize("offset_s", [-1.93, 0.0, 1.57])
def test_a_clock_is_tied_within_milliseconds(offset_s):
    utc_ns, dev_ns, speed_mps = radar(offset_s=offset_s, drift_ppm=80.0)

    fitted = fit_signal("radar", dev_ns, speed_mps, *reference())

    mapped_ns, sigma_ns = fitted.to_utc(dev_ns)
    assert np.abs(mapped_ns - utc_ns).max() < 10e6
    assert sigma_ns.max() < 20e6


def test_slipping_wheels_do_not_pull_the_clock():
    utc_ns, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=-50.0)
    t_ref_ns, distance_m = reference()
    slip_m = np.zeros(len(t_ref_ns))
    slip_m[3_000:3_050] = 0.4  # 4 m/s too fast, for 5 s
    slip_m[8_000:8_030] = -0.5

    fitted = fit_signal("radar", dev_ns, speed_mps, t_ref_ns, distance_m + np.cumsum(slip_m))

    assert np.abs(fitted.to_utc(dev_ns)[0] - utc_ns).max() < 15e6


def test_a_train_that_stands_ties_nothing():
    _, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=0.0)
    t_ref_ns, distance_m = reference()

    assert fit_signal("radar", dev_ns, speed_mps * 0.0, t_ref_ns, distance_m * 0.0) is None


def test_too_few_readings_tie_nothing():
    _, dev_ns, speed_mps = radar(offset_s=0.4, drift_ppm=0.0)

    assert fit_signal("radar", dev_ns[:50], speed_mps[:50], *reference()) is None
