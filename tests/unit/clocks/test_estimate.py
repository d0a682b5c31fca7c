import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.clocks.clock_map import ClockMap
from pipelines.clocks.estimate import predict
from pipelines.errors import RecordingError
from tests.unit.clocks.devices import SECOND, START_NS, Device, ask, instants

SHARED_DATA = Path(os.environ.get("TRACKSIDE_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))


def run(tmp_path, log, stamps, *, log_name="log.csv", out="out.csv", maps=""):
    (tmp_path / log_name).write_text(log) if isinstance(log, str) else log.write_csv(tmp_path / log_name)
    stamps.write_csv(tmp_path / "stamps.csv")
    heard = []
    report = predict(
        str(tmp_path / log_name),
        str(tmp_path / "stamps.csv"),
        str(tmp_path / out),
        maps=str(tmp_path / maps) if maps else "",
        on_progress=lambda stage, thing: heard.append((stage, thing)),
    )
    read = pl.read_csv if out.endswith(".csv") else pl.read_parquet
    return report, read(tmp_path / out), heard


def ticks_of(dev_ns):
    return dev_ns // 1_000 % 2**32


def test_stamps_come_back_in_their_order_with_utc_and_uncertainty(tmp_path):
    device = Device(jumps=((801.0, -0.5),))
    utc_ns = np.random.default_rng(0).permutation(instants(rate_hz=1.0))

    report, table, _ = run(tmp_path, ask(device), pl.DataFrame({"clock_id": "c", "t_dev": device.read(utc_ns)}))

    assert table.columns == ["clock_id", "t_dev", "t_utc_ns", "sigma_ns"]
    assert (table["t_dev"].to_numpy() == device.read(utc_ns)).all()
    is_near = np.abs(utc_ns - START_NS - 801 * SECOND) < 10 * SECOND
    assert np.abs(table["t_utc_ns"].to_numpy() - utc_ns)[~is_near].max() < 200_000
    assert report["num_mapped"] == report["num_stamps"] == len(utc_ns)


def test_stamps_that_keep_a_beat_place_the_step(tmp_path):
    device = Device(jumps=((801.003, -0.5),))
    utc_ns = instants(rate_hz=10.0)

    _, table, _ = run(tmp_path, ask(device), pl.DataFrame({"clock_id": "c", "t_dev": device.read(utc_ns)}))

    assert np.abs(table["t_utc_ns"].to_numpy() - utc_ns).max() < 200_000


def test_a_stamp_beside_a_step_that_nothing_places_is_as_uncertain_as_the_step(tmp_path):
    device = Device(jumps=((801.0, -0.5),))

    _, table, _ = run(
        tmp_path, ask(device), pl.DataFrame({"clock_id": "c", "t_dev": [device.read(START_NS + 801 * SECOND)]})
    )

    assert table["sigma_ns"][0] >= 0.49e9


def test_a_clock_whose_stamps_fit_32_bits_counts_microseconds(tmp_path):
    power_on_ns = START_NS - 3_600 * SECOND
    log = ask(Device(offset_s=0.0, drift_ppm=0.0)).with_columns(ticks_of(pl.col("t1_dev", "t4_dev") - power_on_ns))
    utc_ns = instants(rate_hz=1.0)

    report, table, _ = run(tmp_path, log, pl.DataFrame({"clock_id": "c", "t_dev": ticks_of(utc_ns - power_on_ns)}))

    assert report["clocks"]["c"]["unit"] == "us_u32"
    assert np.abs(table["t_utc_ns"].to_numpy() - utc_ns).max() < 200_000


def test_a_clock_without_usable_exchanges_has_no_map_and_the_reason_is_said(tmp_path):
    log = ask(Device()).with_columns(stratum=pl.lit(16))
    stamps = pl.DataFrame({"clock_id": ["c", "d", None], "t_dev": [START_NS, START_NS, START_NS]})

    report, table, _ = run(tmp_path, log, stamps)

    assert table["t_utc_ns"].to_list() == [None, None, None]
    assert report["clocks"]["c"]["reason"] == "none of its exchanges can be used"
    assert report["clocks"]["d"]["reason"] == "no exchange of it was logged"
    assert report["num_mapped"] == 0


def test_what_could_not_be_read_is_named_by_file_row_and_column(tmp_path):
    log = ask(Device()).with_columns(pl.col("t2_srv").cast(pl.String))
    log[7, "t2_srv"] = "soon"
    stamps = pl.DataFrame({"clock_id": ["c", "c"], "t_dev": [str(START_NS), "later"]})

    report, table, _ = run(tmp_path, log, stamps)

    assert report["unread"] == [
        "log.csv.t2_srv: not_an_integer, 1 time, in row 7 ('soon')",
        "stamps.csv.t_dev: not_an_integer, 1 time, in row 1 ('later')",
    ]
    assert table["t_utc_ns"].null_count() == 1


def test_parquet_and_csv_say_the_same(tmp_path):
    stamps = pl.DataFrame({"clock_id": "c", "t_dev": Device().read(instants(rate_hz=0.1))})

    _, as_csv, _ = run(tmp_path, ask(Device()), stamps)
    _, as_parquet, _ = run(tmp_path, ask(Device()), stamps, out="out.parquet")

    assert as_csv.equals(as_parquet)


def test_maps_are_kept_and_give_the_same_instants(tmp_path):
    stamps = pl.DataFrame({"clock_id": "c", "t_dev": Device().read(instants(rate_hz=0.1))})

    _, table, _ = run(tmp_path, ask(Device()), stamps, maps="maps.jsonl")

    (line,) = (tmp_path / "maps.jsonl").read_text().splitlines()
    assert (ClockMap.from_json(line).to_utc(stamps["t_dev"].to_numpy())[0] == table["t_utc_ns"].to_numpy()).all()


def test_progress_names_every_clock(tmp_path):
    log = pl.concat([ask(Device()).with_columns(clock_id=pl.lit(name)) for name in "ab"])

    report, _, heard = run(tmp_path, log, pl.DataFrame({"clock_id": ["a"], "t_dev": [START_NS]}))

    assert [thing for stage, thing in heard if stage == "fit"] == ["a", "b"]
    assert json.loads(json.dumps(report, allow_nan=False)) == report


@pytest.mark.parametrize(
    ("log", "stamps", "out", "message"),
    [
        ("clock_id,t1_dev\n", "clock_id,t_dev\n", "out.csv", r"log.csv lacks 6 of 8 columns: server_id"),
        ("", "clock_id,t_dev\n", "out.csv", "log.csv: not a log of NTP exchanges"),
        (None, "clock_id,when\nc,1\n", "out.csv", "stamps.csv lacks 1 of 2 columns: t_dev"),
        (None, "clock_id,t_dev\n", "out.txt", "out.txt must end in .csv or .parquet"),
    ],
)
def test_a_file_that_is_something_else_is_refused_by_name(tmp_path, log, stamps, out, message):
    ask(Device()).write_csv(tmp_path / "log.csv") if log is None else (tmp_path / "log.csv").write_text(log)
    (tmp_path / "stamps.csv").write_text(stamps)

    with pytest.raises(RecordingError, match=message):
        predict(
            *(str(tmp_path / name) for name in ("log.csv", "stamps.csv", out)),
            maps="",
            on_progress=lambda stage, thing: None,
        )


def test_a_log_of_one_host_is_of_the_clock_that_the_stamps_name(tmp_path):
    lines = [f"{40_587 + 20_000} {second}.000 10.0.0.1 961a 0.250 0.001 0.001 0.0001\n" for second in range(0, 900, 16)]
    at_ns = 20_000 * 86_400 * SECOND + 400 * SECOND

    report, table, _ = run(
        tmp_path, "".join(lines), pl.DataFrame({"clock_id": ["laptop"], "t_dev": [at_ns]}), log_name="peerstats"
    )

    assert report["format"] == "peerstats"
    assert table["t_utc_ns"][0] == pytest.approx(at_ns + 250_000_000, abs=1_000)


def test_a_log_of_one_host_is_not_of_two_clocks(tmp_path):
    with pytest.raises(RecordingError, match=r"names 2 clocks \(a, b\); peerstats is a log of one"):
        run(
            tmp_path,
            "60000 1.000 10.0.0.1 961a 0.250 0.001 0.001 0.0001\n",
            pl.DataFrame({"clock_id": ["a", "b"], "t_dev": [1, 2]}),
            log_name="peerstats",
        )


def test_a_day_of_a_disciplined_host_is_mapped_within_a_tenth_of_a_millisecond(tmp_path):
    """Every other line of the log is left out and predicted; the receiver beside the host is right to microseconds."""
    log = SHARED_DATA / "ntpd-loopstats-peerstats" / "peerstats"
    if not log.is_file():
        pytest.skip("the ntpd logs are not here")
    lines = [line for line in log.read_text().splitlines(keepends=True) if " 127.127.20.0 " in line]
    stamps_ns = [
        (int(line.split()[0]) - 40_587) * 86_400 * SECOND + round(float(line.split()[1]) * 1e9) for line in lines[1::2]
    ]

    _, table, _ = run(
        tmp_path,
        "".join(lines[::2]),
        pl.DataFrame({"clock_id": "host", "t_dev": stamps_ns}),
        log_name="peerstats",
    )

    said_ns = np.array([float(line.split()[4]) * 1e9 for line in lines[1::2]])
    error_ns = table["t_utc_ns"].to_numpy() - np.array(stamps_ns) - said_ns
    assert len(error_ns) > 5_000
    assert np.percentile(np.abs(error_ns), 99) < 20_000
