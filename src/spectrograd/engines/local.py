"""Everything in this process's memory, on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.interruption import check
from spectrograd.operators.laplacian import SMALL, TALL, WORTH_THREADS, Operator

Array = NDArray[Any]


@dataclass(frozen=True)
class LocalEngine:
    """Passes by compiled kernels; plain numpy where the graph is small.

    ``n_jobs`` follows scikit-learn: None or -1 means all cores.
    """

    n_jobs: int | None = None

    def __post_init__(self) -> None:
        if self.n_jobs is not None and self._n_threads < 1:
            raise ValueError(
                f"n_jobs={self.n_jobs}: expected at least 1, -1 for all {os.cpu_count()} cores, or None"
            )

    @property
    def _n_threads(self) -> int:
        """Threads asked for; negative numbers count back from all cores, as in scikit-learn."""
        n_jobs, cores = self.n_jobs or 0, os.cpu_count() or 1
        return n_jobs if n_jobs >= 0 else cores + 1 + n_jobs

    def spmm(self, operator: Operator, U: Array) -> Array:
        """``A @ U``: one pass."""
        check()
        return operator @ U

    def gram(self, U: Array, V: Array, metric: Array | None, *, symmetric: bool = False) -> Array:
        """``U' diag(metric) V`` in float64, the same bits for any number of threads.

        A product known to be ``symmetric``, as that of U with itself, takes half the work.
        """
        if len(U) <= SMALL:
            left = U if metric is None else metric[:, None] * U
            return np.asarray(left.T.astype(np.float64) @ V.astype(np.float64))
        from spectrograd.kernels.dense.products import gram

        run = gram if len(U) > TALL else gram.serial
        return np.asarray(run(U, V, metric, symmetric or U is V))

    def combine(self, U: Array, C: Array, V: Array | None = None, E: Array | None = None) -> Array:
        """``U C + V E`` for small C and E, in the type of U; without V just ``U C``."""
        C = np.ascontiguousarray(C, dtype=U.dtype)
        if len(U) <= SMALL:
            return np.asarray(U @ C if V is None or E is None else U @ C + V @ E.astype(U.dtype))
        from spectrograd.kernels.dense.products import combine

        small = None if E is None else np.ascontiguousarray(E, dtype=U.dtype)
        return np.asarray(combine(np.ascontiguousarray(U), C, V, small))

    def recurrence(
        self,
        operator: Operator,
        U: Array,
        previous: Array,
        coefficients: tuple[float, float, float],
        out: Array | None = None,
    ) -> Array:
        """``alpha B^-1 A U + beta U + gamma previous`` in one pass, for an operator without ``scale``."""
        check()
        assert operator.scale is None, "bring the operator to walk_form() first"
        operator = operator.astype(U.dtype)
        alpha, beta, gamma = (U.dtype.type(c) for c in coefficients)
        metric = operator.metric
        if operator.n_nodes <= SMALL or operator.only_products:
            product = operator @ U
            if metric is not None:
                product /= metric[:, None]
            return np.asarray(alpha * product + beta * U + gamma * previous)
        from spectrograd.kernels.csr.recurrence import recurrence_rows

        out = np.empty_like(U) if out is None else out
        low_rank = operator.low_rank
        rank_one = None
        if low_rank is not None and operator.rank == 1:  # on the way, instead of another pass over out
            rank_one = (low_rank.factors[:, 0], low_rank.projected(U))
        for b in operator.graph.blocks:
            run = recurrence_rows if len(b.indices) > WORTH_THREADS else recurrence_rows.serial
            rows = (b.start, b.indptr, b.indices)
            run(rows, b.weights, operator.diagonal, metric, (alpha, beta, gamma), rank_one, U, previous, out)
        if low_rank is not None and rank_one is None:
            low_rank.subtract_product(U, out, float(alpha), metric)
        return out

    def residual(
        self, operator: Operator, Q: Array, AQ: Array, values: Array, *, keep: bool = True
    ) -> tuple[Array, Array]:
        """``A X - B X diag(values)`` for the first columns X of Q, and its columns' norms in ``B^-1``.

        Without ``keep`` only the norms, and no rows.
        """
        metric = operator.metric
        if len(Q) <= SMALL:
            b = np.ones((1, 1)) if metric is None else metric[:, None]
            X, AX = Q[:, : len(values)], AQ[:, : len(values)]
            R = np.asarray(AX - b * X * values, dtype=Q.dtype)
            squares = (R.astype(np.float64) ** 2 / b).sum(axis=0)
        else:
            from spectrograd.kernels.dense.products import residual

            run = residual if len(Q) > TALL else residual.serial
            R, squares = run(Q, AQ, values, metric, keep)
        return R, np.sqrt(squares)

    def orthogonalize(self, rows: Array, first: int, count: int, width: int) -> tuple[Array, Array]:
        """Mutates: so many rows from ``count`` on become orthogonal to those before them.

        Their coefficients, and then their inner products.
        """
        if rows.shape[1] <= SMALL:
            known, new = rows[:count], rows[count : count + width]
            near = rows[first:count] @ new.T
            new -= near.T @ rows[first:count]
            rest = known @ new.T
            new -= rest.T @ known
            rest[first:] += near
            return rest, np.asarray(new @ new.T, dtype=np.float64)
        from spectrograd.kernels.dense.krylov import orthogonalize

        run = orthogonalize if rows.shape[1] > TALL else orthogonalize.serial
        coefficients, inner = run(rows, first, count, width)
        return np.asarray(coefficients), np.asarray(inner)

    def rotate(self, rows: Array, Y: Array) -> None:
        """Mutates: the first rows become ``Y' rows``, for as many rows as Y has."""
        if rows.shape[1] <= SMALL:
            rows[: Y.shape[1]] = Y.T.astype(rows.dtype) @ rows[: len(Y)]
            return
        from spectrograd.kernels.dense.krylov import rotate

        run = rotate if rows.shape[1] > TALL else rotate.serial
        run(rows, np.ascontiguousarray(Y, dtype=np.float64))

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Limit compiled kernels to ``n_jobs`` threads; None leaves numba alone, even unloaded."""
        if self.n_jobs is None:
            yield
            return
        import numba

        before = numba.get_num_threads()
        numba.set_num_threads(min(self._n_threads, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            numba.set_num_threads(before)
