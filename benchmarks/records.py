"""Records of the measured blocks: when each was taken, and on what code; ``python -m benchmarks --records``.

``measured/records.json`` holds, per block, the day and a hash of every package that its suite speaks of and
of the suite itself. A block is stale where one of them is another today, and where a page has a place for it
and it was never measured. Comments, docstrings and empty lines do not count.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache

from benchmarks.blocks import ROOT, STORE, places
from benchmarks.harness import table
from benchmarks.suites import LARGE, SUITES, Suite, suite_of

RECORDS = STORE / "records.json"
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Record:
    """When a block was taken, and the hash of every piece of code that it speaks of."""

    date: str
    code: dict[str, str]


def code_lines(source: str) -> str:
    r"""The lines that do something.

    Examples
    --------
    >>> code_lines('def f():\n    "Doubled words."\n\n    return 1  # one\n')
    'def f():\nreturn 1'
    """
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            for number in range(text.lineno - 1, text.end_lineno or text.lineno):
                lines[number] = ""
    kept = (re.sub(r"\s+#\s.*$", "", line).strip() for line in lines)
    return "\n".join(line for line in kept if line and not line.startswith("#"))


@cache
def code_hash(place: str) -> str:
    """Of the Python files of a folder, or of one file, below the root."""
    path = ROOT / place
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(ROOT).as_posix()}\n".encode())
        digest.update(code_lines(file.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:12]


def present_code(suite: Suite) -> dict[str, str]:
    """The hashes of today: by package of ``src/spectrograd``, and of the suite by its own place."""
    package = ROOT / "benchmarks" / suite.name
    own = f"benchmarks/{suite.name}" + ("" if package.is_dir() else ".py")
    hashes = {name: code_hash(f"src/spectrograd/{name}") for name in suite.packages}
    return hashes | {own: code_hash(own)}


def read_records() -> dict[str, Record]:
    """Block -> its record."""
    text = RECORDS.read_text(encoding="utf-8") if RECORDS.exists() else "{}"
    return {block: Record(**record) for block, record in json.loads(text).items()}


def record(block: str) -> None:
    """Note that a block was taken now, on the code as it was when this process first asked for its hash."""
    today = datetime.now(UTC).date().isoformat()
    records = read_records() | {block: Record(today, present_code(suite_of()[block]))}
    kept = {name: asdict(records[name]) for name in sorted(records)}
    RECORDS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def changed_since(block: str) -> list[str]:
    """Code that the block speaks of, and that is not what it was when the block was taken."""
    taken = read_records().get(block)
    before = taken.code if taken else {}
    return [name for name, now in present_code(suite_of()[block]).items() if before.get(name) != now]


def stale_suites() -> list[Suite]:
    """Suites with a block on a page that is older than its code or was never taken, cheap ones first."""
    stale = {block for block in places() if changed_since(block)}
    return [suite for suite in SUITES if stale.intersection(suite.block_names)]


def overview() -> str:
    """Every suite with a block on a page: how long it takes, when it was run, what has changed since."""
    records = read_records()
    shown = places()
    rows = []
    for suite in (*SUITES, *LARGE):
        blocks = [name for name in suite.block_names if name in shown]
        if blocks:
            days = sorted({records[name].date for name in blocks if name in records})
            changed = {code for name in blocks for code in changed_since(name)}
            of_it = [code for code in present_code(suite) if code in changed]
            cell = "all of it" if len(of_it) == len(present_code(suite)) else ", ".join(of_it) or "nothing"
            day = days[0] if days else "never"
            rows.append((", ".join(blocks), f"`{suite.command}`", f"{suite.minutes:g}", day, cell))
    return table(("blocks", "command", "minutes", "taken on", "code changed since"), rows)
