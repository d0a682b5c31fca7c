import re
import threading
import time
import uuid
from contextlib import ExitStack

import polars as pl
import pytest

from pipelines import storage
from pipelines.errors import ConfigError, ConflictError, ObjectNotFoundError, StoreAccessError, StoreError

DENIED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


@pytest.fixture
def store(monkeypatch):
    """Say where the object store is."""
    for name, value in {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def at(address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        storage.forget_connections()

    yield at
    storage.forget_connections()


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


def write(table, frame, *, gone=(), commit=None, after=-1):
    """Write recordings in a commit of a name that no other has, unless one is given."""
    return storage.write_recordings(table, frame, gone=gone, commit=commit or uuid.uuid4().hex, after=after)


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


def test_of_several_replacements_none_is_made_unless_all_can_be(tmp_path):
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    storage.write_bytes(first, b"old")

    def write():
        with ExitStack() as files:
            for location in (first, second):
                files.enter_context(storage.replacement(location)).write_bytes(b"new")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write()

    assert storage.read_bytes(first) == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_a_replacement_is_made_when_all_is_written(tmp_path):
    location = str(tmp_path / "folder" / "a")

    with storage.replacement(location) as path:
        path.write_bytes(b"new")
        assert not storage.exists(location)

    assert storage.read_bytes(location) == b"new"
    assert storage.list_objects(str(tmp_path)) == [location]


def test_a_replacement_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with (
        pytest.raises(StoreAccessError, match="file: no folder that can be written to"),
        storage.replacement(f"{tmp_path}/file/a"),
    ):
        pass


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
    write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0))
    write(table, _recording("v1", "2026-01-05", "t2", 4, 2.0))

    version = write(table, _recording("v1", "2026-01-05", "t1", 5, 9.0))

    rows = storage.read_table(table)
    assert version == 2
    assert rows.group_by("recording_id").agg(pl.len(), pl.col("a").first()).sort("recording_id").rows() == [
        ("t1", 5, 9.0),
        ("t2", 4, 2.0),
    ]


def test_an_old_table_version_stays_readable(tmp_path):
    table = str(tmp_path / "table")
    old = write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0))
    write(table, _recording("v1", "2026-01-05", "t1", 5, 9.0))

    assert storage.read_table(table, version=old)["a"].to_list() == [1.0] * 3


def test_concurrent_writers_of_different_recordings_lose_nothing(tmp_path):
    table = str(tmp_path / "table")
    frames = [_recording(f"v{number % 3}", "2026-01-05", f"t{number}", 5, float(number)) for number in range(6)]
    failures = []

    def write_own(number):
        try:
            write(table, frames[number])
        except Exception as err:  # whatever it is, the test must show it
            failures.append(err)

    threads = [threading.Thread(target=write_own, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(storage.read_table(table)) == 30


def test_a_table_that_was_never_written_says_what_to_do(tmp_path):
    with pytest.raises(ObjectNotFoundError, match="publish a batch first"):
        storage.read_table(str(tmp_path / "table"))


def test_a_column_that_a_table_lacks_is_named_beside_those_it_has(tmp_path):
    table = str(tmp_path / "table")
    write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0))

    with pytest.raises(ConfigError, match=r"no column 'b'; it has vehicle, day, recording_id, t_utc_ns, a"):
        storage.read_table(table, columns=["a", "b"])


USES = {
    "read": lambda file: storage.read_bytes("s3://lake/a"),
    "write": lambda file: storage.write_bytes("s3://lake/a", b"1"),
    "exists": lambda file: storage.exists("s3://lake/a"),
    "list": lambda file: storage.list_objects("s3://lake/a"),
    "copy": lambda file: storage.copy_tree(file, "s3://lake/a"),
    "delete": lambda file: storage.delete_object("s3://lake/a"),
    "read table": lambda file: storage.read_table("s3://lake/a"),
}


@pytest.fixture(params=USES)
def use(request, tmp_path):
    """One use of the store; raises what it raises."""
    file = tmp_path / "a"
    file.write_bytes(b"1")
    return lambda: USES[request.param](str(file))


def test_a_store_that_is_down_is_named_within_seconds_and_worth_a_retry(store, nobody, use):
    store(nobody)
    started = time.monotonic()

    with pytest.raises(StoreError, match=rf"(?s)s3://lake/a.*{re.escape(nobody)}") as raised:
        use()

    assert raised.value.retryable
    assert time.monotonic() - started < 20


def test_a_store_that_denies_is_not_worth_a_retry(store, serve, use):
    store(serve(lambda *_: (403, DENIED)))

    with pytest.raises(StoreAccessError, match="s3://lake/a") as raised:
        use()

    assert not raised.value.retryable


def test_a_refusal_says_what_to_check(store, serve):
    store(serve(lambda *_: (403, DENIED)))

    with pytest.raises(StoreAccessError, match="refused with AccessDenied; check AWS_ACCESS_KEY_ID"):
        storage.read_bytes("s3://lake/a")


def test_a_table_that_may_be_read_but_not_written_is_not_worth_a_retry(store, serve):
    nothing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"

    def answer(method, path, body):
        if method == "PUT":
            return 403, DENIED
        return (200, nothing) if "list-type" in path else (404, b"<Error><Code>NoSuchKey</Code></Error>")

    store(serve(answer))

    with pytest.raises(StoreAccessError, match="s3://lake/a: the table could not be written"):
        write("s3://lake/a", _recording("v1", "2026-01-05", "t1", 3, 1.0))


def test_a_store_that_stays_busy_is_worth_a_retry(store, serve, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    store(serve(lambda *_: (503, b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>")))

    with pytest.raises(StoreError, match="s3://lake/a: the store answered SlowDown"):
        storage.read_bytes("s3://lake/a")


def test_forgotten_credentials_are_not_used_again(store, serve, monkeypatch):
    store(serve(lambda *_: (200, b"1")))
    storage.read_bytes("s3://lake/a")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    storage.forget_connections()

    with pytest.raises(StoreAccessError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        storage.read_bytes("s3://lake/a")


def test_two_recordings_of_one_day_are_read_one_after_the_other(tmp_path):
    table = str(tmp_path / "table")
    for name in ("whole", "part"):
        write(table, _recording("v1", "2026-01-05", name, 3, 1.0))

    assert storage.read_table(table)["recording_id"].to_list() == ["part"] * 3 + ["whole"] * 3


def test_a_day_that_a_recording_has_no_more_is_taken_out(tmp_path):
    table = str(tmp_path / "table")
    days = [_recording("v1", day, "t1", 3, 1.0) for day in ("2026-01-05", "2026-01-06")]
    write(table, pl.concat(days))

    write(table, days[0], gone=[("v1", "2026-01-06", "t1")])

    assert storage.read_table(table)["day"].unique().to_list() == ["2026-01-05"]


def test_a_trip_of_the_same_name_on_another_day_is_another_recording(tmp_path):
    table = str(tmp_path / "table")
    write(table, _recording("v1", "2026-01-05", "trip-1", 3, 1.0))

    write(table, _recording("v1", "2026-01-06", "trip-1", 3, 2.0))

    assert storage.read_table(table)["day"].unique(maintain_order=True).to_list() == ["2026-01-05", "2026-01-06"]


def test_a_commit_that_was_carried_out_is_found_and_not_repeated(tmp_path):
    table = str(tmp_path / "table")
    first = write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0), commit="batch")
    write(table, _recording("v2", "2026-01-05", "t1", 3, 1.0))

    again = write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0), commit="batch")

    assert (first, again, storage.table_version(table)) == (0, 0, 1)


def test_a_commit_of_the_same_name_before_the_first_attempt_is_another_one(tmp_path):
    table = str(tmp_path / "table")
    before = write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0), commit="batch")

    again = write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0), commit="batch", after=before)

    assert again == 1


def test_a_writer_gets_the_version_of_its_own_commit(tmp_path, monkeypatch):
    table = str(tmp_path / "table")
    write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0))
    write_deltalake = storage.deltalake.write_deltalake

    def write_and_be_overtaken(*arguments, **options):
        write_deltalake(*arguments, **options)
        monkeypatch.setattr(storage.deltalake, "write_deltalake", write_deltalake)
        write(table, _recording("v3", "2026-01-05", "t1", 3, 1.0))

    monkeypatch.setattr(storage.deltalake, "write_deltalake", write_and_be_overtaken)

    assert write(table, _recording("v2", "2026-01-05", "t1", 3, 1.0)) == 1
    assert storage.table_version(table) == 2


def test_the_partitions_of_a_version_are_those_that_it_had(tmp_path):
    table = str(tmp_path / "table")
    write(table, _recording("v1", "2026-01-05", "t1", 3, 1.0))
    write(table, _recording("v1", "2026-01-06", "t1", 3, 1.0))

    assert storage.partitions(table, -1) == set()
    assert storage.partitions(table, 0) == {("v1", "2026-01-05")}
    assert storage.partitions(table, 1) == {("v1", "2026-01-05"), ("v1", "2026-01-06")}


def test_a_name_with_a_quotation_mark_is_only_a_name(tmp_path):
    table = str(tmp_path / "table")
    for value in (1.0, 2.0):
        write(table, _recording("v1", "2026-01-05", "o'brien", 3, value))

    assert storage.read_table(table)["a"].to_list() == [2.0] * 3
