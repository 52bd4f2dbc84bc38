"""`python -m benchmarks [name ...]`: run the suites and write their sections of docs/benchmarks.md."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.harness import machine

SUITES = (
    "drop_in",
    "regularization",
    "labelling",
    "spmm",
    "cold_start",
    "memory",
    "paper_table",
    "multilayer",
    "shootout",
    "growth",
    "sgd",
    "report_page",
)
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Ratios within one run: the machines are shared and noisy, so seconds alone mean little. Every section is
written by `make bench` (one suite: `python -m benchmarks NAME`) and says when and where it was measured.
"""


def main(names: list[str]) -> None:
    unknown = set(names) - set(SUITES)
    if unknown:
        raise SystemExit(f"unknown suite {sorted(unknown)[0]!r}: expected some of {', '.join(SUITES)}")
    for name in names or SUITES:
        print(f"== {name}", flush=True)
        body = import_module(f"benchmarks.{name}").run()
        print(body, flush=True)
        _write_section(name, f"{body}\n\nMeasured {machine()}; repeat with `python -m benchmarks {name}`.\n")


def _write_section(name: str, body: str) -> None:
    """Replace one section of the page and leave the others as they are."""
    page = PAGE.read_text() if PAGE.exists() else HEAD
    section = f"<!-- {name} -->\n{body}<!-- /{name} -->\n"
    pattern = re.compile(f"<!-- {name} -->\n.*?<!-- /{name} -->\n", re.DOTALL)
    page = pattern.sub(lambda _: section, page) if pattern.search(page) else f"{page}\n{section}"
    PAGE.write_text(page)


if __name__ == "__main__":
    main(sys.argv[1:])
