"""``gradient-descent``: Eq. 9, full gradients of the objective with implicit orthogonality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.solvers.protocol import Problem, State, SteppingSolver, StepState

Array = NDArray[Any]


def objective_and_gradient(problem: Problem, U: Array) -> tuple[float, Array]:
    """``J(U) = Tr(M^-1 U'AU)`` with ``M = U'BU`` (Eq. 8), and its gradient in closed form.

    ``grad J = 2 (A U - B U M^-1 U'AU) M^-1``: two triangular solves, no differentiation through the
    Cholesky factor. The gradient is orthogonal to U: ``U' grad J = 0``.
    """
    AU = problem.apply(U)
    factor = la.cho_factor(problem.gram(U, U))
    H = problem.engine.gram(U, AU, None)
    C = la.cho_solve(factor, H)  # M^-1 U'AU
    metric = problem.operator.metric
    BU = U if metric is None else metric[:, None] * U
    gradient = 2 * la.cho_solve(factor, (AU - BU @ C).T).T
    return float(np.trace(C)), np.ascontiguousarray(gradient)


@dataclass(frozen=True)
class GradientDescent(SteppingSolver):
    """``U <- U - g B^-1 grad J(U)`` (Eq. 9; ``B = I`` is the paper).

    Parameters
    ----------
    step_size
        None takes half the inverse of the largest eigenvalue, which is safe for an orthonormal U.
    """

    step_size: float | None = None
    max_iter: int = 500

    name: ClassVar[str] = "gradient-descent"
    report_every: ClassVar[int] = 10

    def init(self, problem: Problem, rng: np.random.Generator) -> StepState:
        """Start from a random orthonormal basis."""
        width = problem.operator.upper - problem.operator.lower
        return StepState(problem.first_guess(rng), rng, step_size=self.step_size or 1 / width)

    def step(self, problem: Problem, state: State) -> StepState:
        """One full gradient."""
        assert isinstance(state, StepState)
        try:
            _, gradient = objective_and_gradient(problem, state.U)
        except (la.LinAlgError, ValueError):
            if not np.isfinite(state.U).all():
                raise FloatingPointError("the step was too long") from None
            state.U = problem.orthonormalize(state.U, state.rng).Q
            state.events.append(f"iteration {state.iteration}: M was ill-conditioned, re-orthonormalised")
            _, gradient = objective_and_gradient(problem, state.U)
        metric = problem.operator.metric
        if metric is not None:
            gradient /= metric[:, None]
        state.U = state.U - state.step_size * gradient
        state.iteration += 1
        state.passes += 1
        return state
