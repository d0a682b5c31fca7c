"""How the train moves: position, speed, braking and doors over a trip, and where its wheels slip.

A driver follows the speed limits, brakes for the stations along the service braking curve, waits there with open doors
and accelerates as adhesion and power allow, with limited jerk. Everything lies on a grid of `STEP_S`; between grid
points the acceleration is constant, so that position and speed at any instant follow from the grid exactly.

Shape suffixes: K = grid points, P = points of the route, T = rows of a sensor.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.simulate.route import STEP_M, Route
from pipelines.simulate.streams import compiled

STEP_S = 0.05
STEP_NS = 50_000_000
MARGIN_S = 5.0
"""The grid goes on past the end of the trip, so that rows at the very end need no special case."""

SERVICE_BRAKE_MPS2 = 0.6
MAX_ACCELERATION_MPS2 = 0.9
POWER_TO_MASS_W_PER_KG = 9.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Motion:
    """One trip, on the grid."""

    time_s_K: np.ndarray
    """Seconds since the start of the trip."""

    line_m_K: np.ndarray
    speed_mps_K: np.ndarray
    brake_K: np.ndarray
    """Brake demand: 0 released, 1 full service."""

    wheel_m_K: np.ndarray
    """Distance that the wheel's circumference has rolled; differs from the train's by slip."""

    wheel_mps_K: np.ndarray
    door_open_s: np.ndarray
    door_close_s: np.ndarray
    slip_s: list[tuple[float, float]]
    """Intervals in which the wheel slips or slides."""

    def at(self, since_ns_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return `(line_m_T, speed_mps_T)` at instants given in nanoseconds since the start."""
        line_m_T, speed_mps_T = between_grid_points(since_ns_T, self.line_m_K, self.speed_mps_K)
        return line_m_T, speed_mps_T

    def wheel_at(self, since_ns_T: np.ndarray) -> np.ndarray:
        """Return how far the wheel has rolled at instants given in nanoseconds since the start."""
        wheel_m_T, _ = between_grid_points(since_ns_T, self.wheel_m_K, self.wheel_mps_K)
        return wheel_m_T

    def on_grid(self, values_K: np.ndarray, since_ns_T: np.ndarray) -> np.ndarray:
        """Interpolate another quantity on the same grid."""
        return np.asarray(np.interp(since_ns_T * 1e-9, self.time_s_K, values_K))


def drive(
    route: Route,
    random: np.random.Generator,
    slip_random: np.random.Generator,
    *,
    duration_s: float,
    slipperiness: float,
) -> Motion:
    """Drive from the first station for `duration_s`; the wheel slips `slipperiness` times as often as on most days."""
    time_s_K = np.arange(0.0, duration_s + MARGIN_S, STEP_S)
    allowed_mps_P = _braking_curves(route, limit_factor=random.uniform(0.86, 1.0))
    dwell_s_S = random.uniform(30.0, 75.0, size=len(route.station_m_S))
    dwell_s_S[0] = random.uniform(20.0, 50.0)
    line_m_K, speed_mps_K, stop_s, go_s = _run(
        len(time_s_K), allowed_mps_P, route.station_m_S, dwell_s_S, _driver_noise(random, len(time_s_K))
    )
    is_served = (stop_s >= 0.0) & (go_s - 5.0 > stop_s) & (go_s < duration_s)
    slip_K, slip_s = _slips(time_s_K, speed_mps_K, slip_random, duration_s, slipperiness)
    wheel_mps_K = speed_mps_K * (1.0 + slip_K)
    wheel_m_K = np.concatenate([[0.0], np.cumsum((wheel_mps_K[1:] + wheel_mps_K[:-1]) * (STEP_S / 2))])
    return Motion(
        time_s_K=time_s_K,
        line_m_K=line_m_K,
        speed_mps_K=speed_mps_K,
        brake_K=_brake_demand(speed_mps_K),
        wheel_m_K=wheel_m_K,
        wheel_mps_K=wheel_mps_K,
        door_open_s=stop_s[is_served] + random.uniform(1.0, 3.0, size=int(is_served.sum())),
        door_close_s=go_s[is_served] - random.uniform(2.0, 4.0, size=int(is_served.sum())),
        slip_s=slip_s,
    )


@compiled
def between_grid_points(
    since_ns_T: np.ndarray, distance_m_K: np.ndarray, speed_mps_K: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distance and speed at any instant, exact for the constant acceleration within each step of the grid."""
    distance_m_T = np.empty(len(since_ns_T))
    speed_mps_T = np.empty(len(since_ns_T))
    last = len(distance_m_K) - 2
    for i in range(len(since_ns_T)):
        k = min(max(since_ns_T[i] // STEP_NS, 0), last)
        within_s = (since_ns_T[i] - k * STEP_NS) * 1e-9
        acceleration = (speed_mps_K[k + 1] - speed_mps_K[k]) / STEP_S
        distance_m_T[i] = distance_m_K[k] + within_s * (speed_mps_K[k] + 0.5 * acceleration * within_s)
        speed_mps_T[i] = speed_mps_K[k] + acceleration * within_s
    return distance_m_T, speed_mps_T


def _braking_curves(route: Route, *, limit_factor: float) -> np.ndarray:
    """Speed allowed at every point, so that each lower limit ahead is met with the service brake."""
    allowed_mps_P = route.speed_limit_mps_P * limit_factor
    for i in range(len(allowed_mps_P) - 2, -1, -1):
        reachable = np.sqrt(allowed_mps_P[i + 1] ** 2 + 2 * SERVICE_BRAKE_MPS2 * STEP_M)
        allowed_mps_P[i] = min(allowed_mps_P[i], reachable)
    return np.asarray(allowed_mps_P)


def _driver_noise(random: np.random.Generator, num_steps: int) -> np.ndarray:
    """Relative deviation from the allowed speed that a human keeps: a few per cent below it, slowly wandering."""
    every = 400
    knots = random.normal(-0.03, 0.02, size=num_steps // every + 2)
    return np.interp(np.arange(num_steps), np.arange(len(knots)) * every, np.clip(knots, -0.09, 0.0))


@compiled
def _run(
    num_steps: int,
    allowed_mps_P: np.ndarray,
    station_m_S: np.ndarray,
    dwell_s_S: np.ndarray,
    deviation_K: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Step through the trip; return position, speed, and when the train stopped at and left each station (or -1)."""
    line_m_K = np.empty(num_steps)
    speed_mps_K = np.empty(num_steps)
    stop_s_S = np.full(len(station_m_S), -1.0)
    go_s_S = np.full(len(station_m_S), -1.0)
    station = 0
    position, speed, acceleration = station_m_S[0], 0.0, 0.0
    leave_s = dwell_s_S[0]
    is_waiting = True
    stop_s_S[0] = 0.0
    for k in range(num_steps):
        line_m_K[k] = position
        speed_mps_K[k] = speed
        now_s = k * STEP_S
        if is_waiting:
            if now_s < leave_s or station + 1 >= len(station_m_S):
                continue
            go_s_S[station] = now_s
            station += 1
            is_waiting = False
        to_stop_m = station_m_S[station] - position
        if to_stop_m < 0.3 or (to_stop_m < 3.0 and speed < 0.25):
            next_speed = max(speed - 1.0 * STEP_S, 0.0)
            acceleration = 0.0
            if next_speed == 0.0:
                is_waiting = True
                stop_s_S[station] = now_s
                leave_s = now_s + dwell_s_S[station]
        else:
            ahead_m = position + speed * 1.0
            cell = min(int(ahead_m / STEP_M), len(allowed_mps_P) - 2)
            share = ahead_m / STEP_M - cell
            allowed = (allowed_mps_P[cell] * (1.0 - share) + allowed_mps_P[cell + 1] * share) * (1.0 + deviation_K[k])
            for_stop = np.sqrt(2.0 * SERVICE_BRAKE_MPS2 * 0.9 * max(to_stop_m - speed * 0.6, 0.0))
            target = max(min(allowed, for_stop), 0.4)
            tractive = min(MAX_ACCELERATION_MPS2, POWER_TO_MASS_W_PER_KG / max(speed, 1.0)) - 0.015 - 2e-5 * speed**2
            wanted = min(max((target - speed) / 1.2, -1.1), tractive)
            acceleration += min(max(wanted - acceleration, -0.8 * STEP_S), 0.6 * STEP_S)
            next_speed = max(speed + acceleration * STEP_S, 0.0)
        position += 0.5 * (speed + next_speed) * STEP_S
        speed = next_speed
    return line_m_K, speed_mps_K, stop_s_S, go_s_S


def _brake_demand(speed_mps_K: np.ndarray) -> np.ndarray:
    """Brake demand behind the deceleration, and the holding brake of a standing train."""
    deceleration_K = -np.gradient(speed_mps_K, STEP_S)
    demand_K = np.where(deceleration_K > 0.08, deceleration_K / 1.1, 0.0)
    return np.clip(np.where(speed_mps_K < 0.05, 0.45, demand_K), 0.0, 1.0)


def _slips(
    time_s_K: np.ndarray,
    speed_mps_K: np.ndarray,
    random: np.random.Generator,
    duration_s: float,
    slipperiness: float,
) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """Let the wheel spin under traction and slide under braking, more often on days of low adhesion."""
    acceleration_K = np.gradient(speed_mps_K, STEP_S)
    is_pulling_K = (acceleration_K > 0.3) & (speed_mps_K > 1.5)
    is_braking_K = (acceleration_K < -0.35) & (speed_mps_K > 4.0)
    expected = slipperiness * random.uniform(0.1, 0.35) * duration_s / 60.0
    slip_K = np.zeros(len(time_s_K))
    intervals = []
    next_s = 0.0
    for start_s in np.sort(random.uniform(0.0, duration_s, size=1 + random.poisson(expected * 4))):
        length_s, spin, slide = random.uniform(1.0, 6.0), random.uniform(0.05, 0.4), random.uniform(0.05, 0.5)
        first, stop = int(start_s / STEP_S), int((start_s + length_s) / STEP_S)
        if start_s < next_s or stop >= len(time_s_K) or not (is_pulling_K[first] or is_braking_K[first]):
            continue
        shape = np.sin(np.linspace(0.0, np.pi, stop - first + 1))
        slip_K[first : stop + 1] = shape * (spin if is_pulling_K[first] else -slide)
        intervals.append((first * STEP_S, stop * STEP_S))
        next_s = start_s + length_s + 2.0
    return slip_K, intervals
