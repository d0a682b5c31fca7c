"""What each sensor of the vehicle measures: its instants, its channels, and how it stamps and loses rows.

Shape suffixes: T = rows as they were measured, K = points of the time grid of `motion`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from pipelines.simulate.axle_box import vibration
from pipelines.simulate.damage import NO_DAMAGE, Damage
from pipelines.simulate.motion import Motion
from pipelines.simulate.physics import Air, Vehicle
from pipelines.simulate.route import Route


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class World:
    """Everything true about one trip that a sensor can look at."""

    route: Route
    vehicle: Vehicle
    motion: Motion
    air: Air
    ambient_c_K: np.ndarray
    bearing_c_K: np.ndarray
    excess_friction_K: np.ndarray
    sun_k: float
    """How much warmer than the air the sun makes a rail, in kelvin."""

    multipath_share: float
    """Share of the time in which the receiver believes a signal that came by way of a wall."""

    duration_s: float
    is_clean: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Reading:
    """Rows of one sensor as they were measured, before anything happened to them."""

    since_ns_T: np.ndarray
    """Physical instants, nanoseconds since the start of the trip."""

    columns: dict[str, np.ndarray | pl.Series]
    """Channel values; NaN where the sensor itself had nothing to say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensor:
    """One sensor of the bundle: where its rows go, which clock stamps them and what may happen to them."""

    file: str
    clock_id: str
    encoding: str
    rate_hz: float | None
    measure: Callable[[World, np.ndarray, np.random.Generator], dict[str, np.ndarray]]
    """Channel values at the given instants."""

    units: dict[str, str]
    latency_ms: float = 0.0
    damage: Damage = NO_DAMAGE
    spike: dict[str, float] = field(default_factory=dict)
    """What a channel reads when its wiring fails."""

    jump: dict[str, float] = field(default_factory=dict)
    """How far off a channel reads when it is deceived."""


def instants(world: World, rate_hz: float, random: np.random.Generator) -> np.ndarray:
    """Instants at which a free-running sensor measures; its own timer is up to 20 ppm off unless the trip is clean."""
    timer_ppm = 0.0 if world.is_clean else random.uniform(-20.0, 20.0)
    period_ns = 1e9 / rate_hz * (1.0 + timer_ppm * 1e-6)
    phase_ns = random.uniform(0.0, 1e9 / rate_hz)
    count = int((world.duration_s * 1e9 - phase_ns) / period_ns)
    return (np.arange(count) * period_ns + phase_ns).astype(np.int64)


def events(world: World, random: np.random.Generator) -> Reading:
    """Balises passed and doors moved, oldest first. A balise is read within decimetres of where it lies."""
    motion, route = world.motion, world.route
    read_m = route.balise_m_B + (0.0 if world.is_clean else random.normal(0.0, 0.15, size=len(route.balise_m_B)))
    is_passed = (read_m > motion.line_m_K[0]) & (read_m < np.interp(world.duration_s, motion.time_s_K, motion.line_m_K))
    passed = np.flatnonzero(is_passed)
    seconds = np.concatenate(
        [np.interp(read_m[passed], motion.line_m_K, motion.time_s_K), motion.door_open_s, motion.door_close_s]
    )
    kinds = (
        ["balise"] * len(passed) + ["door_open"] * len(motion.door_open_s) + ["door_close"] * len(motion.door_close_s)
    )
    refs = [route.balise_ref_B[i] for i in passed] + [""] * (len(seconds) - len(passed))
    order = np.argsort(seconds, kind="stable")
    return Reading(
        since_ns_T=(seconds[order] * 1e9).astype(np.int64),
        columns={
            "kind": pl.Series(kinds, dtype=pl.String).gather(order),
            "ref": pl.Series(refs, dtype=pl.String).gather(order),
        },
    )


def _odometer(world: World, since_ns_T: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    vehicle = world.vehicle
    pulse_m = np.pi * vehicle.wheel_diameter_m / vehicle.pulses_per_rev
    modulus = 2**vehicle.counter_bits
    counted_T = np.floor(world.motion.wheel_at(since_ns_T) / pulse_m + random.random()).astype(np.int64)
    # A counter that starts shortly before its end, so that even 32 bits overflow on some trips.
    first = modulus - int(random.uniform(0.0, 2.0 * counted_T[-1] + 2.0)) if len(counted_T) else 0
    return {"pulses": (first + counted_T) % modulus}


def _radar(world: World, since_ns_T: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    _, speed_mps_T = world.motion.at(since_ns_T)
    noise_T = random.normal(0.0, 0.12, size=len(since_ns_T)) * (speed_mps_T > 0.3)
    return {"speed_mps": np.round(np.maximum(speed_mps_T * world.vehicle.radar_scale + noise_T, 0.0), 3)}


def _satellites(world: World, since_ns_T: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Position with an error correlated over half a minute; nothing in tunnels; worse sky near their portals."""
    route = world.route
    line_m_T, speed_mps_T = world.motion.at(since_ns_T)
    is_dark_T = np.interp(line_m_T, route.line_m_P, route.in_tunnel_P) > 0.0
    is_2d_T = random.random(len(line_m_T)) < 0.01
    fix_T = np.where(is_dark_T, 0, np.where(is_2d_T, 2, 3))
    sigma_m = random.uniform(1.0, 2.5)
    east_m_T, north_m_T = (_correlated(random, len(line_m_T), correlation=np.exp(-1 / 30)) * sigma_m for _ in range(2))
    if world.multipath_share > 0.0 and not world.is_clean:
        detour_m_T2 = _multipath(random, len(line_m_T), share=world.multipath_share)
        east_m_T, north_m_T = east_m_T + detour_m_T2[:, 0], north_m_T + detour_m_T2[:, 1]
    metres_per_deg = 111_320.0
    lat_deg_T = np.interp(line_m_T, route.line_m_P, route.lat_deg_P) + north_m_T / metres_per_deg
    lon_deg_T = np.interp(line_m_T, route.line_m_P, route.lon_deg_P) + east_m_T / (
        metres_per_deg * np.cos(np.deg2rad(lat_deg_T))
    )
    measured_mps_T = np.abs(speed_mps_T + random.normal(0.0, 0.05, size=len(line_m_T)))
    return {
        "lat_deg": np.where(is_dark_T, np.nan, lat_deg_T.round(8)),
        "lon_deg": np.where(is_dark_T, np.nan, lon_deg_T.round(8)),
        "speed_mps": np.where(is_dark_T, np.nan, measured_mps_T.round(3)),
        "hdop": np.where(
            is_dark_T, 99.9, np.where(is_2d_T, 4.5, 0.9) + random.exponential(0.2, len(line_m_T)).round(1)
        ),
        "fix": fix_T,
    }


def _axle_box(world: World, since_ns_T: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    return {"acc_g": vibration(world.route, world.motion, since_ns_T, random, world.vehicle, world.excess_friction_K)}


def _pneumatics(world: World, since_ns_T: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    air, motion = world.air, world.motion
    noise_T2 = random.normal(0.0, 0.008, size=(2, len(since_ns_T)))
    k_T = np.minimum(since_ns_T * 1e-9 / (motion.time_s_K[1] - motion.time_s_K[0]), len(motion.time_s_K) - 1).astype(
        int
    )
    return {
        "res_bar": np.round(motion.on_grid(air.reservoir_bar_K, since_ns_T) + noise_T2[0], 3),
        "pipe_bar": np.round(motion.on_grid(air.pipe_bar_K, since_ns_T) + noise_T2[1], 3),
        "comp_on": air.compressor_K[k_T],
    }


def _track(world: World, since_ns_T: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    route = world.route
    line_m_T, _ = world.motion.at(since_ns_T)
    shade_T = 1.0 - np.interp(line_m_T, route.line_m_P, route.in_tunnel_P)
    sunny_T = 0.6 + 0.4 * np.sin(line_m_T / 1_900.0) * np.sin(line_m_T / 610.0)
    rail_c_T = world.motion.on_grid(world.ambient_c_K, since_ns_T) + world.sun_k * shade_T * sunny_T
    cant_mm_T = np.interp(line_m_T, route.line_m_P, route.cant_mm_P)
    noise_T2 = random.standard_normal(size=(2, len(since_ns_T)), dtype=np.float32)
    return {
        "rail_temp_c": np.round(rail_c_T + 0.15 * noise_T2[0], 2),
        "cant_mm": np.round(cant_mm_T + 0.8 * noise_T2[1], 2),
    }


def _bearing(world: World, since_ns_T: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    bearing_c_T = world.motion.on_grid(world.bearing_c_K, since_ns_T)
    return {"bearing_c": np.round(bearing_c_T + random.normal(0.0, 0.15, size=len(since_ns_T)), 1)}


def _multipath(random: np.random.Generator, count: int, *, share: float) -> np.ndarray:
    """Errors of about 40 m in one direction, each for 1 to 8 s."""
    detour_m_T2 = np.zeros((count, 2))
    for _ in range(random.poisson(share * count / 4.5)):
        first, length = int(random.integers(count)), int(random.integers(1, 9))
        size_m, towards_rad = random.normal(40.0, 8.0), random.uniform(0.0, 2.0 * np.pi)
        detour_m_T2[first : first + length] = size_m * np.cos(towards_rad), size_m * np.sin(towards_rad)
    return detour_m_T2


def _correlated(random: np.random.Generator, count: int, *, correlation: float) -> np.ndarray:
    """Gauss-Markov noise of unit variance."""
    fresh = random.normal(0.0, np.sqrt(1.0 - correlation**2), size=count)
    values = np.empty(count)
    value = random.normal()
    for i in range(count):
        value = correlation * value + fresh[i]
        values[i] = value
    return values


SENSORS: dict[str, Sensor] = {
    "odo": Sensor(
        file="odo.csv",
        clock_id="control",
        encoding="epoch_ms",
        rate_hz=10.0,
        measure=_odometer,
        units={"pulses": "1"},
        damage=Damage(
            jitter="uniform",
            jitter_ms=2.0,
            late_stamp_share=0.002,
            num_gaps=1,
            gap_s=(5.0, 60.0),
            duplicate_share=5e-4,
            late_row_share=2e-4,
            bad_stamp_share=3e-4,
            missing_share=3e-4,
        ),
    ),
    "dop": Sensor(
        file="dop.parquet",
        clock_id="radar",
        encoding="epoch_ns",
        rate_hz=20.0,
        measure=_radar,
        units={"speed_mps": "m/s"},
        latency_ms=35.0,
        damage=Damage(
            jitter_ms=1.0,
            num_gaps=1,
            duplicate_share=3e-4,
            late_row_share=1e-4,
            bad_stamp_share=3e-4,
            missing_share=5e-4,
            bad_value_share=3e-4,
        ),
        spike={"speed_mps": 163.83},
    ),
    "gnss": Sensor(
        file="gnss.csv",
        clock_id="gps",
        encoding="gps_tow",
        rate_hz=1.0,
        measure=_satellites,
        units={"lat_deg": "deg", "lon_deg": "deg", "speed_mps": "m/s", "hdop": "1", "fix": "1"},
        damage=Damage(duplicate_share=5e-4, bad_stamp_share=5e-4, bad_value_share=2e-3),
        jump={"lat_deg": 0.0011, "lon_deg": -0.0015},  # 120 m by multipath
    ),
    "aba": Sensor(
        file="aba.parquet",
        clock_id="vibration",
        encoding="ticks_us_u32",
        rate_hz=1_000.0,
        measure=_axle_box,
        units={"acc_g": "g"},
        damage=Damage(
            jitter_ms=0.03,
            num_gaps=2,
            gap_s=(0.5, 15.0),
            duplicate_share=1e-4,
            late_row_share=5e-5,
            bad_stamp_share=2.5e-4,
            missing_share=1e-4,
            bad_value_share=5e-5,
        ),
        spike={"acc_g": 512.0},
    ),
    "pneu": Sensor(
        file="pneu.csv",
        clock_id="brake",
        encoding="local_text",
        rate_hz=10.0,
        measure=_pneumatics,
        units={"res_bar": "bar", "pipe_bar": "bar", "comp_on": "1"},
        latency_ms=40.0,
        damage=Damage(
            jitter_ms=2.5,
            late_stamp_share=0.003,
            num_gaps=1,
            gap_s=(5.0, 40.0),
            duplicate_share=5e-4,
            late_row_share=2e-4,
            bad_stamp_share=2e-4,
            missing_share=5e-4,
            bad_value_share=2e-4,
        ),
        spike={"res_bar": 25.5, "pipe_bar": 25.5},
    ),
    "trk": Sensor(
        file="trk.parquet",
        clock_id="geometry",
        encoding="epoch_us",
        rate_hz=25.0,
        measure=_track,
        units={"rail_temp_c": "degC", "cant_mm": "mm"},
        latency_ms=12.0,
        damage=Damage(
            jitter="normal",
            jitter_ms=0.4,
            num_gaps=1,
            duplicate_share=2e-4,
            late_row_share=1e-4,
            bad_stamp_share=2e-4,
            missing_share=3e-4,
            bad_value_share=1e-4,
        ),
        spike={"rail_temp_c": -999.0, "cant_mm": 999.0},
    ),
    "tmp": Sensor(
        file="tmp.csv",
        clock_id="axle",
        encoding="epoch_s",
        rate_hz=1.0,
        measure=_bearing,
        units={"bearing_c": "degC"},
        latency_ms=250.0,
        damage=Damage(
            jitter="normal",
            jitter_ms=4.0,
            num_gaps=1,
            gap_s=(5.0, 45.0),
            duplicate_share=1e-3,
            late_row_share=5e-4,
            bad_stamp_share=1e-3,
            missing_share=2e-3,
            bad_value_share=5e-4,
        ),
        spike={"bearing_c": -273.1},
    ),
}
"""The regular sensors. Events (`evt`) have no rate and are made by `events`."""

EVENTS = Sensor(
    file="evt.csv",
    clock_id="control",
    encoding="epoch_ms",
    rate_hz=None,
    measure=lambda world, since_ns_T, random: {},
    units={"kind": "", "ref": ""},
    damage=Damage(jitter_ms=1.5, duplicate_share=0.01, bad_stamp_share=0.005),
)
