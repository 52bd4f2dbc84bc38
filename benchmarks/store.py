"""Stores: how fast `spectrograd convert` makes one, and whether it keeps its memory limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import table

LIMIT = 1_000_000_000
HEAD = (
    "input",
    "edges",
    "seconds",
    "edges/s",
    "CPU seconds",
    "edges per CPU second",
    "peak memory MB",
    "disk MB/s",
)


def run(n_integers: int = 20_000_000, n_texts: int = 4_000_000, n_nodes: int = 2_000_000) -> str:
    """Integer ids from CSV and Parquet, text ids from CSV."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SPECTROGRAD_SCRATCH")) as scratch:
        folder = Path(scratch)
        rows = []
        for name, n_edges, texts in (
            ("integers.csv", n_integers, False),
            ("integers.parquet", n_integers, False),
            ("texts.csv", n_texts, True),
        ):
            write_edges(folder / name, n_edges, n_nodes, texts)
            convert(folder / name, folder / "warm")  # kernels are compiled, the file is in the page cache
            rows.append((name, f"{n_edges:,}", *convert(folder / name, folder / "store", n_edges)))
            (folder / name).unlink()
    load = os.getloadavg()[0]
    return (
        "## Stores: from an edge list to the disk\n\n"
        f"`spectrograd convert --order none --duplicates first --memory-limit 1GB`, "
        f"{n_nodes:,} nodes, random edges. Memory is anonymous memory of the process and its children, "
        f"sampled every 20 ms, interpreter and compiled code included. The machine's load was {load:.0f} "
        f"when this ended: seconds are those of a share of its cores.\n\n" + table(HEAD, rows)
    )


def write_edges(path: Path, n_edges: int, n_nodes: int, texts: bool) -> None:
    """Random edges; text ids are of 12 letters."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    columns = {end: pyarrow.array(rng.integers(0, n_nodes, n_edges)) for end in ("src", "dst")}
    if texts:
        for end, ids in columns.items():
            padded = pyarrow.compute.utf8_lpad(ids.cast("string"), 8, "x")
            columns[end] = pyarrow.compute.binary_join_element_wise("user", padded, "")
    made = pyarrow.table(columns)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(made, path)
    else:
        pyarrow.csv.write_csv(made, path, pyarrow.csv.WriteOptions(quoting_style="none"))


def convert(source: Path, target: Path, n_edges: int = 1) -> tuple[Any, ...]:
    """Run the command and watch its memory."""
    summary = target.with_suffix(".json")
    command = [
        sys.executable,
        "-m",
        "spectrograd",
        "convert",
        str(source),
        "-o",
        str(target),
        "--force",
        "-q",
    ]
    command += ["--order", "none", "--memory-limit", str(LIMIT), "--duplicates", "first"]
    before, began, peak = os.times(), time.perf_counter(), 0
    process = subprocess.Popen([*command, "--summary-json", str(summary)])
    while process.poll() is None:
        peak = max(peak, anonymous_memory(process.pid))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    seconds, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    work = json.loads(summary.read_text())["seconds"]["read"]
    size = sum(path.stat().st_size for path in target.iterdir())
    rates = f"{n_edges / work:,.0f}", f"{used:.1f}", f"{n_edges / used:,.0f}"
    return f"{seconds:.1f}", *rates, f"{peak / 1e6:,.0f}", f"{size / work / 1e6:,.0f}"


def anonymous_memory(pid: int) -> int:
    """Bytes of a process and its children that are no file's."""
    total = 0
    try:
        for row in Path(f"/proc/{pid}/status").read_text().splitlines():
            if row.startswith("RssAnon:"):
                total += int(row.split()[1]) * 1024
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += anonymous_memory(int(child))
    except OSError:  # it has ended
        return total
    return total
