"""Models that live on: new nodes by ``predict``, new edges by ``partial_fit``, against fitting again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import table, timed
from benchmarks.shootout.graphs import cases
from benchmarks.update_large import new_points, saved, stores
from spectrograd import Graph, SpectralClustering, datasets, metrics

REAL = ("coauthor_cs", "lastfm_asia")
UPDATES = 100
REPEATS = 5


def run() -> dict[str, str]:
    with warnings.catch_warnings(action="ignore"):
        return {
            "update_points": new_points(),
            "update_nodes": _nodes(),
            "update_edges": _edges(),
            "update_stream": _stream(),
            "update_store": stores(),
            "update_saved": saved(),
        }


def _graphs() -> Iterator[tuple[str, Any, Any, int]]:
    for case in cases():
        if case.name in REAL:
            yield case.name, *case.build(), case.n_clusters
    data = datasets.make_block_model(20_000, 8, mean_degree=20, mixing=0.3, random_state=0)
    yield "block model", data.graph.matrix, data.labels, 8
    data = datasets.make_block_model(
        20_000, 8, mean_degree=12, mixing=0.3, degree_exponent=2.5, random_state=0
    )
    yield "degree-corrected", data.graph.matrix, data.labels, 8


def _nodes() -> str:
    """A tenth of the nodes held out: the model's clusters against those of a joint fit."""
    header = (
        "graph",
        "nodes",
        "joint fit s",
        "predict s",
        "joint accuracy",
        "predict accuracy",
        "mean score",
    )
    rows = []
    for name, matrix, truth, k in _graphs():
        order = np.random.default_rng(0).permutation(matrix.shape[0])
        n_old = int(0.9 * len(order))
        matrix, truth = matrix[order][:, order], np.asarray(truth)[order]
        joint_time, joint = timed(SpectralClustering(k, random_state=0).fit, Graph.from_matrix(matrix))
        model = SpectralClustering(k, random_state=0).fit(Graph.from_matrix(matrix[:n_old][:, :n_old]))
        asked = matrix[n_old:][:, :n_old]
        linked = np.asarray(asked.sum(axis=1)).ravel() > 0
        model.predict(asked[linked][:1])  # what is made once
        seconds, labels = timed(model.predict, asked[linked])
        new = np.arange(n_old, len(order))[linked]
        merged = np.concatenate([model.labels_, labels])
        both = np.concatenate([truth[:n_old], truth[new]])
        ours = _accuracy_on(both, merged, slice(n_old, None))
        theirs = _accuracy_on(truth, joint.labels_, new)
        score = f"{model.score_samples(asked[linked]).mean():.2f}"
        rows.append(
            [
                name,
                f"{len(order):,}",
                f"{joint_time:.2f}",
                f"{seconds:.3f}",
                f"{theirs:.3f}",
                f"{ours:.3f}",
                score,
            ]
        )
    return (
        "## New nodes\n\nA tenth of the nodes is held out and asked for by their edges to the rest; "
        "accuracy on them, clusters named on all nodes. The mean outlier score of ordinary nodes should be "
        "near one half.\n\n" + table(header, rows)
    )


def _accuracy_on(truth: Any, labels: Any, part: Any) -> float:
    from spectrograd.labels.matching import align_labels

    known = (truth >= 0) & (labels >= 0)
    renamed, _ = align_labels(truth[known], labels[known], labels)
    return float((renamed == truth)[part].mean())


def _edges() -> str:
    """One per cent of the edges arrives later."""
    header = (
        "graph",
        "fit s",
        "partial_fit s",
        "ratio",
        "action",
        "fit NMI",
        "partial_fit NMI",
        "drift",
        "bound",
    )
    rows = []
    for name, matrix, truth, k in _graphs():
        graph = Graph.from_matrix(matrix)
        entries = matrix.tocoo()
        once = np.flatnonzero(entries.row < entries.col)
        later = np.random.default_rng(0).random(len(once)) < 0.01
        kept = once[~later]
        before = Graph.from_edges(
            entries.row[kept], entries.col[kept], entries.data[kept], n_nodes=graph.n_nodes
        )
        new = once[later]
        edges = pd.DataFrame({"src": entries.row[new], "dst": entries.col[new], "weight": entries.data[new]})
        SpectralClustering(k, random_state=1).fit(before).partial_fit(edges)  # compiles
        seconds = fit_seconds = np.inf
        for _ in range(REPEATS):  # the shortest: noise only adds
            model = SpectralClustering(k, random_state=0).fit(before)
            seconds = min(seconds, timed(model.partial_fit, edges)[0])
            spent, again = timed(SpectralClustering(k, random_state=0).fit, graph)
            fit_seconds = min(fit_seconds, spent)
        scores = [metrics.score(truth, found.labels_)["nmi"] for found in (again, model)]
        rows.append(
            [
                name,
                f"{fit_seconds:.2f}",
                f"{seconds:.2f}",
                f"1/{fit_seconds / seconds:.1f}",
                model.update_action_,
            ]
            + [f"{score:.3f}" for score in scores]
            + [f"{model.drift_:.3f}", f"{model.certificate_.angle_bound:.3f}"]
        )
    return "## New edges\n\nOne per cent of the edges comes later, against a fit of all.\n\n" + table(
        header, rows
    )


def _stream() -> str:
    """A hundred small updates; half way, ties that hold two clusters together begin to go."""
    data = datasets.make_block_model(4_000, 5, mean_degree=24, mixing=0.1, random_state=0)
    rng = np.random.default_rng(0)
    one, two = (np.flatnonzero(data.labels == cluster) for cluster in (0, 1))
    ties = np.unique(np.column_stack([rng.choice(one, 9_000), rng.choice(two, 9_000)]), axis=0)
    ties = ties[np.asarray(data.graph.matrix[ties[:, 0], ties[:, 1]]).ravel() == 0]
    rows = []
    for splits in (False, True):
        model = SpectralClustering(4, random_state=0, warm_start=True).fit(_tied(data.graph, ties))
        seconds, refits, left = [], [], ties
        for number in range(UPDATES):
            gone = np.empty((0, 2), dtype=int)
            if splits and number >= UPDATES // 2:
                gone, left = left[: len(ties) // 50], left[len(ties) // 50 :]
            spent, _ = timed(_updated, model, data, gone, rng)
            seconds.append(spent)
            if model.refit_advised_:
                refits.append(number)
                model.set_params(n_clusters="auto").fit(model.graph_)
        again = SpectralClustering(model.n_clusters_, random_state=0).fit(model.graph_)
        truth = data.labels if splits else np.where(data.labels == 1, 0, data.labels)
        scores = [metrics.nmi(truth, found.labels_) for found in (model, again)]
        first, last = np.median(seconds[:20]), np.median(seconds[-20:])
        rows.append(
            [
                "splits" if splits else "stays",
                f"{first:.3f}",
                f"{last:.3f}",
                str(refits),
                str(model.n_clusters_),
            ]
            + [f"{score:.3f}" for score in scores]
        )
    header = ("two clusters", "first 20 s", "last 20 s", "refits after", "clusters", "NMI", "NMI of a fit")
    return (
        f"## A stream\n\n{UPDATES} updates of about a thousandth of the edges on 4,000 nodes; in one of two "
        "runs a cluster comes apart from the 50th on. Refits are made when advised.\n\n" + table(header, rows)
    )


def _tied(graph: Graph, ties: Any) -> Graph:
    entries = graph.matrix.tocoo()
    once = entries.row < entries.col
    source, target = (
        np.concatenate([a, b]) for a, b in ((entries.row[once], ties[:, 0]), (entries.col[once], ties[:, 1]))
    )
    return Graph.from_edges(source, target, n_nodes=graph.n_nodes)


def _updated(model: Any, data: Any, gone: Any, rng: np.random.Generator) -> None:
    """Some fifty new edges inside clusters, and the ties that go."""
    source = rng.integers(len(data.labels), size=50)
    target = np.array([rng.choice(np.flatnonzero(data.labels == data.labels[node])) for node in source])
    source, target = source[source != target], target[source != target]
    removed = pd.DataFrame({"src": gone[:, 0], "dst": gone[:, 1]}) if len(gone) else None
    model.partial_fit(pd.DataFrame({"src": source, "dst": target}), remove=removed)
