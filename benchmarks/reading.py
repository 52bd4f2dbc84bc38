"""From files: 2.5 million edges as text, read by each of our ways and by the raw parsers of others."""

from __future__ import annotations

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
from spectrograd.io.read import tables
from spectrograd.io.read.bulk import arrow_columns, split_columns
from spectrograd.io.read.mtx import read_mtx
from spectrograd.io.read.text import TextFile

N_NODES, N_EDGES = 200_000, 2_500_000


def run() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        rows = [row for file in ("texts.csv", "integers.csv") for row in _table_rows(folder / file)]
        rows += _matrix_rows(folder / "graph.mtx")
    return (
        f"## From files\n\n{N_EDGES:,} edges between {N_NODES:,} nodes. Seconds on the wall, and those of all"
        " threads, which other jobs on the machine change less:\n\n"
        + table(("file", "how", "wall s", "busy s"), rows)
    )


def _write(folder: Path) -> None:
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
    layout = tables._read_layout(file, {})
    ways: dict[str, Callable[[], Any]] = {
        "`read_graph`": lambda: read_graph(path),
        "of which the columns, by pyarrow": lambda: arrow_columns(file, layout),
        "the columns without pyarrow": lambda: split_columns(file, layout),
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
