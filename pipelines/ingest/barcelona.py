"""LTE cells in Barcelona (PDCCH measurements of CTTC): one CSV a cell, one row every two minutes.

Stamps are naive and the publisher states no zone; they are read as UTC as they are published. Cells have gaps in single
columns (null), which stay null.
"""

from collections.abc import Iterator

from pipelines import storage
from pipelines.channels import LTE_CHANNELS
from pipelines.ingest.days import Layout, read_days
from pipelines.ingest.reader import Recording

SOURCE = "barcelona_lte"

_LAYOUT = Layout(
    source=SOURCE,
    sensor="cell",
    channels=LTE_CHANNELS,
    stamp_column="time",
    clock_id="collector",
    nominal_rate_hz=1 / 120,
)


def read(location: str) -> Iterator[Recording]:
    """Yield one recording a day from the CSV file at `location`; the cell is named by its file."""
    return read_days(location, _LAYOUT, vehicle=storage.name_of(location).removesuffix(".csv"))
