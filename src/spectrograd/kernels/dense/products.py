"""Tall-and-skinny dense kernels: Gram matrices in float64, whatever the vectors are."""

from typing import Any

import numba
import numpy as np

from spectrograd.kernels.dense.chunks import summed
from spectrograd.kernels.dense.lanes import (
    WIDTH,
    narrow,
    nothing,
    put_first,
    take,
    take_first,
    take_one,
    wide,
)
from spectrograd.kernels.jit import inner, parallel

CHUNK = 512


def as_weights(metric: Any, dtype: Any = np.float64) -> Any:
    """A metric as the kernels here take it: one type for all, none at all is an empty one.

    Otherwise each of them would be compiled for a metric that may be written, for one that may not, and for
    none.
    """
    weights = np.empty(0, dtype) if metric is None else np.ascontiguousarray(metric, dtype=dtype).view()
    weights.flags.writeable = False
    return weights


@parallel
def gram(U, V, metric, symmetric):
    """``U' diag(metric) V`` accumulated in float64; ``metric`` as :func:`as_weights` has it.

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
    total = summed(partial)
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
        if metric.shape[0] > 0:
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
    n_rows, n_right = U.shape[0], C.shape[1]
    out = np.empty((n_rows, n_right), U.dtype)
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        end = min(n_rows, (c + 1) * CHUNK)
        for i in range(c * CHUNK, end, 4):
            for b in range(0, n_right, WIDTH):
                _four_rows(U, C, V, E, i, min(4, end - i), (b, min(WIDTH, n_right - b)), out)
    return out


@inner
def _four_rows(U, C, V, E, i, height, columns, out):
    """Mutates: at most four rows of ``U C + V E`` at once, so that no sum waits for itself."""
    b, width = columns
    last = i + height - 1
    second, third, fourth = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    rows = (i, second, third, fourth)
    zero = nothing(out)
    w, x, y, z = _add_products(U, C, rows, columns, (zero, zero, zero, zero))
    if V is not None:
        w, x, y, z = _add_products(V, E, rows, columns, (w, x, y, z))
    put_first(out, fourth, b, width, z)  # where rows are missing, the last one is written again
    put_first(out, third, b, width, y)
    put_first(out, second, b, width, x)
    put_first(out, i, b, width, w)


@inner
def _add_products(U, C, rows, columns, sums):
    """Sums of four rows, plus those rows of ``U C``."""
    w, x, y, z = sums
    b, width = columns
    for a in range(U.shape[1]):
        row = take(C, a, b) if width == WIDTH else take_first(C, a, b, width)
        w = w + take_one(U, rows[0], a) * row
        x = x + take_one(U, rows[1], a) * row
        y = y + take_one(U, rows[2], a) * row
        z = z + take_one(U, rows[3], a) * row
    return w, x, y, z


@parallel
def residual(Q, AQ, values, metric, keep):
    """``A X - B X diag(values)`` for the first columns X of Q, and their squared norms in ``B^-1``.

    ``metric`` as :func:`as_weights` has it. Norms are summed in float64; without ``keep`` they are all
    there is.
    """
    n_rows, n_columns = Q.shape[0], values.shape[0]
    n_chunks = (n_rows + CHUNK - 1) // CHUNK
    out = np.empty((n_rows if keep else 0, n_columns), Q.dtype)
    theta = values.reshape(1, n_columns)
    partial = np.zeros((n_chunks, n_columns))
    for c in numba.prange(n_chunks):
        rows = (c * CHUNK, min(n_rows, (c + 1) * CHUNK))
        for b in range(0, n_columns, WIDTH):
            _residual_block(Q, AQ, theta, metric, rows, (b, min(WIDTH, n_columns - b)), out, partial)
    return out, summed(partial)


@inner
def _residual_block(Q, AQ, theta, metric, rows, columns, out, partial):
    """Mutates: eight columns of one chunk's rows in ``out``, if it has rows, and of its norms."""
    start, width = columns
    squares, shift = nothing(partial), take_first(theta, 0, start, width)
    for i in range(rows[0], rows[1]):
        b = np.float64(metric[i]) if metric.shape[0] > 0 else 1.0
        own, product = take_first(Q, i, start, width), take_first(AQ, i, start, width)
        r = wide(product) - b * shift * wide(own)
        squares = squares + r * r / b
        if out.shape[0] > 0:
            put_first(out, i, start, width, narrow(r, own))
    put_first(partial, rows[0] // CHUNK, start, width, squares)
