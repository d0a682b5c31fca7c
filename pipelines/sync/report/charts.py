"""Charts that stay readable at any width: the picture stretches with the page, its text and its strokes do not.

They are plain SVG and HTML, drawn here rather than by a plotting library: text keeps its size on a phone and follows
the page into dark mode, nothing is fetched or run, and a report costs a tenth of a second, where matplotlib takes a
quarter of a second a chart, for all of them more than the ingestion of the recording.

Colours are numbers of the palette in `report.css`. Shape suffix: N = points of a layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import NamedTuple

import numpy as np

WIDTH, HEIGHT = 2000, 1000
"""Units of the drawing, which is stretched to the place that it gets."""

MAX_DOTS = 2_500
DENSE = 500
"""More dots than this are drawn smaller."""

BUCKETS = 700
"""A line keeps the lowest and the highest point of each of so many stretches."""

_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_BAR = 0.7
"""Share of a row of a timeline that its bar is high."""


class Axis(NamedTuple):
    """A range and what is written along it."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    @property
    def span(self) -> float:
        """Length of the range."""
        return self.high - self.low

    def has(self, values_N: np.ndarray) -> np.ndarray:
        """Tell which values are within the range; NaN counts as such, since it interrupts what is."""
        return np.asarray(~((values_N < self.low) | (values_N > self.high)))

    def scaled(self, values_N: np.ndarray) -> np.ndarray:
        """Values as shares of the range; those beyond it are put on its edge."""
        return np.clip((np.asarray(values_N, dtype=np.float64) - self.low) / self.span, 0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line through points in order; NaN interrupts it, and so do points further apart than `max_gap`."""

    x_N: np.ndarray
    y_N: np.ndarray
    label: str
    colour: int
    is_dashed: bool = False
    max_gap: float = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Dots:
    """Points by themselves; hollow ones are those that were not believed."""

    x_N: np.ndarray
    y_N: np.ndarray
    label: str
    colour: int
    is_hollow: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """What lies between two lines."""

    x_N: np.ndarray
    low_N: np.ndarray
    high_N: np.ndarray
    label: str
    colour: int


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Stretches of the x axis, at full height or between the shares `low` and `high` of it."""

    start_N: np.ndarray
    stop_N: np.ndarray
    label: str
    colour: int
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Places on the x axis, at full height or between the shares `low` and `high` of it."""

    x_N: np.ndarray
    label: str
    colour: int
    low: float = 0.0
    high: float = 1.0


Layer = Line | Dots | Band | Spans | Marks


def chart(
    title: str,
    layers: Sequence[Layer],
    *,
    x: Axis,
    y: Axis,
    note: str = "",
    height_rem: float = 15.0,
    is_ruled: bool = True,
) -> str:
    """Draw layers over each other, the first at the bottom, with a legend above that hides nothing.

    Args:
        title: What is shown; also what a screen reader says, with the note.
        layers: What to draw; those without a point are left out.
        x: Horizontal axis.
        y: Vertical axis.
        note: A sentence under the picture.
        height_rem: Height of the picture.
        is_ruled: Whether a line runs through the picture at each tick of `y`.
    """
    drawn = [(layer, _drawn(layer, x, y)) for layer in layers]
    keys = {layer.label: _key(layer) for layer, svg in drawn if svg and layer.label}
    longest = max((text for _, text in y.ticks), key=len, default="")
    rules = y.scaled(np.array([value for value, _ in y.ticks if is_ruled]))
    grid = "".join(f"M0 {_down(place)}H{WIDTH}" for place in rules)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><ul class="legend">{"".join(keys.values())}</ul>'
        f'<div class="plot" style="--height:{height_rem:g}rem"><div class="unit">{escape(y.label)}</div>'
        f'<div class="y"><b>{escape(longest)}</b>{_ticks(y, "bottom")}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(f"{title}. {note}")}"><path class="grid" d="{grid}"/>{"".join(svg for _, svg in drawn)}'
        f'</svg><div class="x">{_ticks(x, "left")}</div><div class="x-label">{escape(x.label)}</div></div>'
        + (f'<p class="note">{escape(note)}</p>' if note else "")
        + "</figure>"
    )


def timeline(title: str, rows: Mapping[str, Sequence[Spans | Marks]], *, x: Axis, note: str = "") -> str:
    """Draw a bar for each row, from top to bottom, its parts over each other and its name beside it."""
    share = 1.0 / max(len(rows), 1)
    centres = [1.0 - (number + 0.5) * share for number in range(len(rows))]
    layers = [
        replace(part, low=centre + share * _BAR * (part.low - 0.5), high=centre + share * _BAR * (part.high - 0.5))
        for centre, parts in zip(centres, rows.values(), strict=True)
        for part in parts
    ]
    y = Axis("", 0.0, 1.0, tuple(zip(centres, rows, strict=True)))
    return chart(title, layers, x=x, y=y, note=note, height_rem=1.0 + 1.8 * len(rows), is_ruled=False)


def number_axis(
    label: str, values_N: np.ndarray, *, include: Sequence[float] | np.ndarray = (), num_ticks: int = 5
) -> Axis:
    """An axis over all finite values and those of `include`, with round numbers as ticks.

    Example:
        >>> number_axis("m", np.array([0.0, 9.7])).ticks
        ((0.0, '0'), (5.0, '5'), (10.0, '10'))
    """
    finite = np.concatenate([np.asarray(values_N, dtype=np.float64).ravel(), np.asarray(include, dtype=np.float64)])
    finite = finite[np.isfinite(finite)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        low, high = low - max(abs(low) * 0.05, 0.5), high + max(abs(high) * 0.05, 0.5)
    margin = 0.04 * (high - low)
    low, high = low - margin, high + margin
    step = _round_step((high - low) / num_ticks)
    digits = max(0, -int(np.floor(np.log10(step))))
    places = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return Axis(label, low, high, tuple((float(place), f"{place:,.{digits}f}") for place in places + 0.0))


def time_axis(first_ns: int, last_ns: int, *, num_ticks: int = 6) -> Axis:
    """An axis of UTC between two instants, its values in seconds since the first."""
    first_s, span_s = first_ns * 1e-9, max((last_ns - first_ns) * 1e-9, 1.0)
    days_s = 86_400 * round(_round_step(max(span_s / num_ticks / 86_400, 1.0)))
    step_s = next((step for step in _TIME_STEPS_S if step * num_ticks >= span_s), days_s)
    shown = slice(5, 10) if step_s >= 86_400 else slice(11, 16) if step_s >= 60 else slice(11, 19)
    places_s = np.arange(np.ceil(first_s / step_s), np.floor((first_s + span_s) / step_s) + 1).astype(np.int64) * step_s
    ticks = tuple((float(place_s - first_s), str(np.datetime64(int(place_s), "s"))[shown]) for place_s in places_s)
    return Axis(f"UTC, {str(np.datetime64(int(first_s), 's'))[:10]}", 0.0, span_s, ticks)


def _round_step(rough: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not less than `rough`.

    Example:
        >>> [_round_step(rough) for rough in (0.7, 2.0, 31.0)]
        [1.0, 2.0, 50.0]
    """
    power = 10.0 ** np.floor(np.log10(rough))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9)))


def _drawn(layer: Layer, x: Axis, y: Axis) -> str:
    """SVG of a layer; empty if it has no point."""
    colour = f"c{layer.colour}"
    match layer:
        case Line():
            is_seen_N = x.has(layer.x_N)
            path = _polyline(x.scaled(layer.x_N[is_seen_N]), y.scaled(layer.y_N[is_seen_N]), layer.max_gap / x.span)
            return f'<path class="line {colour}{" dashed" if layer.is_dashed else ""}" d="{path}"/>' if path else ""
        case Dots():
            is_seen_N = x.has(layer.x_N)
            path = _points(x.scaled(layer.x_N[is_seen_N]), y.scaled(layer.y_N[is_seen_N]))
            inner = f'<path class="hole" d="{path}"/>' if layer.is_hollow else ""
            size = " dense" if is_seen_N.sum() > DENSE else ""
            return f'<path class="dots {colour}{size}" d="{path}"/>{inner}' if path else ""
        case Band():
            is_seen_N = x.has(layer.x_N)
            edges = (y.scaled(layer.low_N[is_seen_N]), y.scaled(layer.high_N[is_seen_N]))
            path = _outline(x.scaled(layer.x_N[is_seen_N]), *edges)
            return f'<path class="band {colour}" d="{path}"/>' if path else ""
        case Spans():
            is_seen_N = (layer.stop_N >= x.low) & (layer.start_N <= x.high)
            ends = zip(x.scaled(layer.start_N[is_seen_N]), x.scaled(layer.stop_N[is_seen_N]), strict=True)
            path = "".join(
                f"M{_right(a)} {_down(layer.high)}H{_right(b)}V{_down(layer.low)}H{_right(a)}z" for a, b in ends
            )
            return f'<path class="span {colour}" d="{path}"/>' if path else ""
        case Marks():
            places = x.scaled(_some(layer.x_N[x.has(layer.x_N)]))
            path = "".join(f"M{_right(place)} {_down(layer.high)}V{_down(layer.low)}" for place in places)
            return f'<path class="mark {colour}" d="{path}"/>' if path else ""


def _key(layer: Layer) -> str:
    """How a layer looks, and what it is."""
    look = {Line: "line", Dots: "dots", Band: "band", Spans: "span", Marks: "mark"}[type(layer)]
    extra = " dashed" if isinstance(layer, Line) and layer.is_dashed else ""
    extra += " hollow" if isinstance(layer, Dots) and layer.is_hollow else ""
    return f'<li><i class="{look} c{layer.colour}{extra}"></i>{escape(layer.label)}</li>'


def _ticks(axis: Axis, side: str) -> str:
    places = axis.scaled(np.array([value for value, _ in axis.ticks]))
    return "".join(
        f'<span{_at_edge(place)} style="{side}:{100 * place:.2f}%">{escape(text)}</span>'
        for place, (_, text) in zip(places, axis.ticks, strict=True)
    )


def _at_edge(place: float) -> str:
    """Mark a label that would stand out beyond the picture if it were centred."""
    return ' class="first"' if place < 0.04 else ' class="last"' if place > 0.96 else ""


def _polyline(x_N: np.ndarray, y_N: np.ndarray, max_gap: float) -> str:
    """Path through all known points, interrupted where they are too far apart; of many only the outermost ones."""
    is_known_N = np.isfinite(x_N) & np.isfinite(y_N)
    is_joined_N = is_known_N[1:] & is_known_N[:-1] & (np.diff(x_N) <= max_gap)  # each point with the one before it
    starts = np.flatnonzero(is_known_N & ~np.concatenate([[False], is_joined_N]))
    lasts = np.flatnonzero(is_known_N & ~np.concatenate([is_joined_N, [False]]))
    bucket = max(1, len(x_N) // BUCKETS)
    runs = (first + _outermost(y_N[first : last + 1], bucket) for first, last in zip(starts, lasts, strict=True))
    return "".join("M" + "L".join(_pairs(x_N[run], y_N[run])) for run in runs)


def _outermost(y_N: np.ndarray, bucket: int) -> np.ndarray:
    """Positions of the first, the lowest, the highest and the last point, in order, of each `bucket` points."""
    if bucket < 4:
        return np.arange(len(y_N))
    kept = {0, len(y_N) - 1}
    for start in range(0, len(y_N), bucket):
        part = y_N[start : start + bucket]
        kept |= {start + int(part.argmin()), start + int(part.argmax())}
    return np.array(sorted(kept))


def _points(x_N: np.ndarray, y_N: np.ndarray) -> str:
    is_known_N = np.isfinite(x_N) & np.isfinite(y_N)
    pairs = _pairs(_some(x_N[is_known_N]), _some(y_N[is_known_N]))
    return "".join(f"M{pair}h0" for pair in pairs)  # a stroke of no length with round ends is a dot of any size


def _outline(x_N: np.ndarray, low_N: np.ndarray, high_N: np.ndarray) -> str:
    is_known_N = np.isfinite(x_N) & np.isfinite(low_N) & np.isfinite(high_N)
    x_N, low_N, high_N = (_some(values[is_known_N]) for values in (x_N, low_N, high_N))
    there, back = _pairs(x_N, high_N), _pairs(x_N[::-1], low_N[::-1])
    return f"M{'L'.join([*there, *back])}z" if there else ""


def _some(values_N: np.ndarray) -> np.ndarray:
    """At most `MAX_DOTS` of the values, evenly spread."""
    return values_N[:: max(1, -(-len(values_N) // MAX_DOTS))]


def _pairs(x_N: np.ndarray, y_N: np.ndarray) -> list[str]:
    right, down = np.rint(WIDTH * x_N).astype(int).tolist(), np.rint(HEIGHT * (1.0 - y_N)).astype(int).tolist()
    return [f"{a} {b}" for a, b in zip(right, down, strict=True)]


def _right(share: float) -> int:
    return round(WIDTH * share)


def _down(share: float) -> int:
    return round(HEIGHT * (1.0 - share))
