"""Where on the line the train was: odometer, satellite fixes and balises fused along the route.

The state is the distance between the train's position and what its wheels have rolled. It drifts by the error of the
wheel diameter, and jumps about where wheels slip. Like the clock maps, and unlike the channels, a position uses the
whole recording: it says where a reading was taken and is nothing that a model may predict from.

Shape suffixes: T = rows of one sensor by instant, P = points of the route, M = measurements,
K = instants that matter, S = seconds.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.align import Track
from pipelines.clocks.drift import smooth_drift
from pipelines.compiled import compiled

WHEEL_SIGMA = 0.01
"""Relative error of the nominal wheel diameter: wheels wear, and are turned."""

OFF_LINE_MAX_M = 40.0
"""A fix further from the centre line than this is an outlier."""

GNSS_SIGMA_M = 5.0
"""Standard error of a fix at HDOP 1: 1.8 m, times the root of 8 because errors last for half a minute."""

BALISE_SIGMA_M = 0.6
ROLLING_NOISE_M = 0.03
"""Random walk of wheel against rail, in metres per square root of a second."""

SEEN_NOISE_M = 0.3
"""The same while the distance comes from another speed, because the wheels slip."""

SLIP_NOISE_M = 3.0
"""The same while wheels slip, or the odometer is silent, and no other speed is known."""

SLIP_MPS2 = 1.15
"""No train accelerates or brakes harder than this on adhesion alone."""

SLIP_MPS, SLIP_SHARE = 0.5, 0.02
"""Wheels slip where odometer and another speed differ by more than the larger of these."""

FAST_MPS = 5.0
GAP_S = 2.0
SECOND_NS = 1_000_000_000
MAX_SPEED_MPS = 120.0
EARTH_M_PER_DEG = 111_195.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rolled:
    """Distance that the wheels rolled, at the nominal diameter."""

    t_ns_T: np.ndarray
    distance_m_T: np.ndarray

    def at(self, t_ns: np.ndarray) -> np.ndarray:
        """Distance at other instants, linear between rows and constant beyond them."""
        since_s_T = (self.t_ns_T - self.t_ns_T[0]) * 1e-9
        return np.asarray(np.interp((t_ns - self.t_ns_T[0]) * 1e-9, since_s_T, self.distance_m_T))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Position:
    """Position at the instants asked for; NaN where nothing is known."""

    line_m: np.ndarray
    sigma_m: np.ndarray
    stats: dict[str, Any]
    """num_fixes, num_balises, num_gated, wheel_diameter_m, slip_s."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Measured:
    """Positions on the line that do not come from the wheels."""

    t_ns_M: np.ndarray
    line_m_M: np.ndarray
    sigma_m_M: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Path:
    """How far to trust a rolled distance, second by second."""

    edge_ns_S: np.ndarray
    correction_m_S: np.ndarray
    """What to add to the rolled distance at each edge between seconds."""

    noise_S: np.ndarray
    """Random walk of the distance, in metres per square root of a second."""

    slip_s: int

    def correction_at(self, t_ns: np.ndarray) -> np.ndarray:
        since_s_S = (self.edge_ns_S - self.edge_ns_S[0]) * 1e-9
        return np.asarray(np.interp((t_ns - self.edge_ns_S[0]) * 1e-9, since_s_S, self.correction_m_S))

    def noise_at(self, t_ns: np.ndarray) -> np.ndarray:
        return np.asarray(self.noise_S[(t_ns - self.edge_ns_S[0]) // SECOND_NS])


def rolled(odometer: Track, gnss: Track | None, meta: dict[str, Any]) -> Rolled:
    """Turn the pulse counter into distance, counting its overflows.

    Within a gap in the rows the counter may overflow unseen; the speed there, of the satellite receiver or else of the
    rows around, says how often.
    """
    pulses_T = odometer.values["pulses"]
    t_ns_T, pulses_T = odometer.t_ns_T[~np.isnan(pulses_T)], pulses_T[~np.isnan(pulses_T)]
    pulse_m = np.pi * float(meta["wheel_nominal_diameter_m"]) / float(meta["pulses_per_rev"])
    modulus = 2.0 ** int(meta["counter_bits"])
    span_s_T = np.diff(t_ns_T) * 1e-9
    counted_T = np.diff(pulses_T)
    counted_T -= np.round(counted_T / modulus) * modulus  # right unless half a round passed between two rows
    for gap in np.flatnonzero(span_s_T > GAP_S).tolist():
        expected = _speed_in_gap(gnss, t_ns_T, counted_T * pulse_m, gap) * span_s_T[gap] / pulse_m
        counted_T[gap] += np.round((expected - counted_T[gap]) / modulus) * modulus
    is_impossible_T = np.abs(counted_T * pulse_m) > MAX_SPEED_MPS * span_s_T + 10.0
    counted_T[is_impossible_T] = 0.0  # the counter was reset
    distance_m_T = np.concatenate([[0.0], np.cumsum(counted_T * pulse_m)])[: len(t_ns_T)]
    return Rolled(t_ns_T=t_ns_T, distance_m_T=distance_m_T)


def without_slip(wheels: Rolled, speeds: list[Track]) -> Rolled:
    """Return the rolled distance with another speed in place of the wheels' where they slip."""
    if not len(wheels.t_ns_T):
        return wheels
    checked = _checked(wheels, speeds, int(wheels.t_ns_T[0]), int(wheels.t_ns_T[-1]))
    return Rolled(t_ns_T=wheels.t_ns_T, distance_m_T=wheels.distance_m_T + checked.correction_at(wheels.t_ns_T))


def locate(
    t_ns: np.ndarray,
    tracks: dict[str, Track],
    wheels: Rolled | None,
    *,
    speeds: list[Track],
    route: pl.DataFrame | None,
    balises: pl.DataFrame | None,
) -> Position:
    """Estimate the position on the line.

    Args:
        t_ns: Instants to locate, nanoseconds UTC, ascending.
        tracks: Screened rows by sensor; `gnss` and `evt` are used.
        wheels: Distance rolled; absent: the integral of the satellite speed, or fixes alone.
        speeds: Sensors with a channel `speed_mps` that show where the wheels slip.
        route: Centre line: `line_m`, `lat_deg`, `lon_deg`.
        balises: `ref`, `line_m`.
    """
    gnss = tracks.get("gnss")
    fixes = _fixes(gnss, route)
    passed = _passed(tracks.get("evt"), balises)
    num_measured = len(fixes.t_ns_M) + len(passed.t_ns_M)
    if not num_measured or not len(t_ns):
        nothing = np.full(len(t_ns), np.nan)
        return Position(line_m=nothing, sigma_m=nothing, stats={"num_fixes": 0, "num_balises": 0})
    has_wheels = wheels is not None and len(wheels.t_ns_T) > 1
    path = wheels if wheels is not None and has_wheels else _travelled(gnss, fixes, passed)

    is_asked_K = np.concatenate([np.zeros(num_measured, dtype=bool), np.ones(len(t_ns), dtype=bool)])
    t_ns_K = np.concatenate([fixes.t_ns_M, passed.t_ns_M, t_ns])
    order = np.argsort(t_ns_K, kind="stable")
    is_asked_K, t_ns_K = is_asked_K[order], t_ns_K[order]
    unknown = np.full(len(t_ns), np.nan)
    line_m_K = np.concatenate([fixes.line_m_M, passed.line_m_M, unknown])[order]
    sigma_m_K = np.concatenate([fixes.sigma_m_M, passed.sigma_m_M, unknown])[order]
    checked = _checked(path, speeds if has_wheels else [], int(t_ns_K[0]), int(t_ns_K[-1]))
    path_m_K = path.at(t_ns_K) + checked.correction_at(t_ns_K)
    noise_K = checked.noise_at(t_ns_K) ** 2 * np.diff(t_ns_K, prepend=t_ns_K[0]) * 1e-9
    drift = smooth_drift(
        np.diff(path_m_K, prepend=path_m_K[0]),
        line_m_K - path_m_K,
        sigma_m_K,
        noise_K,
        np.zeros(len(t_ns_K)),
        WHEEL_SIGMA,
    )
    return Position(
        line_m=(path_m_K + drift.level_K)[is_asked_K],
        sigma_m=drift.level_sigma_K[is_asked_K],
        stats={
            "num_fixes": len(fixes.t_ns_M),
            "num_balises": len(passed.t_ns_M),
            "num_gated": int(drift.is_gated_K.sum()),
            "wheel_scale": 1.0 + float(drift.slope_K[-1]) if has_wheels else None,
            "slip_s": checked.slip_s if has_wheels else None,
        },
    )


def project(lat_deg_M: np.ndarray, lon_deg_M: np.ndarray, route: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest position on the centre line, in `line_m`, and the distance from it, in metres."""
    lat_deg_P, lon_deg_P = route["lat_deg"].to_numpy(), route["lon_deg"].to_numpy()
    # A flat map around the middle of the route. Its scale is not quite true away from there, which does not matter:
    # what is looked for is a share of the few metres between two surveyed points.
    north_m = EARTH_M_PER_DEG
    east_m = EARTH_M_PER_DEG * np.cos(np.deg2rad(lat_deg_P.mean()))
    lat_deg, lon_deg = lat_deg_P[0], lon_deg_P[0]
    return _nearest_on_line(
        (lon_deg_M - lon_deg) * east_m,
        (lat_deg_M - lat_deg) * north_m,
        (lon_deg_P - lon_deg) * east_m,
        (lat_deg_P - lat_deg) * north_m,
        route["line_m"].to_numpy(),
    )


@compiled
def _nearest_on_line(
    x_M: np.ndarray, y_M: np.ndarray, x_P: np.ndarray, y_P: np.ndarray, line_m_P: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nearest position on a polyline and distance from it; `line_m_P` is the position of the polyline's points."""
    line_m_M, off_m_M = np.empty(len(x_M)), np.empty(len(x_M))
    for m in range(len(x_M)):
        least, place_m = np.inf, 0.0
        for p in range(len(x_P) - 1):
            dx, dy = x_P[p + 1] - x_P[p], y_P[p + 1] - y_P[p]
            to_x, to_y = x_M[m] - x_P[p], y_M[m] - y_P[p]
            length_square = dx * dx + dy * dy
            share = min(max((to_x * dx + to_y * dy) / length_square, 0.0), 1.0) if length_square > 0.0 else 0.0
            square = (to_x - share * dx) ** 2 + (to_y - share * dy) ** 2
            if square < least:
                least, place_m = square, line_m_P[p] + share * (line_m_P[p + 1] - line_m_P[p])
        line_m_M[m], off_m_M[m] = place_m, np.sqrt(least)
    return line_m_M, off_m_M


def _fixes(gnss: Track | None, route: pl.DataFrame | None) -> _Measured:
    """Satellite fixes on the centre line, without those that are too far from it."""
    if gnss is None or route is None or route.height < 2:
        return _nothing()
    is_fix_T = (gnss.values["fix"] >= 2) & ~np.isnan(gnss.values["lat_deg"] + gnss.values["lon_deg"])
    if not is_fix_T.any():
        return _nothing()
    line_m_M, off_m_M = project(gnss.values["lat_deg"][is_fix_T], gnss.values["lon_deg"][is_fix_T], route)
    hdop_M = np.nan_to_num(gnss.values["hdop"][is_fix_T], nan=5.0)
    is_near_M = off_m_M <= OFF_LINE_MAX_M
    return _Measured(
        t_ns_M=gnss.t_ns_T[is_fix_T][is_near_M],
        line_m_M=line_m_M[is_near_M],
        sigma_m_M=(GNSS_SIGMA_M * np.maximum(hdop_M, 1.0))[is_near_M],
    )


def _passed(events: Track | None, balises: pl.DataFrame | None) -> _Measured:
    """Balises that were read and whose place is known."""
    if events is None or balises is None or not balises.height:
        return _nothing()
    line_m_of = dict(zip(balises["ref"].to_list(), balises["line_m"].to_list(), strict=True))
    is_known_T = np.array(
        [
            kind == "balise" and ref in line_m_of
            for kind, ref in zip(events.values["kind"], events.values["ref"], strict=True)
        ],
        dtype=bool,
    )
    line_m_M = np.array([line_m_of[ref] for ref in events.values["ref"][is_known_T]], dtype=np.float64)
    return _Measured(
        t_ns_M=events.t_ns_T[is_known_T], line_m_M=line_m_M, sigma_m_M=np.full(len(line_m_M), BALISE_SIGMA_M)
    )


def _nothing() -> _Measured:
    return _Measured(t_ns_M=np.empty(0, dtype=np.int64), line_m_M=np.empty(0), sigma_m_M=np.empty(0))


def _travelled(gnss: Track | None, *measured: _Measured) -> Rolled:
    """Integral of the satellite speed; without one a train that stands: measurements alone say where it is."""
    t_ns_T, speed_mps_T = _speed(gnss)
    if len(t_ns_T) > 1:
        span_m_T = (speed_mps_T[1:] + speed_mps_T[:-1]) / 2 * np.diff(t_ns_T) * 1e-9
        return Rolled(t_ns_T=t_ns_T, distance_m_T=np.concatenate([[0.0], np.cumsum(span_m_T)]))
    first_ns = min(int(m.t_ns_M[0]) for m in measured if len(m.t_ns_M))
    return Rolled(t_ns_T=np.array([first_ns]), distance_m_T=np.zeros(1))


def _speed(track: Track | None) -> tuple[np.ndarray, np.ndarray]:
    """Readings of a speed sensor, and their instants."""
    if track is None:
        return np.empty(0, dtype=np.int64), np.empty(0)
    is_present_T = ~np.isnan(track.values["speed_mps"])
    return track.t_ns_T[is_present_T], track.values["speed_mps"][is_present_T]


def _speed_in_gap(gnss: Track | None, t_ns_T: np.ndarray, rolled_m_T: np.ndarray, gap: int) -> float:
    """Mean speed between row `gap` and the next, in m/s."""
    seen_ns, seen_mps = _speed(gnss)
    inside = slice(*np.searchsorted(seen_ns, t_ns_T[gap : gap + 2]))
    if len(seen_mps[inside]):
        return float(seen_mps[inside].mean())
    around = np.r_[max(gap - 10, 0) : gap, gap + 1 : min(gap + 11, len(rolled_m_T))]
    span_s = float((t_ns_T[around + 1] - t_ns_T[around]).sum()) * 1e-9
    return float(rolled_m_T[around].sum()) / span_s if span_s > 0 else 0.0


def _checked(path: Rolled, speeds: list[Track], first_ns: int, last_ns: int) -> _Path:
    """Compare the path with other speeds, second by second, and go by those where the wheels slip.

    The seconds beside a slip are not trusted either.
    """
    edge_ns_S = np.arange(first_ns - 2 * SECOND_NS, last_ns + 3 * SECOND_NS, SECOND_NS)
    rolled_mps_S = np.diff(path.at(edge_ns_S))
    seen_mps_S = _seen(speeds, edge_ns_S[:-1] + SECOND_NS // 2)
    is_fast_S = (seen_mps_S > FAST_MPS) & (rolled_mps_S > FAST_MPS)
    scale = np.median(seen_mps_S[is_fast_S] / rolled_mps_S[is_fast_S]) if is_fast_S.any() else 1.0  # wear is no slip
    with np.errstate(invalid="ignore"):
        differs_S = np.abs(scale * rolled_mps_S - seen_mps_S) > np.maximum(SLIP_MPS, SLIP_SHARE * seen_mps_S)
    is_seen_S = np.isfinite(seen_mps_S)
    is_jerky_S = ~is_seen_S & (np.abs(np.diff(rolled_mps_S, prepend=rolled_mps_S[:1])) > SLIP_MPS2)
    is_silent_S = np.diff(np.searchsorted(path.t_ns_T, edge_ns_S)) == 0
    is_slip_S = np.convolve(differs_S | is_jerky_S | is_silent_S, np.ones(3), mode="same") > 0
    instead_m_S = np.where(is_slip_S & is_seen_S, seen_mps_S / scale - rolled_mps_S, 0.0)
    return _Path(
        edge_ns_S=edge_ns_S,
        correction_m_S=np.concatenate([[0.0], np.cumsum(instead_m_S)]),
        noise_S=np.where(~is_slip_S, ROLLING_NOISE_M, np.where(is_seen_S, SEEN_NOISE_M, SLIP_NOISE_M)),
        slip_s=int((differs_S | is_jerky_S).sum()),
    )


def _seen(speeds: list[Track], at_ns: np.ndarray) -> np.ndarray:
    """Speed at instants that have a reading shortly before and after, of the first sensor that has them; else NaN."""
    seen_mps = np.full(len(at_ns), np.nan)
    for track in speeds:
        t_ns_T, speed_mps_T = _speed(track)
        if len(t_ns_T) < 2:
            continue
        after = np.clip(np.searchsorted(t_ns_T, at_ns), 1, len(t_ns_T) - 1)
        is_near = (at_ns - t_ns_T[after - 1] < 1.5 * SECOND_NS) & (t_ns_T[after] - at_ns < 1.5 * SECOND_NS)
        between_mps = np.interp((at_ns - t_ns_T[0]) * 1e-9, (t_ns_T - t_ns_T[0]) * 1e-9, speed_mps_T)
        seen_mps = np.where(np.isnan(seen_mps) & is_near, between_mps, seen_mps)
    return seen_mps
