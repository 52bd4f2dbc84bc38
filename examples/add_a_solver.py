"""A complete solver: power iteration on ``upper I - B^-1 A``, run by the common loop."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from spectrograd import datasets
from spectrograd.operators.laplacian import laplacian
from spectrograd.solvers import Problem, Solver, State, Stopping, solve


@dataclass(frozen=True)
class PowerIteration(Solver[State]):
    """Multiply by the shifted operator, orthonormalise, repeat."""

    max_iter: int = 300
    name: ClassVar[str] = "power-iteration"
    report_every: ClassVar[int] = 10

    def init(self, problem: Problem, rng: np.random.Generator) -> State:
        """Start from a random orthonormal basis, or from the warm start."""
        return State(problem.first_guess(rng), rng)

    def step(self, problem: Problem, state: State) -> State:
        """One pass over the edges."""
        walk = problem.random_walk
        U = walk.transform(state.U)
        # 1. multiply by upper I - B^-1 A
        U = problem.engine.recurrence(walk.operator, U, U, (-1.0, problem.operator.upper, 0.0))
        state.U = problem.orthonormalize(walk.inverse_transform(U), state.rng).Q
        state.iteration += 1
        state.matvecs += problem.n_components
        return state


graph = datasets.make_block_model(2_000, 4, random_state=0).graph
solution = solve(Problem(laplacian(graph), 4), PowerIteration(), stopping=Stopping(tol=1e-3), seed=0)
print(f"{solution.stop_reason}, {solution.last.iteration} iterations, residual {solution.last.residual:.1e}")
