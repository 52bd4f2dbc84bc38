"""Rayleigh-Ritz by parts of the columns: the pairs of the whole, and bounds on their residuals."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import RefusingEngine

from spectrograd import datasets
from spectrograd.engines import LocalEngine
from spectrograd.linalg.projection_by_parts import parts_of, project_by_parts, replace_columns
from spectrograd.linalg.subspace import rayleigh_ritz, residuals
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers.base import Problem

KINDS = ("symmetric", "random_walk", "unnormalized")


def problem_and_basis(kind, engine, k=7):
    graph = datasets.make_block_model(700, 4, random_state=0).graph
    problem = Problem(laplacian(graph, kind), k, engine)
    start = engine.random(graph.n_nodes, k, 0, np.float64)
    return problem, problem.orthonormalize(problem.apply(problem.orthonormalize(start).Q)).Q


def by_parts(problem, blocks, n_columns):
    walk = problem.random_walk
    return project_by_parts(problem.engine, walk, problem.engine_operator.metric, blocks, n_columns)


@pytest.mark.parametrize("n_columns", [2, 4, 7])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [LocalEngine, RefusingEngine])
def test_bounds_hold_and_are_the_residuals_of_ritz_vectors(kind, n_columns, make):
    engine = make()
    problem, Q = problem_and_basis(kind, engine)
    whole = rayleigh_ritz(engine, problem.engine_operator, Q)
    expected = residuals(engine, problem.engine_operator, whole)
    # 1. any basis: values of the whole, bounds above the residuals
    projection = by_parts(problem, (Q,), n_columns)
    values, Y = projection.ritz()
    np.testing.assert_allclose(values, whole.values, rtol=1e-10, atol=1e-12)
    bounds = projection.residuals(values, Y)
    assert (bounds >= expected * (1 - 1e-9)).all()
    assert (bounds <= 1.5 * expected * np.sqrt(len(projection.spans)) + 1e-12).all()
    # 2. Ritz vectors: the residuals themselves
    projection = by_parts(problem, (whole.Q,), n_columns)
    again, Y = projection.ritz()
    np.testing.assert_allclose(projection.residuals(again, Y), expected, rtol=1e-6, atol=1e-12)


def test_blocks_are_projected_as_their_columns_side_by_side():
    engine = LocalEngine()
    problem, Q = problem_and_basis("symmetric", engine)
    blocks = (engine.columns(Q, slice(5)), engine.columns(Q, slice(5, None)))
    split = by_parts(problem, blocks, 3)
    np.testing.assert_allclose(split.H, by_parts(problem, (Q,), 7).H, atol=1e-12)
    assert [span.stop - span.start for span in split.spans] == [2, 3, 2]


def test_a_null_vector_stays_exact():
    engine = LocalEngine()
    problem, Q = problem_and_basis("symmetric", engine)
    null = problem.operator.null_vector / np.linalg.norm(problem.operator.null_vector)
    Q[:, 0] = null
    Q = problem.orthonormalize(Q).Q
    values, Y = by_parts(problem, (Q,), 3).ritz(n_exact=1)
    assert values[0] == 0
    np.testing.assert_allclose(np.abs(Q @ Y)[:, 0], null, atol=1e-12)


def test_parts_are_nearly_equal_and_columns_are_replaced():
    assert [part.stop - part.start for part in parts_of(32, 7)] == [6, 6, 7, 6, 7]
    X = np.arange(12.0).reshape(3, 4)
    found = replace_columns(LocalEngine(), X.copy(), slice(1, 3), -np.ones((3, 2)))
    np.testing.assert_array_equal(found, np.column_stack([X[:, 0], -np.ones((3, 2)), X[:, 3]]))
