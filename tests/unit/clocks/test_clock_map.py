import json

import numpy as np
import pytest

from pipelines.clocks.clock_map import ClockMap, identity_map
from pipelines.errors import RecordingError
from tests.unit.clocks.devices import SECOND, START_NS, Device, ask, fit, rows_of


def test_mapping_keeps_nanoseconds():
    fitted = identity_map("c", method="gps", sigma_ns=1.0)
    dev_ns = START_NS + np.arange(1_000)

    assert (fitted.to_utc(dev_ns)[0] == dev_ns).all()


def test_what_the_clock_showed_is_the_inverse_of_the_map():
    segment = fit(ask(Device(drift_ppm=4_000.0))).segments[0]
    dev_ns = Device(drift_ppm=4_000.0).read(START_NS + np.arange(0, 1_800, 7) * SECOND)

    assert np.abs(segment.to_dev(segment.to_utc(dev_ns)[0]) - dev_ns).max() <= 2


def test_a_saved_map_is_the_same_to_the_nanosecond():
    device = Device(jumps=((801.0, -0.5),))
    fitted = fit(ask(device), [rows_of(device)])
    dev_ns = rows_of(device).dev_ns_T

    again = ClockMap.from_json(fitted.to_json())

    assert all((x == y).all() for x, y in zip(again.to_utc(dev_ns), fitted.to_utc(dev_ns), strict=True))
    assert again.facts() == fitted.facts()
    assert again.to_json() == fitted.to_json()


def test_a_saved_map_is_json_without_extensions():
    text = identity_map("c", method="unchecked", sigma_ns=2e9).to_json()

    assert "NaN" not in text
    assert json.loads(text)["residuals"]["p99_ns"] is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "other/1"}', '{"format": "trackside-clock-map/1"}'])
def test_what_is_no_saved_map_is_refused(text):
    with pytest.raises(RecordingError, match="saved clock map"):
        ClockMap.from_json(text)


def test_no_row_is_beside_a_step_that_rows_placed():
    device = Device(jumps=((801.0, 0.5),))
    rows = rows_of(device)

    assert not fit(ask(device), [rows]).is_beside_step(rows.dev_ns_T).any()


@pytest.mark.parametrize("jump_s", [0.06, -0.06])
def test_rows_between_the_exchanges_around_a_step_may_be_on_either_side(jump_s):
    """Nothing but exchanges, five seconds apart, tells when the clock was set."""
    device = Device(jumps=((801.0, jump_s),))
    slow = rows_of(device, rate_hz=1.0, from_s=0.5)

    fitted = fit(ask(device))

    beside_ns = slow.dev_ns_T[fitted.is_beside_step(slow.dev_ns_T)]
    took_s = fitted.steps[0].took_ns * 1e-9
    assert took_s - 2 <= len(beside_ns) <= took_s + 2
    assert np.abs(beside_ns - device.read(START_NS + 801 * SECOND)).max() < (took_s + 1) * SECOND
