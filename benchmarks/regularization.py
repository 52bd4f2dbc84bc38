"""What tau does on real graphs and block models, and that ``auto`` keeps away from geometric ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import table
from benchmarks.shootout.graphs import cases
from spectrograd import Graph, SpectralClustering, datasets, metrics
from spectrograd.certificate.localization import participation
from spectrograd.operators.laplacian import laplacian, regularized_laplacian
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.points.knn_graph import knn_graph

REAL = ("coauthor_cs", "lastfm_asia", "email_eu_core", "pubmed")
PICTURED = "coauthor_cs"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "regularization.png"
TAUS = (None, 0.1, 0.3, 1.0, "auto")


def run() -> str:
    rows = [_row(*case) for case in _graphs()]
    header = (
        "graph",
        "K",
        *("auto" if tau == "auto" else f"tau {tau or 0:g}" for tau in TAUS),
        "localised",
        "auto adds",
    )
    return (
        "## Regularisation\n\nNMI of `SpectralClustering(K)` with the known classes, one seed; `localised`"
        " is the share of eigenvectors that `auto` found to be localised on tiny subgraphs:\n\n"
        + table(header, rows)
    )


def _graphs() -> Iterator[tuple[str, Graph, Any, int]]:
    for case in cases():
        if case.name in REAL:
            matrix, labels = case.build()
            graph = Graph.from_matrix(matrix)
            yield case.name, graph, labels, case.n_clusters
            if case.name == PICTURED:
                _draw(graph, labels, case.n_clusters)
    for degree in (4, 8, 20):
        for exponent in (None, 2.5):
            data = datasets.make_block_model(
                5000, 5, mean_degree=degree, degree_exponent=exponent, random_state=0
            )
            kind = "degree-corrected" if exponent else "block model"
            yield f"{kind}, mean degree {degree}", data.graph, data.labels, 5
    for n_features in (2, 8):
        points, labels = datasets.make_gaussian_mixture(5000, 5, n_features=n_features, random_state=0)
        yield f"10-NN of points in {n_features}-D", knn_graph(points, 10), labels, 5


def _row(name: str, graph: Graph, labels: Any, k: int) -> list[str]:
    scores = []
    for tau in TAUS:
        with warnings.catch_warnings(action="ignore"):
            model = SpectralClustering(k, regularization=tau, random_state=0).fit(graph)
        scores.append(f"{metrics.score(labels, model.labels_)['nmi']:.3f}")
    decision = model.regularization_
    return [name, str(k), *scores, f"{decision.localized:.0%}", f"{decision.tau:g}"]


def _draw(graph: Graph, labels: Any, k: int) -> None:
    """The same graph before and after: where the eigenvectors live, and what they show."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.2), dpi=90, layout="constrained")
    axes = figure.subplots(1, 3)
    bars = axes[2]
    for place, tau, colour in ((0, 0.0, "#c44e52"), (1, 0.1, "#4c72b0")):
        found: CertifiedEmbedding = embed(
            regularized_laplacian(graph, "random_walk", tau), k, Settings(seed=0)
        )
        vectors = found.embedding.vectors
        order = np.random.default_rng(0).permutation(graph.n_nodes)
        x, y = vectors[order, 1], vectors[order, 2]
        axes[place].scatter(x, y, c=labels[order], s=2, cmap="tab20", linewidths=0, rasterized=True)
        axes[place].set(title=f"tau = {tau:g}", xlabel="2nd eigenvector", ylabel="3rd", xticks=[], yticks=[])
        share = k * participation(laplacian(graph), vectors[:, 1:])
        bars.bar(np.arange(2, k + 1) + 0.4 * place - 0.2, share, 0.4, color=colour, label=f"tau = {tau:g}")
    bars.axhline(0.1, color="black", linewidth=0.8, linestyle=":")
    bars.set(
        yscale="log", title="volume each vector lives on", xlabel="eigenvector", ylabel="of a cluster's share"
    )
    bars.legend(fontsize=8)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE)
