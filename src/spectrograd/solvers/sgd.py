"""``sgd``: the unbiased form, stochastic subspace iteration with the metric in the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spectrograd.linalg.subspace import rayleigh_ritz
from spectrograd.operators.protocol import ALL
from spectrograd.solvers.protocol import Problem, Solver, SteppingSolver, StepState

Array = NDArray[Any]
WORST_CONDITION = 1e4


@dataclass(frozen=True)
class SubspaceSGD(SteppingSolver[StepState]):
    """Repeat ``U <- U - g B^-1 A_S U`` on the rows of random batches.

    The dense term of the gradient only multiplies ``U`` by a K x K matrix from the right, which does
    not change the span (docs/adr/0001), so it is left out. The update commutes with any such matrix
    ``T``: the orthonormal basis ``U T`` is formed only when somebody looks at it, or when ``U``
    becomes ill-conditioned. A step is an epoch: every node once as head of a pair (i, j), j a
    neighbour drawn with probability ``w_ij / d_i``; N pairs, not all edges, make one random-walk step.

    Parameters
    ----------
    theta
        Step relative to pair averaging, in (0, 1]: 1 moves a pair to its common mean.
    decay_after
        Fraction of the epochs after which ``theta`` is halved every epoch, to sink the noise.
    variance_reduction
        SVRG: estimate only the deviation from a snapshot whose product with A is known. Costs one
        pass per epoch; ``theta`` is then constant. Less noise on some graphs, more on others.
    """

    theta: float = 1.0
    batch_size: int = 4000
    max_iter: int = 60
    decay_after: float = 0.7
    variance_reduction: bool = False

    name: ClassVar[str] = "sgd"
    needs = ALL

    def suited(self, problem: Problem) -> Solver[Any]:
        """On a device, the form in tensor operations."""
        if "tensors" not in problem.offers:
            return self
        from spectrograd.solvers.device_batches import with_settings_of  # torch's side of the house
        from spectrograd.solvers.device_sgd import DeviceSGD

        return with_settings_of(self, DeviceSGD)

    def init(self, problem: Problem, rng: np.random.Generator) -> StepState:
        """Start from a random basis."""
        if not 0 < self.theta <= 1:
            raise ValueError(f"theta={self.theta}: expected a number in (0, 1]")
        U = problem.resident_guess(rng)
        U[problem.sparse.graph.degrees == 0] = 0  # absent from this layer: no pair would ever move it
        return StepState(U, rng, step_size=self.theta)

    def step(self, problem: Problem, state: StepState) -> StepState:
        """One epoch."""
        if self.variance_reduction:
            self._reduced_epoch(problem, state)
        else:
            self._plain_epoch(problem, state)
        state.iteration += 1
        state.edges_seen += problem.n_nodes
        if not np.isfinite(state.U).all():
            raise FloatingPointError("the step was too long")
        self._keep_well_conditioned(problem, state)
        if not self.variance_reduction and state.iteration >= self.decay_after * self.max_iter:
            state.step_size /= 2
        return state

    def _plain_epoch(self, problem: Problem, state: StepState) -> None:
        source = problem.batches
        step = state.step_size / _stiffness(problem)
        Y = source.low_rank_product(problem.engine, state.U)
        for heads in self._head_batches(problem, state.rng):
            batch = source.pairs(heads, state.rng)
            G, _ = source.gradient(batch, state.U, Y)
            Y += source.move(batch, G, state.U, step / source.metric[batch.vertices])[1]

    def _reduced_epoch(self, problem: Problem, state: StepState) -> None:
        """SVRG: ``U = V t + F s + E`` with snapshot V; only E is stochastic.

        V holds Ritz vectors and ``F = B^-1 A V - V diag(theta)`` their residuals, so the expected decay of V
        is the known diagonal t. The noise is that of ``U - V t``, which vanishes as V converges; without t
        it would stay proportional to theta.
        """
        source = problem.batches
        step = 0.5 * state.step_size / _stiffness(problem)
        ritz = rayleigh_ritz(problem.engine, problem.operator, problem.orthonormalize(state.U, state.rng).Q)
        V, theta = ritz.Q, ritz.values
        F = ritz.AQ / source.metric[:, None] - V * theta
        state.passes += 1
        E = np.zeros_like(V)
        Y_E = np.zeros((source.factors.shape[1], V.shape[1]))
        Y_F = source.low_rank_product(problem.engine, F)
        t, s = np.ones(len(theta)), np.zeros(len(theta))
        batches = self._head_batches(problem, state.rng)
        n_heads = sum(len(heads) for heads in batches)
        for heads in batches:
            batch = source.pairs(heads, state.rng)
            G = source.gradient(batch, E, Y_E)[0] + s[:, None] * source.gradient(batch, F, Y_F)[0]
            Y_E += source.move(batch, G, E, step / source.metric[batch.vertices])[1]
            forward = step * len(heads) / n_heads
            s -= forward * t
            t -= forward * theta * t
        state.U = V * t + F * s + E

    def _head_batches(self, problem: Problem, rng: np.random.Generator) -> list[Array]:
        """All nodes that have a neighbour, in random order, cut into batches."""
        linked = np.flatnonzero(problem.sparse.graph.degrees).astype(np.int32)
        return np.array_split(rng.permutation(linked), -(-len(linked) // self.batch_size))

    def _keep_well_conditioned(self, problem: Problem, state: StepState) -> None:
        M = problem.gram(state.U, state.U)
        scale = np.sqrt(np.maximum(np.diag(M), np.finfo(float).tiny))  # a column may vanish
        if not np.linalg.cond(M / np.outer(scale, scale)) < WORST_CONDITION:
            state.U, repaired = problem.orthonormalize(state.U, state.rng)
            if repaired:
                state.events.append(f"epoch {state.iteration}: {repaired} lost directions replaced")


def _stiffness(problem: Problem) -> float:
    """Largest ``row_sum_i / b_i``: one for a normalised Laplacian; makes theta = 1 a stable step."""
    operator = problem.sparse
    metric = 1.0 if operator.metric is None else operator.metric
    heaviest = np.maximum(operator.row_sums, operator.diagonal) / metric
    return float(heaviest.max())
