"""The steps of ``sgd``: unbiased, row-normalised, many batches in one call.

Rows of U are padded to a multiple of eight columns, which stay zero. A batch's rows are copied side by
side first: from then on it works in the inner caches, whatever the size of U. Copies and gradient are
parallel over vertices and the move over rows, in fixed chunks whose sums are added in order.
"""

import numba
import numpy as np

from spectrograd.kernels.baselines import _inverse, _product
from spectrograd.kernels.jit import inner, parallel
from spectrograd.kernels.multivector import sum_chunks
from spectrograd.kernels.simd import WIDTH, nothing, put, take, take_one, total, wide

CHUNK = 256  # vertices of a chunk, whose sums are K x K matrices in float64
TILE = 64  # rows that are summed in float32 before float64 takes them over
MAX_MEAN_SQUARE = (
    2.0**40
)  # mean square of a row's entries that float32 can still square: rows double at every visit
ROW_TERM, METRIC, PUSH, SHARE = range(4)  # columns of what is known of a node


@parallel
def descend(groups, nodes, low_rank, steps, total_mass, U, M, Y):
    """Mutates: U, M and Y, by one step per batch; returns how many were done before M broke down or outgrew.

    ``groups`` come from :func:`group_batches`. ``nodes`` (N, 4) hold for every node what the diagonal has
    beyond a Laplacian, its b_i, its ``1 / q_i`` and one over its number of edges; ``low_rank = (Z, a)``.
    With ``A_S`` the part of A in the batch (Eq. 15) a row moves along

        g_i = (A_S U)_i M^-1 - b_i u_i (M^-1 U'A_S U M^-1) / q_i

    by ``steps[batch]`` times the root mean square length of a row, ``sqrt(Tr M / sum_i b_i)``. M = U'BU
    (K x K, float64) and Y = Z'U follow the rows that move, each counted once.
    """
    vertices, counts, ptr, partners, weights = groups
    Z, a = low_rank
    n_columns = M.shape[0]
    width = U.shape[1]
    G = np.empty((vertices.shape[1], width), U.dtype)
    W = np.empty((vertices.shape[1], width), U.dtype)
    known = np.empty((vertices.shape[1], 4), U.dtype)
    for batch in range(counts.shape[0]):
        # 1. M^-1 (K x K); where M has lost rank or outgrown float32 the caller measures it afresh
        solved, M_inverse = _inverse(M)
        if not (solved and _trace(M) < MAX_MEAN_SQUARE * n_columns * total_mass):
            return batch
        n = counts[batch]
        n_chunks = (n + CHUNK - 1) // CHUNK
        own = vertices[batch, :n]
        meets = (ptr[batch], partners[batch], weights[batch])
        for c in numba.prange(n_chunks):
            # 2. copy the rows of the batch side by side: what follows stays in the inner caches
            _collect(own, (c * CHUNK, min(n, (c + 1) * CHUNK)), nodes, U, known, W)
        # 3. G = A_S U and H = U'A_S U (Eqs. 13, 15), with C = diag(a) Z'U for the low-rank part
        C = _scale_rows(a, Y, width, U.dtype)
        H_parts = np.zeros((n_chunks, width, width))
        for c in numba.prange(n_chunks):
            _gradient(own, (c * CHUNK, min(n, (c + 1) * CHUNK)), meets, known, Z, C, W, G, H_parts[c])
        H = _mirror(sum_chunks(H_parts)) if Z.shape[1] == 0 else sum_chunks(H_parts)
        # 4. the K x K factors of the gradient, and the length of this batch's steps
        inverse, P = _small_factors(M_inverse, H, _trace(M), width, U.dtype)
        length = U.dtype.type(steps[batch] * np.sqrt(_trace(M) / total_mass))
        # 5. move the rows (Eq. 10), each by the same length
        M_parts = np.zeros((n_chunks, width, width))
        Y_parts = np.zeros((n_chunks, Z.shape[1], width))
        for c in numba.prange(n_chunks):
            chunk = (c * CHUNK, min(n, (c + 1) * CHUNK))
            parts = (M_parts[c], Y_parts[c])
            _move(own, chunk, (inverse, P), known, Z, length, G, W, U, parts)
        # 6. M and Y follow the rows that moved, each counted once (Eq. 19 and its erratum)
        _add_symmetric(sum_chunks(M_parts), M)
        _add(sum_chunks(Y_parts), Y)
    return counts.shape[0]


@inner
def _collect(own, chunk, nodes, U, known, W):
    """Mutates: the rows of a chunk in ``known`` and W, copies of those of ``nodes`` and U."""
    for v in range(chunk[0], chunk[1]):
        i = np.uint32(own[v])
        for c in range(nodes.shape[1]):
            known[v, c] = nodes[i, c]
        for k in range(0, U.shape[1], WIDTH):
            put(W, v, k, take(U, i, k))


@inner
def _scale_rows(a, Y, width, dtype):
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
def _gradient(own, chunk, meets, known, Z, C, W, G, H):
    """Mutates: rows of G, ``(A_S U)_i`` of the vertices ``i = own[v]`` of a chunk, and ``H = U' A_S U``.

    Of edges alone H is symmetric, and its blocks below the diagonal are left out.
    """
    for first in range(chunk[0], chunk[1], TILE):
        last = min(chunk[1], first + TILE)
        _pull(own, (first, last), meets, known, Z, C, W, G)
        _add_outer(W, G, (first, last), Z.shape[1] == 0, H)


@inner
def _pull(own, span, meets, known, Z, C, W, G):
    """Mutates: rows of G, ``(A_S U)_i`` of a span of vertices."""
    ptr, partners, weights = meets
    one = W.dtype.type(1)
    for v in range(span[0], span[1]):
        i = np.uint32(own[v])
        # share of the node's edges that are in the batch
        share = known[v, SHARE] * W.dtype.type(ptr[v + 1] - ptr[v])
        for k in range(0, W.shape[1], WIDTH):
            pull = nothing(W)
            weight = share * known[v, ROW_TERM]
            for p in range(ptr[v], ptr[v + 1]):
                # sum_j w_ij u_j and sum_j |w_ij| over the edges of the batch (Eqs. 13, 15)
                w = weights[p] if weights.shape[0] > 0 else one
                pull = pull + w * take(W, np.uint32(partners[p]), k)
                weight += abs(w)
            for f in range(Z.shape[1]):
                # the low-rank part z_i diag(a) Z'U, in the same share
                pull = pull + (share * Z[i, f]) * take(C, f, k)
            put(G, v, k, weight * take(W, v, k) - pull)


@inner
def _add_outer(W, G, span, symmetric, out):
    """Mutates: ``out += W' G`` over a span of rows; of a symmetric product only the upper blocks.

    Eight by eight sums at a time in registers.
    """
    for j in range(0, W.shape[1], WIDTH):
        for k in range(j if symmetric else 0, G.shape[1], WIDTH):
            zero = nothing(G)
            s = zero
            t = zero
            u = zero
            v = zero
            w = zero
            x = zero
            y = zero
            z = zero
            for r in range(span[0], span[1]):
                # 64 sums over r of w_rj g_rk, in eight registers
                row = take(G, r, k)
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
def _mirror(H):
    """Mutates: H below its diagonal."""
    for j in range(H.shape[0]):
        for k in range(j):
            H[j, k] = H[k, j]
    return H


@inner
def _small_factors(M_inverse, H, size, width, dtype):
    """``M^-1`` and ``P = M^-1 H M^-1``, made symmetric, padded, both times ``size``.

    A direction does not change with it; float32 does not underflow where M is of the order of ``size``.
    """
    n = M_inverse.shape[0]
    inverse = np.zeros((width, width), dtype)
    P = np.zeros((width, width), dtype)
    # the symmetric part only: the antisymmetric one turns U within its span
    right = _product(_product(M_inverse, H), M_inverse)
    for j in range(n):
        for k in range(n):
            inverse[j, k] = size * M_inverse[j, k]
            P[j, k] = size * (right[j, k] + right[k, j]) / 2
    return inverse, P


@inner
def _move(own, chunk, small, known, Z, length, G, W, U, changes):
    """Mutates: the rows of U of a chunk, by steps of this length; ``changes`` of M (half of it) and of Y.

    G and W are used up: they become b_i times the steps and the rows half way, whose product
    ``W' G`` and its transpose are the change of M.
    """
    for first in range(chunk[0], chunk[1], TILE):
        span = (first, min(chunk[1], first + TILE))
        _step_rows(own, span, small, known, length, G, W, U)
        _add_outer(W, G, span, False, changes[0])
        _low_rank_change(own, span, Z, known, G, changes[1])


@inner
def _step_rows(own, span, small, known, length, G, W, U):
    """Mutates: the rows of U of a span of vertices, and those of G and W."""
    four = np.empty((4, G.shape[1]), G.dtype)
    zero = U.dtype.type(0)
    half = U.dtype.type(0.5)
    for first in range(span[0], span[1], 4):
        # 1. directions g_i of four rows, and their squared lengths
        squares = _four_directions(first, small, known, G, W, four)
        for x in range(min(4, span[1] - first)):
            v = first + x
            i = np.uint32(own[v])
            # 2. steps of one length, whatever the size of the gradient
            rate = -length / np.sqrt(squares[x]) if squares[x] > zero else zero
            for k in range(0, U.shape[1], WIDTH):
                u = take(W, v, k)
                s = rate * take(four, x, k)
                put(U, i, k, u + s)
                # (u + s)'b(u + s) - u'bu = m'bs + s'bm with m = u + s/2: W becomes m, G becomes b s
                put(W, v, k, u + half * s)
                put(G, v, k, known[v, METRIC] * s)


@inner
def _four_directions(at, small, known, G, W, out):
    """Mutates: ``out``, ``G M^-1 - W P b / q`` of the four rows from ``at`` on; the squares of their lengths.

    Four at once, so that none waits for itself; rows beyond the batch repeat the last and are not used.
    """
    inverse, P = small
    last = G.shape[0] - 1
    a = at
    b = min(at + 1, last)
    c = min(at + 2, last)
    d = min(at + 3, last)
    zero = nothing(G)
    square_a = zero
    square_b = zero
    square_c = zero
    square_d = zero
    for k in range(0, G.shape[1], WIDTH):
        w = zero
        x = zero
        y = zero
        z = zero
        back_w = zero
        back_x = zero
        back_y = zero
        back_z = zero
        for f in range(G.shape[1]):
            # row f of M^-1 and of P, times entry f of each of the four rows
            pull = take(inverse, f, k)
            push = take(P, f, k)
            w = w + take_one(G, a, f) * pull
            back_w = back_w + take_one(W, a, f) * push
            x = x + take_one(G, b, f) * pull
            back_x = back_x + take_one(W, b, f) * push
            y = y + take_one(G, c, f) * pull
            back_y = back_y + take_one(W, c, f) * push
            z = z + take_one(G, d, f) * pull
            back_z = back_z + take_one(W, d, f) * push
        # g_i = (A_S U)_i M^-1 - b_i / q_i u_i P
        w = w - _push(known, a) * back_w
        x = x - _push(known, b) * back_x
        y = y - _push(known, c) * back_y
        z = z - _push(known, d) * back_z
        put(out, 0, k, w)
        put(out, 1, k, x)
        put(out, 2, k, y)
        put(out, 3, k, z)
        square_a = square_a + w * w
        square_b = square_b + x * x
        square_c = square_c + y * y
        square_d = square_d + z * z
    return total(square_a), total(square_b), total(square_c), total(square_d)


@inner
def _push(known, v):
    """``b_i / q_i``."""
    return known[v, METRIC] * known[v, PUSH]


@inner
def _low_rank_change(own, span, Z, known, steps, out):
    """Mutates: ``out``, by the change of ``Z'U`` from the steps, which hold b_i times the rows' own."""
    change = np.zeros((Z.shape[1], steps.shape[1]), steps.dtype)
    for v in range(span[0], span[1]):
        i = np.uint32(own[v])
        # G holds b_i s_i: divide by b_i for the step itself
        mass = known[v, METRIC]
        for k in range(0, steps.shape[1], WIDTH):
            step = take(steps, v, k) * (steps.dtype.type(1) / mass)
            for f in range(Z.shape[1]):
                put(change, f, k, take(change, f, k) + Z[i, f] * step)
    for f in range(Z.shape[1]):
        for k in range(0, steps.shape[1], WIDTH):
            _add_lanes(out, f, k, take(change, f, k))


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
