"""``sgd-paper``: the paper's algorithm, stochastic gradient descent with implicit orthogonality (Eqs. 8-19).

:class:`PaperMethod` has the settings and warnings, in memory and on torch; :class:`PaperSGD` is the solver in
memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import scipy.linalg as la

from spectrograd.kernels.simd import WIDTH
from spectrograd.operators.base import ALL
from spectrograd.solvers.base import Problem, Solver, StepState, StepT, halve_step
from spectrograd.solvers.minibatch import BatchSource, Deck, Draws, Sampling, check_edges
from spectrograd.typing import Array

PAPER_NODES = 10_000
MAX_VISITS = 4  # times that a batch may meet a node: 0.8 in the paper


@dataclass(frozen=True)
class PaperMethod(Solver[StepT]):
    """The parameters are those of :class:`~spectrograd.solvers.sgd_paper.PaperSGD`."""

    step_size: float = 1e-3
    batch_size: int = 4000
    max_iter: int = 500
    batch: Sampling = "edges"
    optimizer: Literal["amsgrad", "sgd"] = "amsgrad"
    beta1: float = 0.9
    beta2: float = 0.999
    gram_update: Literal["printed", "unique"] = "printed"
    replacement: bool = True
    redrawn: bool = True
    refresh: int = 100

    name: ClassVar[str] = "sgd-paper"
    report_every: ClassVar[int] = 50
    has_goal: ClassVar[bool] = False

    @classmethod
    def streamed_columns(cls, k: int) -> int:
        """Rows, three moments, and copies of both."""
        return 64

    def check_parameters(self) -> None:
        """Refuse what means nothing."""
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: at least one edge is needed")
        if self.optimizer not in ("amsgrad", "sgd"):
            raise ValueError(f"optimizer={self.optimizer!r}: expected 'amsgrad' or 'sgd'")
        if self.gram_update not in ("printed", "unique"):
            raise ValueError(f"gram_update={self.gram_update!r}: expected 'printed' or 'unique'")

    def advice(self, n_nodes: int) -> Iterator[str]:
        """Warnings where these settings mean something unexpected for so many nodes."""
        if n_nodes > PAPER_NODES:
            yield (
                f"the paper's settings are those of {PAPER_NODES:,} nodes, here are {n_nodes:,}: "
                "'sgd' is the form for every size"
            )
        # 2 b ends among N nodes
        met = 2 * self.batch_size / n_nodes
        if self.gram_update == "printed" and met > MAX_VISITS:
            yield (
                f"Eq. 19 as printed counts a node once per edge, here about {met:.0f} times per batch: "
                "gram_update='unique' counts it once"
            )

    @abstractmethod
    def forget_moments(self, state: StepT) -> None:
        """Mutates: the moments, which are zero again."""

    def back_off(self, problem: Problem, state: StepT) -> StepT | None:
        """Halve the step and forget the moments, which remember the explosion."""
        self.forget_moments(state)
        return halve_step(state)

    def refreshes(self, iteration: int) -> bool:
        """Whether M is computed afresh before that step; as printed it is what its updates made it."""
        return self.gram_update == "unique" and iteration % self.refresh == 0

    def steps_to_next_mark(self, iteration: int) -> int:
        """Steps from there to the next report, refreshment or the end; at least one."""
        marks = [(iteration // every + 1) * every for every in (self.report_every, self.refresh)]
        return max(1, min(self.max_iter, *marks) - iteration)


# --- The solver in memory.

EDGES_CHUNK = 1_000_000  # so that a time budget is kept


@dataclass(eq=False)
class PaperState(StepState):
    """``M = U'BU`` and ``Y = Z'U`` follow the rows that move; the moments belong to AMSGrad."""

    M: Array = field(default_factory=lambda: np.zeros((0, 0)))
    Y: Array = field(default_factory=lambda: np.zeros((0, 0)))
    moments: Array = field(default_factory=lambda: np.zeros((0, 0)))
    draws: Draws = field(default_factory=np.random.default_rng)


@dataclass(frozen=True)
class PaperSGD(PaperMethod[PaperState]):
    """Minimise ``J(U) = Tr(M^-1 U'AU)``, ``M = U'BU``, by mini-batches (Eqs. 8-19).

    At every step a batch ``S`` of edges gives ``A_S`` (Eq. 15) and the gradient
    ``2 (A_S U - B U M^-1 U'A_S U) M^-1``, of which only the rows of the batch are kept (the paper's
    restriction; see docs/adr/0001). ``M`` is updated from the rows that moved (Eq. 19).
    The settings are those of 10,000 nodes; ``sgd`` is the same idea for every size.

    Parameters
    ----------
    step_size, batch_size, max_iter
        The paper's settings: 1e-3, 4,000 and 500.
    batch
        ``"edges"`` independent edges, ``"nodes"`` the subgraph induced by random nodes,
        ``"blocks"`` runs of neighbouring edges.
    optimizer
        ``"amsgrad"`` (Reddi et al. 2018) or ``"sgd"``, which needs a larger step (about 0.1).
    beta1, beta2
        How much AMSGrad keeps of its first and second moments.
    gram_update
        ``"printed"``: Eq. 19, which counts a vertex once per edge of the batch, so that M is not U'BU.
        ``"unique"``: each vertex once, and M computed afresh every ``refresh`` steps.
    refresh
        Steps between two computations of M with ``gram_update="unique"``.
    replacement
        False goes through all edges (nodes, blocks) before any comes again.
    redrawn
        False cuts the edges into batches once and repeats those, what the paper warns of.
    """

    requires = ALL

    def check(self, problem: Problem) -> None:
        """A graph on disk will do, for its edges are kept in random order too."""
        check_edges(self.name, self.requires, problem)

    def init(self, problem: Problem, rng: np.random.Generator) -> PaperState:
        """Start from an orthonormal random basis and compute ``M_0`` in full (Eq. 18)."""
        self.check_parameters()
        U = problem.resident_guess(rng).astype(np.float32)
        if problem.operator.is_streamed:
            U[np.diff(problem.single_batches.indptr) == 0] = 0  # no batch would ever move them
        rows = len(U) if self.optimizer == "amsgrad" else 0
        # m, v and vhat of AMSGrad side by side: (N, 3 K), or three registers per row
        columns = WIDTH if self._in_lanes(problem) else U.shape[1]
        moments = np.zeros((rows, 3 * columns), np.float32)
        state = PaperState(U, rng, moments=moments, step_size=self.step_size * problem.row_unit)
        state.draws = rng if self.replacement and self.redrawn else Deck(rng, redrawn=self.redrawn)
        state.events.extend(self.advice(len(U)))
        return self._refresh(problem, state)

    def step(self, problem: Problem, state: PaperState) -> PaperState:
        """One mini-batch (Eq. 10), or all up to the next report where they fit one compiled call."""
        if self.refreshes(state.iteration):
            self._refresh(problem, state)
        if self._in_lanes(problem):
            return self._iterations(problem, state)
        source = problem.single_batches
        # 1. draw the batch S (Eq. 14)
        batch = source.sampler(self.batch)(self.batch_size, state.draws)
        state.iteration += 1
        state.edges_seen += batch.n_edges
        if batch.n_edges == 0:  # random nodes without a common edge
            return state
        # 2. M^-1 by Cholesky (Eqs. 6, 7)
        inverse = self._inverse_gram(problem, state)
        # 3. A_S U and U'A_S U (Eqs. 15 to 17), and P = M^-1 U'A_S U M^-1
        G, H = source.gradient(batch, state.U, state.Y, projected=True)
        P = inverse @ H @ inverse
        # 4. move the rows of the batch along the gradient (Eq. 10)
        before = state.U[batch.vertices].astype(np.float64)
        dM, dY = source.move(
            batch,
            G,
            state.U,
            np.full(len(batch.vertices), state.step_size),
            small=(2 * inverse, P + P.T),  # the gradient's factor 2
            moments=(state.moments, np.array([self.beta1, self.beta2])),
        )
        # 5. M by Eq. 19 as printed, which counts a vertex once per edge that meets it
        if self.gram_update == "printed":
            weights = (source.metric[batch.vertices] * batch.times_met)[:, None]
            moved = state.U[batch.vertices].astype(np.float64)
            dM = moved.T @ (weights * moved) - before.T @ (weights * before)
        state.M += dM
        state.Y += dY
        return state

    def _in_lanes(self, problem: Problem) -> bool:
        """Whether the kernel that keeps a row in registers can be used: the paper's own settings."""
        if problem.operator.is_streamed:
            return False
        return self.batch == "edges" and self.optimizer == "amsgrad" and problem.n_components <= WIDTH

    def _iterations(self, problem: Problem, state: PaperState) -> PaperState:
        source = problem.single_batches
        assert isinstance(source, BatchSource)  # in memory, see ``_in_lanes``
        count = min(self.steps_to_next_mark(state.iteration), max(1, EDGES_CHUNK // self.batch_size))
        # in ascending order edges are read once through the memory; their order in a batch means nothing
        short = np.int32 if source.n_entries < 2**31 else np.int64  # sorts faster
        drawn = state.draws.integers(0, source.n_entries, (count, self.batch_size), dtype=short)
        positions = np.sort(drawn, axis=1)
        settings = (state.step_size, self.beta1, self.beta2, float(self.gram_update == "printed"))
        # Steps 1 to 5 of all batches up to the next report, in one compiled call.
        done = source.iterate(positions, state.U, state.M, state.Y, state.moments, settings)
        if done == 0:
            self._repair(problem, state)
        state.iteration += done
        state.edges_seen += done * self.batch_size
        return state

    def _inverse_gram(self, problem: Problem, state: PaperState) -> Array:
        """``M^-1`` by Cholesky and triangular solves; a failing M is measured afresh and counted."""
        try:
            # M = R'R (Eq. 6); a tiny pivot is a direction that U has nearly lost
            R = la.cholesky(state.M, check_finite=False)
            diagonal = np.abs(np.diag(R))
            if diagonal.min() > 1e-7 * diagonal.max():
                return np.asarray(la.cho_solve((R, False), np.eye(len(R)), check_finite=False))
        except la.LinAlgError:
            pass
        return self._repair(problem, state)

    def _repair(self, problem: Problem, state: PaperState) -> Array:
        """Re-orthonormalise; the new ``M^-1`` is the identity."""
        if not np.isfinite(state.U).all():
            raise FloatingPointError("the step was too long")  # the loop backs off
        state.U = problem.orthonormalize(state.U, state.rng).Q
        state.events.append(f"iteration {state.iteration}: M was ill-conditioned, re-orthonormalised")
        self._refresh(problem, state)
        return np.eye(len(state.M))

    def _refresh(self, problem: Problem, state: PaperState) -> PaperState:
        """Recompute M and Y in full against drift."""
        state.M = problem.gram(state.U, state.U)
        state.Y = problem.single_batches.low_rank_product(problem.engine, state.U)
        return state

    def forget_moments(self, state: PaperState) -> None:
        """Mutates: the moments, in arrays of their own."""
        state.moments = np.zeros_like(state.moments)
