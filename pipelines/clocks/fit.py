"""How the map of a clock is fitted to what ties it to UTC.

Shape suffixes: X = measurements, oldest first, S = servers.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipelines.clocks.clock_map import ClockMap, Residuals
from pipelines.clocks.exchanges import Exchanges
from pipelines.clocks.noise import STAMPS_NS, cautious, exchange_sigmas, less_of_the_awry, most_likely
from pipelines.clocks.placing import RowStream
from pipelines.clocks.segments import Line, fit_segments
from pipelines.clocks.servers import consistent, honest, proven_steps, robust_drift, strays
from pipelines.clocks.track import Track

PATH_SHARE = 0.2
"""How much the ways there and back differ, as a share of the most that they can; before servers are compared."""

PATH_ROUNDS = 3
"""Differences between the servers' paths and the drift through all are found in turn; three turns settle both."""

OUTVOTED_SHARE = 0.1
"""A server of which more exchanges than this are not believed is named, though the others may be used."""

PAIR_SHARES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Noise of pairs tried, as a share of what they come with."""

PAIR_SIGMAS = 5
"""Pairs further off than this are wrong."""


def fit_exchanges(clock_id: str, exchanges: Exchanges, rows: Sequence[RowStream] = ()) -> ClockMap:
    """Fit a clock to its NTP exchanges; there must be at least one.

    Where no majority of servers agrees, the one that was asked most is used, and the map is as uncertain as the others
    are away from it.

    Args:
        clock_id: The clock.
        exchanges: Its exchanges with all servers.
        rows: Regular sensors that the clock stamps; they tell when exactly it was set.
    """
    is_honest_X = honest(exchanges)
    believed = exchanges.only(is_honest_X if is_honest_X.any() else _of_most_asked(exchanges))
    is_consistent_X = consistent(believed)
    used = believed.only(is_consistent_X) if is_consistent_X.any() else believed
    line, level_ns_X = _levels(used)
    candidates = exchange_sigmas(used, level_ns_X)
    path_ns_S = np.zeros(len(used.servers))
    starts = proven_steps(used).tolist()
    for _ in range(PATH_ROUNDS):
        track = Track(used.since_s_X, level_ns_X - path_ns_S[used.server_X], candidates[0])
        model = most_likely(track, candidates, starts)
        track, starts = less_of_the_awry(track, model), model.starts
        residual_ns_X = track.level_ns_X - track.smoothed(model.wander_ppb, starts).level_K
        path_ns_S += _path_difference_ns(used, residual_ns_X, track.sigma_ns_X)
    segments, steps = fit_segments(track, model, line, rows)
    best_X = used.rtt_ns_X <= np.median(used.rtt_ns_X)
    fitted = ClockMap(
        clock_id=clock_id,
        method="exchanges",
        segments=segments,
        steps=steps,
        residuals=Residuals(
            num_exchanges=len(used.dev_ns_X),
            num_rejected=exchanges.num_unusable + len(exchanges.dev_ns_X) - len(used.dev_ns_X),
            servers_rejected=_outvoted(exchanges, is_honest_X),
            p99_ns=float(np.percentile(np.abs(residual_ns_X[best_X]), 99)),
            floor_ns=float(used.rtt_ns_X.min()) / 2,
        ),
    )
    quarrel_ns = 0.0 if is_honest_X.any() else _furthest_ns(fitted, exchanges)
    return _widened(fitted, float(np.hypot(_path_sigma_ns(used, path_ns_S), quarrel_ns)))


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
    model = cautious(track, candidates, most_likely(track, candidates, proven_steps(used).tolist()))
    track = less_of_the_awry(track, model)
    residual_ns_X = level_ns_X - track.smoothed(model.wander_ppb, model.starts).level_K
    segments, steps = fit_segments(track, model, line, rows)
    best_X = sigma_ns_X <= np.median(sigma_ns_X)
    return ClockMap(
        clock_id=clock_id,
        method="pairs",
        segments=segments,
        steps=steps,
        residuals=Residuals(
            num_exchanges=len(used.dev_ns_X),
            num_rejected=len(pairs.dev_ns_X) - len(used.dev_ns_X),
            p99_ns=float(np.percentile(np.abs(residual_ns_X[best_X]), 99)),
            floor_ns=float(sigma_ns_X.min()),
        ),
    )


def _of_most_asked(exchanges: Exchanges) -> np.ndarray:
    """The exchanges of the server that has most."""
    return np.asarray(exchanges.server_X == np.argmax(np.bincount(exchanges.server_X)))


def _furthest_ns(fitted: ClockMap, exchanges: Exchanges) -> float:
    """How far the server that disagrees most is from a map, for nearly all of its exchanges."""
    miss_ns_X = np.abs(exchanges.utc_ns_X - fitted.to_utc(exchanges.dev_ns_X)[0])
    return max(float(np.percentile(miss_ns_X[exchanges.server_X == s], 90)) for s in np.unique(exchanges.server_X))


def _widened(fitted: ClockMap, more_sigma_ns: float) -> ClockMap:
    """The map with an uncertainty added that does not depend on time."""
    segments = tuple(
        replace(segment, sigma_ns_K=np.hypot(segment.sigma_ns_K, more_sigma_ns)) for segment in fitted.segments
    )
    return replace(fitted, segments=segments)


def _levels(exchanges: Exchanges) -> tuple[Line, np.ndarray]:
    """A line through the offsets and what they are relative to it, in nanoseconds."""
    line = Line(int(exchanges.utc_ns_X[0]), int(exchanges.offset_ns_X[0]), robust_drift(exchanges) * 1e9)
    return line, (exchanges.offset_ns_X - line.offset_ns) - line.drift_ppb * exchanges.since_s_X


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
        weight_S[server] = (STAMPS_NS + exchanges.rtt_ns_X[of_server_X].min()) ** -2.0
    path_ns_S[asked] -= np.average(path_ns_S[asked], weights=weight_S[asked])
    return path_ns_S


def _path_sigma_ns(exchanges: Exchanges, path_ns_S: np.ndarray) -> float:
    """Standard error of the mean of the servers, by how far their paths are apart.

    Shares of the bound (half the shortest round trip) are compared, so that near and far servers tell of each other.
    """
    asked = np.unique(exchanges.server_X)
    bound_ns_S = np.array([STAMPS_NS + exchanges.rtt_ns_X[exchanges.server_X == server].min() / 2 for server in asked])
    square = (path_ns_S[asked] / bound_ns_S) ** 2
    share = np.sqrt((PATH_SHARE**2 + square.sum()) / len(asked))
    return float(share * np.sqrt(1.0 / (bound_ns_S**-2.0).sum()))


def _outvoted(exchanges: Exchanges, is_honest_X: np.ndarray) -> tuple[str, ...]:
    """Names of the servers that lied for a good part of the time."""
    counts = [(name, exchanges.server_X == i) for i, name in enumerate(exchanges.servers)]
    return tuple(
        name
        for name, of_server_X in counts
        if of_server_X.any() and (~is_honest_X[of_server_X]).mean() > OUTVOTED_SHARE
    )
