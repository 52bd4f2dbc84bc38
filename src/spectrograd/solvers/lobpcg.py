"""``lobpcg``: locally optimal block preconditioned conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.engines import Engine
from spectrograd.laplacian import Operator
from spectrograd.solvers.protocol import Problem, State
from spectrograd.solvers.ritz import RitzSolver, RitzState, guarded_start, guarded_width, ritz_pairs

Array = NDArray[Any]
Preconditioner = Callable[[Array], Array]


@dataclass(eq=False)
class LobpcgState(RitzState):
    """Adds ``A X``, the conjugate directions P with ``A P``, and the preconditioner."""

    AX: Array = field(default_factory=lambda: np.empty((0, 0)))
    P: Array | None = None
    AP: Array | None = None
    precondition: Preconditioner | None = None


@dataclass(frozen=True)
class LOBPCG(RitzSolver):
    """LOBPCG (Knyazev 2001), with an orthonormalised basis (Hetmaniuk and Lehoucq 2006).

    Definition: Rayleigh-Ritz on ``span{X, W, P}``, W the preconditioned residuals of the Ritz vectors
    X and P the last change of X. Meaning: conjugate gradients on the Rayleigh quotient of a block.
    Residuals far below the largest one leave W (soft locking) but their vectors stay in X.

    Cost: one pass, one application of the preconditioner and a Gram matrix of 3 (K + guard) columns
    per step; memory of six blocks. Use it with a good start (merged layers, updates, ``multilevel``) or
    with a preconditioner on geometric graphs; without either ``chebyshev`` does the same in fewer passes.

    Parameters
    ----------
    preconditioner
        None, or ``"amg"``: one cycle of smoothed aggregation (pyamg; ``pip install spectrograd[amg]``).
    guard
        Extra columns; None fills up to a multiple of 8.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    """

    preconditioner: Literal["amg"] | None = None
    guard: int | None = None
    angle: float = 0.0
    max_iter: int = 500

    name: ClassVar[str] = "lobpcg"

    def init(self, problem: Problem, rng: np.random.Generator) -> LobpcgState:
        """The warm start or random vectors."""
        if self.preconditioner not in (None, "amg"):
            raise ValueError(f"preconditioner={self.preconditioner!r}: expected None or 'amg'")
        operator = problem.operator.walk_form()
        block = guarded_start(problem, guarded_width(problem, self.guard), rng, np.float64)
        precondition = None if self.preconditioner is None else amg(operator)
        state = LobpcgState(np.empty((0, 0)), rng, precondition=precondition)
        return begin(problem, operator, state, block)

    def step(self, problem: Problem, state: State) -> LobpcgState:
        """One Rayleigh-Ritz on X, W, P."""
        assert isinstance(state, LobpcgState)
        columns = advance(problem, problem.operator.walk_form(), state)
        self.account(problem, state, columns)
        return state


def begin(problem: Problem, operator: Operator, state: LobpcgState, block: Array) -> LobpcgState:
    """Ritz vectors of a block, without directions yet."""
    ritz, state.residuals, lost = ritz_pairs(problem.engine, operator, block, state.rng)
    state.values, state.block, state.AX = ritz
    state.P = state.AP = None
    if lost:
        state.events.append(f"iteration {state.iteration}: {lost} lost directions replaced")
    return _published(problem, state)


def advance(problem: Problem, operator: Operator, state: LobpcgState) -> int:
    """One step in walk form; returns the columns multiplied."""
    engine, metric, X = problem.engine, operator.metric, state.block
    m, k = X.shape[1], problem.n_components
    BX = X if metric is None else metric[:, None] * X
    active = state.residuals > 1e-3 * state.residuals[:k].max()
    R = np.ascontiguousarray((state.AX - BX * state.values)[:, active])
    if state.precondition is not None:
        W = state.precondition(R)
        W = np.where(np.isfinite(W), W, 0)
    else:
        W = R if metric is None else R / metric[:, None]
    W = W - engine.combine(X, engine.gram(X, W, metric))
    # orthonormal before it is multiplied: A W then carries no more error than A X
    W = engine.combine(W, _kept(engine.gram(W, W, metric)))
    if W.shape[1] == 0:
        state.done = True
        return 0
    AW = engine.spmm(operator, W)
    parts, products = [X, W], [state.AX, AW]
    if state.P is not None and state.AP is not None:
        parts.append(state.P)
        products.append(state.AP)
    S, AS = np.hstack(parts), np.hstack(products)
    factor = _kept(engine.gram(S, S, metric), protected=m)
    H = engine.gram(S, AS, None)
    values, rotation = la.eigh(factor.T @ ((H + H.T) / 2) @ factor)
    Y = factor @ rotation[:, :m]
    tail = Y.copy()
    tail[:m] = 0  # the part of the new X that is not in the old one
    state.values = values[:m]
    state.block, state.AX = engine.combine(S, Y), engine.combine(AS, Y)
    scale = 1 / np.sqrt(np.maximum(np.diag(tail.T @ engine.gram(S, S, metric) @ tail), 1e-300))
    state.P, state.AP = engine.combine(S, tail * scale), engine.combine(AS, tail * scale)
    _measure(engine, operator, state)
    if state.iteration % 20 == 19 or not np.isfinite(state.values).all():
        begin(problem, operator, state, np.where(np.isfinite(state.block), state.block, 0))
        return m + W.shape[1]
    _published(problem, state)
    return W.shape[1]


def _measure(engine: Engine, operator: Operator, state: LobpcgState) -> None:
    from spectrograd.engines.subspace import Ritz, residuals

    state.residuals = residuals(engine, operator, Ritz(state.values, state.block, state.AX))


def _published(problem: Problem, state: LobpcgState) -> LobpcgState:
    k = problem.n_components
    state.U = problem.operator.from_walk(np.ascontiguousarray(state.block[:, :k]))
    return state


def _kept(M: Array, protected: int = 0) -> Array:
    """``F`` with ``F'MF = I`` on what is numerically independent; the first columns are kept first."""
    d = 1 / np.sqrt(np.maximum(np.diag(M), 1e-300))
    scaled = M * np.outer(d, d)
    try:
        R = la.cholesky(scaled)
        if np.abs(np.diag(R)).min() > 1e-5:
            return np.asarray(d[:, None] * la.solve_triangular(R, np.eye(len(M))))
    except la.LinAlgError:
        pass
    values, rotation = la.eigh(scaled)
    kept = values > 1e-10 * max(float(values[-1]), 1e-300)
    if int(kept.sum()) < protected:
        kept[-protected:] = True
    return np.asarray(d[:, None] * rotation[:, kept] / np.sqrt(np.maximum(values[kept], 1e-14)))


def amg(operator: Operator) -> Preconditioner:
    """One cycle of smoothed aggregation on the sparse part, shifted to be definite."""
    try:
        import pyamg
    except ImportError:
        raise ImportError(
            "preconditioner='amg' needs pyamg: pip install spectrograd[amg]"
        ) from None
    metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
    shift = 1e-6 * (operator.upper - operator.lower)
    # a negative row term (sums of layers) would make the sparse part indefinite
    diagonal = operator.row_sums + np.maximum(operator.row_term, 0) + shift * metric
    matrix = sp.csr_matrix(sp.diags_array(diagonal) - operator.graph.matrix)
    cycle = pyamg.smoothed_aggregation_solver(matrix, symmetry="symmetric").aspreconditioner()

    def precondition(R: Array) -> Array:
        return np.column_stack([cycle @ np.ascontiguousarray(R[:, j]) for j in range(R.shape[1])])

    return precondition
