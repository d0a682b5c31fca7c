"""The regular UTC grid that all channels of a recording share.

Shape suffix: G = grid instants.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipelines.align.track import Track
from pipelines.errors import RecordingError

RATE_HZ = {"bundle": 1.0, "metropt3": 0.1, "barcelona_lte": 1 / 120}
"""Grid of a source, in hertz; `DEFAULT_RATE_HZ` for one not named here."""

DEFAULT_RATE_HZ = 1.0

MAX_SPAN_DAYS = 100.0
"""Longer than this is no recording but a clock that is wrong by years."""


class Grid(NamedTuple):
    """Instants `first_ns, first_ns + period_ns, …`."""

    first_ns: int
    period_ns: int
    length: int

    @property
    def t_ns_G(self) -> np.ndarray:
        """All instants, nanoseconds UTC."""
        return self.first_ns + np.arange(self.length, dtype=np.int64) * self.period_ns

    @property
    def last_ns(self) -> int:
        """The last instant of a grid that has any."""
        return self.first_ns + (self.length - 1) * self.period_ns

    def parts(self, length: int) -> Iterator["Grid"]:
        """Cut the grid into stretches of `length` instants; the last one may be shorter.

        Example:
            >>> [(part.first_ns, part.length) for part in Grid(0, 10, 5).parts(2)]
            [(0, 2), (20, 2), (40, 1)]
        """
        for done in range(0, self.length, length):
            yield Grid(self.first_ns + done * self.period_ns, self.period_ns, min(length, self.length - done))


def make_grid(tracks: list[Track], rate_hz: float) -> Grid:
    """Lay a grid of whole periods since 1970 over all rows: the last instant is the first at or after the last row."""
    period_ns = round(1e9 / rate_hz)
    ends = [(int(track.t_ns_T[0]), int(track.t_ns_T[-1])) for track in tracks if len(track.t_ns_T)]
    if not ends:
        return Grid(0, period_ns, 0)
    first, last = -(-min(end[0] for end in ends) // period_ns), -(-max(end[1] for end in ends) // period_ns)
    days = (last - first) * period_ns / 8.64e13
    if days > MAX_SPAN_DAYS:
        raise RecordingError(
            f"rows span {days:,.0f} days, more than {MAX_SPAN_DAYS:g}: clocks of this recording differ by years; "
            "correct its stamps or remove the sensor"
        )
    return Grid(first * period_ns, period_ns, last - first + 1)
