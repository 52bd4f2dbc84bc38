"""Hierarchies of Galerkin operators and the cycle on them, against dense matrices."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph
from spectrograd.linalg import multigrid
from spectrograd.linalg.multigrid import SMOOTHER, Cycle, build, coarsen, shrinkage
from spectrograd.linalg.subspace import Coordinates
from spectrograd.operators.laplacian import laplacian, regularized_laplacian

ENGINE = LocalEngine()


def grid(side, weighted=True):
    line = sp.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1], shape=(side, side))
    W = sp.csr_array(sp.kron(line, sp.eye_array(side)) + sp.kron(sp.eye_array(side), line))
    if weighted:
        upper = sp.triu(W).tocsr()
        upper.data = np.random.default_rng(0).uniform(0.1, 5, upper.nnz)
        W = sp.csr_array(upper + upper.T)
    return Graph.from_matrix(W)


def walk(graph, tau=0.0):
    operator = regularized_laplacian(graph, "random_walk", tau) if tau else laplacian(graph)
    return Coordinates.random_walk(ENGINE, operator).operator


def membership(part):
    """The prolongation as a dense matrix."""
    return np.eye(int(part.max()) + 1)[part]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_coarse_operators_are_galerkin_products(weighted, tau):
    fine = walk(grid(12, weighted), tau)
    level, coarse = coarsen(fine)
    P = membership(level.part)
    (A, B), (A2, B2) = (reference.dense_pencil(operator) for operator in (fine, coarse))
    assert np.allclose(A2, P.T @ A @ P)
    assert np.allclose(B2, P.T @ B @ P)
    assert 144 / 3 <= coarse.n_nodes <= 144 / 2 + 10  # pairs and threes
    assert np.bincount(level.part).max() <= 3
    X = np.random.default_rng(0).standard_normal((144, 2))
    scale = np.arange(1.0, 145)
    assert np.allclose(level.restrict(X), P.T @ X)
    assert np.allclose(level.restrict(X, scale), P.T @ (scale[:, None] * X))
    C = np.random.default_rng(1).standard_normal((coarse.n_nodes, 2))
    assert np.allclose(level.prolong(C), P @ C)
    Y = X.copy()
    level.add_prolonged(C, Y)
    assert np.allclose(Y, X + P @ C)


def test_two_matchings_make_a_level_and_coarsening_ends():
    levels = build(walk(grid(40)))
    sizes = [level.operator.n_nodes for level in levels]
    assert sizes[0] == 1600
    assert sizes[-1] <= multigrid.COARSEST_NODES < sizes[-2]
    assert all(fine / 9 <= coarse <= fine / 3 for fine, coarse in pairwise(sizes))
    assert levels[-1].part is None
    fine, coarse = (reference.dense_pencil(level.operator)[0] for level in levels[:2])
    P = membership(levels[0].part)
    assert np.allclose(coarse, P.T @ fine @ P)
    assert len(build(walk(grid(15)))) == 1


def test_what_does_not_shrink_is_left():
    """The rays of a star match nobody but the hub; an expander does not get sparser."""
    star = Graph.from_edges(np.zeros(999, int), np.arange(1, 1000))
    assert len(build(walk(star))) == 1
    random = make_block_model(6000, 2, mean_degree=24, mixing=0.5, random_state=0).graph
    levels = build(walk(random), coarsest=20)
    assert len(levels) == 2
    assert levels[1].operator.graph.n_entries > 0.8 * random.n_entries


def test_the_smoother_is_small_on_its_interval():
    c0, c1 = SMOOTHER
    x = np.linspace(0.25, 2, 400)
    values = 1 - x * (c0 + c1 * x)
    assert abs(values).max() == pytest.approx(1 / (2 * (2.25 / 1.75) ** 2 - 1))
    assert (abs(values) == pytest.approx(abs(values).max(), rel=1e-3)) or values.min() < 0 < values.max()


def test_shrinkage_is_the_share_of_entries_that_stay():
    fine = walk(grid(30))
    _, coarse = coarsen(fine)
    assert shrinkage(fine) == pytest.approx(coarse.graph.n_entries / fine.graph.n_entries, rel=0.02)


def test_cycles_reduce_errors_in_the_norm_of_the_operator_and_k_cycles_more():
    operator = walk(grid(40))
    A, _ = reference.dense_pencil(operator)
    levels = build(operator, coarsest=20)
    assert len(levels) > 3
    start = np.random.default_rng(0).standard_normal((1600, 2))
    rates = {}
    for gamma in (1, 2):
        cycle, error = Cycle(ENGINE, levels, gamma=gamma), start - start.mean(axis=0)
        sizes = []
        for _ in range(9):
            sizes.append(np.sqrt(np.einsum("ij,ij->j", error, A @ error)))
            error -= cycle(A @ error)
        rates[gamma] = (sizes[-1] / sizes[-2]).max()
    assert rates[1] < 0.85
    assert rates[2] < 0.95 * rates[1]


def test_a_cycle_does_not_depend_on_the_size_of_its_columns():
    operator = walk(grid(40))
    cycle = Cycle(ENGINE, build(operator))
    R = np.random.default_rng(0).standard_normal((1600, 2))
    once = cycle(R)
    assert np.allclose(cycle(R * [1e-200, 1e200]), once * [1e-200, 1e200], rtol=1e-4)
    assert np.array_equal(cycle(np.zeros((1600, 1))), np.zeros((1600, 1)))
    assert once.dtype == np.float64


def test_the_coarsest_level_is_inverted_and_a_large_one_smoothed(monkeypatch):
    operator = walk(grid(15))
    levels = build(operator)
    A, _ = reference.dense_pencil(operator)
    X = np.random.default_rng(0).standard_normal((225, 1))
    X -= X.mean()
    found = Cycle(ENGINE, levels)(A @ X)
    assert np.allclose(found - found.mean(), X, atol=0.05)  # float32 beside the floor of the null vector
    monkeypatch.setattr(multigrid, "MAX_DENSE_NODES", 100)
    smoothed = Cycle(ENGINE, levels)
    assert smoothed.inverse is None
    c0, c1 = SMOOTHER
    J = A / np.diag(A)[:, None]
    R = A @ X
    assert np.allclose(smoothed(R), (c0 * np.eye(225) + c1 * J) @ (R / np.diag(A)[:, None]), atol=1e-4)
    assert smoothed.columns == 1


def test_products_are_counted_in_units_of_the_finest_level():
    levels = build(walk(grid(40)))
    assert len(levels) == 2
    cycle = Cycle(ENGINE, levels, gamma=1)
    cycle(np.ones((1600, 3)))
    assert cycle.columns == 12  # four products of three columns; the dense inverse counts nothing
