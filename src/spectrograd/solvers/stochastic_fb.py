"""``stochastic-fb``: stochastic forward-backward splitting, the paper's rival (Han & Filippone 2017)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.engines.minibatch import Sampling, rows_of
from spectrograd.solvers.protocol import Problem, State, SteppingSolver, StepState

Array = NDArray[Any]


@dataclass(eq=False)
class RiemannianState(StepState):
    """Adds the sums of squared gradients (AdaGrad)."""

    squares: Array = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True)
class StochasticForwardBackward(SteppingSolver):
    """``U <- QR(U - g (G - B U U'G))`` with ``G`` the gradient of a batch of edges.

    The Riemannian gradient touches every row and the QR factorisation is taken at every step: that
    is what the implicit constraint of ``sgd-paper`` saves.

    Parameters
    ----------
    step_size, batch_size, max_iter
        AdaGrad's step, edges per batch, and the paper's 3,000 iterations.
    """

    step_size: float = 2.5e-3
    batch_size: int = 4000
    max_iter: int = 3000
    batch: Sampling = "edges"

    name: ClassVar[str] = "stochastic-fb"
    report_every: ClassVar[int] = 100

    def init(self, problem: Problem, rng: np.random.Generator) -> RiemannianState:
        """Start from a random orthonormal basis."""
        U = problem.first_guess(rng)
        return RiemannianState(U, rng, squares=np.zeros_like(U), step_size=self.step_size)

    def step(self, problem: Problem, state: State) -> RiemannianState:
        """One batch: Riemannian gradient, AdaGrad, retraction by QR."""
        assert isinstance(state, RiemannianState)
        source, U = problem.batches, state.U
        batch = source.sampler(self.batch)(self.batch_size, state.rng)
        state.iteration += 1
        state.edges_seen += batch.n_edges
        if batch.n_edges == 0:
            return state
        Y = source.low_rank_product(problem.engine, U)
        G, H = source.gradient(batch, U, Y, projected=True)
        gradient = -(U @ H)
        if problem.operator.metric is not None:
            gradient *= problem.operator.metric[:, None]
        gradient[batch.vertices] += rows_of(G, len(batch.vertices))
        state.squares += gradient**2
        moved = U - state.step_size * gradient / (np.sqrt(state.squares) + 1e-12)
        if not np.isfinite(moved).all():
            raise FloatingPointError("the step was too long")
        state.U = _retract(problem, moved, state)
        return state


def _retract(problem: Problem, U: Array, state: State) -> Array:
    """The Q factor: Householder QR, or Cholesky QR where the metric is not the identity."""
    if problem.operator.metric is None:
        return np.ascontiguousarray(la.qr(U, mode="economic", check_finite=False, overwrite_a=True)[0])
    return problem.orthonormalize(U, state.rng).Q
