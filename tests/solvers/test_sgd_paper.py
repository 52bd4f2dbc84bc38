"""The paper's algorithm, every reading of it, beside an independent implementation in plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd import datasets
from spectrograd.metrics import nmi
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.settings import Settings
from spectrograd.solvers import Problem, Stopping, make_solver, solve
from spectrograd.solvers.minibatch import Deck

K = 5


def independent(operator, seed, printed, n_iterations=500, batch_size=4000, step=1e-3):
    """Eqs. 8-22 with AMSGrad, written from the paper: no code of ours but the operator's parts."""
    assert operator.metric is None
    rng, n = np.random.default_rng(seed), operator.n_nodes
    scale = sp.diags_array(np.ones(n) if operator.scale is None else operator.scale)
    W = sp.triu(scale @ operator.graph.matrix @ scale).tocoo()
    Z, a = operator.low_rank.factors, operator.low_rank.coefficients
    degrees = np.bincount(np.concatenate([W.row, W.col]), minlength=n)
    rest = operator.diagonal - np.asarray((W + W.T).sum(axis=1)).ravel()
    U = np.linalg.qr(rng.standard_normal((n, K)))[0]
    M, (m, v, most) = U.T @ U, np.zeros((3, n, K))
    for _ in range(n_iterations):
        e = rng.integers(0, W.nnz, batch_size)
        i, j = W.row[e], W.col[e]
        times = np.bincount(np.concatenate([i, j]), minlength=n)
        rows = np.flatnonzero(times)
        A_U = np.zeros_like(U)
        difference = W.data[e][:, None] * (U[i] - U[j])
        np.add.at(A_U, i, difference)
        np.add.at(A_U, j, -difference)
        share = (times[rows] / degrees[rows])[:, None]
        G = A_U[rows] + share * (rest[rows, None] * U[rows] - Z[rows] @ (a[:, None] * (Z.T @ U)))
        inverse, H = np.linalg.inv(M), U[rows].T @ G
        g = 2 * (G - U[rows] @ inverse @ (H + H.T) / 2) @ inverse
        m[rows] = 0.9 * m[rows] + 0.1 * g
        v[rows] = 0.999 * v[rows] + 0.001 * g**2
        most[rows] = np.maximum(most[rows], v[rows])
        moved = U[rows] - step * m[rows] / (np.sqrt(most[rows]) + 1e-12)
        weight = times[rows, None] if printed else 1
        M = M + moved.T @ (weight * moved) - U[rows].T @ (weight * U[rows])
        U[rows] = moved
    return np.linalg.qr(U)[0]


def labels_of(Q):
    from sklearn.cluster import KMeans

    return KMeans(K, n_init=3, random_state=0).fit_predict(Q / np.linalg.norm(Q, axis=1, keepdims=True))


@pytest.fixture(scope="module")
def merged():
    """Table 1's data, smaller."""
    data = datasets.make_multilayer_gmm(4000, 3, K, random_state=0)
    return merge(data.graph, K, Settings(seed=0)).operator, data.labels


@pytest.mark.parametrize("gram_update", ["printed", "unique"])
def test_scores_are_those_of_an_independent_implementation(merged, gram_update):
    operator, labels = merged
    solver = make_solver("sgd-paper", gram_update=gram_update, max_iter=300)
    ours = solve(Problem(operator, K), solver, seed=0, stopping=Stopping(tol=0)).Q
    theirs = independent(operator, 1, gram_update == "printed", n_iterations=300)
    assert nmi(labels, labels_of(ours)) == pytest.approx(nmi(labels, labels_of(theirs)), abs=0.02)


@pytest.mark.parametrize("n_components", [3, 9])  # in registers, and not
@pytest.mark.parametrize("optimizer", ["amsgrad", "sgd"])
def test_the_printed_update_counts_a_vertex_once_per_edge(n_components, optimizer):
    """So M leaves U'BU at once, while the unique one follows it."""
    operator = laplacian(reference.random_graph(200, np.random.default_rng(0)))
    problem, error = Problem(operator, n_components), {}
    for gram_update in ("printed", "unique"):
        how = {"gram_update": gram_update, "optimizer": optimizer, "refresh": 10**6, "step_size": 1e-2}
        solver = make_solver("sgd-paper", batch_size=100, max_iter=1, **how)
        state = solver.init(problem, np.random.default_rng(1))
        state = solver.step(problem, state)
        exact = problem.gram(state.U, state.U)
        error[gram_update] = np.abs(state.M - exact).max() / np.abs(exact - np.eye(n_components)).max()
    assert error["unique"] < 1e-2
    assert error["printed"] > 0.1


def test_a_deck_gives_every_number_before_any_comes_again():
    deck = Deck(np.random.default_rng(0))
    drawn = np.concatenate([deck.integers(0, 10, (2, 2)).ravel() for _ in range(5)])
    np.testing.assert_array_equal(np.sort(drawn[:10]), np.arange(10))
    np.testing.assert_array_equal(np.sort(drawn[10:]), np.arange(10))


@pytest.mark.parametrize("batch", ["edges", "nodes", "blocks"])
@pytest.mark.parametrize("n_components", [3, 9])
def test_batches_without_replacement(batch, n_components):
    graph = datasets.make_block_model(300, 3, random_state=0).graph
    solver = make_solver("sgd-paper", batch=batch, batch_size=150, replacement=False, step_size=2e-3)
    solution = solve(Problem(laplacian(graph), n_components), solver, seed=0, stopping=Stopping(100))
    assert solution.last.objective < 0.9 * solution.history[0].objective


def test_above_the_paper_s_size_it_names_sgd():
    events = []
    for n_nodes in (1000, 10_001):
        graph = datasets.make_block_model(n_nodes, 2, random_state=0).graph
        solver = make_solver("sgd-paper")
        events.append(solve(Problem(laplacian(graph), 2), solver, seed=0, stopping=Stopping(60)).last.events)
    assert "settings are those" not in " ".join(events[0])
    assert len(events[1]) == 1
    assert "10,000 nodes" in events[1][0]
    assert "'sgd'" in events[1][0]


def test_unknown_updates_are_refused():
    problem = Problem(laplacian(reference.random_graph(30, np.random.default_rng(0))), 2)
    with pytest.raises(ValueError, match="gram_update='magic': expected 'printed' or 'unique'"):
        solve(problem, make_solver("sgd-paper", gram_update="magic"), seed=0)
