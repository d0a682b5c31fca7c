"""Clocks whose error is known, what servers say of them over bad networks, and rows that they stamp."""

import numpy as np
import polars as pl

from pipelines.clocks.exchanges import exchanges_of
from pipelines.clocks.fit import fit_exchanges
from pipelines.clocks.placing import RowStream
from pipelines.ingest.reader import ClockSpec

START_NS = 1_767_600_000_000_000_000
SECOND = 10**9
MINUTES = 30
LINKS = {"lan": (0.15, 0.08, 16.0), "wifi": (1.2, 0.8, 32.0), "cellular": (22.0, 6.0, 32.0)}
"""One way at best and mean queueing, in milliseconds, and seconds between polls."""


class Device:
    """A clock with a known error: device = UTC + offset + drift * time + wander, and jumps."""

    def __init__(self, *, offset_s=1.5, drift_ppm=60.0, jumps=(), wander_ppb=0.0, seed=0, minutes=MINUTES):
        self.offset_ns, self.drift, self.jumps = round(offset_s * 1e9), drift_ppm * 1e-6, jumps
        self.knot_s = np.arange(-600.0, minutes * 60 + 600.0, 5.0)
        frequency_ppb = np.random.default_rng(seed).normal(0.0, wander_ppb * np.sqrt(5.0), len(self.knot_s)).cumsum()
        self.wander_ns = (frequency_ppb * 5.0).cumsum()

    def read(self, utc_ns):
        since_ns = np.asarray(utc_ns) - START_NS
        drift_ns = self.drift * since_ns + np.interp(since_ns * 1e-9, self.knot_s, self.wander_ns)
        error_ns = self.offset_ns + np.rint(drift_ns).astype(np.int64)
        for at_s, jump_s in self.jumps:
            error_ns = error_ns + np.where(since_ns >= at_s * SECOND, round(jump_s * 1e9), 0)
        return np.asarray(utc_ns) + error_ns


def ask(
    device,
    *,
    link="lan",
    lies_s=(0.0, 0.0, 0.0),
    lies_from_s=0.0,
    lie_drift=0.0,
    seed=0,
    minutes=MINUTES,
    delay_ms=None,
    congested_s=(0.0, 0.0),
):
    """Log of NTP exchanges with one server for each entry of `lies_s`; a lie may grow by `lie_drift` a second.

    Within `congested_s`, queues are ten times as long.
    """
    random = np.random.default_rng(seed)
    base_ms, queue_ms, poll_s = LINKS[link] if delay_ms is None else (delay_ms, delay_ms, LINKS[link][2])
    logs = []
    for server, lie_s in enumerate(lies_s):
        asked_s = np.arange(0, minutes * 60, poll_s)
        asked_s = asked_s + random.uniform(0.0, poll_s, len(asked_s))
        sent_ns = START_NS + (asked_s * SECOND).astype(np.int64)
        is_congested = (asked_s >= congested_s[0]) & (asked_s < congested_s[1])
        queues_ms = np.where(is_congested, 10.0 * queue_ms, queue_ms)
        there_ns, back_ns = (((base_ms + random.exponential(queues_ms)) * 1e6).astype(np.int64) for _ in "ab")
        grown_s = lie_s + lie_drift * np.maximum(asked_s - lies_from_s, 0.0) * (lie_s != 0.0)
        lie_ns = np.where(asked_s >= lies_from_s, np.rint(grown_s * 1e9), 0).astype(np.int64)
        logs.append(
            pl.DataFrame(
                {
                    "clock_id": "c",
                    "server_id": f"ntp-{server}",
                    "t1_dev": device.read(sent_ns),
                    "t2_srv": sent_ns + there_ns + lie_ns,
                    "t3_srv": sent_ns + there_ns + lie_ns + 20_000,
                    "t4_dev": device.read(sent_ns + there_ns + 20_000 + back_ns),
                    "stratum": 2,
                    "root_dispersion_ms": 1.0,
                    "sent": sent_ns,
                }
            )
        )
    return pl.concat(logs).sort("sent", maintain_order=True).drop("sent")


def fit(log, rows=(), **clock):
    return fit_exchanges("c", exchanges_of(log, ClockSpec(clock_id="c", kind="epoch", ntp=True, **clock)), rows)


def instants(*, rate_hz=10.0, from_s=0.0, to_s=MINUTES * 60.0, gaps_s=()):
    """UTC at which a sensor measures; nothing within `gaps_s`."""
    since_s = np.arange(from_s, to_s, 1 / rate_hz)
    for low_s, high_s in gaps_s:
        since_s = since_s[(since_s < low_s) | (since_s >= high_s)]
    return START_NS + (since_s * SECOND).astype(np.int64)


def rows_of(device, *, rate_hz=10.0, jitter_ms=0.0, seed=0, **where):
    """Rows of a regular sensor, stamped up to a few `jitter_ms` late."""
    utc_ns = instants(rate_hz=rate_hz, **where)
    late_ns = (np.random.default_rng(seed).exponential(1.0, len(utc_ns)) * jitter_ms * 1e6).astype(np.int64)
    return RowStream(device.read(utc_ns) + late_ns, SECOND / rate_hz)


def error_ms(fitted, device, **where):
    """Error of a map at what the device shows at instants, in stored order."""
    utc_ns = instants(**where)
    return (fitted.to_utc(device.read(utc_ns))[0] - utc_ns) * 1e-6
