"""Sparse matrix times a few columns, fused with the diagonal and the scaling of a Laplacian."""

import numba
import numpy as np

from spectrograd.kernels import SUM_PIECE
from spectrograd.kernels.dense.lanes import WIDTH, nothing, put, put_first, take, take_first
from spectrograd.kernels.jit import inner, parallel

CHUNK = 256


@parallel
def laplacian_rows(start, indptr, indices, weights, diagonal, scale, U, V, out):
    """Mutates: the rows of one block in ``out``.

    ``out_i = diagonal_i u_i - scale_i sum_j w_ij v_j`` where ``V = diag(scale) U`` was prepared by
    the caller (gathering one array is cheaper than two). ``weights`` and ``scale`` may be None.
    """
    n_rows = indptr.shape[0] - 1
    n_columns = U.shape[1]
    rest = n_columns % WIDTH
    whole = n_columns - rest
    one = diagonal.dtype.type(1)
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for r in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            i = start + r
            d = diagonal[i]
            s = one if scale is None else scale[i]
            span = (indptr[r], indptr[r + 1])
            for k in range(0, whole, WIDTH):
                put(out, i, k, d * take(U, i, k) - s * neighbour_lanes(span, indices, weights, V, k))
            if rest > 0:
                total = neighbour_rest(span, indices, weights, V, rest)
                put_first(out, i, whole, rest, d * take_first(U, i, whole, rest) - s * total)


@parallel
def laplacian_column(block, weights, diagonal, scale, u, v, out):
    """Mutates: the entries of one block in ``out``, for a single vector.

    As :func:`laplacian_rows`, with ``block = (start, indptr, indices)``. Two sums at once, and indices
    without a sign: numba then need not look for negative ones.
    """
    start, indptr, indices = block
    n_rows = indptr.shape[0] - 1
    one, two = np.uintp(1), np.uintp(2)
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for r in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            p, end = np.uintp(indptr[r]), np.uintp(indptr[r + 1])
            total = other = u.dtype.type(0)
            while p + one < end:
                x, y = v[np.uint32(indices[p])], v[np.uint32(indices[p + one])]
                if weights is None:
                    total, other = total + x, other + y
                else:
                    total, other = total + weights[p] * x, other + weights[p + one] * y
                p += two
            if p < end:
                x = v[np.uint32(indices[p])]
                total += x if weights is None else weights[p] * x
            total += other
            if scale is not None:
                total *= scale[start + r]
            out[start + r] = diagonal[start + r] * u[start + r] - total


@inner
def neighbour_lanes(span, indices, weights, V, k):
    """``sum_j w_ij v_j`` over one row, the entries of ``span``, eight columns from ``k`` on.

    In pieces: rounding errors then grow with the length of a piece and the number of pieces, not of entries.
    """
    total = nothing(V)
    for first in range(span[0], span[1], SUM_PIECE):
        total = total + _piece_lanes((first, min(span[1], first + SUM_PIECE)), indices, weights, V, k)
    return total


@inner
def neighbour_rest(span, indices, weights, V, rest):
    """The same for the last ``rest`` columns."""
    total = nothing(V)
    for first in range(span[0], span[1], SUM_PIECE):
        total = total + _piece_rest((first, min(span[1], first + SUM_PIECE)), indices, weights, V, rest)
    return total


@inner
def _piece_lanes(span, indices, weights, V, k):
    total = nothing(V)
    first = span[0]
    if weights is None:  # four sums at once: the next addition need not wait for the last
        second, third, fourth = total, total, total
        while first + 3 < span[1]:
            total = total + take(V, np.uint32(indices[first]), k)
            second = second + take(V, np.uint32(indices[first + 1]), k)
            third = third + take(V, np.uint32(indices[first + 2]), k)
            fourth = fourth + take(V, np.uint32(indices[first + 3]), k)
            first += 4
        total = (total + second) + (third + fourth)
    for p in range(first, span[1]):
        row = take(V, np.uint32(indices[p]), k)
        if weights is None:
            total = total + row
        else:
            total = total + weights[p] * row
    return total


@inner
def _piece_rest(span, indices, weights, V, rest):
    total = nothing(V)
    k = V.shape[1] - rest
    for p in range(span[0], span[1]):
        row = take_first(V, np.uint32(indices[p]), k, rest)
        if weights is None:
            total = total + row
        else:
            total = total + weights[p] * row
    return total
