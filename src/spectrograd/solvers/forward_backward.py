"""``forward-backward``: Eq. 5, a gradient step followed by an orthonormalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spectrograd.solvers.protocol import Problem, State, SteppingSolver, StepState


@dataclass(frozen=True)
class ForwardBackward(SteppingSolver):
    """``U <- QR(U - g B^-1 A U)`` with Q orthonormal in the metric (Eq. 5; ``B = I`` is the paper).

    Parameters
    ----------
    step_size
        None takes the inverse of the largest eigenvalue: orthogonal iteration on a matrix whose
        eigenvalues are all positive.
    """

    step_size: float | None = None
    max_iter: int = 500

    name: ClassVar[str] = "forward-backward"
    report_every: ClassVar[int] = 10

    def init(self, problem: Problem, rng: np.random.Generator) -> StepState:
        """Start from a random orthonormal basis."""
        width = problem.operator.upper - problem.operator.lower
        return StepState(problem.first_guess(rng), rng, step_size=self.step_size or 1 / width)

    def step(self, problem: Problem, state: State) -> StepState:
        """Forward (gradient) and backward (QR)."""
        assert isinstance(state, StepState)
        forward = problem.apply(state.U)
        if problem.operator.metric is not None:
            forward /= problem.operator.metric[:, None]
        moved = state.U - state.step_size * forward
        if not np.isfinite(moved).all():
            raise FloatingPointError("the step was too long")
        state.U, repaired = problem.orthonormalize(moved, state.rng)
        state.iteration += 1
        state.passes += 1
        if repaired:
            state.events.append(f"iteration {state.iteration}: {repaired} lost directions replaced")
        return state
