"""Ritz pairs of a solution as the certificate measures them; a null vector that is known enters exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg as la

from spectrograd.certificate.lanczos_probe import Guards, MeasuredRitz, select_accurate
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.projection_by_parts import project_by_parts
from spectrograd.linalg.subspace import Ritz, deflated_ritz, orthogonality_error, rayleigh_ritz, residuals
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.memory_estimate import columns_of_certificate, doubles_fit
from spectrograd.solvers.base import Problem
from spectrograd.solvers.loop import Solution
from spectrograd.solvers.settings import SolverSettings
from spectrograd.typing import Array

# What a null vector that takes the place of a column may differ from it, in squares.
MAX_NULL_DEVIATION = 1e-4
MAX_OVERLAP = 1e-11  # of unit vectors that pass for orthogonal: far below any angle that is asked for


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


def measure_pairs(
    problem: Problem, solution: Solution, settings: SolverSettings, null: Array | None
) -> tuple[Ritz, Array, float, Guards | None]:
    """Ritz pairs, their residuals with rounding added, that rounding, and the guards.

    The pairs are those of the solver where they are in float64, else of a Rayleigh-Ritz in float64.
    """
    engine = problem.engine
    operator = problem.operator
    evidence = solution.evidence
    known = (
        None if evidence.pairs is None else _measure_own_pairs(problem, evidence.pairs, evidence.guards, null)
    )
    if known is not None:
        rounding = operator.rounding(np.float64)
        return known[0], known[1] + rounding, rounding, known[2]
    Q = solution.Q
    at_once = columns_of_certificate(problem)
    if at_once is not None and Q.dtype != np.float64 and isinstance(settings.tol, str):
        ritz, measured = _measure_by_parts(problem, Q, null, at_once)
        rounding = problem.sparse.rounding(Q.dtype, blocked=True)
        return ritz, measured + rounding, rounding, evidence.guards
    if Q.dtype != np.float64 and not _float32_suffices(problem, settings):
        Q = problem.orthonormalize(engine.astype(Q, np.float64)).Q
    ritz = deflated_rayleigh_ritz(problem, Q, null)
    del Q
    rounding = operator.rounding(ritz.Q.dtype)
    if ritz.Q.dtype != np.float64:
        rounding = problem.sparse.rounding(ritz.Q.dtype, blocked=True)
    return ritz, residuals(engine, problem.engine_operator, ritz) + rounding, rounding, evidence.guards


def _measure_by_parts(
    problem: Problem, Q: MultiVector, null: Array | None, n_columns: int
) -> tuple[Ritz, Array]:
    """Ritz pairs and bounds on their residuals where memory is short; may mutate Q."""
    engine = problem.engine
    metric = problem.engine_operator.metric
    # 1. the null vector in place of its approximation, as in ``deflated_ritz``
    if null is not None:
        unit = engine.from_numpy(null[:, None].astype(Q.dtype))
        rotation = la.qr(engine.gram(Q, unit, metric))[0]
        rest = np.diag(np.arange(len(rotation)) > 0).astype(float)
        Q = engine.combine_inplace(Q, rotation @ rest, unit, np.eye(1, len(rotation)))
    # 2. Rayleigh-Ritz, some columns at a time
    projection = project_by_parts(engine, problem.random_walk, metric, (Q,), n_columns)
    values, rotation = projection.ritz(n_exact=0 if null is None else 1)
    measured = projection.residuals(values, rotation)
    return Ritz(values, engine.combine_inplace(Q, rotation), None), measured


def _float32_suffices(problem: Problem, settings: SolverSettings) -> bool:
    """Whether float64 does not fit and float32 is exact enough: for an angle, not for a residual."""
    operator = problem.operator
    if not (isinstance(operator, SparseOperator) and operator.is_streamed and isinstance(settings.tol, str)):
        return False
    budget = doubles_fit(operator.graph, problem.n_components, settings.memory_limit)
    return problem.engine.has_blocked_summation and not budget


def _measure_own_pairs(
    problem: Problem, pairs: Ritz, guards: Guards | None, null: Array | None
) -> tuple[Ritz, Array, Guards | None] | None:
    """A solver's Ritz pairs with their residuals, and its guards with theirs, by one product of all.

    None where they are not orthonormal, or the first is not the null vector: then there is a Rayleigh-Ritz to
    make.
    """
    engine = problem.engine
    operator = problem.engine_operator
    k = len(pairs.values)
    guards = select_accurate(engine, guards, pairs.values, 0.0)  # others would not be of use
    values = pairs.values if guards is None else np.append(pairs.values, guards.values)
    Q = pairs.Q if guards is None else engine.hstack(pairs.Q, guards.vectors)
    # 1. the null vector in place of the first column
    if null is not None:
        unit = engine.from_numpy(null[:, None].astype(Q.dtype))
        across = np.abs(engine.gram(unit, Q, operator.metric)[0])
        if across[1:].max(initial=0.0) > MAX_OVERLAP or across[0] < 1 - MAX_OVERLAP:
            return None
        Q = engine.hstack(unit, engine.columns(Q, slice(1, None)))
        values = np.append(0.0, values[1:])
    if orthogonality_error(engine, operator, Q) > MAX_OVERLAP:
        return None
    # 2. one product of all, and its residuals
    AQ = engine.apply(operator, Q)
    measured = residuals(engine, operator, Ritz(values, Q, AQ))
    if guards is None:
        return Ritz(values, Q, AQ), measured, None
    first = Ritz(values[:k], engine.columns(Q, slice(k)), engine.columns(AQ, slice(k)))
    rest = engine.columns(Q, slice(k, None))
    return first, measured[:k], Guards(rest, values[k:], measured[k:], is_measured=True)


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
