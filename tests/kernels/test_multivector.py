"""The kernels of the block solvers against plain-NumPy twins."""

from __future__ import annotations

import tracemalloc

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import reference
from spectrograd.engines import LocalEngine
from spectrograd.kernels import blas as wide
from spectrograd.kernels import coarsening as coarsen
from spectrograd.kernels import multivector as dense
from spectrograd.kernels import spmm
from spectrograd.operators.laplacian import laplacian

FORMS = ["parallel", "serial"]


def form_of(kernel, form):
    return kernel if form == "parallel" else kernel.serial


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_columns", [5, 8, 19])
def test_recurrence(form, weighted, dtype, n_columns):
    rng = np.random.default_rng(0)
    operator = laplacian(reference.random_graph(400, rng, weighted=weighted)).astype(dtype)
    block = operator.graph.blocks[0]
    U, previous = rng.standard_normal((2, 400, n_columns)).astype(dtype)
    coefficients = tuple(dtype(c) for c in (0.7, -0.3, 0.2))
    update = (rng.standard_normal(400).astype(dtype), rng.standard_normal((1, n_columns)).astype(dtype))
    for metric, rank_one in ((operator.metric, None), (operator.metric, update), (None, None)):
        rows = (0, block.indptr, block.indices)
        args = (rows, block.weights, operator.diagonal, metric, coefficients, rank_one, U)
        out = np.zeros_like(U)
        expected = reference.recurrence_rows(*args, previous, out)
        spmm.recurrence(*args, previous, out, form == "parallel")
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)
        reused = previous.copy()
        spmm.recurrence(*args, reused, reused, form == "parallel")
        np.testing.assert_array_equal(reused, out)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("width", [4, 8, 19])
def test_combine(threaded, width):
    """The kernel combine_chunks, on shares of the chunks and on all at once."""
    rng = np.random.default_rng(0)
    U, V, C, E = (rng.standard_normal(s) for s in ((3000, 5), (3000, 2), (5, width), (2, width)))
    for more in ((V, E), (None, None)):
        found = dense.combine(U, C, *more, threaded)
        np.testing.assert_allclose(found, reference.combine(U, C, *more), atol=1e-12)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("widths", [(50, 50), (50, 7), (3, 300)])
def test_wide_combine(threaded, dtype, widths):
    rng = np.random.default_rng(0)
    (inner, width), n_rows = widths, 2 * wide.CHUNK + 5
    U, V = rng.standard_normal((n_rows, inner)).astype(dtype), rng.standard_normal((n_rows, 2)).astype(dtype)
    C, E = rng.standard_normal((inner, width)).astype(dtype), rng.standard_normal((2, width)).astype(dtype)
    level = 1e-4 if dtype == np.float32 else 1e-12
    for more in ((V, E), (None, None)):
        found = wide.combine(U, C, *more, threaded)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, reference.combine(U, C, *more), rtol=0, atol=level)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", [None, 1, -1])
def test_wide_gram(threaded, dtype, sign):
    """Also with a metric that has no root."""
    rng = np.random.default_rng(1)
    n_rows, K = 2 * wide.CHUNK + 5, wide.STRIP + 9
    U, V = rng.standard_normal((n_rows, K)).astype(dtype), rng.standard_normal((n_rows, 20)).astype(dtype)
    metric = None if sign is None else sign * (1 + rng.random(n_rows))
    near = {"rtol": 0, "atol": 1e-10}
    np.testing.assert_allclose(wide.gram(U, V, metric, False, threaded), reference.gram(U, V, metric), **near)
    own = wide.gram(U, U, metric, True, threaded)
    np.testing.assert_allclose(own, reference.gram(U, U, metric), **near)
    np.testing.assert_array_equal(own, own.T)
    product = (U @ (np.eye(K) + np.ones((K, K)))).astype(dtype)  # U' A U, symmetric up to rounding
    mirrored = wide.gram(U, product, metric, True, threaded)
    np.testing.assert_array_equal(mirrored, mirrored.T)
    np.testing.assert_allclose(np.triu(mirrored), np.triu(reference.gram(U, product, metric)), **near)


def test_a_wide_gram_of_float32_is_summed_in_float64():
    """As certificates need it: where sums of float32 products cancel, nothing of them is left."""
    rng = np.random.default_rng(2)
    half = rng.standard_normal((30_000, 60)).astype(np.float32)
    U, V = np.vstack([half, half]), np.vstack([half, -half])
    assert np.abs(LocalEngine().gram(U, V)).max() < 1e-9  # float32 sums: 1e-2
    assert np.abs(dense.gram(U, V, None, False, False)).max() < 1e-9


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_rows", "width"), [(3_000, 12), (20_000, 24), (9_000, 80), (50_000, 80)])
def test_blocks_of_any_width_have_the_same_bits_for_any_number_of_threads(dtype, n_rows, width):
    """Threads of ours and of BLAS: plain numpy, and chunks that are shared or not."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, n_rows, width)).astype(dtype)
    C, metric, before = rng.standard_normal((width, width)), 1 + rng.random(n_rows), numba.get_num_threads()
    engine, found = LocalEngine(), []
    try:
        for ours, theirs in ((1, 1), (2, 1), (1, 4), (2, 4)):
            numba.set_num_threads(ours)
            with threadpool_limits(theirs):
                results = [engine.gram(X, X, metric), engine.gram(X, Y), engine.gram(X, X)]
                results += [
                    engine.combine(X, C),
                    engine.combine(X, C, Y, C),
                    engine.combine_inplace(X.copy(), C),
                ]
            found.append([array.tobytes() for array in results])
    finally:
        numba.set_num_threads(before)
    assert found[0] == found[1] == found[2] == found[3]


def test_a_wide_gram_takes_no_memory_for_each_of_its_rows():
    """One sum for every 512 rows would be 5 GB at 317,080 x 1,000; here 80 MB."""
    X = np.ones((128_000, 200), np.float32)
    tracemalloc.start()
    LocalEngine().gram(X, X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residual(threaded, dtype):
    """The kernel residual_chunks."""
    rng = np.random.default_rng(0)
    Q, AQ = rng.standard_normal((2, 3000, 6)).astype(dtype)
    values, metric = rng.random(4), (1 + rng.random(3000)).astype(dtype)
    for b in (metric, None):
        R, squares = dense.residual(Q, AQ, values, b, True, threaded)
        expected, expected_squares = reference.residual(Q, AQ, values, b)
        np.testing.assert_allclose(R, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
        np.testing.assert_allclose(squares, expected_squares, rtol=1e-4 if dtype == np.float32 else 1e-12)
        nothing, norms = dense.residual(Q, AQ, values, b, False, threaded)
        assert nothing.size == 0
        np.testing.assert_allclose(norms, squares, rtol=1e-13)  # two loops for the compiler


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [True, False])
def test_coarsening(form, weighted):
    rng = np.random.default_rng(0)
    graph = reference.random_graph(500, rng, weighted=weighted)
    b = graph.blocks[0]
    part, n = coarsen.match(b.indptr, b.indices, b.weights, graph.degrees, 3)
    sizes = np.bincount(part, minlength=n)
    assert sizes.min() >= 1
    assert sizes.max() <= 3
    assert n <= 250
    begin, order = coarsen.members(part, n)
    assert all(set(part[order[begin[c] : begin[c + 1]]]) == {c} for c in range(n))
    indptr, indices, weights = form_of(coarsen.galerkin, form)(
        b.indptr, b.indices, b.weights, part, begin, order
    )
    coarse = sp.csr_array((weights, indices, indptr), shape=(n, n)).toarray()
    np.testing.assert_allclose(coarse, reference.galerkin(graph.matrix.toarray(), part), atol=1e-12)
    P = np.eye(n)[part]
    R, X, C = rng.standard_normal((500, 3)), rng.standard_normal((500, 3)), rng.standard_normal((n, 3))
    restricted = form_of(coarsen.restrict, form)(begin, order, graph.degrees, R)
    np.testing.assert_allclose(restricted, P.T @ (graph.degrees[:, None] * R), atol=1e-10)
    np.testing.assert_allclose(form_of(coarsen.restrict, form)(begin, order, None, R), P.T @ R, atol=1e-12)
    expected = X + P @ C
    form_of(coarsen.add_prolonged, form)(part, C, X)
    np.testing.assert_allclose(X, expected, atol=1e-12)


def test_entries_left():
    rng = np.random.default_rng(2)
    W = reference.random_graph(200, rng).matrix
    part, n = coarsen.match(W.indptr, W.indices, W.data, np.ones(200), 3)
    begin, order = coarsen.members(part, n)
    chosen = rng.choice(n, n // 2, replace=False)
    found = coarsen.entries_left(W.indptr, W.indices, part, begin, order, chosen)
    assert found == reference.entries_left(W, part, chosen)
    assert 0 < found < 1
