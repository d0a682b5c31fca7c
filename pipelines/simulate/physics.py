"""What happens inside the vehicle: compressed air and the heat of one axle bearing, healthy and faulty.

Shape suffixes: K = points of the time grid of `motion`.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.simulate.motion import STEP_S, Motion
from pipelines.simulate.streams import compiled

COMPRESSOR_ON_BAR = 8.0
COMPRESSOR_OFF_BAR = 10.0
PIPE_RELEASED_BAR = 5.0
PIPE_FULL_SERVICE_DROP_BAR = 1.5


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Air:
    """The pneumatic system over one trip."""

    reservoir_bar_K: np.ndarray
    pipe_bar_K: np.ndarray
    compressor_K: np.ndarray
    """1 where the compressor runs, else 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vehicle:
    """What stays the same from day to day in one vehicle."""

    name: str
    wheel_nominal_diameter_m: float
    wheel_diameter_m: float
    pulses_per_rev: int
    counter_bits: int
    radar_scale: float
    fill_bar_per_s: float
    """Pressure that the compressor alone would add each second."""

    air_use_bar_per_s: float
    """Air that suspension and small leaks of a healthy vehicle use."""

    bearing_friction: float
    """Friction of the watched bearing relative to the type's average."""


def breathe(motion: Motion, vehicle: Vehicle, random: np.random.Generator, *, leak_bar_per_s_K: np.ndarray) -> Air:
    """Run compressor, brake pipe and consumers along a trip."""
    doors_K = np.zeros(len(motion.time_s_K))
    for moment_s in np.concatenate([motion.door_open_s, motion.door_close_s]):
        doors_K[int(moment_s / STEP_S)] = 0.04
    reservoir_bar_K, pipe_bar_K, compressor_K = _air(
        motion.brake_K,
        doors_K,
        leak_bar_per_s_K,
        float(random.uniform(8.2, 9.9)),
        vehicle.fill_bar_per_s,
        vehicle.air_use_bar_per_s * random.uniform(0.85, 1.15),
    )
    return Air(reservoir_bar_K=reservoir_bar_K, pipe_bar_K=pipe_bar_K, compressor_K=compressor_K)


@compiled
def _air(
    brake_K: np.ndarray,
    doors_K: np.ndarray,
    leak_bar_per_s_K: np.ndarray,
    reservoir_bar: float,
    fill_bar_per_s: float,
    use_bar_per_s: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two-point governor over a reservoir; the brake pipe follows the demand, and refilling it costs reservoir air."""
    reservoir_bar_K = np.empty(len(brake_K))
    pipe_bar_K = np.empty(len(brake_K))
    compressor_K = np.zeros(len(brake_K), dtype=np.int8)
    pipe_bar = PIPE_RELEASED_BAR - PIPE_FULL_SERVICE_DROP_BAR * brake_K[0]
    is_on = False
    for k in range(len(brake_K)):
        wanted = PIPE_RELEASED_BAR - (PIPE_FULL_SERVICE_DROP_BAR * brake_K[k] if brake_K[k] > 0.02 else 0.0)
        change = (wanted - pipe_bar) * STEP_S / (1.5 if wanted < pipe_bar else 4.0)
        pipe_bar += change
        if reservoir_bar <= COMPRESSOR_ON_BAR:
            is_on = True
        elif reservoir_bar >= COMPRESSOR_OFF_BAR:
            is_on = False
        # A piston compressor delivers less against a fuller reservoir; air escapes in proportion to the pressure.
        filling = fill_bar_per_s * (1.15 - 0.15 * (reservoir_bar - 8.0)) if is_on else 0.0
        escaping = (use_bar_per_s + leak_bar_per_s_K[k]) * reservoir_bar / 9.0
        reservoir_bar += (filling - escaping) * STEP_S - doors_K[k] - 0.15 * max(change, 0.0)
        reservoir_bar = max(reservoir_bar, 0.0)
        reservoir_bar_K[k] = reservoir_bar
        pipe_bar_K[k] = pipe_bar
        compressor_K[k] = is_on
    return reservoir_bar_K, pipe_bar_K, compressor_K


def warm_up(
    motion: Motion,
    vehicle: Vehicle,
    random: np.random.Generator,
    *,
    ambient_c_K: np.ndarray,
    excess_friction_K: np.ndarray,
) -> np.ndarray:
    """Temperature of the bearing along a trip, in degrees Celsius.

    Friction heats in proportion to speed and load, the air cools the better the faster the train runs, and the mass of
    the axle box delays both by 10 to 25 minutes. `excess_friction_K` is the damage: 0 healthy, 1 twice the friction.
    """
    load = random.uniform(0.8, 1.2)
    start_above_ambient_k = random.uniform(0.2, 1.0) * 32.0 * vehicle.bearing_friction * load
    return _bearing(
        motion.speed_mps_K,
        ambient_c_K,
        vehicle.bearing_friction * load * (1.0 + excess_friction_K),
        float(ambient_c_K[0] + start_above_ambient_k),
    )


@compiled
def _bearing(speed_mps_K: np.ndarray, ambient_c_K: np.ndarray, friction_K: np.ndarray, bearing_c: float) -> np.ndarray:
    """Lumped heat balance. In kelvin per second: 0.00218 v heats, (1 + 0.05 v) / 1500 s cools."""
    bearing_c_K = np.empty(len(speed_mps_K))
    for k in range(len(speed_mps_K)):
        bearing_c_K[k] = bearing_c
        heating = 0.00218 * friction_K[k] * speed_mps_K[k]
        cooling = (1.0 + 0.05 * speed_mps_K[k]) / 1_500.0 * (bearing_c - ambient_c_K[k])
        bearing_c += (heating - cooling) * STEP_S
    return bearing_c_K
