"""What the repaired SGD reads and moves: an operator in walk form, its edges, one block of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine
from spectrograd.kernels import LANES
from spectrograd.kernels.batches.groups import group_batches
from spectrograd.kernels.batches.rows import METRIC, PUSH, ROW_TERM, SHARE, descend
from spectrograd.kernels.threads import ahead, several
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.edge_source import EdgeChunk, EdgeSource

Array = NDArray[Any]
# A batch has at most a 256th of the edges: at a 64th one start in three needs another pass, at a 10th
# nothing is learnt, for q_i has to stay well below one. But U'A_S U is an average over the batch, so small
# graphs may take up to a 64th for enough edges of it.
PARTS, FEWEST_PARTS, ENOUGH_EDGES = 256, 64, 256
# Products of a batch (edges times columns squared) from which its rows are worth sharing among threads, who
# wait for each other three times per batch. Below it the other threads group the edges to come.
WORTH_THREADS = 1 << 21
EDGES_AT_ONCE = 1 << 18  # what is grouped at once takes 24 bytes per edge

NO_WEIGHTS = np.empty(0, np.float32)


class Groups(NamedTuple):
    """Batches of some edges, as :func:`group_batches` leaves them."""

    n_edges: int
    arrays: tuple[Array, ...]

    @property
    def n_batches(self) -> int:
        """How many there are."""
        return len(self.arrays[0])

    def part(self, which: slice, batch_size: int) -> Groups:
        """Some of these batches."""
        edges = range(0, self.n_edges, batch_size)[which]
        n_edges = sum(min(batch_size, self.n_edges - first) for first in edges)
        return Groups(n_edges, tuple(array[which] for array in self.arrays))


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
        """Prepare an operator in walk form."""
        assert operator.scale is None, "bring the operator to walk_form() first"
        counts, n_edges = source.counts, source.n_edges
        batch_size = effective_batch(batch_size, n_edges)
        degrees = operator.graph.degrees
        weight_unit = power_of_two(float(degrees.sum()) / max(1, counts.sum()))
        metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
        mass = np.asarray(metric / power_of_two(float(metric.mean())), dtype=np.float32)
        low_rank = operator.low_rank
        factors = np.zeros((operator.n_nodes, 0)) if low_rank is None else low_rank.factors
        size = power_of_two(float(np.abs(factors).max(initial=0.0)))
        coefficients = np.zeros(0) if low_rank is None else low_rank.coefficients * size**2 / weight_unit
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

    def padded(self, U: Array) -> Array:
        """Rows of float32, of root mean square about one, padded to whole lanes: (N, 8 ceil(K/8))."""
        rows = np.zeros((len(U), -(-U.shape[1] // LANES) * LANES), np.float32)
        rows[:, : U.shape[1]] = U
        rows *= np.float32(1 / power_of_two(float(np.sqrt(np.vdot(U, U) / U.size))))
        return rows

    def measured(self, engine: Engine, U: Array, n_columns: int) -> tuple[Array, Array]:
        """``M = U'BU`` (K x K) and ``Y = Z'U`` (r x K) in float64, from all rows."""
        M, Y = engine.gram(U, U, self.metric), engine.gram(self.low_rank[0], U, None)
        return M[:n_columns, :n_columns].copy(), Y[:, :n_columns].copy()

    def shrunk(self, U: Array, M: Array) -> float:
        """Mutates: U, so that its root mean square is about one again; the exact factor (a power of two)."""
        factor = 1 / power_of_two(float(np.sqrt(np.trace(M) / (len(M) * self.total_mass))))
        if factor != 1:
            U *= np.float32(factor)
        return factor

    def groups(self, epoch: int, n_columns: int) -> Iterator[Groups]:
        """All edges in the random order of that epoch, in batches that are grouped by vertex."""
        shared = self._shared(n_columns)
        at_once = EDGES_AT_ONCE if shared else EDGES_AT_ONCE // 4  # the first of them nobody can group ahead
        chunks = self.source.chunks(epoch, max(1, at_once // self.batch_size) * self.batch_size)
        if shared:
            return (self.grouped(chunk, group_batches) for chunk in chunks)
        return ahead(self.grouped(chunk) for chunk in chunks)

    def grouped(self, chunk: EdgeChunk, group: Callable[..., Any] = group_batches.serial) -> Groups:
        """The batches of a chunk, grouped by vertex."""
        weights = NO_WEIGHTS if chunk.weights is None else chunk.weights / np.float32(self.weight_unit)
        return Groups(len(chunk.heads), group(chunk.heads, chunk.tails, weights, self.batch_size))

    def run(self, groups: Groups, steps: Array, U: Array, M: Array, Y: Array) -> int:
        """Mutates: U, M and Y, by a step per batch; how many were done before M broke down or outgrew."""
        step = descend if self._shared(U.shape[1]) else descend.serial
        return int(step(groups.arrays, self.nodes, self.low_rank, steps, self.total_mass, U, M, Y))

    def _shared(self, n_columns: int) -> bool:
        """Whether the rows of a batch are worth sharing among threads, where there are several."""
        return self.batch_size * n_columns**2 >= WORTH_THREADS and several()


def effective_batch(batch_size: int, n_edges: int) -> int:
    """The batch in use: a small part of the edges, so that rows are not in every batch."""
    enough = min(n_edges // FEWEST_PARTS, ENOUGH_EDGES)
    return max(1, min(batch_size, max(n_edges // PARTS, enough)))


def pushes(counts: Array, share: float) -> Array:
    """``1 / q_i``: q_i is the chance that a batch with this share of the edges meets a node.

    One (the full gradient) where a batch holds all edges; nodes without edges never move and get one too.
    """
    if share >= 1:
        return np.ones(len(counts))
    q = -np.expm1(np.maximum(counts, 1) * np.log1p(-share))
    return np.where(counts > 0, 1 / q, 1.0)


def power_of_two(x: float) -> float:
    """The power of two below a positive number, one for others: dividing by it costs no digit."""
    return float(2.0 ** np.floor(np.log2(x))) if 0 < x < np.inf else 1.0
