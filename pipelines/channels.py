"""The vocabulary of channels: name, unit, kind, what a reading can be, and which two channels cannot both be right."""

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

    spike: float = float("inf")
    """Nothing true leaves the line through the readings before it by more than this and is back on it a few readings
    later, in `unit`; infinite where extremes are the signal (vibration), or nothing is known."""

    rests: bool = False
    """Whether a sensor in order may repeat one reading for minutes: a receiver holds its position while it stands."""


def _channel(
    name: str,
    unit: str,
    kind: Kind,
    low: float = float("-inf"),
    high: float = float("inf"),
    *,
    spike: float = float("inf"),
    rests: bool = False,
) -> Channel:
    return Channel(name=name, unit=unit, kind=kind, low=low, high=high, spike=spike, rests=rests)


BUNDLE_SENSORS: dict[str, tuple[Channel, ...]] = {
    "odo": (_channel("pulses", "1", Kind.COUNTER, 0, 2**32),),
    "dop": (_channel("speed_mps", "m/s", Kind.CONTINUOUS, -1, 120, spike=3.0),),
    "gnss": (
        _channel("lat_deg", "deg", Kind.CONTINUOUS, -90, 90, spike=5e-4, rests=True),  # 56 m
        _channel("lon_deg", "deg", Kind.CONTINUOUS, -180, 180, spike=7e-4, rests=True),  # 53 m at 47 degrees
        _channel("speed_mps", "m/s", Kind.CONTINUOUS, -1, 120, spike=3.0),
        _channel("hdop", "1", Kind.CONTINUOUS, 0, 100),
        _channel("fix", "1", Kind.STATE, 0, 3),
    ),
    "aba": (_channel("acc_g", "g", Kind.CONTINUOUS, -200, 200),),
    "pneu": (
        _channel("res_bar", "bar", Kind.CONTINUOUS, 0, 12, spike=0.8),
        _channel("pipe_bar", "bar", Kind.CONTINUOUS, 0, 12, spike=0.8),
        _channel("comp_on", "1", Kind.STATE, 0, 1),
    ),
    "trk": (
        _channel("rail_temp_c", "degC", Kind.CONTINUOUS, -50, 90, spike=10.0),
        _channel("cant_mm", "mm", Kind.CONTINUOUS, -250, 250, spike=20.0),
    ),
    "tmp": (_channel("bearing_c", "degC", Kind.CONTINUOUS, -50, 250, spike=5.0),),
    "evt": (
        _channel("kind", "", Kind.EVENT),
        _channel("ref", "", Kind.EVENT),
    ),
}
"""Sensors of a trip bundle and their channels (DESIGN section "The trip bundle")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Two channels, named `<sensor>.<channel>`, that cannot both be right."""

    first: str
    second: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NeverAbove(Rule):
    """The first channel never reads more than `tolerance` above the second."""

    tolerance: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Agree(Rule):
    """Both measure one thing, to within `tolerance` plus `share` of the reading.

    `witness` measures it too, less well: it only tells which of the two is wrong.
    """

    tolerance: float
    share: float
    witness: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RisesOnlyWhile(Rule):
    """The first channel rises faster than `rate_per_s` only while the second, a state, is not zero."""

    rate_per_s: float


RULES: tuple[NeverAbove | Agree | RisesOnlyWhile, ...] = (
    NeverAbove(
        first="pneu.pipe_bar",
        second="pneu.res_bar",
        tolerance=0.3,
        why="the brake pipe is filled from the main reservoir",
    ),
    RisesOnlyWhile(
        first="pneu.res_bar",
        second="pneu.comp_on",
        rate_per_s=0.02,
        why="nothing but the compressor fills the main reservoir",
    ),
    NeverAbove(
        first="trk.rail_temp_c",
        second="tmp.bearing_c",
        tolerance=40.0,
        why="sun heats a rail to 30 K above the air, and a bearing is never colder than the air",
    ),
    Agree(
        first="dop.speed_mps",
        second="gnss.speed_mps",
        tolerance=2.0,
        share=0.05,
        witness="odo.speed_mps",
        why="both measure the speed over ground, whatever the wheels do",
    ),
    Agree(
        first="apu.TP3",
        second="apu.Reservoirs",
        tolerance=1.0,
        share=0.0,
        why="one pipe: the data set's description says that the two should be close, and they are, to 0.01 bar",
    ),
)
"""What channels of different sensors say about each other."""

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
