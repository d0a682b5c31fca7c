import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from pipelines import ledger, storage
from pipelines.errors import ConflictError, LedgerError
from pipelines.ledger import Change


@pytest.fixture(autouse=True)
def lake(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKSIDE_LAKE", str(tmp_path))
    return tmp_path


def change(number, **changes):
    made = Change(
        key=f"run-{number}",
        model="pump",
        alias="champion",
        action="promote",
        from_version=str(number - 1) if number > 1 else "",
        to_version=str(number),
        decided_by="ada",
        reason="better on all slices",
        gate=({"name": "minimum score", "passed": True, "detail": "pr_auc is 0.9, at least 0.8 is asked"},),
        dag_run=f"nightly-{number}",
        mlflow_run=f"run{number}",
    )
    return replace(made, **changes)


@pytest.fixture
def written():
    """Make `count` decisions; return the seal of the last."""

    def write(count):
        for number in range(1, count + 1):
            line = ledger.append(change(number), ledger.read("pump"))
        return line.seal

    return write


def test_lines_are_read_as_they_were_decided(written):
    written(3)

    lines = ledger.read("pump")

    assert [line.sequence for line in lines] == [1, 2, 3]
    assert [line.change for line in lines] == [change(number) for number in (1, 2, 3)]


def test_a_whole_ledger_has_nothing_wrong_with_it(written):
    assert ledger.verify("pump", written(3)) == []
    assert ledger.verify("never_promoted", "") == []


def test_of_twenty_racing_deciders_one_wins_and_nineteen_are_told_who(written):
    written(1)
    seen = ledger.read("pump")

    def decide(number):
        try:
            return ledger.append(change(number, decided_by=f"decider {number}"), seen)
        except ConflictError as err:
            return str(err)

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(decide, range(2, 22)))

    winner = ledger.read("pump")[1].change
    refusals = [result for result in results if isinstance(result, str)]
    assert len(ledger.read("pump")) == 2
    assert len(refusals) == 19
    assert all(f"{winner.decided_by} made version {winner.to_version} the champion" in text for text in refusals)


def test_a_line_whose_writer_died_before_sealing_it_is_told_from_tampering(written):
    before = written(2)
    ledger.append(change(3), ledger.read("pump"))

    assert ledger.verify("pump", before) == [
        "line 3 is not sealed yet: its writer died before the alias moved; settle it"
    ]


def test_a_machine_whose_clock_is_far_behind_may_not_decide(written, monkeypatch):
    written(1)

    class Behind(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(hours=1)

    monkeypatch.setattr(ledger, "datetime", Behind)

    with pytest.raises(LedgerError, match="one of the two clocks is wrong"):
        ledger.append(change(2), ledger.read("pump"))
    assert datetime.fromisoformat(ledger.read("pump")[0].decided_at) <= datetime.now(UTC)


def test_a_removed_ledger_is_missed_by_its_seal(written):
    seal = written(2)
    storage.delete_objects(storage.lake("ledger", "pump"))

    assert ledger.verify("pump", seal) == ["the registry keeps the seal of line 2, but there is no line"]


def test_every_one_of_a_hundred_random_tamperings_is_found(written):
    seal = written(6)
    folder = storage.lake("ledger", "pump")
    original = {location: storage.read_bytes(location) for location in storage.list_objects(folder)}

    unnoticed = []
    for number in range(100):
        rng = np.random.default_rng(number)
        what = _tamper(rng, sorted(original))
        if not ledger.verify("pump", seal):
            unnoticed.append(what)
        storage.delete_objects(folder)
        for location, data in original.items():
            storage.write_bytes(location, data)

    assert unnoticed == []
    assert ledger.verify("pump", seal) == []


def _tamper(rng, locations):
    """Do one thing that a ledger must show, and say which."""
    victim, other = rng.choice(locations, size=2, replace=False)
    data = bytearray(storage.read_bytes(victim))
    match rng.choice(["byte", "field", "removed", "swapped", "duplicated", "appended", "rewritten"]):
        case "byte":
            position = int(rng.integers(len(data)))
            data[position] ^= 1 << int(rng.integers(8))
            storage.write_bytes(victim, bytes(data))
            return f"byte {position} of {victim}"
        case "field":
            line = json.loads(data)
            name = str(rng.choice(["to_version", "decided_by", "reason", "mlflow_run"]))
            line["change"][name] += "x"
            storage.write_bytes(victim, json.dumps(line, sort_keys=True, indent=1).encode())
            return f"{name} of {victim}"
        case "removed":
            storage.delete_object(victim)
            return f"removed {victim}"
        case "swapped":
            theirs = storage.read_bytes(other)
            storage.write_bytes(other, bytes(data))
            storage.write_bytes(victim, theirs)
            return f"swapped {victim} and {other}"
        case "duplicated":
            storage.write_bytes(f"{victim.rpartition('/')[0]}/00000007.json", bytes(data))
            return f"{victim} again as line 7"
        case "appended":
            lines = ledger.read("pump")
            ledger.append(change(90, model="pump"), lines)
            ledger.append(change(91, model="pump"), ledger.read("pump"))
            return "two lines that nobody sealed"
        case _:
            kept = ledger.read("pump")[: int(rng.integers(6))]
            storage.delete_objects(victim.rpartition("/")[0])
            for number in range(len(kept) + 1, 7):
                kept = (*kept, ledger.append(change(number, decided_by="mallory"), kept))
            return f"rewritten from line {len(kept)}"
