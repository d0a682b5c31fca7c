"""Whatever bytes arrive: a reader reads them or refuses them, and breaks in no other way."""

import io
import json

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipelines.channels import LTE_CHANNELS, METROPT3_CHANNELS
from pipelines.errors import RecordingError
from pipelines.ingest import barcelona, bundle, metropt3, metropt3_windows, modena, sources

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BUNDLE_CSV = b"ts,bearing_c\n1767592127352,29.6\n1767592128354,29.2\n1767592129353,\n"
MODENA_LINES = (
    b"00:00:43.463562,I,070197fe5cff1bfdd4fea540\n00:00:43.280187,U,b56205010200068a98c1\n"
    b"00:00:44.280187,ARR,Modena\n00:00:44.463562,N,$GPGLL,5057.970,N,00146.110,E,142451,A*27\n"
)
METROPT3_CSV = (
    ",timestamp,"
    + ",".join(channel.name for channel in METROPT3_CHANNELS)
    + "\n0,2020-02-01 00:00:00"
    + 15 * ",1.0"
    + "\n"
).encode()
LTE_CSV = (
    "time," + ",".join(channel.name for channel in LTE_CHANNELS) + "\n2018-03-28 15:56:00" + 11 * ",1.0" + "\n"
).encode()
WINDOWS_CSV = (",".join(metropt3_windows.FEATURES) + "\n" + ",".join(["0.5"] * 75) + "\n").encode()


def parquet():
    buffer = io.BytesIO()
    pl.DataFrame({"ts": [1767592127352 + i for i in range(9)], "bearing_c": [29.5] * 9}).write_parquet(buffer)
    return buffer.getvalue()


@st.composite
def damaged(draw, original):
    """Replace one stretch of a good file by something else, or cut it."""
    start = draw(st.integers(0, len(original)))
    end = draw(st.integers(start, min(len(original), start + 40)))
    odd = st.sampled_from(
        [b"", b'"', b"\n", b"\r", b"\0", b"\xff", b";", b",", b",,,,", b"inf", b"1e999", b"\xef\xbb\xbf"]
    )
    return original[:start] + draw(odd | st.binary(max_size=30)) + draw(st.sampled_from([original[end:], b""]))


READERS = {
    "metropt3": (metropt3.read, METROPT3_CSV),
    "barcelona": (barcelona.read, LTE_CSV),
    "modena": (modena.read, MODENA_LINES),
    "windows": (lambda location: [metropt3_windows.read_windows(location)], WINDOWS_CSV),
    "sources": (lambda location: [sources.detect_source(location)], METROPT3_CSV),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads_or_refuses_any_bytes(tmp_path, name):
    read, original = READERS[name]
    path = tmp_path / "20221019_x_SN1.csv"
    outcomes = set()

    @FEW
    @given(st.binary(max_size=200) | damaged(original))
    @example(original)
    @example(b"")
    @example(b"\n\n")
    @example(b"*\n1\n")  # found by chance: names that a frame library takes for patterns
    @example(b"^a$,b\n1,2\n")
    @example(b'"')
    @example(original.replace(b"\n", b"\r\n") + b"\x1f\x1f\n")
    @example(original + b'"')
    def check(data):
        path.write_bytes(data)
        try:
            list(read(str(path)))
            outcomes.add("read")
        except RecordingError:
            outcomes.add("refused")

    check()
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize(("file", "original"), [("tmp.csv", BUNDLE_CSV), ("tmp.parquet", parquet())])
@pytest.mark.parametrize("encoding", ["epoch_s", "epoch_ms", "epoch_ns", "local_text"])
def test_a_bundle_is_read_whatever_its_sensor_file_holds(write_bundle, file, original, encoding):
    @FEW
    @given(st.binary(max_size=200) | damaged(original))
    @example(original)
    def check(data):
        recording = bundle.read_bundle(write_bundle(data, entry={"file": file, "encoding": encoding}))

        assert ("tmp" in recording.sensors) != any(refusal.thing == "sensor tmp" for refusal in recording.refusals)

    check()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@FEW
@given(data=st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_manifest_is_read_or_refused(tmp_path, data):
    (tmp_path / "meta.json").write_bytes(data)

    with pytest.raises(RecordingError, match=r"meta\.json"):
        bundle.read_bundle(str(tmp_path))


@FEW
@given(
    key=st.sampled_from(["clock_id", "encoding", "nominal_rate_hz", "latency_ms", "channels"]),
    value=JSON,
)
def test_any_value_in_a_sensor_entry_is_taken_or_refused(write_bundle, key, value):
    recording = bundle.read_bundle(write_bundle(entry={key: value}))

    assert ("tmp" in recording.sensors) != bool(recording.refusals)
