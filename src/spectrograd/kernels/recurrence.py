"""The three-term recurrence of polynomial filters, fused into one pass over the rows."""

import numba

from spectrograd.kernels._jit import parallel

CHUNK = 256


@parallel
def recurrence_rows(block, weights, diagonal, metric, coefficients, U, previous, out):
    """Mutates: the rows of one block in ``out``.

    ``out = alpha B^-1 (diag(diagonal) - W) U + beta U + gamma previous`` with ``B = diag(metric)``;
    ``block = (start, indptr, indices)`` and ``coefficients = (alpha, beta, gamma)`` in the type of U;
    ``weights`` and ``metric`` may be None. ``out`` may be ``previous``: each row is read before it is
    written. (Sums held in eight scalars instead of the row were measured 1.5 to 2 times slower.)
    """
    start, indptr, indices = block
    n_rows = indptr.shape[0] - 1
    n_columns = U.shape[1]
    alpha, beta, gamma = coefficients
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for r in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            i = start + r
            a = alpha
            if metric is not None:
                a /= metric[i]
            b = a * diagonal[i] + beta
            row, own, before = out[i], U[i], previous[i]
            for k in range(n_columns):
                row[k] = b * own[k] + gamma * before[k]
            for p in range(indptr[r], indptr[r + 1]):
                source = U[numba.uint32(indices[p])]
                if weights is None:
                    for k in range(n_columns):
                        row[k] -= a * source[k]
                else:
                    w = a * weights[p]
                    for k in range(n_columns):
                        row[k] -= w * source[k]
