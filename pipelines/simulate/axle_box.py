"""Vertical acceleration of the axle box: the rail's roughness, its defects, and the bearing inside.

Three resonators share the signal: one is driven by rolling noise that grows with speed and with the roughness of the
section, one is struck by every rail defect that the wheel passes, and one, high up, by every rolling element that
passes a damaged bearing race.

Shape suffixes: T = samples, K = points of the time grid of `motion`, P = points of the route, D = rail defects.
"""

import numpy as np

from pipelines.simulate.motion import STEP_NS, STEP_S, Motion
from pipelines.simulate.physics import Vehicle
from pipelines.simulate.route import STEP_M, Route
from pipelines.simulate.streams import compiled

BALL_PASSES_PER_REV = 7.4
FULL_SCALE_G = 50.0
RESOLUTION_G = 1 / 512


def vibration(
    route: Route,
    motion: Motion,
    since_ns_T: np.ndarray,
    random: np.random.Generator,
    vehicle: Vehicle,
    excess_friction_K: np.ndarray,
) -> np.ndarray:
    """Return the acceleration in g at the given instants, as its converter writes it."""
    if len(since_ns_T) < 2:
        return np.zeros(len(since_ns_T), dtype=np.float32)
    rate_hz = 1e9 * (len(since_ns_T) - 1) / float(since_ns_T[-1] - since_ns_T[0])
    acc_g_T: np.ndarray = _shake(
        since_ns_T,
        random.standard_normal(len(since_ns_T), dtype=np.float32),
        motion.line_m_K,
        motion.speed_mps_K,
        excess_friction_K,
        route.roughness_P,
        route.defect_m_D,
        BALL_PASSES_PER_REV / (np.pi * vehicle.wheel_diameter_m),
        _resonator(rate_hz, min(85.0, 0.2 * rate_hz), 0.93),
        _resonator(rate_hz, min(48.0, 0.15 * rate_hz), 0.97),
        _resonator(rate_hz, 0.38 * rate_hz, 0.9),
    )
    return acc_g_T


def _resonator(rate_hz: float, centre_hz: float, damping: float) -> tuple[float, float, float]:
    """Coefficients `(c1, c2, gain)` of `y = c1 y[-1] + c2 y[-2] + gain x` that keep the variance of white `x`."""
    c1, c2 = 2.0 * damping * float(np.cos(2.0 * np.pi * centre_hz / rate_hz)), -(damping**2)
    variance = (1.0 - c2) / ((1.0 + c2) * ((1.0 - c2) ** 2 - c1**2))
    return c1, c2, 1.0 / float(np.sqrt(variance))


@compiled
def _shake(
    since_ns_T: np.ndarray,
    noise_T: np.ndarray,
    line_m_K: np.ndarray,
    speed_mps_K: np.ndarray,
    excess_friction_K: np.ndarray,
    roughness_P: np.ndarray,
    defect_m_D: np.ndarray,
    balls_per_m: float,
    rolling: tuple[float, float, float],
    knock: tuple[float, float, float],
    ball: tuple[float, float, float],
) -> np.ndarray:
    acc_g_T = np.empty(len(since_ns_T), dtype=np.float32)
    last_k = len(line_m_K) - 2
    defect = 0
    while defect < len(defect_m_D) and defect_m_D[defect] < line_m_K[0]:
        defect += 1
    balls_passed = int(line_m_K[0] * balls_per_m)
    r1 = r2 = n1 = n2 = b1 = b2 = 0.0
    for i in range(len(since_ns_T)):
        k = min(since_ns_T[i] // STEP_NS, last_k)
        share = (since_ns_T[i] - k * STEP_NS) / STEP_NS
        speed = speed_mps_K[k] + share * (speed_mps_K[k + 1] - speed_mps_K[k])
        place = line_m_K[k] + share * STEP_S * (speed_mps_K[k] + 0.5 * share * (speed_mps_K[k + 1] - speed_mps_K[k]))
        relative = speed / 30.0
        strength = relative * np.sqrt(relative)
        r = rolling[0] * r1 + rolling[1] * r2 + rolling[2] * noise_T[i]
        r2, r1 = r1, r
        struck = 0.0
        if defect < len(defect_m_D) and place >= defect_m_D[defect]:
            struck = 6.0 * relative * (0.5 + (defect * 0.618033988749895) % 1.0)
            defect += 1
        n = knock[0] * n1 + knock[1] * n2 + struck
        n2, n1 = n1, n
        balls = int(place * balls_per_m)
        hit = 0.0
        if balls > balls_passed:
            # The rolling elements slide a little, so that no two hits are alike.
            hit = excess_friction_K[k] * relative * (1.6 + 0.5 * noise_T[i])
            balls_passed = balls
        b = ball[0] * b1 + ball[1] * b2 + hit
        b2, b1 = b1, b
        acc_g = 0.02 * noise_T[i] + 1.1 * strength * roughness_P[int(place / STEP_M)] * r + n + b
        acc_g = min(max(acc_g, -FULL_SCALE_G), FULL_SCALE_G)
        acc_g_T[i] = np.rint(acc_g / RESOLUTION_G) * RESOLUTION_G
    return acc_g_T
