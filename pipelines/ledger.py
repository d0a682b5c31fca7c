"""The promotion ledger of a model: which version was live when, who decided it, and on which evidence.

Append-only, one object a decision: `ledger/<model>/00000001.json`, written with a conditional put, so of two deciders
one wins. Every line carries the digest of the one before it. The digest of the newest line, the seal, is kept
elsewhere (the registry), because nothing after it could show that it was altered or removed.
"""

import hashlib
import json
import logging
import re
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines import storage
from pipelines.errors import ConflictError, LedgerError, ObjectNotFoundError

NO_DIGEST = "0" * 64
"""Stands for the line before the first."""

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""A decision may seem to be made this long before the one that it follows; machines' clocks differ."""

_NAME = re.compile(r"\d{8}\.json")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """Who decides, and why."""

    key: str
    """Names the act: a retry with the same key finds its line and writes no second one."""

    decided_by: str
    """The authenticated user; `schedule` where the gate alone decides."""

    reason: str
    dag_run: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change(Act):
    """What was decided about the alias of a model, before it has its place in the ledger."""

    model: str
    alias: str
    action: str
    """`promote` or `rollback`."""

    from_version: str
    """Version that the alias pointed to; empty if none."""

    to_version: str
    gate: tuple[dict[str, Any], ...] = ()
    """The rules of the gate with their answers and numbers."""

    is_forced: bool = False
    """Whether it was made against the gate."""

    mlflow_run: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A decision in its place."""

    sequence: int
    """Counted from 1, without gaps."""

    previous_digest: str
    decided_at: str
    """UTC, by the clock of the machine that wrote the line; the order is that of `sequence`."""

    change: Change

    @property
    def digest(self) -> str:
        """SHA-256 of the line as it is stored."""
        return hashlib.sha256(_encode(self)).hexdigest()

    @property
    def seal(self) -> str:
        """What certifies the ledger up to this line."""
        return f"{self.sequence}:{self.digest}"


def read(model: str) -> tuple[Line, ...]:
    """All lines of a model, oldest first.

    Raises:
        LedgerError: The chain is broken; `verify` says where.
    """
    lines, problems = _read(model)
    if problems:
        raise LedgerError(f"the ledger of {model} is not whole: {'; '.join(problems[:10])}")
    return lines


def append(change: Change, lines: tuple[Line, ...]) -> Line:
    """Write the next line after `lines`, which the decider has read and decided upon; return it.

    Raises:
        ConflictError: Somebody else decided meanwhile.
        LedgerError: The clock of this machine is far behind the last line.
    """
    last = lines[-1] if lines else None
    now = datetime.now(UTC)
    if last and now < datetime.fromisoformat(last.decided_at) - MAX_CLOCK_SKEW:
        raise LedgerError(
            f"this machine's clock says {now.isoformat()}, but line {last.sequence} of {change.model} was written at "
            f"{last.decided_at}: one of the two clocks is wrong; correct it before deciding"
        )
    line = Line(
        sequence=last.sequence + 1 if last else 1,
        previous_digest=last.digest if last else NO_DIGEST,
        decided_at=now.isoformat(),
        change=change,
    )
    location = _location(change.model, line.sequence)
    try:
        storage.write_bytes(location, _encode(line), if_absent=True)
    except ConflictError as err:
        raise ConflictError(_lost(change, location)) from err
    logger.info("ledger of %s: line %d, %s", change.model, line.sequence, change.action)
    return line


def follows(line: Line, seal: str) -> bool:
    """Whether `seal` is that of the line before: its writer died before he could renew it."""
    before = f"{line.sequence - 1}:{line.previous_digest}" if line.sequence > 1 else ""
    return seal == before


def verify(model: str, seal: str) -> list[str]:
    """What is wrong with the ledger of a model, in words; nothing if it is whole and ends with `seal`.

    Args:
        model: Whose ledger.
        seal: Seal that was kept elsewhere; empty if none was ever kept.
    """
    lines, problems = _read(model)
    if problems:
        return problems
    if not lines:
        return [f"the registry keeps the seal of line {seal.partition(':')[0]}, but there is no line"] if seal else []
    last = lines[-1]
    if seal == last.seal:
        return []
    if follows(last, seal):
        return [f"line {last.sequence} is not sealed yet: its writer died before the alias moved; settle it"]
    return [
        f"line {last.sequence} is the last and has the digest {last.digest[:12]}…, but the registry keeps the seal of "
        f"line {seal.partition(':')[0] or 'none'} with {seal.partition(':')[2][:12] or 'no digest'}…: the end of the "
        "ledger was altered, removed or written past the registry"
    ]


def _read(model: str) -> tuple[tuple[Line, ...], list[str]]:
    """All lines that can be read, and everything that is wrong with the chain."""
    lines: list[Line] = []
    problems: list[str] = []
    digest = NO_DIGEST
    for expected, location in enumerate(storage.list_objects(_folder(model)), start=1):
        name = storage.name_of(location)
        if not _NAME.fullmatch(name):
            problems.append(f"{name} is no line of a ledger; expected {expected:08d}.json")
            continue
        data = storage.read_bytes(location)
        line = _decode(data)
        if line is None:
            problems.append(f"{name} is not as this project writes it")
        elif name != f"{line.sequence:08d}.json" or line.sequence != expected:
            problems.append(f"{name} holds line {line.sequence}; expected line {expected}")
        elif line.previous_digest != digest:
            problems.append(f"{name} follows {line.previous_digest[:12]}…, but the line before has {digest[:12]}…")
        elif line.change.model != model:
            problems.append(f"{name} decides about {line.change.model}, in the ledger of {model}")
        else:
            lines.append(line)
        digest = hashlib.sha256(data).hexdigest()
    return tuple(lines), problems


def _encode(line: Line) -> bytes:
    """The one way in which a line is written, so that an altered byte shows."""
    return json.dumps(asdict(line), sort_keys=True, indent=1, allow_nan=False).encode()


def _decode(data: bytes) -> Line | None:
    """The line, if it is written as `_encode` does."""
    try:
        stored = json.loads(data)
        change = {**stored["change"], "gate": tuple(stored["change"]["gate"])}
        line = Line(**{**stored, "change": Change(**change)})
    except (ValueError, TypeError, KeyError):
        return None
    is_typed = type(line.sequence) is int and all(
        isinstance(getattr(line.change, field.name), str) for field in fields(Change) if field.type is str
    )
    return line if is_typed and _encode(line) == data else None


def _lost(change: Change, location: str) -> str:
    """What to tell somebody whose decision came too late."""
    try:
        winner = _decode(storage.read_bytes(location))
    except ObjectNotFoundError:
        winner = None
    won = "somebody else decided"
    if winner:
        won = f"{winner.change.decided_by} made version {winner.change.to_version} the {winner.change.alias}"
    return (
        f"version {change.to_version} of {change.model} was not made the {change.alias}: meanwhile {won}; "
        "look at the history and decide anew"
    )


def _folder(model: str) -> str:
    return storage.lake("ledger", model)


def _location(model: str, sequence: int) -> str:
    return storage.join(_folder(model), f"{sequence:08d}.json")
