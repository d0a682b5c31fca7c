import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.clocks.exchanges import Exchanges, exchanges_of
from pipelines.clocks.fit import fit_exchanges, fit_pairs
from pipelines.ingest.reader import ClockSpec
from tests.unit.clocks.devices import SECOND, START_NS, Device, ask, error_ms, fit, rows_of

EPOCH = ClockSpec(clock_id="c", kind="epoch", ntp=True)


def test_offset_and_drift_are_found():
    device = Device(offset_s=-1.9, drift_ppm=-87.0)

    fitted = fit(ask(device))

    assert np.abs(error_ms(fitted, device)).max() < 0.1
    assert fitted.drift_ppm == pytest.approx(87.0, abs=0.2)
    assert fitted.offset_ns == pytest.approx(1.9e9, abs=1e6)
    assert fitted.residuals.floor_ns == pytest.approx(0.15e6, rel=0.2)


@pytest.mark.parametrize("drift_ppm", [5_000.0, 3_300.0, -1_600.0, -5_000.0])
def test_drift_of_parts_per_thousand_is_no_reason_to_give_up(drift_ppm):
    device = Device(drift_ppm=drift_ppm, jumps=((700.0, 0.3), (900.0, -0.8)))

    fitted = fit(ask(device, lies_s=(0.0, 0.2, 0.0), lies_from_s=400.0), [rows_of(device)])

    assert fitted.residuals.servers_rejected == ("ntp-1",)
    assert np.abs(error_ms(fitted, device)).max() < 0.3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("link", "limit_ms"), [("lan", 0.2), ("wifi", 3.0), ("cellular", 10.0)])
def test_a_wandering_clock_that_was_set_twice_is_followed_beside_a_liar(link, limit_ms, seed):
    random = np.random.default_rng(seed)
    at_s = np.sort(random.uniform(200.0, 1_600.0, size=2)) + np.array([0.0, 60.0])
    jumps = tuple(zip(at_s, random.choice([-1, 1], size=2) * random.uniform(0.05, 2.0, size=2), strict=True))
    device = Device(drift_ppm=random.uniform(-100.0, 100.0), wander_ppb=20.0, jumps=jumps, seed=seed)

    log = ask(device, link=link, lies_s=(0.0, 0.1, 0.0), lies_from_s=random.uniform(0.0, 900.0), seed=seed)
    fitted = fit(log, [rows_of(device, jitter_ms=1.0)])

    assert [step.jump_ns * 1e-9 for step in fitted.steps] == pytest.approx([jump for _, jump in jumps], abs=0.01)
    assert np.percentile(np.abs(error_ms(fitted, device)), 99) < limit_ms


@pytest.mark.parametrize("jump_s", [0.06, 1.7, -0.06, -1.7])
def test_a_clock_that_was_set_is_mapped_on_both_sides(jump_s):
    device = Device(jumps=((801.0, jump_s),))

    fitted = fit(ask(device), [rows_of(device)])

    assert [step.jump_ns for step in fitted.steps] == [pytest.approx(jump_s * 1e9, abs=2e5)]
    assert fitted.set_ns[0] == pytest.approx(START_NS + 801 * SECOND, abs=1e8)
    assert np.abs(error_ms(fitted, device)).max() < 0.3


def test_many_steps_of_a_short_trip_are_all_found():
    """Of a trip of 12 minutes with two steps all three servers were once rejected, and the map was 1 s off."""
    jumps = ((100.0, -1.7), (230.0, 0.084), (390.0, 1.1), (600.0, -0.4))
    device = Device(jumps=jumps, minutes=12)

    fitted = fit(ask(device, minutes=12), [rows_of(device, to_s=720.0)])

    assert fitted.residuals.servers_rejected == ()
    assert [step.jump_ns * 1e-9 for step in fitted.steps] == pytest.approx([jump for _, jump in jumps], abs=1e-3)
    assert np.abs(error_ms(fitted, device, to_s=720.0)).max() < 0.3


def test_two_steps_with_no_exchange_in_between_are_told_apart_by_the_rows():
    device = Device(jumps=((801.0, 0.73), (803.0, -0.31)))
    log = ask(device).filter(~pl.col("t2_srv").is_between(START_NS + 795 * SECOND, START_NS + 809 * SECOND))

    fitted = fit(log, [rows_of(device, jitter_ms=2.0)])

    assert [step.jump_ns * 1e-9 for step in fitted.steps] == pytest.approx([0.73, -0.31], abs=0.02)
    assert np.abs(error_ms(fitted, device)).max() < 20.0


@pytest.mark.parametrize("seed", range(3))
def test_congestion_on_one_way_is_not_taken_for_a_step(seed):
    device = Device(wander_ppb=10.0, seed=seed)
    log = ask(device, link="wifi", seed=seed)
    is_jammed = pl.col("t2_srv").is_between(START_NS + 600 * SECOND, START_NS + 800 * SECOND)
    jam_ns = pl.Series(np.random.default_rng(seed).exponential(60e6, log.height).astype(np.int64))
    jammed = log.with_columns(t4_dev=pl.when(is_jammed).then(pl.col("t4_dev") + jam_ns).otherwise("t4_dev"))

    fitted = fit(jammed)

    assert fitted.steps == ()
    assert np.abs(error_ms(fitted, device)).max() < 3.0


@pytest.mark.parametrize("seed", range(8))
def test_a_step_amid_congestion_is_no_wander(seed):
    """The exchanges just beside such a step tell little of it; those before and after the congestion do."""
    device = Device(jumps=((700.0, -0.08),), wander_ppb=5.0, seed=seed)

    fitted = fit(ask(device, link="cellular", congested_s=(640.0, 800.0), seed=seed))

    assert [step.jump_ns * 1e-9 for step in fitted.steps] == pytest.approx([-0.08], abs=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_found_although_the_line_is_congested_from_then_on(seed):
    device = Device(jumps=((700.0, -0.0638),))
    log = ask(device, link="cellular", seed=seed)
    is_jammed = pl.col("t2_srv").is_between(START_NS + 695 * SECOND, START_NS + 820 * SECOND)
    jam_ns = pl.Series(np.random.default_rng(seed).exponential(70e6, log.height).astype(np.int64))
    jammed = log.with_columns(t4_dev=pl.when(is_jammed).then(pl.col("t4_dev") + jam_ns).otherwise("t4_dev"))

    fitted = fit(jammed, [rows_of(device, rate_hz=1.0, jitter_ms=5.0)])

    assert [step.jump_ns * 1e-6 for step in fitted.steps] == pytest.approx([-63.8], abs=5.0)


def test_a_tick_counter_is_mapped_through_its_overflow():
    power_on_ns = START_NS - 3_600 * SECOND
    log = ask(Device(offset_s=0.0, drift_ppm=0.0)).with_columns(
        ((pl.col("t1_dev", "t4_dev") - power_on_ns) // 1_000) % 2**32
    )

    fitted = fit(log, ntp_unit="us_u32")

    utc_ns = START_NS + np.arange(0, 1_700, 10) * SECOND
    assert np.abs(fitted.to_utc(utc_ns - power_on_ns)[0] - utc_ns).max() < 100_000


def test_the_order_of_the_log_does_not_matter():
    device = Device(jumps=((801.0, -0.5),))
    log = ask(device)

    fitted, shuffled = fit(log), fit(log.sample(fraction=1.0, shuffle=True, seed=0))

    assert shuffled.to_json() == fitted.to_json()


def test_an_exchange_that_was_logged_twice_counts_once():
    log = ask(Device())

    assert fit(pl.concat([log, log])).residuals.num_exchanges == fit(log).residuals.num_exchanges


@pytest.mark.parametrize("link", ["lan", "wifi", "cellular"])
def test_the_stated_uncertainty_holds(link):
    covered = []
    for seed in range(8):
        device = Device(wander_ppb=20.0, seed=seed)
        fitted = fit(ask(device, link=link, seed=seed))
        utc_ns = START_NS + np.arange(0, 1_800, 5) * SECOND
        mapped_ns, sigma_ns = fitted.to_utc(device.read(utc_ns))
        covered.append(np.abs(mapped_ns - utc_ns) <= 2 * sigma_ns)

    assert np.mean(covered) > 0.93


def test_one_exchange_gives_a_map_whose_uncertainty_grows():
    device = Device(drift_ppm=100.0)

    fitted = fit(ask(device).head(1))

    utc_ns = START_NS + np.array([15, 60, 1_800]) * SECOND
    mapped_ns, sigma_ns = fitted.to_utc(device.read(utc_ns))
    assert (np.abs(mapped_ns - utc_ns) <= 3 * sigma_ns + fitted.residuals.floor_ns).all()
    assert sigma_ns[1] > 1e8 / 1e3
    assert sigma_ns[2] > sigma_ns[1]


def test_the_stated_uncertainty_holds_beyond_the_last_exchange():
    device = Device()
    fitted = fit(ask(device, minutes=10))

    utc_ns = START_NS + np.array([900, 1_800]) * SECOND
    mapped_ns, sigma_ns = fitted.to_utc(device.read(utc_ns))

    assert (np.abs(mapped_ns - utc_ns) <= 3 * sigma_ns).all()
    assert sigma_ns[1] > sigma_ns[0]


def test_uncertainty_grows_between_exchanges_that_are_far_apart():
    device = Device(wander_ppb=100.0)
    log = ask(device).filter(~pl.col("t2_srv").is_between(START_NS + 600 * SECOND, START_NS + 1_200 * SECOND))

    _, sigma_ns = fit(log).to_utc(device.read(START_NS + np.array([500, 900, 1_300]) * SECOND))

    assert sigma_ns[1] > 3 * max(sigma_ns[0], sigma_ns[2])


def test_pairs_give_offset_and_skew():
    dev_ns = np.arange(0, 3_000, 10) * SECOND
    utc_ns = START_NS + (dev_ns * 1.0032).astype(np.int64)
    jitter_ns = np.random.default_rng(0).normal(0.0, 8e5, size=300).astype(np.int64)

    fitted = fit_pairs("c", dev_ns + jitter_ns, utc_ns, np.full(300, 8e5))

    assert fitted.drift_ppm == pytest.approx(3_200.0, abs=1.0)
    assert np.abs(fitted.to_utc(dev_ns)[0] - utc_ns).max() < 5e5


@pytest.mark.parametrize("seed", range(3))
def test_a_sparse_log_of_a_wandering_clock_is_predicted_where_it_was_left_out(seed):
    """Ten days, one server behind a congested line, a poll each nine minutes, a clock that follows the temperature."""
    exchanges, offset_ns = sparse_log(seed)
    is_left_out = np.arange(len(offset_ns)) % 2 == 1

    fitted = fit_exchanges("c", exchanges.only(~is_left_out))

    mapped_ns, sigma_ns = fitted.to_utc(exchanges.dev_ns_X[is_left_out])
    error_ns = mapped_ns - exchanges.dev_ns_X[is_left_out] - offset_ns[is_left_out]
    assert np.median(np.abs(error_ns)) < 0.4e6
    assert np.percentile(np.abs(error_ns), 99) < 3e6
    assert np.mean(np.abs(error_ns) <= 2 * sigma_ns) > 0.93


def sparse_log(seed):
    """Exchanges, and what the offset truly was at each."""
    random = np.random.default_rng(seed)
    at_s = np.arange(0.0, 10 * 86_400.0, 514.0)
    second = np.arange(0.0, 10 * 86_400.0, 10.0)
    indoors_ppm = np.zeros(len(second))
    for begin, warm_ppm in zip(random.integers(0, len(second), 40), random.normal(0.0, 1.5, 40), strict=True):
        since_s = second[begin:] - second[begin]
        indoors_ppm[begin:] += warm_ppm * (np.exp(-since_s / 7_200) - np.exp(-since_s / 600))
    ppm = random.uniform(-30.0, 30.0) + 0.6 * np.sin(2 * np.pi * second / 86_400) + indoors_ppm
    offset_ns = np.interp(at_s, second, np.cumsum(ppm * 1e4))
    queue_ms = 1.5 * np.exp(random.normal(0.0, 0.6, len(at_s)))
    for begin_s in random.uniform(0.0, 10 * 86_400.0, 30):
        queue_ms[(at_s > begin_s) & (at_s < begin_s + 3_000)] *= 8
    there_ms, back_ms = 5.0 + random.exponential(0.3 * queue_ms), 5.0 + random.exponential(0.7 * queue_ms)
    exchanges = Exchanges(
        dev_ns_X=START_NS + np.rint(at_s * 1e9 - offset_ns).astype(np.int64),
        offset_ns_X=np.rint(offset_ns + (there_ms - back_ms) * 5e5).astype(np.int64),
        rtt_ns_X=((there_ms + back_ms) * 1e6).astype(np.int64),
        server_X=np.zeros(len(at_s), dtype=np.int64),
        servers=("far",),
    )
    return exchanges, np.rint(offset_ns)


FIELD = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(START_NS - 10 * SECOND, START_NS + 10 * SECOND))
LOG = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None]), FIELD, FIELD, FIELD, FIELD, st.integers(0, 16) | st.none()),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(LOG, st.sampled_from(["ns", "us_u32"]))
def test_whatever_is_logged_gives_a_map_or_no_exchange(lines, unit):
    names = ["server_id", "t1_dev", "t2_srv", "t3_srv", "t4_dev", "stratum"]
    schema = dict(zip(names, [pl.String, *[pl.Int64] * 5], strict=True))
    log = pl.DataFrame(lines, schema=schema, orient="row").with_columns(clock_id=pl.lit("c"))

    exchanges = exchanges_of(log, ClockSpec(clock_id="c", kind="epoch", ntp=True, ntp_unit=unit))

    assert len(exchanges.dev_ns_X) + exchanges.num_unusable == len(lines)
    if len(exchanges.dev_ns_X):
        utc_ns, sigma_ns = fit_exchanges("c", exchanges).to_utc(exchanges.dev_ns_X)
        assert np.isfinite(sigma_ns).all()
        assert (sigma_ns > 0).all()
        assert len(utc_ns) == len(exchanges.dev_ns_X)
