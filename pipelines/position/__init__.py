"""Where on the line the train was: odometer, satellite fixes, balises and speed sensors fused along the route.

- `distance`        pulses counted and speeds integrated: how far each sensor saw the train go
- `cells`           those distances on equal cells of time
- `slip`            where the wheel slips or slides
- `travel`          one distance out of all of them
- `centre_line`     WGS 84 to `line_m`, and from there to the posted kilometre
- `places`          fixes and balises on the line, and which of them are outliers
- `legs`            which way along the line the train ran
- `fuse`            the Kalman filter and smoother, and how noisy everything is
- `locate`          the whole
- `track_position`  what comes out of it, for any instant
"""

from pipelines.position.distance import Distance, Wheel, rolled, travelled, wheel_of
from pipelines.position.locate import fit_position, travel_of
from pipelines.position.slip import Slip
from pipelines.position.track_position import REASONS, LocatedSlip, Residuals, TrackPosition
from pipelines.position.travel import Travel, travel

__all__ = [
    "REASONS",
    "Distance",
    "LocatedSlip",
    "Residuals",
    "Slip",
    "TrackPosition",
    "Travel",
    "Wheel",
    "fit_position",
    "rolled",
    "travel",
    "travel_of",
    "travelled",
    "wheel_of",
]
