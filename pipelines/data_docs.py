"""Data Docs: what the suites said of a batch, as pages that a person can read on a desk or a phone.

The sentences come from the renderers of the expectations. A page is whole in itself: it asks no host for anything.
"""

from html import escape

from pipelines.validation import Check, Verdict

MAX_MESSAGES = 10


def index_page(
    title: str,
    *,
    identity: dict[str, str],
    verdicts: dict[str, Verdict],
    refused: dict[str, str],
    links: dict[str, str],
) -> str:
    """The page that a person opens first.

    Args:
        title: What was judged.
        identity: What the batch is made of, in the order in which it is shown.
        verdicts: By file name of their page.
        refused: Why a part is not published, by its name.
        links: Address by what it leads to.
    """
    num_failed = sum(len(verdict.failures) for verdict in verdicts.values())
    num_checks = sum(len(verdict.checks) for verdict in verdicts.values())
    body = [
        _banner(num_checks, num_failed),
        _facts(identity),
        _table(("", "suite", "checks", "rows", "what failed"), [_suite_row(*item) for item in verdicts.items()]),
    ]
    if refused:
        body.append("<h2>Not published</h2>")
        body += [
            f"<details><summary>{escape(part)}</summary><pre>{escape(message)}</pre></details>"
            for part, message in list(refused.items())[:MAX_MESSAGES]
        ]
    if links:
        items = "".join(f'<li><a href="{escape(to)}">{escape(text)}</a></li>' for text, to in links.items())
        body.append(f"<h2>More</h2><ul>{items}</ul>")
    return _page(title, body)


def suite_page(title: str, *, identity: dict[str, str], verdict: Verdict) -> str:
    """Every expectation of one suite, what failed first."""
    checks = sorted(verdict.checks, key=lambda check: check.passed)
    body = [
        '<p><a href="index.html">← all suites</a></p>',
        _banner(len(checks), len(verdict.failures)),
        _facts({**identity, "suite": verdict.suite, "rows": f"{verdict.num_rows:,}"}),
        _table(("", "expected", "observed", "bound", "why"), [_check_row(check) for check in checks]),
    ]
    return _page(f"{title}: {verdict.suite}", body)


def _suite_row(name: str, verdict: Verdict) -> list[str]:
    failures = "".join(f"<li>{escape(failure)}</li>" for failure in verdict.failures[:MAX_MESSAGES])
    return [
        _mark(verdict.passed),
        f'<a href="{escape(name)}">{escape(verdict.suite)}</a>',
        f"{len(verdict.checks) - len(verdict.failures)} of {len(verdict.checks)}",
        f"{verdict.num_rows:,}",
        f"<ul>{failures}</ul>" if failures else "nothing",
    ]


def _check_row(check: Check) -> list[str]:
    examples = "".join(f"<li>{escape(example)}</li>" for example in check.examples)
    return [
        _mark(check.passed),
        f'<span title="{escape(check.type)}">{escape(check.expected)}</span>',
        escape(check.observed) + (f"<ul>{examples}</ul>" if examples else ""),
        escape(check.bound) or "–",
        escape(check.why),
    ]


def _banner(num_checks: int, num_failed: int) -> str:
    if num_failed:
        return f'<p class="banner bad">{num_failed} of {num_checks} checks failed</p>'
    return f'<p class="banner good">all {num_checks} checks passed</p>'


def _facts(identity: dict[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(text)}</dd>' for name, text in identity.items())}</dl>"


def _mark(is_good: bool) -> str:
    return '<b class="good">passed</b>' if is_good else '<b class="bad">failed</b>'


def _table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """A table of cells that are HTML already; each cell carries the name of its column, for narrow screens."""
    heads = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join(f"<tr>{_cells(head, row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _cells(head: tuple[str, ...], row: list[str]) -> str:
    return "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in zip(head, row, strict=True))


def _page(title: str, body: list[str]) -> str:
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>{_STYLE}</head><body><h1>{escape(title)}</h1>{''.join(body)}</body></html>\n"
    )


_STYLE = """<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1f2933 }
h1 { font-size: 1.5rem; overflow-wrap: anywhere } h2 { font-size: 1.15rem }
b, td[data-name="bound"] { white-space: nowrap }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; padding: .2rem 0 }
a { color: #0b5cad }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { border-bottom: 1px solid #cbd2d9; padding: .45rem .6rem; text-align: left; vertical-align: top;
  overflow-wrap: break-word }
th { background: #f1f4f7 } td ul { margin: .2rem 0 0; padding-left: 1.1rem } td:last-child { color: #52606d }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem } dt { color: #52606d }
dd { margin: 0; overflow-wrap: anywhere }
pre { background: #f1f4f7; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere }
.banner { border-radius: .3rem; font-weight: 600; padding: .6rem .9rem }
.banner.good { background: #e3f4ea } .banner.bad { background: #fbe6e4 }
.good { color: #1b7f4b } .bad { color: #b3261e }
@media (max-width: 48rem) {
  thead { display: none } tr { display: block; padding: .5rem 0; border-bottom: 2px solid #cbd2d9 }
  td { display: block; border: 0; padding: .15rem 0 } td:not(:first-child)::before { color: #52606d;
    content: attr(data-name) ": " } td[data-name=""]::before { content: "" }
}
</style>"""
