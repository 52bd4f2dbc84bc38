"""``lobpcg``: locally optimal block preconditioned conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, cast

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.engines import Engine, LocalEngine
from spectrograd.operators.base import ALL, RESIDENT, Operator, check_capabilities
from spectrograd.operators.sparse import SparseOperator
from spectrograd.serialization.codec import DERIVED
from spectrograd.solvers.base import Problem
from spectrograd.solvers.ritz import RitzSolver, RitzState, guarded_start, guarded_width, ritz_pairs
from spectrograd.system import need
from spectrograd.typing import Array

MAX_ORTHOGONALITY_ERROR = 1e-4  # entries of Q'BQ - I: single precision leaves a hundredth of it
Preconditioner = Callable[[Array], Array]


@dataclass(eq=False)
class LobpcgState(RitzState):
    """Adds ``Q = [X P]``, orthonormal, with ``A Q`` and ``H = Q'AQ``, the residuals R and the preconditioner.

    X are the Ritz vectors (``block`` is a view of them), P the directions of their last change.
    """

    Q: Array = field(default_factory=lambda: np.empty((0, 0)))
    AQ: Array = field(default_factory=lambda: np.empty((0, 0)))
    H: Array = field(default_factory=lambda: np.empty((0, 0)))
    R: Array = field(default_factory=lambda: np.empty((0, 0)))
    precondition: Preconditioner | None = field(default=None, metadata={DERIVED: True})


@dataclass(frozen=True)
class LOBPCG(RitzSolver[LobpcgState]):
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
    requires = RESIDENT

    def check(self, problem: Problem) -> None:
        """Products are enough, unless there is a preconditioner."""
        if self.preconditioner not in (None, "amg"):
            raise ValueError(f"preconditioner={self.preconditioner!r}: expected None or 'amg'")
        requires = RESIDENT if self.preconditioner is None else ALL
        check_capabilities(self.name, requires, problem.operator, problem.capabilities)

    def init(self, problem: Problem, rng: np.random.Generator) -> LobpcgState:
        """The warm start or random vectors."""
        # the pencil without a scale: one diagonal less to multiply by in every product
        operator = problem.operator.random_walk_form()
        block = guarded_start(problem, guarded_width(problem, self.guard), rng, np.float64)
        precondition = None if self.preconditioner is None else amg(problem.sparse.random_walk_form())
        state = LobpcgState(np.empty((0, 0)), rng, precondition=precondition)
        return begin(problem, operator, state, block)

    def step(self, problem: Problem, state: LobpcgState) -> LobpcgState:
        """One Rayleigh-Ritz on X, W, P."""
        columns = advance(problem, problem.operator.random_walk_form(), state)
        self.account(problem, state, columns)
        return state

    def terminate(self, problem: Problem, state: LobpcgState) -> bool:
        """Whether the angle is met."""
        return self.angle_is_met(problem, state)

    def evidence(self, problem: Problem, state: LobpcgState) -> Evidence:
        """The first value beyond the result, and the guard vectors."""
        return self.guard_evidence(problem, state)


def begin(problem: Problem, operator: Operator, state: LobpcgState, block: Array) -> LobpcgState:
    """Ritz vectors of a block, without directions yet."""
    ritz, _, lost = ritz_pairs(problem.engine, operator, block, state.rng)
    state.values, state.Q, state.AQ = ritz
    state.H = np.diag(ritz.values)
    if lost:
        state.events.append(f"iteration {state.iteration}: {lost} lost directions replaced")
    measured = _residual_rows(problem, operator, state)
    return _publish(problem, state, measured)


def advance(problem: Problem, operator: Operator, state: LobpcgState) -> int:
    """One step in random-walk form; returns the columns multiplied."""
    engine = problem.engine
    metric = operator.metric
    Q = state.Q
    m = len(state.values)
    k = problem.n_components
    # 1. search directions W: preconditioned residuals, orthogonal to X and P (Knyazev 2001)
    W = _directions(operator, state, k)
    for _ in range(2):  # once is not enough: making W orthonormal magnifies what is left of Q in it
        W = engine.combine(Q, -engine.gram(Q, W, metric), W, np.eye(W.shape[1]))
        # orthonormal before it is multiplied: A W then carries no more error than A X
        W = engine.combine(W, _independent_factor(engine.gram(W, W, metric)))
        if W.shape[1] == 0:
            break
    if W.shape[1] == 0 or not np.isfinite(W).all():
        state.done = True
        return 0
    # 2. the only product of the step
    AW = engine.apply(operator, W)
    # 3. Rayleigh-Ritz on [X P W], on what is numerically independent
    M, H = _project(engine, metric, state, W, AW)
    factor = _independent_factor(M, protected=m)
    values, rotation = la.eigh(factor.T @ H @ factor)
    Y = factor @ rotation[:, :m]
    # 4. conjugate directions P (Hetmaniuk and Lehoucq 2006)
    change = Y.copy()
    change[:m] = 0  # the part of the new X that is not in the old one, orthonormal to the new X
    change -= Y @ (Y.T @ M @ change)
    change[:, np.diag(change.T @ M @ change) < 1e-20] = 0  # rounding of converged vectors is no direction
    change = change @ _independent_factor(change.T @ M @ change)
    # 5. update [X P], their products and their projected matrix
    C = np.hstack([Y, change])
    q = Q.shape[1]
    state.Q = engine.combine(Q, C[:q], W, C[q:])
    state.AQ = engine.combine(state.AQ, C[:q], AW, C[q:])
    state.H = C.T @ H @ C
    state.values = values[:m]
    # 6. begin again from X where rounding has piled up
    X = np.ascontiguousarray(state.Q[:, :m])
    lost = not np.abs(engine.gram(X, X, metric) - np.eye(m)).max() < MAX_ORTHOGONALITY_ERROR
    if state.iteration % 20 == 19 or lost or not np.isfinite(state.values).all():
        # against drift, and in place of anything that is not a number
        begin(problem, operator, state, np.nan_to_num(state.Q[:, :m]))
        return m + int(W.shape[1])
    _publish(problem, state, _residual_rows(problem, operator, state))
    return int(W.shape[1])


def _directions(operator: Operator, state: LobpcgState, k: int) -> Array:
    """Preconditioned residuals of the vectors that still need them (soft locking)."""
    # a thousandth of the largest residual: such vectors move no more (soft locking, Knyazev et al. 2007)
    active = state.residuals > 1e-3 * state.residuals[:k].max()
    R = state.R if active.all() else np.ascontiguousarray(state.R[:, active])
    if state.precondition is not None:
        return state.precondition(R)
    return R if operator.metric is None else np.asarray(R / operator.metric[:, None])


def _project(
    engine: Engine, metric: Array | None, state: LobpcgState, W: Array, AW: Array
) -> tuple[Array, Array]:
    """``S'BS`` and ``S'AS`` of ``S = [X P W]``; what is known of X and P is not computed again."""
    # X and P are orthonormal: only the blocks with W are new
    q = state.Q.shape[1]
    w = W.shape[1]
    M = np.eye(q + w)
    H = np.zeros((q + w, q + w))
    M[:q, q:] = engine.gram(state.Q, W, metric)
    M[q:, :q] = M[:q, q:].T
    H[:q, :q] = state.H
    H[:q, q:] = engine.gram(state.Q, AW, None)
    H[q:, :q] = H[:q, q:].T
    H[q:, q:] = engine.gram(W, AW, None)
    return M, (H + H.T) / 2


def _residual_rows(problem: Problem, operator: Operator, state: LobpcgState) -> tuple[Array, Array]:
    """Residuals of the Ritz vectors and their norms; this solver needs its rows in memory."""
    engine = cast(LocalEngine, problem.engine)
    return engine.residual_rows(operator, state.Q, state.AQ, state.values)


def _publish(problem: Problem, state: LobpcgState, measured: tuple[Array, Array]) -> LobpcgState:
    """Mutates: the fields that every solver of Ritz pairs shows, from X and its residuals."""
    state.R, state.residuals = measured
    state.block = state.Q[:, : len(state.values)]
    state.U = problem.random_walk.inverse_transform(np.ascontiguousarray(state.Q[:, : problem.n_components]))
    return state


def _independent_factor(M: Array, protected: int = 0) -> Array:
    """``F`` with ``F'MF = I`` on what is numerically independent; the first columns are kept first."""
    size = np.diag(M)
    d = np.where(size > 1e-280, 1 / np.sqrt(np.maximum(size, 1e-280)), 0)
    scaled = M * np.outer(d, d)
    try:
        # Cholesky where the scaled matrix is well-conditioned, else its eigenvectors
        R = la.cholesky(scaled)
        if np.abs(np.diag(R)).min() > 1e-5:
            return np.asarray(d[:, None] * la.solve_triangular(R, np.eye(len(M))))
    except la.LinAlgError:
        pass
    # rank-revealing: eigenvectors of the correlation matrix, smallest dropped
    values, rotation = la.eigh(scaled)
    in_range = values > 1e-10 * max(float(values[-1]), 1e-300) if len(M) else np.zeros(0, bool)
    if int(in_range.sum()) < protected:
        in_range[-protected:] = True
    return np.asarray(d[:, None] * rotation[:, in_range] / np.sqrt(np.maximum(values[in_range], 1e-14)))


def amg(operator: SparseOperator) -> Preconditioner:
    """One cycle of smoothed aggregation on the sparse part, shifted to be definite."""
    pyamg = need("pyamg", "preconditioner='amg'")
    metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
    shift = 1e-6 * (operator.upper - operator.lower)
    # a negative row term (sums of layers) would make the sparse part indefinite
    diagonal = operator.row_sums + np.maximum(operator.row_term, 0) + shift * metric
    # L + shift B, an M-matrix: what smoothed aggregation is made for
    matrix = sp.csr_matrix(sp.diags_array(diagonal) - operator.graph.matrix)
    cycle = pyamg.smoothed_aggregation_solver(matrix, symmetry="symmetric").aspreconditioner()

    def precondition(R: Array) -> Array:
        return np.column_stack([cycle @ np.ascontiguousarray(R[:, j]) for j in range(R.shape[1])])

    return precondition
