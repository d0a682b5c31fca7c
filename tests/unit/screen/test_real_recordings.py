"""Recordings of sensors that worked: whatever is marked in them is marked falsely."""

from itertools import islice

import pytest

from pipelines.clocks.calibrate import calibrate
from pipelines.ingest import sources
from pipelines.screen import contradicted, screen_sensor

RUNS = ("1217_R90121_Modena", "1252_R90120_Formigine", "1345_R90125_Modena", "1422_R90124_Formigine")
HEALTHY = [
    ("metropt3-apu-raw", "metropt3_2020-02-01_1000rows.csv"),
    *(("modena-train-imu-gnss", f"20221019_{run}_SN1_sample.csv") for run in RUNS),
    *(("barcelona-lte-cells", f"{cell}.csv") for cell in ("ElBorn", "LesCorts", "PobleSec")),
]


@pytest.mark.parametrize("parts", HEALTHY, ids=lambda parts: parts[-1])
def test_readings_of_sensors_that_worked_are_believed(parts, real_data):
    location = str(real_data(*parts))
    recordings = list(islice(sources.read(location, sources.detect_source(location)), 3))
    assert recordings

    for recording in recordings:
        times = calibrate(recording).times
        screened = {name: screen_sensor(sensor, times[name]) for name, sensor in recording.sensors.items()}
        for name, own in contradicted(screened, comparable=recording.sensors, witnesses={}).items():
            assert len(own.used) > 0, name
            assert {reason for counts in own.counts.values() for reason in counts} <= {"missing"}, (name, own.counts)
