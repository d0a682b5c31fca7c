import numpy as np
import polars as pl
import pytest

from pipelines.clocks.clock_map import identity_map
from pipelines.clocks.exchanges import exchanges_of
from pipelines.clocks.fit import fit_exchanges, fit_pairs
from pipelines.clocks.placing import RowStream
from pipelines.clocks.servers import honest
from pipelines.ingest.reader import ClockSpec

START_NS = 1_767_600_000_000_000_000
SECOND = 10**9
MINUTES = 30


class Device:
    """A clock with a known error: device = UTC + offset + drift * time, and jumps."""

    def __init__(self, *, offset_s=1.5, drift_ppm=60.0, jumps=()):
        self.offset_ns, self.drift, self.jumps = round(offset_s * 1e9), drift_ppm * 1e-6, jumps

    def read(self, utc_ns):
        since_ns = np.asarray(utc_ns) - START_NS
        error_ns = self.offset_ns + np.rint(self.drift * since_ns).astype(np.int64)
        for at_s, jump_s in self.jumps:
            error_ns = error_ns + np.where(since_ns >= at_s * SECOND, round(jump_s * 1e9), 0)
        return np.asarray(utc_ns) + error_ns


def ask(device, *, lies_s=(0.0, 0.0, 0.0), lies_from_s=0.0, delay_ms=0.2, seed=0, poll_s=16.0, minutes=MINUTES):
    """Log of NTP exchanges with one server for each entry of `lies_s`."""
    random = np.random.default_rng(seed)
    logs = []
    for server, lie_s in enumerate(lies_s):
        sent_ns = START_NS + (np.arange(0, minutes * 60, poll_s) * SECOND).astype(np.int64) + server * SECOND
        there_ns, back_ns = (
            (delay_ms * (1 + random.exponential(size=len(sent_ns))) * 1e6).astype(np.int64) for _ in "ab"
        )
        lie_ns = np.where(sent_ns - START_NS >= lies_from_s * SECOND, round(lie_s * 1e9), 0)
        logs.append(
            pl.DataFrame(
                {
                    "clock_id": "c",
                    "server_id": f"ntp-{server}",
                    "t1_dev": device.read(sent_ns),
                    "t2_srv": sent_ns + there_ns + lie_ns,
                    "t3_srv": sent_ns + there_ns + lie_ns + 20_000,
                    "t4_dev": device.read(sent_ns + there_ns + 20_000 + back_ns),
                    "stratum": 2,
                    "root_dispersion_ms": 1.0,
                    "sent": sent_ns,
                }
            )
        )
    return pl.concat(logs).sort("sent", maintain_order=True).drop("sent")


def fit(log, rows=(), **clock):
    return fit_exchanges("c", exchanges_of(log, ClockSpec(clock_id="c", kind="epoch", ntp=True, **clock)), rows)


def rows_of(device, *, rate_hz=10.0, minutes=MINUTES):
    """Rows without any delay."""
    utc_ns = START_NS + (np.arange(0, minutes * 60, 1 / rate_hz) * SECOND).astype(np.int64)
    return RowStream(device.read(utc_ns), SECOND / rate_hz)


def error_ms(fitted, device, *, from_s=0.0, to_s=MINUTES * 60.0, rate_hz=10.0):
    utc_ns = START_NS + (np.arange(from_s, to_s, 1 / rate_hz) * SECOND).astype(np.int64)
    dev_ns = device.read(utc_ns)
    return (fitted.to_utc(dev_ns)[0] - utc_ns) * 1e-6


def test_offset_and_drift_are_found():
    device = Device(offset_s=-1.9, drift_ppm=-87.0)

    fitted = fit(ask(device))

    assert np.abs(error_ms(fitted, device)).max() < 0.1
    assert fitted.drift_ppm == pytest.approx(87.0, abs=0.2)
    assert fitted.residuals.floor_ns == pytest.approx(0.2e6, rel=0.2)


@pytest.mark.parametrize("drift_ppm", [3_300.0, -1_600.0])
def test_drift_of_parts_per_thousand_is_no_reason_to_give_up(drift_ppm):
    device = Device(drift_ppm=drift_ppm)

    assert np.abs(error_ms(fit(ask(device)), device)).max() < 0.5


@pytest.mark.parametrize("lies_from_s", [0.0, 700.0])
@pytest.mark.parametrize("delay_ms", [0.2, 20.0])
def test_one_lying_server_of_three_is_not_believed(lies_from_s, delay_ms):
    device = Device()

    fitted = fit(ask(device, lies_s=(0.0, 0.3, 0.0), lies_from_s=lies_from_s, delay_ms=delay_ms))

    assert fitted.residuals.servers_rejected == ("ntp-1",)
    assert np.abs(error_ms(fitted, device)).max() < delay_ms / 2 + 0.1
    assert fitted.steps == ()


def test_servers_that_all_disagree_leave_the_map_as_uncertain_as_they_are_apart():
    device = Device()

    fitted = fit(ask(device, lies_s=(0.0, 0.3, -0.7)))

    _, sigma_ns = fitted.to_utc(np.array([START_NS + 600 * SECOND]))
    assert sigma_ns[0] >= 0.4e9


def test_of_two_servers_that_disagree_neither_is_believed():
    log = ask(Device(), lies_s=(0.0, 0.3))

    is_honest_X = honest(exchanges_of(log, ClockSpec(clock_id="c", kind="epoch", ntp=True)))

    assert not is_honest_X.any()


def test_servers_that_are_not_synchronised_are_left_out():
    device = Device()
    log = ask(device, lies_s=(0.0, 0.4)).with_columns(
        stratum=pl.when(pl.col("server_id") == "ntp-1").then(16).otherwise(2)
    )

    fitted = fit(log)

    assert np.abs(error_ms(fitted, device)).max() < 0.2
    assert fitted.residuals.num_rejected == log.height // 2


@pytest.mark.parametrize("jump_s", [0.06, 1.7, -0.06, -1.7])
def test_a_clock_that_was_set_is_mapped_on_both_sides(jump_s):
    device = Device(jumps=((801.0, jump_s),))

    fitted = fit(ask(device), [rows_of(device)])

    assert [step.jump_ns for step in fitted.steps] == [pytest.approx(jump_s * 1e9, abs=2e5)]
    assert np.abs(error_ms(fitted, device)).max() < 0.3


def test_two_steps_in_opposite_directions_are_both_found():
    device = Device(jumps=((400.0, 0.5), (1_300.0, -1.2)))

    fitted = fit(ask(device), [rows_of(device)])

    assert len(fitted.steps) == 2
    assert np.abs(error_ms(fitted, device)).max() < 0.3


def test_a_tick_counter_is_mapped_through_its_overflow():
    power_on_ns = START_NS - 3_600 * SECOND
    log = ask(Device(offset_s=0.0, drift_ppm=0.0)).with_columns(
        ((pl.col("t1_dev", "t4_dev") - power_on_ns) // 1_000) % 2**32
    )

    fitted = fit(log, ntp_unit="us_u32")

    utc_ns = START_NS + np.arange(0, 1_700, 10) * SECOND
    assert np.abs(fitted.to_utc(utc_ns - power_on_ns)[0] - utc_ns).max() < 100_000


def test_one_exchange_gives_a_map_whose_uncertainty_grows():
    device = Device(drift_ppm=100.0)

    fitted = fit(ask(device).head(1))

    utc_ns = START_NS + np.array([0, 60, 1_800]) * SECOND
    mapped_ns, sigma_ns = fitted.to_utc(device.read(utc_ns))
    assert sigma_ns[0] < 1e6 < sigma_ns[1] < sigma_ns[2]
    assert (np.abs(mapped_ns - utc_ns) <= 3 * sigma_ns).all()


def test_the_stated_uncertainty_holds_beyond_the_last_exchange():
    device = Device()
    fitted = fit(ask(device, minutes=10))

    utc_ns = START_NS + np.array([900, 1_800]) * SECOND
    mapped_ns, sigma_ns = fitted.to_utc(device.read(utc_ns))

    assert (np.abs(mapped_ns - utc_ns) <= 3 * sigma_ns).all()
    assert sigma_ns[1] > sigma_ns[0]


def test_pairs_give_offset_and_skew():
    dev_ns = np.arange(0, 3_000, 10) * SECOND
    utc_ns = START_NS + (dev_ns * 1.0032).astype(np.int64)
    jitter_ns = np.random.default_rng(0).normal(0.0, 8e5, size=300).astype(np.int64)

    fitted = fit_pairs("c", dev_ns + jitter_ns, utc_ns, np.full(300, 8e5))

    assert fitted.drift_ppm == pytest.approx(3_200.0, abs=1.0)
    assert np.abs(fitted.to_utc(dev_ns)[0] - utc_ns).max() < 5e5


def test_mapping_keeps_nanoseconds():
    fitted = identity_map("c", method="gps", sigma_ns=1.0)
    dev_ns = START_NS + np.arange(1_000)

    assert (fitted.to_utc(dev_ns)[0] == dev_ns).all()
