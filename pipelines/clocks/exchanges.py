"""What the four timestamps of an NTP exchange say about a device clock.

The device sends a request at `t1`, the server receives it at `t2` and answers at `t3`, the device receives the answer
at `t4`. Half of `(t2 - t1) + (t3 - t4)` estimates what has to be added to the device clock; with an honest server the
true value lies between `t3 - t4` and `t2 - t1`, whatever the network did. Both facts hold for each exchange alone,
before any model of the clock.

Exchanges are ordered by the server's time, whatever the order of the log: where a clock was set back, its own time
cannot order them.

Shape suffix: X = exchanges of one clock, oldest first.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.clocks.stamps import NO_STAMP, TICKS_MODULUS_NS, follow
from pipelines.ingest.ntp_logs import UNSYNCHRONISED_STRATUM
from pipelines.ingest.reader import ClockSpec

RTT_MAX_NS = 10_000_000_000
"""An answer that takes longer than this belongs to another request."""

STAMP_COLUMNS = ("t1_dev", "t2_srv", "t3_srv", "t4_dev")


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
    num_unusable: int = 0
    """Exchanges left out because the server said that it is not synchronised, or because they make no sense."""

    @property
    def utc_ns_X(self) -> np.ndarray:
        """The server's time half-way: elapsed time is right by it even across a step of the device clock."""
        return np.asarray(self.dev_ns_X + self.offset_ns_X)

    @property
    def since_s_X(self) -> np.ndarray:
        """True time since the first exchange."""
        return np.asarray((self.utc_ns_X - self.utc_ns_X[:1]) * 1e-9)

    def only(self, keep_X: np.ndarray) -> "Exchanges":
        """Return the exchanges that `keep_X` selects."""
        return Exchanges(
            dev_ns_X=self.dev_ns_X[keep_X],
            offset_ns_X=self.offset_ns_X[keep_X],
            rtt_ns_X=self.rtt_ns_X[keep_X],
            server_X=self.server_X[keep_X],
            servers=self.servers,
            num_unusable=self.num_unusable,
        )


def exchanges_of(log: pl.DataFrame, clock: ClockSpec) -> Exchanges:
    """Select the exchanges of one clock from `ntp_log.csv` and do the arithmetic of the four timestamps, in int64.

    An exchange that was logged twice counts once. A tick counter counts on from its first exchange through its
    overflows; the server's time tells how many there were.
    """
    logged = log.filter(pl.col("clock_id") == clock.clock_id)
    rows = logged.drop_nulls([*STAMP_COLUMNS, "stratum"]).unique(["server_id", *STAMP_COLUMNS], maintain_order=True)
    rows = rows.filter(pl.col("stratum") < UNSYNCHRONISED_STRATUM).sort("t2_srv", maintain_order=True)
    t1_X, t2_X, t3_X, t4_X = (rows[name].cast(pl.Int64).to_numpy() for name in STAMP_COLUMNS)
    is_usable_X = np.ones(len(t1_X), dtype=bool)
    if clock.ntp_unit == "us_u32" and len(t1_X):
        since_ns_X = t2_X - t2_X[0]
        behind_ns_X = t1_X * 1_000 - since_ns_X
        behind_ns_X, is_far_X = follow(behind_ns_X, behind_ns_X, TICKS_MODULUS_NS, TICKS_MODULUS_NS // 4, NO_STAMP)
        t1_X, t4_X = since_ns_X + behind_ns_X, t4_X * 1_000
        t4_X = t1_X + (t4_X - t1_X) % TICKS_MODULUS_NS
        is_usable_X &= ~is_far_X
    rtt_ns_X = (t4_X - t1_X) - (t3_X - t2_X)
    is_usable_X &= (rtt_ns_X >= 0) & (rtt_ns_X < RTT_MAX_NS) & (t3_X >= t2_X)
    names, server_X = np.unique(rows["server_id"].fill_null("").to_numpy().astype(str), return_inverse=True)
    return Exchanges(
        dev_ns_X=t1_X + (t4_X - t1_X) // 2,
        offset_ns_X=((t2_X - t1_X) + (t3_X - t4_X)) // 2,
        rtt_ns_X=rtt_ns_X,
        server_X=server_X,
        servers=tuple(str(name) for name in names),
        num_unusable=logged.height - int(is_usable_X.sum()),
    ).only(is_usable_X)
