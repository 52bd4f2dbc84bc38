"""Everything in this process's memory, on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.laplacian import SMALL, WORTH_THREADS, Operator

Array = NDArray[Any]


@dataclass(frozen=True)
class LocalEngine:
    """Passes by compiled kernels; plain numpy where the graph is small.

    ``n_jobs`` follows scikit-learn: None or -1 means all cores.
    """

    n_jobs: int | None = None

    def spmm(self, operator: Operator, U: Array) -> Array:
        """``A @ U``: one pass."""
        return operator @ U

    def gram(self, U: Array, V: Array, metric: Array | None) -> Array:
        """``U' diag(metric) V`` in float64, the same bits for any number of threads."""
        if len(U) <= SMALL:
            left = U if metric is None else metric[:, None] * U
            return np.asarray(left.T.astype(np.float64) @ V.astype(np.float64))
        from spectrograd.kernels.dense import gram

        return np.asarray((gram if len(U) > WORTH_THREADS // 10 else gram.serial)(U, V, metric))

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Limit compiled kernels to ``n_jobs`` threads; None leaves numba alone, even unloaded."""
        if self.n_jobs is None:
            yield
            return
        import numba

        before = numba.get_num_threads()
        cores = os.cpu_count() or 1
        wanted = self.n_jobs if self.n_jobs > 0 else cores + 1 + self.n_jobs
        numba.set_num_threads(max(1, min(wanted, numba.config.NUMBA_NUM_THREADS)))
        try:
            yield
        finally:
            numba.set_num_threads(before)
