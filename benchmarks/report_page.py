"""The report page of 100,000 nodes: its size, and how long a browser takes to open it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import table
from spectrograd import datasets

NODES = 100_000
CLUSTERS = 8
LARGEST_MB, LONGEST_SECONDS = 15, 5
OPENINGS = 8


def run() -> str:
    """A Markdown table, targets beside the figures."""
    with tempfile.TemporaryDirectory() as folder:
        page = make_page(Path(folder))
        size = page.stat().st_size / 1e6
        seconds, busy = zip(*openings(page), strict=True)
    load = os.getloadavg()[0]
    rows = [
        ("size, MB", f"{size:.1f}", f"< {LARGEST_MB}"),
        (f"opened and drawn, s (best of {OPENINGS})", f"{min(seconds):.1f}", f"< {LONGEST_SECONDS}"),
        ("opened and drawn, s (worst)", f"{max(seconds):.1f}", ""),
        ("processor time of that, s (best)", f"{min(busy):.1f}", ""),
    ]
    head = (
        f"The page of `cluster --report` for {NODES:,} nodes and {CLUSTERS} clusters with known classes, in "
        f"headless Chromium, which draws WebGL in software. Runnable processes meanwhile: {load:.0f}.\n\n"
    )
    return head + table(("page", "measured", "target"), rows)


def make_page(folder: Path) -> Path:
    data = datasets.make_block_model(NODES, CLUSTERS, random_state=0)
    matrix = data.graph.matrix.tocoo()
    upper = matrix.row < matrix.col
    pairs = zip(matrix.row[upper].tolist(), matrix.col[upper].tolist(), strict=True)
    with open(folder / "graph.csv", "w") as edges:
        edges.write("src,dst\n")
        edges.writelines(f"customer {i},customer {j}\n" for i, j in pairs)
    with open(folder / "truth.csv", "w") as truth:
        truth.write("node,label\n")
        truth.writelines(f"customer {i},{label}\n" for i, label in enumerate(data.labels.tolist()))
    options = [
        "-k",
        str(CLUSTERS),
        "--labels",
        "truth.csv",
        "--report",
        "page.html",
        "-o",
        "labels.csv",
        "-q",
    ]
    command = [sys.executable, "-m", "spectrograd", "cluster", "graph.csv", *options]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "page.html"


def openings(page: Path) -> list[tuple[float, float]]:
    """From the call to the finished drawing, each in a fresh tab: seconds and processor time."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no browser to open the page with: apt-get install chromium")
    measured = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(OPENINGS):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            inspector = tab.context.new_cdp_session(tab)
            inspector.send("Performance.enable", {"timeDomain": "threadTicks"})
            began = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", timeout=120_000)
            seconds = time.perf_counter() - began
            metrics = {
                item["name"]: item["value"] for item in inspector.send("Performance.getMetrics")["metrics"]
            }
            measured.append((seconds, metrics["TaskDuration"]))
            tab.close()
        browser.close()
    return measured
