"""``forward-backward``: Eq. 5, a gradient step followed by an orthonormalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spectrograd.engines.protocol import Tall
from spectrograd.linalg.subspace import orthonormalize
from spectrograd.solvers.protocol import Problem, SteppingSolver, StepState


@dataclass(frozen=True)
class ForwardBackward(SteppingSolver[StepState]):
    """``U <- QR(U - g B^-1 A U)`` with Q orthonormal in the metric (Eq. 5; ``B = I`` is the paper).

    Parameters
    ----------
    step_size
        None takes the inverse of the width of the spectrum: orthogonal iteration on a matrix whose
        wanted eigenvalues are the largest in magnitude.
    """

    step_size: float | None = None
    max_iter: int = 500

    name: ClassVar[str] = "forward-backward"
    report_every: ClassVar[int] = 10

    def init(self, problem: Problem, rng: np.random.Generator) -> StepState:
        """Start from a random orthonormal basis, in walk form as all that follows."""
        width = problem.operator.upper - problem.operator.lower
        guess = problem.walk.enter(problem.first_guess(rng))
        return StepState(guess, rng, step_size=self.step_size or 1 / width)

    def step(self, problem: Problem, state: StepState) -> StepState:
        """Forward (gradient) and backward (QR): one sweep."""
        engine, walk = problem.engine, problem.walk.operator
        moved = engine.recurrence(walk, state.U, state.U, (-state.step_size, 1.0, 0.0))
        state.U, repaired = orthonormalize(engine, moved, walk.metric, state.rng)
        state.iteration += 1
        state.passes += 1
        if repaired:
            state.events.append(f"iteration {state.iteration}: {repaired} lost directions replaced")
        return state

    def finish(self, problem: Problem, state: StepState) -> Tall:
        """Back to the pencil, orthonormal in its metric."""
        return problem.orthonormalize(problem.walk.leave(state.U)).Q
