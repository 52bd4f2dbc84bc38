"""Mini-batches of an operator as tensor operations: nothing of a batch is known to the host.

All shapes are those of a batch of b edges with its 2b ends, however many of them are the same node: ends
are sorted, equal ones share a slot, and slots without a node belong to row N, which is zero and stays zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from spectrograd.engines.base import new_seed
from spectrograd.engines.torch_engine import TorchEngine
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.base import Problem
from spectrograd.solvers.minibatch import EdgeChunk, EdgeSource, edge_source
from spectrograd.typing import Array

Tensor = Any


class TorchBatch(NamedTuple):
    """A batch applied to the nodes it touches; 2b slots, K columns.

    ``vertices`` are the nodes of the slots, ``counts`` how many of the batch's edges each has, ``metric`` and
    ``push`` their masses and 1 / q_i, ``factors`` their rows of Z, ``rows`` of U, ``gradient`` of ``A_S U``.
    Numbers of nodes are columns (2b x 1).
    """

    vertices: Tensor
    counts: Tensor
    metric: Tensor
    push: Tensor
    factors: Tensor
    rows: Tensor
    gradient: Tensor

    @property
    def projected(self) -> Tensor:
        """``U' A_S U`` (K x K), a sum over a batch, in float64."""
        return (self.rows.T @ self.gradient).double()


@dataclass(frozen=True, eq=False)
class TorchBatches:
    """Numbers per node that batches need of an operator, on a device.

    ``A = L(W) + diag(row_term) - Z diag(a) Z'``, the last two spread over the edges of each node. ``nodes``
    has what is known of each: its share of the row term and of Z per edge, its mass and 1 / q_i. It has a row
    N of zeros as the factors have; A is in units of ``weight_unit``, a power of two.
    """

    torch: Any
    nodes: Tensor
    factors: Tensor
    coefficients: Tensor
    weight_unit: float

    @classmethod
    def of(
        cls,
        engine: TorchEngine,
        operator: SparseOperator,
        counts: Array,
        unit: float = 1.0,
        push: Array | float = 1.0,
    ) -> TorchBatches:
        """Prepare an operator whose nodes have ``counts`` edges, with pushes 1 / q_i where given."""
        low_rank = operator.low_rank
        torch = engine.torch
        metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric
        coefficients = np.zeros(0) if low_rank is None else low_rank.coefficients / unit

        def padded(rows: Array) -> Tensor:
            zero = np.zeros((1, *rows.shape[1:]))
            return torch.tensor(np.concatenate([rows, zero]), dtype=torch.float32, device=engine.device)

        share = 1 / np.maximum(counts, 1)
        nodes = np.broadcast_arrays(share * operator.row_term / unit, share, metric, push)
        return cls(
            torch,
            padded(np.stack(nodes, axis=1)),
            padded(np.zeros((operator.n_nodes, 0)) if low_rank is None else low_rank.factors),
            torch.tensor(coefficients, dtype=torch.float64, device=engine.device),
            unit,
        )

    @property
    def metric(self) -> Tensor:
        """Masses, (N + 1) x 1."""
        return self.nodes[:, 2:3]

    def pad_rows(self, U: Tensor) -> Tensor:
        """A copy of N x K rows in float32, with the row of zeros."""
        out = self.torch.zeros((len(U) + 1, U.shape[1]), dtype=self.torch.float32, device=U.device)
        out[:-1] = U
        return out

    def measure(self, U: Tensor, span: int = 1 << 17) -> tuple[Tensor, Tensor]:
        """``M = U'BU`` (K x K) and ``Y = Z'U`` (r x K) in float64, from all rows."""
        k = U.shape[1]
        wide = self.torch.float64
        M = self.torch.zeros((k, k), dtype=wide, device=U.device)
        Y = self.torch.zeros((self.factors.shape[1], k), dtype=wide, device=U.device)
        for low in range(0, len(U), span):
            rows = U[low : low + span].double()
            M.addmm_((self.metric[low : low + span] * rows).T, rows)
            Y.addmm_(self.factors[low : low + span].double().T, rows)
        return M, Y

    def batch(self, edges: EdgeChunk, U: Tensor, Y: Tensor) -> TorchBatch:
        """The part ``A_S`` (Eq. 15) of these edges applied to the rows that it touches."""
        torch = self.torch
        n_ends = 2 * len(edges.heads)
        ends = torch.cat([edges.heads, edges.tails]).long()
        heads, tails = ends.chunk(2)
        vertices, slots = self._slots(ends)
        # 1. slots: equal ends share one; how many edges meet there
        counts = U.new_zeros(n_ends).index_add_(0, slots, U.new_ones(n_ends))[:, None]
        # 2. rows of the batch's Laplacian times U (Eqs. 13, 15):
        # |w| (u_i - s u_j) for the head i of an edge of sign s, and -s times that for its tail j.
        signs = 1.0 if edges.weights is None else torch.where(edges.weights < 0, -1.0, 1.0)[:, None]
        pull = U.index_select(0, heads) - signs * U.index_select(0, tails)
        if edges.weights is None:
            pull *= 1 / self.weight_unit
        else:
            pull *= (torch.abs(edges.weights) / self.weight_unit)[:, None]
        gradient = U.new_zeros((n_ends, U.shape[1]))
        gradient.index_add_(0, slots[: len(heads)], pull)
        gradient.index_add_(0, slots[len(heads) :], signs * pull, alpha=-1)
        # 3. the parts of A that are no edges, in the share of each node's edges that were drawn
        rows, factors, numbers = (table.index_select(0, vertices) for table in (U, self.factors, self.nodes))
        own, share, metric, push = numbers.split(1, dim=1)
        gradient.addcmul_(counts * own, rows)
        if len(self.coefficients):
            C = (self.coefficients[:, None] * Y).to(U.dtype)
            gradient.addcmul_(counts * share, factors @ C, value=-1)
        return TorchBatch(vertices, counts, metric, push, factors, rows, gradient)

    def _slots(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct ends, filled up with row N, and where among them each end is."""
        # a sort instead of a hash table: no length depends on the data, so the host never waits
        ordered, order = ends.sort()
        group = self.torch.zeros_like(ends)
        group[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
        slots = self.torch.empty_like(ends)
        slots[order] = group
        vertices = self.torch.full_like(ends, len(self.nodes) - 1)
        vertices[group] = ordered
        return vertices, slots

    def inverse(self, M: Tensor) -> tuple[Tensor, Tensor]:
        """``M^-1`` through its Cholesky factor, and whether there is one; zeros where there is none."""
        factor, failed = self.torch.linalg.cholesky_ex(M)
        diagonal = factor.diagonal()
        # decided on the device: a branch would make the host wait for it
        good = (failed == 0) & (diagonal.min() > 1e-7 * diagonal.max())
        unit = self.torch.eye(len(M), dtype=M.dtype, device=M.device)
        inverse = self.torch.cholesky_solve(unit, self.torch.where(good, factor, unit))
        return self.torch.where(good, inverse, 0.0), good

    def move(
        self, batch: TorchBatch, steps: Tensor, U: Tensor, M: Tensor, Y: Tensor, *, printed: bool = False
    ) -> None:
        """Mutates: U, M and Y, by a step for each of the batch's rows.

        M counts a node once, or with ``printed`` once per edge of the batch, as Eq. 19 does.
        """
        after = batch.rows + steps
        U.index_copy_(0, batch.vertices, after)
        # U'BU after minus before, from one product of the rows side by side (2 K columns)
        both = self.torch.cat([batch.rows, after], dim=1).double()
        k = len(M)
        G = both.T @ ((batch.metric * batch.counts if printed else batch.metric) * both)
        M += G[k:, k:] - G[:k, :k]
        if len(Y):
            change = batch.factors.double().T @ both
            Y += change[:, k:] - change[:, :k]


def torch_engine(problem: Problem) -> TorchEngine:
    """The engine of a problem that offers tensors."""
    return cast(TorchEngine, problem.engine)


# --- Edges on a device: all of them while they fit there, else chunk by chunk from the host or a disk.

BYTES_PER_EDGE = 20  # of an edge: two ends, a weight, its place in an epoch's order


def torch_edges(engine: TorchEngine, operator: SparseOperator, rng: np.random.Generator) -> EdgeSource:
    """The edges of an operator in random-walk form: on the device where they fit, else sent there."""
    if fits(engine, operator):
        return TorchEdges.of(engine, operator, new_seed(rng))
    return SentEdges(engine, edge_source(operator.graph, rng))


def fits(engine: TorchEngine, operator: SparseOperator) -> bool:
    """Whether all edges may stay on the device."""
    return operator.graph.is_resident and BYTES_PER_EDGE * operator.graph.n_edges <= engine.blocks.most_bytes


@dataclass(frozen=True, eq=False)
class TorchEdges:
    """Every edge once: 8 bytes each, and 4 for a weight; an epoch's order, drawn there, takes 8 more."""

    torch: Any
    edges: EdgeChunk
    counts: Array
    seed: int

    @classmethod
    def of(cls, engine: TorchEngine, operator: SparseOperator, seed: int = 0) -> TorchEdges:
        """Collect the edges; a scale of the operator becomes part of their weights."""
        W = operator.graph.matrix
        rows = np.repeat(np.arange(operator.n_nodes, dtype=np.int32), np.diff(W.indptr))
        # each edge once: entries above the diagonal
        upper = np.flatnonzero(rows < W.indices)
        heads = rows[upper]
        tails = W.indices[upper]
        weights = W.data[upper] if operator.graph.is_weighted else None
        if operator.scale is not None:
            scales = operator.scale[heads] * operator.scale[tails]
            weights = scales if weights is None else weights * scales
        sent = _send(engine, EdgeChunk(heads, tails, weights))
        return cls(engine.torch, sent, np.diff(W.indptr), seed)

    @property
    def n_edges(self) -> int:
        """Edges per epoch."""
        return len(self.edges.heads)

    def at(self, positions: Tensor) -> EdgeChunk:
        """The edges at some positions."""
        heads, tails, weights = self.edges
        return EdgeChunk(heads[positions], tails[positions], None if weights is None else weights[positions])

    def draw(self, count: int, generator: object) -> EdgeChunk:
        """So many of them, each with the same odds, some perhaps twice."""
        where = self.edges.heads.device
        return self.at(self.torch.randint(self.n_edges, (count,), generator=generator, device=where))

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """Iterate over all edges in the random order of that epoch, ``size`` at a time (the last: fewer)."""
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
        """Edges per epoch."""
        return self.source.n_edges

    @cached_property
    def counts(self) -> Array:
        """Number of edges of each node, shape (N,)."""
        return self.source.counts

    def chunks(self, epoch: int, size: int) -> Iterator[EdgeChunk]:
        """Iterate over all edges in the random order of that epoch, ``size`` at a time."""
        return (_send(self.engine, chunk) for chunk in self.source.chunks(epoch, size))


def _send(engine: TorchEngine, chunk: EdgeChunk) -> EdgeChunk:
    """A chunk as tensors on the device, weights in float32."""
    weights = None if chunk.weights is None else engine.blocks.move(chunk.weights).float()
    return EdgeChunk(engine.blocks.move(chunk.heads), engine.blocks.move(chunk.tails), weights)
