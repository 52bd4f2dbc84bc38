"""Epochs of mini-batches, polished by a block method: the base of ``sgd`` in memory and on torch.

The epochs find a subspace with an angle of about .1; ``polish`` goes on from it with ``lanczos`` or
``chebyshev``.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar, cast

import numpy as np

from spectrograd.certificate.certificate import ComplementBound
from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.engines.base import MultiVector
from spectrograd.solvers import choose_variant
from spectrograd.solvers.base import Problem, Progress, SteppingSolver, StepState
from spectrograd.solvers.chebyshev import Chebyshev
from spectrograd.solvers.chebyshev_few_passes import FewPassState
from spectrograd.solvers.lanczos import Lanczos, LanczosState
from spectrograd.solvers.minibatch import EdgeChunk, EdgeSource
from spectrograd.solvers.ritz import RitzSolver, RitzState
from spectrograd.typing import Array

EDGES_CHUNK = 1 << 18  # a chunk's groups take 24 bytes per edge


@dataclass(eq=False)
class SGDBaseState(StepState):
    """While polishing, ``after`` is the state of the polishing method and ``polishing`` its problem."""

    polishing: Problem | None = None
    after: RitzState | None = None


SGDBaseStateT = TypeVar("SGDBaseStateT", bound=SGDBaseState)


@dataclass(frozen=True)
class SGDBase(SteppingSolver[SGDBaseStateT]):
    """Epochs of ``sgd``, then, with ``polish``, a method that converges; subclasses say where the rows live.

    The parameters are those of :class:`~spectrograd.solvers.sgd.UnbiasedSGD`.
    """

    epochs: float = 5.0
    batch_size: int = 4000
    step_size: float = 1.0
    polish: bool = False
    polish_solver: Literal["lanczos", "chebyshev"] = "lanczos"
    angle: float = 0.0
    max_iter: int = 100

    renamed: ClassVar[Mapping[str, str]] = {"hand_over": "polish", "finisher": "polish_solver"}
    has_goal: ClassVar[bool] = False

    @abstractmethod
    def epoch(self, problem: Problem, state: SGDBaseStateT) -> None:
        """Mutates: the state, by one step per batch of all edges; the last epoch may be a part of one."""

    @abstractmethod
    def basis(self, problem: Problem, state: SGDBaseStateT) -> MultiVector:
        """The basis after the epochs, orthonormal in the problem's own metric and float64."""

    @property
    def has_stopping_rule(self) -> bool:
        """Only the polishing method has one."""
        return self.polish and self.angle > 0

    def check_parameters(self) -> None:
        """Refuse what no epoch can be made of."""
        if not 0 < self.epochs < np.inf:
            raise ValueError(f"epochs={self.epochs}: expected a positive number of passes over the edges")
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: at least one edge is needed")
        if not 0 < self.step_size < np.inf:
            raise ValueError(f"step_size={self.step_size}: expected a positive number")
        if self.polish_solver not in ("lanczos", "chebyshev"):
            raise ValueError(f"polish_solver={self.polish_solver!r}: expected 'lanczos' or 'chebyshev'")

    @property
    def n_epochs(self) -> int:
        """Steps of the loop that are epochs, the last of which may be a part of one."""
        return math.ceil(min(self.epochs, self.max_iter))

    def n_steps(self, per_epoch: int) -> int:
        """Batches of all epochs, where one epoch has so many."""
        return math.ceil(min(self.epochs, self.max_iter) * per_epoch)

    def note_batches(self, state: SGDBaseStateT, counts: Array, size: int) -> None:
        """Mutates: events that say what batches of ``size`` edges mean for nodes with so many edges each."""
        if size < self.batch_size:
            state.events.append(f"batches of {size} edges: larger ones would touch too many nodes at once")
        # expected number of nodes none of whose edges is read in a part of an epoch
        unseen = float(((1 - min(self.epochs, 1)) ** counts).sum())
        if self.epochs < 1 and unseen >= 1:
            state.events.append(f"{self.epochs:g} passes over the edges miss about {unseen:.0f} nodes")

    def chunks(
        self, state: SGDBaseStateT, source: EdgeSource, size: int
    ) -> Iterator[tuple[EdgeChunk, Array]]:
        """The edges of the state's epoch with the step of each batch of ``size``; mutates: ``edges_seen``."""
        # The step falls linearly from step_size to 0 over the batches of all epochs.
        # ceil(n_edges / size)
        per_epoch = -(-source.n_edges // size)
        total = self.n_steps(per_epoch)
        done = state.iteration * per_epoch
        for chunk in source.chunks(state.iteration, max(1, EDGES_CHUNK // size) * size):
            n_batches = min(-(-len(chunk.heads) // size), total - done)
            if n_batches <= 0:
                break
            chunk = chunk.part(slice(n_batches * size))
            yield chunk, state.step_size * (1 - np.arange(done, done + n_batches) / total)
            done += n_batches
            state.edges_seen += len(chunk.heads)

    def step(self, problem: Problem, state: SGDBaseStateT) -> SGDBaseStateT:
        """One epoch; after the last one a step of the polishing method."""
        if state.iteration >= self.n_epochs:
            # 2. after the epochs: one step of the polishing method
            return self._polish_step(problem, state)
        # 1. one epoch: every edge once, in random order
        self.epoch(problem, state)
        state.iteration += 1
        if state.iteration >= self.epochs and not self.polish:
            state.done = True
        return state

    def _polish_step(self, problem: Problem, state: SGDBaseStateT) -> SGDBaseStateT:
        solver = self._polish_solver(problem)
        if state.after is None:
            # The first step starts from the basis of the epochs.
            state.polishing = replace(problem, start=self.basis(problem, state))
            state.after = solver.init(state.polishing, state.rng)
            state.events.append(f"polished by {solver.name} after {self.epochs:g} passes over the edges")
        assert state.polishing is not None
        before = state.after.matvecs
        # One step of that method on a state of its own; its products count for this run.
        state.after = solver.step(state.polishing, state.after)
        state.matvecs += state.after.matvecs - (0 if state.iteration == self.n_epochs else before)
        state.iteration += 1
        state.done = solver.terminate(state.polishing, state.after)
        return state

    def _polish_solver(self, problem: Problem) -> RitzSolver[RitzState]:
        method = Lanczos if self.polish_solver == "lanczos" else Chebyshev
        solver = cast(RitzSolver[RitzState], method(angle=self.angle))
        return cast(RitzSolver[RitzState], choose_variant(problem, solver))

    def finish(self, problem: Problem, state: SGDBaseStateT) -> MultiVector:
        """An orthonormal basis, of the epochs or of the polishing method."""
        if state.after is not None:
            return self._polish_solver(problem).finish(problem, state.after)
        return self.basis(problem, state)

    def progress(self, problem: Problem, state: SGDBaseStateT) -> Progress:
        """Measure by a product during the epochs where passes are cheap; while polishing by the last step."""
        if state.after is None and problem.passes_are_expensive:  # bounds: to know better would take a pass
            upper = problem.operator.upper
            counts = (state.iteration, state.matvecs, state.edges_seen)
            return Progress(*counts, problem.n_components * upper, upper, 0.0, events=tuple(state.events))
        if state.after is None:
            return super().progress(problem, state)
        progress = self._polish_solver(problem).progress(problem, state.after)
        return replace(
            progress,
            iteration=state.iteration,
            matvecs=state.matvecs,
            edges_seen=state.edges_seen,
            events=(*state.events, *state.after.events),
        )

    def snapshot(self, problem: Problem, state: SGDBaseStateT) -> SGDBaseStateT:
        """A copy of the state; of the polishing method its own snapshot."""
        after = state.after
        # a shallow copy of all but the polishing state, which knows itself what is worth copying
        state.after = None
        twin = copy.deepcopy(state)
        state.after = after
        if after is not None:
            assert state.polishing is not None
            twin.after = self._polish_solver(problem).snapshot(state.polishing, after)
        return twin

    def overwrites_state(self, state: SGDBaseStateT) -> bool:
        """Whether steps of the polishing method overwrite their state."""
        return isinstance(state.after, FewPassState)

    def snapshots_are_copies(self, state: SGDBaseStateT) -> bool:
        """Whether snapshots of the polishing method are copies."""
        return not isinstance(state.after, LanczosState) or state.after.basis is None

    def evidence(self, problem: Problem, state: SGDBaseStateT) -> Evidence:
        """The evidence of the polishing method."""
        return (
            Evidence() if state.after is None else self._polish_solver(problem).evidence(problem, state.after)
        )

    def complement_bound(self, problem: Problem, state: SGDBaseStateT) -> ComplementBound | None:
        """The bound of the polishing method."""
        return (
            None
            if state.after is None
            else self._polish_solver(problem).complement_bound(problem, state.after)
        )
