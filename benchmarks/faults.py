"""Faults of the machine against four commands, tried by ``tests/cli/faults.py``: survived, data lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import spectrograd
from benchmarks.harness import table

SCRIPT = Path(__file__).parents[1] / "tests" / "cli" / "faults.py"
TRIES = 4


def run() -> str:
    """The table of ``docs/trust.md``."""
    environment = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
    call = [sys.executable, str(SCRIPT), str(TRIES)]
    done = subprocess.run(call, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, list[list[int]]] = defaultdict(list)
    for line in done.stdout.splitlines():
        fault, command, *numbers, text = json.loads(line)
        found[fault].append(numbers)
        if text:
            print(fault, command, text)
    rows = [(fault, *(sum(column) for column in zip(*each, strict=True))) for fault, each in found.items()]
    text = (
        "`convert`, `cluster`, `update` and `predict` under each fault; `cluster --engine dask` where a "
        "worker or the scheduler is killed. *Survived*: the command ends well, is killed, or says in one "
        "line what is wrong, and the same command given again leaves what an undisturbed run leaves. "
        "*Data lost*: an input or a store is no longer what it was, or a repeated run gives something else."
    )
    return f"{text}\n\n{table(('fault', 'tries', 'survived', 'data lost'), rows)}"
