import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.channels import METROPT3_CHANNELS
from pipelines.ingest import bundle
from pipelines.ingest.reader import FAULT_SCHEMA, Encoding, Recording, SensorRows
from pipelines.simulate.fleet import write_bundle
from pipelines.simulate.trip import simulate_trip
from pipelines.sync import synchronise
from pipelines.sync.report import page

SEEDS = (3, 7)  # of the seeds, 7 has a lying server and three steps of one clock


@pytest.fixture(scope="module", params=SEEDS)
def pair(request, tmp_path_factory):
    """A simulated trip and its synchronised bundle."""
    trip = simulate_trip(seed=request.param, vehicle=request.param % 3, aba_rate_hz=100.0)
    folder = tmp_path_factory.mktemp("trip") / trip.trip_id
    write_bundle(trip, folder)
    recording = bundle.read_bundle(str(folder))
    return trip, recording, synchronise(recording)


def time_error_ms(trip, synced, sensor):
    times, truth = synced.times[sensor], trip.truth.rows[sensor]
    true_ns = truth["t_utc_ns"].fill_null(0).to_numpy()[times.used]
    return np.abs(times.utc_ns_T[times.used] - true_ns)[true_ns != 0] * 1e-6


@pytest.mark.parametrize(
    ("sensor", "median_ms", "p99_ms"),
    [
        ("odo", 1.0, 2.0),
        ("trk", 0.1, 0.5),
        ("aba", 0.15, 0.3),
        ("pneu", 1.0, 2.0),
        ("tmp", 5.0, 20.0),
        ("evt", 2.0, 12.0),
        ("gnss", 0.0, 0.0),
        ("dop", 10.0, 20.0),
    ],
)
def test_rows_are_put_where_they_happened(pair, sensor, median_ms, p99_ms):
    trip, _, synced = pair

    error_ms = time_error_ms(trip, synced, sensor)

    assert np.median(error_ms) <= median_ms
    assert np.percentile(error_ms, 99) <= p99_ms


def test_spoiled_and_repeated_rows_are_rejected_and_good_ones_are_not(pair):
    trip, recording, synced = pair

    for sensor, times in synced.times.items():
        is_good_T = trip.truth.rows[sensor]["t_utc_ns"].is_not_null().to_numpy()
        assert (times.fault_T != 0).sum() > 0, sensor
        assert ((times.fault_T == 0) & ~is_good_T).sum() == 0, sensor
        assert ((times.fault_T != 0) & is_good_T).sum() <= 1, sensor
    assert recording.num_rows == sum(synced.rows_in.values())


def test_the_train_is_where_it_was(pair):
    trip, _, synced = pair
    truth = trip.truth.rows["gnss"].drop_nulls("t_utc_ns").sort("t_utc_ns")

    true_m = np.interp(synced.aligned["t_utc_ns"], truth["t_utc_ns"], truth["line_m"])

    error_m = np.abs(synced.aligned["line_m"].to_numpy() - true_m)[3:-3]
    assert np.median(error_m) < 2.0
    assert np.percentile(error_m, 99) < 8.0
    assert synced.position["wheel_diameter_m"] == pytest.approx(trip.truth.facts["wheel_diameter_m"], rel=5e-4)


def test_steps_and_liars_are_in_the_passport(pair):
    trip, _, synced = pair

    for clock_id, facts in synced.clocks.items():
        true_ms = [step["shift_ns"] * 1e-6 for step in trip.truth.facts["clocks"][clock_id]["steps"]]
        assert facts["steps_ms"] == pytest.approx(true_ms, abs=3.0), clock_id
        if facts["method"] == "exchanges" and trip.truth.facts["lying_servers"]:
            assert facts["servers_rejected"] == trip.truth.facts["lying_servers"]


def test_impossible_readings_are_absent_from_the_aligned_table(pair):
    _, _, synced = pair

    assert synced.screened["tmp"]["bearing_c"]["out_of_range"] >= 1
    assert synced.aligned["tmp_bearing_c"].min() > -50.0


def test_all_rows_are_accounted_for(pair):
    _, recording, synced = pair

    for sensor, num_in in synced.rows_in.items():
        assert num_in == recording.sensors[sensor].rows.height
        assert num_in == synced.rows_used[sensor] + sum(synced.rejected[sensor].values())


def test_rows_that_the_reader_left_out_are_counted_with_its_reason(short):
    sensor = short.sensors["pneu"]
    faults = pl.DataFrame(
        [
            [3, "ts", "yesterday", "stamp_unreadable"],
            [5, "", "x", "line_broken"],
            [9, "res_bar", "ten", "not_a_number"],
        ],
        schema=FAULT_SCHEMA,
        orient="row",
    )
    left = replace(sensor, rows=sensor.rows.filter(~pl.col("row").is_in([3, 5])), faults=faults)

    synced = synchronise(replace(short, sensors=short.sensors | {"pneu": left}))

    assert synced.rejected["pneu"]["stamp_unreadable"] == 1
    assert synced.rejected["pneu"]["line_broken"] == 1
    assert "not_a_number" not in synced.rejected["pneu"]
    assert synced.rows_in["pneu"] == sensor.rows.height


def test_the_same_recording_gives_the_same_bytes(short):
    first, second = synchronise(short), synchronise(short)

    assert first.aligned.equals(second.aligned)
    assert json.dumps(first.report()) == json.dumps(second.report())


def test_the_table_has_the_columns_that_are_promised(short):
    aligned = synchronise(short).aligned

    assert aligned.columns[:6] == ["vehicle", "day", "recording_id", "t_utc_ns", "line_m", "position_sigma_m"]
    assert {"aba_acc_g_rms", "odo_speed_mps", "evt_doors_open", "tmp_bearing_c"} <= set(aligned.columns)
    assert "aba_acc_g" not in aligned.columns
    assert aligned.schema["t_utc_ns"] == pl.Int64
    assert aligned.schema["tmp_bearing_c"] == pl.Float64
    assert aligned.schema["tmp_bearing_c_age_s"] == pl.Float32
    assert (aligned["t_utc_ns"].diff().drop_nulls() == 10**9).all()


def test_columns_do_not_depend_on_which_sensors_could_be_read(short):
    alone = synchronise(replace(short, sensors={"aba": short.sensors["aba"]})).aligned

    assert set(alone.columns) <= set(synchronise(short).aligned.columns)


def test_the_only_sensor_of_a_source_keeps_its_channel_names():
    rows = pl.DataFrame(
        {"row": range(100), "ts": [f"2020-02-01 00:{i // 6:02d}:{i % 6 * 10:02d}" for i in range(100)]}
        | {channel.name: [float(i % 2) for i in range(100)] for channel in METROPT3_CHANNELS}
    )
    recording = Recording(
        source="metropt3",
        vehicle="apu",
        day="2020-02-01",
        recording_id="r",
        sensors={
            "apu": SensorRows(
                sensor="apu",
                rows=rows,
                channels=METROPT3_CHANNELS,
                clock_id="logger",
                encoding=Encoding.LOCAL_TEXT,
                nominal_rate_hz=0.1,
            )
        },
    )

    synced = synchronise(recording)

    assert synced.aligned["TP2"].to_list() == rows["TP2"].to_list()
    assert synced.clocks["logger"]["method"] == "unchecked"
    assert synced.clocks["logger"]["sigma_max_ms"] >= 1_000.0


def test_a_counter_that_nothing_ties_to_utc_is_rejected_with_a_reason(short):
    synced = synchronise(replace(short, exchanges=None))

    assert synced.rejected["aba"] == {"no_clock": short.sensors["aba"].rows.height}
    assert synced.aligned["aba_acc_g_rms"].null_count() == synced.aligned.height


def with_rows(recording, change):
    return replace(
        recording,
        sensors={name: replace(sensor, rows=change(sensor, sensor.rows)) for name, sensor in recording.sensors.items()},
    )


def with_column(recording, name, column, value):
    rows = recording.sensors[name].rows
    constant = rows.with_columns(pl.lit(value, rows.schema[column]).alias(column))
    return replace(recording, sensors=recording.sensors | {name: replace(recording.sensors[name], rows=constant)})


def same_stamps(sensor, rows):
    return rows.with_columns(pl.col(column).first() for column in sensor.encoding.columns)


def no_stamps(sensor, rows):
    return rows.with_columns(pl.lit(None, rows.schema[c]).alias(c) for c in sensor.encoding.columns)


def no_values(sensor, rows):
    return rows.with_columns(pl.lit(None, rows.schema[c.name]).alias(c.name) for c in sensor.channels)


ODDITIES = {
    "one exchange a clock": lambda r: replace(r, exchanges=r.exchanges.unique("clock_id", maintain_order=True)),
    "no exchange": lambda r: replace(r, exchanges=r.exchanges.clear()),
    "all servers unsynchronised": lambda r: replace(r, exchanges=r.exchanges.with_columns(stratum=pl.lit(16))),
    "one row": lambda r: with_rows(r, lambda _, rows: rows.head(1)),
    "no rows": lambda r: with_rows(r, lambda _, rows: rows.clear()),
    "no sensors": lambda r: replace(r, sensors={}),
    "all stamps equal": lambda r: with_rows(r, same_stamps),
    "no stamps": lambda r: with_rows(r, no_stamps),
    "no values": lambda r: with_rows(r, no_values),
    "no route": lambda r: replace(r, route=None, balises=None),
    "route of another place": lambda r: replace(r, route=r.route.with_columns(pl.col("lat_deg") + 3.0)),
    "receiver without a week": lambda r: with_column(r, "gnss", "gps_week", 0),
    "odometer that stands": lambda r: with_column(r, "odo", "pulses", 7),
    "no hint": lambda r: replace(r, meta={k: v for k, v in r.meta.items() if k != "time_zero_hint_utc"}),
    "only events": lambda r: replace(r, sensors={"evt": r.sensors["evt"]}),
    "newest row first": lambda r: with_rows(r, lambda _, rows: rows.reverse()),
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_odd_recordings_are_accounted_for_and_never_a_crash(short, oddity):
    recording = ODDITIES[oddity](short)

    synced = synchronise(recording)

    json.dumps(synced.report(), allow_nan=False)
    assert page(synced).endswith("</html>")
    for sensor, num_in in synced.rows_in.items():
        assert num_in == recording.sensors[sensor].rows.height
        assert num_in == synced.rows_used[sensor] + sum(synced.rejected[sensor].values())


@pytest.mark.parametrize("oddity", ["no exchange", "all servers unsynchronised"])
def test_without_a_server_to_believe_a_clock_is_unknown_or_said_to_be_uncertain(short, oddity):
    synced = synchronise(ODDITIES[oddity](short))

    assert synced.rejected["aba"] == {"no_clock": short.sensors["aba"].rows.height}
    assert synced.clocks["axle"]["method"] == "unchecked"
    assert synced.clocks["axle"]["sigma_max_ms"] >= 1_000.0


def test_the_passport_tells_rate_and_gaps_of_every_sensor(pair):
    _, recording, synced = pair

    for name, sensor in recording.sensors.items():
        facts = synced.sensors[name]
        if sensor.nominal_rate_hz is not None:
            assert facts["measured_rate_hz"] == pytest.approx(sensor.nominal_rate_hz, rel=0.01), name
            assert facts["regular_share"] > 0.9, name
            assert facts["hour_jumps"] == 0, name
            assert abs(facts["behind_others_s"]) < 60, name


def test_sensors_of_the_speed_agree_in_time_after_synchronisation(pair):
    _, _, synced = pair

    assert {skew["sensor"] for skew in synced.skews} == {"dop", "gnss"}
    for skew in synced.skews:
        assert abs(skew["skew_ms"]) < 100, skew


@pytest.mark.parametrize("names", [("dop", "second"), ("second", "dop")])
def test_of_two_radars_on_one_untied_clock_the_surer_one_ties_it(pair, names):
    _, recording, _ = pair
    dop = recording.sensors["dop"]
    noise_mps = pl.Series(np.random.default_rng(0).normal(0.0, 0.5, size=dop.rows.height))
    noisy = replace(dop, sensor="second", rows=dop.rows.with_columns(pl.col("speed_mps") + noise_mps))
    radars = {"dop": dop, "second": noisy}

    alone, worse, both = (
        synchronise(
            replace(recording, sensors={"odo": recording.sensors["odo"]} | {name: radars[name] for name in some})
        )
        for some in (["dop"], ["second"], names)
    )

    maps = [synced.calibration.maps[dop.clock_id] for synced in (alone, worse, both)]
    assert [clock.method for clock in maps] == ["signal"] * 3
    assert maps[2].to_json() == maps[0].to_json() != maps[1].to_json()


def test_without_an_odometer_the_other_speeds_are_compared(pair):
    _, recording, _ = pair
    speeds = {name: recording.sensors[name] for name in ("dop", "gnss")}

    synced = synchronise(replace(recording, sensors=speeds))

    assert {(skew["sensor"], skew["reference"]) for skew in synced.skews} == {("gnss", "dop")}
