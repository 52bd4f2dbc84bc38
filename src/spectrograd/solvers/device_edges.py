"""Edges on a device: all of them while they fit there, else chunk by chunk from the host or a disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.random_rows import new_seed
from spectrograd.engines.torch_engine import TorchEngine
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.edge_source import EdgeChunk, EdgeSource, edge_source

Array = NDArray[Any]
Tensor = Any
BYTES = 20  # of an edge: two ends, a weight, its place in an epoch's order


def device_edges(engine: TorchEngine, operator: SparseOperator, rng: np.random.Generator) -> EdgeSource:
    """The edges of an operator in walk form: on the device where they have room, else sent there."""
    if fits(engine, operator):
        return DeviceEdges.of(engine, operator, new_seed(rng))
    return SentEdges(engine, edge_source(operator.graph, rng))


def fits(engine: TorchEngine, operator: SparseOperator) -> bool:
    """Whether all edges may stay on the device."""
    return operator.graph.is_resident and BYTES * operator.graph.n_edges <= engine.blocks.most_bytes


@dataclass(frozen=True, eq=False)
class DeviceEdges:
    """Every edge once: 8 bytes each, and 4 for a weight; an epoch's order, drawn there, takes 8 more."""

    torch: Any
    edges: EdgeChunk
    counts: Array
    seed: int

    @classmethod
    def of(cls, engine: TorchEngine, operator: SparseOperator, seed: int = 0) -> DeviceEdges:
        """Collect the edges; a scale of the operator becomes part of their weights."""
        W = operator.graph.matrix
        rows = np.repeat(np.arange(operator.n_nodes, dtype=np.int32), np.diff(W.indptr))
        upper = np.flatnonzero(rows < W.indices)
        heads, tails = rows[upper], W.indices[upper]
        weights = W.data[upper] if operator.graph.is_weighted else None
        if operator.scale is not None:
            scales = operator.scale[heads] * operator.scale[tails]
            weights = scales if weights is None else weights * scales
        sent = _sent(engine, EdgeChunk(heads, tails, weights))
        return cls(engine.torch, sent, np.diff(W.indptr), seed)

    @property
    def n_edges(self) -> int:
        """All of them."""
        return len(self.edges.heads)

    def at(self, positions: Tensor) -> EdgeChunk:
        """Those at some places."""
        heads, tails, weights = self.edges
        return EdgeChunk(heads[positions], tails[positions], None if weights is None else weights[positions])

    def drawn(self, count: int, generator: Any) -> EdgeChunk:
        """So many of them, each with the same odds, some perhaps twice."""
        where = self.edges.heads.device
        return self.at(self.torch.randint(self.n_edges, (count,), generator=generator, device=where))

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """All of them in the random order of that epoch, ``size`` at a time (the last: fewer)."""
        where = self.edges.heads.device
        draw = self.torch.Generator(where).manual_seed((self.seed + epoch) % 2**63)
        order = self.torch.randperm(self.n_edges, generator=draw, device=where)
        return (self.at(positions) for positions in order.split(size))


@dataclass(frozen=True, eq=False)
class SentEdges:
    """Edges in the memory of the host or on a disk, in random order there; a chunk at a time is sent."""

    engine: TorchEngine
    source: EdgeSource

    @property
    def n_edges(self) -> int:
        """How many edges an epoch has."""
        return self.source.n_edges

    @cached_property
    def counts(self) -> Array:
        """How many edges each node has, shape (N,)."""
        return self.source.counts

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """All edges in the random order of that epoch, ``size`` at a time."""
        return (_sent(self.engine, chunk) for chunk in self.source.chunks(epoch, size))


def _sent(engine: TorchEngine, chunk: EdgeChunk) -> EdgeChunk:
    """A chunk as tensors on the device, weights in float32."""
    weights = None if chunk.weights is None else engine.blocks.move(chunk.weights).float()
    return EdgeChunk(engine.blocks.move(chunk.heads), engine.blocks.move(chunk.tails), weights)
