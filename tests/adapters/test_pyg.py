"""Positional encodings: those of PyTorch Geometric and DGL, for one graph and for many."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd import GraphError, GraphWarning
from spectrograd.pyg import AddLaplacianEigenvectorPE, laplacian_encoding, laplacian_pe


def random_edges(n, degree, seed):
    """Both directions of the edges of a random graph."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(np.sort(rng.integers(n, size=(2, n * degree // 2)), axis=0), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return np.concatenate([pairs, pairs[::-1]], axis=1)


def dense(edge_index, n, normalization="sym"):
    """``I - D^-1/2 A D^-1/2``, or ``I - D^-1 A``, as both libraries build it."""
    adjacency = np.zeros((n, n))
    adjacency[edge_index[0], edge_index[1]] = 1
    degrees = np.maximum(adjacency.sum(axis=0), 1)
    if normalization == "rw":
        return np.eye(n) - adjacency / degrees[:, None]
    return np.eye(n) - adjacency / np.sqrt(np.outer(degrees, degrees))


@pytest.mark.parametrize("n", [30, 500])  # LAPACK; the certified pipeline with isolated nodes and components
@pytest.mark.parametrize("normalization", ["sym", "rw"])
def test_every_vector_is_an_eigenvector(n, normalization):
    edges = random_edges(n, 5, 0)
    encoding = laplacian_encoding(edges, n, 6, normalization=normalization)
    laplacian = dense(edges, n, normalization)
    exact = np.sort(np.linalg.eigvals(laplacian).real)[1:7]
    np.testing.assert_allclose(encoding.eigenvalues, exact, atol=1e-6)
    error = laplacian @ encoding.vectors - encoding.vectors * encoding.eigenvalues
    assert np.linalg.norm(error, axis=0).max() < 1e-3
    assert encoding.converged


def test_a_batch_is_its_graphs():
    graphs = [(random_edges(n, 4, seed), n) for seed, n in enumerate([12, 25, 12, 7, 25, 300])]
    ptr = np.cumsum([0, *(n for _, n in graphs)])
    edges = np.concatenate([index + start for (index, _), start in zip(graphs, ptr, strict=False)], axis=1)
    batch = laplacian_encoding(edges, ptr[-1], 5, ptr=ptr)
    for number, (index, n) in enumerate(graphs):
        alone = laplacian_encoding(index, n, 5)
        np.testing.assert_allclose(batch.eigenvalues[number], alone.eigenvalues, atol=1e-8)
        mine = batch.vectors[ptr[number] : ptr[number + 1]]
        for group in batch.groups(number)[:-1]:  # the last may go on beyond k
            columns = list(group)
            overlap = np.linalg.svd(mine[:, columns].T @ alone.vectors[:, columns])[1]
            if alone.eigenvalues[columns[0]] > 1e-9:  # of null vectors one is dropped, whichever it is
                assert overlap.min() > 1 - 1e-6


def lap_pe_of_dgl(edges, n, k):
    """``dgl.lap_pe(g, k, padding=True, return_eigval=True)`` as its documentation states it (DGL 2.1)."""
    adjacency = np.zeros((n, n))
    adjacency[edges[0], edges[1]] = 1
    in_degrees = adjacency.sum(axis=0).clip(1)
    laplacian = np.eye(n) - in_degrees[:, None] ** -0.5 * adjacency * in_degrees**-0.5
    values, vectors = np.linalg.eigh(laplacian)
    n_zero = max(k - (n - 1), 0)
    vectors = np.pad(vectors[:, 1 : k + 1], ((0, 0), (0, n_zero)))
    return vectors, np.pad(values[1 : k + 1], (0, n_zero), constant_values=np.nan)


@pytest.mark.parametrize(("n", "k"), [(30, 6), (12, 15), (300, 6)])  # fewer nodes than columns: zeros, NaN
def test_encodings_are_those_of_dgl(n, k):
    edges = random_edges(n, 5, 4)
    theirs, their_values = lap_pe_of_dgl(edges, n, k)
    vectors, values = laplacian_pe(edges, n, k, return_eigval=True)
    np.testing.assert_allclose(values, their_values, atol=1e-5)
    assert vectors.shape == theirs.shape
    for group in laplacian_encoding(edges, n, k).groups():
        columns = list(group)
        if values[columns[0]] > 1e-6 and (columns[-1] + 1 < k or n <= k):
            overlap = np.linalg.svd(vectors[:, columns].T @ theirs[:, columns])[1]
            assert overlap.min() > 1 - 1e-3
    assert not vectors[:, n - 1 :].any()


def test_equal_eigenvalues_are_named():
    cycle = np.array([np.arange(8), (np.arange(8) + 1) % 8])
    assert laplacian_encoding(cycle, 8, 5).groups() == ((0, 1), (2, 3), (4,))


def test_padding_isolated_nodes_and_graphs_without_edges():
    vectors, values = laplacian_pe(np.array([[0, 1], [1, 2]]), 5, 6, return_eigval=True)
    assert vectors.shape == (5, 6)
    np.testing.assert_allclose(values[:4], [1, 1, 1, 2], atol=1e-6)
    assert np.isnan(values[4:]).all()
    assert not vectors[:, 4:].any()
    assert laplacian_pe(np.empty((2, 0), int), 3, 2).shape == (3, 2)
    with pytest.raises(ValueError, match="no more than k nodes"):
        laplacian_pe(np.array([[0], [1]]), 2, 2, padding=False)


def test_one_direction_stands_for_both():
    edges = random_edges(20, 4, 1)
    once = edges[:, edges[0] < edges[1]]
    np.testing.assert_allclose(laplacian_pe(once, 20, 3), laplacian_pe(edges, 20, 3))


@pytest.mark.parametrize("change", ["drop a reverse", "repeat an edge", "another reverse", "loop"])
def test_lists_of_edges_in_any_state_give_the_same_graph(change):
    edges = random_edges(300, 6, 1)
    odd = {
        "drop a reverse": edges[:, 1:],
        "repeat an edge": np.concatenate([edges, edges[:, :1]], axis=1),
        "another reverse": np.concatenate([edges[:, 1:], [[0], [299]]], axis=1),
        "loop": np.concatenate([edges, [[5], [5]]], axis=1),
    }[change]
    adjacency = np.zeros((300, 300))
    np.add.at(adjacency, (odd[0], odd[1]), 1)
    np.fill_diagonal(adjacency, 0)
    adjacency = np.maximum(adjacency, adjacency.T)
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(axis=1), 1))
    exact = np.linalg.eigvalsh(np.eye(300) - scale[:, None] * adjacency * scale)
    found = laplacian_encoding(odd, 300, 5)
    np.testing.assert_allclose(found.eigenvalues, exact[1:6], atol=1e-6)
    assert found.converged


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([[0], [1]], 2, 0), ValueError, "k=0"),
        (([0, 1], 2, 1), GraphError, "two rows"),
        (([[0], [5]], 2, 1), GraphError, "nodes from 0 to 5, num_nodes is 2"),
        (([[0.5], [1]], 2, 1), GraphError, "two rows of numbers"),
    ],
)
def test_errors(arguments, error, words):
    edges, *rest = arguments
    with pytest.raises(error, match=words):
        laplacian_encoding(np.array(edges), *rest)


def test_errors_of_options():
    edges = np.array([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="expected 'sym' or 'rw'"):
        laplacian_encoding(edges, 3, 1, normalization="both")
    with pytest.raises(GraphError, match="finite and not negative"):
        laplacian_encoding(edges, 3, 1, edge_weight=np.array([1, -1]))
    with pytest.raises(GraphError, match="ptr must rise"):
        laplacian_encoding(edges, 3, 1, ptr=[0, 2])
    with pytest.raises(GraphError, match="joins two graphs"):
        laplacian_encoding(edges, 3, 1, ptr=[0, 2, 3])
    with pytest.raises(TypeError, match="not ncv"):
        AddLaplacianEigenvectorPE(3, ncv=20)


def test_stands_in_for_the_transform_of_pyg():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Batch, Data
    from torch_geometric.transforms import AddLaplacianEigenvectorPE as Theirs

    edges = torch.from_numpy(random_edges(40, 6, 2))
    data = Data(edge_index=edges, num_nodes=40, x=torch.ones(40, 2))
    ours = AddLaplacianEigenvectorPE(4)(data)
    theirs = Theirs(4, is_undirected=True)(data.clone())
    overlap = (ours.laplacian_eigenvector_pe * theirs.laplacian_eigenvector_pe).sum(0).abs()
    assert overlap.min() > 0.999
    assert "laplacian_eigenvector_pe" not in data
    assert AddLaplacianEigenvectorPE(4, attr_name=None)(data).x.shape == (40, 6)
    assert AddLaplacianEigenvectorPE(4)(
        Batch.from_data_list([data, data])
    ).laplacian_eigenvector_pe.shape == (80, 4)


def test_results_are_tensors_where_edges_are():
    torch = pytest.importorskip("torch")
    vectors, values = laplacian_pe(torch.tensor([[0, 1], [1, 2]]), 3, 2, return_eigval=True)
    assert vectors.dtype == values.dtype == torch.float32


def test_nothing_is_said_of_good_graphs(recwarn):
    laplacian_pe(random_edges(300, 6, 3), 300, 4)
    assert not [warning for warning in recwarn if issubclass(warning.category, GraphWarning)]
