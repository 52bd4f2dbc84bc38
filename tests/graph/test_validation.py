"""What is seen of a matrix in one pass, and what a graph is made of in both ways: compiled and not."""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from spectrograd.graph import Graph, GraphError, GraphWarning
from spectrograd.graph import validation as adjacency
from spectrograd.kernels import graph as structure

ONE, INFINITE = np.array([1, np.inf]).view(np.uint64)


def weights_permuted(W, rng):
    W.data = rng.permutation(W.data)


def one_changed(W, rng):
    W.data[rng.integers(W.nnz)] *= 1.5


def two_exchanged(W, rng):
    at = rng.choice(W.nnz, 2, replace=False)
    W.data[at] = W.data[at[::-1]]


def one_missing(W, rng):
    W.data[rng.integers(W.nnz)] = 0
    W.eliminate_zeros()


def one_moved(W, rng):
    """A column of one row becomes another: as many entries, another pattern."""
    W.indices[rng.integers(W.nnz)] = rng.integers(W.shape[0])


def stored_zeros(W, rng):
    W.data[rng.integers(W.nnz, size=3)] = 0.0
    W.data[rng.integers(W.nnz)] = -0.0


def unsorted(W, rng):
    row = int(np.diff(W.indptr).argmax())
    at = slice(W.indptr[row], W.indptr[row + 1])
    W.indices[at], W.data[at] = W.indices[at][::-1].copy(), W.data[at][::-1].copy()


def duplicates(W, rng):
    row = int(np.diff(W.indptr).argmax())
    W.indices[W.indptr[row]] = W.indices[W.indptr[row] + 1]


def loops(W, rng):
    row = int(np.diff(W.indptr).argmax())
    W.indices[W.indptr[row]] = row
    W.sort_indices()


def rounded(W, rng):
    W.data *= (1 + 1e-13 * rng.standard_normal(W.nnz)).astype(W.dtype)


def nothing(W, rng):
    pass


SPOILS = [
    *(nothing, rounded, weights_permuted, one_changed, two_exchanged, one_missing, one_moved),
    *(stored_zeros, unsorted, duplicates, loops),
]


@st.composite
def matrices(draw, spoils=SPOILS, dtypes=(np.float64, np.float32)):
    """A sound matrix and one flaw at most; every type of numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    graph = reference.random_graph(draw(st.integers(6, 40)), rng, weighted=draw(st.booleans()), mean_degree=4)
    W = graph.matrix.astype(draw(st.sampled_from(dtypes))).copy()
    draw(st.sampled_from(spoils))(W, rng)
    numbers = draw(st.sampled_from([np.int32, np.int64]))
    # made anew: no flags of scipy's are left
    return sp.csr_array((W.data, W.indices.astype(numbers), W.indptr.astype(numbers)), shape=W.shape)


def looked_over(W, run):
    one, infinite = np.array([1, np.inf], W.dtype).view(f"u{W.dtype.itemsize}")
    return run(W.indptr, W.indices, W.data.view(one.dtype), one, infinite)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(matrices())
def test_a_streaming_pass_sees_every_flaw_and_every_asymmetry(W):
    flawed, weighted, imbalance = looked_over(W, structure.look_over.serial)
    expected = reference.look_over(W)
    assert (flawed, weighted) == expected[:2]
    if not flawed:
        assert (imbalance != 0) == expected[2]


@pytest.mark.parametrize("spoil", SPOILS)
def test_threads_see_the_same(spoil):
    W = reference.random_graph(3000, np.random.default_rng(0)).matrix.copy()  # several chunks
    spoil(W, np.random.default_rng(1))
    assert looked_over(W, structure.look_over) == looked_over(W, structure.look_over.serial)


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0, 5e-324, 1e308])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_that_are_no_weights(weight, dtype):
    with np.errstate(over="ignore"):
        data = np.full(2, weight).astype(dtype)
    W = sp.csr_array((data, np.array([1, 0]), np.array([0, 1, 2])))
    assert looked_over(W, structure.look_over.serial)[0] == reference.look_over(W)[0]


@pytest.mark.parametrize("column", [-1, 2, 7])
def test_columns_outside_the_matrix(column):
    indptr, indices = np.array([0, 1, 2]), np.array([1, column])
    assert structure.look_over.serial(indptr, indices, np.full(2, ONE), ONE, INFINITE)[0]


def test_rings_of_weights_do_not_cancel():
    """Row and column sums agree, and so do the weights as a whole: only the places differ."""
    ring = np.roll(np.eye(5), 1, axis=1)
    W = sp.csr_array(2 * ring + ring.T)
    flawed, _, imbalance = looked_over(W, structure.look_over.serial)
    assert not flawed
    assert imbalance != 0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(matrices([nothing, rounded, one_changed, weights_permuted, one_missing]), st.integers(1, 4))
def test_the_mean_with_the_transpose(W, n_parts):
    mean = W.data.copy()
    largest = structure.mean_with_transpose(W.indptr, W.indices, mean, n_parts)
    expected, difference = reference.mean_with_transpose(W)
    assert largest == difference
    if np.isfinite(difference):
        found = sp.csr_array((mean, W.indices, W.indptr), shape=W.shape).toarray()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize(("row", "column"), [(0, 5), (5, 0), (9, 8), (8, 9)])
def test_an_entry_without_its_twin_is_found_on_either_side(row, column, n_parts):
    W = sp.csr_array(np.ones((10, 10)) - np.eye(10)).tolil()
    W[row, column] = 0
    W = W.tocsr()
    assert structure.mean_with_transpose(W.indptr, W.indices, W.data, n_parts) == np.inf


def outcome(W):
    """The graph or the error, and all that was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            (block,) = Graph.from_matrix(W).blocks
        except GraphError as error:
            return str(error), []
    assert all(one.category is GraphWarning and one.filename == __file__ for one in caught)
    return block, [str(one.message) for one in caught]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(matrices())
def test_compiled_or_not_the_graph_is_the_same_and_the_mean_of_both_halves(W):
    before = [x.copy() for x in (W.data, W.indices, W.indptr)]
    plain, said = outcome(W)
    with mock.patch.object(adjacency, "SMALL", 0):
        compiled, said_then = outcome(W)
    assert said == said_then
    dense = W.toarray()
    np.fill_diagonal(dense, 0)
    expected = (dense + dense.T) * W.dtype.type(0.5)
    for block in (plain, compiled):
        weights = np.ones(len(block.indices), W.dtype) if block.weights is None else block.weights
        assert weights.dtype == W.dtype
        assert (block.weights is None) == bool((expected[expected > 0] == 1).all())
        np.testing.assert_array_equal(
            sp.csr_array((weights, block.indices, block.indptr), shape=W.shape).toarray(), expected
        )
        assert (block.indptr.dtype, block.indices.dtype) == (np.int64, np.int32)
        for array in (block.indptr, block.indices, weights):
            assert not any(np.may_share_memory(array, x) for x in (W.data, W.indices, W.indptr))
    for array, copy in zip((W.data, W.indices, W.indptr), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    tolerance = 1e-10 * dense.max()
    assert any("not symmetric" in word for word in said) == (np.abs(dense - dense.T).max() > tolerance)


@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0])
def test_errors_are_the_same_compiled_or_not(small, weight):
    W = sp.csr_array(np.array([[0, weight, 0], [weight, 0, 1], [0, 1, 0]]))
    with mock.patch.object(adjacency, "SMALL", small):
        message, _ = outcome(W)
    assert message.startswith("weight of edge (0, 1) is")


@pytest.mark.parametrize("small", [0, 4096])
def test_halves_of_one_that_differ_by_rounding_make_an_unweighted_graph(small):
    W = sp.csr_array(np.array([[0, 1 + 2e-16], [1 - 2e-16, 0]]))
    with mock.patch.object(adjacency, "SMALL", small):
        block, said = outcome(W)
    assert block.weights is None
    assert not said


@pytest.mark.parametrize("small", [0, 4096])
def test_room_to_spare_behind_the_last_entry_is_left_out(small):
    W = sp.csr_array(np.array([[0, 2.0], [2.0, 0]]))
    W.indices, W.data = np.append(W.indices, [0, 0]), np.append(W.data, [np.nan, 7.0])
    with mock.patch.object(adjacency, "SMALL", small):
        block, said = outcome(W)
    assert block.weights.tolist() == [2.0, 2.0]
    assert block.indices.tolist() == [1, 0]
    assert not said
