import threading

import polars as pl
import pytest

from pipelines import storage
from pipelines.errors import ConflictError, ObjectNotFoundError


def _recording(vehicle, day, recording, num_rows, value):
    return pl.DataFrame(
        {
            "vehicle": [vehicle] * num_rows,
            "day": [day] * num_rows,
            "recording_id": [recording] * num_rows,
            "t_utc_ns": range(num_rows),
            "a": [value] * num_rows,
        }
    )


def test_a_conditional_write_never_replaces(tmp_path):
    location = str(tmp_path / "a")
    storage.write_bytes(location, b"first", if_absent=True)

    with pytest.raises(ConflictError, match="somebody else wrote it first"):
        storage.write_bytes(location, b"second", if_absent=True)

    assert storage.read_bytes(location) == b"first"


def test_of_racing_conditional_writers_exactly_one_wins(tmp_path):
    location = str(tmp_path / "a")
    won = []

    def write(number):
        try:
            storage.write_bytes(location, str(number).encode(), if_absent=True)
            won.append(number)
        except ConflictError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    assert storage.read_bytes(location) == str(won[0]).encode()


def test_a_write_leaves_no_partial_file_behind(tmp_path):
    storage.write_bytes(str(tmp_path / "folder" / "a"), b"data")

    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["a"]


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ObjectNotFoundError, match="nowhere"):
        storage.read_bytes(str(tmp_path / "nowhere"))


def test_json_refuses_numbers_that_json_does_not_have(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        storage.write_json(str(tmp_path / "a.json"), {"loss": float("nan")})


def test_copying_a_folder_writes_the_manifest_last(tmp_path, monkeypatch):
    for name in ("meta.json", "a.csv", "z.csv"):
        storage.write_bytes(str(tmp_path / "from" / name), name.encode())
    order = []
    write_bytes = storage.write_bytes
    monkeypatch.setattr(storage, "write_bytes", lambda to, data: order.append(to) or write_bytes(to, data))

    storage.copy_tree(str(tmp_path / "from"), str(tmp_path / "to"), last="meta.json")

    assert [storage.name_of(location) for location in order] == ["a.csv", "z.csv", "meta.json"]


def test_the_digest_of_a_folder_changes_with_its_content_and_not_with_its_place(tmp_path):
    for place in ("a", "b"):
        storage.write_bytes(str(tmp_path / place / "x.csv"), b"1")
    before = storage.digest_of(str(tmp_path / "a"))

    storage.write_bytes(str(tmp_path / "b" / "y.csv"), b"2")

    assert storage.digest_of(str(tmp_path / "a")) == before
    assert storage.digest_of(str(tmp_path / "b")) != before


def test_publishing_a_recording_again_replaces_only_that_recording(tmp_path):
    table = str(tmp_path / "table")
    storage.write_recordings(table, _recording("v1", "2026-01-05", "t1", 3, 1.0))
    storage.write_recordings(table, _recording("v1", "2026-01-05", "t2", 4, 2.0))

    version = storage.write_recordings(table, _recording("v1", "2026-01-05", "t1", 5, 9.0))

    rows = storage.read_table(table)
    assert version == 2
    assert rows.group_by("recording_id").agg(pl.len(), pl.col("a").first()).sort("recording_id").rows() == [
        ("t1", 5, 9.0),
        ("t2", 4, 2.0),
    ]


def test_an_old_table_version_stays_readable(tmp_path):
    table = str(tmp_path / "table")
    old = storage.write_recordings(table, _recording("v1", "2026-01-05", "t1", 3, 1.0))
    storage.write_recordings(table, _recording("v1", "2026-01-05", "t1", 5, 9.0))

    assert storage.read_table(table, version=old)["a"].to_list() == [1.0] * 3


def test_concurrent_writers_of_different_recordings_lose_nothing(tmp_path):
    table = str(tmp_path / "table")
    frames = [_recording(f"v{number % 3}", "2026-01-05", f"t{number}", 5, float(number)) for number in range(6)]
    failures = []

    def write(frame):
        try:
            storage.write_recordings(table, frame)
        except Exception as err:  # whatever it is, the test must show it
            failures.append(err)

    threads = [threading.Thread(target=write, args=(frame,)) for frame in frames]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(storage.read_table(table)) == 30


def test_a_table_that_was_never_written_says_what_to_do(tmp_path):
    with pytest.raises(ObjectNotFoundError, match="publish a batch first"):
        storage.read_table(str(tmp_path / "table"))
