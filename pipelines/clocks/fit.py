"""How the map of a clock is fitted to what ties it to UTC.

Noise and wander are not assumed: of a few settings the one is taken under which the measurements are most likely, for
every clock anew. A LAN clock on a train and a server in a cupboard behind a congested line differ a thousandfold.

Shape suffixes: X = measurements, oldest first, K = knots.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipelines.clocks.clock_map import BEYOND_NS, ClockMap, Residuals, Segment, Step
from pipelines.clocks.exchanges import Exchanges
from pipelines.clocks.placing import Known, Placed, RowStream, Span, place
from pipelines.clocks.servers import consistent, honest, proven_steps, robust_drift, strays
from pipelines.clocks.steps import MAX_STEPS, find_starts, plausible_starts, score
from pipelines.clocks.track import Track

WANDER_PPB = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 2_000.0, 10_000.0)
"""Frequency random walks tried, in ppb per square root of a second."""

QUIET_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Noise of the fastest exchanges tried, as a share of the typical noise between neighbours."""

QUEUE_SHARES = (0.15, 0.3, 0.5)
"""Noise tried for what a round trip took longer than the shortest: 0.29 if both ways queue alike, 0.5 if one does."""

PATH_SHARE = 0.1
"""How much the ways there and back differ, as a share of the most that they can; before servers are compared."""

PAIR_SHARES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Noise of pairs tried, as a share of what they come with."""

DOUBT = 2.0
"""Settings whose log-likelihoods differ by less are about as likely."""

PAIR_SIGMAS = 5
"""Pairs further off than this are wrong."""

ROUNDS = 3
AWRY_SIGMAS = 3.0
"""Measurements further than this from the drift through all of them lose weight."""

KNOT_GAP_S = 30.0
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


class Knots(NamedTuple):
    """Smoothed offsets of one segment, or of all."""

    dev_ns_K: np.ndarray
    offset_ns_K: np.ndarray
    sigma_ns_K: np.ndarray
    slope_ppb_K: np.ndarray
    slope_sigma_ppb_K: np.ndarray
    is_measured_K: np.ndarray


class Model(NamedTuple):
    """What noise the measurements of a clock have, how its frequency wanders, and when it was set."""

    sigma_ns_X: np.ndarray
    wander_ppb: float
    starts: list[int]


def fit_exchanges(clock_id: str, exchanges: Exchanges, rows: Sequence[RowStream] = ()) -> ClockMap:
    """Fit a clock to its NTP exchanges; there must be at least one.

    Where no majority of servers agrees, all are used and the map is as uncertain as they are apart.

    Args:
        clock_id: The clock.
        exchanges: Its exchanges with all servers.
        rows: Regular sensors that the clock stamps; they tell when exactly it was set.
    """
    is_honest_X = honest(exchanges)
    believed = exchanges.only(is_honest_X) if is_honest_X.any() else exchanges
    is_consistent_X = consistent(believed)
    used = believed.only(is_consistent_X) if is_consistent_X.any() else believed
    line, level_ns_X = _levels(used)
    quarrel_ns = 0.0 if is_honest_X.any() else float(np.ptp(level_ns_X)) / 2
    candidates = _exchange_sigmas(used, level_ns_X)
    path_ns_S = np.zeros(len(used.servers))
    starts = [] if quarrel_ns else proven_steps(used).tolist()
    for _ in range(ROUNDS):
        track = Track(used.since_s_X, level_ns_X - path_ns_S[used.server_X], candidates[0])
        model = _most_likely(track, candidates, starts)
        track, starts = _less_of_the_awry(track, model), model.starts
        residual_ns_X = track.level_ns_X - track.smoothed(model.wander_ppb, starts).level_K
        path_ns_S += _path_difference_ns(used, residual_ns_X, track.sigma_ns_X)
    extra_sigma_ns = float(np.hypot(quarrel_ns, _path_sigma_ns(used, path_ns_S)))
    spans, segments = _placed(track, model, line, rows, extra_sigma_ns)
    best_X = used.rtt_ns_X <= np.median(used.rtt_ns_X)
    return ClockMap(
        clock_id=clock_id,
        method="exchanges",
        segments=segments,
        steps=_steps(spans, segments),
        residuals=Residuals(
            num_exchanges=len(used.dev_ns_X),
            num_rejected=exchanges.num_unusable + len(exchanges.dev_ns_X) - len(used.dev_ns_X),
            servers_rejected=_outvoted(exchanges, is_honest_X),
            p99_ns=float(np.percentile(np.abs(residual_ns_X[best_X]), 99)),
            floor_ns=float(used.rtt_ns_X.min()) / 2,
        ),
    )


def fit_pairs(
    clock_id: str,
    dev_ns_X: np.ndarray,
    utc_ns_X: np.ndarray,
    sigma_ns_X: np.ndarray,
    rows: Sequence[RowStream] = (),
) -> ClockMap:
    """Fit a clock to instants at which it was read together with UTC; there must be at least one.

    Args:
        clock_id: The clock.
        dev_ns_X: What it showed.
        utc_ns_X: UTC at the same instants.
        sigma_ns_X: Standard error of each pair, right up to a common factor.
        rows: Regular sensors that the clock stamps; they tell when exactly it was set.
    """
    order = np.argsort(utc_ns_X, kind="stable")
    pairs = Exchanges(
        dev_ns_X=dev_ns_X[order],
        offset_ns_X=(utc_ns_X - dev_ns_X)[order],
        rtt_ns_X=(2 * PAIR_SIGMAS * sigma_ns_X[order]).astype(np.int64),
        server_X=np.zeros(len(order), dtype=np.int64),
        servers=("",),
    )
    is_consistent_X = consistent(pairs) & ~strays(pairs)
    used = pairs.only(is_consistent_X) if is_consistent_X.any() else pairs
    line, level_ns_X = _levels(used)
    sigma_ns_X = used.rtt_ns_X / (2 * PAIR_SIGMAS) + 1.0
    candidates = [share * sigma_ns_X for share in PAIR_SHARES]
    track = Track(used.since_s_X, level_ns_X, sigma_ns_X)
    model = _cautious(track, candidates, _most_likely(track, candidates, proven_steps(used).tolist()))
    track = _less_of_the_awry(track, model)
    residual_ns_X = level_ns_X - track.smoothed(model.wander_ppb, model.starts).level_K
    spans, segments = _placed(track, model, line, rows, 0.0)
    best_X = sigma_ns_X <= np.median(sigma_ns_X)
    return ClockMap(
        clock_id=clock_id,
        method="pairs",
        segments=segments,
        steps=_steps(spans, segments),
        residuals=Residuals(
            num_exchanges=len(used.dev_ns_X),
            num_rejected=len(pairs.dev_ns_X) - len(used.dev_ns_X),
            p99_ns=float(np.percentile(np.abs(residual_ns_X[best_X]), 99)),
            floor_ns=float(sigma_ns_X.min()),
        ),
    )


def _levels(exchanges: Exchanges) -> tuple[Line, np.ndarray]:
    """A line through the offsets and what they are relative to it, in nanoseconds."""
    line = Line(int(exchanges.utc_ns_X[0]), int(exchanges.offset_ns_X[0]), robust_drift(exchanges) * 1e9)
    return line, (exchanges.offset_ns_X - line.offset_ns) - line.drift_ppb * exchanges.since_s_X


def _most_likely(track: Track, candidates: list[np.ndarray], starts: list[int]) -> Model:
    """Choose noise, wander and steps together, from rough noise and proven steps."""
    rough = track._replace(sigma_ns_X=candidates[len(candidates) // 2])
    starts = starts if len(starts) <= MAX_STEPS else []
    found = [(wander, find_starts(rough, wander, starts)) for wander in WANDER_PPB]
    wander_ppb, starts = max(found, key=lambda setting: score(rough, *setting))
    sigma_ns_X = max(candidates, key=lambda sigma: score(track._replace(sigma_ns_X=sigma), wander_ppb, starts))
    fine = track._replace(sigma_ns_X=sigma_ns_X)
    wander_ppb = max(WANDER_PPB, key=lambda wander: score(fine, wander, starts))
    return Model(sigma_ns_X, wander_ppb, find_starts(fine, wander_ppb, starts))


def _cautious(track: Track, candidates: list[np.ndarray], model: Model) -> Model:
    """Of settings that are about as likely as a model, take most noise and wander: few pairs tell little."""
    scores = [score(track._replace(sigma_ns_X=sigma), model.wander_ppb, model.starts) for sigma in candidates]
    sigma_ns_X = [sigma for sigma, found in zip(candidates, scores, strict=True) if found >= max(scores) - DOUBT][-1]
    noisy = track._replace(sigma_ns_X=sigma_ns_X)
    scores = [score(noisy, wander, model.starts) for wander in WANDER_PPB]
    wander_ppb = max(w for w, found in zip(WANDER_PPB, scores, strict=True) if found >= max(scores) - DOUBT)
    return Model(sigma_ns_X, wander_ppb, model.starts)


def _exchange_sigmas(exchanges: Exchanges, level_ns_X: np.ndarray) -> list[np.ndarray]:
    """Standard errors that the offsets may have, by what each round trip took longer than its server's shortest."""
    shortest_ns_S = np.full(len(exchanges.servers), np.inf)
    np.minimum.at(shortest_ns_S, exchanges.server_X, exchanges.rtt_ns_X)
    longer_ns_X = exchanges.rtt_ns_X - shortest_ns_S[exchanges.server_X]
    typical_ns = 1e3 + _typical_noise_ns(level_ns_X, exchanges.server_X) + 0.02 * float(shortest_ns_S.min())
    return [np.hypot(quiet * typical_ns, queue * longer_ns_X) for queue in QUEUE_SHARES for quiet in QUIET_SHARES]


def _typical_noise_ns(level_ns_X: np.ndarray, server_X: np.ndarray) -> float:
    """Typical distance of a measurement from the line between its neighbours of the same server."""
    apart = [
        np.abs(level[1:-1] - (level[:-2] + level[2:]) / 2)
        for server in np.unique(server_X)
        for level in [level_ns_X[server_X == server]]
    ]
    apart_ns = np.concatenate(apart) if apart else np.empty(0)
    return 1.2 * float(np.median(apart_ns)) if len(apart_ns) else 0.0


def _less_of_the_awry(track: Track, model: Model) -> Track:
    """Give less weight to measurements that are far from the drift through all of them."""
    track = track._replace(sigma_ns_X=model.sigma_ns_X)
    for _ in range(ROUNDS):
        miss_ns_X = np.abs(track.level_ns_X - track.smoothed(model.wander_ppb, model.starts).level_K)
        excess_X = np.maximum(miss_ns_X / (AWRY_SIGMAS * model.sigma_ns_X), 1.0)
        track = track._replace(sigma_ns_X=model.sigma_ns_X * excess_X**2)
    return track


def _path_difference_ns(exchanges: Exchanges, residual_ns_X: np.ndarray, sigma_ns_X: np.ndarray) -> np.ndarray:
    """How far each server lies off the mean of the servers: ways there and back differ, their mean is the best guess.

    The difference is at most half the shortest round trip, so near servers count more.
    """
    asked = np.unique(exchanges.server_X)
    path_ns_S, weight_S = np.zeros((2, len(exchanges.servers)))
    for server in asked:
        of_server_X = exchanges.server_X == server
        weight_X = sigma_ns_X[of_server_X] ** -2.0
        path_ns_S[server] = np.average(residual_ns_X[of_server_X], weights=weight_X)
        weight_S[server] = (1e3 + exchanges.rtt_ns_X[of_server_X].min()) ** -2.0
    path_ns_S[asked] -= np.average(path_ns_S[asked], weights=weight_S[asked])
    return path_ns_S


def _path_sigma_ns(exchanges: Exchanges, path_ns_S: np.ndarray) -> float:
    """Standard error of the mean of the servers, by how far their paths are apart.

    Shares of the bound (half the shortest round trip) are compared, so that near and far servers tell of each other.
    """
    asked = np.unique(exchanges.server_X)
    bound_ns_S = np.array([1e3 + exchanges.rtt_ns_X[exchanges.server_X == server].min() / 2 for server in asked])
    square = (path_ns_S[asked] / bound_ns_S) ** 2
    share = np.sqrt((PATH_SHARE**2 + square.sum()) / len(asked))
    return float(share * np.sqrt(1.0 / (bound_ns_S**-2.0).sum()))


def _outvoted(exchanges: Exchanges, is_honest_X: np.ndarray) -> tuple[str, ...]:
    """Names of the servers that lied for a good part of the time."""
    counts = [(name, exchanges.server_X == i) for i, name in enumerate(exchanges.servers)]
    return tuple(name for name, of_server_X in counts if of_server_X.any() and (~is_honest_X[of_server_X]).mean() > 0.1)


def _placed(
    track: Track, model: Model, line: Line, rows: Sequence[RowStream], extra_sigma_ns: float
) -> tuple[list[Span], tuple[Segment, ...]]:
    """When the clock was set, as far as rows and exchanges tell, and the segments in between."""
    since_ns_X = np.rint(track.since_s_X * 1e9).astype(np.int64)
    spans = [
        Span(line.utc_ns + int(since_ns_X[first - 1]), line.utc_ns + int(since_ns_X[last]))
        for first, last in plausible_starts(track, model.wander_ppb, model.starts)
    ]
    segments = _segments(track, model.wander_ppb, line, spans, extra_sigma_ns)
    if not spans or not rows:
        return spans, segments
    placed = [
        _together([place(stream, old, new, span) for stream in rows], span)
        for span, (old, new) in zip(spans, pairwise(segments), strict=True)
    ]
    known = [one for found in placed for one in found.between]
    spans = [span for found in placed for span in found.spans]
    return spans, _segments(_with_known(track, line, known), model.wander_ppb, line, spans, extra_sigma_ns)


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


def _segments(
    track: Track, wander_ppb: float, line: Line, spans: list[Span], extra_sigma_ns: float
) -> tuple[Segment, ...]:
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
    knots = Knots(
        utc_ns_K - offset_ns_K,
        offset_ns_K,
        np.hypot(drift.level_sigma_K, extra_sigma_ns),
        drift.slope_K + line.drift_ppb,
        drift.slope_sigma_K,
        ~np.isnan(level_ns_K),
    )
    return tuple(
        _segment(Knots(*(values[first:stop] for values in knots)))
        for first, stop in pairwise([0, *starts, len(since_s_K)])
    )


def _segment(knots: Knots) -> Segment:
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
