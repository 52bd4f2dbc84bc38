"""Measured blocks: what a suite found is stored once and copied into every page that shows it.

A page shows a block between ``<!-- measured:NAME -->`` and ``<!-- /measured -->``. Nobody types there:
``python -m benchmarks NAME --write`` stores ``measured/NAME.md`` and fills in the pages. A place whose
block was never measured says so, and which command measures it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.suites import suite_of

ROOT = Path(__file__).parent.parent
STORE = Path(__file__).parent / "measured"
MARK = re.compile(r"(<!-- measured:([\w-]+) -->\n)(.*?)(<!-- /measured -->)", re.DOTALL)


def pages() -> Iterator[Path]:
    """Every page that may show figures."""
    yield ROOT / "README.md"
    yield from sorted(path for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts)


def shown_blocks(page: Path) -> dict[str, str]:
    """The blocks of a page by name, as they stand there."""
    return {name: body for _, name, body, _ in MARK.findall(page.read_text(encoding="utf-8"))}


def stored_blocks() -> dict[str, str]:
    """What the suites found."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(STORE.glob("*.md"))}


def store(name: str, body: str) -> None:
    """Keep what a suite found."""
    STORE.mkdir(exist_ok=True)
    (STORE / f"{name}.md").write_text(body.rstrip("\n") + "\n", encoding="utf-8")


def places() -> set[str]:
    """The blocks that some page has a place for, measured or not."""
    return {name for page in pages() for name in shown_blocks(page)}


def known_blocks() -> dict[str, str]:
    """What stands in every place: what its suite found, or how to find it."""
    never = {name: f"Not measured yet: `{suite_of()[name].command}`.\n" for name in places()}
    return never | stored_blocks()


def fill_pages() -> None:
    """Copy the stored blocks to wherever they are shown."""
    known = known_blocks()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        filled = MARK.sub(lambda found: found[1] + known[found[2]] + found[4], text)
        if filled != text:
            page.write_text(filled, encoding="utf-8")
