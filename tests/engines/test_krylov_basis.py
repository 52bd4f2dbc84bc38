"""Krylov spaces: their kernels, what the basis promises, and the guard vectors that solvers leave."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import reference
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine, NumpyEngine
from spectrograd.engines.krylov_basis import CHUNK
from spectrograd.graph import Graph
from spectrograd.kernels import spmm
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.linalg.subspace import Basis
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers import Problem, make_solver, solve

ENGINE = LocalEngine()
FORMS = ["parallel", "serial"]


def orthonormal_rows(n_rows, n, rng, dtype=np.float64):
    return np.linalg.qr(rng.standard_normal((n, n_rows)))[0].T.astype(dtype)


# --- kernels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_laplacian_column(form, weighted, scaled, dtype):
    rng = np.random.default_rng(0)
    graph = reference.random_graph(700, rng, weighted=weighted)
    (b,) = graph.blocks
    u, scale = rng.standard_normal(700).astype(dtype), (1 + rng.random(700)).astype(dtype)
    scale, v = (scale, scale * u) if scaled else (None, u)
    weights = None if b.weights is None else b.weights.astype(dtype)
    numbers = (weights, graph.degrees.astype(dtype), scale)
    out = np.zeros(700, dtype)
    columns = [a[:, None] for a in (u, v, out)]
    spmm.multiply((b.start, b.indptr, b.indices), *numbers, *columns, form == "parallel")
    expected = reference.laplacian_rows(
        b.start, b.indptr, b.indices, *numbers, u[:, None], v[:, None], out[:, None].copy()
    )
    np.testing.assert_allclose(out, expected[:, 0], rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-4)


def basis_of(rows, parallel_rows=20_000):
    basis = LocalEngine(thresholds=Thresholds(parallel_rows=parallel_rows)).basis(
        rows.shape[1], len(rows), rows.dtype
    )
    basis.append(rows.T)
    return basis


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [517, CHUNK + 3])
@pytest.mark.parametrize(("count", "width"), [(7, 1), (9, 8), (4, 3), (1, 5)])
def test_orthogonalize(dtype, n, count, width):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count + width, n)).astype(dtype)
    rows[:count] = orthonormal_rows(count, n, rng)
    expected = reference.orthogonalize(rows.astype(np.float64), count, width)
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    for first in (0, count - 1):
        basis = basis_of(rows)
        coefficients, inner = basis.orthogonalize(first, count)
        np.testing.assert_allclose(coefficients, expected[0], atol=tolerance)
        np.testing.assert_allclose(basis.stored[count:], expected[1], atol=tolerance)
        np.testing.assert_allclose(inner, expected[1] @ expected[1].T, atol=n * tolerance)
        assert np.array_equal(basis.stored[:count], rows[:count])


@pytest.mark.parametrize("n", [2500, CHUNK + 3])
@pytest.mark.parametrize(("used", "kept"), [(9, 4), (4, 4), (1, 1), (6, 5)])
def test_rotate(used, kept, n):
    rng = np.random.default_rng(0)
    rows, Y = rng.standard_normal((used, n)), rng.standard_normal((used, kept))
    basis = basis_of(rows)
    basis.rotate(0, used, Y)
    assert basis.filled == kept
    np.testing.assert_allclose(basis.stored[:kept], reference.rotate(rows, Y)[:kept], atol=1e-12)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 2, 6])
def test_a_basis_has_the_same_bits_for_any_number_of_threads(dtype, width):
    """Threads of ours and of BLAS."""
    rng = np.random.default_rng(0)
    n, count = 3 * CHUNK + 5, 9
    rows = np.vstack([orthonormal_rows(count, n, rng), rng.standard_normal((width, n))]).astype(dtype)
    Y = rng.standard_normal((count, 4))
    found = []
    before = numba.get_num_threads()
    try:
        for parallel_rows, ours, theirs in ((n, 1, 1), (n, 2, 4), (0, 1, 4), (0, 2, 1)):
            numba.set_num_threads(ours)
            with threadpool_limits(theirs):
                basis = basis_of(rows, parallel_rows)
                numbers = [*basis.orthogonalize(count - width, count)]
                basis.rotate(0, count, Y)
            found.append([array.tobytes() for array in (*numbers, basis.stored)])
    finally:
        numba.set_num_threads(before)
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize(("engine", "n"), [(ENGINE, 300), (ENGINE, 5000), (NumpyEngine(), 300)])
def test_a_basis_is_the_same_with_and_without_compiled_code_and_as_a_list(engine, n):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((9, n))
    rows[:5] = orthonormal_rows(5, n, rng)
    basis = engine.basis(n, 9, np.float64)
    for first, last in ((0, 2), (2, 3), (3, 5), (5, 8)):
        basis.append(engine.from_numpy(rows[first:last].T))
    expected = reference.orthogonalize(rows.copy(), 5, 3)
    coefficients, inner = basis.orthogonalize(3, 5)
    np.testing.assert_allclose(coefficients, expected[0], atol=1e-12)
    np.testing.assert_allclose(engine.to_numpy(basis.columns(5, 8)).T, expected[1], atol=1e-12)
    np.testing.assert_allclose(inner, expected[1] @ expected[1].T, atol=1e-9)
    Y = rng.standard_normal((5, 2))
    basis.rotate(1, 6, Y)  # the last two close up
    combine_inplace = [rows[:1], Y.T @ np.vstack([rows[1:5], expected[1][:1]]), expected[1][1:]]
    np.testing.assert_allclose(engine.to_numpy(basis.columns(0, 5)).T, np.vstack(combine_inplace), atol=1e-12)


# --- the basis ----------------------------------------------------------------------------------------


def held(basis: Basis) -> float:
    """Largest error in ``A q_j = sum_i T_ij q_i`` and in ``q_i'q_j``."""
    Q, m = basis.vectors.columns(0, basis.filled).T.astype(np.float64), basis.done
    product = (basis.operator @ Q[:m].T).T
    relation = np.abs(product - basis.T[: basis.filled, :m].T @ Q).max()
    return max(float(relation), float(np.abs(Q @ Q.T - np.eye(len(Q))).max()))


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_recurrence_holds_through_restarts(width, dtype):
    rng = np.random.default_rng(0)
    operator = laplacian(make_block_model(900, 4, random_state=0).graph, "symmetric")
    basis = Basis(ENGINE, operator, orthonormal_rows(width, 900, rng, dtype).T, 24)
    for _ in range(3):
        while not basis.full:
            basis.expand(rng)
        assert held(basis) < (2e-5 if dtype == np.float32 else 1e-12)
        ritz = basis.ritz()
        for j in (0, 3):
            x = basis.vectors.columns(0, basis.done).astype(np.float64) @ ritz.Y[:, j]
            true = np.linalg.norm(operator @ x - ritz.values[j] * x)
            assert ritz.residuals[j] == pytest.approx(true, abs=2e-5 if dtype == np.float32 else 1e-12)
        basis.restart(ritz, 8)
    assert held(basis) < (2e-5 if dtype == np.float32 else 1e-12)


def test_an_invariant_subspace_is_left_by_a_random_vector():
    star = laplacian(Graph.from_edges(np.zeros(40, int), np.arange(1, 41)), "symmetric")
    rng = np.random.default_rng(0)
    start = np.zeros((41, 1))
    start[0] = 1  # spans, with the mean of the leaves, an invariant subspace
    basis = Basis(ENGINE, star, start, 6)
    while not basis.full:
        basis.expand(rng)
    assert basis.done >= 5
    assert held(basis) < 1e-12


# --- guard vectors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chebyshev", "lanczos"])
def test_guards_are_orthogonal_to_the_result_with_the_residuals_they_state(name):
    operator = laplacian(make_block_model(2500, 6, mean_degree=12, random_state=0).graph)
    problem = Problem(operator, 4)
    solution = solve(problem, make_solver(name, angle=0.01), seed=0)
    guards = solution.evidence.guards
    assert guards is not None
    assert len(guards.values) == guards.vectors.shape[1] >= 2
    assert np.abs(problem.gram(solution.Q, guards.vectors.astype(np.float64))).max() < 1e-5
    G = guards.vectors.astype(np.float64)
    R = operator @ G - operator.metric[:, None] * G * guards.values
    true = np.sqrt((R**2 / operator.metric[:, None]).sum(axis=0))
    np.testing.assert_allclose(guards.residuals, true, atol=2e-5)


def test_an_interrupted_run_has_no_guards_of_a_basis_that_went_on():
    operator = laplacian(make_block_model(2500, 6, mean_degree=12, random_state=0).graph)
    problem, solver = Problem(operator, 4), make_solver("lanczos")
    state = solver.step(problem, solver.init(problem, np.random.default_rng(0)))
    assert solver.evidence(problem, state).guards is not None
    state.basis.expand(state.rng)
    assert solver.evidence(problem, state).guards is None


@pytest.mark.parametrize("n", [300, CHUNK + 7])
def test_combinations_of_a_basis_are_products(n):
    rng = np.random.default_rng(0)
    basis = ENGINE.basis(n, 8, np.float32)
    columns = rng.standard_normal((n, 6)).astype(np.float32)
    basis.append(columns)
    Y = rng.standard_normal((5, 3))
    np.testing.assert_allclose(basis.combinations(Y), columns[:, :5] @ Y, atol=1e-5)
    np.testing.assert_array_equal(basis.columns(0, 6), columns)  # as before
