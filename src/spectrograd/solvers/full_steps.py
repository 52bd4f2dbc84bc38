"""What the solvers share that move all rows at once, by one sweep per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spectrograd.engines.protocol import Tall
from spectrograd.solvers.protocol import Problem, SteppingSolver, StepState


@dataclass(frozen=True)
class FullStepSolver(SteppingSolver[StepState]):
    """Steps in walk form; ``step_size`` None takes the inverse of the width of the spectrum."""

    step_size: float | None = None
    max_iter: int = 500

    report_every: ClassVar[int] = 10

    def init(self, problem: Problem, rng: np.random.Generator) -> StepState:
        """Start from a random orthonormal basis, in walk form as all that follows."""
        width = problem.operator.upper - problem.operator.lower
        guess = problem.walk.enter(problem.first_guess(rng))
        return StepState(guess, rng, step_size=self.step_size or 1 / width)

    def finish(self, problem: Problem, state: StepState) -> Tall:
        """Back to the pencil, orthonormal in its metric."""
        return problem.orthonormalize(problem.walk.leave(state.U)).Q
