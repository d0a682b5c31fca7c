import numpy as np
import pytest

from pipelines.align import Track
from pipelines.channels import BUNDLE_SENSORS, METROPT3_CHANNELS, RULES
from pipelines.screen import REASONS, Readings, Reason, Screened, contradicted
from pipelines.screen.contradictions import _means

SECOND = 10**9
START_NS = 1_767_600_000 * SECOND
RATE_HZ = {"pneu": 10.0, "dop": 20.0, "gnss": 1.0, "trk": 25.0, "tmp": 1.0, "apu": 0.1}
CHANNELS = BUNDLE_SENSORS | {"apu": METROPT3_CHANNELS}


def screened(sensor, seconds, phase=0.3, **values):
    """A sensor of which nothing is wrong; `values` are functions of the seconds since the start."""
    t_s = np.arange(phase / RATE_HZ[sensor], seconds, 1.0 / RATE_HZ[sensor])
    track = Track(
        sensor=sensor,
        t_ns_T=START_NS + (t_s * SECOND).astype(np.int64),
        values={name: np.asarray(value(t_s), dtype=float) for name, value in values.items()},
        channels=tuple(channel for channel in CHANNELS[sensor] if channel.name in values),
        rate_hz=RATE_HZ[sensor],
    )
    codes = {name: np.zeros(len(t_s), dtype=np.uint8) for name in values}
    return Screened(track=track, num_rows=len(t_s), used=np.arange(len(t_s)), code_S=codes)


def noisy(sigma, seed):
    random = np.random.default_rng(seed)
    return lambda t_s: random.normal(0.0, sigma, size=len(t_s))


def compare(*sensors, comparable=tuple(RATE_HZ), witnesses=None):
    """First and last marked second of each channel that has any."""
    found = contradicted({own.track.sensor: own for own in sensors}, comparable=comparable, witnesses=witnesses or {})
    wrong = {}
    for sensor, own in found.items():
        for name, code_S in own.code_S.items():
            assert set(np.unique(code_S)) <= {0, 1 + REASONS.index(Reason.CONTRADICTION)}
            assert np.array_equal(np.isnan(own.track.values[name]), code_S > 0)
            if code_S.any():
                t_s = (own.track.t_ns_T[code_S > 0] - START_NS) / SECOND
                wrong[f"{sensor}.{name}"] = (round(float(t_s[0])), round(float(t_s[-1])))
    return wrong


def between(start_s, end_s):
    return lambda t_s: (t_s >= start_s) & (t_s < end_s)


def speed_mps(t_s):
    return 20.0 + 15.0 * np.sin(t_s / 30.0)


def test_every_rule_names_channels_that_exist():
    for rule in RULES:
        for name in (rule.first, rule.second):
            sensor, channel = name.split(".")
            assert channel in {each.name for each in CHANNELS[sensor]}, name


@pytest.mark.parametrize("seed", range(3))
def test_a_brake_pipe_above_its_reservoir_contradicts_it(seed):
    noise, is_wrong = noisy(0.02, seed), between(40.0, 60.0)
    pneu = screened(
        "pneu", 120.0, res_bar=lambda t: 9.0 + noise(t), pipe_bar=lambda t: 5.0 + noise(t) + 4.6 * is_wrong(t)
    )

    assert compare(pneu) == {"pneu.res_bar": (40, 60), "pneu.pipe_bar": (40, 60)}


def test_a_contradiction_of_a_moment_is_none():
    is_wrong = between(40.0, 43.0)
    pneu = screened("pneu", 120.0, res_bar=lambda t: 9.0 - 5.0 * is_wrong(t), pipe_bar=lambda t: 5.0 + 0.0 * t)

    assert compare(pneu) == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_reservoir_does_not_fill_by_itself(seed):
    noise, rise = noisy(0.01, seed), lambda t: 0.045 * np.clip(t - 30.0, 0.0, 20.0)
    silent = screened("pneu", 120.0, res_bar=lambda t: 8.0 + rise(t) + noise(t), comp_on=lambda t: 0.0 * t)
    running = screened("pneu", 120.0, res_bar=lambda t: 8.0 + rise(t) + noise(t), comp_on=between(30.0, 50.0))

    assert compare(running) == {}
    wrong = compare(silent)
    assert wrong.keys() == {"pneu.res_bar", "pneu.comp_on"}
    assert wrong["pneu.res_bar"] == pytest.approx((30, 50), abs=3)


@pytest.mark.parametrize("leak_bar_per_s", [0.0, 0.02, 0.2])
def test_a_leak_contradicts_nothing(leak_bar_per_s):
    pneu = screened(
        "pneu",
        120.0,
        res_bar=lambda t: 9.0 - leak_bar_per_s * t.clip(max=19.0),
        pipe_bar=lambda t: 5.0 + 0.0 * t,
        comp_on=lambda t: 0.0 * t,
    )

    assert compare(pneu) == {}


def test_a_hot_bearing_contradicts_nothing_but_one_far_below_the_rail_does():
    rail = screened("trk", 60.0, rail_temp_c=lambda t: 35.0 + 0.0 * t)
    hot = screened("tmp", 60.0, bearing_c=lambda t: 60.0 + t)
    broken = screened("tmp", 60.0, bearing_c=lambda t: 40.0 - 60.0 * between(20.0, 40.0)(t))

    assert compare(rail, hot) == {}
    assert compare(rail, broken) == {"trk.rail_temp_c": (20, 40), "tmp.bearing_c": (20, 39)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("phase", [0.0, 0.9])
def test_two_speeds_that_agree_are_believed_at_any_rate_and_phase(seed, phase):
    noise = noisy(0.2, seed)
    dop = screened("dop", 200.0, speed_mps=lambda t: 1.002 * speed_mps(t) + noise(t))
    gnss = screened("gnss", 200.0, phase, speed_mps=lambda t: speed_mps(t) + noise(t))

    assert compare(dop, gnss) == {}


def rolling(slip_s=(0.0, 0.0)):
    """The speed of the wheels, which are worn and slip."""
    t_s = np.arange(0.0, 200.0, 0.1)
    return {
        "odo.speed_mps": Readings(
            START_NS + (t_s * SECOND).astype(np.int64), 1.01 * speed_mps(t_s) + 9.0 * between(*slip_s)(t_s)
        )
    }


def test_of_two_speeds_the_one_that_the_wheels_contradict_is_wrong():
    right = {name: screened(name, 200.0, speed_mps=speed_mps) for name in ("dop", "gnss")}
    wrong = {
        name: screened(name, 200.0, speed_mps=lambda t: speed_mps(t) * (1.0 - 0.5 * between(80.0, 100.0)(t)))
        for name in ("dop", "gnss")
    }

    assert compare(wrong["dop"], right["gnss"], witnesses=rolling()).keys() == {"dop.speed_mps"}
    assert compare(right["dop"], wrong["gnss"], witnesses=rolling()).keys() == {"gnss.speed_mps"}
    assert compare(wrong["dop"], right["gnss"]).keys() == {"dop.speed_mps", "gnss.speed_mps"}


def test_wheels_that_slip_contradict_no_other_speed():
    dop, gnss = (screened(name, 200.0, speed_mps=speed_mps) for name in ("dop", "gnss"))

    assert compare(dop, gnss, witnesses=rolling(slip_s=(80.0, 100.0))) == {}


def test_sensors_are_not_compared_before_their_clocks_are_tied():
    dop = screened("dop", 200.0, speed_mps=speed_mps)
    gnss = screened("gnss", 200.0, speed_mps=lambda t: speed_mps(t + 60.0))

    assert compare(dop, gnss, comparable=["gnss"]) == {}
    assert compare(dop, gnss) != {}


def test_a_slow_sensor_is_compared_by_its_own_periods():
    apu = screened("apu", 3_000.0, TP3=lambda t: 9.0 + 0.0 * t, Reservoirs=lambda t: 9.0 - 4.0 * between(500, 900)(t))

    assert compare(apu) == {"apu.TP3": (503, 893), "apu.Reservoirs": (503, 893)}


def test_a_channel_without_readings_contradicts_nothing():
    pneu = screened("pneu", 60.0, res_bar=lambda t: np.nan * t, pipe_bar=lambda t: 5.0 + 0.0 * t)

    found = contradicted({"pneu": pneu}, comparable=[], witnesses={})

    assert not found["pneu"].code_S["pipe_bar"].any()


def test_the_instants_of_a_long_recording_compared_by_a_slow_tick_do_not_overflow():
    t_ns = START_NS + np.arange(0, 86_400 * SECOND, SECOND // 100)

    means = _means(Readings(t_ns, np.zeros(len(t_ns))), tick_ns=1_200 * SECOND)

    assert np.diff(means.t_ns_K).tolist() == [1_200 * SECOND] * 71
