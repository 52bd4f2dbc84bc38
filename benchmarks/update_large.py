"""Models that live on, of larger things: new points of MNIST, edges for a store, a million nodes on disk."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import spectrograd
from benchmarks.first_hour import _mnist
from benchmarks.harness import DATA, table, timed
from spectrograd import Graph, SpectralClustering, datasets, metrics
from spectrograd.labels.matching import align_labels
from spectrograd.pipeline.memory_estimate import streamed_bytes
from spectrograd.store import open_store
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest

N_FITTED = 60_000
MILLION = 1_000_000


def new_points() -> str:
    """10,000 digits placed by a model of the others, against a fit of all of them."""
    points = np.asarray(_mnist(DATA / "mnist").points)
    old, new = points[:N_FITTED], points[N_FITTED:]
    SpectralClustering(10, random_state=0).fit(points[:21_000]).predict(new[:10])  # compiles
    model = SpectralClustering(10, random_state=0).fit(old)
    fit_seconds, joint = timed(SpectralClustering(10, random_state=0).fit, points)
    seconds, labels = timed(model.predict, new)
    one_seconds, _ = timed(model.predict, new[:1])
    votes = model._training_data.makers[0].known.ask(new.astype(np.float64)).weights
    counts = (votes != 0).astype(int) @ np.eye(10, dtype=int)[model.labels_]
    every = np.concatenate([model.labels_, labels, counts.argmax(axis=1)])
    renamed, _ = align_labels(joint.labels_[:N_FITTED], model.labels_, every)
    agreed = [(part == joint.labels_[N_FITTED:]).mean() for part in np.split(renamed[N_FITTED:], 2)]
    one = f"{1000 * one_seconds:.1f}"
    header = ("10,000 new points", "s", "of a fit of all", "labels as in that fit", "one point, ms")
    rows = [
        ["`fit` of all 70,000", f"{fit_seconds:.2f}", "1", "1", ""],
        ["`predict`", f"{seconds:.2f}", f"1/{fit_seconds / seconds:.1f}", f"{agreed[0]:.4f}", one],
        ["vote of ten neighbours", "", "", f"{agreed[1]:.4f}", ""],
    ]
    return (
        "## New points\n\nMNIST: 60,000 digits fitted, 10,000 asked for afterwards, clusters named on the "
        "fitted ones. scikit-learn's `SpectralClustering` has no `predict`.\n\n" + table(header, rows)
    )


def stores() -> str:
    """Edges that come to a graph on disk: how often it is read."""
    header = (
        "nodes",
        "mean degree",
        "new edges",
        "passes: fit",
        "update",
        "action",
        "NMI",
        "bound",
    )
    rows = []
    models = ((40_000, 20, None), (40_000, 40, None), (20_000, 100, None), (20_000, 20, 2.5))
    for n_nodes, degree, exponent in models:
        name = f"{degree}" if exponent is None else f"{degree}, exponent {exponent}"
        data = datasets.make_block_model(
            n_nodes, 8, mean_degree=degree, mixing=0.3, degree_exponent=exponent, random_state=0
        )
        for share in (0.01, 0.001):
            rows.append([f"{n_nodes:,}", name, f"{share:.1%}", *_updated(data, share)])
    return (
        "## Edges for a store\n\nBlock models of 8 clusters, streamed: how often all blocks are read by a "
        "fit, and by an update of that fit.\n\n" + table(header, rows)
    )


def _updated(data: Any, share: float) -> list[str]:
    entries = data.graph.matrix.tocoo()
    once = entries.row < entries.col
    later = np.random.default_rng(1).random(len(once)) < share
    old, new = once & ~later, once & later
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.store"
        graph = Graph.from_edges(entries.row[old], entries.col[old], n_nodes=data.graph.n_nodes)
        ingest(path, GraphSource(graph), IngestSettings(block_bytes=1 << 16))
        # steps between the vectors of eight clusters take twelve blocks
        limit = f"{streamed_bytes(open_store(path), 8) + 4 * 12 * 8 * graph.n_nodes}"
        model = SpectralClustering(8, memory_limit=limit, random_state=0).fit(path)
        passes = model.graph_.passes
        model.partial_fit(Graph.from_edges(entries.row[new], entries.col[new]))
        assert not model.graph_.is_resident
        nmi = metrics.score(data.labels, model.labels_)["nmi"]
        counts = [passes, model.graph_.passes, model.update_action_]
        return [*map(str, counts), f"{nmi:.3f}", f"{model.certificate_.angle_bound:.3f}"]


def saved() -> str:
    """A model of a million nodes, really fitted, saved and opened."""
    data = datasets.make_block_model(MILLION, 8, mean_degree=10, mixing=0.2, random_state=0)
    fit_seconds, model = timed(SpectralClustering(8, random_state=0).fit, data.graph)
    friends = np.flatnonzero(model.labels_ == 3)[:5]
    asked = Graph.from_edges([MILLION] * 5, friends)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "million.model"
        save_seconds, _ = timed(model.save, path)
        size = sum(file.stat().st_size for file in path.iterdir())
        open_seconds, again = timed(spectrograd.load, path)
        ask_seconds, label = timed(again.predict, asked)
    assert label.tolist() == [3]
    header = ("nodes", "edges", "fit s", "save s", "on disk", "open s", "first question s")
    row = [f"{MILLION:,}", f"{data.graph.n_edges:,}", f"{fit_seconds:.1f}", f"{save_seconds:.2f}"]
    row += [f"{size / 1e6:.0f} MB", f"{open_seconds:.3f}", f"{ask_seconds:.2f}"]
    return "## A saved model\n\n" + table(header, [row])
