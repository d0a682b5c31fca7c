"""What a reader owes: typed rows with their raw stamps, and a reason for everything it refused.

A reader is a function `read(location) -> Iterator[Recording]`. It yields one recording at a time (one vehicle, one
service day), so that a source of any size streams. It never drops a row silently and never interprets time: stamps stay
as they were written, in the columns of their encoding; `pipelines.clocks` turns them into UTC. A sensor that cannot be
read is refused by name (`Refusal`) and the other sensors go on; only a recording with no readable manifest raises.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import polars as pl

from pipelines.channels import Channel
from pipelines.errors import RecordingError

FAULT_SCHEMA = {"row": pl.Int64, "column": pl.String, "found": pl.String, "reason": pl.String}


class Encoding(StrEnum):
    """How a row's time stamp is written; the value is the name used in `meta.json`."""

    EPOCH_S = "epoch_s"
    EPOCH_MS = "epoch_ms"
    EPOCH_US = "epoch_us"
    EPOCH_NS = "epoch_ns"
    LOCAL_TEXT = "local_text"
    TICKS_US_U32 = "ticks_us_u32"
    GPS_TOW = "gps_tow"
    UPTIME_NS = "uptime_ns"
    """Nanoseconds since power-up on the node's own clock (IMU + GNSS node logs)."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Stamp columns of this encoding."""
        if self is Encoding.TICKS_US_U32:
            return ("ticks",)
        return ("gps_week", "tow_ms") if self is Encoding.GPS_TOW else ("ts",)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockSpec:
    """A device clock, as the manifest describes it."""

    clock_id: str
    kind: str
    """`epoch`, `ticks` or `gps`."""

    ntp: bool = False
    """Whether the recording has NTP exchanges for this clock."""

    ntp_unit: str = "ns"
    """Unit of the device stamps in the exchanges: `ns` or `us_u32`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SensorRows:
    """All rows of one sensor, in the order in which they were stored."""

    sensor: str
    rows: pl.DataFrame
    """`row` (Int64, position in the file), the stamp columns of `encoding`, then the channels (Float64; text for
    events). A missing reading is null, never NaN."""

    channels: tuple[Channel, ...]
    clock_id: str
    encoding: Encoding
    nominal_rate_hz: float | None
    """Rows a second; `None` for an event stream."""

    latency_ms: float = 0.0
    """How long after the physical instant the stamp is taken."""

    faults: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FAULT_SCHEMA))
    """What could not be read: `row`, `column`, the text `found`, and a `reason` code. Where `column` is a channel, its
    value is null and the row is kept; where it is a stamp column, or empty for the whole line, the row is left out."""

    @property
    def rejected(self) -> dict[str, int]:
        """Number of faults by reason code."""
        return dict(self.faults["reason"].value_counts().sort("reason").iter_rows())


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A file or sensor that was not read."""

    thing: str
    """What: `sensor odo`, `ntp_log.csv`."""

    reason: str
    """Code that counts are kept by: `file_missing`, `file_truncated`, `unknown_channel`, ..."""

    message: str
    """The file, the row or key, the value found and what would be right."""


class RefusedError(RecordingError):
    """A file or sensor cannot be read as what it claims to be; `reason` is the code that counts are kept by."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep the code beside the message."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """One vehicle, one service day or trip, as it was read."""

    source: str
    vehicle: str
    day: str
    """Service day, `YYYY-MM-DD` (UTC)."""

    recording_id: str
    """Name of the trip or file."""

    sensors: dict[str, SensorRows]
    clocks: dict[str, ClockSpec] = field(default_factory=dict)
    exchanges: pl.DataFrame | None = None
    """NTP exchanges, columns of `ntp_log.csv`; `None` where the source has none."""

    time_pairs: pl.DataFrame | None = None
    """Instants at which a device clock and UTC were read together (GNSS): `t_dev_ns`, `t_utc_ns`, `sigma_ns` (Int64);
    `None` where the source has none."""

    route: pl.DataFrame | None = None
    """Centre line: line_m, km_post, lat_deg, lon_deg."""

    balises: pl.DataFrame | None = None
    """ref, line_m."""

    time_zone: str = "UTC"
    """IANA zone of local wall-clock stamps."""

    refusals: tuple[Refusal, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    """The rest of the manifest (wheel_nominal_diameter_m, pulses_per_rev, counter_bits, gps_minus_utc_s,
    time_zero_hint_utc, simulated)."""

    @property
    def num_rows(self) -> int:
        """Rows read, over all sensors."""
        return sum(len(sensor.rows) for sensor in self.sensors.values())


def describe_faults(thing: str, faults: pl.DataFrame) -> list[str]:
    """One sentence for each column and reason among the faults of `thing`, with the first ten rows.

    Example:
        >>> describe_faults("pneu", pl.DataFrame([[7, "res_bar", "ten", "not_a_number"]], FAULT_SCHEMA, orient="row"))
        ["pneu.res_bar: not_a_number, 1 time, in row 7 ('ten')"]
    """
    sentences = []
    for column, reason, rows, found in (
        faults.group_by("column", "reason", maintain_order=True).agg("row", "found").rows()
    ):
        where = ", ".join(f"{row} ({text!r})" for row, text in list(zip(rows, found, strict=True))[:10])
        count = "1 time, in row" if len(rows) == 1 else f"{len(rows)} times, in rows"
        name = f"{thing}.{column}" if column else thing
        sentences.append(f"{name}: {reason}, {count} {where}{', …' if len(rows) > 10 else ''}")
    return sentences
