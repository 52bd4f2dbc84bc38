"""What `spectrograd demo` prints."""

from __future__ import annotations

import subprocess
import sys
import tempfile


def run() -> str:
    """The table of the demo, as a newcomer sees it the second time (the first compiles)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "spectrograd", "demo", "-o", folder, "-q"]
        for _ in range(2):
            done = subprocess.run(command, check=True, capture_output=True, text=True)
    table = done.stdout.split("\n* ")[0].rstrip()
    return f"```text\n{table}\n```"
