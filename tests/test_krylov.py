"""Krylov spaces: their kernels, what the basis promises, and guard vectors as help for the probe."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine
from spectrograd.engines.krylov import Basis, upper_edge
from spectrograd.engines.subspace import Ritz, residuals
from spectrograd.graph import Graph
from spectrograd.kernels import krylov, spmm
from spectrograd.laplacian import Operator, laplacian
from spectrograd.probe import LIKELY_MISS, Guards, Probed, look_outside, needed_cut
from spectrograd.solvers import Problem, make_solver, solve

ENGINE = LocalEngine()
FORMS = ["parallel", "serial"]


def form_of(kernel, form):
    return kernel if form == "parallel" else kernel.serial


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
    form_of(spmm.laplacian_column, form)((b.start, b.indptr, b.indices), *numbers, u, v, out)
    columns = (a[:, None] for a in (u, v, out))
    expected = reference.laplacian_rows(b.start, b.indptr, b.indices, *numbers, *columns)
    np.testing.assert_allclose(out, expected[:, 0], rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "count", "width"), [(3001, 7, 1), (3001, 9, 8), (517, 4, 3), (2048, 1, 5)])
def test_orthogonalize(form, dtype, n, count, width):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count + width + 1, n)).astype(dtype)
    rows[:count] = orthonormal_rows(count, n, rng)
    untouched = rows[-1].copy()
    expected = reference.orthogonalize(rows.astype(np.float64), count, width)
    for first in (0, count - 1):
        mine = rows.copy()
        coefficients, inner = form_of(krylov.orthogonalize, form)(mine, first, count, width)
        tolerance = 1e-4 if dtype == np.float32 else 1e-10
        np.testing.assert_allclose(coefficients, expected[0], atol=tolerance)
        np.testing.assert_allclose(mine[count:-1], expected[1], atol=tolerance)
        np.testing.assert_allclose(inner, expected[1] @ expected[1].T, atol=n * tolerance)
        assert np.array_equal(mine[-1], untouched)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("used", "kept"), [(9, 4), (4, 4), (1, 1), (6, 5)])
def test_rotate(form, used, kept):
    rng = np.random.default_rng(0)
    rows, Y = rng.standard_normal((11, 2500)), rng.standard_normal((used, kept))
    mine = rows.copy()
    form_of(krylov.rotate, form)(mine, Y)
    np.testing.assert_allclose(mine, reference.rotate(rows, Y), atol=1e-12)


@pytest.mark.parametrize("n", [300, 5000])
def test_the_engine_does_the_same_with_and_without_compiled_code(n):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((9, n))
    rows[:5] = orthonormal_rows(5, n, rng)
    expected = reference.orthogonalize(rows.copy(), 5, 3)
    coefficients, inner = ENGINE.orthogonalize(rows, 3, 5, 3)
    np.testing.assert_allclose(coefficients, expected[0], atol=1e-12)
    np.testing.assert_allclose(rows[5:8], expected[1], atol=1e-12)
    np.testing.assert_allclose(inner, expected[1] @ expected[1].T, atol=1e-9)
    Y = rng.standard_normal((5, 2))
    turned = reference.rotate(rows, Y)
    ENGINE.rotate(rows, Y)
    np.testing.assert_allclose(rows, turned, atol=1e-12)


# --- the basis ----------------------------------------------------------------------------------------


def held(basis: Basis) -> float:
    """Largest error in ``A q_j = sum_i T_ij q_i`` and in ``q_i'q_j``."""
    Q, m = basis.rows[: basis.filled].astype(np.float64), basis.done
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
            x = ritz.Y[:, j] @ basis.rows[: basis.done].astype(np.float64)
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


@pytest.mark.parametrize("kind", ["symmetric", "random_walk"])
def test_the_upper_edge_is_close_and_no_higher_than_known(kind):
    operator = laplacian(make_block_model(1500, 3, random_state=0).graph, kind)
    top = np.linalg.eigvalsh(operator.standard_form().to_dense())[-1]
    found = upper_edge(ENGINE, operator, np.random.default_rng(0), 12)
    assert 0.97 * top < found <= min(1.1 * top, operator.upper)


# --- guard vectors in the probe -----------------------------------------------------------------------


def diagonal_operator(values):
    """An operator with these eigenvalues and unit vectors, and hardly any edges."""
    n = len(values)
    return Operator(Graph.from_edges([0], [1], [1e-9], n_nodes=n), np.asarray(values), upper=2.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-4, 0.05))
def test_a_missed_eigenvalue_moves_no_farther_than_stated(seed, noise):
    """The smallest eigenvalue of the complement of K found and p inaccurate vectors, against the bound."""
    rng = np.random.default_rng(seed)
    A = np.diag(
        np.concatenate([[0.1, 0.2, 0.3], np.sort(0.5 + rng.random(12))])
    )  # 0.3 is below tau, and missed
    found = np.eye(15)[:, :2]
    rough = np.eye(15)[:, 3:6] + noise * rng.standard_normal((15, 3))
    rough -= found @ (found.T @ rough)
    G = np.linalg.qr(rough)[0]
    values, Y = np.linalg.eigh(G.T @ A @ G)
    G = G @ Y
    leak, tau = np.linalg.norm(A @ G - G * values, 2), 0.3
    P = np.linalg.qr(np.hstack([found, G]), mode="complete")[0][:, 5:]
    lowest = np.linalg.eigvalsh(P.T @ A @ P)[0]
    square = (leak / (values[0] - tau)) ** 2
    if square < 1:
        assert lowest <= tau + square * (values[0] - tau) / (1 - square) + 1e-12


def test_leaky_guards_weaken_the_evidence_until_there_is_none():
    plain = Probed(0.5, 8, None, 2.0, (), 4, 1, 3.0, 0.6)
    assert plain.log_square(0.3) < Probed(0.5, 8, None, 2.0, (), 4, 1, 3.0, 0.6, 0.5, 0.1).log_square(0.3)
    assert math.isinf(Probed(0.5, 8, None, 2.0, (), 4, 1, 3.0, 0.6, 0.5, 0.3).log_square(0.3))


def spread_spectrum(n=3000):
    """Close neighbours at the K-th place, far ones after it: where guard vectors pay."""
    low = [0.0, 0.02, 0.04, 0.06, 0.062, 0.1, 0.12, 0.2]
    return diagonal_operator(np.concatenate([low, np.linspace(0.3, 1.5, n - len(low))]))


def guards_after(operator, found, n_guards):
    n = operator.n_nodes
    G = np.eye(n)[:, found : found + n_guards]
    values = np.diag(G.T @ (operator @ G))
    nothing = np.zeros(n_guards)
    return Guards(G, values, nothing, float(operator.diagonal[found + n_guards]))


def test_guards_make_the_probe_shorter_and_miss_nothing():
    operator = spread_spectrum()
    Q = np.eye(operator.n_nodes)[:, :4]
    ritz = Ritz(operator.diagonal[:4], Q, operator @ Q)
    assert residuals(ENGINE, operator, ritz).max() < 1e-6
    looked = [
        look_outside(ENGINE, operator, ritz, np.random.default_rng(0), beyond=0.062, guards=guards)
        for guards in (None, guards_after(operator, 4, 3))
    ]
    tau = needed_cut(0.06, 0.062, 0.0)
    assert all(seen.odds_below(tau) <= LIKELY_MISS for seen in looked)
    assert looked[1].columns < 0.5 * looked[0].columns
    skipped = Ritz(operator.diagonal[[0, 1, 3]], Q[:, [0, 1, 3]], (operator @ Q)[:, [0, 1, 3]])
    seen = look_outside(
        ENGINE,
        operator,
        skipped,
        np.random.default_rng(0),
        beyond=0.062,
        guards=guards_after(operator, 4, 3),
    )
    assert seen.lowest <= 0.06  # the one at 0.04


@pytest.mark.parametrize("highest", [0.9, 1.2])
def test_a_spectrum_that_ends_later_than_it_seemed_is_noticed(highest):
    """One eigenvalue far above all others: filters that end below it let it grow."""
    values = np.concatenate([[0.0, 0.1, 0.2, 0.21], np.linspace(0.3, 0.8, 5000), [2.0]])
    operator = diagonal_operator(values)
    Q = np.eye(len(values))[:, :3]
    ritz = Ritz(values[:3], Q, operator @ Q)
    seen = look_outside(ENGINE, operator, ritz, np.random.default_rng(0), beyond=0.21, highest=highest)
    assert seen.odds_below(needed_cut(0.2, 0.21, 0.0)) <= LIKELY_MISS
    assert seen.lowest == pytest.approx(0.21)


@pytest.mark.parametrize("name", ["chebyshev", "lanczos"])
def test_guards_are_orthogonal_to_the_result_with_the_residuals_they_state(name):
    operator = laplacian(make_block_model(2500, 6, mean_degree=12, random_state=0).graph)
    problem = Problem(operator, 4)
    solution = solve(problem, make_solver(name, angle=0.01), seed=0)
    guards = solution.guards
    assert guards is not None
    assert len(guards.values) == guards.vectors.shape[1] >= 2
    assert np.abs(problem.gram(solution.Q, guards.vectors.astype(np.float64))).max() < 1e-5
    G = guards.vectors.astype(np.float64)
    R = operator @ G - operator.metric[:, None] * G * guards.values
    true = np.sqrt((R**2 / operator.metric[:, None]).sum(axis=0))
    np.testing.assert_allclose(guards.residuals, true, atol=2e-5)
    assert guards.beyond >= guards.values[-1]
    assert guards.first(1).beyond == guards.values[1]


def test_an_interrupted_run_has_no_guards_of_a_basis_that_went_on():
    operator = laplacian(make_block_model(2500, 6, mean_degree=12, random_state=0).graph)
    problem, solver = Problem(operator, 4), make_solver("lanczos")
    state = solver.step(problem, solver.init(problem, np.random.default_rng(0)))
    assert solver.guards(problem, state) is not None
    state.basis.expand(state.rng)
    assert solver.guards(problem, state) is None
