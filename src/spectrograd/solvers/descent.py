"""What the repaired SGD reads and moves: an operator in walk form, its edges, one block of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine
from spectrograd.kernels import LANES
from spectrograd.kernels.batches.groups import group_batches
from spectrograd.kernels.batches.rows import descend
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.edge_source import EdgeChunk, EdgeSource

Array = NDArray[Any]
# A batch has at most a 256th of the edges: at a 64th one start in three needs another pass, at a 10th
# nothing is learnt, for q_i has to stay well below one. But U'A_S U is an average over the batch, so small
# graphs may take up to a 64th for enough edges of it.
SHARE, LARGEST_SHARE, ENOUGH_EDGES = 256, 64, 256
WORTH_THREADS = 1000  # edges of a batch from which two threads are faster than one

NO_WEIGHTS = np.empty(0, np.float32)


@dataclass(frozen=True, eq=False)
class Descent:
    """An operator ready for :func:`descend`: all numbers float32 and near one, whatever the weights are.

    ``A`` is divided by ``weight_unit`` and ``B`` by ``mass_unit``, powers of two: directions, which is all
    that a step takes from them, do not change.

    Attributes
    ----------
    rows
        ``row_term``, ``metric``, ``push`` (1 / q_i) and ``shares`` (1 / number of edges), each of shape (N,).
    low_rank
        ``Z`` of shape (N, r) and ``a`` of shape (r,).
    """

    source: EdgeSource
    batch_size: int
    rows: tuple[Array, ...]
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
        rows = (
            np.asarray(operator.row_term / weight_unit, dtype=np.float32),
            mass,
            pushes(counts, batch_size / n_edges).astype(np.float32),
            (1 / np.maximum(counts, 1)).astype(np.float32),
        )
        Z = np.ascontiguousarray(factors / size, dtype=np.float32)
        return cls(
            source, batch_size, rows, (Z, coefficients), weight_unit, float(mass.sum(dtype=np.float64))
        )

    @property
    def n_batches(self) -> int:
        """Steps per epoch."""
        return -(-self.source.n_edges // self.batch_size)

    def padded(self, U: Array) -> Array:
        """Rows of float32, of root mean square about one, padded to whole lanes: (N, 8 ceil(K/8))."""
        rows = np.zeros((len(U), -(-U.shape[1] // LANES) * LANES), np.float32)
        rows[:, : U.shape[1]] = U / power_of_two(float(np.sqrt(np.mean(U**2))))
        return rows

    def measured(self, engine: Engine, U: Array, n_columns: int) -> tuple[Array, Array]:
        """``M = U'BU`` (K x K) and ``Y = Z'U`` (r x K) in float64, from all rows."""
        rows = U if U.shape[1] == n_columns else np.ascontiguousarray(U[:, :n_columns])
        return engine.gram(rows, rows, self.rows[1]), engine.gram(self.low_rank[0], rows, None)

    def shrunk(self, U: Array, M: Array) -> float:
        """Mutates: U, so that its root mean square is about one again; the exact factor (a power of two)."""
        factor = 1 / power_of_two(float(np.sqrt(np.trace(M) / (len(M) * self.total_mass))))
        if factor != 1:
            U *= np.float32(factor)
        return factor

    def run(self, chunk: EdgeChunk, steps: Array, U: Array, M: Array, Y: Array) -> int:
        """Mutates: U, M and Y, by a step per batch; how many were done before M broke down or outgrew."""
        weights = NO_WEIGHTS if chunk.weights is None else chunk.weights / np.float32(self.weight_unit)
        large = self.batch_size >= WORTH_THREADS
        group, step = (group_batches, descend) if large else (group_batches.serial, descend.serial)
        groups = group(chunk.heads, chunk.tails, weights, self.batch_size)
        return int(step(groups, self.rows, self.low_rank, steps, self.total_mass, U, M, Y))


def effective_batch(batch_size: int, n_edges: int) -> int:
    """The batch in use: a small part of the edges, so that rows are not in every batch."""
    enough = min(n_edges // LARGEST_SHARE, ENOUGH_EDGES)
    return max(1, min(batch_size, max(n_edges // SHARE, enough)))


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
