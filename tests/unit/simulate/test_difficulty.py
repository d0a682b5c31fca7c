import hashlib
from datetime import date

import numpy as np
import polars as pl
import pytest

from pipelines.channels import BUNDLE_SENSORS
from pipelines.errors import ConfigError
from pipelines.simulate import LEVELS, Difficulty, level, simulate_trip

SEEDS = range(3)
LIGHT = {"trip_minutes": 15.0, "aba_rate_hz": 50.0}
EXCHANGING = ("control", "vibration", "geometry", "brake", "axle")


def trip_of(name, seed, **changed):
    return simulate_trip(seed=seed, difficulty=level(name), **LIGHT | changed)


@pytest.mark.parametrize("name", LEVELS)
def test_every_level_makes_trips_with_rows_of_every_sensor(name):
    trip = trip_of(name, seed=1, trip_minutes=6.0)

    assert trip.frames.keys() == BUNDLE_SENSORS.keys()
    for sensor, frame in trip.frames.items():
        assert frame.height == trip.truth.rows[sensor].height > 0


def test_levels_differ_from_the_default_in_what_they_say():
    assert all(difficulty != level("default") for name, difficulty in LEVELS.items() if name != "default")


def test_the_default_trip_is_the_one_that_recipes_and_tests_know():
    """The digest was taken before there were levels, over the exchanges and the slow sensors, as CSV, in this order."""
    trip = simulate_trip(seed=3, trip_minutes=12.0, aba_rate_hz=50.0)

    digest = hashlib.sha256()
    for frame in (trip.ntp_log, *(trip.frames[name] for name in ("odo", "pneu", "tmp", "gnss", "evt"))):
        digest.update(frame.write_csv(float_precision=6).encode())

    assert digest.hexdigest()[:16] == "cf73adc527cb7f78"


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_step_as_often_as_the_level_says(seed):
    for clock_id, facts in trip_of("steps", seed).truth.facts["clocks"].items():
        sizes_ns = [abs(step["shift_ns"]) for step in facts["steps"]]

        assert (2 <= len(sizes_ns) <= 4) == (clock_id in EXCHANGING)
        assert all(50e6 <= size_ns <= 2_000e6 for size_ns in sizes_ns)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_step_of_a_clock_is_hidden_in_a_gap_of_its_rows(seed):
    trip = trip_of("steps", seed)

    for name, sensor in trip.meta["sensors"].items():
        steps = trip.truth.facts["clocks"][sensor["clock_id"]]["steps"]
        if steps and name != "evt":
            at_ns = trip.truth.rows[name]["t_utc_ns"].drop_nulls()
            assert (at_ns - steps[-1]["t_utc_ns"]).abs().min() > 4e9, name


@pytest.mark.parametrize("seed", SEEDS)
def test_close_steps_lie_within_a_minute_and_a_half(seed):
    for facts in trip_of("close_steps", seed).truth.facts["clocks"].values():
        at_ns = [step["t_utc_ns"] for step in facts["steps"]]
        assert not at_ns or at_ns[-1] - at_ns[0] <= 90e9


def test_clocks_drift_up_to_five_parts_per_thousand():
    drifts_ppm = [
        facts["drift_ppm"]
        for seed in range(6)
        for facts in trip_of("drift", seed, trip_minutes=2.0).truth.facts["clocks"].values()
        if facts["kind"] != "gps"
    ]

    assert 4_000.0 < np.abs(drifts_ppm).max() <= 5_000.0
    assert min(drifts_ppm) < 0 < max(drifts_ppm)


@pytest.mark.parametrize(("name", "num_servers", "num_liars"), [("liar", 4, 1), ("liars", 5, 2)])
def test_liars_lie_and_their_lies_move(name, num_servers, num_liars):
    trip = trip_of(name, seed=1, trip_minutes=30.0)
    log = trip.ntp_log.filter(pl.col("clock_id") == "control", pl.col("stratum") < 16)
    honest_s = log.filter(~pl.col("server_id").is_in(trip.truth.facts["lying_servers"]))
    median_offset_s = (honest_s["t2_srv"] - honest_s["t1_dev"]).median() * 1e-9

    assert log["server_id"].n_unique() == num_servers
    assert len(trip.truth.facts["lying_servers"]) == num_liars
    for liar in trip.truth.facts["lying_servers"]:
        late = log.filter(pl.col("server_id") == liar).tail(20)
        offset_s = (late["t2_srv"] - late["t1_dev"]) * 1e-9 - median_offset_s
        assert abs(offset_s.median()) > 0.05
        drift_ppm = np.polyfit(late["t2_srv"] * 1e-9 - late["t2_srv"][0] * 1e-9, offset_s, 1)[0] * 1e6
        assert abs(drift_ppm) > 1.0


def test_a_majority_of_liars_is_refused():
    with pytest.raises(ConfigError, match="2 of 4 servers would lie"):
        Difficulty(num_servers=4, num_liars=2)


def test_an_unknown_link_is_refused():
    with pytest.raises(ConfigError, match="no link 'dialup'; expected one of lan, wifi, cellular"):
        Difficulty(links={"control": "dialup"})


def test_an_unknown_level_is_refused():
    with pytest.raises(ConfigError, match="no difficulty 'easy'; expected one of default"):
        level("easy")


@pytest.mark.parametrize("name", ["lan", "wifi", "cellular"])
def test_all_clocks_of_a_level_named_after_a_link_use_it(name):
    log = trip_of(name, seed=2).ntp_log.filter(pl.col("clock_id") != "vibration")
    round_trip_ms = (log["t4_dev"] - log["t1_dev"] - (log["t3_srv"] - log["t2_srv"])) * 1e-6
    low_ms, high_ms = {"lan": (0.3, 1.0), "wifi": (2.4, 6.0), "cellular": (44.0, 70.0)}[name]

    assert log["clock_id"].n_unique() == 4
    assert low_ms < round_trip_ms.median() < high_ms


def test_longer_polls_give_fewer_exchanges():
    usual, rare = (trip_of(name, seed=2).ntp_log.height for name in ("default", "polls"))

    assert 3.5 < usual / rare < 4.5


@pytest.mark.parametrize("seed", SEEDS)
def test_the_local_hour_repeats_within_an_autumn_trip(seed):
    trip = trip_of("autumn", seed)

    assert trip.day == "2026-10-25"
    local = trip.frames["pneu"].filter(trip.truth.rows["pneu"]["t_utc_ns"].is_not_null())["ts"]
    jumps = local.str.to_datetime("%Y-%m-%d %H:%M:%S%.3f").diff().drop_nulls().dt.total_milliseconds()
    assert (jumps < -3_500_000).sum() == 1


def test_an_autumn_trip_starts_on_the_sunday_of_its_own_year():
    trip = trip_of("autumn", seed=0, trip_minutes=2.0, start_date=date(2027, 3, 1))

    assert trip.day == "2027-10-31"


def test_rougher_days_slip_more_and_see_less_of_the_sky():
    usual, rough = (trip_of(name, seed=2, trip_minutes=30.0) for name in ("default", "slip"))

    assert len(rough.truth.facts["slip_utc_ns"]) > 2 * len(usual.truth.facts["slip_utc_ns"])
    assert (rough.frames["gnss"]["fix"] == 0).sum() > 1.5 * (usual.frames["gnss"]["fix"] == 0).sum()


def test_multipath_throws_positions_forty_metres_off():
    usual, rough = (
        simulate_trip(seed=2, difficulty=Difficulty(multipath_share=share), **LIGHT) for share in (0.0, 0.05)
    )

    moved_m = (rough.frames["gnss"]["lat_deg"] - usual.frames["gnss"]["lat_deg"]).abs().drop_nulls() * 111_320.0
    assert moved_m.max() > 20.0
    assert 0.01 < (moved_m > 1.0).mean() < 0.2


def test_the_radar_may_count_from_nowhere_or_be_minutes_off():
    ticking, astray = (trip_of(name, seed=2) for name in ("radar_ticks", "radar_epoch"))

    assert ticking.meta["clocks"]["radar"]["kind"] == "ticks"
    assert "ticks" in ticking.frames["dop"].columns
    assert astray.meta["clocks"]["radar"] == {"kind": "epoch", "ntp": False, "ntp_unit": "ns"}
    assert abs(astray.truth.facts["clocks"]["radar"]["offset_s"]) > 10.0


def test_stronger_jitter_and_more_damage_spoil_more_rows():
    usual, rough = (trip_of(name, seed=2) for name in ("default", "jitter"))

    for name in ("odo", "pneu", "trk"):
        spoilt = [trip.truth.rows[name]["t_utc_ns"].null_count() for trip in (usual, rough)]
        assert spoilt[1] > spoilt[0]
        assert rough.frames[name].height < usual.frames[name].height


def test_no_exchange_gets_through_an_outage():
    usual, broken = (
        simulate_trip(seed=2, difficulty=Difficulty(num_outages=num), trip_minutes=30.0, aba_rate_hz=50.0).ntp_log
        for num in (0, 2)
    )

    for clock_id in EXCHANGING:
        silent_s = [
            log.filter(pl.col("clock_id") == clock_id)["t2_srv"].sort().diff().max() / 1e9 for log in (usual, broken)
        ]
        assert silent_s[0] < 90.0 < silent_s[1], clock_id


def test_gaps_are_as_long_as_the_level_makes_them():
    usual, rough = (trip_of(name, seed=2, trip_minutes=30.0) for name in ("default", "gaps"))

    for name in ("odo", "trk", "pneu"):
        longest_s = [
            trip.truth.rows[name]["t_utc_ns"].drop_nulls().sort().diff().max() / 1e9 for trip in (usual, rough)
        ]
        assert longest_s[1] > longest_s[0] > 1.0, name


@pytest.mark.parametrize("seed", SEEDS)
def test_a_trip_against_the_line_is_the_same_trip_counted_from_the_other_end(seed):
    along, against = (
        simulate_trip(seed=seed, difficulty=Difficulty(against_line=is_against), **LIGHT)
        for is_against in (False, True)
    )
    length_m = along.route["line_m"].max()

    for name, frame in along.frames.items():
        assert frame.equals(against.frames[name])
        sums_m = along.truth.rows[name]["line_m"] + against.truth.rows[name]["line_m"]
        assert np.allclose(sums_m, length_m, atol=1e-3)
    assert against.route["line_m"].is_sorted()
    on_both = along.route.join(against.route, on=["lat_deg", "lon_deg", "km_post"])
    assert on_both.height == along.route.height
    assert (on_both["line_m"] + on_both["line_m_right"] - length_m).abs().max() < 1e-6
    refs = along.balises.join(against.balises, on="ref")
    assert (refs["line_m"] + refs["line_m_right"] - length_m).abs().max() < 1e-6
