import numpy as np
import polars as pl
import pytest

from pipelines.clocks.exchanges import Exchanges, exchanges_of
from pipelines.clocks.servers import consistent, honest
from pipelines.ingest.reader import ClockSpec
from tests.unit.clocks.devices import SECOND, START_NS, Device, ask, error_ms, fit, rows_of

EPOCH = ClockSpec(clock_id="c", kind="epoch", ntp=True)


@pytest.mark.parametrize("lies_from_s", [0.0, 700.0])
@pytest.mark.parametrize("link", ["lan", "wifi", "cellular"])
def test_one_lying_server_of_three_is_not_believed(lies_from_s, link):
    device = Device()

    fitted = fit(ask(device, link=link, lies_s=(0.0, 0.3, 0.0), lies_from_s=lies_from_s))

    assert fitted.residuals.servers_rejected == ("ntp-1",)
    assert np.abs(error_ms(fitted, device)).max() < {"lan": 0.1, "wifi": 0.8, "cellular": 6.0}[link]
    assert fitted.steps == ()


@pytest.mark.parametrize("seed", range(4))
def test_two_liars_of_five_are_not_believed_though_the_clock_is_set_every_few_minutes(seed):
    """Few exchanges, of which a fifth follow a step or the beginning of a lie, must not pass for a wandering clock."""
    device = Device(jumps=((200.0, 0.6), (350.0, -0.4), (500.0, 1.2), (700.0, 0.3)), drift_ppm=4_200.0, minutes=15)
    lies_s = (0.0, 0.3, 0.0, 0.0, -0.45)

    fitted = fit(ask(device, link="wifi", lies_s=lies_s, lies_from_s=300.0, seed=seed, minutes=15))

    assert fitted.residuals.servers_rejected == ("ntp-1", "ntp-4")
    assert [round(step.jump_ns * 1e-8) for step in fitted.steps] == [6, -4, 12, 3]


@pytest.mark.parametrize("seed", range(4))
def test_two_liars_that_are_asked_one_after_the_other_are_no_quarrel_of_two_servers(seed):
    """The other three were asked at about the same time: of the liars none is the one that did not jump."""
    exchanges = exchanges_of(ask(Device(), lies_s=(0.0, 0.5, -0.4, 0.0, 0.0), lies_from_s=1_300.0, seed=seed), EPOCH)

    lies_X = np.isin(exchanges.server_X, [1, 2]) & (exchanges.since_s_X > 1_350.0)
    assert lies_X.any()
    assert not honest(exchanges)[lies_X].any()


@pytest.mark.parametrize("link", ["lan", "cellular"])
def test_a_server_that_drifts_away_is_not_believed(link):
    device = Device()

    fitted = fit(ask(device, link=link, lies_s=(0.0, 1e-9, 0.0), lies_from_s=300.0, lie_drift=3e-4))

    assert fitted.residuals.servers_rejected == ("ntp-1",)
    assert fitted.steps == ()
    assert np.abs(error_ms(fitted, device)).max() < {"lan": 0.2, "cellular": 10.0}[link]


def test_servers_that_all_disagree_leave_the_map_as_uncertain_as_they_are_apart():
    device = Device()

    fitted = fit(ask(device, lies_s=(0.0, 0.3, -0.7)))

    _, sigma_ns = fitted.to_utc(np.array([START_NS + 600 * SECOND]))
    assert sigma_ns[0] >= 0.4e9


def test_of_two_servers_that_always_disagree_neither_is_believed():
    exchanges = exchanges_of(ask(Device(), lies_s=(0.0, 0.3)), EPOCH)

    assert not honest(exchanges).any()


@pytest.mark.parametrize("lies_s", [(0.0, 0.3), (-0.2, 0.0)])
@pytest.mark.parametrize("link", ["lan", "wifi", "cellular"])
def test_of_two_servers_the_one_that_jumped_is_not_believed(lies_s, link):
    device = Device(jumps=((300.0, 0.4),))

    fitted = fit(ask(device, link=link, lies_s=lies_s, lies_from_s=900.0), [rows_of(device)])

    assert fitted.residuals.servers_rejected == (f"ntp-{int(np.argmax(np.abs(lies_s)))}",)
    assert np.abs(error_ms(fitted, device)).max() < 10.0


def test_a_step_just_before_a_lie_does_not_hide_who_jumped():
    device = Device(jumps=((555.0, -1.26), (1_401.0, 0.16)))

    fitted = fit(ask(device, lies_s=(0.45, 0.0), lies_from_s=590.0), [rows_of(device)])

    assert fitted.residuals.servers_rejected == ("ntp-0",)
    assert np.abs(error_ms(fitted, device)).max() < 0.3


def test_a_map_that_rests_on_a_quarrel_still_follows_the_clock_and_covers_the_truth():
    device = Device(jumps=((700.0, 1.2),))

    fitted = fit(ask(device, lies_s=(0.0, 0.3)), [rows_of(device)])

    utc_ns = START_NS + np.arange(60, 1_700, 20) * SECOND
    mapped_ns, sigma_ns = fitted.to_utc(device.read(utc_ns))
    assert fitted.residuals.servers_rejected == ("ntp-0", "ntp-1")
    assert [step.jump_ns * 1e-9 for step in fitted.steps] == pytest.approx([1.2], abs=1e-3)
    assert (np.abs(mapped_ns - utc_ns) <= 2 * sigma_ns).all()
    assert sigma_ns.max() < 0.4e9


def test_steps_of_the_clock_make_no_server_a_liar():
    device = Device(jumps=tuple((at_s, 0.5 * (-1) ** (at_s // 100)) for at_s in range(100, 1_800, 100)))

    assert honest(exchanges_of(ask(device), EPOCH)).all()


def test_servers_that_are_not_synchronised_are_left_out():
    device = Device()
    log = ask(device, lies_s=(0.0, 0.4)).with_columns(
        stratum=pl.when(pl.col("server_id") == "ntp-1").then(16).otherwise(2)
    )

    fitted = fit(log)

    assert np.abs(error_ms(fitted, device)).max() < 0.2
    assert fitted.residuals.num_rejected == log.height // 2


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_wanders_far_within_days_makes_no_exchange_implausible(seed):
    """Its drift changes by some 50 ppm; polls are nine minutes apart and the round trips that bound the truth 10 ms."""
    random = np.random.default_rng(seed)
    at_s = np.arange(0.0, 10 * 86_400.0, 514.0)
    offset_ns = np.cumsum(np.cumsum(random.normal(0.0, 100.0 * np.sqrt(514.0), len(at_s))) * 514.0)
    exchanges = Exchanges(
        dev_ns_X=START_NS + np.rint(at_s * 1e9 - offset_ns).astype(np.int64),
        offset_ns_X=np.rint(offset_ns).astype(np.int64),
        rtt_ns_X=np.full(len(at_s), 10_000_000),
        server_X=np.zeros(len(at_s), dtype=np.int64),
        servers=("far",),
    )

    assert consistent(exchanges).mean() > 0.995


def test_a_single_answer_that_is_far_off_moves_nothing():
    device = Device()
    log = ask(device, lies_s=(0.0,))
    odd = pl.int_range(pl.len()) == 40
    log = log.with_columns(
        pl.when(odd).then(pl.col("t2_srv", "t3_srv") + 250_000_000).otherwise(pl.col("t2_srv", "t3_srv"))
    )

    fitted = fit(log)

    assert fitted.steps == ()
    assert fitted.residuals.num_rejected == 1
    assert np.abs(error_ms(fitted, device)).max() < 0.2


@pytest.mark.parametrize("seed", range(4))
def test_a_lie_that_drifts_back_into_the_bounds_is_not_believed_there(seed):
    device = Device()
    log = ask(device, link="cellular", lies_s=(0.0, 0.0, 0.0, -0.08), lies_from_s=900.0, lie_drift=1.6e-4, seed=seed)

    fitted = fit(log)

    assert fitted.residuals.servers_rejected == ("ntp-3",)
    assert fitted.steps == ()
    assert np.abs(error_ms(fitted, device)).max() < 5.0
