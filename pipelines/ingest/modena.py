"""Sensor nodes of the Modena-Formigine trains (ETH-PBL): IMU at 1.7 kHz beside GNSS, on the node's own clock.

A line is `hh:mm:ss.ffffff,TYPE,DATA`, in the order in which a transfer ended, not in time order. The stamp counts from
power-up and starts anew after 24 hours; a node that was powered up again starts at zero, and is a recording of its own.
IMU words are little endian: read so, the acceleration at rest is 1.01 to 1.02 g (the publisher's text says big endian).
A GNSS message tells the UTC of its epoch, and so ties the node's clock to UTC.

Shape suffixes: T = lines, I = lines of the IMU, 6 = axes (gyro, then acceleration).
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import polars as pl

from pipelines import storage
from pipelines.channels import BUNDLE_SENSORS, NODE_CHANNELS
from pipelines.errors import RecordingError
from pipelines.ingest.reader import (
    FAULT_SCHEMA,
    ClockSpec,
    Encoding,
    Recording,
    Refusal,
    RefusedError,
    SensorRows,
    describe_faults,
)
from pipelines.ingest.tables import RawTable, set_apart, stream_lines
from pipelines.ingest.ubx import NAV_PVT, NavPvt, messages, parse_nav_pvt

SOURCE = "modena"
CLOCK_ID = "node"

GYRO_DPS_PER_COUNT = 4.37e-3
ACC_G_PER_COUNT = 0.061e-3
IMU_RATE_HZ = 1690.0
"""Nodes differ: 1687 and 1697 were measured."""

STAMPING_JITTER_NS = 2_500_000
"""Spread of the node's stamps of GNSS messages, measured between neighbours; the delay of them all cannot be seen."""

LINE = re.compile(r"[0-9]{2}:[0-5][0-9]:[0-5][0-9]\.[0-9]{6},(I|U|N|BRK|ARR|DEP)(,|\s*$)")
"""How each line of a log begins."""

_WORDS = r"^[0-9a-fA-F]{24}$"
_SCALE_6 = np.array([GYRO_DPS_PER_COUNT] * 3 + [ACC_G_PER_COUNT] * 3)
_EVENTS = {"BRK": "break", "ARR": "arrival", "DEP": "departure"}
_CHANNELS = {**NODE_CHANNELS, "evt": BUNDLE_SENSORS["evt"]}
_FIX = {0: 0, 1: 0, 2: 2, 3: 3, 4: 3, 5: 0}
"""Our fix (0 none, 2, 3) by the receiver's fix type; dead reckoning and time alone are no fix."""

_DAY_NS = 86_400 * 10**9
_RESTART_NS = 10 * 10**9
"""Lines are late by less than a second; a clock that goes back by more than this was started anew."""


def read(location: str) -> Iterator[Recording]:
    """Yield the recordings of one log: one for each time that the node was powered up."""
    with storage.local_copy(location) as path:
        blocks = [_read_lines(lines) for lines in stream_lines(path)]
    lines = pl.concat(block.rows for block in blocks)
    faults = pl.concat(block.faults for block in blocks)
    if len(lines) <= len(faults):
        found = "; ".join(describe_faults("line", faults)) or "it is empty"
        raise RefusedError("file_type", f"{path.name} is no node log of lines `hh:mm:ss.ffffff,TYPE,DATA`: {found}")
    uptime_ns_T, power_up_T = unrolled(lines["clock_ns"].to_numpy())
    lines = lines.with_columns(ts=uptime_ns_T, power_up=power_up_T)
    next_line = np.searchsorted(lines["row"].to_numpy(), faults["row"].to_numpy()).clip(max=len(lines) - 1)
    faults = faults.with_columns(power_up=power_up_T[next_line])
    for (power_up,), part in lines.partition_by("power_up", as_dict=True).items():
        recording_id = f"{path.stem}-{power_up}" if power_up else path.stem
        yield _recording(recording_id, part, faults.filter(pl.col("power_up") == power_up).drop("power_up"))


def unrolled(clock_ns_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn a clock that starts anew every 24 hours into time since power-up.

    Args:
        clock_ns_T: Time of day in nanoseconds, in the order in which lines were stored; a line may be late.

    Returns:
        `uptime_ns_T`, and `power_up_T`, which counts the restarts of the clock.

    Example:
        >>> hour = 3_600 * 10**9
        >>> unrolled(np.array([24 * hour - 2, 1, 24 * hour - 1, 2]))[0] - 24 * hour
        array([-2,  1, -1,  2])
        >>> unrolled(np.array([3 * hour, 3 * hour + 1, 5, 6]))[1]
        array([0, 0, 1, 1])
    """
    is_stray_T = np.zeros(len(clock_ns_T), dtype=bool)
    before, at, after = clock_ns_T[:-2], clock_ns_T[1:-1], clock_ns_T[2:]
    is_stray_T[1:-1] = (_apart_ns(before, at) > _RESTART_NS) & (_apart_ns(at, after) > _RESTART_NS)
    is_stray_T[1:-1] &= _apart_ns(before, after) <= _RESTART_NS
    held_ns_T = clock_ns_T[np.maximum.accumulate(np.where(is_stray_T, 0, np.arange(len(clock_ns_T))))]
    step_ns_T = np.diff(held_ns_T, prepend=held_ns_T[:1])
    is_near_T = _apart_ns(held_ns_T, held_ns_T - step_ns_T) <= _RESTART_NS
    is_restart_T = (step_ns_T < 0) & ~is_near_T
    days_T: np.ndarray = np.cumsum(is_near_T & (step_ns_T < -_DAY_NS // 2)) - np.cumsum(
        is_near_T & (step_ns_T > _DAY_NS // 2)
    )
    power_up_T = np.cumsum(is_restart_T)
    first_of_power_up = np.flatnonzero(np.diff(power_up_T, prepend=-1))
    return clock_ns_T + (days_T - days_T[first_of_power_up][power_up_T]) * _DAY_NS, power_up_T


def _apart_ns(a_T: np.ndarray, b_T: np.ndarray) -> np.ndarray:
    """Distance on a clock face of 24 hours."""
    distance_T: np.ndarray = np.abs(a_T - b_T) % _DAY_NS
    shorter_T: np.ndarray = np.minimum(distance_T, _DAY_NS - distance_T)
    return shorter_T


def _read_lines(lines: pl.DataFrame) -> RawTable:
    """Split lines into `row`, `clock_ns`, `kind`, `data` and `words`, the six IMU words (zero in other lines)."""
    fields = lines["line"].str.splitn(",", 3).struct.rename_fields(["stamp", "kind", "data"]).struct.unnest()
    is_imu = pl.col("kind") == "I"
    reason = (
        pl.when(~pl.col("line").str.contains(f"^{LINE.pattern}").fill_null(value=False))
        .then(pl.lit("line_unreadable"))
        .when(is_imu & ~pl.col("data").str.contains(_WORDS).fill_null(value=False))
        .then(pl.lit("not_twelve_bytes"))
    )
    table = set_apart(pl.concat([lines, fields], how="horizontal").with_columns(reason=reason), found=pl.col("line"))
    seconds = sum(pl.col("stamp").str.slice(at, 2).cast(pl.Int64) * unit for at, unit in ((0, 3_600), (3, 60), (6, 1)))
    clock_ns = (seconds * 1_000_000 + pl.col("stamp").str.slice(9, 6).cast(pl.Int64)) * 1_000
    rows = table.rows.select("row", "kind", "data", clock_ns.alias("clock_ns"))
    is_imu_T = (rows["kind"] == "I").to_numpy()
    words_T6 = np.zeros((len(rows), 6), dtype="<i2")
    words_T6[is_imu_T] = _words(rows["data"].filter(is_imu_T))
    return table.plus(rows.with_columns(pl.Series("words", words_T6, dtype=pl.Array(pl.Int16, 6))))


def _words(data: pl.Series) -> np.ndarray:
    """Decode 24 hexadecimal digits a line into six little-endian words."""
    return np.frombuffer(bytes.fromhex("".join(data.str.join("").to_list())), dtype="<i2").reshape(-1, 6)


def _recording(recording_id: str, lines: pl.DataFrame, faults: pl.DataFrame) -> Recording:
    fixes, gnss_faults, counts = _gnss_messages(lines.filter(pl.col("kind").is_in(["U", "N"])))
    sensors = {
        "imu": _sensor("imu", _imu_rows(lines.filter(pl.col("kind") == "I")), IMU_RATE_HZ, faults),
        "gnss": _sensor("gnss", _gnss_rows(fixes), 1.0, gnss_faults),
        "evt": _sensor("evt", _event_rows(lines.filter(pl.col("kind").is_in(list(_EVENTS)))), None, faults.clear()),
    }
    pairs = _time_pairs(fixes)
    return Recording(
        source=SOURCE,
        vehicle=_vehicle(recording_id),
        day=_day(recording_id, pairs),
        recording_id=recording_id,
        sensors={name: sensor for name, sensor in sensors.items() if len(sensor.rows)},
        clocks={CLOCK_ID: ClockSpec(clock_id=CLOCK_ID, kind="ticks")},
        time_pairs=pairs if len(pairs) else None,
        refusals=tuple(_no_rows(sensors[name]) for name in ("imu", "gnss") if sensors[name].rows.is_empty()),
        meta={"messages": counts},
    )


def _no_rows(sensor: SensorRows) -> Refusal:
    found = "; ".join(describe_faults(sensor.sensor, sensor.faults)) or "it has no lines"
    return Refusal(thing=f"sensor {sensor.sensor}", reason="no_rows", message=f"sensor {sensor.sensor}: {found}")


def _sensor(name: str, rows: pl.DataFrame, rate_hz: float | None, faults: pl.DataFrame) -> SensorRows:
    return SensorRows(
        sensor=name,
        rows=rows,
        channels=_CHANNELS[name],
        clock_id=CLOCK_ID,
        encoding=Encoding.UPTIME_NS,
        nominal_rate_hz=rate_hz,
        faults=faults,
    )


def _imu_rows(lines: pl.DataFrame) -> pl.DataFrame:
    readings_I6 = lines["words"].to_numpy() * _SCALE_6
    names = [channel.name for channel in NODE_CHANNELS["imu"]]
    return lines.select("row", "ts", *(pl.Series(name, readings_I6[:, i]) for i, name in enumerate(names)))


def _event_rows(lines: pl.DataFrame) -> pl.DataFrame:
    return lines.select("row", "ts", kind=pl.col("kind").replace(_EVENTS), ref=pl.col("data").replace({"": None}))


def _gnss_messages(lines: pl.DataFrame) -> tuple[list[tuple[int, int, NavPvt]], pl.DataFrame, dict[str, int]]:
    """Return `(row, ts, message)` of each navigation epoch, broken messages, and how many there are of each kind."""
    epochs, faults, counts = [], [], Counter[str]()
    for row, ts, kind, data in lines.select("row", "ts", "kind", "data").iter_rows():
        try:
            if kind == "N":
                counts[_nmea_kind(data or "")] += 1
                continue
            for identity, payload in messages(_bytes(data or "")):
                counts[f"UBX {identity[0]:02x}-{identity[1]:02x}"] += 1
                if identity == NAV_PVT:
                    epochs.append((row, ts, parse_nav_pvt(payload)))
        except RecordingError as err:
            faults.append((row, "", f"{(data or '')[:40]}: {err}", "message_broken"))
    return epochs, pl.DataFrame(faults, FAULT_SCHEMA, orient="row"), dict(counts)


def _bytes(data: str) -> bytes:
    try:
        return bytes.fromhex(data)
    except ValueError as err:
        raise RecordingError(f"not hexadecimal: {err}") from err


def _nmea_kind(sentence: str) -> str:
    """Name of an NMEA sentence with the right checksum. Sentences are only counted: NAV-PVT says the same and more."""
    body, star, found = sentence.strip().removeprefix("$").partition("*")
    right = 0
    for byte in body.encode():
        right ^= byte
    if not star or found.upper() != f"{right:02X}":
        raise RecordingError(f"NMEA checksum is {found!r}, but must be {right:02X}")
    return f"NMEA {body.split(',')[0]}"


def _gnss_rows(epochs: list[tuple[int, int, NavPvt]]) -> pl.DataFrame:
    """The receiver reports the dilution of position, not the horizontal one, so `hdop` is missing."""
    schema = {"row": pl.Int64, "ts": pl.Int64} | {channel.name: pl.Float64 for channel in NODE_CHANNELS["gnss"]}
    return pl.DataFrame(
        [
            (
                row,
                ts,
                pvt.lat_1e7 / 1e7,
                pvt.lon_1e7 / 1e7,
                pvt.speed_mm_s / 1e3,
                None,
                float(_FIX.get(pvt.fix_type, 0)),
            )
            for row, ts, pvt in epochs
        ],
        schema=schema,
        orient="row",
    )


def _time_pairs(epochs: list[tuple[int, int, NavPvt]]) -> pl.DataFrame:
    """A receiver may know the time before it has a fix; what it says of its accuracy tells how well."""
    return pl.DataFrame(
        [
            (ts, pvt.utc_ns, round(np.hypot(pvt.tacc_ns, STAMPING_JITTER_NS)))
            for _, ts, pvt in epochs
            if pvt.is_time_known
        ],
        schema={"t_dev_ns": pl.Int64, "t_utc_ns": pl.Int64, "sigma_ns": pl.Int64},
        orient="row",
    )


def _vehicle(recording_id: str) -> str:
    """The node, `SN1` or `SN2`, where the file's name tells."""
    found = re.search(r"_(SN\d+)", recording_id)
    return f"modena-{found[1]}" if found else recording_id


def _day(recording_id: str, pairs: pl.DataFrame) -> str:
    """UTC day by GNSS, or else by the file's name."""
    if len(pairs):
        return f"{datetime.fromtimestamp(pairs['t_utc_ns'][0] // 10**9, tz=UTC):%Y-%m-%d}"
    found = re.match(r"(20\d\d)([01]\d)([0-3]\d)_", recording_id)
    if not found:
        raise RefusedError("no_day", f"{recording_id}: neither a GNSS message nor a name `YYYYMMDD_…` tells the day")
    return "-".join(found.groups())
