"""Tall-and-skinny dense kernels: Gram matrices in float64, whatever the vectors are."""

import numba
import numpy as np

from spectrograd.kernels._jit import inner, parallel
from spectrograd.kernels.lanes import WIDTH, nothing, put, put_first, take, take_first, wide

CHUNK = 512


@parallel
def gram(U, V, metric, symmetric):
    """``U' diag(metric) V`` accumulated in float64; ``metric`` may be None.

    Of a product that is ``symmetric`` only the upper half is formed, and mirrored.
    """
    n_rows, n_left = U.shape
    n_right = V.shape[1]
    n_chunks = (n_rows + CHUNK - 1) // CHUNK
    partial = np.zeros((n_chunks, n_left, n_right))
    for c in numba.prange(n_chunks):
        rows = (c * CHUNK, min(n_rows, (c + 1) * CHUNK))
        for b in range(0, n_right, WIDTH):
            width = min(WIDTH, n_right - b)
            for a in range(0, min(n_left, b + width) if symmetric else n_left, 4):
                _gram_block(U, V, metric, rows, (a, min(4, n_left - a)), (b, width), partial[c])
    total = np.zeros((n_left, n_right))
    for c in range(n_chunks):
        total += partial[c]
    if symmetric:
        for i in range(n_left):
            for j in range(i):
                total[i, j] = total[j, i]
    return total


@inner
def _gram_block(U, V, metric, rows, left, right, out):
    """Mutates: a block of at most 4 x 8 sums in ``out``, kept in registers meanwhile."""
    (a, height), (b, width) = left, right
    zero = nothing(out)
    first, second, third, fourth = zero, zero, zero, zero
    for i in range(rows[0], rows[1]):
        if width == WIDTH:
            row = wide(take(V, i, b))
        else:
            row = wide(take_first(V, i, b, width))
        if metric is not None:
            row = row * metric[i]
        first = first + U[i, a] * row
        if height > 1:
            second = second + U[i, a + 1] * row
        if height > 2:
            third = third + U[i, a + 2] * row
        if height > 3:
            fourth = fourth + U[i, a + 3] * row
    put_first(out, a, b, width, first)
    if height > 1:
        put_first(out, a + 1, b, width, second)
    if height > 2:
        put_first(out, a + 2, b, width, third)
    if height > 3:
        put_first(out, a + 3, b, width, fourth)


@parallel
def combine(U, C, V, E):
    """``U C + V E`` for tall U, V and small C, E; V and E may be None.

    No library threads to fight with, and the same bits for any number of them.
    """
    n_rows = U.shape[0]
    n_right = C.shape[1]
    out = np.empty((n_rows, n_right), U.dtype)
    rest = n_right % WIDTH
    whole = n_right - rest
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for i in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            for b in range(0, whole, WIDTH):
                row = nothing(out)
                for a in range(U.shape[1]):
                    row = row + U[i, a] * take(C, a, b)
                if V is not None:
                    for a in range(V.shape[1]):
                        row = row + V[i, a] * take(E, a, b)
                put(out, i, b, row)
            if rest > 0:
                row = nothing(out)
                for a in range(U.shape[1]):
                    row = row + U[i, a] * take_first(C, a, whole, rest)
                if V is not None:
                    for a in range(V.shape[1]):
                        row = row + V[i, a] * take_first(E, a, whole, rest)
                put_first(out, i, whole, rest, row)
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
