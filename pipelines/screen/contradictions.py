"""Channels that cannot both be right: the rules of `channels.RULES`, applied tick by tick.

A tick is a second, or a period of the slower sensor if that is longer. Channels of different rates and phases are
compared as straight lines between their means of a tick. What two channels say must be impossible for `LASTING_TICKS`
on end; all their readings of that time are marked, unless a third channel tells which of the two is wrong.

Shape suffixes: T = readings of one channel by instant, K = ticks in which the first channel of a rule has any.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from pipelines.channels import RULES, Agree, NeverAbove, RisesOnlyWhile, Rule
from pipelines.screen.reasons import Reason
from pipelines.screen.sensor import Screened

SECOND_NS = 1_000_000_000
LASTING_TICKS = 5
"""What lasts for less is a spike, or one of two sensors being late. A rise is measured over this time."""

NEAR_TICKS = 1.5
"""Readings further apart than this are not neighbours."""


class Readings(NamedTuple):
    """One channel: instants, ascending, and readings, NaN where there is none."""

    t_ns_T: np.ndarray
    x_T: np.ndarray


class _Means(NamedTuple):
    """A channel by the ticks in which it has readings."""

    t_ns_K: np.ndarray
    """Mean instant of the readings."""

    x_K: np.ndarray
    tick_ns: int


def contradicted(
    screened: Mapping[str, Screened], *, comparable: Iterable[str], witnesses: Mapping[str, Readings]
) -> dict[str, Screened]:
    """Mark the readings that contradict another channel.

    Args:
        screened: By sensor.
        comparable: Sensors whose clocks are tied to UTC. Of others, only channels of one sensor are compared.
        witnesses: Channels that are no sensor's own, `<sensor>.<channel>`, for rules that name one as a witness.
    """
    tied = set(comparable)
    found = dict(screened)
    for rule in RULES:
        sensors = {_sensor_of(rule.first), _sensor_of(rule.second)}
        if not (_has(found, rule.first) and _has(found, rule.second)) or not (len(sensors) == 1 or sensors <= tied):
            continue
        tick_ns = max(SECOND_NS, *(_period_ns(found[sensor]) for sensor in sensors))
        first, second = (_means(_readings(found, name), tick_ns) for name in (rule.first, rule.second))
        witness = witnesses.get(rule.witness) if isinstance(rule, Agree) else None
        for stretch in _stretches(first, _is_impossible(rule, first, second)):
            for name in _wrong(rule, _within(first, stretch), second, witness):
                found |= _marked(found, name, stretch)
    return found


def _sensor_of(name: str) -> str:
    return name.split(".")[0]


def _has(screened: Mapping[str, Screened], name: str) -> bool:
    sensor, channel = name.split(".")
    return sensor in screened and channel in screened[sensor].code_S


def _readings(screened: Mapping[str, Screened], name: str) -> Readings:
    sensor, channel = name.split(".")
    return Readings(screened[sensor].track.t_ns_T, screened[sensor].track.values[channel])


def _period_ns(own: Screened) -> int:
    return round(1e9 / own.track.rate_hz) if own.track.rate_hz is not None else SECOND_NS


def _marked(screened: Mapping[str, Screened], name: str, stretch: tuple[int, int]) -> dict[str, Screened]:
    sensor, channel = name.split(".")
    own = screened[sensor]
    is_wrong_T = (own.track.t_ns_T >= stretch[0]) & (own.track.t_ns_T <= stretch[1])
    return {sensor: own.without(channel, is_wrong_T, Reason.CONTRADICTION)}


def _means(readings: Readings, tick_ns: int) -> _Means:
    """Average the readings of each tick.

    Example:
        >>> _means(Readings(np.array([10, 14, 25]), np.array([2.0, 4.0, 6.0])), 10)
        _Means(t_ns_K=array([12, 25]), x_K=array([3., 6.]), tick_ns=10)
    """
    is_present_T = ~np.isnan(readings.x_T)
    t_ns_T, x_T = readings.t_ns_T[is_present_T], readings.x_T[is_present_T]
    if not len(t_ns_T):
        return _Means(t_ns_T, x_T, tick_ns)
    first_K = np.flatnonzero(np.diff(t_ns_T // tick_ns, prepend=-1))
    count_K = np.diff(first_K, append=len(t_ns_T))
    first_ns_K = t_ns_T[first_K]
    since_ns_K = np.add.reduceat(t_ns_T - np.repeat(first_ns_K, count_K), first_K) // count_K
    return _Means(first_ns_K + since_ns_K, np.add.reduceat(x_T, first_K) / count_K, tick_ns)


def _within(means: _Means, stretch: tuple[int, int]) -> _Means:
    is_inside_K = (means.t_ns_K >= stretch[0]) & (means.t_ns_K <= stretch[1])
    return _Means(means.t_ns_K[is_inside_K], means.x_K[is_inside_K], means.tick_ns)


def _at(means: _Means, t_ns_K: np.ndarray) -> np.ndarray:
    """A channel at other instants, on the line between the ticks around them; NaN where those are not near."""
    if len(means.t_ns_K) < 2:
        return np.full(len(t_ns_K), np.nan)
    after = np.clip(np.searchsorted(means.t_ns_K, t_ns_K), 1, len(means.t_ns_K) - 1)
    before_ns, after_ns = means.t_ns_K[after - 1], means.t_ns_K[after]
    is_near = np.maximum(after_ns, t_ns_K) - np.minimum(before_ns, t_ns_K) <= NEAR_TICKS * means.tick_ns
    start_ns = means.t_ns_K[0]
    x_K = np.interp((t_ns_K - start_ns) * 1e-9, (means.t_ns_K - start_ns) * 1e-9, means.x_K)
    return np.where(is_near, x_K, np.nan)


def _is_impossible(rule: NeverAbove | Agree | RisesOnlyWhile, first: _Means, second: _Means) -> np.ndarray:
    """In which ticks of the first channel the two contradict each other; NaN contradicts nothing."""
    other_K = _at(second, first.t_ns_K)
    match rule:
        case NeverAbove():
            return np.asarray(first.x_K > other_K + rule.tolerance)
        case Agree():
            return _differ(rule, first.x_K, other_K)
        case RisesOnlyWhile():
            return _rises_without(rule, first, other_K)


def _differ(rule: Agree, x_K: np.ndarray, other_K: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(x_K - other_K) > rule.tolerance + rule.share * np.fmax(np.abs(x_K), np.abs(other_K)))


def _rises_without(rule: RisesOnlyWhile, first: _Means, state_K: np.ndarray) -> np.ndarray:
    """Ticks of rises over `LASTING_TICKS` during all of which the state was zero."""
    rises_K = np.zeros(len(first.x_K), dtype=bool)
    span_ns = first.t_ns_K[LASTING_TICKS:] - first.t_ns_K[:-LASTING_TICKS]
    is_fast = first.x_K[LASTING_TICKS:] - first.x_K[:-LASTING_TICKS] > rule.rate_per_s * span_ns * 1e-9
    is_off_K = state_K == 0.0
    for end in LASTING_TICKS + np.flatnonzero(is_fast & (span_ns < (LASTING_TICKS + 1) * first.tick_ns)):
        rise = slice(end - LASTING_TICKS, end + 1)
        rises_K[rise] |= bool(is_off_K[rise].all())
    return rises_K


def _stretches(first: _Means, is_impossible_K: np.ndarray) -> list[tuple[int, int]]:
    """Ends of the stretches of neighbouring ticks that are all impossible, of those that last."""
    at = np.flatnonzero(is_impossible_K)
    if not len(at):
        return []
    is_apart = (np.diff(at) > 1) | (np.diff(first.t_ns_K[at]) > NEAR_TICKS * first.tick_ns)
    parts = [part for part in np.split(at, 1 + np.flatnonzero(is_apart)) if len(part) >= LASTING_TICKS]
    half_ns = first.tick_ns // 2  # a tick's mean instant is about its middle
    return [(int(first.t_ns_K[part[0]]) - half_ns, int(first.t_ns_K[part[-1]]) + half_ns) for part in parts]


def _wrong(rule: Rule, first: _Means, second: _Means, witness: Readings | None) -> tuple[str, ...]:
    """Which of the two channels is wrong over a stretch: the one that the witness contradicts, or both: who knows."""
    if isinstance(rule, Agree) and witness is not None:
        seen_K = _at(_means(witness, first.tick_ns), first.t_ns_K)
        num_seen = int((~np.isnan(seen_K)).sum())
        is_first_alone, is_second_alone = (
            2 * int(_differ(rule, x_K, seen_K).sum()) > num_seen for x_K in (first.x_K, _at(second, first.t_ns_K))
        )
        if is_first_alone != is_second_alone:
            return (rule.first,) if is_first_alone else (rule.second,)
    return (rule.first, rule.second)
