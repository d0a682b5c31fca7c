import numpy as np
import polars as pl
import pytest

from pipelines.clocks.placing import RowStream
from tests.unit.clocks.devices import SECOND, START_NS, Device, ask, error_ms, fit, rows_of


def placed_s(fitted):
    """From when to when each step may have been, in seconds since the start."""
    sides = zip(fitted.segments[:-1], fitted.segments[1:], fitted.steps, strict=True)
    return [
        tuple(
            (int(segment.to_utc(np.array([dev_ns]))[0][0]) - START_NS) * 1e-9
            for segment, dev_ns in ((old, step.before_ns), (new, step.after_ns))
        )
        for old, new, step in sides
    ]


@pytest.mark.parametrize("jump_s", [0.05, -0.05, 0.31, -1.37])
@pytest.mark.parametrize(
    ("link", "rate_hz", "jitter_ms"), [("lan", 25.0, 1.0), ("wifi", 10.0, 4.0), ("cellular", 1.0, 5.0)]
)
def test_a_step_lies_between_the_two_rows_around_it(jump_s, link, rate_hz, jitter_ms):
    device = Device(jumps=((801.003, jump_s),))

    fitted = fit(ask(device, link=link), [rows_of(device, rate_hz=rate_hz, jitter_ms=jitter_ms)])

    ((low_s, high_s),) = placed_s(fitted)
    assert low_s - 0.01 <= 801.003 <= high_s + 0.01
    assert high_s - low_s < 5 / rate_hz


@pytest.mark.parametrize("jump_s", [0.4, -0.4])
def test_a_step_by_whole_periods_is_told_from_a_gap_nearby(jump_s):
    device = Device(jumps=((801.003, jump_s),))

    fitted = fit(ask(device, link="wifi"), [rows_of(device, jitter_ms=2.0, gaps_s=((806.0, 808.0),))])

    ((low_s, high_s),) = placed_s(fitted)
    assert low_s - 0.01 <= 801.003 <= high_s + 0.01
    assert high_s - low_s < 0.3


def test_a_step_inside_a_gap_is_at_the_gap():
    device = Device(jumps=((801.0, 0.25),))
    where = {"gaps_s": ((797.0, 806.0),)}

    fitted = fit(ask(device, link="wifi"), [rows_of(device, **where)])

    ((low_s, high_s),) = placed_s(fitted)
    assert 796.8 < low_s < 801.0 < high_s < 806.2
    assert np.abs(error_ms(fitted, device, **where)).max() < 3.0


def test_a_thousand_rows_a_second_place_a_step_although_their_beat_says_nothing():
    device = Device(jumps=((801.0003, -0.2795),))

    fitted = fit(ask(device), [rows_of(device, rate_hz=1_000.0, jitter_ms=0.05, gaps_s=((807.0, 809.0),))])

    ((low_s, high_s),) = placed_s(fitted)
    assert low_s - 0.001 <= 801.0003 <= high_s + 0.001
    assert high_s - low_s < 0.01


@pytest.mark.parametrize("jumps_s", [(0.0517, 0.0547), (0.38, -0.078), (-1.2, -0.8)])
def test_two_steps_are_told_apart_even_if_together_they_are_whole_periods(jumps_s):
    device = Device(jumps=tuple(zip((1_183.2, 1_212.3), jumps_s, strict=True)))
    is_between = pl.col("t2_srv").is_between(START_NS + 1_183 * SECOND, START_NS + 1_213 * SECOND)

    fitted = fit(ask(device, link="wifi").filter(~is_between), [rows_of(device, jitter_ms=3.0)])

    assert [step.jump_ns * 1e-9 for step in fitted.steps] == pytest.approx(jumps_s, abs=0.02)
    assert [high_s - low_s < 0.3 for low_s, high_s in placed_s(fitted)] == [True, True]


@pytest.mark.parametrize("seed", range(12))
def test_late_stamps_are_no_second_step(seed):
    random = np.random.default_rng(seed)
    device = Device(jumps=((801.003, -0.354),))
    rows = rows_of(device, jitter_ms=4.0, seed=seed)
    late_ns = np.where(random.random(len(rows.dev_ns_T)) < 0.03, random.uniform(2e7, 2e8, len(rows.dev_ns_T)), 0.0)

    fitted = fit(ask(device, link="wifi"), [RowStream(rows.dev_ns_T + late_ns.astype(np.int64), rows.period_ns)])

    assert len(fitted.steps) == 1


def test_a_period_is_found_among_gaps_and_steps():
    """Of 12 minutes at 1 Hz too few stretches were whole, and every row seemed 3 ms off the beat of the one before."""
    device = Device(jumps=((142.5, 1.67), (431.7, 0.309)), minutes=12)
    where = {"to_s": 720.0, "gaps_s": ((60.0, 80.0), (250.0, 262.0), (600.0, 630.0))}

    fitted = fit(ask(device, link="cellular", minutes=12), [rows_of(device, rate_hz=1.0, jitter_ms=5.0, **where)])

    (_, (low_s, high_s)) = placed_s(fitted)
    assert low_s - 0.01 <= 431.7 <= high_s + 0.01
    assert high_s - low_s < 2.1


def test_jitter_as_large_as_the_step_leaves_open_when_it_was():
    device = Device(jumps=((801.0, 0.05),))

    fitted = fit(ask(device, link="wifi"), [rows_of(device, jitter_ms=60.0)])

    ((low_s, high_s),) = placed_s(fitted)
    assert low_s < 801.1
    assert high_s > 800.9


def test_the_sensor_that_knows_best_places_the_step():
    device = Device(jumps=((801.0, 0.3),))
    slow, fast = rows_of(device, rate_hz=1.0, jitter_ms=5.0), rows_of(device, rate_hz=25.0, jitter_ms=1.0)

    fitted = fit(ask(device, link="wifi"), [slow, fast])

    ((low_s, high_s),) = placed_s(fitted)
    assert high_s - low_s < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_late_and_shuffled_rows_do_not_move_a_step(seed):
    random = np.random.default_rng(seed)
    device = Device(jumps=((801.003, 0.3),))
    rows = rows_of(device, jitter_ms=2.0, seed=seed)
    turn = np.arange(len(rows.dev_ns_T)) + np.where(random.random(len(rows.dev_ns_T)) < 0.01, 20.5, 0.0)
    late_ns = np.where(random.random(len(turn)) < 0.005, 150_000_000, 0)

    fitted = fit(ask(device, link="wifi"), [RowStream((rows.dev_ns_T + late_ns)[np.argsort(turn)], rows.period_ns)])

    ((low_s, high_s),) = placed_s(fitted)
    assert low_s - 0.01 <= 801.003 <= high_s + 0.01
    assert high_s - low_s < 0.5


@pytest.mark.parametrize("dev_ns", [[], [START_NS], [START_NS] * 100, list(range(100))])
def test_rows_that_say_nothing_leave_the_step_where_exchanges_put_it(dev_ns):
    device = Device(jumps=((801.0, 0.3),))
    log = ask(device)

    fitted = fit(log, [RowStream(np.array(dev_ns, dtype=np.int64), 1e8)])

    assert placed_s(fitted) == placed_s(fit(log))
