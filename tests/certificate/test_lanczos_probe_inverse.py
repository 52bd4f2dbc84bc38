"""The probe through a factorisation: what it rules out, what it finds, and with which odds."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.certificate.certificate import MAX_MISS_ODDS, needed_cut
from spectrograd.certificate.lanczos_probe import MAX_SOLVES, run_inverse_probe
from spectrograd.datasets import make_gaussian_mixture
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph
from spectrograd.linalg.subspace import Ritz
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers.base import Problem
from spectrograd.solvers.shift_invert import ShiftInvert

POLE = -0.01


def look(values, found, seed, *, metric=None, beyond=np.inf, residuals=0.0, **effort):
    """The probe of a diagonal pencil ``diag(values metric), diag(metric)`` whose unit vectors were found."""
    values = np.asarray(values, dtype=float)
    metric = np.ones(len(values)) if metric is None else metric
    Q = np.eye(len(values))[:, found] / np.sqrt(metric[found])
    return run_inverse_probe(
        LocalEngine(),
        lambda X: X / (values - POLE)[:, None],
        metric,
        Ritz(values[found], Q, Q),
        POLE,
        np.random.default_rng(seed),
        beyond=beyond,
        residuals=residuals,
        **effort,
    )


def spectrum(n, *low):
    """Values like those of a graph in the plane: the i-th is about i / 20."""
    return np.concatenate([low, np.linspace(0.5, 0.05 * n, n - len(low))])


@pytest.mark.parametrize("n", [300, 6000])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_few_solves_rule_out_a_miss(n, weighted):
    values = spectrum(n, 0.0, 0.1, 0.2)
    metric = np.random.default_rng(1).uniform(0.5, 2, n) if weighted else None
    seen = look(values, [0, 1, 2], 0, metric=metric, beyond=0.5)
    assert seen.odds_below(needed_cut(np.array([0.2]), seen.lowest, 0.0)) <= MAX_MISS_ODDS
    assert seen.lowest == 0.5
    assert seen.columns <= 8 * 5


@pytest.mark.parametrize("n", [300, 6000])
@pytest.mark.parametrize("found", [[0, 2], [1, 2]])
def test_what_was_missed_is_found(n, found):
    for seed in range(5):
        seen = look(spectrum(n, 0.0, 0.1, 0.2), found, seed, beyond=0.5)
        assert seen.lowest <= 0.2
        assert seen.odds_below(0.21) == 1


@pytest.mark.parametrize("n_vectors", [1, 2, 8])
@pytest.mark.parametrize("n_solves", [1, 2, 3])
def test_the_odds_are_a_bound(n_vectors, n_solves):
    """Where an eigenvector was missed, small odds must be as rare as they say."""
    effort = {"n_vectors": n_vectors, "most_solves": n_solves}
    values = np.concatenate([[0.0, 0.2], np.linspace(1, 9, 100)])
    odds = np.array([look(values, [0], seed, **effort).odds_below(0.2) for seed in range(600)])
    if n_solves > 1:
        assert np.mean(odds < 0.5) > 0.1  # some did look as if nothing was missed
    for level in (0.01, 0.03, 0.1, 0.3, 0.5):
        assert np.mean(odds <= level) <= level + 3 * np.sqrt(level / 600)


def test_no_odds_are_given_beyond_what_was_seen():
    seen = look(spectrum(300, 0.0, 0.1, 0.2), [0, 1, 2], 0, beyond=0.5)
    assert seen.odds_below(seen.lowest) == 1
    assert seen.odds_below(0.2) <= seen.odds_below(0.35) <= seen.odds_below(0.49)


def test_a_gap_too_small_to_see_is_given_up():
    seen = look(np.concatenate([[0.0, 0.2], np.linspace(0.2001, 9, 400)]), [0, 1], 0)
    assert seen.columns == 8 * MAX_SOLVES
    assert seen.odds_below(0.20001) > MAX_MISS_ODDS


@pytest.mark.parametrize("n", [4, 5, 9])
def test_a_space_smaller_than_the_probe_is_exhausted(n):
    seen = look(np.arange(n, dtype=float), [0], 0)
    assert 1 <= seen.lowest < n
    assert seen.odds_below(needed_cut(np.array([0.0]), seen.lowest, 0.0)) <= MAX_MISS_ODDS


@pytest.mark.parametrize("n", [1500, 20_000])
def test_shift_invert_certifies_by_it(n):
    """On a k-NN graph, small (SuperLU) and large (fronts), and with a tolerance as well."""
    points, _ = make_gaussian_mixture(n, 5, random_state=0)

    operator = laplacian(knn_graph(points, 10))
    for tol in ("auto", 1e-8):
        certificate = embed(operator, 5, Settings(solver="shift-invert", tol=tol, seed=0)).certificate
        assert certificate.converged
        assert 0 < certificate.columns <= 8 * MAX_SOLVES
        assert certificate.missed_probability <= MAX_MISS_ODDS


def test_where_factors_are_quick_eigenvalues_are_counted():
    """Roads: no random vector is needed."""
    side = np.arange(80 * 80).reshape(80, 80)

    rows = np.concatenate([side[:, 1:].ravel(), side[1:, ::9].ravel()])
    graph = Graph.from_edges(rows, np.concatenate([side[:, :-1].ravel(), side[:-1, ::9].ravel()]))
    result = embed(laplacian(graph), 4, Settings(solver="shift-invert", seed=0))
    assert result.certificate.converged
    assert result.certificate.columns == 0
    assert result.certificate.missed_probability == 0


def test_a_block_without_guards_has_no_evidence():
    points, _ = make_gaussian_mixture(800, 3, random_state=0)

    problem = Problem(laplacian(knn_graph(points, 8)), 3)
    solver = ShiftInvert(guard=0)
    assert solver.complement_bound(problem, solver.init(problem, np.random.default_rng(0))) is None
