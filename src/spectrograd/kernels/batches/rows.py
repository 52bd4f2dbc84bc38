"""The repaired steps of the paper's algorithm: unbiased, row-normalised, many batches in one call.

Rows of U are padded to a multiple of eight columns, which stay zero. Within a batch the gradient is
parallel over vertices and the move over rows, in fixed chunks whose sums are added in order.
"""

import numba
import numpy as np

from spectrograd.kernels.batches.paper import _inverse, _product
from spectrograd.kernels.dense.chunks import summed
from spectrograd.kernels.dense.lanes import WIDTH, nothing, put, take, take_one, wide
from spectrograd.kernels.jit import inner, parallel

CHUNK = 256
TALLEST = 2.0**40  # mean square of a row's entries that float32 can still square: rows double at every visit


@parallel
def descend(groups, rows, low_rank, steps, total_mass, U, M, Y):
    """Mutates: U, M and Y, by one step per batch; returns how many were done before M broke down or outgrew.

    ``groups`` come from :func:`group_batches`. ``rows = (row_term, metric, push, shares)`` hold for every
    node what the diagonal has beyond a Laplacian, its b_i, its ``1 / q_i`` and one over its number of
    edges; ``low_rank = (Z, a)``. With ``A_S`` the part of A in the batch (Eq. 15) a row moves along

        g_i = (A_S U)_i M^-1 - b_i u_i (M^-1 U'A_S U M^-1) / q_i

    by ``steps[batch]`` times the root mean square length of a row, ``sqrt(Tr M / sum_i b_i)``. M = U'BU
    (K x K, float64) and Y = Z'U follow the rows that move, each counted once.
    """
    vertices, counts, ptr, partners, weights = groups
    row_term, metric, push, shares = rows
    Z, a = low_rank
    n_columns, width = M.shape[0], U.shape[1]
    most = vertices.shape[1]
    G, W = np.empty((most, width), U.dtype), np.empty((most, width), U.dtype)
    for batch in range(counts.shape[0]):
        solved, M_inverse = _inverse(M)
        if not (solved and _trace(M) < TALLEST * n_columns * total_mass):
            return batch
        n = counts[batch]
        n_chunks = (n + CHUNK - 1) // CHUNK
        own = vertices[batch]
        meets = (ptr[batch], partners[batch], weights[batch])
        C = _scaled_rows(a, Y, width, U.dtype)
        H_parts = np.zeros((n_chunks, width, width))
        for c in numba.prange(n_chunks):
            chunk = (c * CHUNK, min(n, (c + 1) * CHUNK))
            _gradient(own, chunk, meets, row_term, shares, Z, C, U, G, W)
            _outer_sums(W, G, chunk, H_parts[c])
        inverse, P = _small_factors(M_inverse, summed(H_parts), _trace(M), width, U.dtype)
        length = U.dtype.type(steps[batch] * np.sqrt(_trace(M) / total_mass))
        M_parts = np.zeros((n_chunks, width, width))
        Y_parts = np.zeros((n_chunks, Z.shape[1], width))
        for c in numba.prange(n_chunks):
            chunk = (c * CHUNK, min(n, (c + 1) * CHUNK))
            _move(own, chunk, (inverse, P), metric, push, length, G, W, U)
            _outer_sums(W, G, chunk, M_parts[c])
            _low_rank_change(own, chunk, Z, G, metric, Y_parts[c])
        _add_symmetric(summed(M_parts), M)
        _add(summed(Y_parts), Y)
    return counts.shape[0]


@inner
def _scaled_rows(a, Y, width, dtype):
    """``diag(a) Y``, padded."""
    C = np.zeros((Y.shape[0], width), dtype)
    for f in range(Y.shape[0]):
        for k in range(Y.shape[1]):
            C[f, k] = a[f] * Y[f, k]
    return C


@inner
def _trace(M):
    total = 0.0
    for k in range(M.shape[0]):
        total += M[k, k]
    return total


@inner
def _gradient(own, chunk, meets, row_term, shares, Z, C, U, G, W):
    """Mutates: rows of G, ``(A_S U)_i`` of the vertices ``i = own[v]`` of a chunk; of W, their ``u_i``."""
    ptr, partners, weights = meets
    one = U.dtype.type(1)
    for v in range(chunk[0], chunk[1]):
        i = np.uint32(own[v])
        share = shares[i] * U.dtype.type(ptr[v + 1] - ptr[v])
        for k in range(0, U.shape[1], WIDTH):
            pull = nothing(U)
            total = share * row_term[i]
            for p in range(ptr[v], ptr[v + 1]):
                w = weights[p] if weights.shape[0] > 0 else one
                pull = pull + w * take(U, np.uint32(partners[p]), k)
                total += w
            for f in range(Z.shape[1]):
                pull = pull + (share * Z[i, f]) * take(C, f, k)
            u = take(U, i, k)
            put(W, v, k, u)
            put(G, v, k, total * u - pull)


@inner
def _outer_sums(W, G, chunk, out):
    """Mutates: ``out = W' G`` over the rows of a chunk, eight by eight sums at a time in registers."""
    for j in range(0, W.shape[1], WIDTH):
        for k in range(0, G.shape[1], WIDTH):
            zero = nothing(G)
            s, t, u, v, w, x, y, z = zero, zero, zero, zero, zero, zero, zero, zero
            for r in range(chunk[0], chunk[1]):
                row = take(G, r, k)
                s = s + take_one(W, r, j) * row
                t = t + take_one(W, r, j + 1) * row
                u = u + take_one(W, r, j + 2) * row
                v = v + take_one(W, r, j + 3) * row
                w = w + take_one(W, r, j + 4) * row
                x = x + take_one(W, r, j + 5) * row
                y = y + take_one(W, r, j + 6) * row
                z = z + take_one(W, r, j + 7) * row
            put(out, j, k, wide(s))
            put(out, j + 1, k, wide(t))
            put(out, j + 2, k, wide(u))
            put(out, j + 3, k, wide(v))
            put(out, j + 4, k, wide(w))
            put(out, j + 5, k, wide(x))
            put(out, j + 6, k, wide(y))
            put(out, j + 7, k, wide(z))


@inner
def _small_factors(M_inverse, H, size, width, dtype):
    """``M^-1`` and ``P = M^-1 H M^-1`` (symmetric, as H is but for rounding), padded, both times ``size``.

    A direction does not change with it; float32 does not underflow where M is of the order of ``size``.
    """
    n = M_inverse.shape[0]
    inverse, P = np.zeros((width, width), dtype), np.zeros((width, width), dtype)
    right = _product(_product(M_inverse, H), M_inverse)
    for j in range(n):
        for k in range(n):
            inverse[j, k] = size * M_inverse[j, k]
            P[j, k] = size * (right[j, k] + right[k, j]) / 2
    return inverse, P


@inner
def _move(own, chunk, small, metric, push, length, G, W, U):
    """Mutates: the rows of U of a chunk, by steps of this length.

    G becomes b_i times the steps, and W the rows half way: ``W'G`` and its transpose are the change of M.
    """
    inverse, P = small
    zero, half = U.dtype.type(0), U.dtype.type(0.5)
    directions, squares = np.empty((4, U.shape[1]), U.dtype), np.empty((4, WIDTH), U.dtype)
    for first in range(chunk[0], chunk[1], 4):
        last = chunk[1] - 1
        _four_directions((first, last), own, (inverse, P), metric, push, G, W, directions, squares)
        for x in range(min(4, chunk[1] - first)):
            r = first + x
            i = np.uint32(own[r])
            square = zero
            for k in range(WIDTH):
                square += squares[x, k]
            rate = -length / np.sqrt(square) if square > zero else zero
            for k in range(0, U.shape[1], WIDTH):
                u, s = take(W, r, k), rate * take(directions, x, k)
                put(U, i, k, u + s)
                put(W, r, k, u + half * s)
                put(G, r, k, metric[i] * s)


@inner
def _four_directions(span, own, small, metric, push, G, W, directions, squares):
    """Mutates: directions and the squares of their entries, of four rows at once (none waits for itself).

    Where rows are missing, the last one is calculated again.
    """
    inverse, P = small
    first, last = span
    a, b, c, d = first, min(first + 1, last), min(first + 2, last), min(first + 3, last)
    i, j, k, m = np.uint32(own[a]), np.uint32(own[b]), np.uint32(own[c]), np.uint32(own[d])
    zero = nothing(G)
    square_a, square_b, square_c, square_d = zero, zero, zero, zero
    for at in range(0, G.shape[1], WIDTH):
        w, x, y, z = zero, zero, zero, zero
        back_w, back_x, back_y, back_z = zero, zero, zero, zero
        for f in range(G.shape[1]):
            pull, pushed = take(inverse, f, at), take(P, f, at)
            w, back_w = w + take_one(G, a, f) * pull, back_w + take_one(W, a, f) * pushed
            x, back_x = x + take_one(G, b, f) * pull, back_x + take_one(W, b, f) * pushed
            y, back_y = y + take_one(G, c, f) * pull, back_y + take_one(W, c, f) * pushed
            z, back_z = z + take_one(G, d, f) * pull, back_z + take_one(W, d, f) * pushed
        w, x = w - (metric[i] * push[i]) * back_w, x - (metric[j] * push[j]) * back_x
        y, z = y - (metric[k] * push[k]) * back_y, z - (metric[m] * push[m]) * back_z
        put(directions, 0, at, w)
        put(directions, 1, at, x)
        put(directions, 2, at, y)
        put(directions, 3, at, z)
        square_a, square_b = square_a + w * w, square_b + x * x
        square_c, square_d = square_c + y * y, square_d + z * z
    put(squares, 0, 0, square_a)
    put(squares, 1, 0, square_b)
    put(squares, 2, 0, square_c)
    put(squares, 3, 0, square_d)


@inner
def _low_rank_change(own, chunk, Z, G, metric, out):
    """Mutates: ``out``, the change of ``Z'U`` from the steps of a chunk."""
    for r in range(chunk[0], chunk[1]):
        i = np.uint32(own[r])
        for f in range(Z.shape[1]):
            z = Z[i, f] / metric[i]
            for k in range(0, G.shape[1], WIDTH):
                put(out, f, k, take(out, f, k) + wide(z * take(G, r, k)))


@inner
def _add_symmetric(change, M):
    """Mutates: M, by ``change`` and its transpose, without the padding."""
    for j in range(M.shape[0]):
        for k in range(M.shape[0]):
            M[j, k] += change[j, k] + change[k, j]


@inner
def _add(change, Y):
    """Mutates: Y, without the padding."""
    for f in range(Y.shape[0]):
        for k in range(Y.shape[1]):
            Y[f, k] += change[f, k]
