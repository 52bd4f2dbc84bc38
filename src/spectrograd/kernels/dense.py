"""Tall-and-skinny dense kernels: Gram matrices in float64, whatever the vectors are."""

import numba
import numpy as np

from spectrograd.kernels._jit import parallel

CHUNK = 2048


@parallel
def gram(U, V, metric):
    """``U' diag(metric) V`` accumulated in float64; ``metric`` may be None."""
    n_rows, n_left = U.shape
    n_right = V.shape[1]
    n_chunks = (n_rows + CHUNK - 1) // CHUNK
    partial = np.zeros((n_chunks, n_left, n_right))
    for c in numba.prange(n_chunks):
        block = partial[c]
        for i in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            for a in range(n_left):
                x = np.float64(U[i, a])
                if metric is not None:
                    x *= metric[i]
                for b in range(n_right):
                    block[a, b] += x * V[i, b]
    total = np.zeros((n_left, n_right))
    for c in range(n_chunks):
        total += partial[c]
    return total


@parallel
def combine(U, C, V, E):
    """``U C + V E`` for tall U, V and small C, E; V and E may be None.

    No library threads to fight with, and the same bits for any number of them.
    """
    n_rows, n_left = U.shape
    n_right = C.shape[1]
    out = np.zeros((n_rows, n_right), U.dtype)
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for i in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            row, own = out[i], U[i]
            for a in range(n_left):
                x = own[a]
                small = C[a]
                for b in range(n_right):
                    row[b] += x * small[b]
            if V is not None:
                other = V[i]
                for a in range(V.shape[1]):
                    x = other[a]
                    small = E[a]
                    for b in range(n_right):
                        row[b] += x * small[b]
    return out


@parallel
def residual(Q, AQ, values, metric):
    """``A X - B X diag(values)`` for the first columns X of Q, and their squared norms in ``B^-1``.

    ``metric`` may be None. Norms are summed in float64.
    """
    n_rows, n_columns = Q.shape[0], values.shape[0]
    n_chunks = (n_rows + CHUNK - 1) // CHUNK
    out = np.empty((n_rows, n_columns), Q.dtype)
    partial = np.zeros((n_chunks, n_columns))
    for c in numba.prange(n_chunks):
        squares = partial[c]
        for i in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            b = 1.0
            if metric is not None:
                b = np.float64(metric[i])
            row, own, product = out[i], Q[i], AQ[i]
            for k in range(n_columns):
                r = product[k] - b * own[k] * values[k]
                row[k] = r
                squares[k] += r * r / b
    total = np.zeros(n_columns)
    for c in range(n_chunks):
        total += partial[c]
    return out, total
