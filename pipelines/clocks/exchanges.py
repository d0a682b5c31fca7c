"""What the four timestamps of an NTP exchange say about a device clock, and which servers to believe.

The device sends a request at `t1`, the server receives it at `t2` and answers at `t3`, the device receives the answer
at `t4`. Half of `(t2 - t1) + (t3 - t4)` estimates what has to be added to the device clock; with an honest server the
true value lies between `t3 - t4` and `t2 - t1`, whatever the network did. Both facts hold for each exchange alone,
before any model of the clock.

Exchanges stay in the order of the log: where a clock was set back, its own time cannot order them.

Shape suffix: X = exchanges of one clock, oldest first.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.clocks.stamps import NEAR_NS, NO_STAMP, TICKS_MODULUS_NS, follow
from pipelines.ingest.reader import ClockSpec

UNSYNCHRONISED_STRATUM = 16
AGREE_NS = 1_000_000
"""Servers whose intervals miss each other by less than this still agree; covers the drift between their exchanges."""

AGREE_PPM = 200.0
"""Drift that is left after the robust slope was taken out, at most."""

LIAR_SHARE = 0.2
"""A server of which more exchanges than this are outvoted is not believed at all."""

POLLS_NEAR_NS = 1_500 * 10**9
"""Exchanges of a tick counter are less than this apart, so that overflows (71.6 min) can be told."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exchanges:
    """Exchanges of one clock that can be used, oldest first, and how many cannot."""

    dev_ns_X: np.ndarray
    """Device time half-way between request and answer."""

    offset_ns_X: np.ndarray
    """What has to be added to the device time to get the server's."""

    rtt_ns_X: np.ndarray
    """Time that request and answer spent in the network."""

    server_X: np.ndarray
    """Position of the server in `servers`."""

    servers: tuple[str, ...]
    num_unsynchronised: int = 0
    """Exchanges left out because the server said that it is not synchronised, or because they make no sense."""

    def only(self, keep_X: np.ndarray) -> "Exchanges":
        """Return the exchanges that `keep_X` selects."""
        return Exchanges(
            dev_ns_X=self.dev_ns_X[keep_X],
            offset_ns_X=self.offset_ns_X[keep_X],
            rtt_ns_X=self.rtt_ns_X[keep_X],
            server_X=self.server_X[keep_X],
            servers=self.servers,
            num_unsynchronised=self.num_unsynchronised,
        )


def exchanges_of(log: pl.DataFrame, clock: ClockSpec) -> Exchanges:
    """Select the exchanges of one clock from `ntp_log.csv` and do the arithmetic of the four timestamps, in int64."""
    rows = log.filter(pl.col("clock_id") == clock.clock_id).drop_nulls(
        ["t1_dev", "t2_srv", "t3_srv", "t4_dev", "stratum"]
    )
    t1_X, t4_X = rows["t1_dev"].cast(pl.Int64).to_numpy(), rows["t4_dev"].cast(pl.Int64).to_numpy()
    t2_X, t3_X = rows["t2_srv"].cast(pl.Int64).to_numpy(), rows["t3_srv"].cast(pl.Int64).to_numpy()
    if clock.ntp_unit == "us_u32":
        t1_X, is_far_X = follow(t1_X * 1_000, t1_X * 1_000, TICKS_MODULUS_NS, POLLS_NEAR_NS, NO_STAMP)
        t4_X = t1_X + (t4_X * 1_000 - t1_X) % TICKS_MODULUS_NS
    else:
        is_far_X = np.zeros(len(t1_X), dtype=bool)
    rtt_ns_X = (t4_X - t1_X) - (t3_X - t2_X)
    is_usable_X = (
        (rows["stratum"].to_numpy() < UNSYNCHRONISED_STRATUM)
        & (rtt_ns_X >= 0)
        & (rtt_ns_X < NEAR_NS)
        & (t3_X >= t2_X)
        & ~is_far_X
    )
    names, server_X = np.unique(rows["server_id"].to_numpy().astype(str), return_inverse=True)
    exchanges = Exchanges(
        dev_ns_X=t1_X + (t4_X - t1_X) // 2,
        offset_ns_X=((t2_X - t1_X) + (t3_X - t4_X)) // 2,
        rtt_ns_X=rtt_ns_X,
        server_X=server_X,
        servers=tuple(str(name) for name in names),
        num_unsynchronised=int((~is_usable_X).sum()),
    )
    return exchanges.only(_oldest_first(exchanges.dev_ns_X, is_usable_X))


def robust_slope(dev_ns_X: np.ndarray, offset_ns_X: np.ndarray, server_X: np.ndarray) -> float:
    """Drift in ns/ns: the median slope between exchanges of the same server that are a few polls apart.

    A constant lie does not change the slope, and a step or the moment when a lie begins spoils only a few pairs.
    """
    slopes: list[np.ndarray] = []
    for server in np.unique(server_X):
        dev_ns, offset_ns = dev_ns_X[server_X == server], offset_ns_X[server_X == server]
        lag = min(8, len(dev_ns) // 2)
        if lag:
            apart_ns = dev_ns[lag:] - dev_ns[:-lag]
            slopes.append(((offset_ns[lag:] - offset_ns[:-lag]) / np.maximum(apart_ns, 1))[apart_ns > 0])
    return float(np.median(np.concatenate(slopes))) if slopes and sum(map(len, slopes)) else 0.0


def honest(exchanges: Exchanges) -> np.ndarray:
    """Find exchanges whose interval overlaps with those of most servers asked at about the same time.

    Each server's exchange before and after the instant has a say: in between, the clock may have stepped. One server
    alone is believed; of two that disagree neither is. A server that is outvoted time and again is not believed at all:
    where the network is slow, a lie can hide.

    Returns:
        ``is_honest_X``.
    """
    dev_ns_X, server_X = exchanges.dev_ns_X, exchanges.server_X
    asked = np.unique(server_X)
    slope = robust_slope(dev_ns_X, exchanges.offset_ns_X, server_X)
    level_ns_X = detrended(exchanges, slope)
    num_agree_X = np.zeros(len(dev_ns_X), dtype=np.int64)
    for server in asked:
        of_server = np.flatnonzero(server_X == server)
        after_X = np.searchsorted(of_server, np.arange(len(dev_ns_X)))
        agrees_X = np.zeros(len(dev_ns_X), dtype=bool)
        for other_X in (of_server[np.maximum(after_X - 1, 0)], of_server[np.minimum(after_X, len(of_server) - 1)]):
            apart_ns_X = np.abs(dev_ns_X[other_X] - dev_ns_X)
            reach_ns_X = (
                (exchanges.rtt_ns_X[other_X] + exchanges.rtt_ns_X) / 2 + AGREE_NS + AGREE_PPM * 1e-6 * apart_ns_X
            )
            agrees_X |= np.abs(level_ns_X[other_X] - level_ns_X) <= reach_ns_X
        num_agree_X += agrees_X | (server_X == server)
    is_honest_X = np.asarray(2 * num_agree_X > len(asked))
    lies_S = np.array([(~is_honest_X[server_X == server]).mean() for server in asked])
    if (lies_S <= LIAR_SHARE).any():
        is_honest_X &= ~np.isin(server_X, asked[lies_S > LIAR_SHARE])
    return is_honest_X


def detrended(exchanges: Exchanges, slope: float) -> np.ndarray:
    """Offsets relative to the first and without their drift, small enough for float64 nanoseconds."""
    if not len(exchanges.dev_ns_X):
        return np.empty(0)
    since_ns_X = exchanges.dev_ns_X - exchanges.dev_ns_X[0]
    return np.asarray((exchanges.offset_ns_X - exchanges.offset_ns_X[0]) - slope * since_ns_X)


def _oldest_first(dev_ns_X: np.ndarray, is_usable_X: np.ndarray) -> np.ndarray:
    """Positions of the usable exchanges: as logged, or by device time if the log is clearly in another order."""
    usable = np.flatnonzero(is_usable_X)
    if (np.diff(dev_ns_X[usable]) < -NEAR_NS).any():
        usable = usable[np.argsort(dev_ns_X[usable], kind="stable")]
    return usable
