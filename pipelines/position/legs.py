"""Which way along the line the train ran.

Shape suffixes: E = edges of the cells of `Travel`, C = those cells, M = measured places in order of time.
"""

import numpy as np

from pipelines.position.cells import num_cells, runs, sums
from pipelines.position.places import Places
from pipelines.position.travel import Travel

LEG_STOP_S, STANDS_M = 3.0, 0.1
"""A train that moves less than this in that time stands, and may leave in the other direction."""

MIN_LEG_M = 20.0
"""A leg longer than this shows its direction in the places measured on it."""


def signed_distance(travelled: Travel, places: Places) -> np.ndarray:
    """Distance travelled along the line at every edge: it falls on legs on which the train ran against the line.

    The direction of a leg, from one stop to the next, is that of the places measured on it; a leg too short or too dark
    to tell keeps the direction of the one before.
    """
    step_m_C = np.diff(travelled.distance_m_E)
    legs = runs(sums(step_m_C, num_cells(LEG_STOP_S, travelled.cell_s)) > STANDS_M)
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
