import numpy as np
import polars as pl
import pytest

from pipelines.align import Track
from pipelines.channels import BUNDLE_SENSORS
from pipelines.position import Rolled, locate, project, rolled

SECOND = 10**9
START_NS = 1_767_600_000 * SECOND
META = {"wheel_nominal_diameter_m": 0.92, "pulses_per_rev": 100, "counter_bits": 16}
PULSE_M = np.pi * 0.92 / 100


def make_route(length_m=30_000.0, step_m=25.0):
    line_m = np.arange(0.0, length_m + step_m, step_m)
    heading = 0.8 + 0.5 * np.sin(line_m / 2_500.0)
    north_m = np.r_[0.0, np.cumsum(np.cos(heading[:-1]) * step_m)]
    east_m = np.r_[0.0, np.cumsum(np.sin(heading[:-1]) * step_m)]
    lat_deg = 46.9 + north_m / 111_195.0
    return pl.DataFrame(
        {
            "line_m": line_m + 1_000.0,
            "km_post": line_m,
            "lat_deg": lat_deg,
            "lon_deg": 7.4 + east_m / (111_195.0 * np.cos(np.deg2rad(46.9))),
        }
    )


ROUTE = make_route()


def speed_mps(t_s):
    return 15.0 + 12.0 * np.sin(t_s / 70.0)


def line_m(t_s):
    return 2_000.0 + 15.0 * t_s + 840.0 * (1.0 - np.cos(t_s / 70.0))


def track(sensor, t_s, **values):
    return Track(
        sensor=sensor,
        t_ns_T=START_NS + np.rint(np.asarray(t_s) * SECOND).astype(np.int64),
        values=values,
        channels=BUNDLE_SENSORS[sensor],
        rate_hz=None if sensor == "evt" else 10.0,
    )


def odometer(t_s, *, wheel_m=0.914, bits=16, slip_m=0.0):
    counted = np.floor((line_m(t_s) - line_m(0.0) + slip_m) / (np.pi * wheel_m / 100)) + 60_000
    return track("odo", t_s, pulses=counted % 2.0**bits)


def satellites(t_s, *, noise_m=2.0, dark_s=(0.0, 0.0)):
    random = np.random.default_rng(0)
    at_m = line_m(t_s)
    lat_deg, lon_deg = (np.interp(at_m, ROUTE["line_m"], ROUTE[name]) for name in ("lat_deg", "lon_deg"))
    is_dark = (t_s >= dark_s[0]) & (t_s < dark_s[1])
    return track(
        "gnss",
        t_s,
        lat_deg=np.where(is_dark, np.nan, lat_deg + random.normal(0.0, noise_m, len(t_s)) / 111_195.0),
        lon_deg=np.where(is_dark, np.nan, lon_deg + random.normal(0.0, noise_m, len(t_s)) / 76_000.0),
        speed_mps=np.where(is_dark, np.nan, speed_mps(t_s)),
        hdop=np.full(len(t_s), 1.0),
        fix=np.where(is_dark, 0.0, 3.0),
    )


def run(tracks, *, balises=None, route=ROUTE):
    t_s = np.arange(1_000.0)
    wheels = rolled(tracks["odo"], tracks.get("gnss"), META) if "odo" in tracks else None
    return locate(
        START_NS + (t_s * SECOND).astype(np.int64),
        tracks,
        wheels,
        speeds=[tracks["gnss"]] if "gnss" in tracks else [],
        route=route,
        balises=balises,
    )


def test_points_of_the_line_are_found_where_they_were_surveyed():
    at_m = np.array([1_010.0, 5_000.0, 17_777.0])
    lat_deg, lon_deg = (np.interp(at_m, ROUTE["line_m"], ROUTE[name]) for name in ("lat_deg", "lon_deg"))

    found_m, off_m = project(lat_deg + 5.0 / 111_195.0, lon_deg, ROUTE)

    assert found_m == pytest.approx(at_m, abs=5.0)
    assert (off_m < 5.1).all()
    assert project(lat_deg, lon_deg, ROUTE)[0] == pytest.approx(at_m, abs=0.05)


@pytest.mark.parametrize("bits", [16, 32])
def test_the_distance_is_counted_through_overflows(bits):
    t_s = np.arange(0.0, 1_000.0, 0.1)
    tracks = {"odo": odometer(t_s, wheel_m=0.92, bits=bits)}

    wheels = rolled(tracks["odo"], None, {**META, "counter_bits": bits})

    assert wheels.distance_m_T[-1] == pytest.approx(line_m(t_s[-1]) - line_m(0.0), abs=0.1)


def test_overflows_within_a_gap_are_restored_from_the_satellite_speed():
    t_s = np.r_[np.arange(0.0, 250.0, 0.1), np.arange(500.0, 1_000.0, 0.1)]  # 16 bits overflow twice in between
    gap_m = line_m(500.0) - line_m(250.0)
    assert gap_m > 2**16 * PULSE_M

    wheels = rolled(odometer(t_s, wheel_m=0.92), satellites(np.arange(1_000.0)), META)

    assert wheels.distance_m_T[-1] == pytest.approx(line_m(t_s[-1]) - line_m(0.0), abs=0.1)


def test_position_and_wheel_diameter_are_found():
    t_s = np.arange(0.0, 1_000.0, 0.1)

    found = run({"odo": odometer(t_s), "gnss": satellites(np.arange(1_000.0))})

    error_m = np.abs(found.line_m - line_m(np.arange(1_000.0)))
    assert np.median(error_m) < 0.5
    assert error_m.max() < 3.0
    assert found.stats["wheel_scale"] * 0.92 == pytest.approx(0.914, abs=2e-4)


def test_a_tunnel_is_bridged_by_the_wheels():
    t_s = np.arange(0.0, 1_000.0, 0.1)

    found = run({"odo": odometer(t_s), "gnss": satellites(np.arange(1_000.0), dark_s=(400.0, 520.0))})

    assert np.abs(found.line_m - line_m(np.arange(1_000.0)))[400:520].max() < 3.0


def test_slipping_wheels_are_noticed_and_corrected():
    t_s = np.arange(0.0, 1_000.0, 0.1)
    slip_m = np.interp(t_s, [500.0, 508.0], [0.0, 40.0])

    found = run({"odo": odometer(t_s, slip_m=slip_m), "gnss": satellites(np.arange(1_000.0))})

    assert 8 <= found.stats["slip_s"] <= 14
    assert np.abs(found.line_m - line_m(np.arange(1_000.0)))[530:].max() < 3.0


def test_balises_alone_say_where_the_train_is():
    t_s = np.arange(0.0, 1_000.0, 0.1)
    balises = pl.DataFrame({"ref": ["B1", "B2"], "line_m": [float(line_m(200.0)), float(line_m(800.0))]})
    events = track(
        "evt",
        [200.0, 400.0, 800.0],
        kind=np.array(["balise", "balise", "balise"], dtype=object),
        ref=np.array(["B1", "unknown", "B2"], dtype=object),
    )

    found = run({"odo": odometer(t_s), "evt": events}, balises=balises)

    assert found.stats["num_balises"] == 2
    assert np.abs(found.line_m - line_m(np.arange(1_000.0)))[200:800].max() < 2.0


def test_fixes_far_off_the_line_are_ignored():
    t_s = np.arange(0.0, 1_000.0, 0.1)
    gnss = satellites(np.arange(1_000.0))
    gnss.values["lat_deg"][300:310] += 0.02

    found = run({"odo": odometer(t_s), "gnss": gnss})

    assert found.stats["num_fixes"] == 990
    assert np.abs(found.line_m - line_m(np.arange(1_000.0)))[290:320].max() < 3.0


def test_without_an_odometer_fixes_and_their_speed_are_used():
    found = run({"gnss": satellites(np.arange(1_000.0))})

    assert np.abs(found.line_m - line_m(np.arange(1_000.0))).max() < 3.0


def test_an_odometer_that_never_moves_does_not_hold_the_train():
    t_s = np.arange(0.0, 1_000.0, 0.1)
    tracks = {"odo": track("odo", t_s, pulses=np.full(len(t_s), 7.0)), "gnss": satellites(np.arange(1_000.0))}

    found = run(tracks)

    assert np.abs(found.line_m - line_m(np.arange(1_000.0))).max() < 5.0
    assert found.stats["slip_s"] > 950


def test_where_nothing_is_known_there_is_no_position():
    t_s = np.arange(0.0, 1_000.0, 0.1)
    blind = satellites(np.arange(1_000.0), dark_s=(0.0, 1_000.0))

    assert np.isnan(run({"odo": odometer(t_s), "gnss": blind}).line_m).all()
    assert np.isnan(run({"gnss": satellites(np.arange(1_000.0))}, route=None).line_m).all()


def test_distance_stays_constant_beyond_the_rows():
    wheels = Rolled(t_ns_T=np.array([0, SECOND]), distance_m_T=np.array([0.0, 20.0]))

    assert wheels.at(np.array([-SECOND, SECOND // 2, 9 * SECOND])).tolist() == [0.0, 10.0, 20.0]
