"""``multilevel``: solve on a small copy of the graph, refine on the way back up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import scipy.linalg as la

from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.graph import Graph
from spectrograd.linalg.chebyshev_filter import Filter
from spectrograd.linalg.multigrid import COARSEST_NODES, MAX_DENSE_NODES, Cycle, Level, build
from spectrograd.operators.base import ALL
from spectrograd.operators.sparse import SparseOperator
from spectrograd.serialization.codec import DERIVED
from spectrograd.solvers.base import Problem
from spectrograd.solvers.chebyshev import Chebyshev
from spectrograd.solvers.lobpcg import LobpcgState, advance, begin
from spectrograd.solvers.ritz import RitzSolver, guarded_width, ritz_pairs
from spectrograd.typing import Array

HIERARCHY_BYTES_PER_ENTRY = 24  # all coarser levels together, about


@dataclass(eq=False)
class MultilevelState(LobpcgState):
    """Adds the hierarchy's cycle, which is the preconditioner."""

    cycle: Cycle | None = field(default=None, metadata={DERIVED: True})


@dataclass(frozen=True)
class Multilevel(RitzSolver[MultilevelState]):
    """Multilevel eigensolver: heavy-edge coarsening (Karypis and Kumar 1998), then refinement.

    Definition: pair each vertex with the neighbour it is tied to most, join pairs until some hundred
    vertices are left, with ``P'AP`` and ``P'BP`` as the coarse pencil; solve that exactly; take the vectors
    up level by level, smoothing the steps away with a Chebyshev filter of low degree and Rayleigh-Ritz;
    at the top, LOBPCG preconditioned by a multigrid cycle over the same levels until it is good enough.
    Meaning: clusters are large structures, and large structures survive coarsening.

    Cost: ``O(nonzeros)``: all coarse levels together cost about as much as the finest. For geometric
    graphs (k-NN, meshes, roads), whatever the size and the gap. The wrong tool for expanders (block
    models, social graphs): coarse graphs do not get sparser; use ``lanczos`` or ``chebyshev``.

    Parameters
    ----------
    degree
        Degree of the filter on the way up.
    gamma
        1 is the V-cycle, 2 the K-cycle: dearer, and independent of the number of levels.
    guard
        Extra columns; None fills up to a multiple of 8.
    coarsest
        Vertices at which to stop.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    """

    degree: int = 6
    gamma: int = 2
    guard: int | None = None
    coarsest: int = COARSEST_NODES
    angle: float = 0.0
    max_iter: int = 100

    name: ClassVar[str] = "multilevel"
    requires = ALL
    localization_check_at = 1

    @classmethod
    def extra_bytes(cls, graph: Graph) -> int:
        """The coarser graphs, and what is prolonged between them."""
        return HIERARCHY_BYTES_PER_ENTRY * graph.n_entries

    def init(self, problem: Problem, rng: np.random.Generator) -> MultilevelState:
        """Coarsen, solve, and come back up; a warm start joins the block at the top."""
        operator = problem.sparse.random_walk_form().astype(np.float64)
        if operator.metric is None:
            operator = replace(operator, metric=np.ones(operator.n_nodes))
        # 1. the hierarchy, and the cycle over it, which is the preconditioner of every step
        width = guarded_width(problem, self.guard)
        levels = build(operator, max(self.coarsest, 4 * width))
        cycle = Cycle(problem.engine, levels, gamma=self.gamma)
        state = MultilevelState(np.empty((0, 0)), rng, cycle=cycle, precondition=cycle)
        # 2. up through the levels
        block = self._ascend(problem, levels, width, state)
        if problem.start is not None:
            # the start and the prolonged block together: Rayleigh-Ritz takes the best of both
            start = problem.random_walk.transform(np.asarray(problem.start, dtype=np.float64))
            both = np.hstack([np.where(np.isfinite(start), start, 0), block])
            block = np.ascontiguousarray(both[:, : problem.n_nodes])  # more are never independent
        # 3. Rayleigh-Ritz at the top: the first state of LOBPCG
        begin(problem, operator, state, block)
        if problem.start is not None:
            _trim(state, width)
        return state

    def _ascend(self, problem: Problem, levels: list[Level], width: int, state: MultilevelState) -> Array:
        """The block of the finest level: solved on the coarsest, prolonged and filtered on the way up."""
        # 1. the coarsest level: LAPACK, or a few filters where it is still large
        coarse = levels[-1].operator
        assert coarse.metric is not None
        if coarse.n_nodes <= MAX_DENSE_NODES:
            block = la.eigh(coarse.to_dense(), np.diag(coarse.metric), subset_by_index=(0, width - 1))[1]
        else:  # an expander: its coarse graphs do not get sparser, so coarsening stopped early
            state.events.append(f"coarsening stopped at {coarse.n_nodes} nodes: not a geometric graph")
            filters = Chebyshev(guard=0)
            small = Problem(coarse, width, problem.engine)
            rough = filters.init(small, state.rng)
            for _ in range(3):
                rough = filters.step(small, rough)
            state.matvecs += rough.matvecs * coarse.graph.n_entries / max(1, problem.sparse.graph.n_entries)
            block = rough.block
        # 2. level by level: prolong, filter, Rayleigh-Ritz
        for depth in range(len(levels) - 2, -1, -1):
            level = levels[depth]
            block = np.ascontiguousarray(level.prolong(block), dtype=np.float32)
            block = self._filter(problem, level.operator, block)
            # products of a coarse level count by its share of the entries
            share = level.operator.graph.n_entries / max(1, problem.sparse.graph.n_entries)
            state.matvecs += (self.degree + 1) * width * share
            # at the top ``begin`` does it
            if depth > 0:
                ritz, _, _ = ritz_pairs(problem.engine, level.operator, block, state.rng)
                block = ritz.Q
        return np.asarray(block, dtype=np.float64)

    def _filter(self, problem: Problem, operator: SparseOperator, block: Array) -> Array:
        """Damp what piecewise constant prolongation adds to a block."""
        width = operator.upper - operator.lower
        cut = operator.lower + 0.1 * width  # it lies in the upper part of the spectrum
        return np.asarray(Filter(self.degree, cut, operator.upper).apply(problem.engine, operator, block))

    def step(self, problem: Problem, state: MultilevelState) -> MultilevelState:
        """One preconditioned LOBPCG step on the finest level."""
        assert state.cycle is not None
        state.cycle.columns = 0.0  # of this step
        operator = problem.sparse.random_walk_form().astype(np.float64)
        columns = advance(problem, operator, state)
        self.account(problem, state, columns + state.cycle.columns)
        return state

    def terminate(self, problem: Problem, state: MultilevelState) -> bool:
        """Whether the angle is met."""
        return self.angle_is_met(problem, state)

    def evidence(self, problem: Problem, state: MultilevelState) -> Evidence:
        """The first value beyond the result, and the guard vectors."""
        return self.guard_evidence(problem, state)


def _trim(state: MultilevelState, width: int) -> None:
    """Back to the usual width after a start had joined."""
    state.values = state.values[:width]
    state.residuals = state.residuals[:width]
    state.Q, state.AQ = (np.ascontiguousarray(X[:, :width]) for X in (state.Q, state.AQ))
    state.H = np.diag(state.values)
    state.R = np.ascontiguousarray(state.R[:, :width])
    state.block = state.Q
