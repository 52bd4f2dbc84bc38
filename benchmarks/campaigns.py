"""What is tried at length: damaged files, random graphs, many fits, interrupts, kernels with bounds checks.

Each line is a command of its own. ``SPECTROGRAD_CASES=100 python -m benchmarks campaigns`` is a look, 10,000
are what ``make fuzz`` takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import spectrograd
from benchmarks.harness import table

ROOT = Path(__file__).parents[1]
CASES = int(os.environ.get("SPECTROGRAD_CASES", 500))
ENDURANCE = ("-s", "-m", "chaos", "tests/test_endurance.py")


@dataclass(frozen=True)
class Campaign:
    """A command, and where in its output stands what it found."""

    title: str
    arguments: tuple[str, ...]
    pattern: str


def run() -> str:
    """The table of ``docs/trust.md``; a campaign that fails ends it."""
    rows = [(one.title, *_tried(one)) for one in _campaigns()]
    return table(("tried", "found", "minutes"), rows)


def _campaigns() -> tuple[Campaign, ...]:
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    return (
        Campaign(
            f"{CASES:,} damaged files of every format",
            ("tests/fuzz_readers.py", str(CASES)),
            r"format +(.*)\n(?:.*\n)* *all +(.*)",
        ),
        Campaign(
            f"{CASES:,} random graphs, by every solver",
            ("tests/fuzz.py", str(CASES)),
            r"solver +(.*)\n(?:.*\n)* *all +(.*)",
        ),
        Campaign("200 fits in one process", (*pytest, *ENDURANCE, "-k", "two_hundred"), r"(grew by .* MiB)"),
        Campaign(
            "8 fits at once: threads, fork, spawn, joblib",
            (*pytest, *ENDURANCE, "-k", "at_once"),
            r"(4 passed)",
        ),
        Campaign(
            "100 interrupts at random moments", (*pytest, *ENDURANCE, "-k", "interrupts"), r"(.* interrupted)"
        ),
        Campaign(
            "time budgets of 1 to 4 s, ten solvers",
            (*pytest, *ENDURANCE, "-k", "budgets"),
            r"(spent .* budgets)",
        ),
        Campaign(
            "kernels with bounds checks, on large graphs",
            ("tools/check_bounds.py",),
            r"(\d+ of \d+ kernels .*)",
        ),
    )


def _tried(campaign: Campaign) -> tuple[str, str]:
    source = str(Path(spectrograd.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source}
    call = [sys.executable, *campaign.arguments]
    began = time.monotonic()
    done = subprocess.run(call, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    match = re.search(campaign.pattern, done.stdout)
    if match is None:
        raise RuntimeError(f"{campaign.title}: no line like {campaign.pattern}\n{done.stdout[-500:]}")
    return _cell(match), f"{(time.monotonic() - began) / 60:.1f}"


def _cell(match: re.Match[str]) -> str:
    """A sentence as it is; of a table its header beside its last line.

    Examples
    --------
    >>> _cell(re.search("(.*)/(.*)", "read  clear error/12  3"))
    'read 12, clear error 3'
    """
    if match.re.groups == 1:
        return match[1].strip()
    names, numbers = (re.split(r"\s{2,}", line.strip()) for line in match.groups())
    return ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True))
