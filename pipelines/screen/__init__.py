"""Mark readings that cannot be true. Screening never changes a value; it says why to distrust it.

Like the clock maps, and unlike alignment, it looks at what came after: a spike is one because the readings after it are
back. It can take a reading away for that, but not give one.

- `reasons`         what may be wrong with a reading, strongest first
- `readings`        checks of one channel by itself
- `contradictions`  checks of two channels that cannot both be right
- `sensor`          the readings of a sensor that are believed, and what was found wrong with the others
"""

from pipelines.screen.contradictions import Readings, contradicted
from pipelines.screen.readings import screen
from pipelines.screen.reasons import REASONS, Reason
from pipelines.screen.sensor import Screened, out_of_order, screen_sensor

__all__ = ["REASONS", "Readings", "Reason", "Screened", "contradicted", "out_of_order", "screen", "screen_sensor"]
