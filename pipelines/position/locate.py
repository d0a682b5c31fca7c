"""Find the place of a train at every instant of a recording.

Like the clock maps, and unlike the channels, a position uses the whole recording: it says where a reading was taken and
is nothing that a model may predict from.

Shape suffixes: M = measured places in order of time, E = edges of the cells of `Travel`, C = those cells, K = knots of
the filter.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pipelines.align import Track
from pipelines.position.centre_line import CentreLine, centre_line
from pipelines.position.distance import rolled, travelled, wheel_of
from pipelines.position.fuse import Fused, Knots, Noise, fuse, most_probable
from pipelines.position.legs import signed_distance
from pipelines.position.places import Places, is_outlier, measured_places, off_route
from pipelines.position.track_position import (
    NO_REFERENCE,
    OFF_ROUTE,
    PLACED,
    REASONS,
    UNCERTAIN,
    LocatedSlip,
    Residuals,
    TrackPosition,
)
from pipelines.position.travel import Travel, travel

MAX_SIGMA_M = 300.0
"""A place less certain than this is none."""

MAX_BEYOND_M = 50.0
"""A train may stand this far beyond the end of the surveyed line; further out its place is not given."""

BREAK_SIGMAS, MAX_BREAKS = 6.0, 20
"""Places that from some moment on are off by more than this, all in the same way, are right and the distance is not."""

OUTLIER_SIGMAS = 4.5
"""A measurement this far from what all others say is an outlier."""

BALISE_DELAY_S = 1.5e-3
"""How late balises are stamped, all of them alike, so that no number of them takes the error out."""

USUAL_NOISE = Noise()
WITHOUT_WHEEL = Noise(rolling=0.05)


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
    is_placed = bool(distances) or wheels is not None or not {"gnss", "evt"}.isdisjoint(tracks)
    ends = [(int(own.t_ns_T[0]), int(own.t_ns_T[-1])) for own in tracks.values() if is_placed and len(own.t_ns_T)]
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
    signed_m_E = signed_distance(travelled, places)
    signed_m_M, noise_m2_M = (travelled.between_edges(x_E, places.t_ns_M) for x_E in (signed_m_E, travelled.noise_m2_E))
    is_used_M = ~is_outlier(places, signed_m_M, noise_m2_M)
    if not is_used_M.any():
        return _unplaced(travelled, line, places)
    usual = USUAL_NOISE if travelled.is_wheel_leading else WITHOUT_WHEEL
    travelled, num_breaks = _doubted(travelled, signed_m_E, places.only(is_used_M), usual)
    first = _estimated(travelled, signed_m_E, places, is_used_M, usual)
    is_used_M &= np.abs(first.residual_m_M) < OUTLIER_SIGMAS * first.residual_sigma_m_M
    if not is_used_M.any():  # each contradicts all others
        return _unplaced(travelled, line, places)
    estimate = _estimated(travelled, signed_m_E, places, is_used_M, usual)
    is_used_M[is_used_M] = ~estimate.is_gated_U
    reason_E = _reasons(travelled, line, places, estimate)
    return TrackPosition(
        travel=travelled,
        line=line,
        line_m_E=np.where(reason_E == PLACED, estimate.line_m_E, np.nan),
        sigma_m_E=np.where(reason_E == PLACED, estimate.sigma_m_E, np.nan),
        reason_E=reason_E,
        slips=_located(travelled, estimate.line_m_E),
        residuals=_residuals(places, estimate.residual_m_M, is_used_M),
        stats=_counts(travelled, places, is_used_M, reason_E)
        | {"num_breaks": num_breaks}
        | _found(travelled, estimate.fused, estimate.noise),
    )


class _Estimate(NamedTuple):
    """The way of the train as some of the measurements tell it."""

    line_m_E: np.ndarray
    sigma_m_E: np.ndarray
    residual_m_M: np.ndarray
    """Measured minus estimated place."""

    residual_sigma_m_M: np.ndarray
    """Its standard error if the measurement had not taken part."""

    is_gated_U: np.ndarray
    """Of the measurements that took part."""

    fused: Fused
    noise: Noise


def _estimated(
    travelled: Travel, signed_m_E: np.ndarray, places: Places, is_used_M: np.ndarray, usual: Noise
) -> _Estimate:
    used = places.only(is_used_M)
    noise = most_probable(_knots(travelled, signed_m_E, used, used.t_ns_M[:0]), usual)
    knots = _knots(travelled, signed_m_E, used, travelled.t_ns_E)
    fused = fuse(knots, noise)
    is_edge_K = np.isnan(knots.line_m_K)
    line_m_E = signed_m_E + fused.level_K[is_edge_K]
    sigma_m_E = np.hypot(fused.level_sigma_K[is_edge_K], _shared_error_m(travelled, used))
    fix_m_M = np.hypot(noise.fix_m, noise.fix_quick_m * places.dilution_M)
    return _Estimate(
        line_m_E=line_m_E,
        sigma_m_E=sigma_m_E,
        residual_m_M=places.line_m_M - travelled.between_edges(line_m_E, places.t_ns_M),
        residual_sigma_m_M=np.hypot(
            np.where(places.is_balise_M, noise.balise_m, fix_m_M), travelled.between_edges(sigma_m_E, places.t_ns_M)
        ),
        is_gated_U=fused.is_gated_K[~is_edge_K],
        fused=fused,
        noise=noise,
    )


def _unplaced(travelled: Travel, line: CentreLine | None, places: Places) -> TrackPosition:
    nothing_E = np.full(len(travelled.t_ns_E), np.nan)
    reason_E = np.full(len(nothing_E), NO_REFERENCE, dtype=np.uint8)
    is_used_M = np.zeros(len(places.t_ns_M), dtype=bool)
    return TrackPosition(
        travel=travelled,
        line=line,
        line_m_E=nothing_E,
        sigma_m_E=nothing_E,
        reason_E=reason_E,
        slips=_located(travelled, nothing_E),
        residuals=_residuals(places, np.full(len(places.t_ns_M), np.nan), is_used_M),
        stats=_counts(travelled, places, is_used_M, reason_E),
    )


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


def _shared_error_m(travelled: Travel, used: Places) -> float:
    """Standard error that all places have in common because that of all balises is the same."""
    if not used.is_balise_M.any():
        return 0.0
    speed_mps_E = np.gradient(travelled.distance_m_E, travelled.cell_s)
    return BALISE_DELAY_S * float(travelled.between_edges(speed_mps_E, used.t_ns_M[used.is_balise_M]).mean())


def _reasons(travelled: Travel, line: CentreLine | None, places: Places, estimate: _Estimate) -> np.ndarray:
    """Why there is no place at an edge, as positions in `REASONS`."""
    reason_E = np.where(estimate.sigma_m_E > MAX_SIGMA_M, UNCERTAIN, PLACED).astype(np.uint8)
    if line is not None:
        least_m, most_m = line.first_m - MAX_BEYOND_M, line.last_m + MAX_BEYOND_M
        reason_E[(estimate.line_m_E < least_m) | (estimate.line_m_E > most_m)] = OFF_ROUTE
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


def _residuals(places: Places, residual_m_M: np.ndarray, is_used_M: np.ndarray) -> dict[str, Residuals]:
    return {
        kind: Residuals(
            t_ns_M=places.t_ns_M[is_kind_M], residual_m_M=residual_m_M[is_kind_M], is_used_M=is_used_M[is_kind_M]
        )
        for kind, is_kind_M in (("fixes", ~places.is_balise_M), ("balises", places.is_balise_M))
    }


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
