import json

import pytest

from pipelines.errors import RecordingError
from pipelines.ingest.manifest import read_manifest

MANIFEST = {"trip_id": "t1", "sensors": {}, "clocks": {}, "time_zero_hint_utc": "2026-01-05T06:00:00"}


def _write(folder, **changes):
    (folder / "meta.json").write_text(json.dumps(MANIFEST | changes))
    return str(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("time_zero_hint_utc", "soon"),
        ("gps_minus_utc_s", "abc"),
        ("wheel_nominal_diameter_m", "0,92"),
        ("wheel_nominal_diameter_m", 0),
        ("pulses_per_rev", 0),
        ("counter_bits", "16"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(tmp_path, key, value):
    with pytest.raises(RecordingError, match=rf"meta\.json.*{key}"):
        read_manifest(_write(tmp_path, **{key: value}))


def test_a_hint_without_a_zone_is_utc_wherever_the_machine_is(tmp_path):
    found = read_manifest(_write(tmp_path))

    assert found.day == "2026-01-05"
    assert found.rest["time_zero_hint_utc"] == "2026-01-05T06:00:00+00:00"


def test_a_key_that_is_null_is_as_if_it_were_not_there(tmp_path):
    found = read_manifest(_write(tmp_path, counter_bits=None))

    assert "counter_bits" not in found.rest
