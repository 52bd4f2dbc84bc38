"""The first hour: what a newcomer waits for, from points, from files, and on a new machine; before and after.

Before: version 0.1.0, as published (2026-11-17, two cores of the same kind and nobody else on them), for what
of it was published. It is not measured again here.
"""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cold_start import fit_twice
from benchmarks.harness import DATA, table
from benchmarks.reading import read_whole, write_files
from spectrograd import SpectralClustering, knn_graph, metrics

EXACT_MOST = 1e9  # products of an exact search that is still affordable here: N^2 p / 1000
FEW_DIGITS = 21_000  # few enough to be searched exactly as well, beside the lists
K = 10
UNKNOWN = "-"
# Seconds of 0.1.0.
BEFORE = {
    "MNIST": "95",
    "texts.csv": "6.6 to 8.5",
    "integers.csv": "0.6",
    "fit": "17",
    "demo": "67, installing included",
}


@dataclass(frozen=True)
class Cloud:
    """Points with known classes."""

    name: str
    points: Any
    classes: Any

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.classes))


@dataclass
class Clock:
    """Seconds on the wall and of all threads since the last look: the machines are shared."""

    wall: float = 0.0
    busy: float = 0.0

    def lap(self) -> str:
        before = self.wall, self.busy
        self.wall, self.busy = time.perf_counter(), time.process_time()
        return _seconds(self.wall - before[0], self.busy - before[1])


def run() -> str:
    sections = points_section(), files_section(), machine_section()
    return (
        "## The first hour\n\nSeconds on the wall, of all threads in brackets: other jobs on a machine "
        "change them less. Before: figures published for version 0.1.0, "
        "from another run.\n\n"
    ) + "\n\n".join(sections)


def points_section() -> str:
    some = np.random.default_rng(0).standard_normal((FEW_DIGITS, 9))
    SpectralClustering(K, random_state=0).fit(knn_graph(some, connect=True))  # compiles
    rows = [row for cloud in clouds() for row in measure(cloud)]
    head = ("points", "search", "before", "neighbours", "embedding and labels", "all", "recall", "NMI")
    return (
        "### From points\n\nTen neighbours each; recall on exact rows; NMI with the known classes.\n\n"
        + table(head, rows)
    )


def files_section() -> str:
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        found = read_whole(Path(name))
    rows = [
        (file, how, BEFORE[file], f"{first:.1f}", _seconds(wall, busy), f"{memory:.1f}")
        for file, how, first, wall, busy, memory in found
    ]
    head = ("file", "how", "before", "first in a process", "`read_graph`", "memory / arrays")
    return "### From files\n\n2.5 million edges, 200,000 nodes.\n\n" + table(head, rows)


def machine_section() -> str:
    rows = []
    for label, multilayer in (("default fit", False), ("default and multilayer fit", True)):
        first, second = fit_twice(20_000, multilayer)
        before = UNKNOWN if multilayer else BEFORE["fit"]
        cells = [_seconds(imported + fitted, busy) for imported, fitted, busy, _ in (first, second)]
        rows.append((f"{label} of 20,000 nodes", before, *cells))
    rows.append(("`spectrograd demo`, without installing", BEFORE["demo"], *_demo_twice()))
    head = ("what", "before", "first process", "second process")
    return (
        "### On a new machine\n\nAn empty compile cache; importing and making the data included.\n\n"
        + table(head, rows)
    )


def _demo_twice() -> list[str]:
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "spectrograd", "demo", "-q", "-o", folder]
        for _ in range(2):
            began, busy = time.perf_counter(), _busy_children()
            environment = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/cache"}
            subprocess.run(command, check=True, capture_output=True, env=environment)
            cells.append(_seconds(time.perf_counter() - began, _busy_children() - busy))
    return cells


def _busy_children() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def _seconds(wall: float, busy: float) -> str:
    return f"{wall:.1f} ({busy:.1f})"


def clouds() -> Iterator[Cloud]:
    if (DATA / "mnist").is_dir():
        digits = _mnist(DATA / "mnist")
        yield Cloud("MNIST, some digits", digits.points[:FEW_DIGITS], digits.classes[:FEW_DIGITS])
        yield digits
    yield _mixture(200_000, 32, 20)
    yield _mixture(1_000_000, 16, 20)


def measure(cloud: Cloud) -> Iterator[tuple[str, ...]]:
    searches = ["auto"]
    if len(cloud.points) ** 2 * cloud.points.shape[1] / 1000 <= EXACT_MOST:
        searches.append("exact")
    n_points, n_features = cloud.points.shape
    for search in searches:
        began, clock = Clock(), Clock()
        began.lap()
        clock.lap()
        graph = knn_graph(cloud.points, K, search=search, connect=True, n_jobs=-1)
        searched = clock.lap()
        model = SpectralClustering(cloud.n_clusters, random_state=0).fit(graph)
        solved = clock.lap()
        score = metrics.nmi(cloud.classes, model.labels_)
        where = f"{cloud.name}, {n_points:,} x {n_features}"
        before = BEFORE.get(cloud.name, UNKNOWN) if search == "auto" else UNKNOWN
        yield (where, search, before, searched, solved, began.lap(), f"{graph.recall:.3f}", f"{score:.3f}")


def _mnist(folder: Path) -> Cloud:
    with gzip.open(folder / "labels.csv.gz", "rt") as handle:
        classes = np.array([int(row["label"]) for row in csv.DictReader(handle)])
    return Cloud("MNIST", np.load(folder / "view_pixels.npz")["X"], classes)


def _mixture(n_points: int, n_features: int, n_classes: int) -> Cloud:
    rng = np.random.default_rng(0)
    classes = rng.integers(n_classes, size=n_points)
    centres = 2 * rng.standard_normal((n_classes, n_features))
    points = centres[classes] + rng.standard_normal((n_points, n_features))
    return Cloud("mixture", points.astype(np.float32), classes)
