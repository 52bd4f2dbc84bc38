"""``sgd``: the paper's stochastic gradient descent, repaired so that it works at every size."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate.probe import Evidence
from spectrograd.operators.protocol import ALL, RESIDENT, check_offers
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.chebyshev import Chebyshev
from spectrograd.solvers.descent import Descent
from spectrograd.solvers.edge_source import EdgeChunk, edge_source
from spectrograd.solvers.lanczos import Lanczos
from spectrograd.solvers.protocol import DERIVED, Problem, Progress, Solver, SteppingSolver, StepState
from spectrograd.solvers.ritz import RitzSolver, RitzState

Array = NDArray[Any]
EDGES_AT_ONCE = 1 << 18  # a chunk's groups take 24 bytes per edge
# M is measured afresh after so many edges per node: a fifth of a row is then measured per edge, however
# large the graph, and rows, which double at each of ten visits, stay far from the largest float32.
EDGES_PER_MEASUREMENT = 5
WORST_CONDITION = 1e4  # of M; runs that go well stay below ten


@dataclass(eq=False)
class DescentState(StepState):
    """``U`` holds rows of float32 in walk form, padded to whole lanes; the rest belongs to the epochs.

    ``known`` are M and Y, kept from batch to batch for ``known_for`` edges now; None where U moved otherwise.
    After the hand-over ``after`` is the state of the method that goes on, and ``handed`` its problem.
    """

    descent: Descent | None = field(default=None, metadata={DERIVED: True})
    known: tuple[Array, Array] | None = None
    known_for: int = 0
    handed: Problem | None = None
    after: RitzState | None = None
    events: list[str] = field(default_factory=list)

    def __deepcopy__(self, memo: dict[int, Any]) -> DescentState:
        twin = copy.copy(self)  # the edges are shared
        twin.U, twin.events, twin.after = self.U.copy(), list(self.events), copy.deepcopy(self.after, memo)
        twin.known, twin.rng = copy.deepcopy(self.known, memo), copy.deepcopy(self.rng, memo)
        return twin


@dataclass(frozen=True)
class RepairedSGD(SteppingSolver[DescentState]):
    """Minimise ``J(U) = Tr(M^-1 U'AU)``, ``M = U'BU``, by mini-batches with an unbiased gradient.

    Definition: for a batch ``S`` of edges (Eq. 15) the rows that it touches move along
    ``g_i = (A_S U)_i M^-1 - b_i u_i (M^-1 U'A_S U M^-1) / q_i`` by ``s sqrt(Tr M / sum b)``, where q_i is the
    chance that a batch touches row i. Meaning: the paper's step without its drift towards zero
    (docs/methods/sgd.md), of one length for all rows, which needs no moments and no scale.

    An epoch reads every edge once, in random order; a few of them find clear clusters on graphs of any size.
    The noise of the last steps leaves an angle of about .1: for digits let it hand over.

    Parameters
    ----------
    epochs
        Passes over the edges, over which the step falls from ``step_size`` to zero. On dense graphs
        a fraction of a pass will do: a node needs some sixty of its edges.
    batch_size
        Edges per step; never more than a 256th of all (a 64th of small graphs), so that
        q_i stays well below one.
    step_size
        Length of the first steps relative to the root mean square of a row; 2 is too long, 0.5 slower.
    hand_over
        Go on with another method from the subspace found, until the angle or the tolerance asked for is met.
    finisher
        That method: ``"lanczos"`` (block Krylov, the fewest passes) or ``"chebyshev"`` (the least memory).
    angle
        Bound on the sine of the subspace angle after the hand-over; 0 leaves stopping to the loop.
    """

    epochs: float = 5.0
    batch_size: int = 4000
    step_size: float = 1.0
    hand_over: bool = False
    finisher: Literal["lanczos", "chebyshev"] = "lanczos"
    angle: float = 0.0
    max_iter: int = 100

    name: ClassVar[str] = "sgd"
    needs = ALL

    def suited(self, problem: Problem) -> Solver[Any]:
        """On a device, the form in tensor operations."""
        if "tensors" not in problem.offers:
            return self
        from spectrograd.solvers.device_batches import with_settings_of  # torch's side of the house
        from spectrograd.solvers.device_sgd import DeviceSGD

        # its epochs are whole, and the angle is for the method that goes on, which it has not
        return with_settings_of(replace(self, epochs=math.ceil(self.epochs), angle=0.0), DeviceSGD)

    @property
    def judges_itself(self) -> bool:
        """Only the method that goes on does."""
        return self.hand_over and self.angle > 0

    def check(self, problem: Problem) -> None:
        """A graph on disk will do, for its edges are kept in random order too."""
        operator = problem.operator
        if isinstance(operator, SparseOperator) and not operator.graph.is_resident:
            check_offers(self.name, RESIDENT, operator, problem.offers)
        else:
            super().check(problem)

    def init(self, problem: Problem, rng: np.random.Generator) -> DescentState:
        """Start from an orthonormal random basis, or the warm start, in walk form."""
        self._check()
        operator = problem.sparse_walk
        descent = Descent.of(operator, edge_source(operator.graph, rng), self.batch_size)
        U = descent.padded(problem.walk.enter(problem.resident_guess(rng)))
        U[descent.source.counts == 0] = 0  # no batch would ever move them
        state = DescentState(U, rng, step_size=self.step_size, descent=descent)
        if descent.batch_size < self.batch_size:
            state.events.append(
                f"batches of {descent.batch_size} edges: larger ones would touch too many nodes at once"
            )
        unseen = float(((1 - min(self.epochs, 1)) ** descent.source.counts).sum())
        if self.epochs < 1 and unseen >= 1:
            state.events.append(f"{self.epochs:g} passes over the edges miss about {unseen:.0f} nodes")
        return state

    def _check(self) -> None:
        if not 0 < self.epochs < np.inf:
            raise ValueError(f"epochs={self.epochs}: expected a positive number of passes over the edges")
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: at least one edge is needed")
        if not 0 < self.step_size < np.inf:
            raise ValueError(f"step_size={self.step_size}: expected a positive number")
        if self.finisher not in ("lanczos", "chebyshev"):
            raise ValueError(f"finisher={self.finisher!r}: expected 'lanczos' or 'chebyshev'")

    @property
    def _n_epochs(self) -> int:
        """Steps of the loop that are epochs, the last of which may be a part of one."""
        return math.ceil(min(self.epochs, self.max_iter))

    def _n_steps(self, descent: Descent) -> int:
        """Batches of all epochs."""
        return math.ceil(min(self.epochs, self.max_iter) * descent.n_batches)

    def step(self, problem: Problem, state: DescentState) -> DescentState:
        """One epoch; after the last one a step of the method that goes on."""
        if state.iteration >= self._n_epochs:
            return self._finishing_step(problem, state)
        self._epoch(problem, state)
        state.iteration += 1
        if state.iteration >= self.epochs and not self.hand_over:
            state.done = True
        return state

    def _epoch(self, problem: Problem, state: DescentState) -> None:
        """Mutates: the state, by one step per batch of all edges."""
        descent = state.descent
        assert descent is not None
        size, total = descent.batch_size, self._n_steps(descent)
        done = state.iteration * descent.n_batches
        for chunk in descent.source.chunks(state.iteration, max(1, EDGES_AT_ONCE // size) * size):
            n_batches = min(-(-len(chunk.heads) // size), total - done)
            if n_batches <= 0:
                break
            chunk = chunk.part(slice(n_batches * size))
            steps = state.step_size * (1 - np.arange(done, done + n_batches) / total)
            self._run(problem, state, chunk, steps)
            done += n_batches
            state.edges_seen += len(chunk.heads)
        if not np.isfinite(state.U).all():
            raise FloatingPointError("the step was too long")
        self._place_unlinked(problem, state)
        state.known = None

    def _run(self, problem: Problem, state: DescentState, chunk: EdgeChunk, steps: Array) -> None:
        """Mutates: the state, by a chunk's batches; goes on with a fresh M where it broke down."""
        descent = state.descent
        assert descent is not None
        while len(steps):
            fresh = state.known is None
            M, Y = state.known or self._measured(problem, state)
            done = descent.run(chunk, steps, state.U, M, Y)
            state.known_for += len(chunk.heads)
            far = state.known_for >= EDGES_PER_MEASUREMENT * problem.n_nodes
            state.known = None if far or done < len(steps) else (M, Y)
            skipped = max(done, int(fresh))  # a batch that breaks a fresh M is left out
            chunk = chunk.part(slice(skipped * descent.batch_size, None))
            steps = steps[skipped:] if done < len(steps) else steps[:0]

    def _measured(self, problem: Problem, state: DescentState) -> tuple[Array, Array]:
        """Mutates: U, to a root mean square of about one, orthonormal where it was near losing rank; M, Y."""
        descent, k = state.descent, problem.n_components
        assert descent is not None
        M, Y = descent.measured(problem.engine, state.U, k)
        if not np.isfinite(M).all():
            raise FloatingPointError("the step was too long")
        if not np.linalg.cond(M) < WORST_CONDITION:
            self._repair(problem, state)
            M, Y = descent.measured(problem.engine, state.U, k)
        factor = descent.shrunk(state.U, M)
        state.known_for = 0
        return M * factor**2, Y * factor

    def _repair(self, problem: Problem, state: DescentState) -> None:
        """Mutates: U, which becomes orthonormal: a right factor, which does not change the span."""
        Q, lost = problem.orthonormalize(self._pencil_rows(problem, state), state.rng)
        assert state.descent is not None
        state.U = state.descent.padded(problem.walk.enter(Q))
        state.events.append(f"epoch {state.iteration}: re-orthonormalised, {lost} lost directions replaced")

    def _place_unlinked(self, problem: Problem, state: DescentState) -> None:
        """Mutates: rows of nodes without edges, by a Jacobi step on the low-rank part, all that they have."""
        descent, operator = state.descent, problem.sparse_walk
        assert descent is not None
        unlinked = np.flatnonzero(descent.source.counts == 0)
        if not len(unlinked) or operator.low_rank is None:
            return
        U, Z = state.U, operator.low_rank.factors[unlinked]
        drawn = Z @ operator.low_rank.projected(U.astype(np.float64))
        U[unlinked] = (
            drawn / np.where(operator.diagonal[unlinked] > 0, operator.diagonal[unlinked], 1)[:, None]
        )

    def _finishing_step(self, problem: Problem, state: DescentState) -> DescentState:
        solver = self._finisher()
        if state.after is None:
            state.handed = replace(problem, start=self.finish(problem, state))
            state.after = solver.init(state.handed, state.rng)
            state.events.append(f"handed over to {solver.name} after {self.epochs:g} passes over the edges")
        assert state.handed is not None
        before = state.after.passes
        state.after = solver.step(state.handed, state.after)
        state.passes += state.after.passes - (0 if state.iteration == self._n_epochs else before)
        state.iteration += 1
        state.done = solver.terminate(state.handed, state.after)
        return state

    def _finisher(self) -> RitzSolver[Any]:
        return Lanczos(angle=self.angle) if self.finisher == "lanczos" else Chebyshev(angle=self.angle)

    def _pencil_rows(self, problem: Problem, state: DescentState) -> Array:
        """The rows without padding, in the problem's own coordinates and float64."""
        return np.asarray(problem.walk.leave(state.U[:, : problem.n_components].astype(np.float64)))

    def finish(self, problem: Problem, state: DescentState) -> Array:
        """An orthonormal basis, of the epochs or of the method that went on."""
        if state.after is not None:
            return np.asarray(self._finisher().finish(problem, state.after))
        return np.asarray(problem.orthonormalize(self._pencil_rows(problem, state)).Q)

    def progress(self, problem: Problem, state: DescentState) -> Progress:
        """Measured by a product during the epochs, known from the last step after them."""
        if state.after is None:
            return super().progress(problem, state)
        known = self._finisher().progress(problem, state.after)
        return replace(
            known,
            iteration=state.iteration,
            passes=state.passes,
            edges_seen=state.edges_seen,
            events=(*state.events, *state.after.events),
        )

    def copies_hold(self, state: DescentState) -> bool:
        """As those of the method that goes on."""
        return state.after is None or self._finisher().copies_hold(state.after)

    def evidence(self, problem: Problem, state: DescentState) -> Evidence:
        """That of the method that went on."""
        return Evidence() if state.after is None else self._finisher().evidence(problem, state.after)
