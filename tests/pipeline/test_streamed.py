"""The line over a graph on disk gives what it gives in memory, in the order of the input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import Graph, GraphWarning, MultilayerGraph, datasets, metrics, open_store
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.masked import masked
from spectrograd.operators.regularized import regularized
from spectrograd.pipeline import Settings, cluster, embed
from spectrograd.points.neighbors import knn_graph
from spectrograd.store.batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest


def stored(path, graph, order="none"):
    ingest(path, GraphSource(graph), IngestSettings(edges=True, block_bytes=1 << 16, order=order))
    return open_store(path)


def sine(U, V):
    """Of the largest angle between two subspaces."""
    U, V = np.linalg.qr(U)[0], np.linalg.qr(V)[0]
    return np.linalg.norm(V - U @ (U.T @ V), 2)


def block_model():
    return datasets.make_block_model(4_500, 4, mean_degree=16, random_state=0).graph


def with_specks():
    """A block model, a chain of three nodes and some without an edge, and nodes in random order."""
    matrix = block_model().matrix.tocoo()
    n, upper = matrix.shape[0], matrix.row < matrix.col
    source = np.append(matrix.row[upper], [n + 3, n + 4])
    target = np.append(matrix.col[upper], [n + 4, n + 5])
    place = np.random.default_rng(1).permutation(n + 9)
    names = np.array([f"node {i:05}" for i in range(n + 9)])
    return Graph.from_edges(place[source], place[target], n_nodes=n + 9, names=names)


def neighbours():
    points = np.random.default_rng(0).normal(size=(4_200, 6)) + 5 * np.eye(6)[np.arange(4_200) % 4]
    return knn_graph(points, 8, connect=True)


def three_layers():
    return datasets.make_multilayer_gmm(1_500, 3, 4, random_state=0).graph


@pytest.mark.parametrize(
    ("make", "order"),
    [(block_model, "none"), (with_specks, "bfs"), (neighbours, "bfs"), (three_layers, "bfs")],
)
def test_the_result_is_that_of_the_graph_in_memory(tmp_path, make, order):
    graph = make()
    disk = stored(tmp_path / "graph.store", graph, order)
    settings = Settings(n_components=4, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        here, there = cluster(graph, settings), cluster(disk, settings)
    assert there.certificate.converged
    assert not disk.is_resident
    metric = 1.0 if isinstance(graph, MultilayerGraph) else np.sqrt(graph.degrees)[:, None]
    assert sine(here.vectors * metric, there.vectors * metric) < 0.03
    assert metrics.score(here.labels, there.labels)["ari"] >= 0.99
    assert here.connectivity.aside.tolist() == there.connectivity.aside.tolist()
    assert np.all(there.vectors[there.connectivity.aside] == 0)
    names = graph.node_names
    assert disk.input_names.tolist() == names.tolist()
    found = there.embedding.names
    assert (np.arange(len(names)) if found is None else found).tolist() == names.tolist()


def test_sweeps_are_few_and_none_is_only_for_the_probe(tmp_path):
    disk = stored(tmp_path / "graph.store", block_model())
    result = embed(disk, Settings(n_components=4, seed=0))
    assert result.certificate.converged
    assert disk.sweeps <= 25
    assert disk.bytes_read > 0


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_masked_rows_leave_the_wanted_end_alone(kind, tau):
    whole = datasets.make_block_model(60, 2, mean_degree=8, random_state=0).graph
    whole = sp.triu(whole.matrix, format="coo")
    source, target = np.append(whole.row, [60, 61]), np.append(whole.col, [61, 62])
    graph = Graph.from_edges(source, target, n_nodes=65)
    part = Graph.from_edges(whole.row, whole.col, n_nodes=60)
    expected = regularized(part, kind, tau)
    found = masked(graph, kind, tau, np.arange(60, 65))
    values = np.linalg.eigvalsh(_standard(found))
    assert values[:10] == pytest.approx(np.linalg.eigvalsh(_standard(expected))[:10], abs=1e-9)
    inside = np.linalg.eigvalsh(_standard(found)[60:, 60:])
    assert inside.min() >= 0.75 * found.upper - 1e-9
    assert values.max() <= found.upper + 1e-9


def test_nothing_masked_is_the_plain_laplacian():
    graph = datasets.make_block_model(50, 2, mean_degree=8, random_state=0).graph
    plain, same = laplacian(graph), masked(graph, "random_walk", 0.0, np.empty(0, np.int64))
    assert np.array_equal(plain.to_dense(), same.to_dense())
    assert np.array_equal(plain.metric, same.metric)


def _standard(operator):
    return operator.standard_form().to_dense()
