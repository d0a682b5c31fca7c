import json
import stat
import threading
from dataclasses import replace

import pytest

from pipelines.errors import ServiceError
from pipelines.services.home import (
    ProcessId,
    ServiceStatus,
    State,
    new_secrets,
    open_home,
    read_state,
    write_json,
    write_state,
)

STATE = State(
    supervisor=ProcessId(pid=12, started_s=1.5), services=(ServiceStatus(name="store", state="ready", pid=13),)
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return open_home(tmp_path / "home")


def test_secrets_are_readable_by_their_owner_only(home):
    home.prepare()

    assert stat.S_IMODE(home.secrets_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700


def test_secrets_are_drawn_once(home):
    home.prepare()
    first = home.secrets()

    home.prepare()

    assert home.secrets() == first


def test_two_draws_share_no_secret():
    assert not set(new_secrets().values()) & set(new_secrets().values())


def test_two_homes_are_two_instances(tmp_path):
    assert open_home(tmp_path / "a").instance != open_home(tmp_path / "b").instance


def test_one_home_is_one_instance_however_it_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert open_home(tmp_path / "a").instance == open_home(tmp_path / "b" / ".." / "a").instance


def test_a_home_that_was_never_started_says_so(home):
    with pytest.raises(ServiceError, match="trackside up"):
        home.secrets()


def test_the_state_survives_the_file(home):
    home.prepare()

    write_state(home, STATE)

    assert read_state(home) == STATE


def test_no_state_means_nothing_was_started(home):
    assert read_state(home) is None


def test_a_state_of_a_later_version_is_read(home):
    home.prepare()
    write_state(home, STATE)
    recorded = json.loads(home.state_file.read_text())
    recorded["services"][0]["colour"] = "green"

    write_json(home.state_file, recorded)

    assert read_state(home) == STATE


def test_a_reader_never_sees_half_a_state(home):
    home.prepare()
    write_state(home, STATE)
    stop = threading.Event()

    def keep_writing():
        while not stop.is_set():
            write_state(home, replace(STATE, services=STATE.services * 50))

    writer = threading.Thread(target=keep_writing)
    writer.start()
    seen = [read_state(home) for _ in range(200)]
    stop.set()
    writer.join()

    assert None not in seen
    assert not list(home.path.glob(".state.json.*"))
