"""Automatic differentiation as a witness: J through torch's Cholesky factor against our closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg as la

import reference
from spectrograd.engines import make_engine
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import LowRank
from spectrograd.solvers import Problem
from spectrograd.solvers.gradient_descent import objective_and_gradient
from spectrograd.solvers.minibatch import BatchSource, rows_of

torch = pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")
N, K, RANK = 40, 4, 6
KINDS = ["random_walk", "symmetric", "unnormalized"]


def operator_of(kind, rank):
    rng = np.random.default_rng(0)
    operator = laplacian(reference.random_graph(N, rng), kind)
    if rank == 0:
        return operator
    Z = la.qr(rng.standard_normal((N, rank)), mode="economic")[0]
    return replace(operator, low_rank=LowRank(Z, rng.uniform(0.3, 1.5, rank)), lower=-1.5)


@pytest.fixture
def U():
    """Neither orthonormal nor orthogonal."""
    rng = np.random.default_rng(1)
    return rng.standard_normal((N, K)) @ rng.standard_normal((K, K))


def differentiated(A, B, U):
    """``J(U) = Tr((U R^-1)' A (U R^-1))`` with ``R'R = U'BU`` (Eqs. 7, 8), and what autograd says of it."""
    A, B, u = (torch.tensor(x) for x in (A, B, U))
    u.requires_grad_()
    R = torch.linalg.cholesky(u.T @ B @ u, upper=True)
    V = torch.linalg.solve_triangular(R, u, upper=True, left=False)
    J = torch.trace(V.T @ A @ V)
    J.backward()
    return J.item(), u.grad.numpy()


@pytest.mark.parametrize("engine", ["local", "torch:cpu"])
@pytest.mark.parametrize("rank", [0, RANK])
@pytest.mark.parametrize("kind", KINDS)
def test_the_full_gradient(kind, rank, engine, U):
    operator, engine = operator_of(kind, rank), make_engine(engine)
    J, gradient = objective_and_gradient(Problem(operator, K, engine), engine.from_numpy(U))
    expected, witness = differentiated(*reference.dense_pencil(operator), U)
    assert pytest.approx(expected, rel=1e-12) == J
    np.testing.assert_allclose(engine.to_numpy(gradient), witness, atol=1e-10 * np.abs(witness).max())


def batch_gradient(source, batch, U):
    """``2 A_S U M^-1 - B U (P + P')`` with ``P = M^-1 U'A_S U M^-1``, as the solvers take it."""
    G, H = source.gradient(batch, U, source.low_rank.factors.T @ U, projected=True)
    rows = np.zeros_like(U)
    rows[batch.vertices] = rows_of(G, len(batch.vertices))
    B = source.metric[:, None]
    inverse = la.inv(U.T @ (B * U))
    P = inverse @ H @ inverse
    return 2 * rows @ inverse - B * U @ (P + P.T)


def upper_entries(graph):
    """Positions of the entries i < j: every edge once; and both ends of each."""
    (block,) = graph.blocks
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(block.indptr))
    positions = np.flatnonzero(rows < block.indices)
    return positions, rows[positions], block.indices[positions], block.weights[positions]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_the_gradient_of_its_own_objective(kind, U):
    """``J_S`` has the batch's part of A (Eq. 15) and the whole of M, rows that no edge touches included."""
    operator = operator_of(kind, 0)
    source = BatchSource.of(operator)
    positions, heads, tails, weights = upper_entries(operator.graph)
    chosen = np.random.default_rng(2).permutation(len(positions))[:15]
    batch = source.at(positions[chosen])
    heads, tails, weights = heads[chosen], tails[chosen], weights[chosen]
    if operator.scale is not None:
        weights = weights * operator.scale[heads] * operator.scale[tails]
    part = reference.batch_laplacian(heads, tails, weights, N)
    part[batch.vertices, batch.vertices] += batch.shares * operator.row_term[batch.vertices]
    witness = differentiated(part, reference.dense_pencil(operator)[1], U)[1]
    np.testing.assert_allclose(batch_gradient(source, batch, U), witness, atol=1e-10 * np.abs(witness).max())


@pytest.mark.parametrize("rank", [0, RANK])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_add_up_to_the_gradient(kind, rank, U):
    """A low-rank part is spread over the edges by rows; all edges together give what autograd gives."""
    operator = operator_of(kind, rank)
    source = BatchSource.of(operator)
    positions = np.random.default_rng(3).permutation(upper_entries(operator.graph)[0])
    total = sum(batch_gradient(source, source.at(part), U) for part in np.array_split(positions, 5))
    witness = differentiated(*reference.dense_pencil(operator), U)[1]
    np.testing.assert_allclose(total, witness, atol=1e-9 * np.abs(witness).max())
