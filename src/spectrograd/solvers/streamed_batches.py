"""Mini-batches of a graph on disk: its edges in the random order in which they were written there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.kernels.batches import pairs as kernels
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.edge_source import EdgeChunk, StreamedEdges
from spectrograd.solvers.minibatch import Batch, BatchSource, Draws, Sampling

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class StreamedBatches(BatchSource):
    """The edges of an operator on disk, ``size`` at a time; a chunk of them is in memory.

    ``indptr`` counts the edges of each node; there are no entries to be drawn at random.
    """

    edges_on_disk: StreamedEdges = field(kw_only=True)
    coming: dict[int, Iterator[EdgeChunk]] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of(cls, operator: SparseOperator) -> StreamedBatches:
        """Prepare a streamed operator; nothing is read but, where weights hide them, the counts of edges."""
        n_nodes, dtype, low_rank = operator.n_nodes, operator.dtype, operator.low_rank
        edges = StreamedEdges(operator.graph, 0)
        nothing = np.empty(0, np.int32)
        return cls(
            operator=operator,
            indptr=np.concatenate([[0], np.cumsum(edges.counts)]),
            indices=nothing,
            weights=None,
            guide=nothing,
            shift=0,
            slot=np.zeros(n_nodes, np.int32),
            metric=np.ones(n_nodes, dtype) if operator.metric is None else operator.metric,
            factors=np.zeros((n_nodes, 0), dtype) if low_rank is None else low_rank.factors,
            coefficients=np.zeros(0) if low_rank is None else low_rank.coefficients,
            edges_on_disk=edges,
        )

    def edges(self, size: int, rng: Draws) -> Batch:
        """The next edges; when all have had their turn they come in another order."""
        if size not in self.coming:
            self.coming[size] = (
                chunk for epoch in count() for chunk in self.edges_on_disk.chunks(epoch, size)
            )
        heads, tails, weights = next(self.coming[size])
        if weights is None:
            weights = np.ones(len(heads))
        scale = self.operator.scale
        if scale is not None:
            weights = weights * scale[heads] * scale[tails]
        groups = self._grouped(heads, tails, weights.astype(np.float64, copy=False))
        return Batch(groups, kernels.incidence_shares(groups[0], groups[1], self.indptr), len(heads))

    def sampler(self, kind: Sampling) -> Any:
        """Edges; nodes and blocks would have to be looked up."""
        if kind != "edges":
            raise ValueError(f"batch={kind!r} needs the graph in memory: over a store batches are of edges")
        return self.edges
