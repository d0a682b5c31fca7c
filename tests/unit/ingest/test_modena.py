import numpy as np
import polars as pl
import pytest

from pipelines.errors import RecordingError
from pipelines.ingest import modena
from pipelines.ingest.reader import Encoding
from pipelines.ingest.ubx import NAV_PVT, messages, parse_nav_pvt

IMU = "070197fe5cff1bfdd4fea540"
RUNS = (
    "20221019_1217_R90121_Modena_SN1",
    "20221019_1252_R90120_Formigine_SN1",
    "20221019_1345_R90125_Modena_SN1",
    "20221019_1422_R90124_Formigine_SN1",
)


def write(tmp_path, *lines, name="20221019_1217_R90121_Modena_SN1_sample.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def uptimes(recording, sensor="imu"):
    return recording.sensors[sensor].rows["ts"].to_list()


@pytest.fixture(params=RUNS)
def real_run(request, real_data):
    return real_data("modena-train-imu-gnss", f"{request.param}_sample.csv")


def test_acceleration_is_that_of_gravity_in_every_real_run(real_run):
    (recording,) = modena.read(str(real_run))

    acc_g = np.linalg.norm(recording.sensors["imu"].rows.select("acc_x_g", "acc_y_g", "acc_z_g").to_numpy(), axis=1)

    assert 1.005 < acc_g.mean() < 1.025
    assert acc_g.std() < 0.01
    assert recording.refusals == ()
    assert [sensor.rejected for sensor in recording.sensors.values()] == [{}, {}]


def test_lines_stay_in_the_order_in_which_they_were_stored(real_run):
    stored = [line.split(",")[:2] for line in real_run.read_text().splitlines()]

    (recording,) = modena.read(str(real_run))

    imu = recording.sensors["imu"].rows
    assert imu["row"].to_list() == [row for row, (_, kind) in enumerate(stored) if kind == "I"]
    assert imu["ts"].to_list() == [
        sum(int(part) * unit for part, unit in zip(stamp[:8].split(":"), (3600, 60, 1), strict=True)) * 10**9
        + int(stamp[9:]) * 1000
        for stamp, kind in stored
        if kind == "I"
    ]


def test_gnss_epochs_equal_the_derived_table_in_every_field(real_data):
    derived = pl.read_csv(real_data("modena-train-imu-gnss", "derived", "rtc_gnss_pairs.csv"))
    found = []
    for run in RUNS:
        path = real_data("modena-train-imu-gnss", f"{run}_sample.csv")
        lines = path.read_text().splitlines()
        (recording,) = modena.read(str(path))
        for row, t_dev_ns, t_utc_ns in zip(
            recording.sensors["gnss"].rows["row"],
            recording.time_pairs["t_dev_ns"],
            recording.time_pairs["t_utc_ns"],
            strict=True,
        ):
            ((identity, payload),) = messages(bytes.fromhex(lines[row].split(",")[2]))
            pvt = parse_nav_pvt(payload)
            assert identity == NAV_PVT
            assert pvt.utc_ns == t_utc_ns
            utc = np.datetime_as_string(np.datetime64(t_utc_ns, "ns"))
            place = (pvt.lat_1e7, pvt.lon_1e7, pvt.speed_mm_s)
            found.append(
                (
                    path.name,
                    row + 1,
                    t_dev_ns,
                    utc,
                    pvt.itow_ms,
                    pvt.valid,
                    pvt.tacc_ns,
                    pvt.fix_type,
                    pvt.num_sv,
                    *place,
                )
            )

    expected = derived.select(
        "file",
        "line",
        (pl.col("rtc_s") * 1e6).round().cast(pl.Int64) * 1000,
        *("gnss_utc", "itow_ms", "valid_flags", "tacc_ns", "fix_type", "num_sv", "lat_1e7", "lon_1e7", "gspeed_mm_s"),
    )
    assert found == expected.rows()
    assert len(found) == 7


def test_rows_of_gnss_are_in_degrees_and_metres_per_second(real_data):
    (recording,) = modena.read(str(real_data("modena-train-imu-gnss", f"{RUNS[0]}_sample.csv")))

    assert recording.sensors["gnss"].rows.row(0) == (1, 43280187000, 44.655062, 10.9295529, 0.008, None, 3.0)
    assert (recording.vehicle, recording.day) == ("modena-SN1", "2022-10-19")
    assert recording.sensors["imu"].encoding is Encoding.UPTIME_NS


def test_a_pair_is_as_uncertain_as_the_stamping_of_messages(real_data):
    (recording,) = modena.read(str(real_data("modena-train-imu-gnss", f"{RUNS[0]}_sample.csv")))

    assert recording.time_pairs["sigma_ns"].to_list() == [modena.STAMPING_JITTER_NS] * 2


def test_words_are_little_endian_and_scaled(tmp_path):
    (recording,) = modena.read(write(tmp_path, "00:00:01.000000,I,0100ffff00800040ff3f0080"))

    reading = recording.sensors["imu"].rows.row(0)[2:]
    assert reading == pytest.approx((0.00437, -0.00437, -143.19616, 0.999424, 0.999363, -1.998848))


def test_the_clock_goes_on_after_24_hours(tmp_path):
    stamps = ["23:59:59.999000", "00:00:00.000500", "23:59:59.999900", "00:00:00.001000"]

    (recording,) = modena.read(write(tmp_path, *(f"{stamp},I,{IMU}" for stamp in stamps)))

    assert uptimes(recording) == [86399999000000, 86400000500000, 86399999900000, 86400001000000]


def test_a_node_powered_up_again_is_another_recording(tmp_path):
    stamps = ["02:00:00.000000", "02:00:00.000600", "00:00:05.000000", "00:00:05.000600"]

    recordings = list(modena.read(write(tmp_path, *(f"{stamp},I,{IMU}" for stamp in stamps))))

    assert [recording.sensors["imu"].rows["row"].to_list() for recording in recordings] == [[0, 1], [2, 3]]
    assert len({recording.recording_id for recording in recordings}) == 2


def test_a_single_wild_stamp_is_no_restart(tmp_path):
    stamps = ["02:00:00.000000", "00:00:00.000000", "02:00:00.001200", "19:00:00.000000", "02:00:00.002400"]

    (recording,) = modena.read(write(tmp_path, *(f"{stamp},I,{IMU}" for stamp in stamps)))

    assert uptimes(recording)[::2] == [7200000000000, 7200001200000, 7200002400000]


def test_broken_lines_are_left_out_with_their_reason(tmp_path):
    lines = [
        f"00:00:01.000000,I,{IMU}",
        f"00:00:61.000000,I,{IMU}",
        f"00:00:01.000600,X,{IMU}",
        f"00:00:01.000600,I,{IMU[:-2]}",
        "00:00:01.000600,I,zz0197fe5cff1bfdd4fea540",
        f"00:00:01.001200,I,{IMU}",
        f"00:00:01.001800,I,{IMU}",
        *(f"00:00:01.00{i}400,I,{IMU}" for i in range(2, 6)),
        "00:00:01.003",
    ]

    imu = next(modena.read(write(tmp_path, *lines))).sensors["imu"]

    assert imu.rows["row"].to_list() == [0, 5, 6, 7, 8, 9, 10]
    assert imu.rejected == {"line_unreadable": 3, "not_twelve_bytes": 2}


def test_events_and_sentences_are_recognised(tmp_path):
    sentence = "$GPGLL,5057.970,N,00146.110,E,142451,A*27"
    lines = [
        f"00:00:01.000000,I,{IMU}",
        f"00:00:02.000000,N,{sentence}",
        f"00:00:03.000000,N,{sentence[:-1]}8",
        "00:00:04.000000,ARR,Modena",
        "00:00:05.000000,BRK,",
        "00:00:06.000000,U,b56205010200068a98c2",
        "00:00:07.000000,U,b56",
    ]

    (recording,) = modena.read(write(tmp_path, *lines))

    assert recording.sensors["evt"].rows.rows() == [(3, 4 * 10**9, "arrival", "Modena"), (4, 5 * 10**9, "break", None)]
    assert recording.meta["messages"] == {"NMEA GPGLL": 1}
    assert recording.time_pairs is None
    assert [(refusal.thing, refusal.reason) for refusal in recording.refusals] == [("sensor gnss", "no_rows")]
    assert recording.refusals[0].message.count("checksum is") == 2


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n"])
def test_what_is_no_log_is_refused(tmp_path, content):
    path = tmp_path / "20221019_x.csv"
    path.write_text(content)

    with pytest.raises(RecordingError, match="no node log"):
        list(modena.read(str(path)))


def test_a_log_that_tells_no_day_is_refused(tmp_path):
    with pytest.raises(RecordingError, match="tells the day"):
        list(modena.read(write(tmp_path, f"00:00:01.000000,I,{IMU}", name="log.csv")))
