"""The memory of a process that is no file's, seen from outside while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import spectrograd

EVERY = 0.003  # seconds


def peak_of(*arguments):
    """Run Python with these arguments; the most bytes of anonymous memory it had, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True
    )
    status, peak = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        for row in status.read_text().splitlines():
            if row.startswith("RssAnon:"):
                peak = max(peak, int(row.split()[1]) * 1024)
        time.sleep(EVERY)
    printed = process.stdout.read()
    assert process.returncode == 0, f"exit code {process.returncode}: {printed}"
    return peak, printed
