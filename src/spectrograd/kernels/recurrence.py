"""The three-term recurrence of polynomial filters, fused into one pass over the rows."""

import numba

from spectrograd.kernels._jit import parallel
from spectrograd.kernels.lanes import WIDTH, put, put_first, take, take_first
from spectrograd.kernels.spmm import neighbour_lanes, neighbour_rest

CHUNK = 256


@parallel
def recurrence_rows(block, weights, diagonal, metric, coefficients, U, previous, out):
    """Mutates: the rows of one block in ``out``.

    ``out = alpha B^-1 (diag(diagonal) - W) U + beta U + gamma previous`` with ``B = diag(metric)``;
    ``block = (start, indptr, indices)`` and ``coefficients = (alpha, beta, gamma)`` in the type of U;
    ``weights`` and ``metric`` may be None. ``out`` may be ``previous``: each row is read before it is
    written.
    """
    start, indptr, indices = block
    n_rows = indptr.shape[0] - 1
    n_columns = U.shape[1]
    rest = n_columns % WIDTH
    whole = n_columns - rest
    alpha, beta, gamma = coefficients
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for r in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            i = start + r
            a = alpha
            if metric is not None:
                a /= metric[i]
            b = a * diagonal[i] + beta
            span = (indptr[r], indptr[r + 1])
            for k in range(0, whole, WIDTH):
                own = b * take(U, i, k) + gamma * take(previous, i, k)
                put(out, i, k, own - a * neighbour_lanes(span, indices, weights, U, k))
            if rest > 0:
                own = b * take_first(U, i, whole, rest) + gamma * take_first(previous, i, whole, rest)
                total = neighbour_rest(span, indices, weights, U, rest)
                put_first(out, i, whole, rest, own - a * total)
