"""The line that every simulated train runs on: a fixed synthetic railway of 40 km a block.

Shape suffixes: P = points of the centre line, S = stations, B = balises, D = rail defects.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
import pyproj

from pipelines.simulate.streams import stream

BLOCK_M = 40_000.0
"""Length that is laid out at once; a longer line is the same line, continued."""

STEP_M = 25.0
"""Distance between points of the centre line, which is straight between them: `line_m` is exact on the polyline."""

ORIGIN_LAT_LON_DEG = (46.95, 7.45)
STATION_OFFSETS_M = (200.0, 5_900.0, 9_700.0, 16_800.0, 22_300.0, 29_400.0, 34_100.0)
TUNNELS_M = ((12_200.0, 14_300.0), (19_050.0, 19_400.0), (30_600.0, 31_500.0))
SPEED_LIMITS_MPS = (25.0, 33.0, 38.0, 30.0, 36.0)
KM_POST_START_M = 12_400.0
KM_POST_JUMPS = ((8_000.0, 350.0), (21_500.0, -120.0), (33_000.0, 42.0))
"""Where the posted kilometre jumps, and by how much: relics of a realignment, as on any old line."""

_LINE_SEED = 1859


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Route:
    """Everything that is a function of the place alone."""

    line_m_P: np.ndarray
    km_post_m_P: np.ndarray
    lat_deg_P: np.ndarray
    lon_deg_P: np.ndarray
    cant_mm_P: np.ndarray
    roughness_P: np.ndarray
    """Vibration of the axle box relative to average track; sections differ, and stay as they are."""

    speed_limit_mps_P: np.ndarray
    in_tunnel_P: np.ndarray
    station_m_S: np.ndarray
    balise_ref_B: list[str]
    balise_m_B: np.ndarray
    defect_m_D: np.ndarray
    """Switches, joints and squats, each of which knocks on the axle box."""

    def measured(self, line_m: np.ndarray, *, from_end: bool) -> np.ndarray:
        """Places as a bundle gives them: from the beginning of the line, or from its end."""
        return self.line_m_P[-1] - line_m if from_end else line_m

    def centre_line(self, *, from_end: bool) -> pl.DataFrame:
        """`route.csv` of a bundle."""
        line = pl.DataFrame(
            {
                "line_m": self.measured(self.line_m_P, from_end=from_end),
                "km_post": self.km_post_m_P,
                "lat_deg": self.lat_deg_P.round(9),
                "lon_deg": self.lon_deg_P.round(9),
            }
        )
        return line.reverse() if from_end else line

    def balises(self, *, from_end: bool) -> pl.DataFrame:
        """`balises.csv` of a bundle."""
        line_m_B = self.measured(self.balise_m_B, from_end=from_end).round(1)
        return pl.DataFrame({"ref": self.balise_ref_B, "line_m": line_m_B})


@lru_cache(maxsize=4)
def build_route(num_blocks: int, tunnels_m: tuple[tuple[float, float], ...] = TUNNELS_M) -> Route:
    """Lay out `num_blocks` of 40 km each, with tunnels at the same places of every block."""
    line_m_P = np.arange(0.0, num_blocks * BLOCK_M + STEP_M / 2, STEP_M)
    curvature_P = _curvature(line_m_P, num_blocks)
    lat_deg_P, lon_deg_P = _coordinates(curvature_P)
    balise_m_B = _scatter(num_blocks, "balises", low_m=700.0, high_m=1_800.0)
    block_starts_m = np.arange(num_blocks) * BLOCK_M
    within_block_m_P = line_m_P % BLOCK_M
    in_tunnel_P = np.zeros(len(line_m_P), dtype=bool)
    for low_m, high_m in tunnels_m:
        in_tunnel_P |= (within_block_m_P >= low_m) & (within_block_m_P < high_m)
    return Route(
        line_m_P=line_m_P,
        km_post_m_P=_km_post(line_m_P),
        lat_deg_P=lat_deg_P,
        lon_deg_P=lon_deg_P,
        cant_mm_P=np.clip(curvature_P * 1_700.0 * 60.0, -150.0, 150.0),
        roughness_P=_by_section(line_m_P, num_blocks, "roughness", section_m=500.0, low=0.75, high=1.5),
        speed_limit_mps_P=_speed_limits(line_m_P),
        in_tunnel_P=in_tunnel_P,
        station_m_S=(block_starts_m[:, None] + np.array(STATION_OFFSETS_M)).ravel(),
        balise_ref_B=[f"B{number:04d}" for number in range(1, len(balise_m_B) + 1)],
        balise_m_B=balise_m_B,
        defect_m_D=_scatter(num_blocks, "defects", low_m=40.0, high_m=600.0),
    )


def _curvature(line_m_P: np.ndarray, num_blocks: int) -> np.ndarray:
    """Signed curvature in 1/m: straights and curves of 500 m or more, joined by transitions."""
    section_m = 800.0
    bends = []
    for block in range(num_blocks):
        random = stream(_LINE_SEED, "curves", block)
        count = int(BLOCK_M / section_m)
        bends.append(random.choice([-1.0, 0.0, 0.0, 1.0], size=count) / random.uniform(600.0, 2_500.0, size=count))
    bends_Q = np.concatenate(bends)
    sharp_P = bends_Q[np.minimum((line_m_P // section_m).astype(int), len(bends_Q) - 1)]
    return np.convolve(np.pad(sharp_P, 4, mode="edge"), np.full(9, 1 / 9), mode="valid")


def _coordinates(curvature_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integrate the curvature to WGS 84, on a map that is true to scale within 2 ppm along this line."""
    heading_rad_P = np.deg2rad(60.0) + np.cumsum(curvature_P) * STEP_M
    east_m_P = np.concatenate([[0.0], np.cumsum(np.sin(heading_rad_P[:-1]) * STEP_M)])
    north_m_P = np.concatenate([[0.0], np.cumsum(np.cos(heading_rad_P[:-1]) * STEP_M)])
    lat_deg, lon_deg = ORIGIN_LAT_LON_DEG
    around_origin = pyproj.Proj(proj="aeqd", lat_0=lat_deg, lon_0=lon_deg, ellps="WGS84")
    lon_deg_P, lat_deg_P = around_origin(east_m_P - east_m_P.mean(), north_m_P - north_m_P.mean(), inverse=True)
    return np.asarray(lat_deg_P), np.asarray(lon_deg_P)


def _km_post(line_m_P: np.ndarray) -> np.ndarray:
    jumps_P = sum(np.where(line_m_P >= at_m, jump_m, 0.0) for at_m, jump_m in KM_POST_JUMPS)
    return np.asarray(KM_POST_START_M + line_m_P + jumps_P)


def _speed_limits(line_m_P: np.ndarray) -> np.ndarray:
    section_P = (line_m_P // 3_200.0).astype(int)
    return np.asarray(np.array(SPEED_LIMITS_MPS)[section_P % len(SPEED_LIMITS_MPS)])


def _by_section(
    line_m_P: np.ndarray, num_blocks: int, name: str, *, section_m: float, low: float, high: float
) -> np.ndarray:
    count = int(BLOCK_M / section_m)
    values = [stream(_LINE_SEED, name, block).uniform(low, high, size=count) for block in range(num_blocks)]
    values_Q = np.concatenate(values)
    return np.asarray(values_Q[np.minimum((line_m_P // section_m).astype(int), len(values_Q) - 1)])


def _scatter(num_blocks: int, name: str, *, low_m: float, high_m: float) -> np.ndarray:
    """Places along the line whose distances are uniform in `[low_m, high_m)`, in whole decimetres."""
    places = []
    for block in range(num_blocks):
        spacing_m = stream(_LINE_SEED, name, block).uniform(low_m, high_m, size=int(BLOCK_M / low_m))
        within_m = np.cumsum(spacing_m)
        places.append(block * BLOCK_M + within_m[within_m < BLOCK_M])
    return np.round(np.concatenate(places), 1)
