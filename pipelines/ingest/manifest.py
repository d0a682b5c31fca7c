"""The manifest of a trip bundle, `meta.json`: read, checked, and refused sensor by sensor where it is wrong."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pipelines import storage
from pipelines.channels import BUNDLE_SENSORS, Channel
from pipelines.errors import IncompleteRecordingError, ObjectNotFoundError, RecordingError
from pipelines.ingest.reader import ClockSpec, Encoding, RefusedError

MANIFEST = "meta.json"

_KIND_OF_ENCODING = {Encoding.TICKS_US_U32: "ticks", Encoding.GPS_TOW: "gps"}
_SPELLINGS = {
    "m/s": ("mps", "ms-1", "m*s-1", "m/sec"),
    "deg": ("°", "degree", "degrees"),
    "degc": ("°c", "c", "celsius", "deg_c"),
    "g": ("g0", "gn"),
    "bar": (),
    "mm": (),
}
"""Units of the vocabulary in lower case, and how else they are written."""

_NAME = r"^\w[\w .:+-]*$"  # becomes a folder and a partition
_UNITS = {spelling: unit for unit, others in _SPELLINGS.items() for spelling in (unit, *others)}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class SensorEntry(_Part):
    """What the manifest says about one sensor."""

    file: str = Field(pattern=r"^[^/\\\x00]+$")
    clock_id: str
    encoding: Annotated[Encoding, Field(strict=False)]
    nominal_rate_hz: float | None = Field(default=None, gt=0)
    latency_ms: float = 0.0
    channels: dict[str, str | None] = Field(min_length=1)


class _ClockEntry(_Part):
    kind: Literal["epoch", "ticks", "gps"]
    ntp: bool = False
    ntp_unit: Literal["ns", "us_u32"] = "ns"


def _in_utc(moment: datetime | None) -> datetime | None:
    """A stamp without a zone is UTC, as the name of its key says, and not the zone of this machine."""
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class _Top(_Part):
    model_config = ConfigDict(extra="allow")

    trip_id: str = Field(pattern=_NAME)
    sensors: dict[str, Any]
    clocks: dict[str, _ClockEntry]
    vehicle: str | None = Field(default=None, pattern=_NAME)
    time_zone: str | None = None
    time_zero_hint_utc: Annotated[datetime | None, Field(strict=False), AfterValidator(_in_utc)] = None
    gps_minus_utc_s: int | None = None
    wheel_nominal_diameter_m: float | None = Field(default=None, gt=0)
    pulses_per_rev: float | None = Field(default=None, gt=0)
    counter_bits: int | None = Field(default=None, ge=1, le=64)

    def rest(self) -> dict[str, Any]:
        """What is about the recording as a whole, as far as the manifest says it."""
        known = {
            "time_zero_hint_utc": self.time_zero_hint_utc and self.time_zero_hint_utc.isoformat(),
            "gps_minus_utc_s": self.gps_minus_utc_s,
            "wheel_nominal_diameter_m": self.wheel_nominal_diameter_m,
            "pulses_per_rev": self.pulses_per_rev,
            "counter_bits": self.counter_bits,
        }
        return (self.model_extra or {}) | {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A readable manifest; its sensors are checked one by one, when they are asked for."""

    vehicle: str
    day: str
    recording_id: str
    sensors: dict[str, Any]
    clocks: dict[str, ClockSpec]
    time_zone: str | None
    """IANA zone of local stamps; `None` if the manifest has none or an unknown one."""

    rest: dict[str, Any]

    def sensor(self, name: str) -> tuple[SensorEntry, tuple[Channel, ...]]:
        """Return a sensor's entry and its channels; raise `RefusedError` if the entry is wrong."""
        if name not in BUNDLE_SENSORS:
            raise RefusedError("unknown_sensor", f"{name!r} is no sensor; known are {', '.join(BUNDLE_SENSORS)}")
        try:
            entry = SensorEntry.model_validate(self.sensors[name])
        except ValidationError as err:
            raise RefusedError("manifest_invalid", f"{MANIFEST}: sensors.{name}.{_first(err)}") from err
        self._check_clock(name, entry)
        return entry, tuple(_channel(name, column, unit) for column, unit in entry.channels.items())

    def _check_clock(self, name: str, entry: SensorEntry) -> None:
        clock = self.clocks.get(entry.clock_id)
        where = f"{MANIFEST}: sensors.{name}"
        if clock is None:
            known = ", ".join(sorted(self.clocks)) or "none"
            raise RefusedError("unknown_clock", f"{where}.clock_id is {entry.clock_id!r}; described are {known}")
        kind = _KIND_OF_ENCODING.get(entry.encoding, "epoch")
        if entry.encoding is Encoding.UPTIME_NS or clock.kind != kind:
            raise RefusedError(
                "encoding_mismatch",
                f"{where}.encoding is {entry.encoding.value}, but its clock {clock.clock_id} is of kind {clock.kind}",
            )
        if entry.encoding is Encoding.LOCAL_TEXT and self.time_zone is None:
            raise RefusedError("no_time_zone", f"{where} has local stamps, but time_zone names no IANA zone")


def read_manifest(location: str) -> Manifest:
    """Read the manifest of the bundle at `location`.

    The vehicle comes from the manifest's `vehicle`, from a path `<vehicle>/<day>/<recording>`, or else from `trip_id`;
    the day from such a path, or else from `time_zero_hint_utc`.
    """
    path = storage.join(location, MANIFEST)
    try:
        data = storage.read_bytes(path)
    except ObjectNotFoundError as err:
        raise IncompleteRecordingError(
            f"{location}: {MANIFEST} is not there; it is written last, so the bundle is still landing or is none"
        ) from err
    top = _parse(data, path)
    *_, vehicle, day, _recording = ("", "", *location.rstrip("/").split("/"))
    is_landed = _is_day(day)
    return Manifest(
        vehicle=top.vehicle or (vehicle if is_landed else top.trip_id),
        day=day if is_landed else _day_of_hint(top, path),
        recording_id=top.trip_id,
        sensors=top.sensors,
        clocks={name: ClockSpec(clock_id=name, **entry.model_dump()) for name, entry in top.clocks.items()},
        time_zone=top.time_zone if _is_zone(top.time_zone) else None,
        rest=top.rest(),
    )


def _parse(data: bytes, path: str) -> _Top:
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as err:
        raise RecordingError(
            f"{path} is no whole JSON document: {err.msg} at line {err.lineno}, column {err.colno} "
            f"(character {err.pos} of {len(err.doc)})"
        ) from err
    except UnicodeDecodeError as err:
        raise RecordingError(f"{path} is not UTF-8 text: byte {err.start} of {len(data)}: {err.reason}") from err
    except RecursionError as err:
        raise RecordingError(f"{path} is nested too deeply to be a manifest") from err
    try:
        return _Top.model_validate(value)
    except ValidationError as err:
        raise RecordingError(f"{path}: {_first(err)}") from err


def _channel(sensor: str, column: str, unit: str | None) -> Channel:
    known = {channel.name: channel for channel in BUNDLE_SENSORS[sensor]}
    if column not in known:
        right = ", ".join(f"{channel.name} [{channel.unit}]" for channel in known.values())
        raise RefusedError("unknown_channel", f"sensor {sensor} has no channel {column!r}; it may have {right}")
    right = known[column].unit
    # What has no unit may be declared in any words ("1", "count", "0/1"), but not in the unit of something else.
    if _UNITS.get((unit or "").strip().lower()) != _UNITS.get(right.lower()):
        raise RefusedError("wrong_unit", f"sensor {sensor}: {column} is in {unit!r}, but must be in {right!r}")
    return known[column]


def _day_of_hint(top: _Top, path: str) -> str:
    if top.time_zero_hint_utc is None:
        raise RecordingError(
            f"{path}: time_zero_hint_utc is missing, but must be an ISO time, because the path names no day"
        )
    return top.time_zero_hint_utc.date().isoformat()


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_zone(name: str | None) -> bool:
    try:
        return bool(name and ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False


def _first(err: ValidationError) -> str:
    """The first complaint: where, what was found, what would be right."""
    first = err.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where} is {str(first['input'])[:60]!r}: {first['msg']}"
