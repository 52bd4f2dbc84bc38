"""From files: 2.5 million edges as text, read by each of our ways and by the raw parsers of others."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from benchmarks.harness import table
from spectrograd import read_graph
from spectrograd.io import edge_table as tables
from spectrograd.io.matrices import read_mtx
from spectrograd.io.text import TextFile
from spectrograd.io.text_scanner import scan_columns, split_columns

N_NODES, N_EDGES = 200_000, 2_500_000
# Reads the file twice: what a process loads for its first large table, the second no longer waits for. Memory
# is the peak of the second above what the process held before, after it gave back what the first had left;
# resource.getrusage would begin with the peak of the process it was started from.
IN_OWN_PROCESS = """
import ctypes, gc, json, re, sys, time, warnings
if sys.argv[2] == "without pyarrow":
    sys.modules["pyarrow"] = None
warnings.simplefilter("ignore")
from spectrograd import read_graph
def held(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
def timed():
    wall, busy = time.perf_counter(), time.process_time()
    graph = read_graph(sys.argv[1])
    return graph, time.perf_counter() - wall, time.process_time() - busy
first = timed()[1]
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = held("VmRSS")
graph, wall, busy = timed()
risen, matrix = held("VmHWM") - before, graph.matrix
arrays = sum(a.nbytes for a in (matrix.indptr, matrix.indices, matrix.data))
print(json.dumps([first, wall, busy, risen / arrays]))
"""


def run() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        whole = [_cells(row) for row in read_whole(folder)]
        rows = [row for file in ("texts.csv", "integers.csv") for row in _table_rows(folder / file)]
        rows += _matrix_rows(folder / "graph.mtx")
    return (
        f"## From files\n\n{N_EDGES:,} edges between {N_NODES:,} nodes. Seconds on the wall, and those of all"
        " threads, which other jobs on the machine change less. `read_graph` in a process of its own: its"
        " first table, for which compiled code is loaded, and the next, the best of three; memory is what the"
        " peak rose by, beside the arrays of the graph:\n\n"
        + table(("file", "`read_graph`", "first, wall s", "wall s", "busy s", "memory / arrays"), whole)
        + "\n\nThe steps, and parsers of others, the better of two runs:\n\n"
        + table(("file", "how", "wall s", "busy s"), rows)
    )


def read_whole(folder: Path) -> list[tuple[str, str, float, float, float, float]]:
    """File, how, seconds of the first read, of the next, of all its threads, and memory beside the arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read_graph(folder / "texts.csv")  # compiles what was not compiled before
        read_graph(folder / "integers.csv")
    ways = [("texts.csv", "with pyarrow"), ("texts.csv", "without pyarrow"), ("integers.csv", "with pyarrow")]
    return [(name, how, *_read_in_own_process(folder / name, how)) for name, how in ways]


def _read_in_own_process(path: Path, how: str) -> tuple[float, float, float, float]:
    """The best of three processes: others are busy on the machine too."""
    command = [sys.executable, "-c", IN_OWN_PROCESS, str(path), how]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(3)]
    first, wall, busy, memory = zip(*(json.loads(done.stdout) for done in runs), strict=True)
    return min(first), min(wall), min(busy), max(memory)


def _cells(row: tuple[str, str, float, float, float, float]) -> list[str]:
    return [*row[:2], *(f"{number:.2f}" for number in row[2:5]), f"{row[5]:.1f}"]


def write_files(folder: Path) -> None:
    """The same edges as texts, integers and a matrix."""
    rng = np.random.default_rng(0)
    ends, weights = rng.integers(0, N_NODES, (N_EDGES, 2)).tolist(), rng.random(N_EDGES).tolist()
    lines = [f"user{a},user{b},{w:.3f}" for (a, b), w in zip(ends, weights, strict=True)]
    (folder / "texts.csv").write_text("src,dst,weight\n" + "\n".join(lines))
    (folder / "integers.csv").write_text("src,dst\n" + "\n".join(f"{a},{b}" for a, b in ends))
    lines = [f"{a + 1} {b + 1} {w:.3f}" for (a, b), w in zip(ends, weights, strict=True)]
    head = f"%%MatrixMarket matrix coordinate real general\n{N_NODES} {N_NODES} {N_EDGES}\n"
    (folder / "graph.mtx").write_text(head + "\n".join(lines) + "\n")


def _table_rows(path: Path) -> list[list[str]]:
    import pandas
    import pyarrow.csv

    file = TextFile(str(path))
    layout = tables.read_layout(file, {})
    ways: dict[str, Callable[[], Any]] = {
        "`read_graph`": lambda: read_graph(path),
        "of which the columns": lambda: scan_columns(file, layout),
        "the columns without compiled code": lambda: split_columns(file, layout),
        "the careful scan": lambda: tables._read_slowly(file, layout),
        "pyarrow.csv alone": lambda: pyarrow.csv.read_csv(path),
        "pandas.read_csv alone": lambda: pandas.read_csv(path),
    }
    return [[path.name, name, *_timed(way)] for name, way in ways.items()]


def _matrix_rows(path: Path) -> list[list[str]]:
    ways = {"`read_mtx`": lambda: read_mtx(str(path)), "scipy.io.mmread": lambda: scipy.io.mmread(path)}
    return [[path.name, name, *_timed(way)] for name, way in ways.items()]


def _timed(way: Callable[[], Any]) -> list[str]:
    """The better of two runs."""
    spent = []
    for _ in range(2):
        began = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            way()
        spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    return [f"{min(column):.2f}" for column in zip(*spent, strict=True)]
