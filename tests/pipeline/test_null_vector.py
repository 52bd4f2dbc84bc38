"""Ritz pairs as the certificate measures them: the solver's own by one product, else a Rayleigh-Ritz."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spectrograd.datasets import make_block_model
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import null_vector
from spectrograd.pipeline.null_vector import measure_pairs, normalize_null
from spectrograd.solvers import Problem, make_solver, solve
from spectrograd.solvers.settings import SolverSettings

K = 4


@pytest.fixture(scope="module")
def solved():
    problem = Problem(laplacian(make_block_model(600, K, mean_degree=14, random_state=1).graph), K)
    return problem, solve(problem, make_solver("lanczos", block_size=1, angle=0.01), seed=0)


def measured(problem, solution):
    null = normalize_null(problem.operator, problem.operator.null_vector)
    return measure_pairs(problem, solution, SolverSettings(), null)


def test_pairs_in_float64_need_no_rayleigh_ritz(solved, monkeypatch):
    problem, solution = solved
    monkeypatch.setattr(null_vector, "deflated_rayleigh_ritz", None)
    ritz, residuals, rounding, guards = measured(problem, solution)
    A, d = problem.operator.to_dense(), problem.operator.metric
    b = np.ones(len(A)) if d is None else d
    R = A @ ritz.Q - b[:, None] * ritz.Q * ritz.values
    assert residuals == pytest.approx(np.sqrt((R**2 / b[:, None]).sum(axis=0)) + rounding, abs=1e-13)
    assert np.abs(ritz.Q.T @ (b[:, None] * ritz.Q) - np.eye(K)).max() < 1e-11
    assert ritz.values[0] == 0
    assert residuals[0] < 1e-12
    assert guards is None or guards.is_measured


@pytest.mark.parametrize("fault", ["rotated", "longer", "without the null vector"])
def test_pairs_that_are_not_as_they_should_be_go_through_a_rayleigh_ritz(solved, fault):
    problem, solution = solved
    pairs = solution.evidence.pairs
    Q = pairs.Q.copy()
    if fault == "rotated":  # of the same span, but mixed
        Q = Q @ np.linalg.qr(np.random.default_rng(0).standard_normal((K, K)))[0]
    elif fault == "longer":
        Q[:, 2] *= 1.001
    else:
        Q[:, 0] = Q[:, 1]
    evidence = replace(solution.evidence, pairs=pairs._replace(Q=Q))
    ritz, residuals, _, _ = measured(problem, replace(solution, evidence=evidence))
    expected, right, _, _ = measured(problem, replace(solution, evidence=replace(evidence, pairs=None)))
    assert ritz.values == pytest.approx(expected.values, abs=1e-13)
    assert residuals == pytest.approx(right, abs=1e-12)
