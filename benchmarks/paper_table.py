"""The paper's Table 1 with all its methods, through the command a user would type."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import table

COLUMNS = ("seconds", "iterations", "purity", "nmi", "ri", "ari")


def run() -> str:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "t1.json"
        command = [
            sys.executable,
            "-m",
            "spectrograd",
            "paper",
            "--table",
            "1",
            "--summary-json",
            str(target),
        ]
        subprocess.run(command, check=True, capture_output=True)
        summary = json.loads(target.read_text())
    rows = []
    for row in summary["rows"]:
        ours = [_shown(row[c]) for c in COLUMNS]
        theirs = row.get("paper") or {}
        rows.append(
            [row["method"], *ours, *(_shown(theirs.get(c)) for c in ("seconds", "purity", "nmi", "ri"))]
        )
    head = ("method", *COLUMNS, "paper: s", "purity", "NMI", '"RI"')
    ratios = "\n".join(
        f"- {name}: {value:.1f}" for name, value in summary["ratios"].items() if value is not None
    )
    return f"## The paper's Table 1\n\n{table(head, rows)}\n\nRatios of this run:\n\n{ratios}"


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
