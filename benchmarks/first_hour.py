"""The first hour: what a newcomer waits for. Section by section; so far from points to labels."""

from __future__ import annotations

import csv
import gzip
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import table
from spectrograd import SpectralClustering, knn_graph, metrics

# A folder with mnist/view_pixels.npz and mnist/labels.csv.gz; without it the row is left out.
DATA = Path(os.environ.get("SPECTROGRAD_DATA", "data"))
EXACT_MOST = 2e9  # products of an exact search that is still affordable here: N^2 p / 1000
K = 10


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
        return f"{self.wall - before[0]:.1f} ({self.busy - before[1]:.1f})"


def run() -> str:
    return "## The first hour\n\n" + points_section()


def points_section() -> str:
    knn_graph(np.random.default_rng(0).standard_normal((2000, 9)), search="approximate")  # compiles
    rows = [row for cloud in clouds() for row in measure(cloud)]
    head = ("points", "search", "neighbours", "embedding and labels", "all", "recall", "NMI")
    return (
        "### From points\n\nTen neighbours each, embedding and labels included. Seconds on the wall (of all "
        "threads in brackets: the machine is shared); recall on exact rows; NMI with the known classes.\n\n"
    ) + table(head, rows)


def clouds() -> Iterator[Cloud]:
    if (DATA / "mnist").is_dir():
        yield _mnist(DATA / "mnist")
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
        yield (where, search, searched, solved, began.lap(), str(graph.recall), f"{score:.3f}")


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
