"""The centre line of a route: from WGS 84 to the distance along it, and from there to the posted kilometre.

Shape suffixes: P = surveyed points, S = straight stretches between them, M = places to find, N = places on the line
that may be theirs, ordered by place and then by stretch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import pyproj
import shapely

from pipelines.compiled import compiled

NEAR_M = 60.0
"""A place further than this from the line is not on it."""

BEYOND_M = 200.0
"""How far the line is continued straight, so that places near its ends are not pulled onto them."""

JUMP_M = 0.5
JUMP_SHARE = 0.1
"""Posts jump where their distance differs by more than both of these from the distance along the line."""

PLACE_SIGMA_M = 5.0
TRAVEL_SIGMA_M, TRAVEL_SHARE = 5.0, 0.02
LEAP_COST = 50.0
"""The largest cost of a leap: a place that is far off would else pull its neighbours onto another branch."""


class Candidates(NamedTuple):
    """Places on the line near places to find; more than one for a place where the line comes back to itself."""

    place_N: np.ndarray
    """Which place."""

    line_m_N: np.ndarray
    off_m_N: np.ndarray
    """Distance from the line."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CentreLine:
    """A surveyed line, continued straight beyond both ends."""

    line_m_P: np.ndarray
    km_post_m_P: np.ndarray
    x_m_P: np.ndarray
    y_m_P: np.ndarray
    map: pyproj.Proj
    """A transverse Mercator map around the middle of the line."""

    @property
    def first_m(self) -> float:
        """Where the survey begins."""
        return float(self.line_m_P[1])

    @property
    def last_m(self) -> float:
        """Where the survey ends."""
        return float(self.line_m_P[-2])

    def candidates(self, lat_deg_M: np.ndarray, lon_deg_M: np.ndarray) -> Candidates:
        """Find the places on the line that are nearest to each place, one for each branch that passes it."""
        points_M = shapely.points(*self.map(lon_deg_M, lat_deg_M))
        ends_SP2 = np.stack([self.x_m_P, self.y_m_P], axis=1)
        stretches_S = shapely.linestrings(np.stack([ends_SP2[:-1], ends_SP2[1:]], axis=1))
        place_N, stretch_N = shapely.STRtree(stretches_S).query(points_M, predicate="dwithin", distance=NEAR_M)
        order = np.lexsort((stretch_N, place_N))
        place_N, stretch_N = place_N[order], stretch_N[order]
        share_N = shapely.line_locate_point(stretches_S[stretch_N], points_M[place_N], normalized=True)
        off_m_N = shapely.distance(stretches_S[stretch_N], points_M[place_N])
        line_m_N = self.line_m_P[stretch_N] + share_N * np.diff(self.line_m_P)[stretch_N]
        is_best_N = _best_of_branches(place_N, stretch_N, off_m_N)
        return Candidates(place_N[is_best_N], line_m_N[is_best_N], off_m_N[is_best_N])

    def km_post_at(self, line_m: np.ndarray) -> np.ndarray:
        """Posted kilometre in metres; NaN outside the survey. A jump is at the first point that has the new posts."""
        run_m_P, post_m_P = np.diff(self.line_m_P), np.diff(self.km_post_m_P)
        sense = np.sign(np.median(post_m_P)) or 1.0
        is_jump_P = np.abs(post_m_P - sense * run_m_P) > np.maximum(JUMP_M, JUMP_SHARE * run_m_P)
        slope_P = np.where(is_jump_P, sense, post_m_P / run_m_P)
        before = np.clip(np.searchsorted(self.line_m_P, line_m, side="right") - 1, 1, len(run_m_P) - 2)
        km_post_m = self.km_post_m_P[before] + slope_P[before] * (line_m - self.line_m_P[before])
        return np.where((line_m >= self.first_m) & (line_m <= self.last_m), km_post_m, np.nan)


def centre_line(route: pl.DataFrame | None) -> CentreLine | None:
    """Lay out a route with the columns `line_m`, `km_post`, `lat_deg` and `lon_deg`; `None` if it has no length."""
    if route is None:
        return None
    is_surveyed = pl.all_horizontal(pl.col("line_m", "lat_deg", "lon_deg").is_finite())
    route = route.filter(is_surveyed).unique("line_m", keep="last").sort("line_m")
    if route.height < 2:
        return None
    columns = (route[name].to_numpy() for name in ("line_m", "km_post", "lat_deg", "lon_deg"))
    line_m_P, km_post_m_P, lat_deg_P, lon_deg_P = columns
    middle = route.height // 2
    flat = pyproj.Proj(proj="tmerc", lat_0=lat_deg_P[middle], lon_0=lon_deg_P[middle], ellps="WGS84")
    x_m_P, y_m_P = flat(lon_deg_P, lat_deg_P)
    return CentreLine(
        line_m_P=_continued(line_m_P, line_m_P),
        km_post_m_P=_continued(km_post_m_P, line_m_P),
        x_m_P=_continued(x_m_P, line_m_P),
        y_m_P=_continued(y_m_P, line_m_P),
        map=flat,
    )


def follow(candidates: Candidates, travelled_m_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose one candidate for each place so that the way from place to place is as long as the train travelled.

    Args:
        candidates: Where each place may be on the line.
        travelled_m_M: Distance travelled, in whichever direction, when each place was measured.

    Returns:
        `(line_m_M, off_m_M)`, NaN for a place without candidates.
    """
    num_candidates_M = np.bincount(candidates.place_N, minlength=len(travelled_m_M))
    if (num_candidates_M <= 1).all():
        chosen = np.arange(len(candidates.place_N))
    else:
        chosen = _cheapest_way(candidates.place_N, candidates.line_m_N, candidates.off_m_N, travelled_m_M)
    line_m_M, off_m_M = np.full((2, len(travelled_m_M)), np.nan)
    line_m_M[candidates.place_N[chosen]] = candidates.line_m_N[chosen]
    off_m_M[candidates.place_N[chosen]] = candidates.off_m_N[chosen]
    return line_m_M, off_m_M


def _continued(x_P: np.ndarray, line_m_P: np.ndarray) -> np.ndarray:
    """Add a point before and one after, in line with the stretches at the ends."""
    first = x_P[0] - (x_P[1] - x_P[0]) * BEYOND_M / (line_m_P[1] - line_m_P[0])
    last = x_P[-1] + (x_P[-1] - x_P[-2]) * BEYOND_M / (line_m_P[-1] - line_m_P[-2])
    return np.concatenate([[first], x_P, [last]])


def _best_of_branches(place_N: np.ndarray, stretch_N: np.ndarray, off_m_N: np.ndarray) -> np.ndarray:
    """Mark the nearest of each run of neighbouring stretches that are all near to the same place."""
    is_new_N = np.ones(len(place_N), dtype=bool)
    is_new_N[1:] = (np.diff(place_N) != 0) | (np.diff(stretch_N) != 1)
    branch_N = np.cumsum(is_new_N) - 1
    order = np.lexsort((off_m_N, branch_N))
    is_best_N = np.zeros(len(place_N), dtype=bool)
    is_best_N[order[is_new_N]] = True
    return is_best_N


@compiled
def _cheapest_way(
    place_N: np.ndarray, line_m_N: np.ndarray, off_m_N: np.ndarray, travelled_m_M: np.ndarray
) -> np.ndarray:
    """Viterbi's algorithm: the chosen candidate of every place that has some, in order."""
    n = len(place_N)
    cost, came_from = np.zeros(n), np.full(n, -1)
    first, previous = 0, -1  # candidates of one place are [first, i); those of the place before are [previous, first)
    for i in range(n):
        if i > 0 and place_N[i] != place_N[i - 1]:
            previous, first = first, i
        least = 0.0 if previous < 0 else np.inf
        if previous >= 0:
            way_m = abs(travelled_m_M[place_N[i]] - travelled_m_M[place_N[previous]])
            for j in range(previous, first):
                miss = (abs(line_m_N[i] - line_m_N[j]) - way_m) / (TRAVEL_SIGMA_M + TRAVEL_SHARE * way_m)
                total = cost[j] + min(miss * miss, LEAP_COST)
                if total < least:
                    least, came_from[i] = total, j
        cost[i] = least + (off_m_N[i] / PLACE_SIGMA_M) ** 2
    best = first
    for i in range(first, n):
        if cost[i] < cost[best]:
            best = i
    num_places = 1
    for i in range(1, n):
        num_places += place_N[i] != place_N[i - 1]
    chosen = np.empty(num_places, dtype=np.int64)
    for k in range(num_places - 1, -1, -1):
        chosen[k] = best
        best = came_from[best]
    return chosen
