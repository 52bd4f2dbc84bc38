"""Sparse matrix times a few columns, fused with the diagonal and the scaling of a Laplacian.

Kernels are compiled once per type of numbers, weighted or not: :func:`multiply` and :func:`recurrence` give
them what is missing as arrays without entries, and what may be written as what may not.
"""

from typing import Any

import numba
import numpy as np

from spectrograd.kernels import SUM_BLOCK
from spectrograd.kernels.jit import inner, parallel_rows, read_only
from spectrograd.kernels.simd import WIDTH, nothing, put, put_first, take, take_first

CHUNK = 256
Rows = tuple[int, np.ndarray, np.ndarray]  # the first row of a block, indptr and indices


def multiply(
    rows: Rows,
    weights: np.ndarray | None,
    diagonal: np.ndarray,
    scale: np.ndarray | None,
    U: np.ndarray,
    V: np.ndarray,
    out: np.ndarray,
    threaded: bool,
) -> None:
    """Mutates: the rows of one block in ``out``, which is ``diag(diagonal) U - diag(scale) W V``."""
    start, *arrays = rows
    indptr, indices = (read_only(array, array.dtype) for array in arrays)
    numbers = (
        None if weights is None else read_only(weights, U.dtype),
        read_only(diagonal, U.dtype),
        read_only(scale, U.dtype),
    )
    if U.shape[1] == 1:  # a loop of its own: no row of the block fits a register
        column = laplacian_column if threaded else laplacian_column.serial
        column(start, indptr, indices, *numbers, U[:, 0], V[:, 0], out[:, 0])
    else:
        columns = laplacian_rows if threaded else laplacian_rows.serial
        columns(start, indptr, indices, *numbers, U, V, out)


@parallel_rows
def laplacian_rows(start, indptr, indices, weights, diagonal, scale, U, V, out):
    """Mutates: the rows of one block in ``out``.

    ``out_i = diagonal_i u_i - scale_i sum_j w_ij v_j`` where ``V = diag(scale) U`` was prepared by
    the caller (gathering one array is cheaper than two). ``weights`` may be None, ``scale`` empty.
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
            s = scale[i] if scale.shape[0] > 0 else one
            span = (indptr[r], indptr[r + 1])
            for k in range(0, whole, WIDTH):
                # eight columns in one register: diagonal_i u_i - scale_i sum_j w_ij v_j
                put(out, i, k, d * take(U, i, k) - s * neighbour_lanes(span, indices, weights, V, k))
            if rest > 0:
                # the last columns, fewer than a register, by masked loads
                total = neighbour_rest(span, indices, weights, V, rest)
                put_first(out, i, whole, rest, d * take_first(U, i, whole, rest) - s * total)


@parallel_rows
def laplacian_column(start, indptr, indices, weights, diagonal, scale, u, v, out):
    """Mutates: the entries of one block in ``out``, for a single vector.

    As :func:`laplacian_rows`. Two sums at once, and indices without a sign: numba then need not look for
    negative ones.
    """
    n_rows = indptr.shape[0] - 1
    one = np.uintp(1)
    two = np.uintp(2)
    for c in numba.prange((n_rows + CHUNK - 1) // CHUNK):
        for r in range(c * CHUNK, min(n_rows, (c + 1) * CHUNK)):
            p = np.uintp(indptr[r])
            end = np.uintp(indptr[r + 1])
            total = other = u.dtype.type(0)
            while p + one < end:
                x = v[np.uint32(indices[p])]
                y = v[np.uint32(indices[p + one])]
                if weights is None:
                    total = total + x
                    other = other + y
                else:
                    total = total + weights[p] * x
                    other = other + weights[p + one] * y
                p += two
            if p < end:
                x = v[np.uint32(indices[p])]
                total += x if weights is None else weights[p] * x
            total += other
            if scale.shape[0] > 0:
                total *= scale[start + r]
            out[start + r] = diagonal[start + r] * u[start + r] - total


@inner
def neighbour_lanes(span, indices, weights, V, k):
    """``sum_j w_ij v_j`` over one row, the entries of ``span``, eight columns from ``k`` on.

    In pieces: rounding errors then grow with the length of a piece and the number of pieces, not of entries.
    """
    total = nothing(V)
    for first in range(span[0], span[1], SUM_BLOCK):
        # at most SUM_BLOCK entries at a time (Higham 2002, chapter 4)
        total = total + _sum_block_lanes((first, min(span[1], first + SUM_BLOCK)), indices, weights, V, k)
    return total


@inner
def neighbour_rest(span, indices, weights, V, rest):
    """The same for the last ``rest`` columns."""
    total = nothing(V)
    for first in range(span[0], span[1], SUM_BLOCK):
        total = total + _sum_block_rest((first, min(span[1], first + SUM_BLOCK)), indices, weights, V, rest)
    return total


@inner
def _sum_block_lanes(span, indices, weights, V, k):
    total = nothing(V)
    first = span[0]
    if weights is None:  # four sums at once: the next addition need not wait for the last
        second = total
        third = total
        fourth = total
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
def _sum_block_rest(span, indices, weights, V, rest):
    total = nothing(V)
    k = V.shape[1] - rest
    for p in range(span[0], span[1]):
        row = take_first(V, np.uint32(indices[p]), k, rest)
        if weights is None:
            total = total + row
        else:
            total = total + weights[p] * row
    return total


# --- The three-term recurrence of polynomial filters, fused into one pass over the rows.


def recurrence(
    rows: Rows,
    weights: np.ndarray | None,
    diagonal: np.ndarray,
    metric: np.ndarray | None,
    coefficients: tuple[Any, Any, Any],
    rank_one: tuple[np.ndarray, np.ndarray] | None,
    U: np.ndarray,
    previous: np.ndarray,
    out: np.ndarray,
    threaded: bool,
) -> None:
    """Mutates: the rows of one block in ``out``, as :func:`recurrence_rows` has it."""
    start, *arrays = rows
    indptr, indices = (read_only(array, array.dtype) for array in arrays)
    weights = None if weights is None else read_only(weights, U.dtype)
    z, small = rank_one or (np.empty(0, U.dtype), np.empty((0, 0), U.dtype))
    run = recurrence_rows if threaded else recurrence_rows.serial
    run(
        (start, indptr, indices),
        weights,
        read_only(diagonal, U.dtype),
        read_only(metric, U.dtype),
        coefficients,
        (np.ascontiguousarray(z), np.ascontiguousarray(small)),
        U,
        previous,
        out,
    )


@parallel_rows
def recurrence_rows(block, weights, diagonal, metric, coefficients, rank_one, U, previous, out):
    """Mutates: the rows of one block in ``out``.

    ``out = alpha B^-1 (diag(diagonal) - W - z c) U + beta U + gamma previous`` with ``B = diag(metric)``;
    ``block = (start, indptr, indices)``, ``coefficients = (alpha, beta, gamma)`` in the type of U, and
    ``rank_one = (z, c U)`` with one row of U's width in the latter; ``weights`` may be None, ``metric`` and
    ``rank_one`` empty. ``out`` may be ``previous``: each row is read before it is written.
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
        if metric.shape[0] > 0:
            a /= metric[i]
        # out_i = (alpha d_i / b_i + beta) u_i + gamma before_i - alpha / b_i (sum_j w_ij u_j + z_i c u)
        b = a * diagonal[i] + beta
        span = (indptr[r], indptr[r + 1])
        for k in range(0, whole, WIDTH):
            own = b * take(U, i, k) + gamma * take(previous, i, k)
            total = neighbour_lanes(span, indices, weights, U, k)
            if rank_one[0].shape[0] > 0:
                total = total + rank_one[0][i] * take(rank_one[1], 0, k)
            put(out, i, k, own - a * total)
        if rest > 0:
            own = b * take_first(U, i, whole, rest) + gamma * take_first(previous, i, whole, rest)
            total = neighbour_rest(span, indices, weights, U, rest)
            if rank_one[0].shape[0] > 0:
                total = total + rank_one[0][i] * take_first(rank_one[1], 0, whole, rest)
            put_first(out, i, whole, rest, own - a * total)
