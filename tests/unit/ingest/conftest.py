"""What the tests of the readers share: small bundles with one thing wrong."""

import json

import pytest

META = {
    "trip_id": "trip-7",
    "vehicle": "unit-1",
    "sensors": {
        "tmp": {
            "file": "tmp.csv",
            "clock_id": "axle",
            "encoding": "epoch_ms",
            "nominal_rate_hz": 1.0,
            "latency_ms": 250.0,
            "channels": {"bearing_c": "degC"},
        }
    },
    "clocks": {"axle": {"kind": "epoch", "ntp": False}},
    "time_zone": "Europe/Zurich",
    "time_zero_hint_utc": "2026-01-05T23:55:00+00:00",
}
TMP_CSV = "ts,bearing_c\n1767592127352,29.6\n1767592128354,29.2\n1767592129353,\n"


@pytest.fixture
def write_bundle(tmp_path):
    """Write a bundle with one sensor, `tmp`; `entry` changes what the manifest says about it, `meta` the rest of it."""

    def write(csv=TMP_CSV, *, entry=None, folder="bundle", files=None, sensors=None, **meta):
        where = tmp_path / folder
        where.mkdir(parents=True, exist_ok=True)
        sensors = {"tmp": META["sensors"]["tmp"] | (entry or {})} | (sensors or {})
        for name, content in {sensors["tmp"]["file"]: csv, **(files or {})}.items():
            (where / name).write_bytes(content.encode() if isinstance(content, str) else content)
        whole = {key: value for key, value in {**META, "sensors": sensors, **meta}.items() if value is not None}
        (where / "meta.json").write_text(json.dumps(whole))
        return str(where)

    return write
