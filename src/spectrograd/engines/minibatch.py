"""Mini-batches of an operator: which edges, with which weights, and the parts that are no edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine
from spectrograd.kernels import batch as kernels
from spectrograd.laplacian import WORTH_THREADS, Operator

Array = NDArray[Any]
Sampling = Literal["edges", "blocks", "nodes"]
ENTRIES_PER_BLOCK = 16


class Batch(NamedTuple):
    """A batch grouped by its unique vertices; ``shares`` weigh the row terms of ``batch_gradient``."""

    groups: tuple[Array, Array, Array, Array]
    edge_weights: Array
    shares: Array
    n_edges: int

    @property
    def vertices(self) -> Array:
        """The unique vertices, whose rows may move."""
        return self.groups[0]


@dataclass(frozen=True, eq=False)
class BatchSource:
    """Random access to the edges of an operator in O(N) extra memory.

    ``A = L(W) + diag(row_term) - Z diag(a) Z'``: the first part is a sum over edges (Eq. 12), the
    others are spread over the edges of each vertex, so that a batch is an unbiased sample of A.
    """

    operator: Operator
    indptr: Array
    indices: Array
    weights: Array | None
    guide: Array
    shift: int
    slot: Array
    metric: Array
    factors: Array
    coefficients: Array

    @classmethod
    def of(cls, operator: Operator) -> BatchSource:
        """Prepare an in-memory operator for random access."""
        (block,) = operator.graph.blocks
        n_nodes = operator.n_nodes
        shift = max(0, int(np.log2(max(1, len(block.indices) // n_nodes))))
        low_rank = operator.low_rank
        return cls(
            operator=operator,
            indptr=block.indptr,
            indices=block.indices,
            weights=block.weights,
            guide=kernels.row_guide(block.indptr, shift),
            shift=shift,
            slot=np.full(n_nodes, -1, np.int32),
            metric=np.ones(n_nodes) if operator.metric is None else operator.metric,
            factors=np.zeros((n_nodes, 0)) if low_rank is None else low_rank.factors,
            coefficients=np.zeros(0) if low_rank is None else low_rank.coefficients,
        )

    @property
    def n_entries(self) -> int:
        """Stored entries; an edge is two of them."""
        return len(self.indices)

    def edges(self, size: int, rng: np.random.Generator) -> Batch:
        """Independent random edges (the paper's mini-batch, Eq. 14)."""
        return self.at(rng.integers(0, self.n_entries, size))

    def blocks(self, size: int, rng: np.random.Generator) -> Batch:
        """Random runs of neighbouring edges: less random, several times cheaper to read."""
        n_blocks = -(-self.n_entries // ENTRIES_PER_BLOCK)
        chosen = rng.integers(0, n_blocks, max(1, size // ENTRIES_PER_BLOCK))
        return self.at(kernels.shuffled_entries(chosen, ENTRIES_PER_BLOCK, self.n_entries))

    def nodes(self, size: int, rng: np.random.Generator) -> Batch:
        """The subgraph induced by random nodes (the other reading of "mini-batches of size 4,000")."""
        n_nodes = self.operator.n_nodes
        size = min(size, n_nodes)
        chosen = rng.choice(n_nodes, size, replace=False, shuffle=False).astype(np.int32)
        batch = self.at(kernels.induced_edges(chosen, self.indptr, self.indices, self.slot))
        # An edge is drawn with probability (b/N)^2, a vertex with b/N: give row terms the same odds.
        return batch._replace(shares=np.full(len(batch.vertices), size / n_nodes))

    def sampler(self, kind: Sampling) -> Callable[[int, np.random.Generator], Batch]:
        """The method of that name."""
        choices = {"edges": self.edges, "blocks": self.blocks, "nodes": self.nodes}
        if kind not in choices:
            raise ValueError(f"batch={kind!r}: expected one of {', '.join(choices)}")
        return choices[kind]

    def at(self, positions: Array) -> Batch:
        """The batch made of the entries at ``positions``."""
        heads, tails = kernels.edges_at(positions, self.indptr, self.indices, self.guide, self.shift)
        groups = kernels.group_by_vertex(heads, tails, self.slot)
        vertices, ptr = groups[0], groups[1]
        neighbours = self.indptr[vertices + 1] - self.indptr[vertices]
        shares = np.diff(ptr) / neighbours  # occurrences in the batch per incident edge
        return Batch(groups, self.edge_weights(positions, heads, tails), shares, len(positions))

    def edge_weights(self, positions: Array, heads: Array, tails: Array) -> Array:
        """Weights as the operator sees them: scaled at both ends."""
        weights = np.ones(len(positions)) if self.weights is None else self.weights[positions]
        scale = self.operator.scale
        return weights if scale is None else weights * scale[heads] * scale[tails]

    def pairs(self, heads: Array, rng: np.random.Generator) -> Batch:
        """One neighbour per head, drawn with probability ``w_ij / d_i``, as steps of pair averaging.

        With heads drawn uniformly the pair (i, j) has odds proportional to ``w (1/d_i + 1/d_j)``, so
        its weight is ``1 / (1/d_i + 1/d_j)``; the row terms belong to the heads.
        """
        positions = kernels.neighbour_by_weight(heads, rng.random(len(heads)), self.indptr, self.weights)
        tails = self.indices[positions]
        groups = kernels.group_by_vertex(heads, tails, self.slot)
        degrees = self.operator.graph.degrees
        pull = 1 / (1 / degrees[heads] + 1 / degrees[tails])
        if self.operator.scale is not None:
            pull = pull * self.operator.scale[heads] * self.operator.scale[tails]
        # heads are distinct, and group_by_vertex lists them before the other vertices
        shares = (np.arange(len(groups[0])) < len(heads)).astype(np.float64)
        return Batch(groups, pull, shares, len(heads))

    def gradient(self, batch: Batch, U: Array, Y: Array, *, projected: bool = False) -> tuple[Array, Array]:
        """Rows of ``A_S U``, with ``Y = Z'U``; and ``U' A_S U`` if ``projected``."""
        C = self.coefficients[:, None] * Y
        return _sized(kernels.batch_gradient, batch)(  # type: ignore[no-any-return]
            batch.groups,
            batch.edge_weights,
            (batch.shares, self.operator.row_term),
            self.factors,
            C,
            U,
            projected,
        )

    def move(self, batch: Batch, new_rows: Array, U: Array, *, gram: bool = False) -> tuple[Array, Array]:
        """Write the batch's rows into U; returns the changes of ``Z'U``, and of ``U'BU`` if ``gram``."""
        run = _sized(kernels.move_rows, batch)
        dM, dY = run(batch.vertices, new_rows, self.metric, self.factors, U, gram)
        return dM, dY

    def descend(self, batch: Batch, G: Array, small: tuple[Array, Array], U: Array, how: Any) -> Array:
        """New rows after a step along the restricted gradient; ``how`` is (step, moments)."""
        run = _sized(kernels.restricted_descent, batch)
        return run(batch.vertices, G, *small, self.metric, U, *how)  # type: ignore[no-any-return]

    def low_rank_product(self, engine: Engine, U: Array) -> Array:
        """``Y = Z'U`` in full."""
        return engine.gram(self.factors, U, None)


def _sized(kernel: Any, batch: Batch) -> Any:
    """The serial form of a kernel for batches too small to be worth waking threads."""
    return kernel if batch.n_edges > WORTH_THREADS // 20 else kernel.serial
