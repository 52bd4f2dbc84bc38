"""SparseOperator: row blocks of a graph, a diagonal, a scale, a metric, and a low-rank part or none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike
from scipy.linalg.blas import dger, sger

from spectrograd.graph import Graph
from spectrograd.kernels import SUM_BLOCK
from spectrograd.operators.base import EDGES, PRODUCTS, Capability, Operator
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.engines.base import Engine, MultiVector

NULL_TOLERANCE = 1e-9  # of the smallest diagonal entry: sums of degrees are no more exact than that


@dataclass(frozen=True, eq=False)
class LowRank:
    """The symmetric matrix ``Z diag(a) Z'`` that an :class:`Operator` subtracts."""

    factors: Array
    coefficients: Array

    def astype(self, dtype: DTypeLike) -> LowRank:
        """The same with its factors in another type; cached."""
        return self if self.factors.dtype == dtype else self._cast

    @cached_property
    def _cast(self) -> LowRank:
        other = np.float32 if self.factors.dtype == np.float64 else np.float64
        return LowRank(self.factors.astype(other), self.coefficients.astype(other))

    def projected(self, U: Array) -> Array:
        """``diag(a) Z' U``."""
        return np.asarray(self.coefficients[:, None] * (self.factors.T @ U), dtype=U.dtype)

    def subtract_product(
        self,
        U: Array,
        out: Array,
        weight: float = 1.0,
        divisor: Array | None = None,
        small: Array | None = None,
    ) -> None:
        """Mutates out: ``out -= weight diag(1 / divisor) Z diag(a) Z' U``, with ``small = diag(a) Z' U``.

        Parameters
        ----------
        U, out : arrays of shape (N, k)
        weight
            Factor of the product.
        divisor : array of shape (N,), optional
            A metric by which rows are divided.
        small : array of shape (r, k), optional
            ``diag(a) Z' U``, where it is known.
        """
        # Z (n_nodes, rank), small (rank, n_columns)
        Z = self.factors if divisor is None else self.factors / divisor[:, None]
        small = (self.projected(U) if small is None else small) * U.dtype.type(weight)
        if Z.shape[1] == 1 and out.shape[1] == 1:  # one multiplication: BLAS takes four times as long for it
            out[:, 0] -= small[0, 0] * Z[:, 0]
        elif Z.shape[1] == 1 and out.flags.c_contiguous:  # in place: half the traffic of a temporary
            update = dger if out.dtype == np.float64 else sger
            if out.shape[1] == 1:  # a column is contiguous in either order: one long update, not N short ones
                update(-1.0, Z[:, 0], small[0], a=out, overwrite_a=True)
            else:
                update(-1.0, small[0], Z[:, 0], a=out.T, overwrite_a=True)
        else:
            out -= Z @ small


@dataclass(frozen=True, eq=False)
class SparseOperator(Operator):
    """Sparse row blocks, a diagonal, and a low-rank part.

    ``A = diag(diagonal) - diag(scale) W diag(scale) - Z diag(a) Z'`` and ``B = diag(metric)``.
    ``scale``, ``metric`` and ``low_rank`` are None when they are trivial. ``excluded`` are the rows of whole
    components that take no part (:mod:`~spectrograd.operators.laplacian`).
    """

    graph: Graph
    diagonal: Array
    scale: Array | None = None
    metric: Array | None = None
    low_rank: LowRank | None = None
    lower: float = 0.0
    upper: float = 2.0
    excluded: Array | None = None

    @property
    def excluded_rows(self) -> Array | None:
        """Rows of whole components that take no part."""
        return self.excluded

    @property
    def null_vector(self) -> Array | None:
        """``1 / scale`` on the rows that take part, where those are a Laplacian; unknown of signed graphs."""
        if self.graph.is_signed:
            return None
        # 1. the candidate: 1 / scale, zero on excluded rows
        part = np.ones(self.n_nodes)
        if self.excluded is not None:
            part[self.excluded] = 0
        scale = 1.0 if self.scale is None else self._positive_scale
        vector = part / scale
        # 2. its image A v, without a pass: W diag(scale) v = W 1 = degrees
        image = part * (self.diagonal * vector - scale * self.graph.degrees)
        if self.low_rank is not None:
            image -= self.low_rank.factors @ self.low_rank.projected(vector[:, None])[:, 0]
        # 3. a null vector only if the image vanishes up to the rounding of the degrees
        size = np.abs(self.diagonal * vector)[part > 0].min(initial=np.inf)
        return vector if self.lower == 0 and np.abs(image).max() <= NULL_TOLERANCE * size else None

    @property
    def quotients(self) -> Array | None:
        """The diagonal of A over that of B: degrees, of an unnormalised Laplacian."""
        entries = self.diagonal
        if self.low_rank is not None:
            # the diagonal of Z diag(a) Z'
            entries = entries - np.square(self.low_rank.factors) @ self.low_rank.coefficients
        entries = entries if self.metric is None else entries / self.metric
        return entries if self.excluded is None else np.delete(entries, self.excluded)

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return self.graph.n_nodes

    @property
    def names(self) -> Array | None:
        """Names of the nodes."""
        return self.graph.names

    @property
    def n_edges(self) -> int:
        """Edges of the graph."""
        return self.graph.n_edges

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Products alone where there are no edges, or where they are a stream."""
        return EDGES if self.graph.is_resident and self.graph.n_entries else PRODUCTS

    @property
    def is_streamed(self) -> bool:
        """Whether a product reads a disk."""
        return not self.graph.is_resident

    @property
    def rank(self) -> int:
        """Rank of the low-rank part; 0 without one."""
        return 0 if self.low_rank is None else self.low_rank.factors.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Type in which the matrix is stored."""
        return self.diagonal.dtype

    def product(self, engine: Engine, X: MultiVector) -> MultiVector:
        """``A X`` on an engine, for a multivector X; the operator is placed there."""
        product = engine.spmm(self, X)
        return product if self.low_rank is None else engine.subtract_low_rank(product, self.low_rank, X)

    def to_engine(self, engine: Engine) -> SparseOperator:
        """Load vectors and factors as multivectors of an engine."""

        def place(vector: Array | None) -> Any:
            return None if vector is None else engine.from_numpy(np.asarray(vector)[:, None])

        low_rank = self.low_rank and LowRank(
            engine.from_numpy(self.low_rank.factors), self.low_rank.coefficients
        )
        vectors = (place(vector) for vector in (self.diagonal, self.scale, self.metric))
        return replace(
            self, **dict(zip(("diagonal", "scale", "metric"), vectors, strict=True)), low_rank=low_rank
        )

    @cached_property
    def scaled_matrix(self) -> sp.csr_array:
        """``diag(scale) W diag(scale)`` as one scipy array, for graphs small enough for it."""
        W = self.graph.matrix
        weights = W.data
        if self.scale is not None:
            # entry (i, j) of diag(scale) W diag(scale): scale_i w_ij scale_j
            weights = weights * np.repeat(self.scale, np.diff(W.indptr)) * self.scale[W.indices]
        return sp.csr_array((weights.astype(self.dtype, copy=False), W.indices, W.indptr), shape=W.shape)

    def astype(self, dtype: DTypeLike) -> SparseOperator:
        """The same operator with its vectors in ``dtype``; cached, so that casting twice is free.

        Weights are left alone: row blocks give theirs in the type that is asked for.
        """
        if self.dtype == dtype:
            return self
        return self._cast

    @cached_property
    def _cast(self) -> SparseOperator:
        other = np.float32 if self.dtype == np.float64 else np.float64
        return replace(
            self,
            diagonal=self.diagonal.astype(other),
            scale=None if self.scale is None else self.scale.astype(other),
            metric=None if self.metric is None else self.metric.astype(other),
            low_rank=self.low_rank and self.low_rank.astype(other),
        )

    @cached_property
    def row_sums(self) -> Array:
        """Row sums of ``diag(scale) |W| diag(scale)``: the degrees as this operator sees them."""
        if self.scale is None:
            return self.graph.degrees
        blocks = self.graph.blocks
        if self.graph.is_signed:
            # degrees of a signed graph sum the sizes of the weights
            blocks = (b if b.weights is None else replace(b, weights=np.abs(b.weights)) for b in blocks)
        return np.asarray(self.scale * np.concatenate([b.product(self.scale) for b in blocks]))

    @cached_property
    def row_term(self) -> Array:
        """The difference of the diagonal to that of a Laplacian: ``A = L(W) + diag(row_term) - ...``.

        ``L(W) = diag(|W| 1) - W``, a sum over edges of ``|w| (u_i - sign(w) u_j)^2``.
        """
        return self.diagonal - self.row_sums

    def standard_form(self) -> SparseOperator:
        """``B^-1/2 A B^-1/2``, whose eigenvectors are ``B^1/2 u`` and whose metric is the identity."""
        return self if self.metric is None else self._standard

    @cached_property
    def _standard(self) -> SparseOperator:
        assert self.metric is not None
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

    @property
    def standard_factors(self) -> Array | None:
        """Row factors that turn a vector into one of :meth:`standard_form`, shape (N,); None: ones."""
        return None if self.metric is None else self._root

    @property
    def random_walk_factors(self) -> Array | None:
        """Row factors that turn a vector into one of :meth:`random_walk_form`, shape (N,); None: ones."""
        return None if self.scale is None else self._positive_scale

    @cached_property
    def _root(self) -> Array:
        assert self.metric is not None
        return np.asarray(np.sqrt(self.metric))

    def random_walk_form(self) -> SparseOperator:
        """The same pencil without ``scale``: its vectors are ``diag(scale) u``, its metric absorbs it.

        A pass then gathers the vectors as they are; for a normalised Laplacian this is the random walk.
        """
        return self if self.scale is None else self._random_walk

    @cached_property
    def _random_walk(self) -> SparseOperator:
        scale = self._positive_scale
        # A diag(1/s) from both sides: diagonal and metric are divided by s^2, W is left as it is stored
        squares = scale**2
        return replace(
            self,
            diagonal=self.diagonal / squares,
            scale=None,
            metric=(1 if self.metric is None else self.metric) / squares,
            low_rank=self.low_rank
            and LowRank(self.low_rank.factors / scale[:, None], self.low_rank.coefficients),
        )

    def to_random_walk(self, vectors: Array) -> Array:
        """Turn vectors of the pencil into vectors of :meth:`random_walk_form`."""
        return vectors if self.scale is None else vectors * self._positive_scale[:, None]

    def from_random_walk(self, vectors: Array) -> Array:
        """Turn vectors of :meth:`random_walk_form` into vectors of the pencil."""
        return vectors if self.scale is None else vectors / self._positive_scale[:, None]

    @property
    def _positive_scale(self) -> Array:
        """The scale, with ones for nodes without edges, where it plays no part."""
        assert self.scale is not None
        return np.where(self.scale > 0, self.scale, 1)

    def rounding(self, dtype: DTypeLike, *, blocked: bool = False) -> float:
        """A bound on the move of an eigenvalue by rounding: the operator as applied, against the exact one.

        Sums along a row of n entries, the degree among them, are off by ``n eps`` times the sum of the
        absolute values; a few more operations (factors, a Gram matrix, LAPACK) count as eight entries. Where
        an engine sums by blocks (``blocked``; Higham 2002, chapter 4), n is the length of a block plus their
        number, and sums along a column are in float64.
        """
        eps = float(np.finfo(dtype).eps)
        # The longest sum that a product makes; |A| B^-1 has row sums of at
        # most ``size`` (Higham 2002, section 3.5).
        longest = self.graph.longest_row
        per_mass = 1.0 if self.metric is None else 1 / self.metric
        size = 2 * float(np.abs(self.diagonal * per_mass).max()) + max(abs(self.lower), abs(self.upper))
        if blocked and longest > SUM_BLOCK:
            # blocks of SUM_BLOCK terms, then one sum over ceil(longest / SUM_BLOCK) blocks
            longest = SUM_BLOCK + -(-longest // SUM_BLOCK)
        floor = (longest + 8) * eps * size
        if self.low_rank is None:
            return floor
        # |z|^2 in B^-1 per column: the norm of each rank-one part is |a| |z|^2
        squares = (np.square(self.low_rank.factors).T * per_mass).sum(axis=1)
        along = self.n_nodes * float(np.finfo(np.float64).eps) + 8 * eps if blocked else self.n_nodes * eps
        return floor + along * float(np.abs(self.low_rank.coefficients) @ squares)
