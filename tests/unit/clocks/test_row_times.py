import numpy as np
import polars as pl
import pytest

from pipelines.channels import BUNDLE_SENSORS
from pipelines.clocks.row_times import FAULTS, row_times
from pipelines.clocks.stamps import RowFault, Stamps
from pipelines.ingest.reader import Encoding, SensorRows
from tests.unit.clocks.devices import SECOND, START_NS, Device, ask, fit

JUMP_S = 0.8
AT_S = (700.0, 800.9, 801.1, 900.0)


def stamped(name, device, utc_ns, *, rate_hz):
    """Rows of a sensor of a bundle, and their stamps."""
    dev_ns = device.read(utc_ns)
    channels = {channel.name: [str(i) for i in range(len(dev_ns))] for channel in BUNDLE_SENSORS[name]}
    sensor = SensorRows(
        sensor=name,
        rows=pl.DataFrame({"row": range(len(dev_ns)), "ts": dev_ns, **channels}),
        channels=BUNDLE_SENSORS[name],
        clock_id="c",
        encoding=Encoding.EPOCH_NS,
        nominal_rate_hz=rate_hz,
    )
    return sensor, Stamps(dev_ns, np.zeros(len(dev_ns), dtype=bool))


@pytest.fixture(scope="module")
def step_between_exchanges():
    """A clock that is set at 801 s, and its map, which has nothing but exchanges to tell when."""
    device = Device(jumps=((801.0, JUMP_S),))
    return device, fit(ask(device))


def test_an_event_beside_a_step_is_kept_and_as_uncertain_as_the_step(step_between_exchanges):
    device, fitted = step_between_exchanges
    utc_ns = START_NS + np.array([round(at_s * SECOND) for at_s in AT_S])

    times = row_times(*stamped("evt", device, utc_ns, rate_hz=None), fitted)

    assert times.num_rejected == {}
    assert np.abs(times.utc_ns_T - utc_ns).max() < 1.01 * JUMP_S * SECOND
    assert (np.abs(times.utc_ns_T - utc_ns) < 1e6)[[0, 3]].all()
    assert (times.sigma_ns_T[[0, 3]] < 1e6).all()
    assert times.sigma_ns_T[[1, 2]] == pytest.approx(JUMP_S / 2 * SECOND, rel=0.01)


def test_a_row_beside_a_step_is_rejected_where_others_of_its_sensor_stand_for_it(step_between_exchanges):
    device, fitted = step_between_exchanges
    utc_ns = START_NS + np.array([round(at_s * SECOND) for at_s in AT_S])

    times = row_times(*stamped("evt", device, utc_ns, rate_hz=0.01), fitted)

    beside = np.flatnonzero(times.fault_T == 1 + FAULTS.index(RowFault.BESIDE_STEP))
    assert beside.tolist() == [1, 2]
