"""What the two Nystrom solvers share: one step from sampled columns to vectors."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spectrograd.operators.protocol import ALL
from spectrograd.solvers.protocol import Problem, Solver, State

Array = NDArray[Any]


@dataclass(frozen=True)
class LandmarkSolver(Solver[State]):
    """Vectors from ``n_landmarks`` columns of ``S^walk``, S the similarity."""

    n_landmarks: int = 200
    walk: int = 1
    max_iter: int = 1

    needs = ALL
    direct: ClassVar[bool] = True

    @abstractmethod
    def basis(self, problem: Problem, state: State) -> Array:
        """N x K approximate eigenvectors of the operator in standard form."""

    def init(self, problem: Problem, rng: np.random.Generator) -> State:
        """Nothing to prepare."""
        return State(np.zeros((problem.n_nodes, problem.n_components)), rng)

    def step(self, problem: Problem, state: State) -> State:
        """The first step is the last."""
        vectors = problem.standard.leave(self.basis(problem, state))
        state.U, repaired = problem.orthonormalize(vectors, state.rng)
        if repaired:
            state.events.append(f"{repaired} directions beyond the rank of the sample are random")
        state.iteration, state.done = 1, True
        return state
