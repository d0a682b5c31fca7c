"""Device clocks that run wrong in known ways, and the NTP exchanges from which that can be found out.

A clock is off by an offset, a frequency error that settles while the oscillator warms up, a slow random walk of the
frequency, and steps when its own daemon loses patience. Between knots `KNOT_S` apart the error is linear by definition,
so that the truth can be written down exactly.

Shape suffixes: T = rows or instants, N = knots, S = steps, X = exchanges.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.simulate.streams import compiled

KNOT_S = 10.0
KNOT_NS = 10_000_000_000
LEAD_S = 120.0
"""The clock is defined this long before the start of the trip and after its end."""

LEAD_NS = 120_000_000_000
GPS_MINUS_UTC_S = 18
UNSYNCHRONISED_STRATUM = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """Delays of one way through a network, in milliseconds."""

    base_ms: float
    queue_ms: float
    """Mean of the exponential queueing delay in quiet times."""

    asymmetry_ms: float
    """Standard deviation between servers of the constant part that one way is longer than the other."""

    poll_s: float
    loss: float
    """Share of the exchanges that get no answer."""

    num_outages: int = 0
    """Times, of two to six minutes, in which nothing gets through."""


LINKS: dict[str, Link] = {
    "lan": Link(base_ms=0.15, queue_ms=0.08, asymmetry_ms=0.08, poll_s=16.0, loss=0.02),
    "wifi": Link(base_ms=1.2, queue_ms=0.8, asymmetry_ms=0.25, poll_s=32.0, loss=0.05),
    "cellular": Link(base_ms=22.0, queue_ms=6.0, asymmetry_ms=2.8, poll_s=32.0, loss=0.05),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockSpec:
    """What is fixed about a device clock: how it counts, how wrong it may be, and how it asks for the time."""

    kind: str
    """`epoch`, `ticks` or `gps`, as in the bundle's manifest."""

    link: Link | None
    """Its way to the servers; `None` for a clock that exchanges no NTP."""

    max_offset_s: float
    max_drift_ppm: float
    wander_ppm: float
    """Random walk of the frequency: standard deviation after one second."""

    num_steps: tuple[int, int]
    """Least and most steps."""

    steps_within_s: float
    """Longest time between the first and the last step."""

    @property
    def ntp_unit(self) -> str:
        """Unit of the device stamps in `ntp_log.csv`."""
        return "us_u32" if self.kind == "ticks" else "ns"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Clock:
    """One device clock over one trip. Times are nanoseconds since the start of the trip."""

    clock_id: str
    spec: ClockSpec
    start_ns: int
    """UTC of the start of the trip."""

    base_ns: int
    """Device minus UTC of a perfect clock: 0 for an epoch clock, minus the power-on time for a tick counter."""

    error_ns_N: np.ndarray
    step_at_ns_S: np.ndarray
    step_ns_S: np.ndarray
    drift_ppm: float

    def read(self, since_ns_T: np.ndarray) -> np.ndarray:
        """Return what the device's clock shows, in nanoseconds, at instants since the start of the trip."""
        shown_ns_T: np.ndarray = _read(since_ns_T, self.start_ns + self.base_ns, self.error_ns_N)
        for at_ns, step_ns in zip(self.step_at_ns_S, self.step_ns_S, strict=True):
            shown_ns_T[since_ns_T >= at_ns] += step_ns
        return shown_ns_T

    def truth(self) -> pl.DataFrame:
        """Error at every knot, without the steps: `device_minus_utc_ns` is linear between them."""
        knot_since_ns_N = np.arange(len(self.error_ns_N)) * KNOT_NS - LEAD_NS
        return pl.DataFrame(
            {
                "clock_id": [self.clock_id] * len(knot_since_ns_N),
                "t_utc_ns": self.start_ns + knot_since_ns_N,
                "device_minus_utc_ns": self.base_ns + self.error_ns_N,
            }
        )

    def facts(self) -> dict[str, object]:
        """Summarise for `truth.json`; offset is meant at the start of the trip, a step from its instant on."""
        return {
            "kind": self.spec.kind,
            "offset_s": round(int(self.error_ns_N[int(LEAD_S / KNOT_S)]) * 1e-9, 9),
            "drift_ppm": round(self.drift_ppm, 6),
            "power_on_utc_ns": -self.base_ns if self.spec.kind == "ticks" else None,
            "steps": [
                {"t_utc_ns": self.start_ns + int(at_ns), "shift_ns": int(step_ns)}
                for at_ns, step_ns in zip(self.step_at_ns_S, self.step_ns_S, strict=True)
            ],
        }


def make_clock(
    clock_id: str,
    spec: ClockSpec,
    random: np.random.Generator,
    *,
    start_ns: int,
    duration_s: float,
    is_perfect: bool,
) -> Clock:
    """Draw one clock for one trip."""
    after_start_s_N = np.arange(0.0, 2 * LEAD_S + duration_s + KNOT_S, KNOT_S) - LEAD_S
    drift_ppm = float(random.uniform(-spec.max_drift_ppm, spec.max_drift_ppm))
    error_ns_N = _error(random, after_start_s_N, spec, drift_ppm=drift_ppm)
    num_steps = int(random.integers(spec.num_steps[0], spec.num_steps[1] + 1))
    step_at_ns_S = np.sort(random.uniform(0.08, 0.92, size=num_steps) * duration_s * 1e9).astype(np.int64)
    step_at_ns_S = _move_together(step_at_ns_S, within_s=spec.steps_within_s)
    step_ns_S = np.exp(random.uniform(np.log(0.05), np.log(2.0), size=num_steps)) * random.choice(
        [-1e9, 1e9], num_steps
    )
    base_ns = -_power_on_ns(random, start_ns, duration_s) if spec.kind == "ticks" else 0
    if is_perfect or spec.kind == "gps":
        error_ns_N, drift_ppm = np.zeros(len(error_ns_N)), 0.0
        step_at_ns_S, step_ns_S = np.empty(0, dtype=np.int64), np.empty(0)
    return Clock(
        clock_id=clock_id,
        spec=spec,
        start_ns=start_ns,
        base_ns=base_ns,
        error_ns_N=np.rint(error_ns_N).astype(np.int64),
        step_at_ns_S=step_at_ns_S,
        step_ns_S=step_ns_S.astype(np.int64),
        drift_ppm=drift_ppm,
    )


def exchange(
    clocks: list[Clock], random_of_clock: dict[str, np.random.Generator], servers: "Servers", *, duration_s: float
) -> pl.DataFrame:
    """Return `ntp_log.csv`: the exchanges of every clock that has a link, with every server, oldest first."""
    logs = [
        _exchanges(clock, clock.spec.link, random_of_clock[clock.clock_id], servers, duration_s)
        for clock in clocks
        if clock.spec.link is not None
    ]
    return pl.concat(logs).sort("asked", maintain_order=True).drop("asked")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSpec:
    """What is fixed about the time servers of a trip."""

    count: int
    num_liars: int
    """Servers that lie in a trip that has liars."""

    lying_share: float
    """Share of the trips that have liars."""

    latest_lie: float
    """Part of the trip by which every liar has begun; 0: they lie from the start."""

    max_lie_drift_ppm: float
    """How fast a lie may grow or shrink."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lie:
    """How a server's clock is off although it says that it is synchronised."""

    from_ns: int
    """Since the start of the trip."""

    offset_ns: int
    drift_ppm: float

    def error_ns(self, since_ns_X: np.ndarray) -> np.ndarray:
        """How far the clock is ahead of UTC."""
        lying_ns_X = since_ns_X - self.from_ns
        grown_ns_X = (lying_ns_X * (self.drift_ppm * 1e-6)).astype(np.int64)
        return np.where(lying_ns_X >= 0, self.offset_ns + grown_ns_X, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Servers:
    """The time servers of one trip, of which some may lie."""

    names: tuple[str, ...]
    lies: Mapping[str, Lie]
    """By the name of the liar."""

    def stratum(self, server: int) -> int:
        """The first server has a reference clock, the others ask it."""
        return 1 if server == 0 else 2

    def error_ns(self, server: int, since_ns_X: np.ndarray) -> np.ndarray:
        """How far this server's clock is ahead of UTC."""
        lie = self.lies.get(self.names[server])
        return np.zeros(len(since_ns_X), dtype=np.int64) if lie is None else lie.error_ns(since_ns_X)


def make_servers(spec: ServerSpec, random: np.random.Generator, *, duration_s: float, are_honest: bool) -> Servers:
    """Draw the servers of one trip."""
    names = tuple(f"ntp-{letter}" for letter in string.ascii_lowercase[: spec.count])
    has_liars = random.random() < spec.lying_share
    first_liar = int(random.integers(spec.count))
    liars = [names[(first_liar + i) % spec.count] for i in range(spec.num_liars)]
    lies = {name: _lie(spec, random, duration_s) for name in liars}
    return Servers(names=names, lies=lies if has_liars and not are_honest else {})


def _lie(spec: ServerSpec, random: np.random.Generator, duration_s: float) -> Lie:
    offset_ns = int(random.choice([-1, 1]) * random.uniform(80e6, 600e6))
    from_ns = int(random.uniform(0.0, spec.latest_lie) * duration_s * 1e9)
    return Lie(
        from_ns=from_ns,
        offset_ns=offset_ns,
        drift_ppm=float(random.uniform(-spec.max_lie_drift_ppm, spec.max_lie_drift_ppm)),
    )


@compiled
def _read(since_ns_T: np.ndarray, base_ns: int, error_ns_N: np.ndarray) -> np.ndarray:
    shown_ns_T = np.empty(len(since_ns_T), dtype=np.int64)
    last = len(error_ns_N) - 2
    for i in range(len(since_ns_T)):
        from_first_ns = since_ns_T[i] + LEAD_NS
        n = min(max(from_first_ns // KNOT_NS, 0), last)
        slope = (error_ns_N[n + 1] - error_ns_N[n]) / KNOT_NS
        error_ns = error_ns_N[n] + slope * (from_first_ns - n * KNOT_NS)
        shown_ns_T[i] = base_ns + since_ns_T[i] + np.int64(np.rint(error_ns))
    return shown_ns_T


def _error(
    random: np.random.Generator, after_start_s_N: np.ndarray, spec: ClockSpec, *, drift_ppm: float
) -> np.ndarray:
    """Error of the clock at its knots, in nanoseconds."""
    offset_ns = random.uniform(-spec.max_offset_s * 1e9, spec.max_offset_s * 1e9)
    warm_up_ppm, warm_up_s = random.uniform(-8.0, 8.0), random.uniform(300.0, 900.0)
    wander_ppm_N = np.cumsum(random.normal(0.0, spec.wander_ppm * np.sqrt(KNOT_S), size=len(after_start_s_N)))
    frequency_ppm_N = drift_ppm + warm_up_ppm * np.exp(-(after_start_s_N + LEAD_S) / warm_up_s) + wander_ppm_N
    gained_ns_N = np.concatenate([[0.0], np.cumsum(frequency_ppm_N[:-1] * KNOT_S * 1e3)])
    return np.asarray(offset_ns + gained_ns_N - gained_ns_N[int(LEAD_S / KNOT_S)])


def _move_together(step_at_ns_S: np.ndarray, *, within_s: float) -> np.ndarray:
    """Bring the steps as close to the first one as they have to be, in proportion."""
    if len(step_at_ns_S) < 2:
        return step_at_ns_S
    behind_ns_S = step_at_ns_S - step_at_ns_S[0]
    share = min(within_s * 1e9 / float(behind_ns_S[-1]), 1.0)
    return np.asarray(step_at_ns_S[0] + (behind_ns_S * share).astype(np.int64))


def _power_on_ns(random: np.random.Generator, start_ns: int, duration_s: float) -> int:
    """When the counter started: on every other trip such that its 32 bits (71.6 min) overflow on the way."""
    wrap_ns = 2**32 * 1_000
    before_ns = random.uniform(300e9, wrap_ns - duration_s * 1e9 - 60e9) if duration_s < 3_600 else 300e9
    if random.random() < 0.5:
        before_ns = wrap_ns - random.uniform(0.1, 0.9) * duration_s * 1e9
    return start_ns - int(before_ns)


def _exchanges(
    clock: Clock, link: Link, random: np.random.Generator, servers: Servers, duration_s: float
) -> pl.DataFrame:
    asymmetry_ms = random.normal(0.0, link.asymmetry_ms, size=len(servers.names))
    jam_from_s, jam_length_s = random.uniform(0.0, duration_s), random.uniform(60.0, 180.0)
    outages_s = [(random.uniform(0.0, duration_s), random.uniform(120.0, 360.0)) for _ in range(link.num_outages)]
    logs = []
    for server, name in enumerate(servers.names):
        count = int((duration_s + 60.0) / link.poll_s)
        asked_s = -30.0 + (np.arange(count) + random.uniform(0.0, 1.0, size=count)) * link.poll_s
        asked_s = asked_s[random.random(count) >= link.loss]
        for from_s, length_s in outages_s:
            asked_s = asked_s[(asked_s < from_s) | (asked_s >= from_s + length_s)]
        is_jammed_X = (asked_s >= jam_from_s) & (asked_s < jam_from_s + jam_length_s)
        queue_ms_X = link.queue_ms * np.where(is_jammed_X, 12.0, 1.0)
        out_ms_X = link.base_ms + max(asymmetry_ms[server], 0.0) + random.exponential(queue_ms_X)
        back_ms_X = link.base_ms + max(-asymmetry_ms[server], 0.0) + random.exponential(queue_ms_X)
        sent_ns_X = (asked_s * 1e9).astype(np.int64)
        arrived_ns_X = sent_ns_X + (out_ms_X * 1e6).astype(np.int64)
        answered_ns_X = arrived_ns_X + random.integers(10_000, 60_000, size=len(sent_ns_X))
        received_ns_X = answered_ns_X + (back_ms_X * 1e6).astype(np.int64)
        is_unsynchronised_X = random.random(len(sent_ns_X)) < 0.02
        wrong_ns_X = servers.error_ns(server, sent_ns_X) + np.where(
            is_unsynchronised_X, random.uniform(-1e9, 1e9, size=len(sent_ns_X)).astype(np.int64), 0
        )
        logs.append(
            pl.DataFrame(
                {
                    "asked": sent_ns_X,
                    "clock_id": [clock.clock_id] * len(sent_ns_X),
                    "server_id": [name] * len(sent_ns_X),
                    "t1_dev": _as_logged(clock, sent_ns_X),
                    "t2_srv": clock.start_ns + arrived_ns_X + wrong_ns_X,
                    "t3_srv": clock.start_ns + answered_ns_X + wrong_ns_X,
                    "t4_dev": _as_logged(clock, received_ns_X),
                    "stratum": np.where(is_unsynchronised_X, UNSYNCHRONISED_STRATUM, servers.stratum(server)),
                    "root_dispersion_ms": np.round(
                        np.where(is_unsynchronised_X, 900.0, random.uniform(0.3, 3.0, size=len(sent_ns_X))), 3
                    ),
                }
            )
        )
    return pl.concat(logs)


def _as_logged(clock: Clock, since_ns_X: np.ndarray) -> np.ndarray:
    shown_ns_X = clock.read(since_ns_X)
    return (shown_ns_X + 500) // 1_000 % 2**32 if clock.spec.ntp_unit == "us_u32" else shown_ns_X
