"""One import changed: scikit-learn's SpectralClustering and ours on the same affinity matrix."""

from __future__ import annotations

from typing import Any

import sklearn.cluster
from threadpoolctl import threadpool_limits

from benchmarks.harness import best_of, table
from spectrograd import SpectralClustering, datasets, metrics
from spectrograd.points.knn_graph import knn_graph

OPTIONS: dict[str, Any] = {"n_clusters": 5, "affinity": "precomputed", "random_state": 0}


def run() -> dict[str, str]:
    """The section of the page, and the table of the README."""
    with threadpool_limits(1):  # on a busy machine waiting threads would be most of what is measured
        rows = [_row(name, matrix, truth) for name, matrix, truth in _graphs()]
    head = (
        "graph",
        "nodes",
        "scikit-learn s",
        "ours s",
        "ratio",
        "scikit-learn NMI",
        "ours NMI",
        "ours converged",
    )
    body = (
        '## One import changed\n\n`SpectralClustering(5, affinity="precomputed")` of scikit-learn (ARPACK, '
        "shift-invert) and ours (`auto`), labels included, one thread, "
        "compilation excluded:\n\n" + table(head, rows)
    )
    return {"drop_in": body, "drop_in-short": table(head, rows)}


def _graphs() -> Any:
    for n_nodes in (1_000, 5_000, 20_000):
        points, truth = datasets.make_gaussian_mixture(n_nodes, 5, random_state=0)
        yield "k-NN of points in the plane", knn_graph(points).matrix, truth
    for n_nodes in (1_000, 5_000):
        data = datasets.make_block_model(n_nodes, 5, random_state=0)
        yield "block model", data.graph.matrix, data.labels


def _row(name: str, matrix: Any, truth: Any) -> tuple[Any, ...]:
    ours = SpectralClustering(**OPTIONS).fit(matrix)  # compiles
    theirs = sklearn.cluster.SpectralClustering(**OPTIONS)
    peer, own = best_of(lambda: theirs.fit(matrix), 3), best_of(lambda: ours.fit(matrix), 3)
    scores = [f"{metrics.nmi(truth, model.labels_):.3f}" for model in (theirs, ours)]
    converged = "yes" if ours.converged_ else "no"
    return (
        name,
        f"{matrix.shape[0]:,}",
        f"{peer:.2f}",
        f"{own:.2f}",
        f"{peer / own:.1f}x",
        *scores,
        converged,
    )
