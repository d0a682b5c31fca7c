"""Where on the line the train was: odometer, satellite fixes, balises and speed sensors fused along the route.

- `distance`        pulses counted and speeds integrated: how far each sensor saw the train go
- `travel`          one distance out of all of them; slip and slide
- `centre_line`     WGS 84 to `line_m`, and from there to the posted kilometre
- `places`          fixes and balises on the line, and which of them are outliers
- `fuse`            the Kalman filter and smoother, and how noisy everything is
- `track_position`  the whole, and what comes out of it
"""

from pipelines.position.distance import Distance, Wheel, rolled, travelled, wheel_of
from pipelines.position.track_position import REASONS, LocatedSlip, Residuals, TrackPosition, fit_position, travel_of
from pipelines.position.travel import Slip, Travel, travel

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
