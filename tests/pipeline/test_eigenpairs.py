"""The smallest eigenpairs over all components against LAPACK on the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrograd import Graph, datasets
from spectrograd.pipeline.eigenpairs import dense_eigenpairs, equal_value_groups, smallest_eigenpairs

KINDS = ("unnormalized", "symmetric", "random_walk")


def dense_laplacian(graph, kind, isolated_value=0.0):
    """The matrix, and the metric, of a Laplacian with a given value at isolated nodes."""
    weights = graph.matrix.toarray()
    degrees = weights.sum(axis=0)
    laplacian = np.diag(np.where(degrees > 0, degrees, isolated_value)) - weights
    scale = np.where(degrees > 0, degrees, 1.0)
    if kind == "symmetric":
        laplacian = laplacian / np.sqrt(np.outer(scale, scale))
    return laplacian, scale if kind == "random_walk" else np.ones(len(scale))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    k=st.integers(1, 8),
    kind=st.sampled_from(KINDS),
    isolated_value=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 100),
)
def test_any_mixture_of_components(sizes, k, kind, isolated_value, seed):
    rng = np.random.default_rng(seed)
    blocks = []
    for size in sizes:
        weights = np.triu(rng.random((size, size)) * (rng.random((size, size)) < 0.5), 2)
        weights[np.arange(size - 1), np.arange(1, size)] = rng.uniform(0.1, 1, size - 1)  # a path connects it
        blocks.append(weights + weights.T)
    matrix = sp.block_diag(blocks).tocsr()
    if matrix.nnz == 0:
        return
    graph = Graph.from_matrix(matrix)
    pairs = smallest_eigenpairs(graph, k, kind=kind, isolated_value=isolated_value)
    laplacian, metric = dense_laplacian(graph, kind, isolated_value)
    k = min(k, graph.n_nodes)
    import scipy.linalg as la

    exact = la.eigh(laplacian, np.diag(metric), eigvals_only=True)[:k]
    np.testing.assert_allclose(pairs.values, exact, atol=1e-9)
    error = laplacian @ pairs.vectors - metric[:, None] * pairs.vectors * pairs.values
    assert np.abs(error).max() < 1e-9
    np.testing.assert_allclose(pairs.vectors.T @ (metric[:, None] * pairs.vectors), np.eye(k), atol=1e-8)
    assert pairs.converged


@pytest.mark.parametrize("kind", KINDS)
def test_large_components_come_from_the_certified_pipeline(kind):
    data = datasets.make_block_model(900, 3, random_state=0)
    pairs = smallest_eigenpairs(data.graph, 5, kind=kind)
    laplacian, metric = dense_laplacian(data.graph, kind)
    error = laplacian @ pairs.vectors - metric[:, None] * pairs.vectors * pairs.values
    np.testing.assert_allclose(np.linalg.norm(error, axis=0), pairs.residuals, atol=1e-9)
    width = (
        1 if kind == "symmetric" else metric.max() if kind == "random_walk" else 2 * data.graph.degrees.max()
    )
    assert pairs.residuals.max() < 1e-5 * width
    assert pairs.converged


def test_among_null_vectors_those_of_large_components_come_first():
    graph = Graph.from_edges([0, 2, 3, 5], [1, 3, 4, 6], n_nodes=7)
    pairs = smallest_eigenpairs(graph, 1, kind="symmetric")
    assert np.flatnonzero(np.abs(pairs.vectors[:, 0]) > 1e-9).tolist() == [2, 3, 4]


def test_equal_eigenvalues_are_named():
    cycle = Graph.from_edges(np.arange(8), (np.arange(8) + 1) % 8)
    assert smallest_eigenpairs(cycle, 6).groups == ((0,), (1, 2), (3, 4), (5,))
    assert equal_value_groups(np.array([]), np.array([])) == ()


def test_the_certificate_speaks_of_components_that_were_iterated():
    small = datasets.make_block_model(100, 2, random_state=0).graph
    large = datasets.make_block_model(900, 2, random_state=0).graph
    both = Graph.from_matrix(sp.block_diag([small.matrix, large.matrix]))
    assert smallest_eigenpairs(small, 3).certificate == "all eigenvectors by LAPACK, exact to rounding"
    for graph in (large, both):
        assert smallest_eigenpairs(graph, 3).certificate.startswith("converged")


def test_a_stack_is_solved_as_its_graphs_one_by_one():
    rng = np.random.default_rng(0)
    stack = (rng.random((5, 9, 9)) < 0.5).astype(float)
    stack = np.triu(stack, 1) + np.triu(stack, 1).transpose(0, 2, 1)
    together = dense_eigenpairs(stack, 4)
    for number, weights in enumerate(stack):
        pairs = together.of_graph(number)
        alone = dense_eigenpairs(weights[None], 4).of_graph(0)
        np.testing.assert_array_equal(pairs.values, alone.values)
