"""How hard it is to put a simulated trip right: links, clocks, servers, rows, and what the train runs through.

`DEFAULT` is the fleet of the demo. Every other level of `LEVELS` makes one thing hard, so that what fails says why;
`hard` is all of them at once. The levels reach what a bad day brings, not what any estimator is tuned to.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pipelines.errors import ConfigError
from pipelines.simulate.clocks import LINKS, Clock, ClockSpec, Link, ServerSpec
from pipelines.simulate.damage import Damage
from pipelines.simulate.route import TUNNELS_M
from pipelines.simulate.sensors import Sensor

KINDS = {
    "control": "epoch",
    "vibration": "ticks",
    "geometry": "epoch",
    "brake": "epoch",
    "axle": "epoch",
    "radar": "epoch",
    "gps": "gps",
}
"""How each device clock of a vehicle counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difficulty:
    """What may go wrong in the trips of a fleet, and how badly. The defaults are a normal day."""

    links: Mapping[str, str] = field(
        default_factory=lambda: {
            "control": "lan",
            "vibration": "lan",
            "geometry": "lan",
            "brake": "wifi",
            "axle": "cellular",
        }
    )
    """Link of each clock that exchanges NTP: `lan`, `wifi` or `cellular`."""

    poll: float = 1.0
    """Time between two exchanges, as a multiple of what is usual on the link."""

    num_outages: int = 0
    """Times, of two to six minutes, in which no exchange of a clock gets through."""

    num_steps: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: {"control": (0, 1), "geometry": (0, 3), "brake": (0, 1), "axle": (0, 1)}
    )
    """Least and most steps, of 50 to 2000 ms, of each clock that steps."""

    steps_within_s: float = math.inf
    """Longest time between the first and the last step of a clock, in seconds."""

    step_in_gap: bool = False
    """Whether the last step of each clock falls into a gap of all regular rows that it stamps."""

    max_drift_ppm: float = 100.0
    wander_ppm: float = 0.02
    """Random walk of each clock's frequency: standard deviation after one second, in parts per million."""

    num_servers: int = 3
    num_liars: int = 1
    """Servers that lie in a trip with liars; a minority, or nobody could tell."""

    lying_share: float = 0.35
    """Share of the trips that have liars."""

    latest_lie: float = 0.5
    """Part of the trip by which every liar has begun; 0: they lie from the start."""

    max_lie_drift_ppm: float = 0.0
    """How fast a lie may grow or shrink."""

    jitter: float = 1.0
    """Delay between measuring and stamping, as a multiple of the sensor's own."""

    jitter_shape: Mapping[str, str] = field(default_factory=dict)
    """Sensors whose jitter has another shape than their own: see `Damage.jitter`."""

    more_gaps: int = 0
    """Gaps of every regular sensor beyond its own."""

    gap_length: float = 1.0
    """How long gaps are, as a multiple of the sensor's own."""

    spoiling: float = 1.0
    """Rows that are repeated, late, absent, false or falsely stamped, as a multiple of the sensor's own share."""

    slipperiness: float = 1.0
    """How often the wheel slips or slides, as a multiple of a normal day."""

    tunnels_m: tuple[tuple[float, float], ...] = TUNNELS_M
    """Where satellites cannot be seen: from and to, in every block of 40 km."""

    multipath_share: float = 0.0
    """Share of the time in which the satellite position is off by about 40 m."""

    against_line: bool = False
    """Whether the train runs towards smaller `line_m`."""

    radar_encoding: str = "epoch_ns"
    """How the radar, which asks no server for the time, stamps its rows; `ticks_us_u32` is a counter without epoch."""

    max_radar_offset_s: float = 2.0
    """How far the radar's clock may be off."""

    ends_summer_time: bool = False
    """Whether the fleet starts on the last Sunday of October, its first trip in the local hour that comes twice."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if not 0 <= 2 * self.num_liars < self.num_servers <= 26:
            raise ConfigError(
                f"{self.num_liars} of {self.num_servers} servers would lie; expected a minority of at most 26"
            )
        if unknown := sorted(set(self.links.values()) - LINKS.keys()):
            raise ConfigError(f"no link {unknown[0]!r}; expected one of {', '.join(LINKS)}")

    def clocks(self) -> dict[str, ClockSpec]:
        """The device clocks of a vehicle."""
        return {
            clock_id: ClockSpec(
                kind="ticks" if clock_id == "radar" and self.radar_encoding == "ticks_us_u32" else kind,
                link=self._link(clock_id),
                max_offset_s=self.max_radar_offset_s if clock_id == "radar" else 2.0,
                max_drift_ppm=self.max_drift_ppm,
                wander_ppm=self.wander_ppm,
                num_steps=self.num_steps.get(clock_id, (0, 0)),
                steps_within_s=self.steps_within_s,
            )
            for clock_id, kind in KINDS.items()
        }

    def servers(self) -> ServerSpec:
        """The servers that all clocks ask."""
        return ServerSpec(
            count=self.num_servers,
            num_liars=self.num_liars,
            lying_share=self.lying_share,
            latest_lie=self.latest_lie,
            max_lie_drift_ppm=self.max_lie_drift_ppm,
        )

    def sensor(self, name: str, usual: Sensor) -> Sensor:
        """A sensor with what goes wrong on such a day."""
        encoding = self.radar_encoding if name == "dop" else usual.encoding
        return replace(usual, encoding=encoding, damage=self._damage(name, usual))

    def around_steps(self, damage: Damage, clock: Clock) -> Damage:
        """Damage with a gap in which the last step of the clock is hidden, if there has to be one."""
        if not self.step_in_gap or len(clock.step_at_ns_S) == 0:
            return damage
        step_s = float(clock.step_at_ns_S[-1]) * 1e-9
        return replace(damage, gap_at_s=((step_s - 9.0, step_s + 6.0),))

    def _link(self, clock_id: str) -> Link | None:
        if clock_id not in self.links:
            return None
        usual = LINKS[self.links[clock_id]]
        return replace(usual, poll_s=usual.poll_s * self.poll, num_outages=self.num_outages)

    def _damage(self, name: str, usual: Sensor) -> Damage:
        damage = usual.damage
        return replace(
            damage,
            jitter=self.jitter_shape.get(name, damage.jitter),
            jitter_ms=damage.jitter_ms * self.jitter,
            num_gaps=damage.num_gaps + (self.more_gaps if usual.rate_hz is not None else 0),
            gap_s=(damage.gap_s[0] * self.gap_length, damage.gap_s[1] * self.gap_length),
            late_stamp_share=damage.late_stamp_share * self.spoiling,
            duplicate_share=damage.duplicate_share * self.spoiling,
            late_row_share=damage.late_row_share * self.spoiling,
            bad_stamp_share=damage.bad_stamp_share * self.spoiling,
            missing_share=damage.missing_share * self.spoiling,
            bad_value_share=damage.bad_value_share * self.spoiling,
        )


DEFAULT = Difficulty()

_ALL_STEP = dict.fromkeys(("control", "vibration", "geometry", "brake", "axle"), (2, 4))
_LONG_TUNNELS_M = (
    (3_000.0, 3_300.0),
    (7_000.0, 9_500.0),
    (12_200.0, 14_300.0),
    (19_000.0, 21_500.0),
    (30_600.0, 31_500.0),
)
_OTHER_SHAPES = {"odo": "exponential", "pneu": "normal", "trk": "uniform", "tmp": "exponential"}

LEVELS: Mapping[str, Difficulty] = MappingProxyType(
    {
        "default": DEFAULT,
        "lan": Difficulty(links=dict.fromkeys(DEFAULT.links, "lan")),
        "wifi": Difficulty(links=dict.fromkeys(DEFAULT.links, "wifi")),
        "cellular": Difficulty(links=dict.fromkeys(DEFAULT.links, "cellular")),
        "polls": Difficulty(poll=4.0, lying_share=1.0),
        "outages": Difficulty(num_outages=2, wander_ppm=0.05),
        "steps": Difficulty(num_steps=_ALL_STEP, step_in_gap=True),
        "close_steps": Difficulty(num_steps=_ALL_STEP, steps_within_s=90.0),
        "liar": Difficulty(num_servers=4, lying_share=1.0, latest_lie=0.0, max_lie_drift_ppm=60.0),
        "liars": Difficulty(num_servers=5, num_liars=2, lying_share=1.0, latest_lie=0.7, max_lie_drift_ppm=200.0),
        "drift": Difficulty(max_drift_ppm=5_000.0, wander_ppm=0.05),
        "jitter": Difficulty(jitter=2.5, spoiling=3.0, more_gaps=2),
        "gaps": Difficulty(more_gaps=2, gap_length=2.5),
        "shapes": Difficulty(jitter=1.5, jitter_shape=_OTHER_SHAPES, more_gaps=1),
        "slip": Difficulty(slipperiness=4.0, tunnels_m=_LONG_TUNNELS_M, multipath_share=0.02),
        "against_line": Difficulty(against_line=True, slipperiness=2.0),
        "autumn": Difficulty(ends_summer_time=True, num_steps=_ALL_STEP),
        "radar_ticks": Difficulty(radar_encoding="ticks_us_u32", slipperiness=2.0, max_drift_ppm=1_000.0),
        "radar_epoch": Difficulty(max_radar_offset_s=400.0, slipperiness=2.0, max_drift_ppm=1_000.0),
        "hard": Difficulty(
            poll=2.0,
            num_steps=_ALL_STEP,
            step_in_gap=True,
            max_drift_ppm=5_000.0,
            wander_ppm=0.05,
            num_servers=5,
            num_liars=2,
            lying_share=1.0,
            max_lie_drift_ppm=100.0,
            jitter=2.0,
            more_gaps=2,
            spoiling=2.0,
            slipperiness=4.0,
            tunnels_m=_LONG_TUNNELS_M,
            multipath_share=0.02,
            radar_encoding="ticks_us_u32",
            ends_summer_time=True,
        ),
    }
)
"""The levels by name."""


def level(name: str) -> Difficulty:
    """Return the level called `name`; raise `ConfigError` if there is none."""
    if name not in LEVELS:
        raise ConfigError(f"no difficulty {name!r}; expected one of {', '.join(LEVELS)}")
    return LEVELS[name]
