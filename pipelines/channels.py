"""The vocabulary of channels: name, unit, kind and the range outside which a reading cannot be true."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a channel may be carried from one instant to another."""

    CONTINUOUS = "continuous"
    """A physical quantity: interpolation between neighbours is meaningful."""

    STATE = "state"
    """Holds until it changes: only the last value counts."""

    COUNTER = "counter"
    """Grows, and wraps: only differences count."""

    EVENT = "event"
    """Happens at an instant and has no value in between."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """One column of one sensor."""

    name: str
    unit: str
    kind: Kind
    low: float = float("-inf")
    """Smallest reading that can be true, in `unit`."""

    high: float = float("inf")
    """Largest reading that can be true, in `unit`."""


def _channel(name: str, unit: str, kind: Kind, low: float = float("-inf"), high: float = float("inf")) -> Channel:
    return Channel(name=name, unit=unit, kind=kind, low=low, high=high)


BUNDLE_SENSORS: dict[str, tuple[Channel, ...]] = {
    "odo": (_channel("pulses", "1", Kind.COUNTER, 0, 2**32),),
    "dop": (_channel("speed_mps", "m/s", Kind.CONTINUOUS, -1, 120),),
    "gnss": (
        _channel("lat_deg", "deg", Kind.CONTINUOUS, -90, 90),
        _channel("lon_deg", "deg", Kind.CONTINUOUS, -180, 180),
        _channel("speed_mps", "m/s", Kind.CONTINUOUS, -1, 120),
        _channel("hdop", "1", Kind.CONTINUOUS, 0, 100),
        _channel("fix", "1", Kind.STATE, 0, 3),
    ),
    "aba": (_channel("acc_g", "g", Kind.CONTINUOUS, -200, 200),),
    "pneu": (
        _channel("res_bar", "bar", Kind.CONTINUOUS, 0, 12),
        _channel("pipe_bar", "bar", Kind.CONTINUOUS, 0, 12),
        _channel("comp_on", "1", Kind.STATE, 0, 1),
    ),
    "trk": (
        _channel("rail_temp_c", "degC", Kind.CONTINUOUS, -50, 90),
        _channel("cant_mm", "mm", Kind.CONTINUOUS, -250, 250),
    ),
    "tmp": (_channel("bearing_c", "degC", Kind.CONTINUOUS, -50, 250),),
    "evt": (
        _channel("kind", "", Kind.EVENT),
        _channel("ref", "", Kind.EVENT),
    ),
}
"""Sensors of a trip bundle and their channels (DESIGN section "The trip bundle")."""

METROPT3_CHANNELS: tuple[Channel, ...] = (
    _channel("TP2", "bar", Kind.CONTINUOUS, -1, 16),
    _channel("TP3", "bar", Kind.CONTINUOUS, -1, 16),
    _channel("H1", "bar", Kind.CONTINUOUS, -1, 16),
    _channel("DV_pressure", "bar", Kind.CONTINUOUS, -1, 16),
    _channel("Reservoirs", "bar", Kind.CONTINUOUS, -1, 16),
    _channel("Oil_temperature", "degC", Kind.CONTINUOUS, -20, 150),
    _channel("Motor_current", "A", Kind.CONTINUOUS, -1, 30),
    _channel("COMP", "1", Kind.STATE, 0, 1),
    _channel("DV_eletric", "1", Kind.STATE, 0, 1),
    _channel("Towers", "1", Kind.STATE, 0, 1),
    _channel("MPG", "1", Kind.STATE, 0, 1),
    _channel("LPS", "1", Kind.STATE, 0, 1),
    _channel("Pressure_switch", "1", Kind.STATE, 0, 1),
    _channel("Oil_level", "1", Kind.STATE, 0, 1),
    _channel("Caudal_impulses", "1", Kind.STATE, 0, 1),
)
"""Signals of the MetroPT-3 air production unit, spelt as published (UCI data set 791)."""

LTE_CHANNELS: tuple[Channel, ...] = (
    _channel("down", "bit", Kind.CONTINUOUS, 0),
    _channel("up", "bit", Kind.CONTINUOUS, 0),
    _channel("rnti_count", "1", Kind.CONTINUOUS, 0),
    _channel("mcs_down", "1", Kind.CONTINUOUS, 0, 31),
    _channel("mcs_down_var", "1", Kind.CONTINUOUS, 0),
    _channel("mcs_up", "1", Kind.CONTINUOUS, 0, 31),
    _channel("mcs_up_var", "1", Kind.CONTINUOUS, 0),
    _channel("rb_down", "1", Kind.CONTINUOUS, 0, 1),
    _channel("rb_down_var", "1", Kind.CONTINUOUS, 0),
    _channel("rb_up", "1", Kind.CONTINUOUS, 0, 1),
    _channel("rb_up_var", "1", Kind.CONTINUOUS, 0),
)
"""Columns of an LTE cell table, per two minutes; `rb_*` is the share of resource blocks in use."""

NODE_CHANNELS: dict[str, tuple[Channel, ...]] = {
    "imu": (
        _channel("gyro_x_dps", "deg/s", Kind.CONTINUOUS, -145, 145),
        _channel("gyro_y_dps", "deg/s", Kind.CONTINUOUS, -145, 145),
        _channel("gyro_z_dps", "deg/s", Kind.CONTINUOUS, -145, 145),
        _channel("acc_x_g", "g", Kind.CONTINUOUS, -2.1, 2.1),
        _channel("acc_y_g", "g", Kind.CONTINUOUS, -2.1, 2.1),
        _channel("acc_z_g", "g", Kind.CONTINUOUS, -2.1, 2.1),
    ),
    "gnss": BUNDLE_SENSORS["gnss"],
}
"""Sensors of an IMU + GNSS train node, in the units that its integer words are scaled to."""


def unit_of(column: str) -> str:
    """Unit of a column of an aligned table (`<sensor>_<channel>`, or a MetroPT-3 signal); empty if it is not a channel.

    Example:
        >>> unit_of("tmp_bearing_c")
        'degC'
    """
    return _UNITS.get(column, "")


_UNITS = {channel.name: channel.unit for channel in METROPT3_CHANNELS} | {
    f"{sensor}_{channel.name}": channel.unit for sensor, channels in BUNDLE_SENSORS.items() for channel in channels
}
