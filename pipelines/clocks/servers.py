"""Which servers, and which of their exchanges, to believe.

With an honest server the offset of the device lies within half the round trip of what an exchange shows, so two honest
exchanges asked at about the same time must overlap. A clock that is set breaks that once, for all servers; a server
that lies breaks it with every other server for as long as it lies.

Shape suffixes: X = exchanges of one clock, oldest first, P = pairs of exchanges.
"""

import numpy as np
from scipy.ndimage import median_filter

from pipelines.clocks.exchanges import Exchanges

AGREE_NS = 1e6
"""Intervals that miss each other by less than this still agree."""

AGREE_PPM = 10.0
"""What a clock may wander between two exchanges, beside its drift and what consecutive exchanges show."""

REACH_PERCENTILE = 70
"""Of a server that is asked two dozen times, four steps of the clock and the beginning of a lie spoil a fifth."""

LIAR_SHARE = 0.2
"""A server of which more exchanges than this are outvoted is not believed at all."""

LIAR_RUN = 4
"""Nor is one of which so many in a row are: a lie that drifts hides as soon as the network's bounds allow."""

AROUND = 5
"""So many pairs around an exchange decide whether two servers agree there; a step of the clock spoils one or two."""

NEAR_POLLS = 8
"""Servers have a say about each other's exchanges within so many polls."""

SLOPE_LAGS = (1, 2, 3)
DRIFT_POLLS = 24
"""So many polls around tell the drift: a handful of steps spoil less than half of them."""

NEIGHBOURS = 3
"""An exchange that agrees with none of so many before and after it is wrong by itself."""

STRAY_WINDOW = 9
"""Of so many measurements around one, most say where the clock is."""

STRAY_TIMES = 20.0
"""A measurement so many times as far from there as is usual is a stray."""


def honest(exchanges: Exchanges) -> np.ndarray:
    """Find the exchanges of servers that most of the servers asked at about the same time agree with.

    One server alone is believed. Of two that disagree the one is believed that did not jump when they began to; if
    neither or both did, the one that was believed in an earlier quarrel, or nobody. A server that is not believed time
    and again is not believed at all: where the network is slow, a lie can hide.

    Returns:
        ``is_honest_X``.
    """
    level_ns_X = detrended(exchanges)
    reach_ppb = _reach_ppb(exchanges, level_ns_X)
    asked = np.unique(exchanges.server_X)
    num_agree_X, num_asked_X = np.ones((2, len(level_ns_X)), dtype=np.int64)
    for server in asked:
        for other in asked[asked != server]:
            of_server, agrees, is_near = _agreement(exchanges, level_ns_X, reach_ppb, server, other)
            num_agree_X[of_server] += agrees & is_near
            num_asked_X[of_server] += is_near
    is_honest_X = np.asarray(2 * num_agree_X > num_asked_X)
    is_honest_X |= _steady(exchanges, level_ns_X, reach_ppb, is_quarrel_X=(num_asked_X == 2) & (num_agree_X == 1))
    is_liar_S = np.array([_lies(~is_honest_X[exchanges.server_X == server]) for server in asked])
    if not is_liar_S.all():
        is_honest_X &= ~np.isin(exchanges.server_X, asked[is_liar_S])
    return is_honest_X


def _lies(is_outvoted_X: np.ndarray) -> bool:
    """Whether a server whose exchanges are outvoted here and there, or for a while, is to be believed in none."""
    longest_run = int(np.diff(np.flatnonzero(np.r_[True, ~is_outvoted_X, True])).max()) - 1
    return bool(is_outvoted_X.mean() > LIAR_SHARE or longest_run >= LIAR_RUN)


def consistent(exchanges: Exchanges) -> np.ndarray:
    """Find the exchanges that agree with at least one of their neighbours; the others are wrong by themselves."""
    level_ns_X = detrended(exchanges)
    reach_ppb = _reach_ppb(exchanges, level_ns_X)
    n = len(level_ns_X)
    agrees_X = np.full(n, n == 1)
    for lag in range(1, min(NEIGHBOURS, n - 1) + 1):
        first = np.arange(n - lag)
        overlaps_P = _overlap(exchanges, level_ns_X, reach_ppb, first, first + lag)
        agrees_X[:-lag] |= overlaps_P
        agrees_X[lag:] |= overlaps_P
    return agrees_X


def strays(exchanges: Exchanges) -> np.ndarray:
    """Find measurements that leave the offset of most of their neighbours far behind, and come back.

    Far is measured by what is usual for this clock, so that it finds what a clock could have done, but this one never
    does. A clock that was set stays where it was put, and is not found.
    """
    if len(exchanges.dev_ns_X) < STRAY_WINDOW:
        return np.zeros(len(exchanges.dev_ns_X), dtype=bool)
    level_ns_X = detrended(exchanges)
    off_ns_X = np.abs(level_ns_X - median_filter(level_ns_X, size=STRAY_WINDOW, mode="nearest"))
    return np.asarray(off_ns_X > STRAY_TIMES * float(np.median(off_ns_X)) + exchanges.rtt_ns_X)


def proven_steps(exchanges: Exchanges) -> np.ndarray:
    """Positions of exchanges that no drift can reconcile with the one before: the clock was set in between."""
    level_ns_X = detrended(exchanges)
    first = np.arange(len(level_ns_X) - 1)
    overlaps_P = _overlap(exchanges, level_ns_X, _reach_ppb(exchanges, level_ns_X), first, first + 1)
    return 1 + np.flatnonzero(~overlaps_P)


def detrended(exchanges: Exchanges) -> np.ndarray:
    """Offsets relative to the first and without their drift, small enough for float64 nanoseconds.

    In a long log the drift is that of the time around: a clock in a cupboard may be 100 ppm faster a week later.
    """
    if not len(exchanges.dev_ns_X):
        return np.empty(0)
    offset_ns_X = exchanges.offset_ns_X - exchanges.offset_ns_X[0]
    at_s_P, slope_P, _ = _slopes(exchanges)
    window = len(SLOPE_LAGS) * DRIFT_POLLS * len(np.unique(exchanges.server_X))
    if len(slope_P) <= window:
        return np.asarray(offset_ns_X - robust_drift(exchanges) * 1e9 * exchanges.since_s_X)
    order = np.argsort(at_s_P, kind="stable")
    local_P = median_filter(slope_P[order], size=window, mode="nearest")
    drift_X = np.interp(exchanges.since_s_X, at_s_P[order], local_P)
    gained_ns_X = np.cumsum((drift_X[1:] + drift_X[:-1]) / 2 * 1e9 * np.diff(exchanges.since_s_X))
    return np.asarray(offset_ns_X - np.concatenate([[0.0], gained_ns_X]))


def robust_drift(exchanges: Exchanges) -> float:
    """Drift in ns/ns: the median slope between exchanges of one server that follow one another.

    A constant lie does not change it, and a step or the moment when a lie begins spoils only a few pairs.
    """
    _, slope_P, weight_P = _slopes(exchanges)
    if not len(slope_P):
        return 0.0
    order = np.argsort(slope_P)
    passed_P = np.cumsum(weight_P[order])
    return float(slope_P[order][np.searchsorted(passed_P, passed_P[-1] / 2)])


def _slopes(exchanges: Exchanges) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slopes between neighbouring exchanges of one server: when, in seconds, how steep, in ns/ns, and how certain."""
    firsts, seconds = _same_server(exchanges, SLOPE_LAGS)
    apart_ns_P = exchanges.utc_ns_X[seconds] - exchanges.utc_ns_X[firsts]
    firsts, seconds, apart_ns_P = firsts[apart_ns_P > 0], seconds[apart_ns_P > 0], apart_ns_P[apart_ns_P > 0]
    slope_P = (exchanges.offset_ns_X[seconds] - exchanges.offset_ns_X[firsts]) / apart_ns_P
    weight_P = apart_ns_P / (exchanges.rtt_ns_X[firsts] + exchanges.rtt_ns_X[seconds] + 1.0)
    return (exchanges.since_s_X[firsts] + exchanges.since_s_X[seconds]) / 2, slope_P, weight_P


def _same_server(exchanges: Exchanges, lags: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of exchanges of one server that are `lags` of its exchanges apart."""
    pairs = [
        (of_server[:-lag], of_server[lag:])
        for server in np.unique(exchanges.server_X)
        for of_server in [np.flatnonzero(exchanges.server_X == server)]
        for lag in lags
    ]
    firsts, seconds = zip(*pairs, strict=True) if pairs else ((np.empty(0, dtype=np.int64),),) * 2
    return np.concatenate(firsts), np.concatenate(seconds)


def _reach_ppb(exchanges: Exchanges, level_ns_X: np.ndarray) -> float:
    """How fast intervals of one server drift apart, beside the mean drift, for most of its exchanges.

    It is the wander of the clock, and what servers are off whose round trip does not bound it (a receiver next door).
    """
    rates = []
    for server in np.unique(exchanges.server_X):
        of_server = np.flatnonzero(exchanges.server_X == server)
        if len(of_server) > NEIGHBOURS:
            miss_ns, apart_s = _miss(exchanges, level_ns_X, of_server[:-1], of_server[1:])
            rates.append(np.percentile(miss_ns / np.maximum(apart_s, 1.0), REACH_PERCENTILE))
    return 1e3 * AGREE_PPM + (2.0 * float(np.median(rates)) if rates else 0.0)


def _miss(
    exchanges: Exchanges, level_ns_X: np.ndarray, firsts: np.ndarray, seconds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By how much the intervals of two exchanges miss each other (0: not at all), and how far apart they are, in s."""
    reach_ns_P = (exchanges.rtt_ns_X[firsts] + exchanges.rtt_ns_X[seconds]) / 2 + AGREE_NS
    miss_ns_P = np.maximum(np.abs(level_ns_X[firsts] - level_ns_X[seconds]) - reach_ns_P, 0.0)
    return miss_ns_P, np.abs(exchanges.utc_ns_X[firsts] - exchanges.utc_ns_X[seconds]) * 1e-9


def _overlap(
    exchanges: Exchanges, level_ns_X: np.ndarray, reach_ppb: float, firsts: np.ndarray, seconds: np.ndarray
) -> np.ndarray:
    miss_ns_P, apart_s_P = _miss(exchanges, level_ns_X, firsts, seconds)
    return np.asarray(miss_ns_P <= reach_ppb * apart_s_P)


def _agreement(
    exchanges: Exchanges, level_ns_X: np.ndarray, reach_ppb: float, server: int, other: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exchanges of `server`, whether `other` agrees there, and whether it was asked at about the same time."""
    both = np.flatnonzero((exchanges.server_X == server) | (exchanges.server_X == other))
    is_pair = exchanges.server_X[both[1:]] != exchanges.server_X[both[:-1]]
    firsts, seconds = both[:-1][is_pair], both[1:][is_pair]
    num_overlaps = np.concatenate([[0], np.cumsum(_overlap(exchanges, level_ns_X, reach_ppb, firsts, seconds))])
    of_server = np.flatnonzero(exchanges.server_X == server)
    pair = np.searchsorted(seconds, of_server)
    low, high = np.maximum(pair - AROUND // 2, 0), np.minimum(pair + AROUND // 2 + 1, len(firsts))
    agrees = 2 * (num_overlaps[high] - num_overlaps[low]) > high - low
    at_ns = exchanges.utc_ns_X
    of_other = np.flatnonzero(exchanges.server_X == other)
    after = np.searchsorted(of_other, of_server)
    gap_ns = np.minimum(
        np.abs(at_ns[of_other[np.minimum(after, len(of_other) - 1)]] - at_ns[of_server]),
        np.abs(at_ns[of_other[np.maximum(after - 1, 0)]] - at_ns[of_server]),
    )
    poll_ns = max(np.ptp(at_ns[which]) / len(which) for which in (of_server, of_other))
    return of_server, agrees, gap_ns <= NEAR_POLLS * poll_ns


def _steady(exchanges: Exchanges, level_ns_X: np.ndarray, reach_ppb: float, *, is_quarrel_X: np.ndarray) -> np.ndarray:
    """Of each stretch in which two servers disagree, the exchanges of the one that did not jump where it began.

    Where that does not tell, of the one that was believed in the last such stretch that told.
    """
    is_steady_X = np.zeros(len(level_ns_X), dtype=bool)
    edges = np.flatnonzero(np.diff(is_quarrel_X.astype(np.int8), prepend=0, append=0))
    steady = np.empty(0, dtype=np.int64)
    for first, stop in edges.reshape(-1, 2).tolist():
        in_stretch = np.arange(first, stop)
        servers = np.unique(exchanges.server_X[in_stretch])
        if len(servers) != 2:
            continue
        for lag in range(1, NEIGHBOURS + 1):
            found = [s for s in servers if _is_steady(exchanges, level_ns_X, reach_ppb, first, int(s), lag)]
            if len(found) == 1:
                steady = np.array(found)
                break
        is_steady_X[in_stretch[np.isin(exchanges.server_X[in_stretch], steady)]] = True
    return is_steady_X


def _is_steady(
    exchanges: Exchanges, level_ns_X: np.ndarray, reach_ppb: float, first: int, server: int, lag: int
) -> bool:
    """Whether the exchange of a server that is `lag` of its own before position `first` agrees with those after it."""
    of_server = np.flatnonzero(exchanges.server_X == server)
    at = int(np.searchsorted(of_server, first))
    after = of_server[at : at + NEIGHBOURS]
    if at < lag or not len(after):
        return False
    return bool(_overlap(exchanges, level_ns_X, reach_ppb, np.full(len(after), of_server[at - lag]), after).all())
