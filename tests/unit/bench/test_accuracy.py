import numpy as np
import polars as pl
import pytest

from pipelines.bench import accuracy
from pipelines.clocks.clock_map import BEYOND_NS, ClockMap, Segment, identity_map
from pipelines.simulate import LEVELS, Difficulty, simulate_trip

LIGHT = {"trip_minutes": 20.0, "aba_rate_hz": 20.0}


@pytest.fixture(scope="module")
def trip():
    return simulate_trip(seed=7, difficulty=LEVELS["slip"], **LIGHT)


def perfect(trip):
    """What a synchronisation that knows the truth would find."""
    return pl.concat(
        [
            truth.select(
                pl.lit(name).alias("sensor"),
                "row",
                "t_utc_ns",
                pl.lit(1e3).alias("sigma_ns"),
                "line_m",
                pl.lit(0.1).alias("position_sigma_m"),
            )
            for name, truth in trip.truth.rows.items()
        ]
    )


def of(name):
    return pl.col("sensor") == name


def moved(rows, sensor, *, by_ns=0, by_m=0.0):
    return rows.with_columns(
        t_utc_ns=pl.when(of(sensor)).then(pl.col("t_utc_ns") + by_ns).otherwise("t_utc_ns"),
        line_m=pl.when(of(sensor)).then(pl.col("line_m") + by_m).otherwise("line_m"),
    )


def score(trip, rows, wheel=1.0):
    """Of these rows and this wheel, with a map of every clock that has no error."""
    diameter_m = trip.truth.facts["wheel_diameter_m"] * wheel
    found = accuracy.score_trip(trip, rows, maps={}, wheel_diameter_m=diameter_m)
    no_error = accuracy.MapScore(error_ms=accuracy.Errors.of(np.zeros(1)), within_95=1.0)
    return found._replace(maps=dict.fromkeys(LEVELS["slip"].links, no_error))


def test_the_truth_itself_has_no_error_and_misses_no_bar(trip):
    found = score(trip, perfect(trip))

    for name, own in found.rows.items():
        assert own.error_ms.max == 0.0, name
        assert own.good_kept == 1.0
        assert own.spoilt_handled == own.repeats_rejected == 1.0
    assert found.open_sky.error_m.max == found.denied.error_m.max == 0.0
    assert found.open_sky.placed == found.denied.placed == 1.0
    assert accuracy.missed(found, trip, LEVELS["slip"]) == []


def test_a_late_sensor_misses_the_bar_of_its_link_and_only_that(trip):
    rows = moved(perfect(trip), "trk", by_ns=1_000_000)

    found = score(trip, rows)

    assert found.rows["trk"].error_ms == pytest.approx((1.0, 1.0, 1.0, 1.0))
    assert found.rows["trk"].within_95 == 0.0
    assert accuracy.missed(found, trip, LEVELS["slip"]) == ["trk error, ms: median 1.000 > 0.3"]
    assert accuracy.missed(found, trip, LEVELS["cellular"]) == []


def test_good_rows_left_out_are_counted_and_have_no_error(trip):
    is_left_out = of("odo") & (pl.col("row") % 10 == 0)
    rows = perfect(trip).with_columns(t_utc_ns=pl.when(is_left_out).then(None).otherwise("t_utc_ns"))

    found = score(trip, rows)

    assert found.rows["odo"].good_kept == pytest.approx(0.9, abs=0.001)
    assert found.rows["odo"].error_ms.max == 0.0
    assert accuracy.missed(found, trip, LEVELS["slip"]) == [
        f"odo good rows kept: {found.rows['odo'].good_kept:.4f} < 0.995"
    ]


def test_rows_that_are_not_in_the_table_at_all_count_as_left_out(trip):
    found = score(trip, perfect(trip).filter(~of("trk")))

    assert found.rows["trk"].good_kept == 0.0
    assert np.isnan(found.rows["trk"].error_ms.median)


@pytest.mark.parametrize(("off_ns", "handled"), [(49_000_000, 1.0), (51_000_000, 0.0)])
def test_a_spoilt_row_is_recovered_within_fifty_milliseconds(trip, off_ns, handled):
    measured = pl.Series(trip.truth.measured_utc_ns["aba"]) + off_ns
    is_spoilt = trip.truth.rows["aba"]["reason"].eq_missing("bad_stamp")
    rows = perfect(trip)
    aba = rows.filter(of("aba"))
    aba = aba.with_columns(t_utc_ns=pl.select(pl.when(is_spoilt).then(measured).otherwise(aba["t_utc_ns"])).to_series())

    found = score(trip, pl.concat([rows.filter(~of("aba")), aba]))

    assert is_spoilt.sum() > 0
    assert found.rows["aba"].spoilt_handled == handled


def test_places_are_judged_apart_where_satellites_are_denied(trip):
    measured_m = trip.truth.rows["trk"]["line_m"].to_numpy()
    in_tunnel = np.zeros(len(measured_m), dtype=bool)
    for low_m, high_m in LEVELS["slip"].tunnels_m:
        in_tunnel |= (measured_m > low_m + 100.0) & (measured_m < high_m - 100.0)
    rows = perfect(trip).filter(of("trk")).with_columns(line_m=pl.Series(measured_m + 3.0 * in_tunnel))

    open_sky, denied = accuracy.score_places(trip, rows)

    assert in_tunnel.sum() > 100
    assert open_sky.error_m.max == 0.0
    assert denied.error_m.median == pytest.approx(3.0)


def test_the_wheel_is_judged_in_relation_to_its_diameter(trip):
    found = score(trip, perfect(trip), wheel=1.0004)

    assert found.wheel_error == pytest.approx(4e-4)
    assert accuracy.missed(found, trip, LEVELS["slip"]) == ["wheel diameter: 0.00040 > 0.0003"]


def test_a_wheel_that_was_not_found_misses_its_bar(trip):
    found = accuracy.score_trip(trip, perfect(trip), maps={}, wheel_diameter_m=None)

    assert "wheel diameter: nan > 0.0003" in accuracy.missed(found, trip, LEVELS["slip"])


def test_clocks_on_a_lan_that_got_no_map_of_their_own_miss_its_bar(trip):
    by_speed = {"control": identity_map("control", method="signal", sigma_ns=1.0)}
    found = accuracy.score_trip(
        trip, perfect(trip), maps=by_speed, wheel_diameter_m=trip.truth.facts["wheel_diameter_m"]
    )

    assert accuracy.missed(found, trip, LEVELS["slip"]) == [
        f"map of {clock_id}, ms: p99 nan > 0.2" for clock_id in ("control", "vibration", "geometry")
    ]


def test_rows_without_a_place_have_no_error_but_miss_a_bar(trip):
    found = score(trip, perfect(trip).with_columns(line_m=pl.lit(None, dtype=pl.Float64)))

    assert np.isnan(found.open_sky.error_m.median)
    assert accuracy.missed(found, trip, LEVELS["slip"]) == [
        "open sky, placed: 0.0000 < 0.99",
        "denied, placed: 0.0000 < 0.99",
    ]


def test_a_trip_without_a_tunnel_misses_no_bar_of_the_dark(trip):
    nothing = accuracy.PlaceScore(accuracy.Errors.of(np.zeros(0)), placed=float("nan"), within_95=float("nan"))
    found = score(trip, perfect(trip))._replace(denied=nothing)

    assert accuracy.missed(found, trip, LEVELS["slip"]) == []


@pytest.mark.parametrize("clock_id", ["control", "vibration"])
def test_a_map_is_judged_by_the_clock_alone(clock_id):
    """A map made of the truth is right to the nanosecond; one with another overflow count too."""
    trip = simulate_trip(seed=7, difficulty=Difficulty(num_steps={}), **LIGHT)
    knots = trip.truth.clocks.filter(pl.col("clock_id") == clock_id)
    error_ns = knots["device_minus_utc_ns"].to_numpy()
    rounds_ns = 3 * 2**32 * 1_000 if clock_id == "vibration" else 0
    ends_ns = np.array([BEYOND_NS])
    dev_ns = knots["t_utc_ns"].to_numpy() + error_ns + rounds_ns
    offset_ns = -error_ns - rounds_ns
    segment = Segment(
        dev_ns_K=np.concatenate([dev_ns[:1] - ends_ns, dev_ns, dev_ns[-1:] + ends_ns]),
        offset_ns_K=np.concatenate([offset_ns[:1], offset_ns, offset_ns[-1:]]),
        sigma_ns_K=np.full(len(dev_ns) + 2, 10.0),
        measured_ns=(int(dev_ns[0]), int(dev_ns[-1])),
    )

    found = accuracy.score_map(trip, ClockMap(clock_id=clock_id, method="exchanges", segments=(segment,)))

    assert found.error_ms.max < 1e-5
    assert found.within_95 == 1.0


def test_a_map_that_knows_nothing_is_off_by_the_offset_of_the_clock(trip):
    found = accuracy.score_map(trip, identity_map("brake", method="unchecked", sigma_ns=1.0))

    offset_s = abs(trip.truth.facts["clocks"]["brake"]["offset_s"])
    assert found.error_ms.p95 == pytest.approx(offset_s * 1e3, abs=2_200.0)
    assert found.error_ms.median > 1.0
    assert found.within_95 == 0.0


def test_a_radar_off_by_eight_milliseconds_may_be_one_trips_noise_but_not_that_of_all(trip):
    rows = moved(perfect(trip), "dop", by_ns=8_000_000)

    assert accuracy.missed(score(trip, rows), trip, LEVELS["slip"]) == []
    together = accuracy.missed_together(accuracy.time_errors_ms(trip, rows)["dop"])
    assert together == ["rows of untied clocks, ms: median 8.000 > 4.0"]
