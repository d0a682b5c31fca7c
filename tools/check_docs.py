"""Check the pages: links inside the repository lead somewhere, and make targets that are named exist."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MAKE = re.compile(r"`make ([a-z]+)[^`]*`")


def main() -> None:
    """Print what leads nowhere, and fail if there is any."""
    pages = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    complaints = [complaint for page in pages for complaint in check(page, targets)]
    print(*complaints, f"{len(pages)} pages, {len(complaints)} complaints", sep="\n")
    sys.exit(bool(complaints) or not pages)


def check(page: Path, targets: set[str]) -> list[str]:
    """Return one line for each link or make target of the page that does not exist."""
    text = page.read_text()
    links = [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]
    return [
        *(f"{page.name}: no such file: {link}" for link in links if not (page.parent / link).exists()),
        *(f"{page.name}: no such target: make {name}" for name in MAKE.findall(text) if name not in targets),
    ]


if __name__ == "__main__":
    main()
