"""Vectors that follow one another, stored as rows: orthogonal to all before them, and rotated in place.

Four rows at a time meet one, eight nodes at once in registers. Sums over a chunk of nodes are in the vectors'
own type, over the chunks in float64.
"""

import numba
import numpy as np

from spectrograd.kernels.dense.chunks import joined, summed
from spectrograd.kernels.dense.lanes import WIDTH, nothing, put, put_first, take, take_first
from spectrograd.kernels.jit import inner, parallel

CHUNK = 1024


@parallel
def orthogonalize(Q, first, count, width):
    """Mutates: ``width`` rows of Q from ``count`` on become orthogonal to those before them.

    Returns their coefficients and then their own inner products. Rows from ``first`` on, which hold nearly
    all of them, are taken out before the rest is measured: one round for the others is then enough.
    """
    n_chunks = (Q.shape[1] + CHUNK - 1) // CHUNK
    zero = np.int64(0)  # numba would make a type of 0 and compile all below once more
    partial = np.zeros((n_chunks, count + width, width))
    for c in numba.prange(n_chunks):
        _products(Q, _span(Q, c), (first, count), count, partial[c])
    near = summed(partial)
    for c in numba.prange(n_chunks):
        _subtract(Q, _span(Q, c), first, count, near)
        _products(Q, _span(Q, c), (zero, count), count, partial[c])
    rest = summed(partial)
    for c in numba.prange(n_chunks):
        _subtract(Q, _span(Q, c), zero, count, rest)
        _products(Q, _span(Q, c), (count, count + width), count, partial[c])
    return joined(first, near, rest[:count]), summed(partial)[count:]


@parallel
def rotate(Q, Y):
    """Mutates: the first rows of Q become ``Y' Q``, for as many rows of Q as Y has."""
    used, kept = Y.shape
    for c in numba.prange((Q.shape[1] + CHUNK - 1) // CHUNK):
        span = _span(Q, c)
        rows = np.zeros((kept, CHUNK), Q.dtype)
        for j in range(0, used, 4):
            for a in range(kept):
                _add_four(rows, a, span[0], Q, j, used, span, Y, a, 1.0)
        for a in range(kept):
            for i in range(span[0], span[1]):
                Q[a, i] = rows[a, i - span[0]]


@inner
def _span(Q, c):
    """The nodes of a chunk."""
    return c * CHUNK, min(Q.shape[1], (c + 1) * CHUNK)


@inner
def _products(Q, span, rows, count, out):
    """Mutates: ``out_jk = q_j' w_k`` over one chunk for j in ``rows``, where w_0 is row ``count``."""
    width = out.shape[1]
    sums = np.empty((4, WIDTH), Q.dtype)
    if width < 4:
        for j in range(rows[0], rows[1], 4):
            for k in range(width):
                _four_products(Q, span, j, rows[1], count + k, sums)
                for a in range(min(4, rows[1] - j)):
                    out[j + a, k] = _all_lanes(sums, a)
    else:
        for j in range(rows[0], rows[1]):
            for k in range(0, width, 4):
                _four_products(Q, span, count + k, count + width, j, sums)
                for a in range(min(4, width - k)):
                    out[j, k + a] = _all_lanes(sums, a)


@inner
def _all_lanes(sums, a):
    """The sum of a row of eight, number by number: numba's own sum takes longer to compile."""
    total = sums[a, 0]
    for lane in range(1, WIDTH):
        total += sums[a, lane]
    return total


@inner
def _four_products(Q, span, four, end, one, sums):
    """Mutates: products of row ``one`` with rows from ``four`` on, as sums of eight lanes.

    Rows from ``end`` on are not looked at: the last one takes their place.
    """
    w, x, y, z = four, min(four + 1, end - 1), min(four + 2, end - 1), min(four + 3, end - 1)
    a = b = c = d = nothing(Q)
    whole = span[1] - (span[1] - span[0]) % WIDTH
    for i in range(span[0], whole, WIDTH):
        q = take(Q, one, i)
        a = a + q * take(Q, w, i)
        b = b + q * take(Q, x, i)
        c = c + q * take(Q, y, i)
        d = d + q * take(Q, z, i)
    rest = span[1] - whole
    if rest > 0:
        q = take_first(Q, one, whole, rest)
        a = a + q * take_first(Q, w, whole, rest)
        b = b + q * take_first(Q, x, whole, rest)
        c = c + q * take_first(Q, y, whole, rest)
        d = d + q * take_first(Q, z, whole, rest)
    put(sums, 0, 0, a)
    put(sums, 1, 0, b)
    put(sums, 2, 0, c)
    put(sums, 3, 0, d)


@inner
def _subtract(Q, span, first, count, coefficients):
    """Mutates: ``w_k -= sum_j c_jk q_j`` over one chunk for j from ``first`` to ``count``."""
    nowhere = np.int64(0)
    for j in range(first, count, 4):
        for k in range(coefficients.shape[1]):
            _add_four(Q, count + k, nowhere, Q, j, count, span, coefficients, k, -1.0)


@inner
def _add_four(target, row, shift, Q, j, end, span, coefficients, k, sign):
    """Mutates: a row of ``target``, whose columns lag by ``shift``: plus ``sign sum_j c_jk q_j``, four j."""
    x, y, z = min(j + 1, end - 1), min(j + 2, end - 1), min(j + 3, end - 1)
    number = target.dtype.type
    a = number(sign * coefficients[j, k])
    b = number(sign * coefficients[x, k] if j + 1 < end else 0.0)
    c = number(sign * coefficients[y, k] if j + 2 < end else 0.0)
    d = number(sign * coefficients[z, k] if j + 3 < end else 0.0)
    whole = span[1] - (span[1] - span[0]) % WIDTH
    for i in range(span[0], whole, WIDTH):
        more = (a * take(Q, j, i) + b * take(Q, x, i)) + (c * take(Q, y, i) + d * take(Q, z, i))
        put(target, row, i - shift, take(target, row, i - shift) + more)
    rest = span[1] - whole
    if rest > 0:
        more = a * take_first(Q, j, whole, rest) + b * take_first(Q, x, whole, rest)
        more = more + (c * take_first(Q, y, whole, rest) + d * take_first(Q, z, whole, rest))
        old = take_first(target, row, whole - shift, rest)
        put_first(target, row, whole - shift, rest, old + more)
