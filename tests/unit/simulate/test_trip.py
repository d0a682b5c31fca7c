from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.channels import BUNDLE_SENSORS
from pipelines.simulate import Fault, simulate_trip
from pipelines.simulate.stamps import GPS_EPOCH_UNIX_S, UNIT_NS

SEEDS = range(5)
LIGHT = {"trip_minutes": 12.0, "aba_rate_hz": 200.0}
HOT = Fault(kind="hot_bearing", onset=0.25, severity=1.2)
LEAK = Fault(kind="compressor_leak", onset=0.25, severity=0.012)


@pytest.fixture(scope="module", params=SEEDS)
def damaged(request):
    return simulate_trip(seed=request.param, vehicle=request.param % 2, **LIGHT)


@pytest.fixture(scope="module", params=SEEDS)
def clean(request):
    return simulate_trip(seed=request.param, vehicle=request.param % 2, clean=True, **LIGHT)


def decoded_ns(frame, sensor, time_zone):
    """Device time in ns since 1970, or of the counter modulo 2**32 us."""
    match sensor["encoding"]:
        case "ticks_us_u32":
            return frame["ticks"].cast(pl.Int64).to_numpy() * 1_000
        case "gps_tow":
            gps_ms = frame["gps_week"].to_numpy() * 604_800_000 + frame["tow_ms"].to_numpy()
            return (gps_ms + (GPS_EPOCH_UNIX_S - 18) * 1_000) * 1_000_000
        case "local_text":
            local = frame["ts"].str.to_datetime("%Y-%m-%d %H:%M:%S%.3f", time_unit="ns")
            return local.dt.replace_time_zone(time_zone).dt.epoch("ns").to_numpy()
        case "epoch_s":
            return (frame["ts"] * 1_000).round().cast(pl.Int64).to_numpy() * 1_000_000
        case encoding:
            return frame["ts"].to_numpy() * UNIT_NS[encoding]


def device_minus_utc_ns(trip, clock_id, t_utc_ns):
    """Error of a clock at given instants, steps included, from the truth."""
    knots = trip.truth.clocks.filter(pl.col("clock_id") == clock_id)
    base_ns = knots["device_minus_utc_ns"][0]
    since_first_ns = (knots["t_utc_ns"] - knots["t_utc_ns"][0]).to_numpy()
    relative_ns = (knots["device_minus_utc_ns"] - base_ns).to_numpy()
    error_ns = base_ns + np.rint(np.interp(t_utc_ns - knots["t_utc_ns"][0], since_first_ns, relative_ns)).astype(int)
    for step in trip.truth.facts["clocks"][clock_id]["steps"]:
        error_ns += np.where(t_utc_ns >= step["t_utc_ns"], step["shift_ns"], 0)
    return error_ns


def test_clean_stamps_are_the_instants_within_the_unit_of_their_encoding(clean):
    for name, sensor in clean.meta["sensors"].items():
        stamped_ns = clean.truth.rows[name]["t_utc_ns"].to_numpy() + round(sensor["latency_ms"] * 1e6)
        true_ns = stamped_ns + device_minus_utc_ns(clean, sensor["clock_id"], stamped_ns)
        if sensor["encoding"] == "ticks_us_u32":
            true_ns %= 2**32 * 1_000

        wrong_ns = decoded_ns(clean.frames[name], sensor, clean.meta["time_zone"]) - true_ns

        assert np.abs(wrong_ns).max() <= UNIT_NS[sensor["encoding"]], name


def test_damaged_stamps_are_the_clock_plus_a_small_delay(damaged):
    for name in ("odo", "dop", "trk", "pneu"):
        sensor = damaged.meta["sensors"][name]
        truth = damaged.truth.rows[name]
        is_good = truth["t_utc_ns"].is_not_null().to_numpy()
        stamped_ns = truth["t_utc_ns"].drop_nulls().to_numpy() + round(sensor["latency_ms"] * 1e6)
        expected_ns = stamped_ns + device_minus_utc_ns(damaged, sensor["clock_id"], stamped_ns)

        late_ns = decoded_ns(damaged.frames[name], sensor, damaged.meta["time_zone"])[is_good] - expected_ns

        assert np.median(late_ns) > -1e6, name
        assert np.quantile(np.abs(late_ns), 0.95) < 12e6, name


def test_clean_rows_are_neither_rejected_nor_false(clean):
    for name, truth in clean.truth.rows.items():
        assert truth["t_utc_ns"].null_count() == 0
        assert truth["t_utc_ns"].is_sorted()
        assert truth["reason"].drop_nulls().unique().to_list() == (["missing_value"] if name == "gnss" else [])


def test_damage_is_recorded_row_by_row(damaged):
    reasons = set()
    for name, truth in damaged.truth.rows.items():
        is_rejected = truth["reason"].is_in(["duplicate", "bad_stamp"]).fill_null(False)
        assert (truth["t_utc_ns"].is_null() == is_rejected).all(), name
        assert (truth.filter(pl.col("reason").is_in(["missing_value", "bad_value"]))["value_ok"] == 0).all()
        assert (truth.filter(pl.col("reason").is_null())["value_ok"] == 1).all()
        assert is_rejected.mean() < 0.15
        reasons |= set(truth["reason"].drop_nulls())
    assert reasons == {"duplicate", "bad_stamp", "missing_value", "bad_value"}


def test_good_values_lie_in_the_range_of_their_channel(damaged):
    for name, channels in BUNDLE_SENSORS.items():
        is_ok = damaged.truth.rows[name]["value_ok"] == 1
        for channel in channels:
            values = damaged.frames[name].filter(is_ok)[channel.name]
            if values.dtype.is_numeric():
                assert values.is_between(channel.low, channel.high).all(), (name, channel.name)


def test_a_duplicate_repeats_the_row_before_it(damaged):
    truth, frame = damaged.truth.rows["aba"], damaged.frames["aba"]
    again = truth.filter(pl.col("reason") == "duplicate")["row"].to_numpy()

    assert len(again)
    assert_frame_equal(frame[again].select("acc_g"), frame[again - 1].select("acc_g"))


def test_clocks_stay_within_what_was_promised(damaged):
    for clock_id, facts in damaged.truth.facts["clocks"].items():
        assert abs(facts["drift_ppm"]) <= 100.0
        if facts["kind"] == "epoch":
            assert abs(facts["offset_s"]) <= 2.0, clock_id
        for step in facts["steps"]:
            assert 0.05e9 <= abs(step["shift_ns"]) <= 2.0e9


def test_honest_exchanges_bound_the_true_offset(damaged):
    """No clock can be further from UTC than the round trip allows, unless the server lies."""
    log = damaged.ntp_log.filter(pl.col("stratum") < 16)
    log = log.filter(~pl.col("server_id").is_in(damaged.truth.facts["lying_servers"]))
    for clock_id in ("control", "geometry", "brake", "axle"):
        facts = damaged.truth.facts["clocks"][clock_id]
        of_clock = log.filter(pl.col("clock_id") == clock_id)
        t1, t2, t3, t4 = (of_clock[name].to_numpy() for name in ("t1_dev", "t2_srv", "t3_srv", "t4_dev"))
        error_ns = device_minus_utc_ns(damaged, clock_id, t2)
        is_calm = np.ones(len(t2), dtype=bool)
        for step in facts["steps"]:
            is_calm &= np.abs(t2 - step["t_utc_ns"]) > 1e9

        assert len(of_clock) > 20
        assert (((t3 - t4) - 1_000 <= -error_ns) & (-error_ns <= (t2 - t1) + 1_000))[is_calm].all()


def test_pressures_stay_physical_and_the_governor_holds_its_limits(clean):
    pneu = clean.frames["pneu"]

    assert pneu["res_bar"].is_between(7.7, 10.2).all()
    assert pneu["pipe_bar"].is_between(3.4, 5.1).all()
    assert set(pneu["comp_on"]) <= {0, 1}


def test_the_brake_pipe_is_low_while_the_train_brakes(clean):
    at_ns, line_m = clean.truth.rows["pneu"]["t_utc_ns"].to_numpy(), clean.truth.rows["pneu"]["line_m"].to_numpy()
    speed_mps = np.gradient(line_m, at_ns * 1e-9 - at_ns[0] * 1e-9)
    acceleration = np.convolve(np.gradient(speed_mps, 0.1), np.full(30, 1 / 30), mode="same")
    pipe_bar = clean.frames["pneu"]["pipe_bar"].to_numpy()

    assert pipe_bar[acceleration < -0.45].mean() < 4.6
    assert pipe_bar[(acceleration > 0.2) & (speed_mps > 12.0)].mean() > 4.85


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leaking_vehicle_runs_its_compressor_longer_than_itself_healthy(seed):
    healthy, leaking = (
        simulate_trip(seed=seed, vehicle=1, fault=fault, clean=True, trip_minutes=30.0, aba_rate_hz=50.0)
        for fault in (None, LEAK)
    )

    assert leaking.frames["pneu"]["comp_on"].mean() > 1.5 * healthy.frames["pneu"]["comp_on"].mean()
    assert leaking.frames["pneu"]["res_bar"].is_between(7.7, 10.2).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hot_bearing_ends_hotter_and_louder_than_itself_healthy(seed):
    healthy, hot = (
        simulate_trip(seed=seed, fault=fault, clean=True, trip_minutes=30.0, aba_rate_hz=500.0) for fault in (None, HOT)
    )

    excess_k = (hot.frames["tmp"]["bearing_c"] - healthy.frames["tmp"]["bearing_c"]).to_numpy()
    assert np.abs(excess_k[: len(excess_k) // 5]).max() == 0.0
    assert excess_k[-60:].mean() > 10.0
    assert excess_k.max() < 120.0
    assert hot.frames["aba"]["acc_g"][-200_000:].std() > 1.1 * healthy.frames["aba"]["acc_g"][-200_000:].std()


@pytest.mark.parametrize("fault", [HOT, LEAK], ids=lambda fault: fault.kind)
def test_a_fault_changes_only_what_it_acts_upon(fault):
    healthy, faulty = (simulate_trip(seed=2, fault=each, **LIGHT) for each in (None, fault))

    changed = {name for name in healthy.frames if not healthy.frames[name].equals(faulty.frames[name])}
    assert changed == ({"tmp", "aba"} if fault is HOT else {"pneu"})
    for name, truth in healthy.truth.rows.items():
        assert_frame_equal(truth, faulty.truth.rows[name])


def test_a_higher_rate_of_one_sensor_changes_no_other():
    slow, fast = (simulate_trip(seed=4, trip_minutes=3.0, aba_rate_hz=rate) for rate in (100.0, 400.0))

    for name in slow.frames.keys() - {"aba"}:
        assert_frame_equal(slow.frames[name], fast.frames[name])


def test_wheel_pulses_measure_the_distance_outside_slip(clean):
    truth = clean.truth.rows["odo"]
    pulse_m = np.pi * clean.truth.facts["wheel_diameter_m"] / clean.meta["pulses_per_rev"]
    pulses = np.diff(clean.frames["odo"]["pulses"].to_numpy()) % 2 ** clean.meta["counter_bits"]
    at_ns = truth["t_utc_ns"].to_numpy()
    is_slipping = np.zeros(len(pulses), dtype=bool)
    for from_ns, to_ns in clean.truth.facts["slip_utc_ns"]:
        is_slipping |= (at_ns[1:] >= from_ns) & (at_ns[:-1] <= to_ns)
    travelled_m = np.diff(truth["line_m"].to_numpy())

    assert is_slipping.any()
    assert np.abs(pulses * pulse_m - travelled_m)[~is_slipping].max() < 1.01 * pulse_m
    assert (pulses * pulse_m)[~is_slipping].sum() == pytest.approx(travelled_m[~is_slipping].sum(), rel=2e-3)
    assert (pulses * pulse_m)[is_slipping].sum() != pytest.approx(travelled_m[is_slipping].sum(), rel=5e-3)


def test_satellite_positions_lie_beside_the_line_where_the_train_is(clean):
    gnss, route = clean.frames["gnss"], clean.route
    line_m = clean.truth.rows["gnss"]["line_m"].to_numpy()
    metres_per_deg = 111_320.0
    north_m = (gnss["lat_deg"].to_numpy() - np.interp(line_m, route["line_m"], route["lat_deg"])) * metres_per_deg
    east_m = (gnss["lon_deg"].to_numpy() - np.interp(line_m, route["line_m"], route["lon_deg"])) * metres_per_deg * 0.68

    assert np.nanmax(np.hypot(north_m, east_m)) < 15.0
    assert (gnss["lat_deg"].is_null() == (gnss["fix"] == 0)).all()
    assert (gnss["tow_ms"] % 1_000 == 0).all()


def test_balises_are_read_where_they_were_surveyed(clean):
    read = clean.frames["evt"].with_columns(at_m=clean.truth.rows["evt"]["line_m"]).filter(pl.col("kind") == "balise")
    both = read.join(clean.balises, on="ref")

    assert both.height == read.height > 3
    assert (both["at_m"] - both["line_m"]).abs().max() < 0.01


def test_kilometre_posts_jump_and_coordinates_are_true_to_scale():
    route = simulate_trip(seed=0, trip_minutes=1.0, aba_rate_hz=10.0).route
    from pyproj import Geod

    lengths_m = Geod(ellps="WGS84").line_lengths(route["lon_deg"], route["lat_deg"])

    assert (route["km_post"].diff().drop_nulls() - route["line_m"].diff().drop_nulls()).abs().max() > 100.0
    assert np.sum(lengths_m) == pytest.approx(route["line_m"][-1], rel=5e-6)


def test_the_train_stops_with_open_doors(clean):
    evt = clean.frames["evt"].with_columns(at_ns=clean.truth.rows["evt"]["t_utc_ns"])
    doors = evt.filter(pl.col("kind") != "balise")
    speed = clean.truth.rows["trk"]

    assert doors["kind"].to_list()[:2] == ["door_open", "door_close"]
    for open_ns, close_ns in zip(doors["at_ns"][::2], doors["at_ns"][1::2], strict=False):
        standing_m = speed.filter(pl.col("t_utc_ns").is_between(open_ns, close_ns))["line_m"]
        assert standing_m.max() - standing_m.min() < 0.01


def test_the_hint_is_within_ten_minutes_of_the_start(damaged):
    hint = pl.Series([damaged.meta["time_zero_hint_utc"]]).str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("ns")[0]

    assert abs(hint - damaged.truth.facts["start_utc_ns"]) <= 600e9


def test_counters_overflow_on_some_trips():
    trips = [simulate_trip(seed=seed, vehicle=1, clean=True, trip_minutes=6.0, aba_rate_hz=20.0) for seed in range(8)]

    for name, column in (("aba", "ticks"), ("odo", "pulses")):
        overflows = [(trip.frames[name][column].cast(pl.Int64).diff() < 0).sum() for trip in trips]
        assert 0 < sum(overflows) < len(trips), name


def test_local_stamps_repeat_an_hour_when_summer_time_ends():
    day = date(2026, 10, 25)
    trip = simulate_trip(
        seed=11, start_date=day, departure_hour_utc=0.1, clean=True, trip_minutes=110.0, aba_rate_hz=10.0
    )

    zone = ZoneInfo(trip.meta["time_zone"])
    assert zone.key == "Europe/Zurich"
    jumps = trip.frames["pneu"]["ts"].str.to_datetime("%Y-%m-%d %H:%M:%S%.3f").diff().drop_nulls()
    assert (jumps.dt.total_milliseconds() < -3_590_000).sum() == 1


def test_an_unknown_kind_of_fault_is_refused():
    with pytest.raises(ValueError, match="expected hot_bearing or compressor_leak"):
        Fault(kind="flat_wheel", onset=0.5, severity=1.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trip_minutes": 0.5}, "trip_minutes"),
        ({"aba_rate_hz": 1e6}, "aba_rate_hz"),
        ({"departure_hour_utc": 23}, "departure"),
    ],
)
def test_a_trip_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        simulate_trip(seed=0, **wrong)
