"""Where on the line the train was, at any instant of a recording.

Like the clock maps, and unlike the channels, a position uses the whole recording: it says where a reading was taken and
is nothing that a model may predict from.

Shape suffixes: M = measured places in order of time, E = edges of the cells of `Travel`, C = those cells, K = knots of
the filter, N = instants asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from pipelines.align import Track
from pipelines.compiled import compiled
from pipelines.position.centre_line import CentreLine, centre_line
from pipelines.position.distance import rolled, travelled, wheel_of
from pipelines.position.fuse import Fused, Knots, Noise, fuse, most_probable
from pipelines.position.places import Places, is_outlier, measured_places, off_route
from pipelines.position.travel import Travel, runs, sums, travel

MAX_SIGMA_M = 300.0
"""A place less certain than this is none."""

MAX_BEYOND_M = 50.0
"""A train may stand this far beyond the end of the surveyed line; further out its place is not given."""

LEG_STOP_S, STANDS_M = 3.0, 0.1
"""A train that moves less than this in that time stands, and may leave in the other direction."""

MIN_LEG_M = 20.0
"""A leg longer than this shows its direction in the places measured on it."""

BREAK_SIGMAS, MAX_BREAKS = 6.0, 20
"""Places that from some moment on are off by more than this, all in the same way, are right and the distance is not."""

OUTLIER_SIGMAS = 4.5
"""A measurement this far from what all others say is an outlier."""

STAMP_SIGMA_S = 1e-3
"""Standard error that all stamps share which the distance rests on: it does not average out, and counts at speed."""

USUAL_NOISE = Noise()
WITHOUT_WHEEL = Noise(rolling=0.05)

PLACED, NO_REFERENCE, OUTSIDE_RECORDING, OFF_ROUTE, UNCERTAIN = range(5)
REASONS = ("", "no_reference", "outside_recording", "off_route", "uncertain")
"""Why there is no place: nothing was measured to tell it from; no row of any sensor is that early or late; the train
was not on the surveyed line; or the last place is too long ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocatedSlip:
    """An interval in which the wheel did not roll with the train, and where that was."""

    start_ns: int
    stop_ns: int
    kind: str
    """`slip`: the wheel spun under traction; `slide`: it was too slow, or locked, under braking."""

    from_line_m: float
    to_line_m: float
    """NaN where the place is unknown."""

    excess_m: float
    """How much further the wheel rolled than the train travelled; negative in a slide."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Residuals:
    """Measured minus estimated places of one kind."""

    t_ns_M: np.ndarray
    residual_m_M: np.ndarray
    is_used_M: np.ndarray
    """False for an outlier."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrackPosition:
    """The way of one train along one line."""

    travel: Travel
    line: CentreLine | None
    line_m_E: np.ndarray
    """NaN where there is a reason."""

    sigma_m_E: np.ndarray
    reason_E: np.ndarray
    """Position in `REASONS`."""

    slips: tuple[LocatedSlip, ...]
    residuals: dict[str, Residuals]
    """Of `fixes` and `balises`."""

    stats: dict[str, Any]
    """num_fixes, num_balises, num_gated; num_breaks: how often the distance was doubted to agree with them; fix_sigma_m
    and balise_sigma_m, as found; wheel_diameter_m and wheel_diameter_sigma_m where a wheel leads; num_slips, slip_s;
    unplaced_s by reason."""

    def at(self, t_ns_N: np.ndarray, clock_sigma_ns_N: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Place and its standard error, in metres along the line.

        Args:
            t_ns_N: Instants, nanoseconds UTC, in any order.
            clock_sigma_ns_N: Standard error of the instants, which adds to that of the place as the train moves.

        Returns:
            `(line_m_N, sigma_m_N)`; NaN where `reason_at` has a reason.
        """
        line_m_N, sigma_m_N, speed_mps_N = _between_edges(
            t_ns_N, self.travel.first_ns, self.travel.cell_ns, self.line_m_E, self.sigma_m_E
        )
        if clock_sigma_ns_N is not None:
            sigma_m_N = np.hypot(sigma_m_N, speed_mps_N * clock_sigma_ns_N * 1e-9)
        return line_m_N, sigma_m_N

    def reason_at(self, t_ns_N: np.ndarray) -> np.ndarray:
        """Why there is no place at instants, as positions in `REASONS`; 0 where there is one."""
        cell_N = (t_ns_N - self.travel.first_ns) // self.travel.cell_ns
        last = len(self.reason_E) - 2
        inside_N = np.clip(cell_N, 0, last)
        reason_N = np.maximum(self.reason_E[inside_N], self.reason_E[inside_N + 1])
        is_outside_N = (reason_N == PLACED) & ((cell_N < 0) | (cell_N > last))
        return np.asarray(np.where(is_outside_N, OUTSIDE_RECORDING, reason_N))

    def km_post(self, line_m_N: np.ndarray) -> np.ndarray:
        """Posted kilometre, in metres; NaN outside the surveyed line."""
        return np.full(len(line_m_N), np.nan) if self.line is None else self.line.km_post_at(line_m_N)


def travel_of(tracks: dict[str, Track], meta: dict[str, Any], *, speeds: Sequence[Track]) -> Travel:
    """Follow the train through a recording, without asking where it is.

    Args:
        tracks: Screened rows by sensor, of which `odo` is used; they say when the recording begins and ends.
        meta: What the manifest says of the wheel.
        speeds: Sensors with a channel `speed_mps`, in UTC.
    """
    distances = [distance for distance in map(travelled, speeds) if distance is not None]
    wheel = wheel_of(meta)
    wheels = rolled(tracks["odo"], wheel, distances) if wheel is not None and "odo" in tracks else None
    ends = [(int(track.t_ns_T[0]), int(track.t_ns_T[-1])) for track in tracks.values() if len(track.t_ns_T)]
    first_ns, last_ns = min((end[0] for end in ends), default=0), max((end[1] for end in ends), default=0)
    return travel(wheels, distances, first_ns=first_ns, last_ns=last_ns)


def fit_position(
    tracks: dict[str, Track],
    travelled: Travel,
    *,
    route: pl.DataFrame | None,
    balises: pl.DataFrame | None,
) -> TrackPosition:
    """Find the place of the train from where satellites and balises saw it and how far it travelled in between.

    Args:
        tracks: Screened rows by sensor, of which `gnss` and `evt` are used.
        travelled: How far the train travelled.
        route: Centre line: `line_m`, `km_post`, `lat_deg`, `lon_deg`.
        balises: `ref`, `line_m`.
    """
    line = centre_line(route)
    places = measured_places(tracks, line, balises, travelled)
    signed_m_E = _signed(travelled, places)
    signed_m_M, noise_m2_M = (travelled.between_edges(x_E, places.t_ns_M) for x_E in (signed_m_E, travelled.noise_m2_E))
    is_used_M = ~is_outlier(places, signed_m_M, noise_m2_M)
    if not is_used_M.any():
        return _unplaced(travelled, line, places)
    usual = USUAL_NOISE if travelled.is_wheel_leading else WITHOUT_WHEEL
    travelled, num_breaks = _doubted(travelled, signed_m_E, places.only(is_used_M), usual)
    for is_last in (False, True):  # outliers that spoil the first estimate are seen against it
        used = places.only(is_used_M)
        noise = most_probable(_knots(travelled, signed_m_E, used, used.t_ns_M[:0]), usual)
        knots = _knots(travelled, signed_m_E, used, travelled.t_ns_E)
        fused = fuse(knots, noise)
        is_edge_K = np.isnan(knots.line_m_K)
        line_m_E = signed_m_E + fused.level_K[is_edge_K]
        sigma_m_E = np.hypot(fused.level_sigma_K[is_edge_K], STAMP_SIGMA_S * np.gradient(signed_m_E, travelled.cell_s))
        residual_m_M = places.line_m_M - travelled.between_edges(line_m_E, places.t_ns_M)
        if not is_last:
            is_used_M &= np.abs(residual_m_M) < OUTLIER_SIGMAS * _expected_error_m(
                places, noise, travelled.between_edges(sigma_m_E, places.t_ns_M)
            )
    is_used_M[is_used_M] = ~fused.is_gated_K[~is_edge_K]
    reason_E = _reasons(travelled, line, places, line_m_E, sigma_m_E)
    line_m_E[reason_E != PLACED] = sigma_m_E[reason_E != PLACED] = np.nan
    return TrackPosition(
        travel=travelled,
        line=line,
        line_m_E=line_m_E,
        sigma_m_E=sigma_m_E,
        reason_E=reason_E,
        slips=_located(travelled, line_m_E),
        residuals={
            "fixes": _residuals(places, residual_m_M, is_used_M, ~places.is_balise_M),
            "balises": _residuals(places, residual_m_M, is_used_M, places.is_balise_M),
        },
        stats=_counts(travelled, places, is_used_M, reason_E)
        | {"num_breaks": num_breaks}
        | _found(travelled, fused, noise),
    )


def _unplaced(travelled: Travel, line: CentreLine | None, places: Places) -> TrackPosition:
    nothing_E = np.full(len(travelled.t_ns_E), np.nan)
    nothing_M = np.full(len(places.t_ns_M), np.nan)
    is_used_M = np.zeros(len(places.t_ns_M), dtype=bool)
    reason_E = np.full(len(nothing_E), NO_REFERENCE, dtype=np.uint8)
    return TrackPosition(
        travel=travelled,
        line=line,
        line_m_E=nothing_E,
        sigma_m_E=nothing_E,
        reason_E=reason_E,
        slips=_located(travelled, nothing_E),
        residuals={
            "fixes": _residuals(places, nothing_M, is_used_M, ~places.is_balise_M),
            "balises": _residuals(places, nothing_M, is_used_M, places.is_balise_M),
        },
        stats=_counts(travelled, places, is_used_M, reason_E),
    )


def _signed(travelled: Travel, places: Places) -> np.ndarray:
    """Distance travelled along the line at every edge: it falls on legs on which the train ran against the line.

    The direction of a leg, from one stop to the next, is that of the places measured on it; a leg too short or too dark
    to tell keeps the direction of the one before.
    """
    step_m_C = np.diff(travelled.distance_m_E)
    legs = runs(sums(step_m_C, max(1, round(LEG_STOP_S / travelled.cell_s))) > STANDS_M)
    directions = [_direction(travelled, places, start, stop) for start, stop in legs]
    known = [direction for direction in directions if direction]
    current = known[0] if known else _direction(travelled, places, 0, len(step_m_C)) or 1.0
    direction_C = np.full(len(step_m_C), current)
    for (start, _), direction in zip(legs, directions, strict=True):
        current = direction or current
        direction_C[start:] = current
    return np.concatenate([[0.0], np.cumsum(direction_C * step_m_C)])


def _direction(travelled: Travel, places: Places, start: int, stop: int) -> float:
    """1 or -1 as places on the line grow or fall over the cells `[start, stop)`; 0 where they do not tell."""
    ends_ns = travelled.first_ns + np.array([start, stop]) * travelled.cell_ns
    first, last = np.searchsorted(places.t_ns_M, ends_ns)
    line_m = places.line_m_M[first:last]
    line_m = line_m[~np.isnan(line_m)]
    third = max(1, len(line_m) // 3)
    if len(line_m) < 2 or travelled.distance_m_E[stop] - travelled.distance_m_E[start] < MIN_LEG_M:
        return 0.0
    gained_m = float(np.median(line_m[-third:]) - np.median(line_m[:third]))
    return float(np.sign(gained_m)) if abs(gained_m) > MIN_LEG_M else 0.0


def _doubted(travelled: Travel, signed_m_E: np.ndarray, used: Places, usual: Noise) -> tuple[Travel, int]:
    """Doubt the distance between two measurements where all later ones contradict all earlier ones; count where.

    A wheel that slips unseen, or a counter that overflows once too often, shifts everything that follows.
    """
    for num_breaks in range(MAX_BREAKS):
        fused = fuse(_knots(travelled, signed_m_E, used, used.t_ns_M[:0]), usual)
        k = int(np.argmax(fused.shift_sigmas_K[1:])) + 1 if len(used.t_ns_M) > 1 else 0
        if fused.shift_sigmas_K[k] < BREAK_SIGMAS or k == 0:
            return travelled, num_breaks
        first, last = (used.t_ns_M[k - 1 : k + 1] - travelled.first_ns) // travelled.cell_ns
        noise_m2_C = travelled.noise_m2_C.copy()
        noise_m2_C[first : last + 1] += fused.shift_m_K[k] ** 2 / (last + 1 - first)
        travelled = replace(travelled, noise_m2_C=noise_m2_C)
    return travelled, MAX_BREAKS


def _knots(travelled: Travel, signed_m_E: np.ndarray, used: Places, asked_ns: np.ndarray) -> Knots:
    t_ns_K = np.concatenate([used.t_ns_M, asked_ns])
    order = np.argsort(t_ns_K, kind="stable")
    t_ns_K = t_ns_K[order]
    unmeasured = np.full(len(asked_ns), np.nan)
    moves_C = np.diff(travelled.distance_m_E) > 0.0
    leads_C = travelled.noise_m2_C == 0.0
    rolled_s_E = np.concatenate([[0.0], np.cumsum((moves_C & leads_C) * travelled.cell_s)])
    rolled_s_K, noise_m2_K = (travelled.between_edges(x_E, t_ns_K) for x_E in (rolled_s_E, travelled.noise_m2_E))
    return Knots(
        since_s_K=(t_ns_K - t_ns_K[0]) * 1e-9,
        travelled_m_K=travelled.between_edges(signed_m_E, t_ns_K),
        rolled_s_K=np.diff(rolled_s_K, prepend=rolled_s_K[0]),
        noise_m2_K=np.diff(noise_m2_K, prepend=noise_m2_K[0]),
        line_m_K=np.concatenate([used.line_m_M, unmeasured])[order],
        is_balise_K=np.concatenate([used.is_balise_M, np.zeros(len(asked_ns), dtype=bool)])[order],
        dilution_K=np.concatenate([used.dilution_M, np.ones(len(asked_ns))])[order],
    )


def _expected_error_m(places: Places, noise: Noise, sigma_m_M: np.ndarray) -> np.ndarray:
    """Standard error of measured minus estimated place, if the measurement did not take part in the estimate."""
    fix_m_M = np.hypot(noise.fix_m, noise.fix_quick_m * places.dilution_M)
    return np.asarray(np.hypot(np.where(places.is_balise_M, noise.balise_m, fix_m_M), sigma_m_M))


def _reasons(
    travelled: Travel, line: CentreLine | None, places: Places, line_m_E: np.ndarray, sigma_m_E: np.ndarray
) -> np.ndarray:
    reason_E = np.where(sigma_m_E > MAX_SIGMA_M, UNCERTAIN, PLACED).astype(np.uint8)
    if line is not None:
        is_beyond_E = (line_m_E < line.first_m - MAX_BEYOND_M) | (line_m_E > line.last_m + MAX_BEYOND_M)
        reason_E[is_beyond_E] = OFF_ROUTE
    for start_ns, stop_ns in off_route(places):
        first, last = np.searchsorted(travelled.t_ns_E, [start_ns, stop_ns])
        reason_E[first:last] = OFF_ROUTE
    return reason_E


def _located(travelled: Travel, line_m_E: np.ndarray) -> tuple[LocatedSlip, ...]:
    slips = []
    for slip in travelled.slips:
        from_m, to_m = travelled.between_edges(line_m_E, np.array([slip.start_ns, slip.stop_ns])).tolist()
        slips.append(
            LocatedSlip(
                start_ns=slip.start_ns,
                stop_ns=slip.stop_ns,
                kind=slip.kind,
                from_line_m=from_m,
                to_line_m=to_m,
                excess_m=slip.excess_m,
            )
        )
    return tuple(slips)


def _residuals(places: Places, residual_m_M: np.ndarray, is_used_M: np.ndarray, is_kind_M: np.ndarray) -> Residuals:
    return Residuals(
        t_ns_M=places.t_ns_M[is_kind_M], residual_m_M=residual_m_M[is_kind_M], is_used_M=is_used_M[is_kind_M]
    )


def _counts(travelled: Travel, places: Places, is_used_M: np.ndarray, reason_E: np.ndarray) -> dict[str, Any]:
    seconds = np.bincount(reason_E[:-1], minlength=len(REASONS)) * travelled.cell_s
    return {
        "num_fixes": int((~places.is_balise_M).sum()),
        "num_balises": int(places.is_balise_M.sum()),
        "num_gated": int((~is_used_M).sum()),
        "num_slips": len(travelled.slips),
        "slip_s": sum(slip.stop_ns - slip.start_ns for slip in travelled.slips) * 1e-9,
        "unplaced_s": {
            name: float(seconds[code]) for code, name in enumerate(REASONS) if code != PLACED and seconds[code]
        },
    }


def _found(travelled: Travel, fused: Fused, noise: Noise) -> dict[str, float]:
    """What the measurements say of the sensors."""
    found = {"fix_sigma_m": noise.fix_m, "balise_sigma_m": noise.balise_m}
    wheels = travelled.wheels
    if travelled.is_wheel_leading and wheels is not None and wheels.wheel is not None:
        nominal_m = wheels.wheel.nominal_diameter_m
        found["wheel_diameter_m"] = nominal_m * (1.0 + fused.scale)
        found["wheel_diameter_sigma_m"] = nominal_m * fused.scale_sigma
    return found


@compiled
def _between_edges(
    t_ns_N: np.ndarray, first_ns: int, cell_ns: int, line_m_E: np.ndarray, sigma_m_E: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place, its standard error and the speed along the line, linear between edges; NaN beyond the first and last."""
    n = len(t_ns_N)
    line_m_N, sigma_m_N, speed_mps_N = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    last = len(line_m_E) - 2
    for i in range(n):
        since_ns = t_ns_N[i] - first_ns
        e = since_ns // cell_ns
        if 0 <= e <= last:
            share = (since_ns - e * cell_ns) / cell_ns
            line_m_N[i] = line_m_E[e] + share * (line_m_E[e + 1] - line_m_E[e])
            sigma_m_N[i] = sigma_m_E[e] + share * (sigma_m_E[e + 1] - sigma_m_E[e])
            speed_mps_N[i] = (line_m_E[e + 1] - line_m_E[e]) / (cell_ns * 1e-9)
    return line_m_N, sigma_m_N, speed_mps_N
