"""The probe for missed eigenvectors: its recurrence, its odds, and guard vectors as its help."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrograd.certificate.certificate import MAX_MISS_ODDS, needed_cut
from spectrograd.certificate.lanczos_probe import Guards, LanczosProbeEvidence, Recurrence, run_lanczos_probe
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph
from spectrograd.linalg.subspace import Ritz, residuals
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import SparseOperator

ENGINE = LocalEngine()


def diagonal_operator(values):
    """An operator with these eigenvalues and unit vectors, and hardly any edges."""
    n = len(values)
    return SparseOperator(Graph.from_edges([0], [1], [1e-9], n_nodes=n), np.asarray(values), upper=2.0)


def coordinate_ritz(operator, found):
    """Unit vectors as Ritz vectors of a diagonal operator."""
    Q = np.eye(operator.n_nodes)[:, found]
    return Ritz(operator.diagonal[found], Q, operator @ Q)


def lanczos(values, x, n_steps):
    """The recurrence in float64 with full reorthogonalisation, and its vectors."""
    q, recurrence = [x / np.linalg.norm(x)], Recurrence()
    for _ in range(n_steps):
        w = values * q[-1]
        alpha = float(q[-1] @ w)
        for _ in range(2):
            w = w - np.array(q).T @ (np.array(q) @ w)
        recurrence = recurrence.extend(alpha, float(np.linalg.norm(w)))
        q.append(w / np.linalg.norm(w))
    return recurrence, np.array(q)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_the_coordinates_of_an_eigenvector_follow_the_recurrence(seed, n_steps):
    """Their squares are p_i(t)^2 times the first one, and sum to one at most."""
    rng = np.random.default_rng(seed)
    values = np.sort(2 * rng.random(60))
    recurrence, q = lanczos(values, rng.standard_normal(60), n_steps)
    for v in (0, 7, 59):
        coordinates = q[:, v]
        total, rate = recurrence.log_sum(float(values[v]))
        assert math.exp(total) == pytest.approx((coordinates**2).sum() / coordinates[0] ** 2, rel=1e-6)
        assert rate == pytest.approx(math.log(abs(coordinates[-1] / coordinates[-2])), abs=1e-5)
    J = np.diag(recurrence.alphas) + np.diag(recurrence.betas[:-1], 1) + np.diag(recurrence.betas[:-1], -1)
    lowest = np.linalg.eigvalsh(J)[0]
    assert recurrence.lowest == pytest.approx(lowest)
    below = [recurrence.log_sum(lowest - distance)[0] for distance in (0.3, 0.2, 0.1, 1e-3)]
    assert below == sorted(below, reverse=True)  # what holds at tau holds below it


def test_a_sum_beyond_all_numbers_is_cut_short():
    recurrence = Recurrence((1.0,) * 400, (1e-2,) * 400)
    assert 600 < recurrence.log_sum(0.0)[0] < math.inf


def test_the_odds_are_a_bound():
    """Where an eigenvector was missed, small odds must be as rare as they say."""
    rng = np.random.default_rng(0)
    values = np.concatenate([[0.2], np.linspace(1.0, 2.0, 300)])
    odds = []
    for _ in range(2000):
        x = rng.standard_normal(len(values))
        recurrence, _ = lanczos(values, x, 3)
        seen = LanczosProbeEvidence(min(1.0, recurrence.lowest), 3, None, recurrence, float(x @ x))
        odds.append(seen.odds_below(0.2))
    assert np.mean(np.array(odds) < 0.4) > 0.05  # some starts did look as if nothing was missed
    for level in (0.01, 0.03, 0.1, 0.3):
        assert np.mean(np.array(odds) <= level) <= level + 0.01


@pytest.mark.parametrize("n", [3000, 6000])
def test_what_was_missed_is_found_and_what_was_not_is_certified(n):
    values = np.concatenate([[0.0, 0.1, 0.2], np.linspace(0.5, 1.5, n - 3)])
    operator = diagonal_operator(values)
    good = run_lanczos_probe(ENGINE, operator, coordinate_ritz(operator, [0, 1, 2]), np.random.default_rng(0))
    assert good.odds_below(needed_cut(np.array([0.2]), good.lowest, 0.0)) <= MAX_MISS_ODDS
    assert 0.5 <= good.lowest < 0.6
    for seed in range(5):
        skipped = coordinate_ritz(operator, [0, 2])
        seen = run_lanczos_probe(ENGINE, operator, skipped, np.random.default_rng(seed), beyond=0.5)
        assert seen.lowest <= 0.2


def test_found_directions_do_not_come_back():
    """Hundreds of steps with a tiny gap: rounding errors along zero would grow beyond all bounds."""
    values = np.concatenate([[0.0, 0.2], np.linspace(0.203, 1.9, 5000)])
    operator = diagonal_operator(values)
    seen = run_lanczos_probe(ENGINE, operator, coordinate_ritz(operator, [0, 1]), np.random.default_rng(0))
    assert seen.columns > 60
    assert seen.lowest > 0.2029
    assert seen.odds_below(needed_cut(np.array([0.2]), seen.lowest, 0.0)) <= MAX_MISS_ODDS


def test_a_guess_that_is_no_gap_is_not_believed():
    operator = diagonal_operator(np.concatenate([[0.0, 0.1], np.linspace(0.5, 1.5, 3000)]))
    ritz = coordinate_ritz(operator, [0, 1])
    seen = run_lanczos_probe(ENGINE, operator, ritz, np.random.default_rng(0), beyond=0.1)
    assert seen.lowest >= 0.5


@pytest.mark.parametrize("n", [4, 5, 9])
def test_a_graph_smaller_than_the_probe_is_exhausted(n):
    """On a complete graph two steps know all there is."""
    i, j = np.triu_indices(n, 1)
    operator = laplacian(Graph.from_edges(i, j, n_nodes=n))
    Q = np.full((n, 1), 1 / math.sqrt(operator.metric.sum()))
    seen = run_lanczos_probe(ENGINE, operator, Ritz(np.zeros(1), Q, operator @ Q), np.random.default_rng(0))
    assert seen.lowest == pytest.approx(n / (n - 1), abs=1e-5)
    assert seen.odds_below(0.5) <= MAX_MISS_ODDS
    assert seen.columns <= 2


def test_the_probe_does_not_depend_on_the_form_of_the_laplacian():
    graph = make_block_model(5000, 3, mean_degree=15, random_state=0).graph
    lowest = []
    for kind in ("random_walk", "symmetric"):
        operator = laplacian(graph, kind)
        u = np.ones((5000, 1)) if kind == "random_walk" else np.sqrt(graph.degrees)[:, None]
        Q = u / np.sqrt(ENGINE.gram(u, u, operator.metric))
        ritz = Ritz(np.zeros(1), Q, operator @ Q)
        lowest.append(run_lanczos_probe(ENGINE, operator, ritz, np.random.default_rng(0)).lowest)
    assert lowest[0] == pytest.approx(lowest[1], rel=1e-3)


# --- guard vectors ------------------------------------------------------------------------------------


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
    recurrence = Recurrence((1.0,) * 8, (0.3,) * 8)
    odds = [
        LanczosProbeEvidence(0.5, 8, None, recurrence, 1.0, 0.5, leak).odds_below(0.3)
        for leak in (0.0, 0.1, 0.3)
    ]
    assert odds[0] < odds[1] < odds[2] == 1


def spread_spectrum(n=3000):
    """Close neighbours at the K-th place, far ones after it: where guard vectors pay."""
    low = [0.0, 0.02, 0.04, 0.06, 0.062, 0.1, 0.12, 0.2]
    return diagonal_operator(np.concatenate([low, np.linspace(0.3, 1.5, n - len(low))]))


def guards_after(operator, found, n_guards):
    n = operator.n_nodes
    G = np.eye(n)[:, found : found + n_guards]
    values = np.diag(G.T @ (operator @ G))
    nothing = np.zeros(n_guards)
    return Guards(G, values, nothing)


def test_guards_make_the_probe_shorter_and_miss_nothing():
    operator = spread_spectrum()
    ritz = coordinate_ritz(operator, [0, 1, 2, 3])
    assert residuals(ENGINE, operator, ritz).max() < 1e-6
    tau, columns = needed_cut(np.array([0.06]), 0.062, 0.0), np.zeros(2)
    for seed in range(5):
        looked = [
            run_lanczos_probe(
                ENGINE, operator, ritz, np.random.default_rng(seed), beyond=0.062, guards=guards
            )
            for guards in (None, guards_after(operator, 4, 3))
        ]
        assert all(seen.odds_below(tau) <= MAX_MISS_ODDS for seen in looked)
        columns += [seen.columns for seen in looked]
    assert columns[1] < 0.55 * columns[0]
    skipped, rng = coordinate_ritz(operator, [0, 1, 3]), np.random.default_rng(0)
    seen = run_lanczos_probe(
        ENGINE, operator, skipped, rng, beyond=0.062, guards=guards_after(operator, 4, 3)
    )
    assert seen.lowest <= 0.06  # the one at 0.04


def test_the_lowest_ritz_value_of_any_number_of_steps():
    rng = np.random.default_rng(0)
    recurrence = Recurrence()
    for n in range(1, 9):
        recurrence = recurrence.extend(float(rng.uniform()), float(rng.uniform(0.1, 1)))
        beside = np.diag(recurrence.betas[: n - 1], 1)
        T = np.diag(recurrence.alphas) + beside + beside.T
        assert recurrence.lowest == pytest.approx(np.linalg.eigvalsh(T)[0], abs=1e-14)
