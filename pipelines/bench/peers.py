"""What well-known tools make of the clocks of a recording: pyxdf, and pandas for those who believe every stamp.

Both are given what they have no part for: stamps that are decoded and unwrapped, without the rows whose stamp cannot be
true, and the known latency of each sensor.

Shape suffixes: X = exchanges of one clock, P = rounds of exchanges, T = rows of one sensor in stored order,
G = instants of the grid.
"""

import logging
from collections.abc import Mapping
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
from pyxdf import pyxdf

from pipelines.clocks.exchanges import exchanges_of
from pipelines.clocks.stamps import TICKS_MODULUS_NS, Stamps
from pipelines.ingest.reader import Encoding, Recording, SensorRows

logging.getLogger("pyxdf").setLevel(logging.ERROR)  # it warns of every rate that is not quite the nominal one


def with_pyxdf(recording: Recording, stamps: Mapping[str, Stamps], *, dejitter: bool) -> pl.DataFrame:
    """Put rows in time as `pyxdf.load_xdf` does: `sensor, row, t_utc_ns`.

    Each sensor is a stream of its own, in seconds after its first row. Its clock offsets are those that a recorder of
    the Lab Streaming Layer would have stored: of every round of exchanges, one with each server, the one with the
    shortest way. The streams go through pyxdf's clock synchronisation: resets detected, a Huber line for each stretch.
    Where a clock has no exchanges, the stamps stay as they are; a counter without them is left out.

    Args:
        recording: What was read.
        stamps: Stamps of every sensor.
        dejitter: Whether the streams also go through pyxdf's de-jittering, as they do by default: a straight line
            through the rows of each stretch without a break. A break is a gap of 500 rows; shorter gaps bend the line.
    """
    streams, origin_ns = {}, {}
    for name, sensor in recording.sensors.items():
        if sensor.encoding is not Encoding.TICKS_US_U32 or recording.clocks[sensor.clock_id].ntp:
            streams[name], origin_ns[name] = _stream(recording, sensor, stamps[name])
    pyxdf._clock_sync(streams)
    if dejitter:
        pyxdf._jitter_removal(streams)
    return _rows(
        recording,
        stamps,
        {
            name: origin_ns[name] + np.rint(stream.time_stamps * 1e9).astype(np.int64)
            for name, stream in streams.items()
        },
    )


def as_stamped(recording: Recording, stamps: Mapping[str, Stamps]) -> pl.DataFrame:
    """Take every stamp for UTC: `sensor, row, t_utc_ns`. A counter is taken to start when the manifest's hint says."""
    hint_ns = int(datetime.fromisoformat(recording.meta["time_zero_hint_utc"]).timestamp()) * 10**9
    found = {}
    for name, sensor in recording.sensors.items():
        dev_ns_T = _good_ns(stamps[name])
        is_counter = sensor.encoding is Encoding.TICKS_US_U32 and len(dev_ns_T) > 0
        found[name] = dev_ns_T - dev_ns_T[0] + hint_ns if is_counter else dev_ns_T
    return _rows(recording, stamps, found)


def joined_with_pandas(recording: Recording, rows: pl.DataFrame, t_ns_G: np.ndarray) -> pd.DataFrame:
    """Join the regular sensors onto a grid with `pandas.merge_asof`, the last row of each before each instant."""
    joined = pd.DataFrame({"t_utc_ns": t_ns_G})
    for name, sensor in recording.sensors.items():
        if sensor.nominal_rate_hz is None:
            continue
        own = rows.filter(pl.col("sensor") == name).drop_nulls("t_utc_ns").select("row", "t_utc_ns")
        channels = [channel.name for channel in sensor.channels]
        table = own.join(sensor.rows.select("row", *channels), on="row").drop("row")
        table = table.rename({channel: f"{name}_{channel}" for channel in channels}).sort("t_utc_ns")
        joined = pd.merge_asof(joined, table.to_pandas(), on="t_utc_ns", tolerance=3_000_000_000)
    return joined


def _stream(recording: Recording, sensor: SensorRows, stamps: Stamps) -> tuple[pyxdf.StreamData, int]:
    """Return one stream, and what has to be added to its stamps, in nanoseconds, to get UTC."""
    rate_hz = sensor.nominal_rate_hz or 0.0
    stream = pyxdf.StreamData(
        {"info": {"channel_count": ["1"], "channel_format": ["double64"], "nominal_srate": [rate_hz]}}
    )
    dev_ns_T = _good_ns(stamps)
    first_ns = int(dev_ns_T[0]) if len(dev_ns_T) else 0
    stream.time_stamps = (dev_ns_T - first_ns) * 1e-9
    clock = recording.clocks[sensor.clock_id]
    if not clock.ntp or recording.exchanges is None:
        return stream, first_ns
    exchanges = exchanges_of(recording.exchanges, clock)
    best = _shortest_of_each_round(exchanges.rtt_ns_X, len(exchanges.servers))
    dev_ns_P, offset_ns_P = exchanges.dev_ns_X[best], exchanges.offset_ns_X[best]
    if sensor.encoding is Encoding.TICKS_US_U32:  # both count overflows from their own start
        rounds_ns = round((first_ns - int(dev_ns_P[0])) / TICKS_MODULUS_NS) * TICKS_MODULUS_NS
        dev_ns_P, offset_ns_P = dev_ns_P + rounds_ns, offset_ns_P - rounds_ns
    stream.clock_times = ((dev_ns_P - first_ns) * 1e-9).tolist()
    stream.clock_values = ((offset_ns_P - offset_ns_P[0]) * 1e-9).tolist()
    return stream, first_ns + int(offset_ns_P[0])


def _shortest_of_each_round(rtt_ns_X: np.ndarray, num_servers: int) -> list[int]:
    """Of every `num_servers` exchanges in a row, the one with the shortest way."""
    return [
        first + int(np.argmin(rtt_ns_X[first : first + num_servers])) for first in range(0, len(rtt_ns_X), num_servers)
    ]


def _good_ns(stamps: Stamps) -> np.ndarray:
    good_ns_T: np.ndarray = stamps.dev_ns_T[~stamps.is_bad_T]
    return good_ns_T


def _rows(recording: Recording, stamps: Mapping[str, Stamps], found_ns: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """Rows with a stamp that can be true, and the instants found for them."""
    return pl.concat(
        [
            pl.DataFrame(
                {
                    "sensor": [name] * len(found_ns_T),
                    "row": recording.sensors[name].rows["row"].filter(~stamps[name].is_bad_T),
                    "t_utc_ns": found_ns_T - round(recording.sensors[name].latency_ms * 1e6),
                }
            )
            for name, found_ns_T in found_ns.items()
        ]
    )
