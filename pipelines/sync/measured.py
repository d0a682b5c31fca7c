"""What each clock was compared with, and what its map leaves of that.

Shape suffix: X = measurements of one clock, oldest first.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pipelines.clocks.clock_map import ClockMap
from pipelines.clocks.exchanges import exchanges_of
from pipelines.clocks.fit import PAIR_SIGMAS
from pipelines.ingest.reader import Recording

SIGMAS = 2.0
"""A map is believed to be true within so many standard errors."""


class Measured(NamedTuple):
    """Offsets of one clock that were measured, by exchanges with servers or by a receiver."""

    utc_ns_X: np.ndarray
    offset_ns_X: np.ndarray
    """What had to be added to the clock according to the server or the receiver."""

    reach_ns_X: np.ndarray
    """How far the truth may be from that: half the round trip, or `PAIR_SIGMAS` of a receiver."""

    residual_ns_X: np.ndarray
    """Measured less mapped."""

    is_believed_X: np.ndarray
    """False for all that an outvoted server said, and for what no map within its uncertainty can reconcile."""

    server_X: np.ndarray
    """Position in `servers`."""

    servers: tuple[str, ...]


def measured(recording: Recording, maps: Mapping[str, ClockMap]) -> dict[str, Measured]:
    """Return what each map was fitted to; nothing for one that rests on no single measurements."""
    found = {clock_id: _measured(recording, clock) for clock_id, clock in maps.items()}
    return {clock_id: own for clock_id, own in found.items() if own is not None}


def _measured(recording: Recording, clock: ClockMap) -> Measured | None:
    if clock.method == "exchanges" and recording.exchanges is not None:
        found = exchanges_of(recording.exchanges, recording.clocks[clock.clock_id])
        own = found.dev_ns_X, found.offset_ns_X, found.rtt_ns_X / 2.0, found.server_X
        return _compared(clock, *own, servers=found.servers)
    if clock.method == "pairs" and recording.time_pairs is not None:
        pairs = recording.time_pairs.sort("t_utc_ns")
        dev_ns_X, utc_ns_X = pairs["t_dev_ns"].to_numpy(), pairs["t_utc_ns"].to_numpy()
        reach_ns_X = PAIR_SIGMAS * pairs["sigma_ns"].to_numpy()
        own = dev_ns_X, utc_ns_X - dev_ns_X, reach_ns_X, np.zeros(len(dev_ns_X), dtype=np.int64)
        return _compared(clock, *own, servers=("GNSS",))
    return None


def _compared(
    clock: ClockMap,
    dev_ns_X: np.ndarray,
    offset_ns_X: np.ndarray,
    reach_ns_X: np.ndarray,
    server_X: np.ndarray,
    *,
    servers: tuple[str, ...],
) -> Measured:
    utc_ns_X = dev_ns_X + offset_ns_X
    residual_ns_X, sigma_ns_X = np.zeros(len(dev_ns_X)), np.zeros(len(dev_ns_X))
    segment_X = np.searchsorted(clock.set_ns, utc_ns_X)
    for number, segment in enumerate(clock.segments):
        of_segment_X = segment_X == number
        mapped_ns_X, sigma_ns_X[of_segment_X] = segment.to_utc(dev_ns_X[of_segment_X])
        residual_ns_X[of_segment_X] = utc_ns_X[of_segment_X] - mapped_ns_X
    lies_S = np.array([server in clock.residuals.servers_rejected for server in servers], dtype=bool)
    return Measured(
        utc_ns_X=utc_ns_X,
        offset_ns_X=offset_ns_X,
        reach_ns_X=reach_ns_X,
        residual_ns_X=residual_ns_X,
        is_believed_X=~lies_S[server_X] & (np.abs(residual_ns_X) <= reach_ns_X + SIGMAS * sigma_ns_X),
        server_X=server_X,
        servers=servers,
    )
