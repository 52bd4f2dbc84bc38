"""The stochastic epochs of ``joint``: every layer's embedding and the merged one by mini-batches of edges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, without_absent
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.solvers.descent import Descent
from spectrograd.solvers.protocol import Problem, Progress, Solver, State
from spectrograd.solvers.sgd import DescentState, RepairedSGD

Array = NDArray[Any]
# How strongly layers are drawn to the merged basis at first, relative to alpha. Alone a layer that is a
# k-NN graph learns next to nothing from such steps; drawn along it does (docs/multilayer.md).
FIRST_COUPLING = 0.5


@dataclass(eq=False)
class EpochsState(State):
    """``descents`` belong to the merged block and then to the layers; ``U`` holds the bases in that order."""

    descents: list[DescentState] = field(default_factory=list)


@dataclass(frozen=True)
class JointEpochs(Solver[EpochsState]):
    """The repaired steps of the paper's algorithm on all layers and on Eq. 22, one epoch of each in turn.

    Parameters
    ----------
    layers, alphas
        The layers, and alpha for each of them.
    epochs
        How many. Each reads the edges of every layer twice: for its own block and for the merged one.
    coupling
        How strongly the layers are drawn to the merged basis in the end, relative to alpha. It falls to
        that from a half on a straight line, so that the layers are their own again.
    """

    layers: Layers
    alphas: Array
    epochs: int = 22
    coupling: float = 0.0
    max_iter: int = 1000

    name: ClassVar[str] = "joint"
    report_every: ClassVar[int] = 5  # a measurement costs a pass

    def init(self, problem: Problem, rng: np.random.Generator) -> EpochsState:
        """One random basis for all blocks: they describe the same nodes."""
        if not 1 <= self.epochs < np.inf:
            raise ValueError(f"epochs={self.epochs}: expected at least one pass over the edges")
        k = problem.n_components
        Q = problem.orthonormalize(rng.standard_normal((problem.n_nodes, k)), rng).Q
        state = EpochsState(np.hstack([Q] * (len(self.layers.operators) + 1)), rng)
        state.descents = [
            self._solver.init(replace(problem, operator=operator, start=Q), rng)
            for operator in (problem.sparse, *self._operators(state, k))
        ]
        return state

    @property
    def _solver(self) -> RepairedSGD:
        return RepairedSGD(epochs=self._n_epochs, max_iter=self._n_epochs)

    @property
    def _n_epochs(self) -> int:
        return min(self.epochs, self.max_iter)

    def step(self, problem: Problem, state: EpochsState) -> EpochsState:
        """One epoch of every layer, then one of the merged block on what they found."""
        k = problem.n_components
        for at, operator in enumerate(self._operators(state, k), start=1):
            self._epoch(problem, state, at, operator)
        self._epoch(problem, state, 0, self._merged(problem, state))
        state.iteration += 1
        state.done = state.iteration >= self._n_epochs
        state.edges_seen = sum(descent.edges_seen for descent in state.descents)
        state.passes = state.edges_seen / max(1, sum(op.graph.n_edges for op in self.layers.operators))
        state.events = [event for descent in state.descents for event in descent.events]
        return state

    def _epoch(self, problem: Problem, state: EpochsState, at: int, operator: SparseOperator) -> None:
        """Mutates: one block, by a pass over the edges of its operator, whose low-rank part may be new."""
        descent, k = state.descents[at], problem.n_components
        if operator.graph.n_edges == 0:
            return
        own = replace(problem, operator=operator, start=None)
        assert descent.descent is not None
        descent.descent = Descent.of(own.sparse_walk, descent.descent.source, self._solver.batch_size)
        descent.known = None
        self._solver.step(own, descent)
        state.U[:, at * k : (at + 1) * k] = self._solver.finish(own, descent)

    def _operators(self, state: EpochsState, k: int) -> list[SparseOperator]:
        """The layers', minus what draws them to the merged basis now."""
        falling = FIRST_COUPLING * (1 - state.iteration / self._n_epochs)
        strengths = max(self.coupling, falling) * self.alphas
        return [
            replace(
                without_absent(operator),
                low_rank=LowRank(np.ascontiguousarray(state.U[:, :k]), np.full(k, strength)),
                lower=operator.lower - strength,
            )
            for operator, strength in zip(self.layers.operators, strengths, strict=True)
        ]

    def _merged(self, problem: Problem, state: EpochsState) -> SparseOperator:
        """Eq. 22 with the layers' bases of now; the problem's operator is the sum of the layers."""
        k, strengths = problem.n_components, self.layers.weights * self.alphas
        near = LowRank(np.ascontiguousarray(state.U[:, k:]), np.repeat(strengths, k))
        return replace(problem.sparse, low_rank=near, lower=problem.operator.lower - float(strengths.sum()))

    def progress(self, problem: Problem, state: EpochsState) -> Progress:
        """Of the merged block, on the layers' bases of now."""
        merged = replace(problem, operator=self._merged(problem, state))
        found = State(state.U[:, : problem.n_components], state.rng)
        known = super().progress(merged, found)  # type: ignore[arg-type]
        return replace(
            known,
            iteration=state.iteration,
            passes=state.passes,
            edges_seen=state.edges_seen,
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: EpochsState) -> Array:
        """The merged basis and then the layers', side by side."""
        return np.asarray(state.U)

    def back_off(self, problem: Problem, state: EpochsState) -> EpochsState:
        """Halve all steps."""
        for descent in state.descents:
            self._solver.back_off(problem, descent)
        return state
