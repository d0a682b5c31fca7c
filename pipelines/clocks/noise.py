"""How noisy the measurements of a clock are, how much its frequency wanders, and when it was set: chosen together.

Of a few settings the one is taken under which the measurements are most likely, for every clock anew. A LAN clock on a
train and a server in a cupboard behind a congested line differ a thousandfold.

Shape suffix: X = measurements, oldest first.
"""

from typing import NamedTuple

import numpy as np

from pipelines.clocks.exchanges import Exchanges
from pipelines.clocks.steps import MAX_STEPS, find_starts, score
from pipelines.clocks.track import Track

WANDER_PPB = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 2_000.0, 10_000.0)
"""Frequency random walks tried, in ppb per square root of a second."""

QUIET_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Noise of the fastest exchanges tried, as a share of the typical noise between neighbours."""

QUEUE_SHARES = (0.15, 0.3, 0.5)
"""Noise tried for what a round trip took longer than the shortest: 0.29 if both ways queue alike, 0.5 if one does."""

STAMPS_NS = 1e3
"""Noise of the four stamps themselves, at least."""

PATH_NOISE_SHARE = 0.02
"""Noise that even an idle network has, as a share of the shortest round trip."""

NORMAL_SIGMA_PER_MEDIAN = 1.2
"""Standard error by the median distance from the line between two neighbours, for normal noise: 1.48 / sqrt(1.5)."""

DOUBT = 2.0
"""Settings whose log-likelihoods differ by less are about as likely."""

AWRY_SIGMAS = 3.0
"""Measurements further than this from the drift through all of them lose weight."""

AWRY_ROUNDS = 3


class Model(NamedTuple):
    """What noise the measurements of a clock have, how its frequency wanders, and when it was set."""

    sigma_ns_X: np.ndarray
    wander_ppb: float
    starts: list[int]


def most_likely(track: Track, candidates: list[np.ndarray], starts: list[int]) -> Model:
    """Choose noise, wander and steps together, from rough noise and proven steps."""
    rough = track._replace(sigma_ns_X=candidates[len(candidates) // 2])
    starts = starts if len(starts) <= MAX_STEPS else []
    found = [(wander, find_starts(rough, wander, starts)) for wander in WANDER_PPB]
    wander_ppb, starts = max(found, key=lambda setting: score(rough, *setting))
    sigma_ns_X = max(candidates, key=lambda sigma: score(track._replace(sigma_ns_X=sigma), wander_ppb, starts))
    fine = track._replace(sigma_ns_X=sigma_ns_X)
    wander_ppb = max(WANDER_PPB, key=lambda wander: score(fine, wander, starts))
    return Model(sigma_ns_X, wander_ppb, find_starts(fine, wander_ppb, starts))


def cautious(track: Track, candidates: list[np.ndarray], model: Model) -> Model:
    """Of settings that are about as likely as a model, take most noise and wander: few pairs tell little."""
    scores = [score(track._replace(sigma_ns_X=sigma), model.wander_ppb, model.starts) for sigma in candidates]
    sigma_ns_X = [sigma for sigma, found in zip(candidates, scores, strict=True) if found >= max(scores) - DOUBT][-1]
    noisy = track._replace(sigma_ns_X=sigma_ns_X)
    scores = [score(noisy, wander, model.starts) for wander in WANDER_PPB]
    wander_ppb = max(w for w, found in zip(WANDER_PPB, scores, strict=True) if found >= max(scores) - DOUBT)
    return Model(sigma_ns_X, wander_ppb, model.starts)


def exchange_sigmas(exchanges: Exchanges, level_ns_X: np.ndarray) -> list[np.ndarray]:
    """Standard errors that the offsets may have, by what each round trip took longer than its server's shortest."""
    shortest_ns_S = np.full(len(exchanges.servers), np.inf)
    np.minimum.at(shortest_ns_S, exchanges.server_X, exchanges.rtt_ns_X)
    longer_ns_X = exchanges.rtt_ns_X - shortest_ns_S[exchanges.server_X]
    least_ns = STAMPS_NS + PATH_NOISE_SHARE * float(shortest_ns_S.min())
    typical_ns = least_ns + _typical_noise_ns(level_ns_X, exchanges.server_X)
    return [np.hypot(quiet * typical_ns, queue * longer_ns_X) for queue in QUEUE_SHARES for quiet in QUIET_SHARES]


def less_of_the_awry(track: Track, model: Model) -> Track:
    """Give less weight to measurements that are far from the drift through all of them."""
    track = track._replace(sigma_ns_X=model.sigma_ns_X)
    for _ in range(AWRY_ROUNDS):
        miss_ns_X = np.abs(track.level_ns_X - track.smoothed(model.wander_ppb, model.starts).level_K)
        excess_X = np.maximum(miss_ns_X / (AWRY_SIGMAS * model.sigma_ns_X), 1.0)
        track = track._replace(sigma_ns_X=model.sigma_ns_X * excess_X**2)
    return track


def _typical_noise_ns(level_ns_X: np.ndarray, server_X: np.ndarray) -> float:
    """Typical distance of a measurement from the line between its neighbours of the same server."""
    apart = [
        np.abs(level[1:-1] - (level[:-2] + level[2:]) / 2)
        for server in np.unique(server_X)
        for level in [level_ns_X[server_X == server]]
    ]
    apart_ns = np.concatenate(apart) if apart else np.empty(0)
    return NORMAL_SIGMA_PER_MEDIAN * float(np.median(apart_ns)) if len(apart_ns) else 0.0
