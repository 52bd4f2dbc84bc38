"""Matrices whose arrays point outside: refused before compiled code follows them; and unusual types."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import SpectralClustering, SpectralEmbedding, knn_graph
from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph

FORMATS = ("csr", "csc", "bsr", "coo", "lil")


def broken(kind, index=10**9, size=50):
    matrix = sp.random_array((size, size), density=0.2, format=kind, rng=0)
    if kind == "lil":
        matrix.rows[0][0] = min(index, 10**8)
    else:
        (matrix.coords[1] if kind == "coo" else matrix.indices)[0] = index
    return matrix


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("index", [10**9, 50])
@pytest.mark.parametrize("size", [50, 5000])
def test_indices_outside_are_refused(kind, index, size):
    matrix = broken(kind, max(index, size) if index == 50 else index, size)
    with pytest.raises(
        GraphError, match=rf"broken sparse matrix: .* of entry \d+ is outside 0\.\.{size - 1}"
    ):
        Graph.from_matrix(matrix)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_every_door_of_matrices_checks(kind):
    with pytest.raises(GraphError, match="broken sparse matrix"):
        SpectralClustering(2, affinity="precomputed").fit(broken(kind))
    with pytest.raises(GraphError, match="broken sparse matrix"):
        SpectralEmbedding(2).fit(broken(kind))
    with pytest.raises(GraphError, match="broken sparse matrix"):
        knn_graph(broken(kind), 3)
    with pytest.raises(GraphError, match="layer 'a': broken sparse matrix"):
        MultilayerGraph.from_layers({"a": broken(kind)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.indptr.__setitem__(3, 10**6), r"indptr\[4\] is 44; it must not fall"),
        (lambda m: m.indptr.__setitem__(-1, 10**6), r"indptr\[50\] is 1000000; .* the 500 stored entries"),
        (lambda m: m.indptr.__setitem__(0, -1), "begin with 0"),
        (lambda m: m.indices.__setitem__(7, -1), "index -1 of entry 7 is outside"),
        (lambda m: setattr(m, "indices", m.indices.astype(float)), "of type float64, not integers"),
        (lambda m: setattr(m, "data", m.data[:100]), "the 100 stored entries"),
    ],
)
def test_broken_arrays(change, message):
    matrix = sp.random_array((50, 50), density=0.2, format="csr", rng=0)
    change(matrix)
    with pytest.raises(GraphError, match=message):
        Graph.from_matrix(matrix)


def test_half_precision_and_numpy_matrices():
    ring = np.roll(np.eye(6), 1, axis=0) + np.roll(np.eye(6), -1, axis=0)
    half = ring.astype(np.float16)
    assert Graph.from_matrix(half).n_edges == Graph.from_matrix(np.matrix(ring)).n_edges == 6
    assert len(SpectralClustering(2, affinity="precomputed", random_state=0).fit(half).labels_) == 6
    with pytest.raises(TypeError, match=r"np\.matrix is not supported"):  # as in scikit-learn
        SpectralEmbedding(2, random_state=0, n_neighbors=3).fit(np.matrix(ring))


def test_directed_edges_are_made_undirected_with_a_word():
    with pytest.warns(GraphWarning, match=r"W \+ W': 2 of 4 edges had no reverse, 1 pairs") as told:
        graph = Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 3], [1, 2, 3, 4], n_nodes=4, directed=True)
    assert len(told) == 1
    assert graph.matrix.toarray()[0].tolist() == [0, 3, 0, 0]
    assert graph.matrix[2, 3] == graph.matrix[3, 2] == 4
