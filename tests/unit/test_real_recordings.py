"""What published recordings know of their own truth, against what is made of them. They are read in place."""

import gzip

import numpy as np
import polars as pl
import pytest

from pipelines import align, cadence
from pipelines.clocks.calibrate import calibrate
from pipelines.clocks.dejitter import dejitter
from pipelines.clocks.exchanges import exchanges_of
from pipelines.clocks.fit import fit_exchanges, fit_pairs
from pipelines.clocks.sides import one_side
from pipelines.clocks.stamps import read_stamps
from pipelines.ingest import metropt3, modena
from pipelines.ingest.ntp_logs import read_ntp_log
from pipelines.ingest.reader import ClockSpec, Encoding, SensorRows
from pipelines.sync import synchronise

SECOND_NS = 10**9
HOUR_NS = 3_600 * SECOND_NS
MJD_OF_1970 = 40_587

NODE_RUNS = (
    "20221019_1217_R90121_Modena_SN1",
    "20221019_1252_R90120_Formigine_SN1",
    "20221019_1345_R90125_Modena_SN1",
    "20221019_1422_R90124_Formigine_SN1",
)
"""Four runs of one node, which was not switched off in between."""


@pytest.fixture(scope="module")
def node_runs(real_data):
    return [next(modena.read(str(real_data("modena-train-imu-gnss", f"{run}_sample.csv")))) for run in NODE_RUNS]


@pytest.fixture(scope="module")
def node_pairs(node_runs):
    """What the node's clock showed and UTC, of all seven GNSS epochs."""
    pairs = pl.concat(run.time_pairs for run in node_runs)
    assert len(pairs) == 7
    return pairs


def fit_node(pairs):
    return fit_pairs("node", pairs["t_dev_ns"].to_numpy(), pairs["t_utc_ns"].to_numpy(), pairs["sigma_ns"].to_numpy())


def test_the_clock_of_a_real_node_runs_three_parts_per_thousand_slow(node_pairs, real_data):
    clock = fit_node(node_pairs)

    runs = pl.read_csv(real_data("modena-train-imu-gnss", "derived", "runs_from_readmes.csv"))
    stated_s = runs.filter(pl.col("run") == NODE_RUNS[0])["Runtime RTC/GNSS"].str.extract_all(r"[\d.]+")[0]
    stated_ppm = (float(stated_s[1]) / float(stated_s[0]) - 1) * 1e6
    assert 3_000 < clock.drift_ppm < 3_300
    assert clock.drift_ppm == pytest.approx(stated_ppm, abs=400)  # the publisher counts whole seconds of one run
    assert clock.steps == ()


def test_the_clock_of_a_real_node_agrees_with_its_gnss_pairs_as_well_as_they_are_stamped(node_pairs):
    utc_ns, sigma_ns = fit_node(node_pairs).to_utc(node_pairs["t_dev_ns"].to_numpy())

    miss_ns = np.abs(utc_ns - node_pairs["t_utc_ns"].to_numpy())
    assert miss_ns.max() < 2 * modena.STAMPING_JITTER_NS
    assert (miss_ns < 2 * sigma_ns).all()


@pytest.mark.parametrize("left_out", range(7))
def test_a_real_gnss_pair_that_was_left_out_lies_within_the_uncertainty_there(node_pairs, left_out):
    """In the middle of an hour without pairs it is half a second; a skew that changes cannot be known any better."""
    rest = node_pairs.filter(pl.int_range(pl.len()) != left_out)

    utc_ns, sigma_ns = fit_node(rest).to_utc(node_pairs["t_dev_ns"].to_numpy()[[left_out]])

    assert abs(int(utc_ns[0]) - node_pairs["t_utc_ns"][left_out]) < 2.5 * sigma_ns[0]


def test_real_messages_lie_behind_rows_that_were_measured_after_them(node_runs):
    """They are stored when their transfer has ended; by instant they come first."""
    num_back = 0
    for recording in node_runs:
        rows = pl.concat([recording.sensors[name].rows.select("row", "ts") for name in ("imu", "gnss")]).sort("row")
        num_back += int((rows["ts"].diff().drop_nulls() < 0).sum())

    assert num_back >= 3


@pytest.mark.parametrize("run", range(4), ids=NODE_RUNS)
def test_rows_of_a_real_node_are_put_in_order_around_its_gnss_epochs(node_runs, run):
    recording = node_runs[run]

    calibration = calibrate(recording)

    imu, gnss = calibration.times["imu"], calibration.times["gnss"]
    imu_utc_ns = imu.utc_ns_T[imu.used]
    pair_utc_ns = recording.time_pairs["t_utc_ns"].to_numpy()
    assert len(imu.used) == len(recording.sensors["imu"].rows)
    assert (np.diff(imu_utc_ns) >= 0).all()
    assert np.abs(gnss.utc_ns_T - pair_utc_ns).max() < modena.STAMPING_JITTER_NS
    assert imu_utc_ns[0] - SECOND_NS < pair_utc_ns[0] < imu_utc_ns[-1] + SECOND_NS


@pytest.fixture(scope="module")
def observatory(real_data):
    """Readings of an observatory's clock against GPS, once a day for 23 years: (clock, UTC, which are gross errors)."""
    table = np.loadtxt(real_data("gbt-vs-gps-clock", "gbt2gps.clk"), comments="#")
    dev_ns_X = np.rint((table[:, 0] - MJD_OF_1970) * 86_400).astype(np.int64) * SECOND_NS
    is_gross_X = np.isin(table[:, 0], [51924.5, 52553.5, 52554.5, 52555.5])
    assert is_gross_X.sum() == 4
    return dev_ns_X, dev_ns_X + np.rint(table[:, 1] * 1e9).astype(np.int64), is_gross_X


def test_readings_a_million_times_off_do_not_move_the_map_and_are_counted_as_rejected(observatory):
    dev_ns_X, utc_ns_X, is_gross_X = observatory
    spread_ns = 300
    sigma_ns_X = np.full(len(dev_ns_X), 100.0)
    assert np.abs(utc_ns_X - dev_ns_X)[is_gross_X].min() > 1e5 * spread_ns

    with_them = fit_pairs("observatory", dev_ns_X, utc_ns_X, sigma_ns_X)
    without = fit_pairs("observatory", dev_ns_X[~is_gross_X], utc_ns_X[~is_gross_X], sigma_ns_X[~is_gross_X])

    moved_ns = np.abs(with_them.to_utc(dev_ns_X)[0] - without.to_utc(dev_ns_X)[0])
    assert moved_ns.max() < spread_ns
    assert with_them.residuals.num_rejected - without.residuals.num_rejected == 4
    assert with_them.residuals.num_rejected < 0.002 * len(dev_ns_X)


def test_a_real_oscillator_is_predicted_between_readings_to_its_own_noise(real_data):
    with gzip.open(real_data("gps-pps-and-ocxo", "gps_1pps_phase_data.txt.gz"), "rt") as file:
        phase_ns = np.array([float(line) for line in file if line[:1] in "+-"][:24_000]) * 1e9
    utc_ns = np.arange(len(phase_ns)) * SECOND_NS
    dev_ns = utc_ns + np.rint(phase_ns).astype(np.int64)
    is_read = np.arange(len(utc_ns)) % 8 == 0
    noise_ns = np.std(np.diff(phase_ns)) / np.sqrt(2)

    clock = fit_pairs("maser", dev_ns[is_read], utc_ns[is_read], np.full(is_read.sum(), 5.0))

    miss_ns = clock.to_utc(dev_ns[~is_read])[0] - utc_ns[~is_read]
    assert np.std(miss_ns) < 1.5 * noise_ns
    assert abs(clock.drift_ppm) < 1e-6


def test_the_mean_frequency_of_a_real_oscillator_is_found(real_data):
    lines = real_data("gps-pps-and-ocxo", "ocxo_frequency.txt").read_text().splitlines()
    gained = np.array([float(line) for line in lines if not line.startswith("#")]) / 10e6 - 1
    utc_ns = np.arange(len(gained) + 1) * SECOND_NS
    dev_ns = utc_ns + np.rint(np.concatenate([[0.0], np.cumsum(gained)]) * 1e9).astype(np.int64)
    is_read = np.arange(len(utc_ns)) % 64 == 0

    clock = fit_pairs("ocxo", dev_ns[is_read], utc_ns[is_read], np.full(is_read.sum(), 1.0))

    assert clock.drift_ppm == pytest.approx(-gained.mean() * 1e6, rel=1e-4)
    assert np.abs(clock.to_utc(dev_ns)[0] - utc_ns).max() < 5


HOST = ClockSpec(clock_id="host", kind="epoch", ntp=True)


@pytest.fixture(scope="module")
def peers(real_data):
    """A day of a server's peerstats: its own pulse, and three public servers."""
    rows = read_ntp_log(real_data("ntpd-loopstats-peerstats", "peerstats")).table.rows
    is_pulse = rows["server_id"].str.starts_with("127.127.")
    assert (is_pulse.sum(), rows["server_id"].n_unique()) == (10_800, 4)
    return rows.with_columns(is_pulse=is_pulse)


@pytest.fixture(scope="module")
def pulse(peers):
    """Instants of the pulse by the host's clock, and how far the host was off."""
    found = exchanges_of(peers.filter("is_pulse"), HOST)
    return found.dev_ns_X, found.offset_ns_X


def test_public_servers_tie_a_real_host_to_what_its_own_pulse_says_but_for_their_known_bias(peers, pulse):
    clock = fit_exchanges("host", exchanges_of(peers.filter(~pl.col("is_pulse")), HOST))

    dev_ns_X, offset_ns_X = pulse
    utc_ns, sigma_ns = clock.to_utc(dev_ns_X)
    bias_ms = (utc_ns - dev_ns_X - offset_ns_X) * 1e-6
    assert 0.50 < bias_ms.min() < bias_ms.max() < 0.65  # the means of the three are 0.55, 0.56 and 0.61 ms
    assert np.median(bias_ms) < 2e-6 * np.median(sigma_ns)  # which the map cannot see, but expects
    assert clock.residuals.floor_ns * 1e-6 > bias_ms.max()
    assert (clock.steps, clock.residuals.servers_rejected) == ((), ())


def test_a_pulse_beside_public_servers_decides(peers, pulse):
    clock = fit_exchanges("host", exchanges_of(peers, HOST))

    dev_ns_X, offset_ns_X = pulse
    assert np.abs(clock.to_utc(dev_ns_X)[0] - dev_ns_X - offset_ns_X).max() < 20_000


def test_a_log_with_the_newest_row_first_and_without_some_answers_is_put_in_order(real_data):
    log = pl.read_csv(real_data("ntpd-loopstats-peerstats", "pool_monitor_log.csv"))
    assert (log["ts_epoch"].diff().drop_nulls() <= 0).all()
    offset_ns, half_ns = ((log[name] * unit).round().cast(pl.Int64) for name, unit in (("offset", 1e9), ("rtt", 5e5)))
    at_ns = log["ts_epoch"] * SECOND_NS
    stamps = {
        "t1_dev": at_ns - half_ns,
        "t2_srv": at_ns + offset_ns,
        "t3_srv": at_ns + offset_ns,
        "t4_dev": at_ns + half_ns,
    }

    found = exchanges_of(
        pl.DataFrame(stamps).with_columns(
            clock_id=pl.lit("host"), server_id=log["monitor_id"].cast(pl.String), stratum=pl.lit(1)
        ),
        HOST,
    )

    assert len(found.dev_ns_X) == len(log) - 290  # so many monitors had no answer
    assert (np.diff(found.utc_ns_X) >= 0).all()
    assert abs(np.median(found.offset_ns_X)) < 1e6


@pytest.fixture(scope="module")
def compressor(real_data):
    path = real_data("metropt3-apu-raw", "metropt3_2020-02-01_1000rows.csv")
    return synchronise(next(metropt3.read(str(path))))


def test_nine_and_ten_seconds_of_a_real_logger_are_one_period_in_whole_seconds(compressor):
    t_ns_T = compressor.calibration.times["apu"].utc_ns_T
    assert set(np.diff(t_ns_T).tolist()) == {9 * SECOND_NS, 10 * SECOND_NS}

    none_skipped_T = np.zeros(len(t_ns_T), dtype=np.int64)
    found = dejitter(t_ns_T, skipped_T=none_skipped_T, rate_hz=0.1, unit_ns=SECOND_NS, sides=one_side(len(t_ns_T)))

    period_s = np.diff(found.t_ns_T) * 1e-9
    assert period_s.mean() == pytest.approx(9_901 / 999, abs=0.002)  # 02:45:01 after 999 of them
    assert np.ptp(period_s) < 0.02
    assert not found.is_bad_T.any()


def test_rows_of_a_real_compressor_fill_the_grid_and_none_is_called_frozen(compressor):
    aligned = compressor.aligned
    intervals = cadence.sorted_intervals(compressor.calibration.times["apu"].utc_ns_T)

    assert compressor.rows_used == {"apu": 1_000}
    assert compressor.screened == {}
    assert len(aligned) == 9_910 // 10 + 1
    assert aligned.select(pl.col("^.*_valid$").all()).row(0) == (True,) * 15
    assert aligned["TP2_age_s"].max() < 10
    assert (np.abs(intervals.length_ns_I - 10 * SECOND_NS) <= cadence.REGULAR_SHARE * 10 * SECOND_NS).all()


class Phones:
    """Points of eight phones in a city, and the trips that their owners wrote down by hand."""

    def __init__(self, folder):
        points = pl.read_csv(folder / "device_data.csv")
        trips = pl.read_csv(folder / "manual_log.csv").rename(str.strip)  # two names carry blanks
        self.points = {phone: points.filter(pl.col("device_id") == phone) for phone in range(1, 9)}
        self.trips = {phone: trips.filter(pl.col("device_id") == phone) for phone in range(1, 9)}

    def point_utc_ns(self, phone):
        return in_utc(self.points[phone]["time"])

    def trip_utc_ns(self, phone):
        """Departures and arrivals."""
        return tuple(in_utc(self.trips[phone][f"vehicle_{what}_time"]) for what in ("dep", "arr"))


def in_utc(wall_clock):
    sensor = SensorRows(
        sensor="phone",
        rows=pl.DataFrame({"row": range(len(wall_clock)), "ts": wall_clock}),
        channels=(),
        clock_id="phone",
        encoding=Encoding.LOCAL_TEXT,
        nominal_rate_hz=None,
    )
    stamps = read_stamps(sensor, time_zone="Europe/Helsinki", gps_minus_utc_s=18, hint_utc_ns=None)
    assert not stamps.is_bad_T.any()
    return stamps.dev_ns_T


@pytest.fixture(scope="module")
def phones(real_data):
    return Phones(real_data("helsinki-transit-phones"))


def test_wall_clocks_of_a_real_campaign_in_summer_are_three_hours_ahead_of_utc(phones):
    utc_ns = np.concatenate([phones.point_utc_ns(phone) for phone in range(1, 9)])

    first, last = pl.from_epoch(pl.Series([utc_ns.min(), utc_ns.max()]), time_unit="ns").dt.to_string("iso:strict")
    assert (first[:23], last[:23]) == ("2016-08-26T06:00:00.206", "2016-08-26T12:59:58.568")
    assert len(utc_ns) == 6_030


@pytest.mark.parametrize("phone", range(1, 9))
def test_each_point_of_a_real_phone_gets_the_trip_it_was_on_and_never_one_that_comes(phones, phone):
    """A trip is a state from its departure to its arrival; between two trips there is none."""
    departure_ns, arrival_ns = phones.trip_utc_ns(phone)
    at_ns = phones.point_utc_ns(phone)
    trip = np.arange(len(departure_ns), dtype=np.float64)
    changes_ns = np.stack([departure_ns, arrival_ns], axis=1).ravel()
    states = np.stack([trip, np.full(len(trip), -1.0)], axis=1).ravel()

    found, age_s = align.as_of(changes_ns, states, at_ns, max_age_ns=HOUR_NS)

    is_on = found >= 0
    on = found[is_on].astype(int)
    really_on = ((at_ns[:, None] >= departure_ns) & (at_ns[:, None] < arrival_ns)).any(axis=1)
    assert really_on.any()
    assert (is_on == really_on).all()
    assert (at_ns[is_on] >= departure_ns[on]).all()
    assert (at_ns[is_on] < arrival_ns[on]).all()
    assert age_s[is_on] == pytest.approx((at_ns[is_on] - departure_ns[on]) * 1e-9, abs=1e-3)
    assert np.isnan(found[at_ns < departure_ns[0]]).all()
    assert age_s[~np.isnan(age_s)].max() <= 3_600


@pytest.mark.parametrize("phone", range(1, 9))
def test_a_real_phone_that_slept_has_no_place_after_a_minute(phones, phone):
    point_ns = phones.point_utc_ns(phone)
    latitude = phones.points[phone]["lat"].to_numpy()
    at_ns = np.arange(point_ns[0], point_ns[-1], 10 * SECOND_NS)
    assert np.diff(point_ns).max() > 30 * 60 * SECOND_NS

    found, age_s = align.as_of(point_ns, latitude, at_ns, max_age_ns=60 * SECOND_NS)

    newest = np.searchsorted(point_ns, at_ns, side="right") - 1
    is_recent = at_ns - point_ns[newest] <= 60 * SECOND_NS
    assert np.array_equal(np.isnan(found), ~is_recent)
    assert np.array_equal(found[is_recent], latitude[newest[is_recent]])
    assert np.nanmax(age_s) <= 60
