"""A train on a winding line, seen by an odometer, a radar, a satellite receiver and balises, with the truth known.

Built by hand, not by `pipelines.simulate`: what a test asks for is then in the test, and nothing else happens.
"""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from pipelines.align import Track
from pipelines.channels import BUNDLE_SENSORS
from pipelines.position import REASONS, fit_position, travel_of

SECOND = 10**9
START_NS = 1_767_600_000 * SECOND
TRIP_S = 1_000.0
META = {"wheel_nominal_diameter_m": 0.92, "pulses_per_rev": 100, "counter_bits": 16}
PULSE_M = np.pi * 0.92 / 100
TRUE_WHEEL_M = 0.914
M_PER_DEG = 111_195.0


def make_route(length_m=30_000.0, step_m=25.0, *, shift_m=1_000.0):
    run_m = np.arange(0.0, length_m + step_m, step_m)
    heading = 0.8 + 0.5 * np.sin(run_m / 2_500.0)
    north_m = np.r_[0.0, np.cumsum(np.cos(heading[:-1]) * step_m)]
    east_m = np.r_[0.0, np.cumsum(np.sin(heading[:-1]) * step_m)]
    return on_map(run_m + shift_m, north_m, east_m)


def on_map(line_m, north_m, east_m, km_post=None):
    """A route through points given in metres from its origin."""
    lat_deg = 46.9 + north_m / M_PER_DEG
    return pl.DataFrame(
        {
            "line_m": line_m,
            "km_post": line_m if km_post is None else km_post,
            "lat_deg": lat_deg,
            "lon_deg": 7.4 + east_m / (M_PER_DEG * np.cos(np.deg2rad(46.9))),
        }
    )


ROUTE = make_route()


def speed_mps(t_s):
    return 15.0 + 12.0 * np.sin(t_s / 70.0)


def line_m(t_s):
    return 2_000.0 + 15.0 * t_s + 840.0 * (1.0 - np.cos(t_s / 70.0))


def track(sensor, t_s, *, rate_hz=10.0, **values):
    return Track(
        sensor=sensor,
        t_ns_T=START_NS + np.rint(np.asarray(t_s) * SECOND).astype(np.int64),
        values=values,
        channels=BUNDLE_SENSORS[sensor],
        rate_hz=rate_hz,
    )


def odometer(t_s=None, *, at_m=line_m, wheel_m=TRUE_WHEEL_M, bits=16, slip_m=0.0):
    t_s = np.arange(0.0, TRIP_S, 0.1) if t_s is None else t_s
    counted = np.floor((at_m(t_s) - at_m(0.0) + slip_m) / (np.pi * wheel_m / 100)) + 60_000
    return track("odo", t_s, pulses=counted % 2.0**bits)


def radar(t_s=None, *, at_mps=speed_mps, scale=1.002, noise_mps=0.12, seed=1):
    t_s = np.arange(0.0, TRIP_S, 0.05) if t_s is None else t_s
    noise = np.random.default_rng(seed).normal(0.0, noise_mps, len(t_s))
    return track("dop", t_s, rate_hz=20.0, speed_mps=np.maximum(at_mps(t_s) * scale + noise, 0.0))


def satellites(t_s=None, *, at_m=line_m, at_mps=speed_mps, noise_m=1.5, dark_s=(0.0, 0.0), route=ROUTE, seed=0):
    """Fixes whose error lasts for half a minute; none in `[dark_s[0], dark_s[1])`."""
    t_s = np.arange(0.0, TRIP_S) if t_s is None else t_s
    random = np.random.default_rng(seed)
    place_m = at_m(t_s)
    lat_deg, lon_deg = (np.interp(place_m, route["line_m"], route[name]) for name in ("lat_deg", "lon_deg"))
    north_m, east_m = (noise_m * lasting(random, len(t_s)) for _ in range(2))
    is_dark = (t_s >= dark_s[0]) & (t_s < dark_s[1])
    return track(
        "gnss",
        t_s,
        rate_hz=1.0,
        lat_deg=np.where(is_dark, np.nan, lat_deg + north_m / M_PER_DEG),
        lon_deg=np.where(is_dark, np.nan, lon_deg + east_m / (M_PER_DEG * np.cos(np.deg2rad(46.9)))),
        speed_mps=np.where(is_dark, np.nan, np.abs(at_mps(t_s) + random.normal(0.0, 0.05, len(t_s)))),
        hdop=np.full(len(t_s), 1.0),
        fix=np.where(is_dark, 0.0, 3.0),
    )


def lasting(random, count):
    """Gauss-Markov noise of unit variance with a correlation time of thirty samples."""
    keep = np.exp(-1 / 30)
    fresh = random.normal(0.0, np.sqrt(1 - keep**2), size=count)
    fresh[0] /= np.sqrt(1 - keep**2)
    return signal.lfilter([1.0], [1.0, -keep], fresh)


def balises_at(places_m, *, at_m=line_m, error_m=0.3, seed=2):
    """Balises at places that the train passes once, going forward: the events, and the table of where they lie."""
    places_m = np.asarray(places_m, dtype=float)
    t_s = np.arange(0.0, TRIP_S, 0.01)
    read_m = places_m + np.random.default_rng(seed).normal(0.0, error_m, len(places_m))
    refs = [f"B{i}" for i in range(len(places_m))]
    events = track(
        "evt",
        np.interp(read_m, at_m(t_s), t_s),
        rate_hz=None,
        kind=np.array(["balise"] * len(refs), dtype=object),
        ref=np.array(refs, dtype=object),
    )
    return events, pl.DataFrame({"ref": refs, "line_m": places_m})


def locate(tracks, *, route=ROUTE, balises=None, meta=META):
    speeds = [tracks[name] for name in ("dop", "gnss") if name in tracks]
    return fit_position(tracks, travel_of(tracks, meta, speeds=speeds), route=route, balises=balises)


def error_m(found, t_s=None, *, at_m=line_m):
    """Estimated minus true place."""
    t_s = np.arange(1.0, TRIP_S - 1.0) if t_s is None else t_s
    return found.at(START_NS + np.rint(t_s * SECOND).astype(np.int64))[0] - at_m(t_s)


def test_place_and_wheel_diameter_are_found():
    events, balises = balises_at(np.arange(2_500.0, 17_000.0, 1_200.0))

    found = locate({"odo": odometer(), "dop": radar(), "gnss": satellites(), "evt": events}, balises=balises)

    assert np.abs(error_m(found)).max() < 1.0
    assert found.stats["wheel_diameter_m"] == pytest.approx(TRUE_WHEEL_M, rel=3e-4)
    assert found.stats["wheel_diameter_sigma_m"] < 3e-4 * TRUE_WHEEL_M


def test_intervals_of_95_percent_hold_the_truth_about_as_often():
    is_held = []
    for seed in range(25):
        events, balises = balises_at(np.arange(2_500.0, 17_000.0, 1_200.0), seed=seed)
        found = locate({"odo": odometer(), "gnss": satellites(seed=seed), "evt": events}, balises=balises)
        sigma_m = found.at(START_NS + np.arange(1, 999, 50) * SECOND)[1]
        is_held.append(np.abs(error_m(found, np.arange(1.0, 999.0, 50.0))) < 1.96 * sigma_m)

    assert 0.90 < np.mean(is_held) < 0.99  # errors last through a trip, so 25 trips are few


@pytest.mark.parametrize("seed", range(3))
def test_a_tunnel_is_bridged_by_the_wheels(seed):
    found = locate({"odo": odometer(), "gnss": satellites(dark_s=(400.0, 520.0), seed=seed)})

    assert np.abs(error_m(found)[400:520]).max() < 3.0


def test_uncertainty_grows_away_from_what_was_measured():
    events, balises = balises_at([4_000.0])

    found = locate({"odo": odometer(), "evt": events}, balises=balises)

    passed_s = (events.t_ns_T[0] - START_NS) / SECOND
    away_s = np.array([0.0, 50.0, 100.0, 200.0, 400.0])
    sigma_m = found.at(START_NS + np.rint((passed_s + away_s) * SECOND).astype(np.int64))[1]
    assert (np.diff(sigma_m) > 0).all()
    assert sigma_m[-1] > 0.005 * (line_m(passed_s + 400.0) - 4_000.0)  # a wheel may be a per cent off


def test_slip_and_slide_are_found_and_corrected():
    t_s = np.arange(0.0, TRIP_S, 0.1)
    slip_m = np.interp(t_s, [500.0, 508.0], [0.0, 40.0]) - np.interp(t_s, [700.0, 704.0], [0.0, 12.0])

    found = locate({"odo": odometer(slip_m=slip_m), "dop": radar(), "gnss": satellites()})

    slip, slide = found.slips
    assert (slip.kind, slide.kind) == ("slip", "slide")
    assert (slip.start_ns - START_NS) / SECOND == pytest.approx(500.0, abs=1.0)
    assert (slip.stop_ns - START_NS) / SECOND == pytest.approx(508.0, abs=1.0)
    assert slip.excess_m == pytest.approx(40.0, abs=0.5)
    assert slide.excess_m == pytest.approx(-12.0, abs=0.5)
    assert slide.from_line_m == pytest.approx(line_m(700.0), abs=30.0)
    assert np.abs(error_m(found)).max() < 3.0


def test_the_dark_is_bridged_even_if_the_wheel_slips_there():
    t_s = np.arange(0.0, TRIP_S, 0.1)
    slip_m = np.interp(t_s, [450.0, 456.0], [0.0, 60.0])

    found = locate({"odo": odometer(slip_m=slip_m), "dop": radar(), "gnss": satellites(dark_s=(400.0, 520.0))})

    assert np.abs(error_m(found)[400:520]).max() < 3.0


def test_a_gap_of_the_odometer_is_filled_by_the_radar():
    t_s = np.arange(0.0, TRIP_S, 0.1)
    t_s = t_s[(t_s < 450.0) | (t_s > 540.0)]

    found = locate({"odo": odometer(t_s), "dop": radar(), "gnss": satellites(dark_s=(440.0, 550.0))})

    assert np.abs(error_m(found)[440:550]).max() < 3.0


@pytest.mark.parametrize("radar_there", [True, False])
def test_without_an_odometer_speed_and_fixes_are_used(radar_there):
    tracks = {"gnss": satellites()} | ({"dop": radar()} if radar_there else {})

    found = locate(tracks)

    assert np.abs(error_m(found)).max() < 5.0
    assert "wheel_diameter_m" not in found.stats


def test_fixes_without_any_speed_are_still_places():
    gnss = satellites()
    gnss.values["speed_mps"][:] = np.nan

    found = locate({"gnss": gnss})

    assert np.abs(error_m(found)).max() < 15.0


def test_balises_alone_say_where_the_train_is():
    events, balises = balises_at([4_000.0, 9_000.0, 15_000.0])
    balises = balises.filter(pl.col("ref") != "B1")  # one that was read but is not in the survey

    found = locate({"odo": odometer(), "evt": events}, balises=balises)

    assert found.stats["num_balises"] == 2
    assert np.abs(error_m(found)[150:900]).max() < 2.0


def test_a_single_fix_places_the_whole_trip_with_growing_doubt():
    found = locate({"odo": odometer(), "gnss": satellites(np.array([500.0]), noise_m=0.0)})

    t_s = np.array([10.0, 500.0, 990.0])
    line, sigma = found.at(START_NS + np.rint(t_s * SECOND).astype(np.int64))
    assert (np.abs(line - line_m(t_s)) < 3.0 * sigma).all()
    assert sigma[0] > 30.0 > 10.0 > sigma[1]


@pytest.mark.parametrize("seed", range(3))
def test_outliers_far_from_the_line_or_along_it_are_not_used(seed):
    gnss = satellites(seed=seed)
    random = np.random.default_rng(seed)
    is_bad = random.random(1_000) < 0.02
    is_bad[:2] = is_bad[300:310] = True
    heading = random.uniform(0.0, 2.0 * np.pi, 1_000)
    gnss.values["lat_deg"][is_bad] += 100.0 / M_PER_DEG * np.cos(heading[is_bad])
    gnss.values["lon_deg"][is_bad] += 100.0 / M_PER_DEG * np.sin(heading[is_bad])

    found = locate({"odo": odometer(), "gnss": gnss})

    assert not found.residuals["fixes"].is_used_M[is_bad].any()
    assert found.residuals["fixes"].is_used_M[~is_bad].mean() > 0.99
    assert found.stats["num_gated"] == (~found.residuals["fixes"].is_used_M).sum()
    assert np.abs(error_m(found)).max() < 3.0


def test_a_balise_surveyed_at_the_wrong_place_is_not_used():
    events, balises = balises_at(np.arange(2_500.0, 17_000.0, 1_200.0))
    balises = balises.with_columns(pl.when(pl.col("ref") == "B5").then(pl.col("line_m") + 40.0).otherwise("line_m"))

    found = locate({"odo": odometer(), "gnss": satellites(), "evt": events}, balises=balises)

    assert np.flatnonzero(~found.residuals["balises"].is_used_M).tolist() == [5]
    assert np.abs(error_m(found)).max() < 1.0


@pytest.mark.parametrize("lost_m", [8.0, 20.0, 60.0])
def test_a_distance_that_the_wheels_lose_unseen_is_doubted_rather_than_the_balises_behind_it(lost_m):
    t_s = np.arange(0.0, TRIP_S, 0.1)
    slip_m = -np.interp(t_s, [450.0, 480.0], [0.0, lost_m])  # too gentle to show in the wheel's acceleration
    events, balises = balises_at(np.arange(2_500.0, 17_000.0, 1_200.0))
    gnss = satellites(dark_s=(400.0, 700.0))

    found = locate({"odo": odometer(slip_m=slip_m), "gnss": gnss, "evt": events}, balises=balises)

    assert found.stats["num_breaks"] == 1
    assert found.residuals["balises"].is_used_M.all()
    assert np.abs(error_m(found)[500:]).max() < 1.0
    sigma_m = found.at(START_NS + np.array([465, 600]) * SECOND)[1]
    assert sigma_m[0] > 5.0 * sigma_m[1]


def test_a_distance_that_nothing_contradicts_is_not_doubted():
    events, balises = balises_at(np.arange(2_500.0, 17_000.0, 1_200.0))

    found = locate({"odo": odometer(), "dop": radar(), "gnss": satellites(), "evt": events}, balises=balises)

    assert found.stats["num_breaks"] == 0


def test_a_wheel_whose_distance_wanders_is_not_taken_for_noisy_balises():
    def wandering_m(t_s):
        return line_m(t_s) + 6.0 * np.sin(t_s / 150.0)

    events, balises = balises_at(np.arange(2_500.0, 17_000.0, 1_200.0))

    found = locate({"odo": odometer(at_m=wandering_m), "gnss": satellites(), "evt": events}, balises=balises)

    assert found.stats["balise_sigma_m"] < 0.6
    assert np.median(np.abs(error_m(found))) < 0.6


def test_an_odometer_that_never_moves_does_not_hold_the_train():
    t_s = np.arange(0.0, TRIP_S, 0.1)
    stuck = track("odo", t_s, pulses=np.full(len(t_s), 7.0))

    found = locate({"odo": stuck, "dop": radar(), "gnss": satellites()})

    assert np.abs(error_m(found)).max() < 3.0
    assert "wheel_diameter_m" not in found.stats


def test_a_counter_that_stops_for_minutes_does_not_hold_the_train():
    odo = odometer()
    odo.values["pulses"][4_000:6_000] = odo.values["pulses"][4_000]

    found = locate({"odo": odo, "dop": radar(), "gnss": satellites()})

    assert np.abs(error_m(found)).max() < 3.0
    assert found.stats["wheel_diameter_m"] == pytest.approx(TRUE_WHEEL_M, rel=5e-4)


def test_a_counter_reset_does_not_move_the_train():
    odo = odometer(bits=32)
    odo.values["pulses"][5_000:] -= odo.values["pulses"][5_000]

    found = locate({"odo": odo, "dop": radar(), "gnss": satellites()}, meta=META | {"counter_bits": 32})

    assert np.abs(error_m(found)).max() < 3.0
    assert found.stats["wheel_diameter_m"] == pytest.approx(TRUE_WHEEL_M, rel=5e-4)


def test_a_train_may_run_against_the_line():
    def backwards_m(t_s):
        return 20_000.0 - line_m(t_s)

    found = locate({"odo": odometer(), "dop": radar(), "gnss": satellites(at_m=backwards_m)})

    assert np.abs(error_m(found, at_m=backwards_m)).max() < 3.0
    assert found.stats["wheel_diameter_m"] == pytest.approx(TRUE_WHEEL_M, rel=5e-4)


@pytest.mark.parametrize("counts_down", [True, False])
def test_a_train_may_turn_around_at_a_stop(counts_down):
    t_s = np.arange(0.0, TRIP_S, 0.1)
    speed_t = np.clip(np.minimum(t_s, 480.0 - t_s) * 0.5, 0.0, 20.0)
    speed_t = np.where(t_s > 520.0, -np.clip(np.minimum(t_s - 520.0, 1_000.0 - t_s) * 0.5, 0.0, 20.0), speed_t)
    way_m = np.r_[0.0, np.cumsum(speed_t)[:-1] * 0.1]
    rolled_m = way_m if counts_down else np.r_[0.0, np.cumsum(np.abs(speed_t))[:-1] * 0.1]

    def there_and_back_m(at_s):
        return 5_000.0 + np.interp(at_s, t_s, way_m)

    gnss = satellites(at_m=there_and_back_m, at_mps=lambda at_s: np.interp(at_s, t_s, speed_t))
    found = locate({"odo": odometer(at_m=lambda at_s: np.interp(at_s, t_s, rolled_m)), "gnss": gnss})

    assert np.abs(error_m(found, at_m=there_and_back_m)).max() < 5.0


def test_a_fix_does_not_jump_to_another_branch_of_a_line_that_comes_back_to_itself():
    run_m = np.arange(0.0, 20_001.0, 25.0)
    out_m = np.minimum(run_m, 20_000.0 - run_m)
    route = on_map(run_m, out_m, np.where(run_m > 10_000.0, 12.0, 0.0))  # there, and back on a track 12 m aside

    found = locate({"odo": odometer(), "gnss": satellites(route=route, noise_m=3.0)}, route=route)

    assert np.abs(error_m(found)).max() < 8.0


def test_beyond_the_end_of_the_survey_there_is_no_place_and_a_reason():
    short = ROUTE.filter(pl.col("line_m") < 12_000.0)

    found = locate({"odo": odometer(), "gnss": satellites()}, route=short)

    t_s = np.arange(1.0, TRIP_S - 1.0)
    t_ns = START_NS + (t_s * SECOND).astype(np.int64)
    place_m, _ = found.at(t_ns)
    is_beyond = line_m(t_s) > 12_000.0 + 60.0
    assert is_beyond.sum() > 100
    assert np.isnan(place_m[is_beyond]).all()
    assert {REASONS[code] for code in found.reason_at(t_ns)[is_beyond]} == {"off_route"}
    assert np.abs(error_m(found)[line_m(t_s) < 12_000.0]).max() < 3.0


def test_a_train_on_another_line_has_no_place():
    gnss = satellites()
    gnss.values["lat_deg"][400:600] += 500.0 / M_PER_DEG

    found = locate({"odo": odometer(), "gnss": gnss})

    t_ns = START_NS + np.array([390, 405, 500, 595, 610]) * SECOND
    assert np.isnan(found.at(t_ns)[0]).tolist() == [False, True, True, True, False]
    assert found.stats["unplaced_s"]["off_route"] == pytest.approx(199.0, abs=1.0)


def test_where_nothing_was_measured_there_is_no_place_and_a_reason():
    blind = satellites(dark_s=(0.0, TRIP_S))
    t_ns = START_NS + np.array([0, 500]) * SECOND

    for found in (
        locate({"odo": odometer(), "gnss": blind}),
        locate({"gnss": satellites()}, route=None),
        locate({"gnss": satellites()}, route=ROUTE.head(1)),
        locate({}),
    ):
        assert np.isnan(found.at(t_ns)).all()
        assert (found.reason_at(t_ns) == REASONS.index("no_reference")).all()
        assert found.stats["num_gated"] == found.stats["num_fixes"]


def test_where_all_measurements_are_outliers_there_is_no_place_and_a_reason(monkeypatch):
    monkeypatch.setattr("pipelines.position.locate.OUTLIER_SIGMAS", 0.0)

    found = locate({"odo": odometer(), "gnss": satellites()})

    t_ns = START_NS + np.array([0, 500]) * SECOND
    assert np.isnan(found.at(t_ns)).all()
    assert (found.reason_at(t_ns) == REASONS.index("no_reference")).all()
    assert found.stats["num_gated"] == found.stats["num_fixes"] > 0


def test_a_recording_that_tells_nothing_of_motion_is_not_followed_cell_by_cell():
    apu = track("tmp", np.arange(0.0, 80_000.0, 10.0), rate_hz=0.1, bearing_c=np.zeros(8_000))

    assert len(travel_of({"tmp": apu}, {}, speeds=[]).t_ns_E) == 2


def test_outside_the_recording_there_is_no_place():
    found = locate({"odo": odometer(), "gnss": satellites()})

    t_ns = START_NS + np.array([-5, 5, 1_005]) * SECOND
    assert np.isnan(found.at(t_ns)[0]).tolist() == [True, False, True]
    assert [REASONS[code] for code in found.reason_at(t_ns)] == ["outside_recording", "", "outside_recording"]


def test_a_clock_that_is_not_sure_makes_places_less_sure_at_speed():
    found = locate({"odo": odometer(), "gnss": satellites()})
    t_ns = START_NS + np.array([100, 300]) * SECOND

    plain_m, unsure_m = found.at(t_ns)[1], found.at(t_ns, np.full(2, 0.1 * SECOND))[1]

    assert np.sqrt(unsure_m**2 - plain_m**2) == pytest.approx(0.1 * speed_mps(np.array([100.0, 300.0])), rel=0.02)


@settings(max_examples=10, deadline=None)
@given(shift_m=st.floats(-50_000.0, 500_000.0))
def test_a_shift_of_the_line_shifts_the_result(shift_m):
    tracks = {"odo": odometer(), "gnss": satellites(dark_s=(300.0, 400.0))}
    t_ns = START_NS + np.arange(1_000) * SECOND

    here, there = locate(tracks), locate(tracks, route=make_route(shift_m=1_000.0 + shift_m))

    np.testing.assert_allclose(there.at(t_ns)[0] - shift_m, here.at(t_ns)[0], atol=1e-3)
    np.testing.assert_allclose(there.at(t_ns)[1], here.at(t_ns)[1], atol=1e-3)


@settings(max_examples=15, deadline=None)
@given(
    gaps=st.lists(st.tuples(st.sampled_from(["odo", "dop", "gnss"]), st.integers(0, 900), st.integers(1, 300))),
    missing=st.sets(st.sampled_from(["odo", "dop", "gnss", "evt"]), max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_between_two_measurements_there_is_always_a_place_and_a_sigma(gaps, missing, seed):
    events, balises = balises_at(np.arange(2_500.0, 17_000.0, 1_200.0), seed=seed)
    tracks = {"odo": odometer(), "dop": radar(seed=seed), "gnss": satellites(seed=seed), "evt": events}
    for name, start_s, length_s in gaps:
        since_s = (tracks[name].t_ns_T - START_NS) / SECOND
        tracks[name] = rows_of(tracks[name], (since_s < start_s) | (since_s > start_s + length_s))

    found = locate({name: own for name, own in tracks.items() if name not in missing}, balises=balises)

    used_ns = np.concatenate([own.t_ns_M[own.is_used_M] for own in found.residuals.values()])
    if len(used_ns):
        t_ns = used_ns.min() + np.arange(1_000) * np.ptp(used_ns) // 999
        place_m, sigma_m = found.at(t_ns)
        is_unplaced = found.reason_at(t_ns) > 0
        assert (np.isnan(place_m) == is_unplaced).all()
        assert (sigma_m[~is_unplaced] >= 0.0).all()
        assert set(np.unique(found.reason_at(t_ns))) <= {0, REASONS.index("uncertain")}


def rows_of(own, is_kept):
    return replace(own, t_ns_T=own.t_ns_T[is_kept], values={name: x[is_kept] for name, x in own.values.items()})


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_rows=st.integers(0, 60), same_time=st.booleans())
def test_whatever_the_sensors_say_there_is_a_result(seed, num_rows, same_time):
    random = np.random.default_rng(seed)

    def some(name, rate_hz, **values):
        t_s = np.zeros(num_rows) if same_time else np.sort(random.choice([1.0, 100.0, 1e4]) * random.random(num_rows))
        return track(name, t_s, rate_hz=rate_hz, **values)

    def garbage(*choices):
        noise = random.normal(0.0, random.choice([0.0, 1e-3, 10.0]), num_rows)
        return random.choice([*choices, np.nan], size=num_rows) + noise

    tracks = {
        "odo": some("odo", 10.0, pulses=np.abs(garbage(0.0, 7.0, 65_535.0))),
        "dop": some("dop", 20.0, speed_mps=garbage(0.0, 20.0, 119.0)),
        "gnss": some(
            "gnss",
            1.0,
            lat_deg=np.clip(garbage(46.9, 47.0, 0.0), -90.0, 90.0),
            lon_deg=garbage(7.4, 7.6, -179.0),
            speed_mps=garbage(0.0, 20.0),
            hdop=np.abs(garbage(1.0, 99.0)),
            fix=random.choice([0.0, 2.0, 3.0], size=num_rows),
        ),
        "evt": some(
            "evt",
            None,
            kind=random.choice(np.array(["balise", "door_open", ""], dtype=object), size=num_rows),
            ref=random.choice(np.array(["B0", "B1", ""], dtype=object), size=num_rows),
        ),
    }
    balises = pl.DataFrame({"ref": ["B0", "B1", "B1"], "line_m": [2_000.0, 9_000.0, 9_500.0]})

    found = locate(tracks, balises=balises)

    t_ns = START_NS + np.arange(0, 10_000, 97) * SECOND
    place_m, sigma_m = found.at(t_ns)
    assert (np.isnan(place_m) == (found.reason_at(t_ns) > 0)).all()
    assert (np.isnan(sigma_m) == np.isnan(place_m)).all()
    assert not (sigma_m < 0.0).any()
