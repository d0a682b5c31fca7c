"""Alarms over time against events: what was found, how early, and what it costs in false alarms.

Rows are not what a depot sees: it gets an alarm, and an event is found or it is not. Scores become alarm episodes, and
episodes are matched with events. Each score counts from the moment at which it was known, the end of its window, so
nothing is found before it could have been.

Shape suffixes: T = scores of one vehicle, E = episodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

_MONTH_S = 30 * 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmRule:
    """How scores become alarms, and which alarms count as early warnings."""

    threshold: float
    """Smallest score that is an alarm."""

    period_s: float
    """How long a score holds, if no newer one comes: the stride of the windows. Longer pauses were not observed."""

    merge_gap_s: float = 0.0
    """Alarms that pause for no longer than this are one episode, also across a time without scores."""

    min_duration_s: float = 0.0
    """An alarm is raised once its episode has lasted this long; shorter episodes are dropped."""

    lead_window_s: float = 0.0
    """An episode that overlaps this time before an event is an early warning of it, not a false alarm."""

    def __post_init__(self) -> None:
        """Refuse durations that mean nothing."""
        if self.period_s <= 0:
            raise ValueError(
                f"period_s is {self.period_s:g} s, but must be more than 0: it is the stride of the windows"
            )
        for name in ("merge_gap_s", "min_duration_s", "lead_window_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name):g} s, but must not be negative")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Event:
    """A known event, `[start, end)`; the end is the failure, or the repair where only that is known."""

    vehicle: str
    start_utc_ns: int
    end_utc_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundEvent:
    """An event for which an alarm was raised while it lasted, or in the lead window before it."""

    event: Event
    raised_utc_ns: int
    """When the first alarm that overlaps event or lead window was raised."""

    @property
    def delay_s(self) -> float:
        """From the start of the event to the alarm, as detection delay is usually given; negative: before the event."""
        return (self.raised_utc_ns - self.event.start_utc_ns) / 1e9

    @property
    def lead_s(self) -> float:
        """From the alarm to the end of the event, the time left to act.

        Lead time usually means this; studies of the Porto metro's compressor look for two hours or more.
        """
        return (self.event.end_utc_ns - self.raised_utc_ns) / 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class EventScores:
    """What the alarms of one or more vehicles were worth."""

    found: tuple[FoundEvent, ...]
    missed: tuple[Event, ...]
    unobserved: tuple[Event, ...]
    """Events of which no score was known in event or lead window: neither found nor missed."""

    false_alarms: int
    """Episodes that overlap neither an event nor a lead window."""

    observed_s: float
    """Time for which scores stand, gaps left out."""

    quiet_s: float
    """The part of it that is neither in an event nor in a lead window."""

    false_alarm_s: float
    """The part of `quiet_s` in which an alarm was on. An alarm that never ends finds all events; here it shows."""

    @property
    def recall(self) -> float:
        """Share of the observed events that were found; NaN if there were none."""
        return _ratio(len(self.found), len(self.found) + len(self.missed))

    @property
    def false_alarms_per_month(self) -> float:
        """False alarms in 30 days of observed time, of one vehicle; NaN if nothing was observed."""
        return _ratio(self.false_alarms * _MONTH_S, self.observed_s)

    def to_scores(self) -> dict[str, float]:
        """All of it as named numbers, as a report has them; NaN where nothing could be measured."""
        return {
            "event_recall": self.recall,
            "events_found": float(len(self.found)),
            "events_missed": float(len(self.missed)),
            "events_unobserved": float(len(self.unobserved)),
            "median_delay_s": _median([found.delay_s for found in self.found]),
            "median_lead_s": _median([found.lead_s for found in self.found]),
            "false_alarms": float(self.false_alarms),
            "false_alarms_per_month": self.false_alarms_per_month,
            "false_alarm_time_share": _ratio(self.false_alarm_s, self.quiet_s),
            "observed_days": self.observed_s / 86_400,
        }


def score_events(
    t_utc_ns_T: np.ndarray, score_T: np.ndarray, vehicle_T: np.ndarray, events: Sequence[Event], *, rule: AlarmRule
) -> EventScores:
    """Judge the alarms that scores would have given, vehicle by vehicle, and add them up.

    Args:
        t_utc_ns_T: When each score was known (end of its window), int64; in any order, no time twice in a vehicle.
        score_T: Finite; larger is more unusual.
        vehicle_T: Vehicle of each score.
        events: Known events of these and perhaps other vehicles; two of one vehicle may touch or overlap.
        rule: How scores become alarms.
    """
    if num_bad := int((~np.isfinite(score_T)).sum()):
        raise ValueError(
            f"{num_bad} of {len(score_T)} scores are not finite: a missing score is no score, leave it out"
        )
    vehicles = sorted(set(vehicle_T.tolist()) | {event.vehicle for event in events})
    parts = []
    for vehicle in vehicles:
        own = np.flatnonzero(vehicle_T == vehicle)
        own = own[np.argsort(t_utc_ns_T[own], kind="stable")]
        known = sorted(event for event in events if event.vehicle == vehicle)
        parts.append(_score_vehicle(t_utc_ns_T[own], score_T[own], known, rule))
    return _sum(parts)


def alarm_episodes(t_utc_ns_T: np.ndarray, score_T: np.ndarray, *, rule: AlarmRule) -> np.ndarray:
    """Return the episodes of one vehicle's alarms as ``start_end_ns_E2``, half-open and ascending.

    An episode begins with the first alarming score and ends when its last one no longer holds.

    Args:
        t_utc_ns_T: When each score was known, ascending.
        score_T: One score each.
        rule: How scores become alarms.

    Example:
        >>> rule = AlarmRule(threshold=0.5, period_s=10, merge_gap_s=10)
        >>> t_s = np.array([0, 10, 20, 30, 40, 50, 60])
        >>> alarm_episodes(t_s * 10**9, np.array([0, 1, 0, 1, 0, 0, 1]), rule=rule) // 10**9
        array([[10, 40],
               [60, 70]])
    """
    end_T = _hold_until(t_utc_ns_T, rule)
    is_alarm_T = score_T >= rule.threshold
    start_A, end_A = t_utc_ns_T[is_alarm_T], end_T[is_alarm_T]
    is_new_A = np.ones(len(start_A), dtype=bool)
    is_new_A[1:] = start_A[1:] - end_A[:-1] > rule.merge_gap_s * 1e9
    is_last_A = np.roll(is_new_A, -1)
    start_end_E2 = np.stack([start_A[is_new_A], end_A[is_last_A]], axis=1)
    return np.asarray(start_end_E2[np.diff(start_end_E2)[:, 0] >= rule.min_duration_s * 1e9])


def _score_vehicle(t_utc_ns_T: np.ndarray, score_T: np.ndarray, events: list[Event], rule: AlarmRule) -> EventScores:
    """Judge one vehicle; times and events ascend."""
    held_T2 = np.stack([t_utc_ns_T, _hold_until(t_utc_ns_T, rule)], axis=1)
    episode_E2 = alarm_episodes(t_utc_ns_T, score_T, rule=rule)
    lead_ns = round(rule.lead_window_s * 1e9)
    watched = [(event.start_utc_ns - lead_ns, event.end_utc_ns) for event in events]
    is_false_E = np.ones(len(episode_E2), dtype=bool)
    found, missed, unobserved = [], [], []
    for event, (start_ns, end_ns) in zip(events, watched, strict=True):
        raised_E = episode_E2[:, 0] + round(rule.min_duration_s * 1e9)
        overlaps_E = (episode_E2[:, 0] < end_ns) & (episode_E2[:, 1] > start_ns)
        is_false_E &= ~overlaps_E
        in_time_E = overlaps_E & (raised_E < end_ns)
        if in_time_E.any():
            found.append(FoundEvent(event=event, raised_utc_ns=max(int(raised_E[in_time_E][0]), start_ns)))
        elif ((held_T2[:, 0] < end_ns) & (held_T2[:, 1] > start_ns)).any():
            missed.append(event)
        else:
            unobserved.append(event)
    on_T2 = held_T2[score_T >= rule.threshold]
    return EventScores(
        found=tuple(found),
        missed=tuple(missed),
        unobserved=tuple(unobserved),
        false_alarms=int(is_false_E.sum()),
        observed_s=_seconds(held_T2),
        quiet_s=_seconds(held_T2) - _seconds_inside(held_T2, watched),
        false_alarm_s=_seconds(on_T2) - _seconds_inside(on_T2, watched),
    )


def _hold_until(t_utc_ns_T: np.ndarray, rule: AlarmRule) -> np.ndarray:
    """When each score is replaced by the next, or no longer holds."""
    end_T = t_utc_ns_T + round(rule.period_s * 1e9)
    end_T[:-1] = np.minimum(end_T[:-1], t_utc_ns_T[1:])
    return np.asarray(end_T)


def _seconds(start_end_ns_T2: np.ndarray) -> float:
    return float((start_end_ns_T2[:, 1] - start_end_ns_T2[:, 0]).sum()) / 1e9


def _seconds_inside(start_end_ns_T2: np.ndarray, watched: Iterable[tuple[int, int]]) -> float:
    """How much of disjoint intervals lies in any of the watched ones."""
    return sum(_seconds(start_end_ns_T2.clip(*union)) for union in _union(watched))


def _union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint intervals that cover the same time.

    Example:
        >>> _union([(0, 4), (3, 6), (8, 9)])
        [(0, 6), (8, 9)]
    """
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _sum(parts: Sequence[EventScores]) -> EventScores:
    return EventScores(
        found=tuple(found for part in parts for found in part.found),
        missed=tuple(event for part in parts for event in part.missed),
        unobserved=tuple(event for part in parts for event in part.unobserved),
        false_alarms=sum(part.false_alarms for part in parts),
        observed_s=sum(part.observed_s for part in parts),
        quiet_s=sum(part.quiet_s for part in parts),
        false_alarm_s=sum(part.false_alarm_s for part in parts),
    )


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
