"""What goes wrong with rows between a sensor and its file, with a record of what was done.

Shape suffixes: T = rows as they were measured, R = rows as they are stored.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.simulate.stamps import GPS_EPOCH_UNIX_S

REASONS = ("duplicate", "bad_stamp", "missing_value", "bad_value")
"""Why a row or its value must be rejected, strongest first."""

NO_REASON = len(REASONS)
DUPLICATE, BAD_STAMP, MISSING_VALUE, BAD_VALUE = range(NO_REASON)


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """How much goes wrong with the rows of one sensor. Shares are of all rows; any positive share hits at least one."""

    jitter_ms: float = 0.0
    """Mean (one-sided) or standard deviation (symmetric) of the delay between measuring and stamping."""

    jitter: str = "exponential"
    """`exponential` (queueing), `uniform` (polling, 0 to twice the mean) or `normal` (own timer)."""

    late_stamp_share: float = 0.0
    """Rows that are stamped 20 to 200 ms late, one at a time."""

    num_gaps: int = 0
    gap_s: tuple[float, float] = (2.0, 30.0)
    gap_at_s: tuple[tuple[float, float], ...] = ()
    """More gaps, at given times: from and to, in seconds after the first row."""

    duplicate_share: float = 0.0
    late_row_share: float = 0.0
    """Rows that are stored 2 to 40 rows after their turn, their stamp correct."""

    bad_stamp_share: float = 0.0
    missing_share: float = 0.0
    """Readings that are absent, of each channel."""

    bad_value_share: float = 0.0
    """Readings that are far outside what the channel can be."""


NO_DAMAGE = Damage()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stored:
    """Which measured row each stored row is."""

    source_R: np.ndarray
    is_duplicate_R: np.ndarray


def stamping_delay_ns(num_rows: int, damage: Damage, random: np.random.Generator) -> np.ndarray:
    """Draw how long after its turn each row is stamped, in nanoseconds."""
    match damage.jitter:
        case "exponential":
            delay_ms_T = random.standard_exponential(num_rows, dtype=np.float32) * np.float32(damage.jitter_ms)
        case "uniform":
            delay_ms_T = random.random(num_rows, dtype=np.float32) * np.float32(2.0 * damage.jitter_ms)
        case "normal":
            delay_ms_T = random.standard_normal(num_rows, dtype=np.float32) * np.float32(damage.jitter_ms)
        case _:
            raise ValueError(f"jitter is {damage.jitter!r}; expected exponential, uniform or normal")
    late_T = pick(num_rows, damage.late_stamp_share, random)
    delay_ms_T[late_T] += random.uniform(20.0, 200.0, size=len(late_T)).astype(np.float32)
    return (delay_ms_T * np.float32(1e6)).astype(np.int64)


def store(num_rows: int, rate_hz: float, damage: Damage, random: np.random.Generator) -> Stored:
    """Lose, repeat and delay rows on their way into the file."""
    keep_T = np.ones(num_rows, dtype=bool)
    for _ in range(damage.num_gaps):
        length = int(random.uniform(*damage.gap_s) * rate_hz)
        first = int(random.uniform(0.05, 0.9) * num_rows)
        keep_T[first : first + length] = False
    for from_s, to_s in damage.gap_at_s:
        keep_T[int(from_s * rate_hz) : int(to_s * rate_hz)] = False
    source_R = np.flatnonzero(keep_T)

    late = np.unique(pick(max(len(source_R) - 41, 0), damage.late_row_share, random))
    moved = source_R[late]
    behind = late + random.integers(2, 41, size=len(late)) - np.arange(len(late))
    source_R = np.insert(np.delete(source_R, late), behind, moved)

    again = np.unique(pick(len(source_R), damage.duplicate_share, random))
    is_duplicate_R = np.insert(np.zeros(len(source_R), dtype=bool), again + 1, True)
    return Stored(source_R=np.insert(source_R, again + 1, source_R[again]), is_duplicate_R=is_duplicate_R)


def spoil(device_ns_R: np.ndarray, at_R: np.ndarray, random: np.random.Generator, *, kind: str) -> np.ndarray:
    """Return device times that cannot be true at the positions `at_R`: zero, as after a reset, or hours off."""
    hours = random.choice([-1.0, 1.0], size=len(at_R)) * random.uniform(1.5, 300.0, size=len(at_R))
    zero_ns = (GPS_EPOCH_UNIX_S - 18) * 10**9 if kind == "gps" else 0
    spoilt_ns_R = device_ns_R.copy()
    is_zero = random.random(len(at_R)) < 0.5
    spoilt_ns_R[at_R] = np.where(is_zero, zero_ns, device_ns_R[at_R] + (hours * 3.6e12).astype(np.int64))
    return spoilt_ns_R


def pick(num_rows: int, share: float, random: np.random.Generator) -> np.ndarray:
    """Draw positions of about `share` of the rows: none if the share is zero, else at least one."""
    if share <= 0.0 or num_rows == 0:
        return np.empty(0, dtype=np.int64)
    return np.sort(random.integers(0, num_rows, size=1 + random.poisson(share * num_rows)))
