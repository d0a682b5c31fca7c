import hashlib
import io
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipelines.errors import ConfigError, FetchError
from pipelines.ingest.fetch import DATASETS, PublishedDataset, fetch, fetch_dataset

CONTENT = b"timestamp,TP2\n" + b"".join(b"2020-02-01 00:00:00,%d\n" % i for i in range(5000))
DATASET = PublishedDataset(
    url="http://invalid.invalid/data.zip",
    file_name="data.csv",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="none",
    citation="nobody",
)


class Server(ThreadingHTTPServer):
    """Serves `body`; may ignore ranges, keep its length to itself, or hang up after some bytes, as often as told."""

    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = body
        self.ignores_ranges = False
        self.says_length = True
        self.hang_up_after = []
        self.ranges = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/data"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        body, start = self.server.body, 0
        if asked and not self.server.ignores_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if self.server.says_length:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        rest = body[start:]
        self.wfile.write(rest[: self.server.hang_up_after.pop(0)] if self.server.hang_up_after else rest)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server(CONTENT) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def zipped(content=CONTENT, name="folder/data.csv"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("description.pdf", b"%PDF")
        archive.writestr(name, content)
    return buffer.getvalue()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_progress_ends_at_its_size(server, tmp_path):
    seen = []

    path = fetch_dataset(DATASET, tmp_path, url=server.url, progress=lambda done, total: seen.append((done, total)))

    assert path.read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert names(tmp_path) == ["data.csv"]


def test_a_file_inside_an_archive_is_unpacked_and_checked(server, tmp_path):
    server.body = zipped()

    assert fetch_dataset(DATASET, tmp_path, url=server.url).read_bytes() == CONTENT
    assert names(tmp_path) == ["data.csv"]


def test_a_broken_download_goes_on_where_it_ended(server, tmp_path):
    server.hang_up_after = [1000, 500]

    for have in (1000, 1500):
        with pytest.raises(FetchError, match=f"broke off after {have} of {len(CONTENT)} bytes"):
            fetch_dataset(DATASET, tmp_path, url=server.url)
        assert not (tmp_path / "data.csv").exists()
    path = fetch_dataset(DATASET, tmp_path, url=server.url)

    assert path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000-", "bytes=1500-"]


def test_a_server_that_ignores_ranges_is_asked_for_everything(server, tmp_path):
    server.hang_up_after = [1000]
    server.ignores_ranges = True
    with pytest.raises(FetchError):
        fetch_dataset(DATASET, tmp_path, url=server.url)

    assert fetch_dataset(DATASET, tmp_path, url=server.url).read_bytes() == CONTENT


def test_a_download_that_was_complete_is_only_checked(server, tmp_path):
    server.hang_up_after = [1000]
    with pytest.raises(FetchError):
        fetch_dataset(DATASET, tmp_path, url=server.url)
    (part,) = tmp_path.iterdir()
    part.write_bytes(CONTENT)

    assert fetch_dataset(DATASET, tmp_path, url=server.url).read_bytes() == CONTENT
    assert server.ranges[-1] == f"bytes={len(CONTENT)}-"


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    server.hang_up_after = [1000]
    with pytest.raises(FetchError):
        fetch_dataset(DATASET, tmp_path, url=server.url)
    (part,) = tmp_path.iterdir()
    part.write_bytes(CONTENT + b"more")

    assert fetch_dataset(DATASET, tmp_path, url=server.url).read_bytes() == CONTENT
    assert server.ranges[-1] is None


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (CONTENT.replace(b",42\n", b",43\n"), "expected SHA-256 .*, found "),
        (CONTENT[:-1], f"expected {len(CONTENT)} bytes, found {len(CONTENT) - 1}"),
        (b"<html>gone</html>", "found 17"),
        (zipped(CONTENT.replace(b",42\n", b",43\n")), "expected SHA-256"),
        (zipped(b"short"), r"it has description.pdf .*, folder/data.csv \(5 bytes\)"),
        (zipped(name="other.csv"), "has no data.csv"),
        (zipped()[:-30], "cannot be unpacked"),
    ],
)
def test_a_wrong_file_is_refused_and_not_kept(server, tmp_path, body, complaint):
    server.body = body

    with pytest.raises(FetchError, match=complaint):
        fetch_dataset(DATASET, tmp_path, url=server.url)

    assert names(tmp_path) == []


def test_a_member_outside_the_folder_stays_inside(server, tmp_path):
    server.body = zipped(name="../../data.csv")

    path = fetch_dataset(DATASET, tmp_path / "deep" / "folder", url=server.url)

    assert path == tmp_path / "deep" / "folder" / "data.csv"
    assert names(tmp_path) == ["deep"]


def test_a_silent_break_of_a_server_without_length_is_noticed(server, tmp_path):
    server.says_length = False
    server.hang_up_after = [1000]

    with pytest.raises(FetchError, match="found 1000"):
        fetch_dataset(DATASET, tmp_path, url=server.url)


def test_what_is_here_and_right_is_not_downloaded_again(server, tmp_path):
    (tmp_path / "data.csv").write_bytes(CONTENT)

    assert fetch_dataset(DATASET, tmp_path, url=server.url) == tmp_path / "data.csv"
    assert server.ranges == []


def test_what_is_here_and_wrong_is_replaced(server, tmp_path):
    (tmp_path / "data.csv").write_bytes(b"old")

    assert fetch_dataset(DATASET, tmp_path, url=server.url).read_bytes() == CONTENT


def test_no_answer_is_an_error_that_a_retry_may_help(server, tmp_path):
    url = server.url.replace(str(server.server_port), "9")

    with pytest.raises(FetchError, match="no answer") as caught:
        fetch_dataset(DATASET, tmp_path, url=url)

    assert caught.value.retryable


def test_an_unknown_name_or_address_is_refused_before_anything_is_opened(tmp_path):
    with pytest.raises(ConfigError, match="expected one of metropt3"):
        fetch("metropt4", tmp_path)
    with pytest.raises(ConfigError, match="http"):
        fetch("metropt3", tmp_path, url="file:///etc/passwd")


def test_the_published_file_is_known_by_size_and_hash():
    assert DATASETS["metropt3"].size == 218_300_507
    assert re.fullmatch(r"[0-9a-f]{64}", DATASETS["metropt3"].sha256)
