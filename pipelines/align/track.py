"""The rows of one sensor, by instant.

Shape suffix: T = rows of one sensor by instant.
"""

from dataclasses import dataclass, replace

import numpy as np

from pipelines.channels import Channel


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Track:
    """Rows of one sensor by instant, NaN where there is no reading."""

    sensor: str
    t_ns_T: np.ndarray
    """Nanoseconds UTC, ascending."""

    values: dict[str, np.ndarray]
    """Per channel: float, NaN where there is no reading; texts of an event stream."""

    channels: tuple[Channel, ...]
    rate_hz: float | None
    """`None` for an event stream."""

    def after(self, t_ns: int) -> "Track":
        """The rows later than `t_ns`; views."""
        first = int(np.searchsorted(self.t_ns_T, t_ns, side="right"))
        values = {name: x_T[first:] for name, x_T in self.values.items()}
        return replace(self, t_ns_T=self.t_ns_T[first:], values=values)

    def followed_by(self, later: "Track") -> "Track":
        """These rows and then those of `later`, which must not begin before these end."""
        if len(self.t_ns_T) and len(later.t_ns_T) and later.t_ns_T[0] < self.t_ns_T[-1]:
            raise ValueError(
                f"{self.sensor}: a block of rows begins at {later.t_ns_T[0]} ns, before the one ahead of it ends "
                f"({self.t_ns_T[-1]} ns); rows must be sorted by instant"
            )
        values = {name: np.concatenate([x_T, later.values[name]]) for name, x_T in self.values.items()}
        return replace(self, t_ns_T=np.concatenate([self.t_ns_T, later.t_ns_T]), values=values)
