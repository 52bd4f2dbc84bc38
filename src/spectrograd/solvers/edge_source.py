"""Every edge once per epoch, in random order: what the stochastic solvers read.

The order is not a detail: with consecutive entries of a matrix the same steps learn nothing
(docs/methods/sgd.md has the figures).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph.graph import Graph
from spectrograd.kernels.batches.groups import upper_entries
from spectrograd.operators.protocol import RESIDENT, Offer, check_offers
from spectrograd.operators.sparse import SparseOperator

Array = NDArray[Any]
# Edges that stay together from epoch to epoch, where there are many: one cache line of int32.
RUN = 16
MANY = 1 << 20


class EdgeChunk(NamedTuple):
    """Some edges: both ends (int32) and weights (float32; None where all weigh one), of shape (n,)."""

    heads: Array
    tails: Array
    weights: Array | None

    def part(self, which: slice) -> EdgeChunk:
        """Some of these edges."""
        weights = None if self.weights is None else self.weights[which]
        return EdgeChunk(self.heads[which], self.tails[which], weights)


class EdgeSource(Protocol):
    """Where stochastic solvers get their edges: in memory, or files of shuffled edges on a disk."""

    @property
    def n_edges(self) -> int:
        """How many edges an epoch has."""

    @property
    def counts(self) -> Array:
        """How many edges each node has, shape (N,)."""

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """All edges of the graph in the random order of that epoch, ``size`` at a time (the last: fewer)."""


def check_edges(solver: str, needs: frozenset[Offer], problem: Any) -> None:
    """Refuse an operator without edges to read; a graph on disk will do: it has them in random order."""
    operator = problem.operator
    on_disk = isinstance(operator, SparseOperator) and not operator.graph.is_resident
    check_offers(solver, RESIDENT if on_disk else needs, operator, problem.offers)


def edge_source(graph: Graph, rng: np.random.Generator) -> EdgeSource:
    """The edges of a graph, wherever they are."""
    if graph.is_resident:
        return ResidentEdges.of(graph, rng)
    return StreamedEdges(graph, int(rng.integers(2**31)))


@dataclass(frozen=True, eq=False)
class StreamedEdges:
    """The edges of a graph on disk, in the random chunks that were drawn when it was made."""

    graph: Any  # with ``edge_chunks``: a store's
    seed: int

    @property
    def n_edges(self) -> int:
        """How many edges an epoch has."""
        return int(self.graph.n_edges)

    @cached_property
    def counts(self) -> Array:
        """How many edges each node has, shape (N,); one sweep where weights hide it."""
        if not self.graph.is_weighted:
            return np.asarray(self.graph.degrees, dtype=np.int64)
        return np.concatenate([np.diff(block.indptr) for block in self.graph.blocks])

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """All edges in the random order of that epoch, ``size`` at a time (at ends of chunks: fewer)."""
        for edges in self.graph.edge_chunks(self.seed, epoch):
            weights = None if edges.weight is None else np.asarray(edges.weight, dtype=np.float32)
            piece = EdgeChunk(edges.source, edges.target, weights)
            for begin in range(0, len(piece.heads), size):
                yield piece.part(slice(begin, begin + size))


@dataclass(frozen=True, eq=False)
class ResidentEdges:
    """The edges of a graph in memory: 8 bytes each, and 4 for a weight.

    They are shuffled once. An epoch walks through that order with a random stride, so that it makes other
    batches than the epoch before; no array of positions is needed.
    """

    edges: EdgeChunk
    counts: Array
    seed: int

    @classmethod
    def of(cls, graph: Graph, rng: np.random.Generator) -> ResidentEdges:
        """Collect and shuffle the edges of all row blocks."""
        n = graph.n_edges
        heads, tails = np.empty(n, np.int32), np.empty(n, np.int32)
        weights = np.empty(n, np.float32) if graph.is_weighted else None
        filled = 0
        for b in graph.blocks:
            positions = np.empty(0 if weights is None else n, np.int64)
            begin, filled = (
                filled,
                upper_entries(b.start, b.indptr, b.indices, heads, tails, positions, filled),
            )
            if weights is not None:
                weights[begin:filled] = 1 if b.weights is None else b.weights[positions[begin:filled]]
        order = rng.permutation(n)
        shuffled = EdgeChunk(heads[order], tails[order], None if weights is None else weights[order])
        counts = np.concatenate([np.diff(b.indptr) for b in graph.blocks])
        return cls(shuffled, counts, int(rng.integers(2**31)))

    @property
    def n_edges(self) -> int:
        """How many edges an epoch has."""
        return len(self.edges.heads)

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """All edges in the random order of that epoch, ``size`` at a time (the last: fewer)."""
        run = RUN if self.n_edges >= MANY else 1
        n_runs, per_chunk = self.n_edges // run, max(1, size // run)
        rng = np.random.default_rng((self.seed, epoch))
        first, stride = int(rng.integers(n_runs)), _coprime(n_runs, rng)
        for begin in range(0, n_runs, per_chunk):
            turn = np.arange(begin, min(n_runs, begin + per_chunk))
            chosen = (first + stride * turn) % n_runs
            last = begin + per_chunk >= n_runs
            heads, tails, weights = self.edges
            picked = None if weights is None else _runs(weights, run, chosen, last)
            yield EdgeChunk(_runs(heads, run, chosen, last), _runs(tails, run, chosen, last), picked)


def _coprime(n: int, rng: np.random.Generator) -> int:
    """A random stride that visits each of n places once."""
    while True:
        stride = int(rng.integers(1, n + 1))
        if np.gcd(stride, n) == 1:
            return stride


def _runs(array: Array, run: int, chosen: Array, last: bool) -> Array:
    """The chosen runs of an array; after the last of them what did not fill a run."""
    whole = len(array) // run * run
    picked = array[:whole].reshape(-1, run)[chosen].reshape(-1)
    return np.concatenate([picked, array[whole:]]) if last and whole < len(array) else picked
