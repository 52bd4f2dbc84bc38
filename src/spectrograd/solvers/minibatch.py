"""Edges in random order and mini-batches of them: the input of the stochastic solvers.

:class:`EdgeSource` gives every edge once per epoch (``sgd``), :class:`BatchSource` draws batches with their
row terms and low-rank parts (``sgd-paper``, ``stochastic-fb``), :class:`StreamedBatches` those of a graph on
disk.

The order is not a detail: with consecutive entries of a matrix the same steps learn nothing
(docs/methods/sgd.md has the figures).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from spectrograd.engines.base import Engine
from spectrograd.graph.graph import Graph
from spectrograd.kernels import WORTH_THREADS
from spectrograd.kernels import baselines as paper
from spectrograd.kernels import minibatch as kernels
from spectrograd.kernels.minibatch import upper_entries
from spectrograd.kernels.simd import WIDTH
from spectrograd.operators.base import RESIDENT, Capability, check_capabilities
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.typing import Array

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
    """A source of edges for stochastic solvers: in memory, or files of shuffled edges on a disk."""

    @property
    def n_edges(self) -> int:
        """Edges per epoch."""

    @property
    def counts(self) -> Array:
        """Number of edges of each node, shape (N,)."""

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """Iterate over all edges in the random order of that epoch, ``size`` at a time (the last: fewer)."""


def check_edges(solver: str, requires: frozenset[Capability], problem: Any) -> None:
    """Refuse an operator without edges to read; a graph on disk will do: it has them in random order."""
    operator = problem.operator
    on_disk = isinstance(operator, SparseOperator) and not operator.graph.is_resident
    check_capabilities(solver, RESIDENT if on_disk else requires, operator, problem.capabilities)


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
        """Edges per epoch."""
        return int(self.graph.n_edges)

    @cached_property
    def counts(self) -> Array:
        """Number of edges of each node, shape (N,); one pass where weights hide it."""
        if not self.graph.is_weighted:
            return np.asarray(self.graph.degrees, dtype=np.int64)
        return np.concatenate([np.diff(block.indptr) for block in self.graph.blocks])

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """Iterate over all edges in the order of that epoch, ``size`` at a time (at chunk ends: fewer)."""
        for edges in self.graph.edge_chunks(self.seed, epoch):
            weights = None if edges.weight is None else np.asarray(edges.weight, dtype=np.float32)
            chunk = EdgeChunk(edges.source, edges.target, weights)
            for begin in range(0, len(chunk.heads), size):
                yield chunk.part(slice(begin, begin + size))


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
        heads = np.empty(n, np.int32)
        tails = np.empty(n, np.int32)
        weights = np.empty(n, np.float32) if graph.is_weighted else None
        filled = 0
        for b in graph.blocks:
            positions = np.empty(0 if weights is None else n, np.int64)
            begin = filled
            filled = upper_entries(b.start, b.indptr, b.indices, heads, tails, positions, filled)
            if weights is not None:
                # a block whose weights are all one stores none, even in a weighted graph
                weights[begin:filled] = 1 if b.weights is None else b.weights[positions[begin:filled]]
        # The one random order of the run (see the module's text for why order decides).
        order = rng.permutation(n)
        shuffled = EdgeChunk(heads[order], tails[order], None if weights is None else weights[order])
        counts = np.concatenate([np.diff(b.indptr) for b in graph.blocks])
        return cls(shuffled, counts, int(rng.integers(2**31)))

    @property
    def n_edges(self) -> int:
        """Edges per epoch."""
        return len(self.edges.heads)

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """Iterate over all edges in the random order of that epoch, ``size`` at a time (the last: fewer)."""
        run = RUN if self.n_edges >= MANY else 1
        n_runs = self.n_edges // run
        per_chunk = max(1, size // run)
        rng = np.random.default_rng((self.seed, epoch))
        first = int(rng.integers(n_runs))
        stride = _coprime(n_runs, rng)
        for begin in range(0, n_runs, per_chunk):
            turn = np.arange(begin, min(n_runs, begin + per_chunk))
            # An arithmetic progression modulo n_runs with a coprime stride visits each run once.
            numbers = (first + stride * turn) % n_runs
            last = begin + per_chunk >= n_runs
            heads, tails, weights = self.edges
            picked = None if weights is None else _runs(weights, run, numbers, last)
            yield EdgeChunk(_runs(heads, run, numbers, last), _runs(tails, run, numbers, last), picked)


def _coprime(n: int, rng: np.random.Generator) -> int:
    """A random stride that visits each of n places once."""
    while True:
        stride = int(rng.integers(1, n + 1))
        if np.gcd(stride, n) == 1:
            return stride


def _runs(array: Array, run: int, numbers: Array, last: bool) -> Array:
    """The chosen runs of an array; after the last of them what did not fill a run."""
    whole = len(array) // run * run
    picked = array[:whole].reshape(-1, run)[numbers].reshape(-1)
    return np.concatenate([picked, array[whole:]]) if last and whole < len(array) else picked


# --- Mini-batches of an operator: which edges, with which weights, and the parts that are no edges.

Sampling = Literal["edges", "blocks", "nodes"]
ENTRIES_PER_BLOCK = 16
NO_MOMENTS = (np.zeros((0, 0)), np.zeros(2))


@dataclass(eq=False)
class Deck:
    """Numbers below n without replacement, in the place of a random generator: shuffled anew when used up.

    ``redrawn=False`` repeats the first order instead, without what does not fill a batch: fixed batches.
    """

    rng: np.random.Generator
    redrawn: bool = True
    left: Array = field(default_factory=lambda: np.empty(0, np.int64))
    first: Array | None = None

    def integers(self, low: int, n: int, size: Any, dtype: Any = np.int64) -> Array:
        """``size`` numbers from 0 to n - 1; ``low`` is 0, as everywhere here."""
        n_drawn = int(np.prod(size))
        # Enough cards for this draw: a batch may span the end of one shuffle and the beginning of the next.
        while len(self.left) < n_drawn:
            self.left = np.concatenate([self.left, self._shuffle(n, np.atleast_1d(size)[-1])])
        drawn = self.left[:n_drawn]
        self.left = self.left[n_drawn:]
        return drawn.reshape(size).astype(dtype)

    def _shuffle(self, n: int, batch_size: int) -> Array:
        if self.redrawn:
            return self.rng.permutation(n)
        if self.first is None:
            whole = n // batch_size * batch_size
            self.first = self.rng.permutation(n)[: whole or n]
        return self.first


Draws = np.random.Generator | Deck


class Batch(NamedTuple):
    """A batch grouped by its unique vertices; ``shares`` weigh the row terms of ``batch_gradient``."""

    groups: tuple[Array, ...]
    shares: Array
    n_edges: int

    @property
    def vertices(self) -> Array:
        """The unique vertices, whose rows may move."""
        return self.groups[0]

    @property
    def times_met(self) -> Array:
        """Number of edges of the batch at each vertex."""
        return np.diff(self.groups[1])


@dataclass(frozen=True, eq=False)
class EdgeBatches(ABC):
    """Mini-batches of the edges of an operator, with the parts of it that are no edges.

    ``A = L(W) + diag(row_term) - Z diag(a) Z'``: the first part is a sum over edges (Eq. 12), the
    others are spread over the edges of each vertex, so that a batch is an unbiased sample of A.
    ``indptr`` counts the edges of each node.
    """

    operator: SparseOperator
    indptr: Array

    @abstractmethod
    def sampler(self, kind: Sampling) -> Callable[[int, Draws], Batch]:
        """The method that draws batches of that kind."""

    @cached_property
    def slot(self) -> Array:
        """Zeros (N,), where kernels number the vertices of a batch."""
        return np.zeros(self.operator.n_nodes, np.int32)

    @cached_property
    def metric(self) -> Array:
        """Diagonal of B, (N,)."""
        operator = self.operator
        return np.ones(operator.n_nodes, operator.dtype) if operator.metric is None else operator.metric

    @cached_property
    def low_rank(self) -> LowRank:
        """``Z`` (N x r) and ``a`` (r), without columns where the operator has no such part."""
        none = LowRank(np.zeros((self.operator.n_nodes, 0), self.operator.dtype), np.zeros(0))
        return none if self.operator.low_rank is None else self.operator.low_rank

    def _group(self, heads: Array, tails: Array, weights: Array) -> tuple[Array, ...]:
        # The kernel reads the 2 b ends as runs of equal vertices.
        ends = np.sort(np.concatenate([heads, tails]))
        return kernels.group_by_vertex(heads, tails, weights, ends, self.slot)  # type: ignore[no-any-return]

    def gradient(self, batch: Batch, U: Array, Y: Array, *, projected: bool = False) -> tuple[Array, Array]:
        """Tiles of ``A_S U`` (see :func:`rows_of`), with ``Y = Z'U``; and ``U' A_S U`` if ``projected``."""
        row_part = (batch.shares, self.operator.row_term)
        # C = diag(a) Z'U (r x K): the low-rank part of A U is -Z C
        C = (self.low_rank.coefficients[:, None] * Y).astype(U.dtype)
        run = _choose_kernel(kernels.batch_gradient, batch)
        G, H = run(batch.groups, row_part, self.low_rank.factors, C, U, projected)
        return G, H

    def move(
        self,
        batch: Batch,
        G: Array,
        U: Array,
        rates: Array,
        *,
        small: tuple[Array, Array] | None = None,
        moments: tuple[Any, ...] = NO_MOMENTS,
    ) -> tuple[Array, Array]:
        """Move the batch's rows of U by ``- rate (G M^-1 - B U P)``, ``small = (M^-1, P)`` or (I, 0).

        Returns the changes of ``U'BU`` and ``Z'U``.

        Parameters
        ----------
        batch
            Its vertices, v of them.
        G
            Tiles of ``A_S U`` (see :meth:`gradient`).
        U : array of shape (N, K)
            Mutated in the batch's rows.
        rates : array of shape (v,)
            Step of each vertex.
        small : pair of arrays of shape (K, K)
            ``(M^-1, P)``.
        moments
            Table (N, 3 K) of AMSGrad and its two betas; an empty table makes plain steps.
        """
        if small is None:
            # plain gradient: M^-1 = I, P = 0
            small = (np.eye(U.shape[1]), np.zeros((U.shape[1], U.shape[1])))
        small = (small[0].astype(U.dtype), small[1].astype(U.dtype))
        moments = (moments[0].astype(U.dtype, copy=False), moments[1].astype(U.dtype))
        run = _choose_kernel(kernels.move_rows, batch)
        dM, dY = run(batch.vertices, G, small, rates, self.metric, self.low_rank.factors, moments, U)
        return dM, dY

    def low_rank_product(self, engine: Engine, U: Array) -> Array:
        """``Y = Z'U`` in full."""
        return engine.gram(self.low_rank.factors, U, None)


@dataclass(frozen=True, eq=False)
class BatchSource(EdgeBatches):
    """Random access to the edges of an operator in memory, in O(N) extra memory."""

    indices: Array
    weights: Array | None
    guide: Array
    shift: int

    @classmethod
    def of(cls, operator: SparseOperator) -> BatchSource:
        """Prepare an in-memory operator for random access."""
        if operator.graph.n_entries == 0:
            raise ValueError(
                "this operator has no edges to draw batches from: use a solver that needs products only, "
                "such as 'eigen'"
            )
        _ = operator.graph.pattern  # a graph on disk says here that it is there
        (block,) = operator.graph.blocks
        # One cell of the guide per mean row: two look-ups find the row of an entry (``kernels.row_guide``).
        shift = max(0, int(np.log2(max(1, len(block.indices) // operator.n_nodes))))
        return cls(
            operator=operator,
            indptr=block.indptr,
            indices=block.indices,
            weights=block.weights_in(operator.dtype),
            guide=kernels.row_guide(block.indptr, shift),
            shift=shift,
        )

    @property
    def n_entries(self) -> int:
        """Stored entries; an edge is two of them."""
        return len(self.indices)

    def edges(self, size: int, rng: Draws) -> Batch:
        """Independent random edges (the paper's mini-batch, Eq. 14)."""
        return self.at(rng.integers(0, self.n_entries, size))

    def blocks(self, size: int, rng: Draws) -> Batch:
        """Random runs of neighbouring edges: less random, several times cheaper to read."""
        # ceil(n_entries / ENTRIES_PER_BLOCK)
        n_blocks = -(-self.n_entries // ENTRIES_PER_BLOCK)
        numbers = rng.integers(0, n_blocks, max(1, size // ENTRIES_PER_BLOCK))
        return self.at(kernels.shuffled_entries(numbers, ENTRIES_PER_BLOCK, self.n_entries))

    def nodes(self, size: int, rng: Draws) -> Batch:
        """The subgraph induced by random nodes (the other reading of "mini-batches of size 4,000")."""
        n_nodes = self.operator.n_nodes
        size = min(size, n_nodes)
        if isinstance(rng, Deck):  # the end of a deck and the beginning of the next may share nodes
            numbers = np.unique(rng.integers(0, n_nodes, size)).astype(np.int32)
        else:
            numbers = rng.choice(n_nodes, size, replace=False, shuffle=False).astype(np.int32)
        return self.at(kernels.induced_edges(numbers, self.indptr, self.indices, self.slot))

    def sampler(self, kind: Sampling) -> Callable[[int, Draws], Batch]:
        """The method of that name."""
        choices = {"edges": self.edges, "blocks": self.blocks, "nodes": self.nodes}
        if kind not in choices:
            raise ValueError(f"batch={kind!r}: expected one of {', '.join(choices)}")
        return choices[kind]

    def at(self, positions: Array) -> Batch:
        """The batch made of the entries at ``positions``."""
        heads, tails, weights = kernels.edges_at(
            positions, self.indptr, self.indices, self.weights, self.operator.scale, self.guide, self.shift
        )
        groups = self._group(heads, tails, weights)
        shares = kernels.incidence_shares(groups[0], groups[1], self.indptr)
        return Batch(groups, shares, len(positions))

    def iterate(
        self, positions: Array, U: Array, M: Array, Y: Array, moments: Array, settings: tuple[float, ...]
    ) -> int:
        """Many iterations of the paper's algorithm at once; how many were done before M broke down.

        Mutates: U (float32, at most eight columns), M, Y and the moments of 24 columns.

        Parameters
        ----------
        positions : array of shape (n_iterations, batch_size)
            Entries of the matrix, ascending in each row.
        U : array of shape (N, K)
        M, Y : arrays of shape (K, K) and (r, K)
        moments : array of shape (N, 24)
        settings
            Step, beta1, beta2, and 1 where M counts as Eq. 19 is printed.
        """
        # One row fills the registers of a core: (n_nodes, 8) whatever K is.
        padded = np.zeros((len(U), WIDTH), U.dtype)
        padded[:, : U.shape[1]] = U
        csr = (self.indptr, self.indices, self.guide, self.shift)
        single = tuple(U.dtype.type(s) for s in settings)
        done = paper.paper_iterations(
            positions, csr, self.weights, self.operator.scale, *self._row_parts, single, moments, padded, M, Y
        )
        U[:] = padded[:, : U.shape[1]]
        return int(done)

    @cached_property
    def _row_parts(self) -> tuple[tuple[Array, ...], ...]:
        rows = (self.operator.row_term.astype(np.float32), self.metric.astype(np.float32))
        return rows, (self.low_rank.factors.astype(np.float32), self.low_rank.coefficients.astype(np.float64))


def rows_of(tiles: Array, n_rows: int) -> Array:
    """The N x K rows that :meth:`BatchSource.gradient` returns as tiles."""
    return tiles.transpose(0, 2, 1).reshape(-1, tiles.shape[1])[:n_rows]


def _choose_kernel(kernel: Any, batch: Batch) -> Any:
    """The serial form of a kernel for batches too small to be worth waking threads."""
    return kernel if batch.n_edges > WORTH_THREADS // 5 else kernel.serial


# --- Mini-batches of a graph on disk: its edges in the random order in which they were written there.


@dataclass(frozen=True, eq=False)
class StreamedBatches(EdgeBatches):
    """The edges of an operator on disk, ``size`` at a time; a chunk of them is in memory.

    There are no entries to be drawn at random.
    """

    edges_on_disk: StreamedEdges
    coming: dict[int, Iterator[EdgeChunk]] = field(default_factory=dict)

    @classmethod
    def of(cls, operator: SparseOperator) -> StreamedBatches:
        """Prepare a streamed operator; nothing is read but, where weights hide them, the counts of edges."""
        edges = StreamedEdges(operator.graph, 0)
        return cls(
            operator=operator,
            indptr=np.concatenate([[0], np.cumsum(edges.counts)]),
            edges_on_disk=edges,
        )

    def edges(self, size: int, rng: Draws) -> Batch:
        """The next edges; when all have had their turn they come in another order."""
        if size not in self.coming:
            # One endless stream of batches per size, epoch after epoch, each in an order of its own.
            self.coming[size] = (
                chunk for epoch in count() for chunk in self.edges_on_disk.chunks(epoch, size)
            )
        heads, tails, weights = next(self.coming[size])
        if weights is None:
            weights = np.ones(len(heads))
        scale = self.operator.scale
        if scale is not None:
            # A = D^-1/2 W D^-1/2: an edge weighs scale_i w_ij scale_j
            weights = weights * scale[heads] * scale[tails]
        groups = self._group(heads, tails, weights.astype(np.float64, copy=False))
        return Batch(groups, kernels.incidence_shares(groups[0], groups[1], self.indptr), len(heads))

    def sampler(self, kind: Sampling) -> Callable[[int, Draws], Batch]:
        """Edges; nodes and blocks would have to be looked up."""
        if kind != "edges":
            raise ValueError(f"batch={kind!r} needs the graph in memory: over a store batches are of edges")
        return self.edges
