"""``sgd``: the paper's stochastic gradient descent, with an unbiased gradient so that it works at every size.

:class:`Descent` holds what a run reads (the operator in random-walk form, its edges in random order, numbers
per node) and calls the kernel. :class:`UnbiasedSGD` is the solver: epochs, measurements of ``M = U'BU``, and
recovery when M loses rank. The polishing after the epochs is that of :mod:`spectrograd.solvers.sgd_base`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from spectrograd.engines.base import Engine, new_seed
from spectrograd.kernels import LANES
from spectrograd.kernels.jit import ahead, has_several_threads
from spectrograd.kernels.minibatch import group_batches
from spectrograd.kernels.sgd import METRIC, PUSH, ROW_TERM, SHARE, descend
from spectrograd.operators.base import ALL
from spectrograd.operators.sparse import SparseOperator
from spectrograd.serialization.codec import DERIVED
from spectrograd.solvers.base import Problem
from spectrograd.solvers.minibatch import EdgeChunk, EdgeSource, check_edges, edge_source
from spectrograd.solvers.sgd_base import SGDBase, SGDBaseState
from spectrograd.typing import Array

# A batch has at most a 256th of the edges: at a 64th one start in three needs another pass, at a 10th
# nothing is learnt, for q_i has to stay well below one. But U'A_S U is an average over the batch, so small
# graphs may take up to a 64th for enough edges of it.
BATCHES_PER_EPOCH = 256
MIN_BATCHES_PER_EPOCH = 64
MIN_BATCH_EDGES = 256
# Products of a batch (edges times columns squared) from which its rows are worth sharing among threads, who
# wait for each other three times per batch. Below it the other threads group the edges to come.
THREADS_THRESHOLD = 1 << 21
EDGES_CHUNK = 1 << 18  # what is grouped at once takes 24 bytes per edge

NO_WEIGHTS = np.empty(0, np.float32)


class BatchGroups(NamedTuple):
    """Batches of some edges, as :func:`group_batches` leaves them."""

    n_edges: int
    arrays: tuple[Array, ...]

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return len(self.arrays[0])

    def part(self, which: slice, batch_size: int) -> BatchGroups:
        """Some of these batches."""
        edges = range(0, self.n_edges, batch_size)[which]
        n_edges = sum(min(batch_size, self.n_edges - first) for first in edges)
        return BatchGroups(n_edges, tuple(array[which] for array in self.arrays))


@dataclass(frozen=True, eq=False)
class Descent:
    """An operator ready for :func:`descend`: all numbers float32 and near one, whatever the weights are.

    ``A`` is divided by ``weight_unit`` and ``B`` by ``mass_unit``, powers of two: directions, which is all
    that a step takes from them, do not change.

    Attributes
    ----------
    nodes
        Of every node the row term, the metric, the push (1 / q_i) and the share (1 / number of edges),
        side by side as they are read: (N, 4).
    metric
        The second column by itself, shape (N,).
    low_rank
        ``Z`` of shape (N, r) and ``a`` of shape (r,).
    """

    source: EdgeSource
    batch_size: int
    nodes: Array
    metric: Array
    low_rank: tuple[Array, Array]
    weight_unit: float
    total_mass: float

    @classmethod
    def of(cls, operator: SparseOperator, source: EdgeSource, batch_size: int) -> Descent:
        """Prepare an operator in random-walk form."""
        assert operator.scale is None, "bring the operator to random_walk_form() first"
        # 1. a batch that is a small share of the edges
        counts = source.counts
        n_edges = source.n_edges
        batch_size = effective_batch(batch_size, n_edges)
        # 2. units:
        # powers of two as units: no digit is lost, and float32 does not overflow
        degrees = operator.graph.degrees
        weight_unit = power_of_two(float(degrees.sum()) / max(1, counts.sum()))
        metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
        mass = np.asarray(metric / power_of_two(float(metric.mean())), dtype=np.float32)
        low_rank = operator.low_rank
        factors = np.zeros((operator.n_nodes, 0)) if low_rank is None else low_rank.factors
        size = power_of_two(float(np.abs(factors).max(initial=0.0)))
        coefficients = np.zeros(0) if low_rank is None else low_rank.coefficients * size**2 / weight_unit
        # 3. numbers per node (N x 4):
        # what a step reads of a node lies in one line of the cache
        nodes = np.empty((operator.n_nodes, 4), np.float32)
        nodes[:, ROW_TERM] = operator.row_term / weight_unit
        nodes[:, METRIC] = mass
        nodes[:, PUSH] = pushes(counts, batch_size / n_edges)
        nodes[:, SHARE] = 1 / np.maximum(counts, 1)
        Z = np.ascontiguousarray(factors / size, dtype=np.float32)
        return cls(
            source, batch_size, nodes, mass, (Z, coefficients), weight_unit, float(mass.sum(dtype=np.float64))
        )

    @property
    def n_batches(self) -> int:
        """Steps per epoch."""
        return -(-self.source.n_edges // self.batch_size)

    def pad_rows(self, U: Array) -> Array:
        """Rows of float32, of root mean square about one, padded to whole lanes: (N, 8 ceil(K/8))."""
        rows = np.zeros((len(U), -(-U.shape[1] // LANES) * LANES), np.float32)
        # columns beyond K stay zero: kernels work on whole registers
        rows[:, : U.shape[1]] = U
        rows *= np.float32(1 / power_of_two(float(np.sqrt(np.vdot(U, U) / U.size))))
        return rows

    def measure(self, engine: Engine, U: Array, n_columns: int) -> tuple[Array, Array]:
        """``M = U'BU`` (K x K) and ``Y = Z'U`` (r x K) in float64, from all rows."""
        # padded columns are zero: the leading K x K block is all there is
        M = engine.gram(U, U, self.metric)
        Y = engine.gram(self.low_rank[0], U, None)
        return M[:n_columns, :n_columns].copy(), Y[:, :n_columns].copy()

    def shrink(self, U: Array, M: Array) -> float:
        """Mutates: U, so that its root mean square is about one again; the exact factor (a power of two)."""
        factor = 1 / power_of_two(float(np.sqrt(np.trace(M) / (len(M) * self.total_mass))))
        if factor != 1:
            U *= np.float32(factor)
        return factor

    def groups(self, epoch: int, n_columns: int) -> Iterator[BatchGroups]:
        """Iterate over all edges in the random order of that epoch, in batches that are grouped by vertex."""
        shared = self._uses_threads(n_columns)
        at_once = EDGES_CHUNK if shared else EDGES_CHUNK // 4  # the first of them nobody can group ahead
        chunks = self.source.chunks(epoch, max(1, at_once // self.batch_size) * self.batch_size)
        if shared:
            return (self.group_chunk(chunk, group_batches) for chunk in chunks)
        return ahead(self.group_chunk(chunk) for chunk in chunks)

    def group_chunk(self, chunk: EdgeChunk, group: Callable[..., Any] = group_batches.serial) -> BatchGroups:
        """The batches of a chunk, grouped by vertex."""
        weights = NO_WEIGHTS if chunk.weights is None else chunk.weights / np.float32(self.weight_unit)
        return BatchGroups(len(chunk.heads), group(chunk.heads, chunk.tails, weights, self.batch_size))

    def run(self, groups: BatchGroups, steps: Array, U: Array, M: Array, Y: Array) -> int:
        """Mutates: U, M and Y, by a step per batch; how many were done before M broke down or outgrew.

        Parameters
        ----------
        groups
            Batches, grouped by vertex.
        steps : array of shape (n_batches,)
            Length of each batch's steps.
        U : array of shape (N, 8 ceil(K / 8))
        M, Y : arrays of shape (K, K) and (r, K)
        """
        step = descend if self._uses_threads(U.shape[1]) else descend.serial
        return int(step(groups.arrays, self.nodes, self.low_rank, steps, self.total_mass, U, M, Y))

    def _uses_threads(self, n_columns: int) -> bool:
        """Whether the rows of a batch are worth sharing among threads, where there are several."""
        return self.batch_size * n_columns**2 >= THREADS_THRESHOLD and has_several_threads()


def effective_batch(batch_size: int, n_edges: int) -> int:
    """The batch in use: a small part of the edges, so that rows are not in every batch."""
    enough = min(n_edges // MIN_BATCHES_PER_EPOCH, MIN_BATCH_EDGES)
    return max(1, min(batch_size, max(n_edges // BATCHES_PER_EPOCH, enough)))


def pushes(counts: Array, share: float) -> Array:
    """``1 / q_i``: q_i is the chance that a batch with this share of the edges meets a node.

    One (the full gradient) where a batch holds all edges; nodes without edges never move and get one too.
    """
    if share >= 1:
        return np.ones(len(counts))
    # q_i = 1 - (1 - share)^count_i, without cancellation for small shares
    q = -np.expm1(np.maximum(counts, 1) * np.log1p(-share))
    return np.where(counts > 0, 1 / q, 1.0)


def power_of_two(x: float) -> float:
    """The power of two below a positive number, one for others: dividing by it costs no digit."""
    return float(2.0 ** np.floor(np.log2(x))) if 0 < x < np.inf else 1.0


# --- The solver: epochs over the edges, measurements of M, recovery.

# M is measured afresh after so many edges per node: a fifth of a row is then measured per edge, however
# large the graph, and rows, which double at each of ten visits, stay far from the largest float32.
EDGES_PER_MEASUREMENT = 5
JACOBI_DAMPING = 2 / 3  # of a Jacobi step: all of it would keep what alternates between neighbours
MAX_CONDITION = 1e4  # of M; runs that go well stay below ten


@dataclass(eq=False)
class DescentState(SGDBaseState):
    """``U`` holds rows of float32 in random-walk form, padded to whole lanes; the rest belongs to the epochs.

    ``known`` are M and Y, kept from batch to batch for ``known_for`` edges now; None where U moved otherwise.
    """

    descent: Descent | None = field(default=None, metadata={DERIVED: True})
    known: tuple[Array, Array] | None = None
    known_for: int = 0

    def __deepcopy__(self, memo: dict[int, object]) -> DescentState:
        twin = copy.copy(self)  # the edges are shared
        twin.U = self.U.copy()
        twin.events = list(self.events)
        twin.after = copy.deepcopy(self.after, memo)
        twin.known = copy.deepcopy(self.known, memo)
        twin.rng = copy.deepcopy(self.rng, memo)
        return twin


@dataclass(frozen=True)
class UnbiasedSGD(SGDBase[DescentState]):
    """Minimise ``J(U) = Tr(M^-1 U'AU)``, ``M = U'BU``, by mini-batches with an unbiased gradient.

    Definition: for a batch ``S`` of edges (Eq. 15) the rows that it touches move along
    ``g_i = (A_S U)_i M^-1 - b_i u_i (M^-1 U'A_S U M^-1) / q_i`` by ``s sqrt(Tr M / sum b)``, where q_i is the
    chance that a batch touches row i. Meaning: the paper's step without its drift towards zero
    (docs/methods/sgd.md), of one length for all rows, which needs no moments and no scale.

    An epoch reads every edge once, in random order; a few of them find clear clusters on graphs of any size.
    The noise of the last steps leaves an angle of about .1: for digits ask for ``polish``.

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
    averaging
        Bring every row two thirds of the way to the mean of its neighbours after the epochs: one pass
        more, which takes out most of the noise that the last steps leave. Not before a polish.
    polish
        Go on with another method from the subspace found, until the angle or the tolerance asked for is met.
    polish_solver
        That method: ``"lanczos"`` (block Krylov, the fewest passes) or ``"chebyshev"`` (the least memory).
    angle
        Bound on the sine of the subspace angle after the polish; 0 leaves stopping to the loop.
    """

    averaging: bool = False

    name: ClassVar[str] = "sgd"
    requires = ALL

    @classmethod
    def streamed_columns(cls, k: int) -> int:
        """Rows, padded to whole lanes; the same in the problem's coordinates; and the next epoch's."""
        return 3 * (k + -k % LANES)

    def check(self, problem: Problem) -> None:
        """A graph on disk will do, for its edges are kept in random order too."""
        check_edges(self.name, self.requires, problem)

    def init(self, problem: Problem, rng: np.random.Generator) -> DescentState:
        """Start from an orthonormal random basis, or the warm start, in random-walk form."""
        self.check_parameters()
        operator = problem.sparse_random_walk
        descent = Descent.of(operator, edge_source(operator.graph, rng), self.batch_size)
        if problem.start is None and operator.is_streamed:  # memory has no space for a basis in float64
            size = (problem.n_nodes, problem.n_components)
            U = descent.pad_rows(np.asarray(problem.engine.random(*size, new_seed(rng), np.float32)))
        else:
            U = descent.pad_rows(problem.random_walk.transform(problem.resident_guess(rng)))
        U[descent.source.counts == 0] = 0  # no batch would ever move them
        state = DescentState(U, rng, step_size=self.step_size, descent=descent)
        self.note_batches(state, descent.source.counts, descent.batch_size)
        return state

    def _average(self, problem: Problem, state: DescentState) -> None:
        """Mutates: all rows, by a Jacobi step."""
        assert state.descent is not None
        rows = self._pencil_rows(problem, state)
        diagonal = problem.sparse.diagonal[:, None]
        # U <- U - omega D^-1 A U, damped (Saad 2003, 4.1)
        correction = np.asarray(problem.apply(rows)) / np.where(diagonal > 0, diagonal, 1)
        state.U = state.descent.pad_rows(problem.random_walk.transform(rows - JACOBI_DAMPING * correction))
        state.matvecs += problem.n_components

    def epoch(self, problem: Problem, state: DescentState) -> None:
        """Mutates: the state, by one step per batch of all edges; the last epoch is averaged if asked for."""
        descent = state.descent
        assert descent is not None
        total = self.n_steps(descent.n_batches)
        done = state.iteration * descent.n_batches
        # One step per batch, over all edges in the random order of this epoch; the step falls to zero.
        for groups in descent.groups(state.iteration, state.U.shape[1]):
            if done >= total:
                break
            # a run of 2.5 epochs ends in the middle of an epoch
            groups = groups.part(slice(total - done), descent.batch_size)
            steps = state.step_size * (1 - np.arange(done, done + groups.n_batches) / total)
            self._run(problem, state, groups, steps)
            done += groups.n_batches
            state.edges_seen += groups.n_edges
        # one small matrix instead of a look at all N x K numbers
        if not np.isfinite(problem.engine.gram(state.U, state.U)).all():
            raise FloatingPointError("the step was too long")
        self._place_unlinked(problem, state)
        state.known = None
        if self.averaging and not self.polish and state.iteration + 1 == self.n_epochs:
            self._average(problem, state)

    def _run(self, problem: Problem, state: DescentState, groups: BatchGroups, steps: Array) -> None:
        """Mutates: the state, by some batches; goes on with a fresh M where it broke down."""
        descent = state.descent
        assert descent is not None
        while groups.n_batches:
            # 1. M and Y: kept from the last groups, or measured from all rows
            fresh = state.known is None
            M, Y = state.known or self._measure(problem, state)
            # 2. a step per batch (docs/method.md, "The unbiased form"), until M loses its Cholesky factor
            done = descent.run(groups, steps, state.U, M, Y)
            state.known_for += groups.n_edges
            # 3. measure again after some edges per node, or where M broke down: rounding has drifted
            is_due = state.known_for >= EDGES_PER_MEASUREMENT * problem.n_nodes
            is_broken = done < groups.n_batches
            state.known = None if is_due or is_broken else (M, Y)
            skipped = max(done, int(fresh))  # a batch that breaks a fresh M is left out
            groups = groups.part(slice(skipped, None), descent.batch_size)
            steps = steps[skipped:]

    def _measure(self, problem: Problem, state: DescentState) -> tuple[Array, Array]:
        """Mutates: U, to a root mean square of about one, orthonormal where it was near losing rank; M, Y."""
        descent = state.descent
        k = problem.n_components
        assert descent is not None
        M, Y = descent.measure(problem.engine, state.U, k)
        if not np.isfinite(M).all():
            raise FloatingPointError("the step was too long")
        if not np.linalg.cond(M) < MAX_CONDITION:
            self._repair(problem, state)
            M, Y = descent.measure(problem.engine, state.U, k)
        # M scales with the square of U, Y with U.
        factor = descent.shrink(state.U, M)
        state.known_for = 0
        return M * factor**2, Y * factor

    def _repair(self, problem: Problem, state: DescentState) -> None:
        """Mutates: U, which becomes orthonormal: a right factor, which does not change the span."""
        Q, lost = problem.orthonormalize(self._pencil_rows(problem, state), state.rng)
        assert state.descent is not None
        state.U = state.descent.pad_rows(problem.random_walk.transform(Q))
        state.events.append(f"epoch {state.iteration}: re-orthonormalised, {lost} lost directions replaced")

    def _place_unlinked(self, problem: Problem, state: DescentState) -> None:
        """Mutates: rows of nodes without edges, by a Jacobi step on the low-rank part, all that they have."""
        descent = state.descent
        operator = problem.sparse_random_walk
        assert descent is not None
        unlinked = np.flatnonzero(descent.source.counts == 0)
        if not len(unlinked) or operator.low_rank is None:
            return
        U = state.U
        low_rank = operator.low_rank
        factors = np.ascontiguousarray(low_rank.factors, dtype=U.dtype)
        drawn = low_rank.factors[unlinked] @ (
            low_rank.coefficients[:, None] * problem.engine.gram(factors, U)
        )
        # the row at which a_ii u_i = z_i diag(a) Z'U: no edge pulls at it
        U[unlinked] = (
            drawn / np.where(operator.diagonal[unlinked] > 0, operator.diagonal[unlinked], 1)[:, None]
        )

    def _pencil_rows(self, problem: Problem, state: DescentState) -> Array:
        """The rows without padding, in the problem's own coordinates; float64 where the graph is resident."""
        dtype = np.float32 if problem.operator.is_streamed else np.float64
        rows = np.ascontiguousarray(state.U[:, : problem.n_components], dtype=dtype)
        return np.asarray(problem.random_walk.inverse_transform(rows.copy() if rows is state.U else rows))

    def basis(self, problem: Problem, state: DescentState) -> Array:
        """An orthonormal basis of the present rows."""
        return np.asarray(problem.orthonormalize(self._pencil_rows(problem, state)).Q)
