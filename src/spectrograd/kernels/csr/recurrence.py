"""The three-term recurrence of polynomial filters, fused into one pass over the rows."""

import numba

from spectrograd.kernels.csr.spmm import neighbour_lanes, neighbour_rest
from spectrograd.kernels.dense.lanes import WIDTH, put, put_first, take, take_first
from spectrograd.kernels.jit import inner, parallel

CHUNK = 256


@parallel
def recurrence_rows(block, weights, diagonal, metric, coefficients, rank_one, U, previous, out):
    """Mutates: the rows of one block in ``out``.

    ``out = alpha B^-1 (diag(diagonal) - W - z c) U + beta U + gamma previous`` with ``B = diag(metric)``;
    ``block = (start, indptr, indices)``, ``coefficients = (alpha, beta, gamma)`` in the type of U, and
    ``rank_one = (z, c U)`` with one row of U's width in the latter; ``weights``, ``metric`` and ``rank_one``
    may be None. ``out`` may be ``previous``: each row is read before it is written.
    """
    n_rows = block[1].shape[0] - 1
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        rows = (c * CHUNK, min(n_rows, (c + 1) * CHUNK))
        _recurrence(rows, block, weights, diagonal, metric, coefficients, rank_one, U, previous, out)


@inner
def _recurrence(rows, block, weights, diagonal, metric, coefficients, rank_one, U, previous, out):
    """Mutates: these rows in ``out``. A function of its own: LLVM then keeps all it needs in registers."""
    start, indptr, indices = block
    alpha, beta, gamma = coefficients
    rest = U.shape[1] % WIDTH
    whole = U.shape[1] - rest
    for r in range(rows[0], rows[1]):
        i = start + r
        a = alpha
        if metric is not None:
            a /= metric[i]
        b = a * diagonal[i] + beta
        span = (indptr[r], indptr[r + 1])
        for k in range(0, whole, WIDTH):
            own = b * take(U, i, k) + gamma * take(previous, i, k)
            total = neighbour_lanes(span, indices, weights, U, k)
            if rank_one is not None:
                total = total + rank_one[0][i] * take(rank_one[1], 0, k)
            put(out, i, k, own - a * total)
        if rest > 0:
            own = b * take_first(U, i, whole, rest) + gamma * take_first(previous, i, whole, rest)
            total = neighbour_rest(span, indices, weights, U, rest)
            if rank_one is not None:
                total = total + rank_one[0][i] * take_first(rank_one[1], 0, whole, rest)
            put_first(out, i, whole, rest, own - a * total)
