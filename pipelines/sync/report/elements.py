"""Tables and lists of the report, from values to HTML; whatever they say is escaped here."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

NOTHING = "–"
_STYLE = Path(__file__).with_name("report.css").read_text()


class Link(NamedTuple):
    """Text that leads somewhere."""

    text: str
    target: str


Cell = str | float | int | Link | None


def document(title: str, *body: str) -> str:
    """A whole HTML document that fetches and runs nothing."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def heading(title: str, *, is_simulated: bool) -> str:
    """The heading of a page, which says so if it is not about a real train."""
    badge = ' <span class="badge">simulated</span>' if is_simulated else ""
    return f"<h1>{escape(title)}{badge}</h1>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table that scrolls by itself where the page is narrow; columns of numbers are set flush right."""
    rows = [list(row) for row in rows]
    is_number = [any(isinstance(row[i], int | float) for row in rows) for i in range(len(head))]
    return (
        f'<p class="caption">{escape(caption)}</p>'
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(caption)}"><table><thead><tr>'
        + "".join(f'<th scope="col"{_numeric(n)}>{escape(text)}</th>' for text, n in zip(head, is_number, strict=True))
        + "</tr></thead><tbody>"
        + "".join(
            "<tr>"
            + "".join(f"<td{_numeric(n)}>{_content(v)}</td>" for v, n in zip(row, is_number, strict=True))
            + "</tr>"
            for row in rows
        )
        + "</tbody></table></div>"
    )


def numbers(values: Mapping[str, tuple[str, str]]) -> str:
    """What matters most, at a glance: for each name a value and a remark about it."""
    return (
        '<dl class="numbers">'
        + "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"
            for name, (value, remark) in values.items()
        )
        + "</dl>"
    )


def warnings(sentences: Sequence[str]) -> str:
    """What a person should not overlook, cut at twenty; nothing if there is nothing."""
    more = [f"and {len(sentences) - 20} more"] if len(sentences) > 20 else []
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in [*sentences[:20], *more])
    return f'<ul class="warnings">{items}</ul>' if sentences else ""


def details(summary: str, content: str) -> str:
    """What only some want to see, folded up; nothing if there is nothing."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def links(targets: Mapping[str, str]) -> str:
    """Links by what they are called."""
    return " · ".join(_content(Link(name, target)) for name, target in targets.items())


def section(anchor: str, title: str, *parts: str) -> str:
    """A section with a heading that can be linked to."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def shown(value: str | float | int | None) -> str:
    """A value as a person reads it.

    Example:
        >>> [shown(value) for value in (1234567, 0.00123456, -12.3456, None)]
        ['1,234,567', '0.00123', '-12.3', '–']
    """
    match value:
        case None:
            return NOTHING
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return value


def duration(seconds: float) -> str:
    """A time span in the unit that suits it.

    Example:
        >>> [duration(s) for s in (0.0, 0.0000021, -0.0123, 12.0, 754.0, 9000.0)]
        ['0 s', '2.1 µs', '-12.3 ms', '12 s', '12.6 min', '2.5 h']
    """
    if seconds == 0.0:
        return "0 s"
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0)):
        limit = {"µs": 1e-3, "ms": 1.0, "s": 120.0, "min": 7200.0}[unit]
        if abs(seconds) < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 3600.0:.3g} h"


def _content(value: Cell) -> str:
    if isinstance(value, Link):
        return f'<a href="{escape(value.target)}">{escape(value.text)}</a>'
    return escape(shown(value))


def _numeric(is_number: bool) -> str:
    return ' class="n"' if is_number else ""
