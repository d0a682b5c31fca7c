"""Put the rows of all sensors on one regular UTC grid, looking only backwards.

- `grid`     the instants
- `track`    the rows of one sensor, by instant
- `as_of`    the last reading at or before an instant; a line between two readings
- `lowpass`  what is too fast for the grid is filtered out, so that it does not show up as something slow
- `columns`  which of these a channel gets, its validity and its age
- `blocks`   the same for recordings that do not fit into memory

The value at a grid instant `t` depends on rows in `(t - reach, t]` alone (`columns.reach_ns`), each value on its own
rows in their order: neither the future, nor how the rows are cut into blocks, nor who aligns which part of the grid
changes a bit of it.
"""

from pipelines.align.as_of import as_of
from pipelines.align.blocks import align_blocks
from pipelines.align.columns import align, doors_open, reach_ns, rolled_speed, speed_on_grid, to_frame
from pipelines.align.grid import DEFAULT_RATE_HZ, RATE_HZ, Grid, make_grid
from pipelines.align.track import Track

__all__ = [
    "DEFAULT_RATE_HZ",
    "RATE_HZ",
    "Grid",
    "Track",
    "align",
    "align_blocks",
    "as_of",
    "doors_open",
    "make_grid",
    "reach_ns",
    "rolled_speed",
    "speed_on_grid",
    "to_frame",
]
