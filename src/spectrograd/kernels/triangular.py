"""Solves with a sparse factor for many right-hand sides at once: a row of eight stays in registers."""

import numba
import numpy as np

from spectrograd.kernels._jit import parallel
from spectrograd.kernels.lanes import WIDTH, put, take


@parallel
def solve_factored(indptr, indices, values, pivots, X):
    """Mutates: X, which becomes ``(L D L')^-1 X``.

    ``indptr, indices, values`` hold the columns of L, its unit diagonal first in each, and ``pivots`` the
    diagonal of D; the columns of X are a multiple of eight.
    """
    n = indptr.shape[0] - 1
    for panel in numba.prange(X.shape[1] // WIDTH):
        k = panel * WIDTH
        for j in range(n):
            row = take(X, j, k)
            for p in range(indptr[j] + 1, indptr[j + 1]):
                i = np.uint32(indices[p])
                put(X, i, k, take(X, i, k) - values[p] * row)
        for r in range(n):
            j = n - 1 - r
            row = take(X, j, k) / pivots[j]
            for p in range(indptr[j] + 1, indptr[j + 1]):
                row = row - values[p] * take(X, np.uint32(indices[p]), k)
            put(X, j, k, row)
