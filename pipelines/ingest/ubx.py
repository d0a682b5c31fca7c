"""u-blox binary messages: frames, their checksum, and NAV-PVT (position, velocity and time of a navigation epoch)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines.errors import RecordingError

NAV_PVT = (0x01, 0x07)

_SYNC = b"\xb5\x62"
_OVERHEAD = 8
_PVT = struct.Struct(
    "<IH5BBIiBBBBii"
)  # iTOW, year … second, valid, tAcc, nano, fixType, flags, flags2, numSV, lon, lat
_PVT_BYTES = 92
_SPEED_AT = 60
_TIME_IS_KNOWN = 0b111  # date valid, time valid, fully resolved


@dataclass(frozen=True, kw_only=True, slots=True)
class NavPvt:
    """What a receiver says about one navigation epoch."""

    itow_ms: int
    """GPS time of week, ahead of UTC by the leap seconds."""

    utc_ns: int
    valid: int
    """Flags: 1 date, 2 time, 4 fully resolved."""

    tacc_ns: int
    fix_type: int
    """0 none, 1 dead reckoning, 2 two-dimensional, 3 three-dimensional, 4 combined, 5 time only."""

    num_sv: int
    lon_1e7: int
    lat_1e7: int
    speed_mm_s: int

    @property
    def is_time_known(self) -> bool:
        """Whether the receiver vouches for its UTC."""
        return self.valid & _TIME_IS_KNOWN == _TIME_IS_KNOWN


def messages(data: bytes) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield `((class, id), payload)` of the messages in `data`; raise `RecordingError` at the first broken one."""
    while data:
        if not data.startswith(_SYNC) or len(data) < _OVERHEAD:
            raise RecordingError(f"{data[:8].hex()} is no UBX message: it starts with b562 and has 8 bytes at least")
        length = _OVERHEAD + int.from_bytes(data[4:6], "little")
        if len(data) < length:
            raise RecordingError(f"UBX message of {length} bytes ends after {len(data)}")
        found, right = data[length - 2 : length], checksum(data[2 : length - 2])
        if found != right:
            raise RecordingError(f"UBX checksum is {found.hex()}, but must be {right.hex()}")
        yield (data[2], data[3]), data[6 : length - 2]
        data = data[length:]


def checksum(data: bytes) -> bytes:
    """Fletcher checksum over class, id, length and payload.

    Example:
        >>> checksum(bytes.fromhex("05010200068a")).hex()
        '98c1'
    """
    a = b = 0
    for byte in data:
        a = (a + byte) & 0xFF
        b = (b + a) & 0xFF
    return bytes((a, b))


def parse_nav_pvt(payload: bytes) -> NavPvt:
    """Read a NAV-PVT payload; raise `RecordingError` if it is too short or its date does not exist."""
    if len(payload) != _PVT_BYTES:
        raise RecordingError(f"NAV-PVT has {len(payload)} bytes, but must have {_PVT_BYTES}")
    itow, year, month, day, hour, minute, second, valid, tacc, nano, fix, _, _, num_sv, lon, lat = _PVT.unpack_from(
        payload
    )
    try:
        # The second may be 60: a leap second is the first instant of the next minute here.
        start_of_minute = datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError as err:
        raise RecordingError(f"NAV-PVT of {year}-{month}-{day} {hour}:{minute}: {err}") from err
    return NavPvt(
        itow_ms=itow,
        utc_ns=(int(start_of_minute.timestamp()) + second) * 10**9 + nano,
        valid=valid,
        tacc_ns=tacc,
        fix_type=fix,
        num_sv=num_sv,
        lon_1e7=lon,
        lat_1e7=lat,
        speed_mm_s=struct.unpack_from("<i", payload, _SPEED_AT)[0],
    )
