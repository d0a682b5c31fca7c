"""Places on the line that were measured: fixes of a satellite receiver and balises of known place.

Shape suffixes: M = measured places in order of time.
"""

from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from scipy import ndimage

from pipelines.align import Track
from pipelines.position.cells import runs
from pipelines.position.centre_line import Candidates, CentreLine, follow
from pipelines.position.travel import Travel

UNKNOWN_HDOP = 2.0
OFF_ROUTE_S, OFF_ROUTE_FIXES = 20.0, 10
"""So many fixes off the line for so long, and none on it, are no outliers: the train is on another line."""

ASIDE_SIGMAS, ASIDE_M = 6.0, 2.0
"""A fix this much further aside of the line than the others is an outlier."""

LEAP_M, NEIGHBOURS = 25.0, 15
"""So is one that far from the median of so many around it, less what the train travelled; further if that is uncertain
by more than a few metres."""

UNSURE_SIGMAS = 4.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Places:
    """Where on the line something was measured."""

    t_ns_M: np.ndarray
    line_m_M: np.ndarray
    """NaN for a fix that is not near the line."""

    aside_m_M: np.ndarray
    """Distance of a fix from the line."""

    is_balise_M: np.ndarray
    dilution_M: np.ndarray
    """Of a fix; 1 where satellites are well spread."""

    def only(self, is_wanted_M: np.ndarray) -> "Places":
        """Those places that are wanted."""
        return Places(**{field.name: getattr(self, field.name)[is_wanted_M] for field in fields(self)})


def measured_places(
    tracks: dict[str, Track], line: CentreLine | None, balises: pl.DataFrame | None, travelled: Travel
) -> Places:
    """Collect fixes and balises of a recording and find them on the line.

    Where the line comes back to itself, a fix is given to the branch on which the train could have got there.
    """
    passed_ns, passed_m = _passed(tracks.get("evt"), balises)
    fixed_ns, lat_deg, lon_deg, hdop = _fixes(tracks.get("gnss") if line is not None else None)
    num_passed, num_fixes = len(passed_ns), len(fixed_ns)
    order = np.argsort(np.concatenate([passed_ns, fixed_ns]), kind="stable")
    t_ns_M = np.concatenate([passed_ns, fixed_ns])[order]
    is_balise_M = order < num_passed
    line_m_M, aside_m_M = np.full(len(order), np.nan), np.zeros(len(order))
    line_m_M[is_balise_M] = passed_m
    if line is not None and num_fixes:
        found = line.candidates(lat_deg, lon_deg)
        rank = np.argsort(order, kind="stable")
        place_N = np.concatenate([rank[:num_passed], rank[num_passed:][found.place_N]])
        by_place = np.argsort(place_N, kind="stable")
        known = Candidates(
            place_N[by_place],
            np.concatenate([passed_m, found.line_m_N])[by_place],
            np.concatenate([np.zeros(num_passed), found.off_m_N])[by_place],
        )
        line_m_M, aside_m_M = follow(known, travelled.distance_at(t_ns_M))
    return Places(
        t_ns_M=t_ns_M,
        line_m_M=line_m_M,
        aside_m_M=aside_m_M,
        is_balise_M=is_balise_M,
        dilution_M=np.concatenate([np.ones(num_passed), np.maximum(hdop, 1.0)])[order],
    )


def is_outlier(places: Places, signed_m_M: np.ndarray, noise_m2_M: np.ndarray) -> np.ndarray:
    """Mark fixes off the line, further aside of it than the others, or a leap away from those around them.

    Args:
        places: Measured places.
        signed_m_M: Distance travelled along the line when each was measured, less where the train ran against it.
        noise_m2_M: Variance that this distance has gathered until then.
    """
    is_outlier_M = np.asarray(np.isnan(places.line_m_M))
    fixes = np.flatnonzero(~places.is_balise_M & ~is_outlier_M)
    if len(fixes):
        aside_m = places.aside_m_M[fixes]
        usual_m = np.median(aside_m)
        spread_m = 1.48 * np.median(np.abs(aside_m - usual_m))
        is_outlier_M[fixes] = aside_m > usual_m + ASIDE_SIGMAS * spread_m + ASIDE_M
        level_m = places.line_m_M[fixes] - signed_m_M[fixes]
        around_m = ndimage.median_filter(level_m, size=NEIGHBOURS, mode="reflect")
        half = NEIGHBOURS // 2
        gathered_m2 = np.pad(noise_m2_M[fixes], half, mode="edge")
        unsure_m = np.sqrt(gathered_m2[2 * half :] - gathered_m2[: -2 * half])
        is_outlier_M[fixes] |= np.abs(level_m - around_m) > LEAP_M + UNSURE_SIGMAS * unsure_m
    return is_outlier_M


def off_route(places: Places) -> list[tuple[int, int]]:
    """Intervals `[start_ns, stop_ns)` from the first to the last of many fixes in a row that are not near the line."""
    return [
        (int(places.t_ns_M[start]), int(places.t_ns_M[stop - 1]) + 1)
        for start, stop in runs(np.isnan(places.line_m_M))
        if stop - start >= OFF_ROUTE_FIXES and places.t_ns_M[stop - 1] - places.t_ns_M[start] >= OFF_ROUTE_S * 1e9
    ]


def _fixes(gnss: Track | None) -> tuple[np.ndarray, ...]:
    """Instants, latitudes, longitudes and dilutions of the fixes of a receiver."""
    if gnss is None:
        return np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0)
    lat_deg_T, lon_deg_T, hdop_T = (gnss.values[name] for name in ("lat_deg", "lon_deg", "hdop"))
    is_fix_T = (gnss.values["fix"] >= 2) & np.isfinite(lat_deg_T) & np.isfinite(lon_deg_T)
    hdop_T = np.nan_to_num(hdop_T, nan=UNKNOWN_HDOP)
    return gnss.t_ns_T[is_fix_T], lat_deg_T[is_fix_T], lon_deg_T[is_fix_T], hdop_T[is_fix_T]


def _passed(events: Track | None, balises: pl.DataFrame | None) -> tuple[np.ndarray, np.ndarray]:
    """When balises whose place is known were passed, and where they lie."""
    if events is None or balises is None:
        return np.empty(0, dtype=np.int64), np.empty(0)
    surveyed = balises.select("ref", "line_m").drop_nulls().unique().unique("ref", keep="none")
    passed = (
        pl.DataFrame(
            {"t_ns": events.t_ns_T} | {name: events.values[name].tolist() for name in ("kind", "ref")},
            schema={"t_ns": pl.Int64, "kind": pl.String, "ref": pl.String},
        )
        .filter(pl.col("kind") == "balise")
        .join(surveyed, on="ref", how="inner", maintain_order="left")
    )
    return passed["t_ns"].to_numpy(), passed["line_m"].to_numpy()
