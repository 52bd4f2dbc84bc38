"""Operator: what a solver works on. Sparse row blocks, a metric and an optional low-rank part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.blas import dger, sger

from spectrograd.graph import Graph, GraphError
from spectrograd.kernels import SMALL as SMALL
from spectrograd.kernels import TALL as TALL
from spectrograd.kernels import WORTH_THREADS as WORTH_THREADS

Array = NDArray[Any]
Kind = Literal["random_walk", "symmetric", "unnormalized"]


@dataclass(frozen=True, eq=False)
class LowRank:
    """The symmetric matrix ``Z diag(a) Z'`` that an :class:`Operator` subtracts."""

    factors: Array
    coefficients: Array

    def projected(self, U: Array) -> Array:
        """``diag(a) Z' U``."""
        return np.asarray(self.coefficients[:, None] * (self.factors.T @ U), dtype=U.dtype)

    def subtract_product(
        self, U: Array, out: Array, weight: float = 1.0, divisor: Array | None = None
    ) -> None:
        """Mutates out: ``out -= weight diag(1 / divisor) Z diag(a) Z' U``."""
        Z = self.factors if divisor is None else self.factors / divisor[:, None]
        small = self.projected(U) * U.dtype.type(weight)
        if Z.shape[1] == 1 and out.flags.c_contiguous:  # in place: half the traffic of a temporary
            update = dger if out.dtype == np.float64 else sger
            update(-1.0, small[0], Z[:, 0], a=out.T, overwrite_a=True)
        else:
            out -= Z @ small


@dataclass(frozen=True, eq=False)
class Operator:
    """The pencil ``(A, B)`` of the eigenproblem ``A u = lambda B u``, never an N x N array.

    ``A = diag(diagonal) - diag(scale) W diag(scale) - Z diag(a) Z'`` and ``B = diag(metric)``.
    ``scale``, ``metric`` and ``low_rank`` are None when they are trivial.

    Attributes
    ----------
    lower, upper
        Bounds on the spectrum of the pencil, known from theory: step sizes and polynomial filters
        are scaled by them.
    only_products
        Whether ``A`` is known by its products alone: ``graph`` then has no edges and ``diagonal`` says
        nothing, so whoever wants to look at entries of ``A`` has to refuse.
    """

    only_products: ClassVar[bool] = False

    graph: Graph
    diagonal: Array
    scale: Array | None = None
    metric: Array | None = None
    low_rank: LowRank | None = None
    lower: float = 0.0
    upper: float = 2.0

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return self.graph.n_nodes

    @property
    def shape(self) -> tuple[int, int]:
        """As of a square matrix."""
        return (self.n_nodes, self.n_nodes)

    @property
    def rank(self) -> int:
        """Rank of the low-rank part; 0 without one."""
        return 0 if self.low_rank is None else self.low_rank.factors.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type in which the matrix is stored."""
        return self.diagonal.dtype

    def __matmul__(self, U: Array) -> Array:
        """``A @ U`` in one pass over the row blocks."""
        columns = U if U.ndim == 2 else U[:, None]
        if columns.dtype not in (np.float32, np.float64):
            columns = columns.astype(np.float64)
        result = self.astype(columns.dtype)._apply(np.ascontiguousarray(columns))
        return result if U.ndim == 2 else result[:, 0]

    def _apply(self, U: Array) -> Array:
        if self.n_nodes <= SMALL:
            out = self.diagonal[:, None] * U - self._small @ U
        else:
            V = U if self.scale is None else self.scale[:, None] * U
            out = np.empty_like(U)
            self._compiled(U, V, out)
        if self.low_rank is not None:
            self.low_rank.subtract_product(U, out)
        return np.asarray(out, dtype=U.dtype)

    @cached_property
    def _small(self) -> sp.csr_array:
        """``diag(scale) W diag(scale)``, for graphs that are small enough for scipy."""
        W = self.graph.matrix
        weights = W.data
        if self.scale is not None:
            weights = weights * np.repeat(self.scale, np.diff(W.indptr)) * self.scale[W.indices]
        return sp.csr_array((weights.astype(self.dtype, copy=False), W.indices, W.indptr), shape=W.shape)

    def _compiled(self, U: Array, V: Array, out: Array) -> None:
        """Mutates out, without the low-rank part; compiled only for larger graphs."""
        from spectrograd.kernels.csr.spmm import laplacian_column, laplacian_rows

        for b in self.graph.blocks:
            rows, numbers = (b.start, b.indptr, b.indices), (b.weights, self.diagonal, self.scale)
            large = len(b.indices) > WORTH_THREADS
            if U.shape[1] == 1:
                column = laplacian_column if large else laplacian_column.serial
                column(rows, *numbers, U[:, 0], V[:, 0], out[:, 0])
            else:
                columns = laplacian_rows if large else laplacian_rows.serial
                columns(*rows, *numbers, U, V, out)

    def astype(self, dtype: DTypeLike) -> Operator:
        """The same operator with its numbers stored in ``dtype`` (kept, so casting twice is free)."""
        if self.dtype == dtype:
            return self
        return self._cast

    @cached_property
    def _cast(self) -> Operator:
        other = np.float32 if self.dtype == np.float64 else np.float64
        blocks = tuple(
            b if b.weights is None else replace(b, weights=b.weights.astype(other)) for b in self.graph.blocks
        )
        low_rank = self.low_rank and LowRank(
            self.low_rank.factors.astype(other), self.low_rank.coefficients.astype(other)
        )
        return replace(
            self,
            graph=Graph(blocks, self.n_nodes, self.graph.names),
            diagonal=self.diagonal.astype(other),
            scale=None if self.scale is None else self.scale.astype(other),
            metric=None if self.metric is None else self.metric.astype(other),
            low_rank=low_rank,
        )

    @cached_property
    def row_sums(self) -> Array:
        """Row sums of ``diag(scale) W diag(scale)``: the degrees as this operator sees them."""
        if self.scale is None:
            return self.graph.degrees
        return np.asarray(self.scale * (self.graph.matrix @ self.scale))

    @cached_property
    def row_term(self) -> Array:
        """What the diagonal holds beyond a plain Laplacian: ``A = L(W) + diag(row_term) - ...``."""
        return self.diagonal - self.row_sums

    def standard_form(self) -> Operator:
        """``B^-1/2 A B^-1/2``, whose eigenvectors are ``B^1/2 u`` and whose metric is the identity."""
        if self.metric is None:
            return self
        root = self._root
        low_rank = self.low_rank and LowRank(
            self.low_rank.factors / root[:, None], self.low_rank.coefficients
        )
        return replace(
            self,
            diagonal=self.diagonal / self.metric,
            scale=1 / root if self.scale is None else self.scale / root,
            metric=None,
            low_rank=low_rank,
        )

    def to_standard(self, vectors: Array) -> Array:
        """Turn vectors of the pencil into vectors of :meth:`standard_form`."""
        return vectors if self.metric is None else vectors * self.astype(vectors.dtype)._root[:, None]

    def from_standard(self, vectors: Array) -> Array:
        """Turn eigenvectors of :meth:`standard_form` into eigenvectors of the pencil."""
        return vectors if self.metric is None else vectors / self.astype(vectors.dtype)._root[:, None]

    @cached_property
    def _root(self) -> Array:
        assert self.metric is not None
        return np.asarray(np.sqrt(self.metric))

    def walk_form(self) -> Operator:
        """The same pencil without ``scale``: its vectors are ``diag(scale) u``, its metric absorbs it.

        A pass then gathers the vectors as they are; for a normalised Laplacian this is the random walk.
        """
        return self if self.scale is None else self._walk

    @cached_property
    def _walk(self) -> Operator:
        scale = self._positive_scale
        squares = scale**2
        return replace(
            self,
            diagonal=self.diagonal / squares,
            scale=None,
            metric=(1 if self.metric is None else self.metric) / squares,
            low_rank=self.low_rank
            and LowRank(self.low_rank.factors / scale[:, None], self.low_rank.coefficients),
        )

    def to_walk(self, vectors: Array) -> Array:
        """Turn vectors of the pencil into vectors of :meth:`walk_form`."""
        return vectors if self.scale is None else vectors * self._positive_scale[:, None]

    def from_walk(self, vectors: Array) -> Array:
        """Turn vectors of :meth:`walk_form` into vectors of the pencil."""
        return vectors if self.scale is None else vectors / self._positive_scale[:, None]

    @property
    def _positive_scale(self) -> Array:
        """The scale, with ones for nodes without edges, where it plays no part."""
        assert self.scale is not None
        return np.where(self.scale > 0, self.scale, 1)

    def rounding(self, dtype: DTypeLike) -> float:
        """By how much rounding may move an eigenvalue: the operator as it is applied, less the one meant.

        Sums along a row of n entries, the degree among them, are off by ``n eps`` times the sum of the
        absolute values; a few more operations (factors, a Gram matrix, LAPACK) count as eight entries.
        """
        eps = float(np.finfo(dtype).eps)
        longest = max(int(np.diff(block.indptr).max()) for block in self.graph.blocks)
        per_mass = 1.0 if self.metric is None else 1 / self.metric
        size = 2 * float(np.abs(self.diagonal * per_mass).max()) + max(abs(self.lower), abs(self.upper))
        floor = (longest + 8) * eps * size
        if self.low_rank is None:
            return floor
        squares = (np.square(self.low_rank.factors).T * per_mass).sum(axis=1)
        return floor + self.n_nodes * eps * float(np.abs(self.low_rank.coefficients) @ squares)

    def to_dense(self) -> Array:
        """``A`` as a dense float64 array; for tests and the dense baseline only."""
        return self.astype(np.float64) @ np.eye(self.n_nodes)


def laplacian(graph: Graph, kind: Kind = "random_walk", *, allow_isolated: bool = False) -> Operator:
    """The Laplacian of a graph as an operator.

    Parameters
    ----------
    graph
        The graph; a node without edges has no place in a spectral embedding, so it is an error
        unless ``allow_isolated`` (a layer of a multilayer graph may have such nodes).
    kind
        ``"unnormalized"``: ``L = D - W`` (the paper, Eq. 2). ``"symmetric"``:
        ``D^-1/2 L D^-1/2`` (Eq. 3). ``"random_walk"``: ``L u = lambda D u``, metric ``B = D``.

    Examples
    --------
    >>> triangle = Graph.from_edges([0, 1, 2], [1, 2, 0])
    >>> (laplacian(triangle, "unnormalized") @ np.ones(3)).tolist()
    [0.0, 0.0, 0.0]
    """
    if kind not in get_args(Kind):
        raise ValueError(f"laplacian={kind!r}: expected one of {', '.join(get_args(Kind))}")
    degrees = graph.degrees
    if degrees.max() > np.finfo(np.float64).max / 2:
        raise GraphError("the weights are too large: their sums overflow; divide all of them by 1e10, say")
    _check_isolated(graph, allow_isolated)
    linked = degrees > 0
    if kind == "unnormalized":
        return Operator(graph, degrees, upper=2.0 * float(degrees.max()))
    if kind == "symmetric":
        scale = np.where(linked, 1 / np.sqrt(np.where(linked, degrees, 1)), 0.0)
        return Operator(graph, linked.astype(np.float64), scale=scale)
    return Operator(graph, degrees, metric=degrees if linked.all() else np.where(linked, degrees, 1.0))


def _check_isolated(graph: Graph, allowed: bool) -> None:
    isolated = graph.isolated
    if len(isolated) == 0 or allowed:
        return
    if graph.n_edges == 0:
        raise GraphError("the graph is empty: it has nodes but no edge")
    shown = ", ".join(str(graph.node_names[i]) for i in isolated[:5])
    more = ", ..." if len(isolated) > 5 else ""
    raise GraphError(
        f"{len(isolated)} isolated nodes (without any edge): {shown}{more}; remove them before embedding"
    )
