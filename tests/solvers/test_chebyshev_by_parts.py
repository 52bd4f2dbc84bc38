"""``chebyshev`` where memory is short: the subspace of the usual filter, in the memory that was planned."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from spectrograd import datasets, open_store, write_graph
from spectrograd.certificate.block_probe import PROBE_COLUMNS
from spectrograd.operators.laplacian import masked_laplacian
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.memory_estimate import streamed_bytes
from spectrograd.solvers import choose_variant, make_solver, solve
from spectrograd.solvers.base import Problem, filter_columns
from spectrograd.solvers.chebyshev_by_parts import (
    GUARD_COLUMNS,
    ChebyshevByParts,
    columns_by_parts,
    held_columns,
)
from spectrograd.solvers.chebyshev_few_passes import FewPassChebyshev

K = 12


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    graph = datasets.make_block_model(30_000, K, mean_degree=20, random_state=0).graph
    path = tmp_path_factory.mktemp("parts") / "graph.store"
    write_graph(path, graph)
    return open_store(path)


def problem_of(disk, max_columns=None, kind="symmetric", k=K):
    return Problem(masked_laplacian(disk, kind, 0.0, disk.isolated), k, max_columns=max_columns)


def test_the_variant_follows_the_memory(disk):
    chebyshev = make_solver("chebyshev")
    enough = filter_columns(K)
    assert isinstance(choose_variant(problem_of(disk), chebyshev), FewPassChebyshev)
    assert isinstance(choose_variant(problem_of(disk, enough), chebyshev), FewPassChebyshev)
    assert isinstance(choose_variant(problem_of(disk, enough - 1), chebyshev), ChebyshevByParts)


def test_as_many_columns_at_once_as_fit():
    held = held_columns(32)
    assert held == 32 + GUARD_COLUMNS + PROBE_COLUMNS
    assert columns_by_parts(32) == held + 8
    assert columns_by_parts(32, held + 15) == held + 14
    assert columns_by_parts(32, 10_000) == held + 64


@pytest.mark.parametrize("kind", ["symmetric", "random_walk", "unnormalized"])
def test_the_same_certified_subspace_within_the_least_memory(disk, kind):
    usual = embed(disk, Settings(n_components=K, solver="chebyshev", laplacian=kind, seed=0))
    least = streamed_bytes(disk, K, memory_limit=0)
    assert least < streamed_bytes(disk, K)
    found = embed(disk, Settings(n_components=K, laplacian=kind, seed=0, memory_limit=least))
    assert found.converged
    assert found.solver == "chebyshev"
    assert "memory is short" in found.reason
    sine = float(np.sin(subspace_angles(found.vectors, usual.vectors)[0]))
    assert sine <= found.certificate.angle_bound + usual.certificate.angle_bound
    np.testing.assert_allclose(found.eigenvalues, usual.eigenvalues, atol=2e-5 * usual.eigenvalues.max())


def test_no_more_columns_than_planned(disk):
    n_columns = columns_by_parts(K)
    problem = problem_of(disk, n_columns)
    problem.random_walk  # noqa: B018  its vectors are among those counted per node
    solver = choose_variant(problem, make_solver("chebyshev", angle=0.01))
    solve(problem, solver, seed=0)  # compiled, and pages of the blocks are mapped
    tracemalloc.start()
    try:
        solution = solve(problem, solver, seed=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert solution.stop_reason == "done"
    column = 4 * disk.n_nodes
    beside = 6 * column + 4_000_000  # vectors of one number per node, chunks of sums and blocks of edges
    assert n_columns * column * 0.8 < peak < n_columns * column + beside


def test_directions_that_a_filter_lost_become_random(disk):
    problem = problem_of(disk, columns_by_parts(K))
    solver = ChebyshevByParts(angle=0.01)
    state = solver.init(problem, np.random.default_rng(0))
    state.U[:, 3] = state.U[:, 2]
    solver._orthonormalize(problem, state)
    Q = np.hstack([state.U, state.guards])
    assert state.n_lost == 1
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-5)


def test_a_warm_start_takes_fewer_products(disk):
    cold = solve(problem_of(disk, columns_by_parts(K)), make_solver("chebyshev", angle=0.01), seed=0)
    problem = problem_of(disk, columns_by_parts(K))
    warm = Problem(problem.operator, K, problem.engine, np.asarray(cold.Q), max_columns=problem.max_columns)
    again = solve(warm, make_solver("chebyshev", angle=0.01), seed=1)
    assert again.history[-1].matvecs < cold.history[-1].matvecs


def test_the_null_vector_stays_out_of_the_probe(disk):
    """Rounding errors along it grow against all that is filtered, and would cover what was missed."""
    problem = problem_of(disk, columns_by_parts(K))
    solver = ChebyshevByParts(angle=0.01)
    state = solver.init(problem, np.random.default_rng(0))
    for _ in range(3):
        state = solver.step(problem, state)
    null = problem.operator.null_vector / np.linalg.norm(problem.operator.null_vector)
    lengths = np.linalg.norm(state.probe, axis=0)
    assert (np.abs(null @ state.probe) < 1e-5 * lengths).all()
    assert lengths.max() < 0.1 * np.sqrt(disk.n_nodes)
