"""Tall-and-skinny linear algebra on top of an engine: orthonormal bases and Rayleigh-Ritz."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine, Tall
from spectrograd.engines.random_rows import new_seed
from spectrograd.operators.protocol import Operator

Array = NDArray[Any]
NEARLY = 1e-2  # orthonormal: a single round leaves nothing but rounding errors


class Orthonormal(NamedTuple):
    """A basis with ``Q' B Q = I``, and how many directions had to be replaced by random ones."""

    Q: Tall
    repaired: int


class Ritz(NamedTuple):
    """Ritz pairs of a subspace in ascending order, with ``A Q`` for whoever needs residuals."""

    values: Array
    Q: Tall
    AQ: Tall


def orthonormalize(
    engine: Engine, U: Tall, metric: Tall | None, rng: np.random.Generator | None = None
) -> Orthonormal:
    """Cholesky QR, twice unless U was nearly orthonormal; lost directions become random ones, and count."""
    n, k = U.shape
    if k > n:  # else lost directions would be replaced without end
        raise ValueError(f"{k} vectors of length {n} cannot be orthogonal: ask for fewer")
    repaired = 0
    for _ in range(2):
        M = engine.gram(U, U, metric)
        factor, lost = inverse_factor(M)
        U = engine.combine(U, factor)
        if np.abs(M - np.eye(len(M))).max() < NEARLY:
            break
        if lost:
            rng = np.random.default_rng(0) if rng is None else rng
            fresh = engine.random(U.shape[0], lost, new_seed(rng), U.dtype)
            if U.shape[1]:
                fresh = engine.combine(fresh, np.eye(lost), U, -engine.gram(U, fresh, metric))
            U = engine.stack(U, fresh)
            repaired += lost
    if repaired:  # the fresh columns need their own two rounds
        return Orthonormal(orthonormalize(engine, U, metric, rng).Q, repaired)
    return Orthonormal(U, repaired)


def inverse_factor(M: Array, least: float = 1e-12) -> tuple[Array, int]:
    """``F`` with ``F' M F = I`` on the numerical range of M, and the number of lost directions.

    Lost are those whose squares are below ``least`` of the largest, all columns being of one length.
    """
    if not np.isfinite(M).all():
        raise FloatingPointError("the vectors are too long for a Gram matrix")
    size = np.diag(M)
    columns = np.sqrt(np.where(size > 1e-60, size, 1))  # a column of zeros stays one, and is lost
    scaled = M / np.outer(columns, columns)  # columns first: a badly scaled Gram fails needlessly
    try:
        R = la.cholesky(scaled)
        if np.abs(np.diag(R)).min() > least**0.5:
            return la.solve_triangular(R, np.eye(len(M))) / columns[:, None], 0
    except la.LinAlgError:
        pass
    values, rotation = la.eigh(scaled)
    kept = values > least * values[-1]
    return (rotation[:, kept] / np.sqrt(values[kept])) / columns[:, None], int((~kept).sum())


def rayleigh_ritz(engine: Engine, operator: Operator, Q: Tall) -> Ritz:
    """Rotate an orthonormal basis to Ritz vectors: one pass and a small eigenproblem."""
    AQ = engine.apply(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    values, rotation = la.eigh((H + H.T) / 2)
    return Ritz(values, engine.combine(Q, rotation), engine.turned(AQ, rotation))


def deflated_ritz(engine: Engine, operator: Operator, Q: Tall, null: Tall) -> Ritz:
    """As :func:`rayleigh_ritz`, of a basis in which a known null vector takes the place of its approximation.

    ``Q`` is turned such that its first column is the projection of the null vector (N x 1, of unit length in
    the metric), which is replaced by the vector itself; the other columns are orthogonal to it. So
    K - 1 vectors are left, of which alone the Ritz vectors are taken: the first column is
    exact, and its value zero. One pass.
    """
    turn = la.qr(engine.gram(Q, null, operator.metric))[0]
    Q = null if len(turn) == 1 else engine.stack(null, engine.combine(Q, turn[:, 1:]))
    AQ = engine.apply(operator, Q)
    H = engine.gram(Q, AQ, None, symmetric=True)
    values, rotation = la.eigh((H + H.T)[1:, 1:] / 2) if len(H) > 1 else (np.empty(0), np.empty((0, 0)))
    turn = la.block_diag(np.eye(1), rotation)
    return Ritz(np.append(0.0, values), engine.combine(Q, turn), engine.turned(AQ, turn))


def residuals(engine: Engine, operator: Operator, ritz: Ritz) -> Array:
    """``|A q - theta B q|`` per vector in the norm of ``B^-1``: the natural one of the pencil."""
    return engine.residual(operator, ritz.Q, ritz.AQ, ritz.values)


def orthogonality_error(engine: Engine, operator: Operator, Q: Tall, n_columns: int | None = None) -> float:
    """Largest entry of ``|Q' B Q - I|``, for all or the first columns."""
    M = engine.gram(Q, Q, operator.metric)[:n_columns, :n_columns]
    if not np.isfinite(M).all():
        raise FloatingPointError("the vectors are not finite, or too long for a Gram matrix")
    return float(np.abs(M - np.eye(len(M))).max())
