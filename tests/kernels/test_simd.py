"""Rows of eight columns in registers, and the paper's iterations that are built of them."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from spectrograd.kernels import baselines as paper
from spectrograd.kernels.jit import serial
from spectrograd.kernels.minibatch import row_guide
from spectrograd.kernels.simd import (
    largest,
    lowest_bit,
    nothing,
    put,
    put_first,
    root,
    spread,
    take,
    take_first,
    take_one,
    total,
    wide,
)
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers import Problem, Stopping, make_solver, solve


@serial
def sum_of_lanes(A):
    return total(take(A, 0, 1))


def test_all_lanes_are_added():
    A = np.arange(10, dtype=np.float32)[None] ** 2
    assert sum_of_lanes(A) == A[0, 1:9].sum()


@serial
def calculate(A, count, scalar, out, doubled):
    """Mutates: out, one result per row, and doubled."""
    x, y = take(A, 0, 1), take(A, 1, 2)
    put(out, 0, 0, x + y)
    put(out, 1, 0, x - y)
    put(out, 2, 0, scalar * x * y)
    put(out, 3, 0, x / (y + scalar))
    put(out, 4, 0, root(x * x))
    put(out, 5, 0, largest(x, y))
    put(out, 6, 0, spread(scalar, x) + nothing(A))
    put(out, 7, 0, take_first(A, 2, 0, count))
    put_first(out, 8, 0, count, x)
    put(out, 9, 0, take_one(A, 2, 3))
    put(doubled, 0, 0, wide(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 3, 8])
def test_lanes_calculate_as_numpy_does(dtype, count):
    A = np.random.default_rng(0).standard_normal((3, 11)).astype(dtype)
    A[1] = np.abs(A[1])
    x, y, scalar = A[0, 1:9], A[1, 2:10], dtype(0.7)
    out = np.full((10, 8), 5, dtype)
    doubled = np.zeros((1, 8))
    calculate(A, count, scalar, out, doubled)
    np.testing.assert_array_equal(doubled[0], x.astype(np.float64))
    below = np.arange(8) < count
    expected = np.array(
        [
            x + y,
            x - y,
            scalar * x * y,
            x / (y + scalar),
            np.abs(x),
            np.maximum(x, y),
            np.full(8, scalar),
            np.where(below, A[2, :8], 0),
            np.where(below, x, 5),
            np.full(8, A[2, 3]),
        ]
    )
    np.testing.assert_allclose(out, expected, rtol=4 * np.finfo(dtype).eps)


@serial
def lowest(words):
    """The lowest bit of each word."""
    return np.array([lowest_bit(word) for word in words])


def test_lowest_bit():
    bits = np.arange(64, dtype=np.uint64)
    np.testing.assert_array_equal(lowest((np.uint64(1) << bits) | np.uint64(1) << np.uint64(63)), bits)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("n_factors", [0, 6])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("n_columns", [1, 5, 8])
@pytest.mark.parametrize("printed", [0.0, 1.0])
def test_paper_iterations(weighted, n_factors, scaled, n_columns, printed):
    rng = np.random.default_rng(3)
    n_nodes = 300
    (block,) = reference.random_graph(n_nodes, rng, weighted=weighted).blocks
    scale = rng.uniform(0.5, 1.5, n_nodes) if scaled else None
    shift = 2
    csr = (block.indptr, block.indices, row_guide(block.indptr, shift), shift)
    rows = rng.standard_normal((2, n_nodes)).astype(np.float32)
    rows[1] = np.abs(rows[1]) + 0.5
    Z, a = rng.standard_normal((n_nodes, n_factors)).astype(np.float32), rng.standard_normal(n_factors)
    U = np.zeros((n_nodes, 8), np.float32)
    U[:, :n_columns] = rng.standard_normal((n_nodes, n_columns)) / 10
    M = reference.gram(U, U, rows[1])[:n_columns, :n_columns]
    Y = (Z.T @ U)[:, :n_columns].astype(np.float64)
    moments = np.zeros((n_nodes, 24), np.float32)
    positions = rng.integers(0, len(block.indices), (4, 100))
    settings = tuple(np.float32(s) for s in (1e-2, 0.9, 0.999, printed))
    front = (positions, csr, block.weights, scale, tuple(rows), (Z, a), settings)
    packed = np.zeros((n_nodes, 3 * n_columns))
    expected = reference.paper_iterations(*front, packed, U[:, :n_columns], M, Y)
    assert paper.paper_iterations(*front, moments, U, M, Y) == 4
    found = (U[:, :n_columns], moments.reshape(-1, 3, 8)[:, :, :n_columns].reshape(n_nodes, -1), M, Y)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5)
    assert not U[:, n_columns:].any()


def test_paper_iterations_stop_where_the_gram_matrix_breaks_down():
    graph = reference.random_graph(50, np.random.default_rng(0))
    problem = Problem(laplacian(graph), 3)
    source = problem.single_batches
    U = np.ones((50, 3), np.float32)
    positions = np.zeros((5, 10), np.int64)
    settings = (1e-3, 0.9, 0.999, 0.0)
    done = source.iterate(
        positions, U, np.ones((3, 3)), np.zeros((0, 3)), np.zeros((50, 24), np.float32), settings
    )
    assert done == 0
    np.testing.assert_array_equal(U, 1)


@pytest.mark.parametrize("max_iter", [1, 49, 50, 77, 130])
def test_the_paper_s_solver_counts_every_iteration(max_iter):
    problem = Problem(laplacian(reference.random_graph(200, np.random.default_rng(1))), 3)
    solution = solve(problem, make_solver("sgd-paper"), stopping=Stopping(max_iter=max_iter, tol=0), seed=0)
    assert solution.last.iteration == max_iter
    assert solution.last.edges_seen == 4000 * max_iter
    assert [p.iteration for p in solution.history] == [*range(0, max_iter, 50), max_iter]
