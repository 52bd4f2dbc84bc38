"""Lanczos from one vector: where float32 ends, where it begins with the plan's basis, and when it stops."""

import numpy as np
import pytest

from spectrograd import datasets
from spectrograd.engines import LocalEngine
from spectrograd.linalg.spectral_shape import SHAPE_STEPS, spectral_shape
from spectrograd.linalg.subspace import rayleigh_ritz, residuals
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers.base import Problem
from spectrograd.solvers.lanczos import Lanczos, usual_basis_size


def problem(k=4):
    graph = datasets.make_block_model(1500, k, mean_degree=30, random_state=0).graph
    return Problem(laplacian(graph), k)


def test_a_basis_in_float64_keeps_the_ritz_vectors_and_one_direction():
    asked = problem()
    solver = Lanczos(block_size=1, angle=1e-2)
    state = solver.init(asked, np.random.default_rng(0))
    state = solver.step(asked, state)
    before = state.values[:4].copy()
    basis = solver._double_basis(asked, state, state.basis)
    assert basis.dtype == np.float64
    assert basis.front == 1  # rounding errors of float32 lie below what the angle needs
    np.testing.assert_allclose(np.diag(basis.T)[:4], before, atol=1e-4)
    # A Q = Q diag(theta) + front coupling holds but for the noise.
    engine = asked.engine
    Q = basis.vectors.columns(0, basis.done)
    AQ = engine.apply(basis.operator, Q)
    left = AQ - Q * np.diag(basis.T)[: basis.done]
    left -= basis.vectors.columns(basis.done, basis.filled) @ basis.T[basis.done : basis.filled, : basis.done]
    assert np.linalg.norm(left[:, :4]) <= 2 * state.noise + 1e-12
    assert (
        np.abs(basis.vectors.columns(0, basis.filled).T @ Q - np.eye(basis.filled, basis.done)).max() < 1e-8
    )


def test_lanczos_goes_on_with_the_basis_of_the_plan():
    asked = problem()
    shape = spectral_shape(LocalEngine(), asked.operator, limit=usual_basis_size(4, 1))
    begun = Problem(asked.operator, 4, basis=shape.basis)
    solver = Lanczos(block_size=1, angle=1e-2)
    state = solver.init(begun, np.random.default_rng(0))
    assert state.basis is shape.basis
    assert state.matvecs == SHAPE_STEPS  # its products are counted
    while not solver.terminate(begun, state):
        state = solver.step(begun, state)
    ritz = rayleigh_ritz(begun.engine, begun.engine_operator, solver.finish(begun, state))
    assert residuals(begun.engine, begun.engine_operator, ritz).max() < 1e-2


@pytest.mark.parametrize("seed", [1, 2])
def test_a_single_vector_stops_only_where_no_close_eigenvalues_are_to_come(seed):
    """With a gap of its own for every column it stopped while values of the bulk stood for missing ones."""
    graph = datasets.make_block_model(20_000, 16, degree_exponent=2.5, random_state=seed).graph
    result = embed(laplacian(graph), 16, Settings(seed=seed))
    assert result.certificate.converged
    assert [attempt.solver for attempt in result.attempts] == ["lanczos"]
