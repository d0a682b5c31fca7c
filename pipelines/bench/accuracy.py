"""How near synchronised rows, positions and clock maps come to the truth of a simulated trip, and what is near enough.

Rows are a table of `sensor, row, t_utc_ns, sigma_ns, line_m, position_sigma_m`, as `trackside sync` writes them:
`t_utc_ns` is null where the row was rejected. Only good rows that were accepted have an error; whether the right rows
were accepted is counted apart, so that no estimator looks better for leaving out what is hard.

Shape suffixes: T = rows, S = seconds of a trip.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from pipelines.clocks.clock_map import ClockMap
from pipelines.clocks.stamps import TICKS_MODULUS_NS
from pipelines.simulate import Difficulty, Trip

RECOVERED_NS = 50_000_000
"""A row with a spoilt stamp counts as recovered if it is put this near to when it was measured."""

AWAY_FROM_STEPS_NS = 60_000_000_000
"""How far from a step a clock map is judged by itself: some exchanges on the slowest link."""

DENIED_NS = 2_000_000_000
"""Satellite positions are denied where none was received for longer than this, before and after."""


class RowBar(NamedTuple):
    """What the time errors of a sensor's rows must stay below, in milliseconds."""

    median: float
    p99: float


ROW_BARS = {"lan": RowBar(0.3, 2.0), "wifi": RowBar(0.7, 5.0), "cellular": RowBar(8.0, 12.0)}
"""By the link of the sensor's clock."""

UNTIED_BAR = RowBar(4.0, 12.0)
"""Of a sensor whose clock is never compared with UTC. The median is that of many trips together: the noise of a radar
leaves the offset of one trip open by 2 ms, by one standard error, whoever estimates it."""

LAN_MAP_P99_MS = 0.2
SPOILT_HANDLED = GOOD_KEPT = 0.995
EVENTS_KEPT = 0.98
WHEEL_ERROR = 3e-4
PLACED = 0.99
"""Share of the accepted rows that must have a place; simulated trips end on the line that they are simulated on."""


class PlaceBar(NamedTuple):
    """What the errors of places must stay below, in metres."""

    median: float
    p95: float
    p99: float


OPEN_SKY_BAR = PlaceBar(0.4, 2.0, 8.0)
DENIED_BAR = PlaceBar(0.4, 1.5, 4.0)
WITHIN_95 = (0.93, 0.97)
"""How many of the truths 95 % intervals should hold."""


class Errors(NamedTuple):
    """Absolute errors, in the unit that the name of the field or column says."""

    median: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, error: np.ndarray) -> "Errors":
        """Summarise; NaN where there is nothing to summarise."""
        if not len(error):
            return cls(*[float("nan")] * 4)
        return cls(*(float(value) for value in np.percentile(np.abs(error), [50, 95, 99, 100])))


class RowScore(NamedTuple):
    """How well the rows of one sensor were put in time."""

    error_ms: Errors
    """Of good rows that were accepted."""

    good_kept: float
    """Share of the good rows that were accepted."""

    spoilt_handled: float
    """Share of the rows with a spoilt stamp that were rejected or recovered; NaN if there are none."""

    repeats_rejected: float
    """Share of the repeated rows that were rejected; NaN if there are none."""

    within_95: float
    """Share of the accepted good rows whose error is below 1.96 times the stated uncertainty."""


class PlaceScore(NamedTuple):
    """How well rows were put on the line."""

    error_m: Errors
    """Of good rows that have a place."""

    placed: float
    """Share of the accepted good rows that have a place."""

    within_95: float
    """Share of the places whose error is below 1.96 times the stated uncertainty."""


class MapScore(NamedTuple):
    """How well a clock map does by itself, once a second, away from steps."""

    error_ms: Errors
    within_95: float


class TripScore(NamedTuple):
    """Everything that is judged about one trip."""

    rows: dict[str, RowScore]
    """By sensor."""

    open_sky: PlaceScore
    denied: PlaceScore
    maps: dict[str, MapScore]
    """By clock that exchanges NTP."""

    wheel_error: float
    """Relative error of the wheel diameter; NaN if none was found."""


def score_trip(
    trip: Trip, rows: pl.DataFrame, *, maps: Mapping[str, ClockMap], wheel_diameter_m: float | None
) -> TripScore:
    """Compare all that was found out about a trip with the truth."""
    true_m = trip.truth.facts["wheel_diameter_m"]
    open_sky, denied = score_places(trip, rows)
    return TripScore(
        rows=score_rows(trip, rows),
        open_sky=open_sky,
        denied=denied,
        maps={clock_id: score_map(trip, clock) for clock_id, clock in maps.items() if clock.method == "exchanges"},
        wheel_error=abs(wheel_diameter_m / true_m - 1.0) if wheel_diameter_m is not None else float("nan"),
    )


def missed(score: TripScore, trip: Trip, difficulty: Difficulty) -> list[str]:
    """Say which bars a trip misses, one line each, and what it has nothing to show for. See `missed_together` too."""
    lines = []
    for name, own in score.rows.items():
        sensor = trip.meta["sensors"][name]
        is_regular = sensor["nominal_rate_hz"] is not None
        if is_regular and trip.meta["clocks"][sensor["clock_id"]]["kind"] != "gps":
            link = difficulty.links.get(sensor["clock_id"])
            bar = UNTIED_BAR._replace(median=UNTIED_BAR.p99) if link is None else ROW_BARS[link]
            lines += _above(f"{name} error, ms", own.error_ms, bar)
        lines += _below(f"{name} good rows kept", own.good_kept, GOOD_KEPT if is_regular else EVENTS_KEPT)
        lines += _below(f"{name} spoilt rows handled", own.spoilt_handled, SPOILT_HANDLED)
    for clock_id in [each for each, link in difficulty.links.items() if link == "lan"]:
        p99_ms = score.maps[clock_id].error_ms.p99 if clock_id in score.maps else float("nan")
        if not p99_ms <= LAN_MAP_P99_MS:
            lines.append(f"map of {clock_id}, ms: p99 {p99_ms:.3f} > {LAN_MAP_P99_MS}")
    for sky, place, limits in (("open sky", score.open_sky, OPEN_SKY_BAR), ("denied", score.denied, DENIED_BAR)):
        lines += _above(f"{sky}, m", place.error_m, limits)
        lines += _below(f"{sky}, placed", place.placed, PLACED)
    if not score.wheel_error <= WHEEL_ERROR:
        lines.append(f"wheel diameter: {score.wheel_error:.5f} > {WHEEL_ERROR}")
    return lines


def missed_together(untied_ms: np.ndarray) -> list[str]:
    """Say which bars the rows of clocks that were never compared with UTC miss, those of all trips together."""
    return _above("rows of untied clocks, ms", Errors.of(untied_ms), UNTIED_BAR)


def time_errors_ms(trip: Trip, rows: pl.DataFrame) -> dict[str, np.ndarray]:
    """Errors of the good rows of every sensor that have an instant; of `rows`, `sensor, row, t_utc_ns` are enough."""
    return {name: _time_error_ns(_beside_truth(trip, rows, name)) * 1e-6 for name in trip.frames}


def score_rows(trip: Trip, rows: pl.DataFrame) -> dict[str, RowScore]:
    """Score the rows of every sensor of the trip; a sensor that `rows` lacks has no accepted rows."""
    return {name: _score_sensor(_beside_truth(trip, rows, name)) for name in trip.frames}


def score_places(trip: Trip, rows: pl.DataFrame) -> tuple[PlaceScore, PlaceScore]:
    """Score the places of all good accepted rows; return those in open sky and those where satellites are denied."""
    accepted = pl.concat([_beside_truth(trip, rows, name) for name in trip.frames]).filter(
        pl.col("true_ns").is_not_null(), pl.col("t_utc_ns").is_not_null()
    )
    is_denied = _is_denied(trip, accepted["true_ns"].to_numpy())
    return _score_place(accepted.filter(~is_denied)), _score_place(accepted.filter(is_denied))


def score_map(trip: Trip, clock: ClockMap) -> MapScore:
    """Score a clock map on readings of the clock once a second."""
    facts = trip.truth.facts
    utc_ns_S = np.arange(facts["start_utc_ns"], facts["end_utc_ns"], 1_000_000_000)
    step_at_ns = [step["t_utc_ns"] for step in facts["clocks"][clock.clock_id]["steps"]]
    is_away_S = np.ones(len(utc_ns_S), dtype=bool)
    for at_ns in step_at_ns:
        is_away_S &= np.abs(utc_ns_S - at_ns) > AWAY_FROM_STEPS_NS
    shown_ns_S = _readings_ns(trip, clock.clock_id, utc_ns_S)
    if trip.meta["clocks"][clock.clock_id]["kind"] == "ticks":
        shown_ns_S = _in_round_of(clock, shown_ns_S)
    found_ns_S, sigma_ns_S = clock.to_utc(shown_ns_S)
    error_ns_S = (found_ns_S - utc_ns_S)[is_away_S]
    return MapScore(
        error_ms=Errors.of(error_ns_S * 1e-6), within_95=_share(np.abs(error_ns_S) <= 1.96 * sigma_ns_S[is_away_S])
    )


def _above(name: str, errors: Errors, bar: RowBar | PlaceBar) -> list[str]:
    found = errors._asdict()
    return [f"{name}: {key} {found[key]:.3f} > {limit}" for key, limit in bar._asdict().items() if found[key] > limit]


def _below(name: str, share: float, least: float) -> list[str]:
    return [f"{name}: {share:.4f} < {least}"] if share < least else []


def _beside_truth(trip: Trip, rows: pl.DataFrame, sensor: str) -> pl.DataFrame:
    """Rows of one sensor as its file has them: what was found beside `true_ns`, `true_m`, `measured_ns`, `why`."""
    truth = trip.truth.rows[sensor].select(
        "row", pl.col("t_utc_ns").alias("true_ns"), pl.col("line_m").alias("true_m"), pl.col("reason").alias("why")
    )
    found = rows.filter(pl.col("sensor") == sensor).drop("sensor", "reason", "value_ok", strict=False)
    return truth.with_columns(measured_ns=trip.truth.measured_utc_ns[sensor]).join(
        found, on="row", how="left", maintain_order="left"
    )


def _time_error_ns(beside: pl.DataFrame) -> np.ndarray:
    return (beside["t_utc_ns"] - beside["true_ns"]).drop_nulls().to_numpy()


def _score_sensor(beside: pl.DataFrame) -> RowScore:
    good = beside.filter(pl.col("true_ns").is_not_null())
    accepted = good.filter(pl.col("t_utc_ns").is_not_null())
    error_ns_T = _time_error_ns(accepted)
    spoilt = beside.filter(pl.col("why") == "bad_stamp")
    is_handled_T = spoilt["t_utc_ns"].is_null() | ((spoilt["t_utc_ns"] - spoilt["measured_ns"]).abs() <= RECOVERED_NS)
    return RowScore(
        error_ms=Errors.of(error_ns_T * 1e-6),
        good_kept=accepted.height / good.height if good.height else float("nan"),
        spoilt_handled=_share(is_handled_T.to_numpy()),
        repeats_rejected=_share(beside.filter(pl.col("why") == "duplicate")["t_utc_ns"].is_null().to_numpy()),
        within_95=_share(np.abs(error_ns_T) <= 1.96 * accepted["sigma_ns"].to_numpy()),
    )


def _score_place(accepted: pl.DataFrame) -> PlaceScore:
    placed = accepted.filter(pl.col("line_m").is_not_null())
    error_m_T = (placed["line_m"] - placed["true_m"]).to_numpy()
    return PlaceScore(
        error_m=Errors.of(error_m_T),
        placed=placed.height / accepted.height if accepted.height else float("nan"),
        within_95=_share(np.abs(error_m_T) <= 1.96 * placed["position_sigma_m"].to_numpy()),
    )


def _is_denied(trip: Trip, utc_ns_T: np.ndarray) -> np.ndarray:
    """Tell at which instants no satellite position was received shortly before or after."""
    has_fix = trip.frames["gnss"]["fix"] >= 2
    fix_ns = np.sort(trip.truth.rows["gnss"].filter(has_fix)["t_utc_ns"].drop_nulls().to_numpy())
    if not len(fix_ns):
        return np.ones(len(utc_ns_T), dtype=bool)
    after = np.searchsorted(fix_ns, utc_ns_T)
    from_last_ns_T = utc_ns_T - fix_ns[np.maximum(after - 1, 0)]
    to_next_ns_T = fix_ns[np.minimum(after, len(fix_ns) - 1)] - utc_ns_T
    return np.asarray(np.minimum(np.abs(from_last_ns_T), np.abs(to_next_ns_T)) > DENIED_NS)


def _readings_ns(trip: Trip, clock_id: str, utc_ns_S: np.ndarray) -> np.ndarray:
    """What a clock showed at given instants, the steps included."""
    knots = trip.truth.clocks.filter(pl.col("clock_id") == clock_id)
    first_utc_ns, base_ns = knots["t_utc_ns"][0], knots["device_minus_utc_ns"][0]
    error_ns_S = np.interp(
        utc_ns_S - first_utc_ns,
        (knots["t_utc_ns"] - first_utc_ns).to_numpy(),
        (knots["device_minus_utc_ns"] - base_ns).to_numpy(),
    )
    shown_ns_S: np.ndarray = utc_ns_S + base_ns + np.rint(error_ns_S).astype(np.int64)
    for step in trip.truth.facts["clocks"][clock_id]["steps"]:
        shown_ns_S[utc_ns_S >= step["t_utc_ns"]] += step["shift_ns"]
    return shown_ns_S


def _in_round_of(clock: ClockMap, shown_ns_S: np.ndarray) -> np.ndarray:
    """Count a counter's overflows from where its map does."""
    middle_ns = int(np.median(np.concatenate([segment.dev_ns_K[1:-1] for segment in clock.segments])))
    rounds = round((middle_ns - int(shown_ns_S[len(shown_ns_S) // 2])) / TICKS_MODULUS_NS)
    return shown_ns_S + rounds * TICKS_MODULUS_NS


def _share(is_so_T: np.ndarray) -> float:
    return float(np.mean(is_so_T)) if len(is_so_T) else float("nan")
