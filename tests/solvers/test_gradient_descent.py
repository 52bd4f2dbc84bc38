"""The objective's gradient, full and in batches: derivatives, exact identities and expectations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg as la

import reference
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import LowRank
from spectrograd.solvers import Problem, make_solver
from spectrograd.solvers.gradient_descent import objective_and_gradient
from spectrograd.solvers.minibatch import BatchSource, rows_of

N, K = 40, 4
CASES = ["random_walk", "symmetric", "unnormalized", "random_walk + low rank", "unnormalized + low rank"]


def operator_of(case, graph=None):
    """The named operator on a small weighted graph."""
    rng = np.random.default_rng(0)
    graph = reference.random_graph(N, rng) if graph is None else graph
    operator = laplacian(graph, case.split(" ")[0])
    if "low rank" not in case:
        return operator
    Z = la.qr(rng.standard_normal((graph.n_nodes, 6)), mode="economic")[0]
    return replace(operator, low_rank=LowRank(Z, rng.uniform(0.3, 1.5, 6)), lower=-1.5)


@pytest.fixture(params=CASES)
def operator(request):
    return operator_of(request.param)


@pytest.fixture
def U():
    """Neither orthonormal nor orthogonal: the formula must hold everywhere."""
    rng = np.random.default_rng(1)
    return rng.standard_normal((N, K)) @ rng.standard_normal((K, K))


def objective(operator, U):
    """Eq. 8 by dense algebra alone."""
    A, B = reference.dense_pencil(operator)
    return np.trace(la.solve(U.T @ B @ U, U.T @ A @ U))


# --- the full gradient ------------------------------------------------------------------------------


def test_objective_is_the_definition(operator, U):
    J, _ = objective_and_gradient(Problem(operator, K), U)
    assert pytest.approx(objective(operator, U), rel=1e-12) == J


def test_gradient_equals_finite_differences(operator, U):
    _, gradient = objective_and_gradient(Problem(operator, K), U)
    h = 1e-5
    for i, k in [(0, 0), (7, 3), (21, 1), (N - 1, 2)]:
        E = np.zeros_like(U)
        E[i, k] = h
        slope = (objective(operator, U + E) - objective(operator, U - E)) / (2 * h)
        assert gradient[i, k] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_first_order_expansion_errs_by_the_square(operator, U):
    """Taylor test (as pymanopt does): the error of ``J + t <grad, X>`` falls with slope 2."""
    problem = Problem(operator, K)
    J, gradient = objective_and_gradient(problem, U)
    X = np.random.default_rng(2).standard_normal(U.shape)
    t = np.logspace(-4, -2, 9)
    error = [abs(objective(operator, U + s * X) - J - s * np.sum(gradient * X)) for s in t]
    slope = np.polyfit(np.log(t), np.log(error), 1)[0]
    assert 1.9 <= slope <= 2.2


def test_gradient_is_orthogonal_to_its_point(operator, U):
    _, gradient = objective_and_gradient(Problem(operator, K), U)
    assert np.abs(gradient).max() > 1e-3
    np.testing.assert_allclose(U.T @ gradient, 0, atol=1e-12 * np.abs(U).max() * np.abs(gradient).sum())


def test_objective_ignores_the_basis_and_is_bounded_below(operator, U):
    problem = Problem(operator, K)
    T = np.random.default_rng(3).standard_normal((K, K))
    J, _ = objective_and_gradient(problem, U)
    assert objective_and_gradient(problem, U @ T)[0] == pytest.approx(J, rel=1e-9)
    values, vectors = reference.smallest(operator, K)
    assert values.sum() <= J
    at_best, gradient = objective_and_gradient(problem, vectors)
    assert at_best == pytest.approx(values.sum(), abs=1e-10)
    np.testing.assert_allclose(gradient, 0, atol=1e-9)


# --- batches ----------------------------------------------------------------------------------------


def scattered(source, batch, U):
    """``A_S U`` as N x K, and ``U' A_S U``."""
    G, H = source.gradient(batch, U, source.low_rank.factors.T @ U, projected=True)
    full = np.zeros_like(U)
    full[batch.vertices] = rows_of(G, len(batch.vertices))
    return full, H


def upper_entries(graph):
    """Positions of the entries i < j: every edge once."""
    (block,) = graph.blocks
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(block.indptr))
    return np.flatnonzero(rows < block.indices)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_all_edges_once_are_the_operator(case, weighted, U):
    graph = reference.random_graph(N, np.random.default_rng(4), weighted=weighted)
    operator = operator_of(case, graph)
    source = BatchSource.of(operator)
    positions = upper_entries(graph)
    assert len(positions) == graph.n_edges
    expected = reference.dense_pencil(operator)[0] @ U
    G, H = scattered(source, source.at(np.random.default_rng(5).permutation(positions)), U)
    np.testing.assert_allclose(G, expected, atol=1e-12)
    np.testing.assert_allclose(H, U.T @ expected, atol=1e-10)


def test_batches_add_up(operator, U):
    """The gradient is linear in the batch: shares of rows and edges are spread, not repeated."""
    source = BatchSource.of(operator)
    parts = np.array_split(np.random.default_rng(6).permutation(upper_entries(operator.graph)), 5)
    total = sum(scattered(source, source.at(part), U)[0] for part in parts)
    np.testing.assert_allclose(total, operator @ U, atol=1e-12)


def assert_mean(draw, expected, n_draws):
    """The mean of many draws is the expectation: within five standard errors, and close at all."""
    total, squares = np.zeros_like(expected), np.zeros_like(expected)
    for _ in range(n_draws):
        G = draw()
        total += G
        squares += G**2
    mean = total / n_draws
    error = np.sqrt(np.maximum(squares / n_draws - mean**2, 0) / n_draws)
    assert (np.abs(mean - expected) <= 5 * error + 1e-12).all()
    assert la.norm(mean - expected) < 0.06 * la.norm(expected)


def test_random_edges_are_unbiased(operator, U):
    rng = np.random.default_rng(7)
    source = BatchSource.of(operator)
    odds = 50 / operator.graph.n_edges
    assert_mean(lambda: scattered(source, source.edges(50, rng), U)[0], odds * (operator @ U), 3000)


def test_random_blocks_are_unbiased(operator, U):
    rng = np.random.default_rng(8)
    source = BatchSource.of(operator)
    n_blocks = -(-source.n_entries // 16)
    odds = 2 * 4 / n_blocks  # 64 entries are four blocks; an edge is two entries
    assert_mean(lambda: scattered(source, source.blocks(64, rng), U)[0], odds * (operator @ U), 3000)


def test_random_nodes_are_unbiased_up_to_the_odds_of_an_edge(operator, U):
    """Both ends of an edge are among b of N nodes with probability (b/N)^2, up to 1/b."""
    rng = np.random.default_rng(9)
    source = BatchSource.of(operator)
    b = 30
    plain_laplacian = not operator.row_term.any() and operator.low_rank is None
    odds = b * (b - 1) / (N * (N - 1)) if plain_laplacian else (b / N) ** 2
    draws = [scattered(source, source.nodes(b, rng), U)[0] for _ in range(3000)]
    if plain_laplacian:
        assert_mean(iter(draws).__next__, odds * (operator @ U), 3000)
    else:
        expected = odds * (operator @ U)
        assert la.norm(np.mean(draws, axis=0) - expected) < 0.05 * la.norm(expected)


def test_kinds_of_batches_may_follow_one_another(operator, U):
    """Scratch arrays carry nothing over from one batch to the next, whatever the order."""
    mixed, fresh = BatchSource.of(operator), BatchSource.of(operator)
    for seed, kind in enumerate(["edges", "nodes", "blocks", "nodes", "edges"]):
        first = scattered(mixed, mixed.sampler(kind)(20, np.random.default_rng(seed)), U)[0]
        second = scattered(fresh, fresh.sampler(kind)(20, np.random.default_rng(seed)), U)[0]
        np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match="batch='stars': expected one of edges, blocks, nodes"):
        mixed.sampler("stars")


# --- the Gram matrix (erratum of Eq. 19) ------------------------------------------------------------


def test_gram_follows_the_rows_that_move(operator):
    """200 steps of the paper's update in float64: M and Y stay exact; the printed edge sum does not."""
    rng = np.random.default_rng(11)
    source = BatchSource.of(operator)
    b = source.metric[:, None]
    U = Problem(operator, K).first_guess(rng)
    M, Y = U.T @ (b * U), source.low_rank.factors.T @ U
    printed, gap = M.copy(), []
    for _ in range(200):
        batch = source.edges(30, rng)
        before = U.copy()
        inverse = la.inv(M)
        G, H = source.gradient(batch, U, Y, projected=True)
        P = inverse @ H @ inverse
        rates = np.full(len(batch.vertices), 0.02)
        dM, dY = source.move(batch, G, U, rates, small=(2 * inverse, P + P.T))
        M, Y = M + dM, Y + dY
        change = np.einsum("ia,ib->iab", b * U, U) - np.einsum("ia,ib->iab", b * before, before)
        times_met = np.diff(batch.groups[1])
        printed = printed + np.tensordot(times_met, change[batch.vertices], axes=1)
        untouched = np.setdiff1d(np.arange(N), batch.vertices)
        np.testing.assert_array_equal(U[untouched], before[untouched])
        gap.append(np.abs(printed - U.T @ (b * U)).max())
    np.testing.assert_allclose(M, U.T @ (b * U), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(Y, source.low_rank.factors.T @ U, atol=1e-10)
    assert max(gap) > 1e-2  # Eq. 19 as printed counts a vertex once per sampled edge


@pytest.mark.parametrize("optimizer", ["amsgrad", "sgd"])
def test_gram_of_the_solver_itself(operator, optimizer):
    """The solver's own M, in its own precision, without a refresh in between."""
    problem = Problem(operator, K)
    how = {
        "batch_size": 30,
        "gram_update": "unique",
        "optimizer": optimizer,
        "refresh": 10**6,
        "step_size": 1e-2,
        "max_iter": 200,
    }
    solver = make_solver("sgd-paper", **how)
    state = solver.init(problem, np.random.default_rng(12))
    while state.iteration < 200:
        state = solver.step(problem, state)
    assert not state.events
    exact = problem.gram(state.U, state.U)
    assert np.abs(exact - np.eye(K)).max() > 1e-3  # it moved
    np.testing.assert_allclose(state.M, exact, atol=1e-4 * np.abs(exact).max())
    low_rank = operator.low_rank
    if low_rank is not None:
        np.testing.assert_allclose(state.Y, low_rank.factors.T @ state.U, atol=1e-4)


def test_first_step_of_amsgrad_has_the_length_of_the_step(operator):
    """Adaptive steps forget the gradient's scale: every entry moves by ``step (1-b1) / sqrt(1-b2)``."""
    problem = Problem(operator, K)
    solver = make_solver("sgd-paper", batch_size=30, step_size=1e-3, beta1=0.9, beta2=0.99, max_iter=1)
    state = solver.init(problem, np.random.default_rng(13))
    before = state.U.copy()
    moved = np.abs(solver.step(problem, state).U - before)
    rows = moved.any(axis=1)
    assert 0 < rows.sum() <= 60
    length = 1e-3 * problem.row_unit * 0.1 / np.sqrt(0.01)  # in a metric vectors shrink, and steps with them
    np.testing.assert_allclose(moved[rows], length, rtol=1e-2)


def test_one_plain_step_is_the_restricted_gradient(operator):
    """Eq. 10: the rows of the batch move along ``2 (A_S U - B U M^-1 U'A_S U) M^-1``, no others."""
    problem = Problem(operator, K)
    solver = make_solver("sgd-paper", batch_size=30, optimizer="sgd", step_size=0.1)
    state = solver.init(problem, np.random.default_rng(14))
    U = state.U.astype(np.float64)
    batch = BatchSource.of(operator).edges(30, np.random.default_rng(15))
    state.draws = np.random.default_rng(15)
    G, H = scattered(BatchSource.of(operator), batch, U)
    B = reference.dense_pencil(operator)[1]
    inverse = la.inv(U.T @ B @ U)
    direction = 2 * (G - B @ U @ inverse @ (H + H.T) / 2) @ inverse
    expected = U.copy()
    expected[batch.vertices] -= 0.1 * problem.row_unit * direction[batch.vertices]
    np.testing.assert_allclose(solver.step(problem, state).U, expected, atol=1e-5)
