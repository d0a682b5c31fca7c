import pytest

from pipelines.errors import ObjectNotFoundError, RecordingError
from pipelines.ingest import sources


@pytest.mark.parametrize(
    ("folder", "source", "num_recordings"),
    [
        ("metropt3-apu-raw", "metropt3", 1),
        ("modena-train-imu-gnss", "modena", 4),
        ("barcelona-lte-cells", "barcelona_lte", 42),
    ],
)
def test_real_folders_are_recognised_and_read_beside_their_descriptions(real_data, folder, source, num_recordings):
    location = str(real_data(folder))

    assert sources.detect_source(location) == source
    assert len(list(sources.read(location, source))) == num_recordings


def test_the_labelled_table_is_recognised_but_is_no_recording(real_data):
    location = str(real_data("metropt3-apu-windows", "train.csv"))

    assert sources.detect_source(location) == "metropt3_windows"
    with pytest.raises(RecordingError, match="expected one of bundle, metropt3"):
        list(sources.read(location, "metropt3_windows"))


def test_a_bundle_and_a_folder_of_bundles_are_recognised(write_bundle, tmp_path):
    location = write_bundle()

    assert sources.detect_source(location) == sources.detect_source(str(tmp_path)) == "bundle"
    assert [recording.recording_id for recording in sources.read(location, "bundle")] == ["trip-7"]


def test_an_unknown_file_is_refused_with_what_it_looks_like(tmp_path):
    (tmp_path / "notes.csv").write_text("when,what\n")

    with pytest.raises(RecordingError, match=r"names when, what; known are metropt3"):
        sources.detect_source(str(tmp_path / "notes.csv"))
    with pytest.raises(RecordingError, match="found none"):
        sources.detect_source(str(tmp_path))


def test_a_folder_of_several_sources_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("00:00:01.000000,I,070197fe5cff1bfdd4fea540\n")
    (tmp_path / "b.csv").write_text(",".join(sorted(sources._COLUMNS["metropt3"])) + "\n")

    with pytest.raises(RecordingError, match="found metropt3, modena"):
        sources.detect_source(str(tmp_path))


def test_nothing_at_all_is_said_so(tmp_path):
    with pytest.raises(ObjectNotFoundError, match="neither a file nor a folder"):
        sources.detect_source(str(tmp_path / "nowhere"))
