"""One simulated trip: what its bundle would hold, and the truth about every row of it.

Shape suffixes: K = points of the time grid of `motion`, T = rows as they were measured.
"""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from pipelines.simulate.clocks import GPS_MINUS_UTC_S, Clock, Servers, exchange, make_clock, make_servers
from pipelines.simulate.damage import NO_DAMAGE
from pipelines.simulate.difficulty import DEFAULT, Difficulty
from pipelines.simulate.faults import COMPRESSOR_LEAK, HOT_BEARING, Fault
from pipelines.simulate.motion import Motion, drive
from pipelines.simulate.physics import Vehicle, breathe, warm_up
from pipelines.simulate.recorder import record
from pipelines.simulate.route import build_route
from pipelines.simulate.sensors import EVENTS, SENSORS, Reading, Sensor, World, events, instants
from pipelines.simulate.streams import stream

TIME_ZONE = "Europe/Zurich"
START_DATE = date(2026, 1, 5)
MINUTES_PER_ROUTE_BLOCK = 25.0
"""No train gets through a block of 40 km in less, so a longer trip needs a longer line."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trip:
    """A trip in memory. `frames` and the tables are the files of its bundle; `truth` stays apart."""

    vehicle: str
    day: str
    trip_id: str
    frames: dict[str, pl.DataFrame]
    """Per sensor the rows as they are stored, stamps included."""

    ntp_log: pl.DataFrame
    route: pl.DataFrame
    balises: pl.DataFrame
    meta: dict[str, Any]
    truth: "Truth"

    @property
    def num_rows(self) -> int:
        """Rows of all sensors together."""
        return sum(frame.height for frame in self.frames.values())


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Truth:
    """What only a simulation can know."""

    rows: dict[str, pl.DataFrame]
    """Per sensor: row, t_utc_ns (null: must be rejected), line_m, value_ok, reason."""

    measured_utc_ns: dict[str, np.ndarray]
    """Per sensor when each row was measured, those that must be rejected included."""

    clocks: pl.DataFrame
    """clock_id, t_utc_ns, device_minus_utc_ns; linear in between, steps of `facts` not included."""

    facts: dict[str, Any]
    """Clock summaries, wheel, slip intervals, servers, fault: the content of `truth.json`."""


def simulate_trip(
    *,
    seed: int,
    vehicle: int = 0,
    day: int = 0,
    trip: int = 0,
    fault: Fault | None = None,
    start_date: date = START_DATE,
    departure_hour_utc: float = 5.0,
    trip_minutes: float = 30.0,
    aba_rate_hz: float = 1_000.0,
    clean: bool = False,
    difficulty: Difficulty = DEFAULT,
) -> Trip:
    """Simulate one trip in memory.

    The result depends on the arguments alone. A fault changes only what it acts upon: the same call without it gives
    the same drive, clocks and row defects.

    Args:
        seed: Seed of the fleet.
        vehicle: Position in the fleet, from 0.
        day: Days after `start_date`, from 0.
        trip: Trip of that day, from 0; trips of one day are three hours apart.
        fault: What breaks, if anything.
        start_date: First day of the fleet.
        departure_hour_utc: The first trip of a day starts within 50 minutes after this hour. With 2026-10-25 and 0.5
            most trips see the end of summer time.
        trip_minutes: Length of the trip; less than 120.
        aba_rate_hz: Rate of the axle-box accelerometer, the heaviest sensor by far.
        clean: Whether clocks are right and no row is delayed, lost, repeated or damaged. Tunnels and slip remain.
        difficulty: What goes wrong, and how badly. If it ends summer time, the trips start then, whatever
            `start_date` and `departure_hour_utc` say.
    """
    if not 1.0 <= trip_minutes <= 120.0:
        raise ValueError(f"trip_minutes is {trip_minutes:g}; expected 1 to 120, so that trips of a day do not overlap")
    if not 10.0 <= aba_rate_hz <= 25_600.0:
        raise ValueError(f"aba_rate_hz is {aba_rate_hz:g}; expected 10 to 25600")
    if not 0.0 <= departure_hour_utc <= 21.0 - 3.0 * trip:
        raise ValueError(
            f"departure_hour_utc is {departure_hour_utc:g}; expected 0 to {21.0 - 3.0 * trip:g}, so that trip {trip} "
            "ends on the day it is filed under"
        )
    path = (seed, vehicle, day, trip)
    duration_s = trip_minutes * 60.0
    if difficulty.ends_summer_time:
        start_date = _last_sunday_of_october(start_date.year)
    service_day = start_date + timedelta(days=day)
    if difficulty.ends_summer_time:
        start_ns = _start_in_repeated_hour_ns(service_day, 3.0 * trip, stream(*path, "departure"), duration_s)
    else:
        start_ns = _start_ns(service_day, departure_hour_utc + 3.0 * trip, stream(*path, "departure"))
    world = _world(path, make_vehicle(seed, vehicle), fault, difficulty, duration_s=duration_s, is_clean=clean)
    specs = difficulty.clocks()
    clocks = {
        clock_id: make_clock(
            clock_id, spec, stream(*path, "clock", clock_id), start_ns=start_ns, duration_s=duration_s, is_perfect=clean
        )
        for clock_id, spec in specs.items()
    }
    servers = make_servers(difficulty.servers(), stream(*path, "servers"), duration_s=duration_s, are_honest=clean)
    ntp_random = {clock_id: stream(*path, "ntp", clock_id) for clock_id in clocks}

    usual = sensors_of(vehicle, aba_rate_hz=aba_rate_hz)
    sensors = {name: difficulty.sensor(name, sensor) for name, sensor in usual.items()}
    frames, truths, measured_utc_ns = {}, {}, {}
    for name, sensor in sensors.items():
        reading = _measure(name, sensor, world, path)
        clock = clocks[sensor.clock_id]
        frames[name], truths[name], measured_utc_ns[name] = record(
            sensor,
            reading,
            clock,
            lambda since_ns_T: world.route.measured(world.motion.at(since_ns_T)[0], from_end=difficulty.against_line),
            stream(*path, name, "rows"),
            damage=NO_DAMAGE if clean else difficulty.around_steps(sensor.damage, clock),
            time_zone=TIME_ZONE,
        )
    name_of_day = service_day.isoformat()
    trip_id = f"{world.vehicle.name}-{name_of_day}-{trip + 1}"
    return Trip(
        vehicle=world.vehicle.name,
        day=name_of_day,
        trip_id=trip_id,
        frames=frames,
        ntp_log=exchange(list(clocks.values()), ntp_random, servers, duration_s=duration_s),
        route=world.route.centre_line(from_end=difficulty.against_line),
        balises=world.route.balises(from_end=difficulty.against_line),
        meta=_manifest(trip_id, world.vehicle, sensors, clocks, start_ns, stream(*path, "hint")),
        truth=Truth(
            rows=truths,
            measured_utc_ns=measured_utc_ns,
            clocks=pl.concat([clock.truth() for clock in clocks.values()]),
            facts=_facts(trip_id, world, clocks, servers, fault, start_ns),
        ),
    )


def make_vehicle(seed: int, vehicle: int) -> Vehicle:
    """Draw what stays the same for this vehicle on every day."""
    random = stream(seed, "vehicle", vehicle)
    nominal_m = float(random.choice([0.84, 0.92, 1.0]))
    return Vehicle(
        name=f"sim{vehicle + 1:03d}",
        wheel_nominal_diameter_m=nominal_m,
        wheel_diameter_m=round(nominal_m * (1.0 - random.uniform(0.0005, 0.012)), 6),
        pulses_per_rev=int(random.choice([80, 100, 128])),
        counter_bits=16 if vehicle % 2 == 0 else 32,
        radar_scale=float(1.0 + random.uniform(-0.002, 0.002)),
        fill_bar_per_s=float(random.uniform(0.04, 0.05)),
        air_use_bar_per_s=float(random.uniform(0.0025, 0.0045)),
        bearing_friction=float(random.uniform(0.85, 1.15)),
    )


def sensors_of(vehicle: int, *, aba_rate_hz: float) -> dict[str, Sensor]:
    """Return the sensors of a vehicle; every other one has the logger that stamps bearing rows in milliseconds."""
    tmp = SENSORS["tmp"] if vehicle % 2 == 0 else replace(SENSORS["tmp"], encoding="epoch_ms")
    return SENSORS | {"tmp": tmp, "aba": replace(SENSORS["aba"], rate_hz=aba_rate_hz), "evt": EVENTS}


def _start_ns(service_day: date, earliest_hour: float, random: np.random.Generator) -> int:
    """A full second within 50 minutes after the earliest departure."""
    midnight_s = int(datetime(service_day.year, service_day.month, service_day.day, tzinfo=UTC).timestamp())
    return (midnight_s + round(earliest_hour * 3_600) + int(random.integers(0, 3_000))) * 1_000_000_000


def _last_sunday_of_october(year: int) -> date:
    last_day = date(year, 10, 31)
    return last_day - timedelta(days=last_day.isoweekday() % 7)


def _start_in_repeated_hour_ns(
    service_day: date, later_by_h: float, random: np.random.Generator, duration_s: float
) -> int:
    """A full second such that the first trip sees 01:00 UTC, when the local hour begins again."""
    earliest_s = max(3_600.0 - 0.8 * duration_s, 0.0)
    midnight_s = int(datetime(service_day.year, service_day.month, service_day.day, tzinfo=UTC).timestamp())
    within_day_s = later_by_h * 3_600.0 + random.uniform(earliest_s, 3_600.0 - 0.2 * duration_s)
    return (midnight_s + int(within_day_s)) * 1_000_000_000


def _world(
    path: tuple[int, ...],
    vehicle: Vehicle,
    fault: Fault | None,
    difficulty: Difficulty,
    *,
    duration_s: float,
    is_clean: bool,
) -> World:
    route = build_route(int(np.ceil(duration_s / 60.0 / MINUTES_PER_ROUTE_BLOCK)), difficulty.tunnels_m)
    motion = drive(
        route,
        stream(*path, "drive"),
        stream(*path, "slip"),
        duration_s=duration_s,
        slipperiness=difficulty.slipperiness,
    )
    weather = stream(path[0], "weather", path[2])
    ambient_c = weather.uniform(-6.0, 24.0) + stream(*path, "ambient").normal(0.0, 1.5)
    ambient_c_K = ambient_c + 1.5 * np.sin(motion.time_s_K / 3_000.0)
    excess_friction_K = _grow(motion, fault if fault and fault.kind == HOT_BEARING else None, duration_s)
    leak_bar_per_s_K = _grow(motion, fault if fault and fault.kind == COMPRESSOR_LEAK else None, duration_s)
    bearing_c_K = warm_up(
        motion, vehicle, stream(*path, "bearing"), ambient_c_K=ambient_c_K, excess_friction_K=excess_friction_K
    )
    return World(
        route=route,
        vehicle=vehicle,
        motion=motion,
        air=breathe(motion, vehicle, stream(*path, "air"), leak_bar_per_s_K=leak_bar_per_s_K),
        ambient_c_K=ambient_c_K,
        bearing_c_K=bearing_c_K,
        excess_friction_K=excess_friction_K,
        sun_k=float(weather.uniform(0.0, 12.0)),
        multipath_share=difficulty.multipath_share,
        duration_s=duration_s,
        is_clean=is_clean,
    )


def _grow(motion: Motion, fault: Fault | None, duration_s: float) -> np.ndarray:
    """Severity along the trip: grows from the onset over a fifth of the trip, then stays."""
    if fault is None:
        return np.zeros(len(motion.time_s_K))
    onset_s = fault.onset * duration_s
    return np.asarray(np.interp(motion.time_s_K, [onset_s, onset_s + 0.2 * duration_s], [0.0, fault.severity]))


def _measure(name: str, sensor: Sensor, world: World, path: tuple[int, ...]) -> Reading:
    if sensor.rate_hz is None:
        return events(world, stream(*path, name, "events"))
    if sensor.encoding == "gps_tow":
        # A receiver measures on the full second of GPS time, which is a full second of UTC, as is the start.
        since_ns_T = np.arange(1, int(world.duration_s)) * 1_000_000_000
    else:
        since_ns_T = instants(world, sensor.rate_hz, stream(*path, name, "timer"))
    columns: dict[str, np.ndarray | pl.Series] = {**sensor.measure(world, since_ns_T, stream(*path, name, "noise"))}
    return Reading(since_ns_T=since_ns_T, columns=columns)


def _manifest(
    trip_id: str,
    vehicle: Vehicle,
    sensors: dict[str, Sensor],
    clocks: dict[str, Clock],
    start_ns: int,
    random: np.random.Generator,
) -> dict[str, Any]:
    hint = datetime.fromtimestamp(round(start_ns / 1e9 + random.uniform(-540.0, 540.0)), tz=UTC)
    return {
        "trip_id": trip_id,
        "vehicle": vehicle.name,
        "simulated": True,
        "sensors": {
            name: {
                "file": sensor.file,
                "clock_id": sensor.clock_id,
                "encoding": sensor.encoding,
                "nominal_rate_hz": sensor.rate_hz,
                "latency_ms": sensor.latency_ms,
                "channels": sensor.units,
            }
            for name, sensor in sensors.items()
        },
        "clocks": {
            clock_id: {"kind": clock.spec.kind, "ntp": clock.spec.link is not None, "ntp_unit": clock.spec.ntp_unit}
            for clock_id, clock in clocks.items()
        },
        "time_zone": TIME_ZONE,
        "wheel_nominal_diameter_m": vehicle.wheel_nominal_diameter_m,
        "pulses_per_rev": vehicle.pulses_per_rev,
        "counter_bits": vehicle.counter_bits,
        "gps_minus_utc_s": GPS_MINUS_UTC_S,
        "time_zero_hint_utc": hint.isoformat().replace("+00:00", "Z"),
    }


def _facts(
    trip_id: str, world: World, clocks: dict[str, Clock], servers: Servers, fault: Fault | None, start_ns: int
) -> dict[str, Any]:
    end_ns = start_ns + round(world.duration_s * 1e9)
    return {
        "simulated": True,
        "trip_id": trip_id,
        "start_utc_ns": start_ns,
        "end_utc_ns": end_ns,
        "clocks": {clock_id: clock.facts() for clock_id, clock in clocks.items()},
        "lying_servers": sorted(servers.lies),
        "wheel_diameter_m": world.vehicle.wheel_diameter_m,
        "slip_utc_ns": [
            [start_ns + round(from_s * 1e9), start_ns + round(to_s * 1e9)]
            for from_s, to_s in world.motion.slip_s
            if from_s < world.duration_s
        ],
        "fault": fault
        and {
            "kind": fault.kind,
            "severity": fault.severity,
            "start_utc_ns": start_ns + round(fault.onset * world.duration_s * 1e9),
            "end_utc_ns": end_ns,
        },
    }
