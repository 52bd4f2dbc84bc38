"""``gradient-descent`` and ``forward-backward``: full steps, one pass over the edges each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg as la

from spectrograd.engines.base import MultiVector
from spectrograd.linalg.subspace import orthonormalize
from spectrograd.solvers.base import Problem, SteppingSolver, StepState
from spectrograd.typing import Array


@dataclass(frozen=True)
class FullStepSolver(SteppingSolver[StepState]):
    """Steps in random-walk form; ``step_size`` None takes the inverse of the width of the spectrum."""

    step_size: float | None = None
    max_iter: int = 500

    report_every: ClassVar[int] = 10

    def init(self, problem: Problem, rng: np.random.Generator) -> StepState:
        """Start from a random orthonormal basis, in random-walk form as all that follows."""
        width = problem.operator.upper - problem.operator.lower
        guess = problem.random_walk.transform(problem.first_guess(rng))
        return StepState(guess, rng, step_size=self.step_size or 1 / width)

    def finish(self, problem: Problem, state: StepState) -> MultiVector:
        """Back to the pencil, orthonormal in its metric."""
        return problem.orthonormalize(problem.random_walk.inverse_transform(state.U)).Q


# --- ``gradient-descent``: Eq. 9, full gradients of the objective with implicit orthogonality.

MAX_MOVE = 10.0  # relative to U; sensible steps stay below 2


def objective_and_gradient(problem: Problem, U: MultiVector) -> tuple[float, MultiVector]:
    """``J(U) = Tr(M^-1 U'AU)`` with ``M = U'BU`` (Eq. 8), and its gradient in closed form.

    ``grad J = 2 (A U - B U M^-1 U'AU) M^-1``: two triangular solves, no differentiation through the
    Cholesky factor. The gradient is orthogonal to U: ``U' grad J = 0``.
    """
    engine = problem.engine
    metric = problem.engine_operator.metric
    AU = problem.apply(U)
    # (n_nodes, K) each; C = M^-1 U'AU is K x K
    BU = U if metric is None else engine.scale_rows(U, metric)
    C, inverse = _small_matrices(problem.gram(U, U), engine.gram(U, AU))
    return float(np.trace(C)), engine.combine(AU, 2 * inverse, BU, -2 * C @ inverse)


def _small_matrices(M: Array, H: Array) -> tuple[Array, Array]:
    """``M^-1 U'AU`` and ``M^-1``."""
    factor = la.cho_factor(M)
    return la.cho_solve(factor, H), la.cho_solve(factor, np.eye(len(M)))


@dataclass(frozen=True)
class GradientDescent(FullStepSolver):
    """``U <- U - g B^-1 grad J(U)`` (Eq. 9; ``B = I`` is the paper).

    Parameters
    ----------
    step_size
        None takes the inverse of the width of the spectrum, which is safe for an orthonormal U.
    """

    name: ClassVar[str] = "gradient-descent"

    def step(self, problem: Problem, state: StepState) -> StepState:
        """One full gradient, in one pass: ``B^-1 grad J = 2 (B^-1 A U - U C) M^-1``."""
        try:
            moved, longest = self._move(problem, state)
        except (la.LinAlgError, ValueError):
            M = problem.engine.gram(state.U, state.U, problem.random_walk.operator.metric)
            if not np.isfinite(M).all():
                raise FloatingPointError("the step was too long") from None
            state.U = orthonormalize(
                problem.engine, state.U, problem.random_walk.operator.metric, state.rng
            ).Q
            state.events.append(f"iteration {state.iteration}: M was ill-conditioned, re-orthonormalised")
            moved, longest = self._move(problem, state)
        if not longest < MAX_MOVE:
            # U' grad J = 0, so U can only grow; beyond that the gradient, which shrinks with it, is frozen
            raise FloatingPointError("the step was too long")
        state.U = moved
        state.iteration += 1
        state.matvecs += problem.n_components
        return state

    def _move(self, problem: Problem, state: StepState) -> tuple[MultiVector, float]:
        """The vectors after the step, and the longest move of a column relative to the longest column."""
        engine = problem.engine
        walk = problem.random_walk.operator
        U = state.U
        # 1. the product of the step: B^-1 A U
        product = engine.recurrence(walk, U, U, (1.0, 0.0, 0.0))
        # 2. M = U'BU, H = U'AU, C = M^-1 H
        M = engine.gram(U, U, walk.metric)
        H = engine.gram(U, product, walk.metric)
        C, inverse = _small_matrices(M, H)
        # 3. the step in small matrices: U <- U (I + forth) - product back
        back = 2 * state.step_size * inverse
        forth = 2 * state.step_size * C @ inverse
        # 4. how far it leads, before anything is moved
        squares = engine.gram(product, product, walk.metric)
        move = back.T @ squares @ back - forth.T @ M @ forth  # of length: the move is orthogonal to U
        longest = np.sqrt(np.abs(np.diag(move)).max() / np.diag(M).max())
        return engine.combine(U, np.eye(len(M)) + forth, product, -back), float(longest)


# --- ``forward-backward``: Eq. 5, a gradient step followed by an orthonormalisation.


@dataclass(frozen=True)
class ForwardBackward(FullStepSolver):
    """``U <- QR(U - g B^-1 A U)`` with Q orthonormal in the metric (Eq. 5; ``B = I`` is the paper).

    Parameters
    ----------
    step_size
        None takes the inverse of the width of the spectrum: orthogonal iteration on a matrix whose
        wanted eigenvalues are the largest in magnitude.
    """

    name: ClassVar[str] = "forward-backward"

    def step(self, problem: Problem, state: StepState) -> StepState:
        """Forward (gradient) and backward (QR): one pass."""
        engine = problem.engine
        walk = problem.random_walk.operator
        # 1. forward: U - g B^-1 A U, in one pass
        moved = engine.recurrence(walk, state.U, state.U, (-state.step_size, 1.0, 0.0))
        # 2. backward: QR in the metric (Eqs. 6, 7)
        state.U, n_replaced = orthonormalize(engine, moved, walk.metric, state.rng)
        state.iteration += 1
        state.matvecs += problem.n_components
        if n_replaced:
            state.events.append(f"iteration {state.iteration}: {n_replaced} lost directions replaced")
        return state
