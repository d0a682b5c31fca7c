"""From measurements of a clock and the times at which it was set to the segments of its map.

Shape suffixes: X = measurements, oldest first, K = knots.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipelines.clocks.clock_map import BEYOND_NS, Segment, Step
from pipelines.clocks.noise import Model
from pipelines.clocks.placing import Known, Placed, RowStream, Span, place
from pipelines.clocks.steps import plausible_starts
from pipelines.clocks.track import Track

KNOT_GAP_S = 30.0
"""Measurements further apart than this get knots in between."""

ENDS_S = (30.0, 120.0, 600.0, 3_600.0, 21_600.0)
"""Knots beyond the first and last measurement: the uncertainty grows faster than in proportion."""


class Line(NamedTuple):
    """A straight line that levels are relative to, so that they are small enough for floats."""

    utc_ns: int
    offset_ns: int
    """Offset at `utc_ns`."""

    drift_ppb: float

    def undo(self, since_s_K: np.ndarray, level_ns_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return instant and offset, in nanoseconds, of levels relative to the line."""
        gained_ns_K = np.rint(level_ns_K + self.drift_ppb * since_s_K).astype(np.int64)
        return self.utc_ns + np.rint(since_s_K * 1e9).astype(np.int64), self.offset_ns + gained_ns_K


class _Knots(NamedTuple):
    """Smoothed offsets of one segment, or of all."""

    dev_ns_K: np.ndarray
    offset_ns_K: np.ndarray
    sigma_ns_K: np.ndarray
    slope_ppb_K: np.ndarray
    slope_sigma_ppb_K: np.ndarray
    is_measured_K: np.ndarray


def fit_segments(
    track: Track, model: Model, line: Line, rows: Sequence[RowStream]
) -> tuple[tuple[Segment, ...], tuple[Step, ...]]:
    """Place the steps by measurements and rows, and smooth the measurements in between."""
    since_ns_X = np.rint(track.since_s_X * 1e9).astype(np.int64)
    spans = [
        Span(line.utc_ns + int(since_ns_X[first - 1]), line.utc_ns + int(since_ns_X[last]))
        for first, last in plausible_starts(track, model.wander_ppb, model.starts)
    ]
    segments = _segments(track, model.wander_ppb, line, spans)
    if not spans or not rows:
        return segments, _steps(spans, segments)
    placed = [
        _together([place(stream, old, new, span) for stream in rows], span)
        for span, (old, new) in zip(spans, pairwise(segments), strict=True)
    ]
    known = [one for found in placed for one in found.between]
    spans = [span for found in placed for span in found.spans]
    segments = _segments(_with_known(track, line, known), model.wander_ppb, line, spans)
    return segments, _steps(spans, segments)


def _together(found: list[Placed | None], span: Span) -> Placed:
    """What several sensors say about a step: that it was two, or the shortest span that does not contradict others."""
    placed = sorted(
        (one for one in found if one is not None), key=lambda one: one.spans[0].high_ns - one.spans[0].low_ns
    )
    for one in placed:
        if one.between:
            return one
    for one in placed:
        both = Span(max(one.spans[0].low_ns, span.low_ns), min(one.spans[0].high_ns, span.high_ns))
        span = both if both.low_ns < both.high_ns else span
    return Placed((span,))


def _with_known(track: Track, line: Line, known: list[Known]) -> Track:
    """Add what only rows say as if it had been measured."""
    since_s = np.array([(one.utc_ns - line.utc_ns) * 1e-9 for one in known])
    level_ns = np.array([one.offset_ns - line.offset_ns for one in known]) - line.drift_ppb * since_s
    since_s_X = np.concatenate([track.since_s_X, since_s])
    order = np.argsort(since_s_X, kind="stable")
    sigma_ns_X = np.concatenate([track.sigma_ns_X, [one.sigma_ns for one in known]])
    return Track(since_s_X[order], np.concatenate([track.level_ns_X, level_ns])[order], sigma_ns_X[order])


def _segments(track: Track, wander_ppb: float, line: Line, spans: list[Span]) -> tuple[Segment, ...]:
    """Smooth the measurements, with further knots where they are sparse, beyond them, and at both sides of steps."""
    since_s_X = track.since_s_X
    set_s = np.array([((span.low_ns + span.high_ns) // 2 - line.utc_ns) * 1e-9 for span in spans])
    gap_s = np.diff(since_s_X)
    sparse = np.flatnonzero(gap_s > KNOT_GAP_S)
    between_s = np.concatenate([since_s_X[sparse] + share * gap_s[sparse] for share in (0.25, 0.5, 0.75)])
    asked_s = np.concatenate([since_s_X[0] - np.array(ENDS_S), between_s, since_s_X[-1] + np.array(ENDS_S)])
    since_s_K = np.concatenate([since_s_X, asked_s, set_s, set_s])
    old = np.arange(len(spans))
    segment_K = np.concatenate([np.searchsorted(set_s, np.concatenate([since_s_X, asked_s])), old, old + 1])
    order = np.lexsort((since_s_K, segment_K))
    since_s_K, segment_K = since_s_K[order], segment_K[order]
    nothing = np.full(len(since_s_K) - len(since_s_X), np.nan)
    level_ns_K = np.concatenate([track.level_ns_X, nothing])[order]
    sigma_ns_K = np.concatenate([track.sigma_ns_X, nothing])[order]
    starts = (np.flatnonzero(np.diff(segment_K)) + 1).tolist()
    drift = Track(since_s_K, level_ns_K, sigma_ns_K).smoothed(wander_ppb, starts)
    utc_ns_K, offset_ns_K = line.undo(since_s_K, drift.level_K)
    knots = _Knots(
        utc_ns_K - offset_ns_K,
        offset_ns_K,
        drift.level_sigma_K,
        drift.slope_K + line.drift_ppb,
        drift.slope_sigma_K,
        ~np.isnan(level_ns_K),
    )
    return tuple(
        _segment(_Knots(*(values[first:stop] for values in knots)))
        for first, stop in pairwise([0, *starts, len(since_s_K)])
    )


def _segment(knots: _Knots) -> Segment:
    """Make a segment whose first and last knot carry the slopes of its ends on."""
    ends = [0, -1]
    beyond_s = np.array([-BEYOND_NS, BEYOND_NS]) * 1e-9
    offset_ns = knots.offset_ns_K[ends] + np.rint(knots.slope_ppb_K[ends] * beyond_s).astype(np.int64)
    sigma_ns = knots.sigma_ns_K[ends] + knots.slope_sigma_ppb_K[ends] * np.abs(beyond_s)
    measured = np.flatnonzero(knots.is_measured_K)[ends] if knots.is_measured_K.any() else np.array(ends)
    first_ns, last_ns = knots.dev_ns_K[measured].tolist()
    return Segment(
        dev_ns_K=np.r_[knots.dev_ns_K[0] - BEYOND_NS, knots.dev_ns_K, knots.dev_ns_K[-1] + BEYOND_NS],
        offset_ns_K=np.r_[offset_ns[0], knots.offset_ns_K, offset_ns[1]],
        sigma_ns_K=np.r_[sigma_ns[0], knots.sigma_ns_K, sigma_ns[1]],
        measured_ns=(first_ns, last_ns),
    )


def _steps(spans: list[Span], segments: tuple[Segment, ...]) -> tuple[Step, ...]:
    """The steps between segments, by what the clock showed on both sides."""
    return tuple(
        Step(
            before_ns=int(old.to_dev(np.array([span.low_ns]))[0]),
            after_ns=int(new.to_dev(np.array([span.high_ns]))[0]),
            jump_ns=int(old.offset_ns_K[-2] - new.offset_ns_K[1]),
        )
        for span, (old, new) in zip(spans, pairwise(segments), strict=True)
    )
