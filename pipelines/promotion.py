"""Which version of a model is champion: the alias moves only with a line in the ledger.

First the line is written, then the alias moves, then the seal in the registry. Whoever decides next repairs what a
crash left undone, so the ledger always says what is live.
"""

import json
import logging
from dataclasses import asdict, dataclass
from typing import Any

from pipelines import ledger, registry
from pipelines.errors import ConfigError, ConflictError, LedgerError
from pipelines.ledger import Act, Change, Line
from pipelines.registry import CHAMPION, Rule

SEAL = "trackside.ledger_seal"
"""Tag of a registered model: the seal of the last line of its ledger."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What the gate said of a candidate, and what was done."""

    model: str
    version: str
    promoted: bool
    forced: bool
    previous: str
    """Version that was champion before; empty if there was none."""

    rules: tuple[Rule, ...]

    @property
    def reasons(self) -> list[str]:
        """Rules that did not pass, in words."""
        return [f"{rule.name}: {rule.detail}" for rule in self.rules if not rule.passed]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "reasons": self.reasons}


def champion(name: str) -> str:
    """The version that is champion by the ledger; empty if there is none.

    An alias or a seal that lags behind the last line, because its writer died, is set.

    Raises:
        LedgerError: The ledger was tampered with.
    """
    return _settled(name, ledger.read(name))


def promote(name: str, version: str, *, previous: str, rules: tuple[Rule, ...], force: bool, act: Act) -> Decision:
    """Make `version` champion if every rule passed, or if a person forces it.

    Args:
        name: The registered model.
        version: The candidate.
        previous: The champion that the rules compared it with.
        rules: The answers of the gate.
        force: Whether to promote against the gate.
        act: Who decides, and why.

    Returns:
        The decision, which is stored as tags of the version either way.

    Raises:
        ConflictError: Somebody else decided meanwhile.
    """
    lines = ledger.read(name)
    passed = all(rule.passed for rule in rules)
    made = _made(act, lines, action="promote", version=version)
    if made:
        _require_champion(name, _settled(name, lines), version)
        previous = made.change.from_version
    elif (passed or force) and version != previous:
        _require_champion(name, _settled(name, lines), previous)
        lines = _written(lines, name, version, previous, "promote", act, rules=rules, is_forced=not passed)
        _settled(name, lines)
    decision = Decision(
        model=name,
        version=version,
        promoted=made is not None or passed or force,
        forced=force and not passed,
        previous="" if previous == version else previous,
        rules=rules,
    )
    tags = {"trackside.gate": "passed" if passed else "failed"}
    registry.set_tags(name, version, tags | {"trackside.decision": json.dumps(decision.to_dict())[:5000]})
    for rule in rules:
        logger.info("gate: %s %s: %s", "pass" if rule.passed else "FAIL", rule.name, rule.detail)
    logger.info("%s version %s: promoted %s, champion before: %s", name, version, decision.promoted, previous or "none")
    return decision


def rollback(name: str, version: str, *, act: Act) -> Line:
    """Make an earlier version champion again; return the line of the ledger.

    Args:
        name: The registered model.
        version: Which; empty: the one that the present champion replaced.
        act: Who decides, and why; there must be a reason.

    Raises:
        ConfigError: There is no reason, or nothing to go back to.
        ObjectNotFoundError: The version is not there, or cannot be loaded.
    """
    if not act.reason.strip():
        raise ConfigError(f"rolling {name} back needs a reason: the ledger keeps it")
    lines = ledger.read(name)
    present = _settled(name, lines)
    if made := _made(act, lines, action="rollback"):
        _require_champion(name, present, made.change.to_version)
        return made
    target = version or _replaced_by(present, lines)
    if not target:
        raise ConfigError(f"{name} version {present or 'none'} replaced no other version; name the one to go back to")
    if target == present:
        raise ConfigError(f"{name} version {present} is the champion already")
    registry.load(f"models:/{name}/{target}")  # a version that cannot be loaded must not go live
    lines = _written(lines, name, target, present, "rollback", act)
    _settled(name, lines)
    return lines[-1]


def history(name: str) -> list[dict[str, Any]]:
    """The lines of the ledger, oldest first, ready for JSON."""
    return [as_dict(line) for line in ledger.read(name)]


def as_dict(line: Line) -> dict[str, Any]:
    """A line of the ledger, ready for JSON."""
    return asdict(line) | {"digest": line.digest}


def verify(name: str) -> list[str]:
    """What does not agree between ledger and registry, in words; nothing if all does."""
    if problems := ledger.verify(name, registry.model_tag(name, SEAL)):
        return problems
    lines = ledger.read(name)
    alias = registry.champion_version(name)
    if lines and alias != lines[-1].change.to_version:
        return [
            f"the alias {CHAMPION} points to version {alias or 'none'}, but the ledger made version "
            f"{lines[-1].change.to_version} {CHAMPION}: somebody moved it past the ledger"
        ]
    return []


def _settled(name: str, lines: tuple[Line, ...]) -> str:
    """Let alias and seal follow the ledger; return the champion."""
    alias = registry.champion_version(name)
    seal = registry.model_tag(name, SEAL)
    if not lines and not seal:
        return alias
    if not lines or (seal != lines[-1].seal and not ledger.follows(lines[-1], seal)):
        raise LedgerError(f"the ledger of {name} was tampered with: {'; '.join(ledger.verify(name, seal))}")
    last = lines[-1]
    if alias != last.change.to_version:
        logger.warning("%s: the alias pointed to %s, the ledger says %s", name, alias or "none", last.change.to_version)
        registry.set_champion(name, last.change.to_version)
    if seal != last.seal:
        registry.set_model_tag(name, SEAL, last.seal)
    return last.change.to_version


def _written(
    lines: tuple[Line, ...],
    name: str,
    version: str,
    previous: str,
    action: str,
    act: Act,
    *,
    rules: tuple[Rule, ...] = (),
    is_forced: bool = False,
) -> tuple[Line, ...]:
    """The ledger with one line more."""
    change = Change(
        **asdict(act),
        model=name,
        alias=CHAMPION,
        action=action,
        from_version=previous,
        to_version=version,
        gate=tuple(asdict(rule) for rule in rules),
        is_forced=is_forced,
        mlflow_run=registry.run_of(name, version),
    )
    return (*lines, ledger.append(change, lines))


def _made(act: Act, lines: tuple[Line, ...], *, action: str, version: str = "") -> Line | None:
    """The line that an earlier attempt of this act wrote."""
    for line in lines:
        change = line.change
        if change.key == act.key and change.action == action and version in ("", change.to_version):
            return line
    return None


def _replaced_by(version: str, lines: tuple[Line, ...]) -> str:
    """The champion before `version` was promoted; empty if there was none."""
    promotions = [line.change for line in lines if line.change.action == "promote"]
    return next((made.from_version for made in reversed(promotions) if made.to_version == version), "")


def _require_champion(name: str, present: str, expected: str) -> None:
    """Refuse to decide upon, or to confirm, what somebody has changed since."""
    if present != expected:
        raise ConflictError(
            f"the {CHAMPION} of {name} is version {present or 'none'}, where version {expected or 'none'} was "
            "expected; look at the history and decide anew"
        )
