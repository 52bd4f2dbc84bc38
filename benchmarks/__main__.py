"""`python -m benchmarks [NAME ...] [--write]`: run suites; ``--write`` puts their blocks into the pages.

Without a name all run, cheap ones first; ``--stale`` runs those with a block that is older than its code, and
``--records`` prints every block with its command, its day, and the code that has changed since. A suite that
fails does not hold up the others. ``labels --sets NAME,NAME`` measures some of its sets only, which is not
written. ``guard`` fails where a case has become slower than its recorded ratio, ``guard --record`` records.
"""

from __future__ import annotations

import sys
import time
import traceback
from importlib import import_module
from typing import Any

from benchmarks.blocks import fill_pages, store
from benchmarks.harness import machine
from benchmarks.records import overview, present_code, record, stale_suites
from benchmarks.suites import SUITES, Suite

# judges and writes no page; not among what is run without a name
GUARD = "guard"


def main(arguments: list[str]) -> None:
    """Run the suites asked for; the program fails if one of them does."""
    if arguments[:1] == [GUARD]:
        if arguments[1:] not in ([], ["--record"]):
            raise SystemExit("guard takes --record, and nothing else")
        print(import_module("benchmarks.guard").run(record=len(arguments) > 1))
        return
    if arguments == ["--records"]:
        print(overview())
        return
    options: dict[str, list[str]] = {}
    if "--sets" in arguments:
        at = arguments.index("--sets")
        options = {"names": arguments[at + 1].split(",")}
        if arguments[:at] != ["labels"] or "--write" in arguments:
            raise SystemExit("--sets belongs to labels, without --write")
        arguments = arguments[:at]
    failed = [
        suite.name for suite in chosen(arguments) if not succeeds(suite, options, "--write" in arguments)
    ]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def chosen(arguments: list[str]) -> list[Suite]:
    """The suites that are named, those that are stale, or all."""
    names = [word for word in arguments if word not in ("--write", "--stale")]
    unknown = set(names) - {suite.name for suite in SUITES}
    if unknown:
        known = ", ".join(suite.name for suite in SUITES)
        raise SystemExit(f"unknown suite {min(unknown)!r}: expected some of {known}")
    if "--stale" in arguments:
        return [suite for suite in stale_suites() if not names or suite.name in names]
    return [suite for suite in SUITES if not names or suite.name in names]


def succeeds(suite: Suite, options: dict[str, Any], write: bool) -> bool:
    """Run a suite, which gives one block under its own name, or several by name; store and show them."""
    print(f"== {suite.name}, about {suite.minutes:g} minutes", flush=True)
    started = time.monotonic()
    present_code(suite)  # what is imported now; the tree may change meanwhile
    try:
        found = import_module(f"benchmarks.{suite.name}").run(**options)
    except Exception:
        traceback.print_exc()
        return False
    blocks = found if isinstance(found, dict) else {suite.name: found}
    unknown = set(blocks) - set(suite.block_names)
    if unknown:
        print(f"{suite.name}: {sorted(unknown)} are not among its blocks in benchmarks/suites.py")
        return False
    for block, body in blocks.items():
        print(body, flush=True)
        if write:
            store(block, f"{body}\n\nMeasured {machine()}; `{suite.command}`.")
            record(block)
    if write:
        fill_pages()
    print(f"== {suite.name}: {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
