"""``forward-backward``: Eq. 5, a gradient step followed by an orthonormalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spectrograd.linalg.subspace import orthonormalize
from spectrograd.solvers.full_steps import FullStepSolver
from spectrograd.solvers.protocol import Problem, StepState


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
        """Forward (gradient) and backward (QR): one sweep."""
        engine, walk = problem.engine, problem.walk.operator
        moved = engine.recurrence(walk, state.U, state.U, (-state.step_size, 1.0, 0.0))
        state.U, repaired = orthonormalize(engine, moved, walk.metric, state.rng)
        state.iteration += 1
        state.passes += 1
        if repaired:
            state.events.append(f"iteration {state.iteration}: {repaired} lost directions replaced")
        return state
