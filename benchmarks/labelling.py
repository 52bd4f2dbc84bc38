"""Labels from an embedding: one run that is improved on a sample, against ten full starts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import table
from benchmarks.shootout.graphs import cases
from spectrograd import Graph, datasets, metrics
from spectrograd.labels.assign import assign
from spectrograd.labels.kmeans import unit_rows
from spectrograd.pipeline import Result, embed
from spectrograd.pipeline.settings import Settings
from spectrograd.points.knn_graph import knn_graph

SEEDS = range(3)
REAL = ("coauthor_cs", "lastfm_asia", "email_eu_core", "pubmed")


def run() -> str:
    header = (
        "graph",
        "nodes",
        "K",
        "embedding s",
        "ours s",
        "10 starts s",
        "ratio",
        "ours NMI",
        "10 starts NMI",
    )
    rows = [_row(*case) for case in _graphs()]
    return (
        "## Labels\n\n`assign` (one start from `cluster_qr`, improved by breathing) against scikit-learn's"
        " `KMeans(n_init=10)` on the same rows, mean of three seeds:\n\n" + table(header, rows)
    )


def _graphs() -> Iterator[tuple[str, Graph, Any, int]]:
    for case in cases():
        if case.name in REAL:
            matrix, labels = case.build()
            yield case.name, Graph.from_matrix(matrix), labels, case.n_clusters
    for n_nodes, k, exponent in (
        (20_000, 5, None),
        (20_000, 32, None),
        (20_000, 20, 2.5),
        (100_000, 5, None),
    ):
        data = datasets.make_block_model(n_nodes, k, mean_degree=12, degree_exponent=exponent, random_state=0)
        yield "degree-corrected" if exponent else "block model", data.graph, data.labels, k
    points, labels = datasets.make_gaussian_mixture(20_000, 8, random_state=0)
    yield "10-NN of points in the plane", knn_graph(points, 10), labels, 8


def _row(name: str, graph: Graph, labels: Any, k: int) -> list[str]:
    with warnings.catch_warnings(action="ignore"):
        embed(graph, Settings(n_components=k, seed=1))  # compiles
        began = time.perf_counter()
        found = embed(graph, Settings(n_components=k, seed=0))
        seconds = time.perf_counter() - began
    fast = _measured(labels, lambda seed: _ours(found, k, seed))
    full = _measured(labels, lambda seed: _ten_starts(found, k, seed))
    times = (f"{seconds:.2f}", f"{fast[0]:.2f}", f"{full[0]:.2f}", f"{full[0] / fast[0]:.1f}x")
    return [name, f"{graph.n_nodes:,}", str(k), *times, f"{fast[1]:.3f}", f"{full[1]:.3f}"]


def _measured(labels: Any, cluster: Callable[[int], Any]) -> tuple[float, float]:
    """Seconds and NMI, both means over the seeds."""
    times, scores = [], []
    for seed in SEEDS:
        began = time.perf_counter()
        found = cluster(seed)
        times.append(time.perf_counter() - began)
        scores.append(metrics.score(labels, found)["nmi"])
    return float(np.mean(times)), float(np.mean(scores))


def _ours(found: Result, k: int, seed: int) -> Any:
    vectors, excluded = found.vectors, found.connectivity.excluded
    return assign(
        vectors,
        k,
        unit_rows=True,
        norm_regularization=found.norm_regularization,
        excluded=excluded,
        random_state=seed,
    ).labels


def _ten_starts(found: Result, k: int, seed: int) -> Any:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    kept = found.connectivity.kept
    rows = unit_rows(found.vectors[kept], found.norm_regularization)
    labels = np.full(len(found.connectivity.labels), -1)
    with threadpool_limits(1):
        labels[kept] = KMeans(k, n_init=10, random_state=seed).fit(rows).labels_
    return labels
