"""The engine of one process: multivectors are numpy arrays, products run as compiled kernels on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.engines.base import Coefficients, Engine, Work
from spectrograd.engines.column_product import ColumnProduct, compiled_product, scipy_product
from spectrograd.engines.krylov_basis import RowBasis
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.operators.base import Capability, Operator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.system import check, one_thread
from spectrograd.typing import Array

ROW_CHUNK = 1 << 17  # rows combined in place at a time: enough work for all threads, and soon written back
CACHED_ROWS = 4096  # whose copies in float64 stay in a core's cache
# Numbers likewise: copies of more lie in fresh memory, at ten times the price of the product.
CACHED_NUMBERS = 1 << 16
SUM_CHUNK = 1 << 20  # rows whose partial sums, a small matrix for every few of them, are held together


@dataclass(frozen=True)
class LocalEngine(Engine):
    """Passes by compiled kernels; plain numpy where the graph is small. Multivectors are numpy arrays.

    ``n_jobs`` follows scikit-learn: None or -1 means all cores.
    """

    n_jobs: int | None = None
    thresholds: Thresholds = field(default=USUAL, repr=False)
    work: Work = field(default_factory=Work, compare=False, repr=False)

    name: ClassVar[str] = "local"
    has_blocked_summation: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[Capability]] = frozenset(("resident",))

    def __post_init__(self) -> None:
        if self.n_jobs is not None and self._n_threads < 1:
            raise ValueError(
                f"n_jobs={self.n_jobs}: expected at least 1, -1 for all {os.cpu_count()} cores, or None"
            )

    @property
    def _n_threads(self) -> int:
        """Threads asked for; negative numbers count back from all cores, as in scikit-learn."""
        n_jobs = self.n_jobs or 0
        cores = os.cpu_count() or 1
        return n_jobs if n_jobs >= 0 else cores + 1 + n_jobs

    def load_operator(self, operator: Operator) -> Operator:
        """Return the operator itself: kernels take its vectors as they are."""
        return operator

    def spmm(self, operator: SparseOperator, X: Array) -> Array:
        """Multiply row block by row block, in memory or from disk; by scipy where the graph is small."""
        operator = operator.astype(X.dtype)
        if operator.n_nodes <= self.thresholds.small and operator.graph.is_resident:
            if X.shape[1] == 1:
                product = operator.diagonal * X[:, 0]
                product -= operator.scaled_matrix @ X[:, 0]
                return product[:, None]
            return np.asarray(operator.diagonal[:, None] * X - operator.scaled_matrix @ X, dtype=X.dtype)
        from spectrograd.kernels.spmm import multiply

        X = np.ascontiguousarray(X)
        # gathered rows, scaled once instead of once per entry
        V = X if operator.scale is None else operator.scale[:, None] * X
        out = np.empty_like(X)
        for b in operator.graph.blocks:
            rows = (b.start, b.indptr, b.indices)
            numbers = (b.weights_in(X.dtype), operator.diagonal, operator.scale)
            multiply(rows, *numbers, X, V, out, len(b.indices) > self.thresholds.worth_threads)
        return out

    def column_product(self, operator: Operator, dtype: DTypeLike) -> ColumnProduct:
        """Prepare products of single columns: the same bits as :meth:`apply` in fewer calls."""
        if not (isinstance(operator, SparseOperator) and operator.graph.is_resident):
            return super().column_product(operator, dtype)
        low_rank = operator.low_rank
        operator = operator.astype(dtype)
        if operator.n_nodes <= self.thresholds.small:
            multiply = scipy_product(operator)
        else:
            multiply = compiled_product(operator, dtype, self.thresholds)
        work = self.work

        def product(x: Array) -> Array:
            check()
            work.passes += 1
            work.matvecs += 1
            result = multiply(x)
            if low_rank is not None:
                self.subtract_low_rank(result[:, None], low_rank, x[:, None])
            return result

        return product

    def subtract_low_rank(self, product: Array, low_rank: LowRank, X: Array) -> Array:
        """Mutates the product, which is then the result."""
        low_rank.astype(X.dtype).subtract_product(X, product, small=self._project(low_rank, X))
        return product

    def _project(self, low_rank: LowRank, X: Array) -> Array:
        """Compute ``diag(a) Z' X``, summed in float64 whatever the type of X."""
        if X.dtype != np.float32:
            return low_rank.astype(X.dtype).projected(X)
        if X.size <= CACHED_NUMBERS:
            with one_thread():
                return low_rank.astype(np.float64).projected(X.astype(np.float64)).astype(X.dtype)
        factors = np.ascontiguousarray(low_rank.astype(X.dtype).factors)
        return (low_rank.coefficients[:, None] * self.gram(factors, X)).astype(X.dtype)

    def recurrence(
        self,
        operator: Operator,
        X: Array,
        before: Array,
        coefficients: Coefficients,
        out: Array | None = None,
    ) -> Array:
        """Run the recurrence as one fused pass where the operator is sparse."""
        check()
        if operator.n_nodes <= self.thresholds.small or not isinstance(operator, SparseOperator):
            a, b, c = (X.dtype.type(value) for value in coefficients)
            product = self.apply(operator, X)
            if operator.metric is not None:
                product = self.scale_rows(product, 1 / operator.metric)
            return np.asarray(a * product + b * X + c * before)
        assert operator.scale is None, "bring the operator to random_walk_form() first"
        self.work.passes += 1
        self.work.matvecs += X.shape[1]
        return self._run_fused(operator.astype(X.dtype), X, before, coefficients, out)

    def _run_fused(
        self,
        operator: SparseOperator,
        X: Array,
        before: Array,
        coefficients: Coefficients,
        out: Array | None,
    ) -> Array:
        from spectrograd.kernels.spmm import recurrence

        abc = tuple(X.dtype.type(value) for value in coefficients)
        out = np.empty_like(X) if out is None else out
        low_rank = operator.low_rank and operator.low_rank.astype(X.dtype)
        metric = operator.metric
        rank_one = None
        if low_rank is not None and operator.rank == 1:  # on the way, instead of another pass over out
            rank_one = (low_rank.factors[:, 0], self._project(low_rank, X))
        # One pass over the edges: product, diagonal, recurrence and rank-one part row by row.
        for b in operator.graph.blocks:
            rows = (b.start, b.indptr, b.indices)
            numbers = (b.weights_in(X.dtype), operator.diagonal, metric, abc, rank_one)
            recurrence(rows, *numbers, X, before, out, len(b.indices) > self.thresholds.worth_threads)
        # A low-rank part of higher rank takes a pass over the rows of its own.
        if low_rank is not None and rank_one is None:
            small = self._project(low_rank, X)
            low_rank.subtract_product(X, out, float(abc[0]), metric, small)
        return out

    def gram(self, X: Array, Y: Array, metric: Array | None = None, *, symmetric: bool = False) -> Array:
        """Compute the same bits for any number of threads, also of BLAS; half the work if symmetric."""
        if len(X) <= self.thresholds.small or max(X.size, Y.size) <= CACHED_NUMBERS:
            left = X if metric is None else metric[:, None] * X
            with one_thread():
                return np.asarray(left.T.astype(np.float64) @ Y.astype(np.float64))
        if self._is_wide(X.shape[1] * Y.shape[1]) or (self._is_small(X) and self._is_small(Y)):
            from spectrograd.kernels import blas

            with one_thread():
                return blas.gram(X, Y, metric, symmetric or X is Y, self._is_parallel(X))
        from spectrograd.kernels.multivector import gram

        # Chunks of fixed size, added in order: the bits do not depend on the number of threads.
        # float64 sums of SUM_CHUNK rows each, added in order
        total = np.zeros((X.shape[1], Y.shape[1]))
        for first in range(0, len(X), SUM_CHUNK):
            rows = slice(first, first + SUM_CHUNK)
            weights = None if metric is None else metric[rows]
            total += gram(X[rows], Y[rows], weights, symmetric or X is Y, self._is_parallel(X))
        return total

    def _is_wide(self, n_products: int) -> bool:
        """Whether BLAS is faster for so many products per row."""
        return n_products >= self.thresholds.wide**2

    def _is_parallel(self, X: Array) -> bool:
        """Whether a block has enough rows for threads to pay."""
        return len(X) > self.thresholds.parallel_rows

    def _is_small(self, X: Array) -> bool:
        """Whether numpy is as fast as compiled code where a block is read once."""
        return len(X) <= self.thresholds.small or X.size <= self.thresholds.block

    def combine(self, X: Array, C: Array, Y: Array | None = None, E: Array | None = None) -> Array:
        """Combine by a kernel, or by BLAS, one thread per chunk: the same bits for any number."""
        C = np.ascontiguousarray(C, dtype=X.dtype)
        small = None if E is None else np.ascontiguousarray(E, dtype=X.dtype)
        if self._is_small(X):
            with one_thread():
                return np.asarray(X @ C if Y is None or small is None else X @ C + Y @ small)
        if self._is_wide(C.size + (0 if small is None else small.size)):
            from spectrograd.kernels import blas

            with one_thread():
                return blas.combine(X, C, Y, small, self._is_parallel(X))
        from spectrograd.kernels.multivector import combine

        return np.asarray(combine(X, C, Y, small, self._is_parallel(X)))

    def combine_inplace(self, X: Array, C: Array, Y: Array | None = None, E: Array | None = None) -> Array:
        """Mutates X, some rows at a time: no second multivector is needed."""
        for first in range(0, len(X), ROW_CHUNK):
            rows = slice(first, first + ROW_CHUNK)
            X[rows] = self.combine(X[rows], C, None if Y is None else Y[rows], E)
        return X

    def residual(self, operator: Operator, Q: Array, AQ: Array, values: Array) -> Array:
        """Compute the norms in one pass over Q and AQ."""
        return self.residual_rows(operator, Q, AQ, values, keep=False)[1]

    def residual_rows(
        self, operator: Operator, Q: Array, AQ: Array, values: Array, *, keep: bool = True
    ) -> tuple[Array, Array]:
        """``A X - B X diag(values)`` for the first columns X of Q, and the norms of its columns.

        Parameters
        ----------
        operator
            A, with the metric B.
        Q, AQ
            N x m, a basis and its product.
        values
            Ritz values (k <= m).
        keep
            Whether the residual (N x k) is formed, too.
        """
        metric = operator.metric
        metric = None if metric is None else metric.astype(Q.dtype, copy=False)
        if self._is_small(Q):
            R, squares = _residual_by_parts(Q, AQ, values, metric, keep)
        else:
            from spectrograd.kernels.multivector import residual

            R, squares = residual(Q, AQ, values, metric, keep, self._is_parallel(Q))
        return R, np.sqrt(squares)

    def scale_rows(self, X: Array, factors: Array) -> Array:
        """Scale in the type of X."""
        return np.asarray(X * factors.reshape(-1, 1).astype(X.dtype, copy=False))

    def columns(self, X: Array, chosen: slice) -> Array:
        """Copy some columns: kernels take contiguous rows."""
        return np.ascontiguousarray(X[:, chosen])

    def hstack(self, *multivectors: Array) -> Array:
        """Put arrays side by side; a single one is not copied."""
        return (
            multivectors[0]
            if len(multivectors) == 1
            else np.hstack(multivectors).astype(multivectors[0].dtype, copy=False)
        )

    def basis(self, n_rows: int, limit: int, dtype: DTypeLike) -> RowBasis:
        """Make a basis that stores vectors as rows of one array."""
        return RowBasis(n_rows, limit, dtype, self.thresholds)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Limit compiled kernels to ``n_jobs`` threads; None leaves numba alone, even unloaded."""
        if self.n_jobs is None:
            yield
            return
        import numba

        # numba's mask is per thread of Python, and is put back whatever happens
        before = numba.get_num_threads()
        numba.set_num_threads(min(self._n_threads, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            numba.set_num_threads(before)


def _residual_by_parts(
    Q: Array, AQ: Array, values: Array, metric: Array | None, keep: bool
) -> tuple[Array, Array]:
    """As ``residual_rows``, with squares of the norms: some rows at a time, which stay in a core's cache."""
    m = len(values)
    R = np.empty((len(Q) if keep else 0, m), Q.dtype)
    squares = np.zeros(m)
    for first in range(0, len(Q), CACHED_ROWS):
        rows = slice(first, first + CACHED_ROWS)
        b = np.ones((1, 1)) if metric is None else metric[rows, None]
        part = np.asarray(AQ[rows, :m] - b * Q[rows, :m] * values, dtype=Q.dtype)
        squares += (part.astype(np.float64) ** 2 / b).sum(axis=0)
        if keep:
            R[rows] = part
    return R, squares
