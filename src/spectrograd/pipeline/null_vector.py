"""A null vector that is known of an operator: it enters Ritz pairs exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spectrograd.certificate.lanczos_probe import MeasuredRitz
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.subspace import Ritz, deflated_ritz, rayleigh_ritz
from spectrograd.operators.base import Operator
from spectrograd.solvers.base import Problem
from spectrograd.typing import Array

# What a null vector that takes the place of a column may differ from it, in squares.
MAX_NULL_DEVIATION = 1e-4


def normalize_null(operator: Operator, null: Array | None) -> Array | None:
    """A null vector, of length one in the metric."""
    if null is None:
        return None
    mass = 1.0 if operator.metric is None else operator.metric
    return np.asarray(null / np.sqrt(null @ (mass * null)))


def deflated_rayleigh_ritz(problem: Problem, Q: MultiVector, null: Array | None) -> Ritz:
    """Ritz pairs of the span of Q, in which a known null vector is exact; it stays the first of them."""
    engine = problem.engine
    if null is None:
        return rayleigh_ritz(engine, problem.engine_operator, Q)
    ritz = deflated_ritz(engine, problem.engine_operator, Q, engine.from_numpy(null[:, None].astype(Q.dtype)))
    rounded = np.abs(ritz.values) <= problem.operator.rounding(Q.dtype)
    return ritz._replace(values=np.where(rounded, np.maximum(ritz.values, 0.0), ritz.values))


def insert_null_vector(problem: Problem, known: MeasuredRitz, null: Array) -> MeasuredRitz:
    """Put a null vector in the place of the first column without a product; the others are made orthogonal.

    ``A (q - n n'Bq) = A q``, and the residual of what is left is that of q without its part along ``B n``:
    none grows but by the length that q loses. Not where the first column is another vector.
    """
    engine = problem.engine
    metric = problem.engine_operator.metric
    Q = known.ritz.Q
    unit = engine.from_numpy(null[:, None].astype(Q.dtype))
    across = engine.gram(unit, Q, metric)[0]
    lost = float(np.square(across[1:]).sum())
    if abs(across[0]) < 1 - MAX_NULL_DEVIATION or lost > MAX_NULL_DEVIATION:
        return known
    first = np.zeros(len(across))
    first[0] = 1.0
    kept = np.diag(1 - first)
    Q = engine.combine(Q, kept, unit, np.where(first > 0, 1.0, -across)[None])
    left = (1 - first) * known.residuals / np.sqrt(1 - lost)
    return replace(known, ritz=Ritz((1 - first) * known.ritz.values, Q, None), residuals=left)
