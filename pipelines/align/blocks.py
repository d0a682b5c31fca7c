"""Alignment of recordings that do not fit into memory: rows come in blocks, and so does the grid.

Memory holds, of every sensor, one block and the rows that the next part of the grid reaches back to.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pipelines.align.columns import align, reach_ns
from pipelines.align.grid import Grid
from pipelines.align.track import Track

PART_ROWS = 1 << 20
"""Rows of the fastest sensor, or grid instants if those are more, that are aligned at a time."""


def align_blocks(streams: Mapping[str, Iterable[Track]], grid: Grid) -> Iterator[dict[str, np.ndarray]]:
    """Align regular sensors whose rows come in blocks, such as the row groups of Parquet files.

    Args:
        streams: By the prefix of its columns, the blocks of each sensor: one at least, the later rows in later blocks.
        grid: Where to.

    Yields:
        The columns on one part of the grid after the other. Put together they are those that `columns.align` gives of
        all rows at once, bit for bit.

    Raises:
        ValueError: A sensor without a block, an event stream, or a block that begins before the one ahead of it ends.
    """
    feeds = {prefix: _Feed(prefix, blocks) for prefix, blocks in streams.items()}
    rows_per_instant = max([1.0, *(feed.rate_hz * grid.period_ns * 1e-9 for feed in feeds.values())])
    for part in grid.parts(max(1, int(PART_ROWS / rows_per_instant))):
        columns: dict[str, np.ndarray] = {}
        for prefix, feed in feeds.items():
            columns |= align(feed.rows_for(part), part, prefix=prefix)
        yield columns


class _Feed:
    """The blocks of one sensor, and the rows that are still needed of those that were read."""

    def __init__(self, name: str, blocks: Iterable[Track]) -> None:
        self._blocks = iter(blocks)
        first = next(self._blocks, None)
        if first is None or first.rate_hz is None:
            raise ValueError(f"{name}: expected one block of a regular sensor at least, found {first}")
        self._held = first
        self.rate_hz = first.rate_hz

    def rows_for(self, part: Grid) -> Track:
        """Rows that values on this part of the grid depend on; parts must come in their order."""
        needed_after_ns = part.first_ns - reach_ns(self.rate_hz, part.period_ns)
        self._held = self._held.after(needed_after_ns)
        while not len(self._held.t_ns_T) or self._held.t_ns_T[-1] <= part.last_ns:
            block = next(self._blocks, None)
            if block is None:
                break
            self._held = self._held.followed_by(block).after(needed_after_ns)
        return self._held
