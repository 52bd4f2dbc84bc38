"""The repaired steps of the paper's algorithm: unbiased, row-normalised, many batches in one call.

Rows of U are padded to a multiple of eight columns, which stay zero. Within a batch the gradient is
parallel over vertices and the move over rows, in fixed chunks whose sums are added in order.
"""

import numba
import numpy as np

from spectrograd.kernels.batches.paper import _inverse, _product
from spectrograd.kernels.dense.chunks import summed
from spectrograd.kernels.dense.lanes import WIDTH, nothing, put, take, take_one, total, wide
from spectrograd.kernels.jit import inner, parallel

CHUNK = 256
TILE = 64  # rows that are worked on together: their scratch stays in the innermost cache
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
    Z, a = low_rank
    n_columns, width = M.shape[0], U.shape[1]
    G = np.empty((vertices.shape[1], width), U.dtype)
    for batch in range(counts.shape[0]):
        solved, M_inverse = _inverse(M)
        if not (solved and _trace(M) < TALLEST * n_columns * total_mass):
            return batch
        n = counts[batch]
        n_chunks = (n + CHUNK - 1) // CHUNK
        own = vertices[batch, :n]
        meets = (ptr[batch], partners[batch], weights[batch])
        C = _scaled_rows(a, Y, width, U.dtype)
        H_parts = np.zeros((n_chunks, width, width))
        for c in numba.prange(n_chunks):
            _gradient(own, (c * CHUNK, min(n, (c + 1) * CHUNK)), meets, rows, Z, C, U, G, H_parts[c])
        inverse, P = _small_factors(M_inverse, summed(H_parts), _trace(M), width, U.dtype)
        length = U.dtype.type(steps[batch] * np.sqrt(_trace(M) / total_mass))
        M_parts = np.zeros((n_chunks, width, width))
        Y_parts = np.zeros((n_chunks, Z.shape[1], width))
        for c in numba.prange(n_chunks):
            chunk, parts = (c * CHUNK, min(n, (c + 1) * CHUNK)), (M_parts[c], Y_parts[c])
            _move(own, chunk, (inverse, P), rows, Z, length, G, U, parts)
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
def _gradient(own, chunk, meets, rows, Z, C, U, G, H):
    """Mutates: rows of G, ``(A_S U)_i`` of the vertices ``i = own[v]`` of a chunk, and ``H = U' A_S U``."""
    W = np.empty((TILE, U.shape[1]), U.dtype)
    for first in range(chunk[0], chunk[1], TILE):
        tile = (first, min(chunk[1], first + TILE))
        _pull(own, tile, meets, rows, Z, C, U, G, W)
        _add_outer(W, G, first, tile[1] - first, H)


@inner
def _pull(own, tile, meets, rows, Z, C, U, G, W):
    """Mutates: rows of G, ``(A_S U)_i`` of the vertices of a tile; of W, from row 0 on, their ``u_i``."""
    ptr, partners, weights = meets
    row_term, shares = rows[0], rows[3]
    one = U.dtype.type(1)
    for v in range(tile[0], tile[1]):
        i = np.uint32(own[v])
        share = shares[i] * U.dtype.type(ptr[v + 1] - ptr[v])
        for k in range(0, U.shape[1], WIDTH):
            pull = nothing(U)
            weight = share * row_term[i]
            for p in range(ptr[v], ptr[v + 1]):
                w = weights[p] if weights.shape[0] > 0 else one
                pull = pull + w * take(U, np.uint32(partners[p]), k)
                weight += w
            for f in range(Z.shape[1]):
                pull = pull + (share * Z[i, f]) * take(C, f, k)
            u = take(U, i, k)
            put(W, v - tile[0], k, u)
            put(G, v, k, weight * u - pull)


@inner
def _add_outer(W, G, first, count, out):
    """Mutates: ``out += W' G`` over ``count`` rows, of W from 0 on, of G from ``first`` on.

    Eight by eight sums at a time in registers.
    """
    for j in range(0, W.shape[1], WIDTH):
        for k in range(0, G.shape[1], WIDTH):
            zero = nothing(G)
            s, t, u, v, w, x, y, z = zero, zero, zero, zero, zero, zero, zero, zero
            for r in range(count):
                row = take(G, np.uint32(first + r), k)
                s = s + take_one(W, r, j) * row
                t = t + take_one(W, r, j + 1) * row
                u = u + take_one(W, r, j + 2) * row
                v = v + take_one(W, r, j + 3) * row
                w = w + take_one(W, r, j + 4) * row
                x = x + take_one(W, r, j + 5) * row
                y = y + take_one(W, r, j + 6) * row
                z = z + take_one(W, r, j + 7) * row
            _add_lanes(out, j, k, s)
            _add_lanes(out, j + 1, k, t)
            _add_lanes(out, j + 2, k, u)
            _add_lanes(out, j + 3, k, v)
            _add_lanes(out, j + 4, k, w)
            _add_lanes(out, j + 5, k, x)
            _add_lanes(out, j + 6, k, y)
            _add_lanes(out, j + 7, k, z)


@inner
def _add_lanes(out, j, k, lanes):
    put(out, j, k, take(out, j, k) + wide(lanes))


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
def _move(own, chunk, small, rows, Z, length, G, U, changes):
    """Mutates: the rows of U of a chunk, by steps of this length; ``changes`` of M (half of it) and of Y."""
    half_way, steps = np.zeros((TILE, U.shape[1]), U.dtype), np.empty((TILE, U.shape[1]), U.dtype)
    for first in range(chunk[0], chunk[1], TILE):
        tile = (first, min(chunk[1], first + TILE))
        _step_rows(own, tile, small, rows, length, G, U, half_way, steps)
        _add_outer(half_way, steps, 0, tile[1] - first, changes[0])
        _low_rank_change(own, tile, Z, steps, rows[1], changes[1])


@inner
def _step_rows(own, tile, small, rows, length, G, U, half_way, steps):
    """Mutates: the rows of U of a tile; ``steps`` become b_i times the steps, ``half_way`` the rows between.

    ``half_way' steps`` and its transpose are the change of M.
    """
    metric, push = rows[1], rows[2]
    zero, half = U.dtype.type(0), U.dtype.type(0.5)
    for r in range(tile[1] - tile[0]):
        i = np.uint32(own[tile[0] + r])
        pushed = metric[i] * push[i]
        for k in range(0, U.shape[1], WIDTH):
            put(half_way, r, k, pushed * take(U, i, k))
    for first in range(0, tile[1] - tile[0], 4):
        squares = _four_directions(first, tile, small, G, half_way, steps)
        for x in range(min(4, tile[1] - tile[0] - first)):
            r = first + x
            i = np.uint32(own[tile[0] + r])
            rate = -length / np.sqrt(squares[x]) if squares[x] > zero else zero
            for k in range(0, U.shape[1], WIDTH):
                u, s = take(U, i, k), rate * take(steps, r, k)
                put(U, i, k, u + s)
                put(half_way, r, k, u + half * s)
                put(steps, r, k, metric[i] * s)


@inner
def _four_directions(first, tile, small, G, pushed, out):
    """Mutates: four rows of ``out`` from ``first`` on, ``G M^-1 - pushed P``; the squares of their lengths.

    Four at once, so that none waits for itself; rows beyond the tile hold anything and are not used.
    """
    inverse, P = small
    last = G.shape[0] - 1
    at = tile[0] + first
    a, b, c, d = at, min(at + 1, last), min(at + 2, last), min(at + 3, last)
    zero = nothing(G)
    square_a, square_b, square_c, square_d = zero, zero, zero, zero
    for k in range(0, G.shape[1], WIDTH):
        w, x, y, z = zero, zero, zero, zero
        back_w, back_x, back_y, back_z = zero, zero, zero, zero
        for f in range(G.shape[1]):
            pull, push = take(inverse, f, k), take(P, f, k)
            w, back_w = w + take_one(G, a, f) * pull, back_w + take_one(pushed, first, f) * push
            x, back_x = x + take_one(G, b, f) * pull, back_x + take_one(pushed, first + 1, f) * push
            y, back_y = y + take_one(G, c, f) * pull, back_y + take_one(pushed, first + 2, f) * push
            z, back_z = z + take_one(G, d, f) * pull, back_z + take_one(pushed, first + 3, f) * push
        w, x, y, z = w - back_w, x - back_x, y - back_y, z - back_z
        put(out, first, k, w)
        put(out, first + 1, k, x)
        put(out, first + 2, k, y)
        put(out, first + 3, k, z)
        square_a, square_b = square_a + w * w, square_b + x * x
        square_c, square_d = square_c + y * y, square_d + z * z
    return total(square_a), total(square_b), total(square_c), total(square_d)


@inner
def _low_rank_change(own, tile, Z, steps, metric, out):
    """Mutates: ``out``, by the change of ``Z'U`` from the steps of a tile."""
    for r in range(tile[1] - tile[0]):
        i = np.uint32(own[tile[0] + r])
        for f in range(Z.shape[1]):
            z = Z[i, f] / metric[i]
            for k in range(0, steps.shape[1], WIDTH):
                _add_lanes(out, f, k, z * take(steps, r, k))


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
