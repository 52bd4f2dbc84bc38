"""The paper's tables with all their methods, through the command a user would type."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import table

COLUMNS = ("seconds", "iterations", "purity", "nmi", "ri", "ari")


def run() -> dict[str, str]:
    """The section of the page, and the table of the README."""
    body = measured("--table", "1")
    return {"paper_table": f"## The paper's Table 1\n\n{body}", "paper_table-short": body.split("\n\n")[0]}


def yelp(n_businesses: int = 11_160) -> str:
    """The paper's Table 2 on made-up files in Yelp's schema: 11,160 businesses, four layers, K=3."""
    from tests.yelp_like import write_yelp_like

    with tempfile.TemporaryDirectory() as folder:
        write_yelp_like(folder, n_businesses, seed=0)
        return measured("--table", "2", "--yelp", folder, "--skip-dense")


def measured(*options: str) -> str:
    """The table and the ratios that ``spectrograd paper`` found."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "table.json"
        command = [sys.executable, "-m", "spectrograd", "paper", *options, "--summary-json", str(target)]
        subprocess.run(command, check=True, capture_output=True)
        return shown(json.loads(target.read_text()))


def shown(summary: dict[str, Any]) -> str:
    """A summary of the command as tables."""
    rows = []
    for row in summary["rows"]:
        ours = [_shown(row[c]) for c in COLUMNS]
        theirs = row.get("paper") or {}
        rows.append(
            [row["method"], *ours, *(_shown(theirs.get(c)) for c in ("seconds", "purity", "nmi", "ri"))]
        )
    head = ("method", *COLUMNS, "paper: s", "purity", "NMI", '"RI"')
    ratios = "\n".join(
        f"- {name}: {value:.3g}" for name, value in summary["ratios"].items() if value is not None
    )
    layers = ", ".join(f"{layer['name']} {layer['seconds']:.2f}" for layer in summary["layers"])
    apart = f"Not in the times: layers ({layers}), merge {summary['seconds']['merge']:.2f} s."
    return f"{table(head, rows)}\n\n{apart}\n\nRatios of this run:\n\n{ratios}"


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
