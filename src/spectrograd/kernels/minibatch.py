"""Mini-batches of edges: drawn in random order, grouped by their vertices, and their stochastic gradients.

Drawing and grouping do not read the embedding, so batches are prepared side by side, one thread each. A batch
is scattered through its sorted unique vertices: two threads never write to the same row.
"""

import numba
import numpy as np

from spectrograd.kernels.jit import inner, parallel, serial
from spectrograd.kernels.multivector import sum_chunks

FREE = -1  # a cell of a hash table that holds no vertex
ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbouring numbers over a table


@serial
def upper_entries(start, indptr, indices, heads, tails, positions, filled):
    """Mutates: heads, tails and positions from ``filled`` on, by the entries ``i < j`` of one row block.

    ``positions`` (empty where nobody needs them) say where in the block an entry lies, for its weight.
    Returns how many are filled now.
    """
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            if indices[p] > start + r:
                heads[filled] = start + r
                tails[filled] = indices[p]
                if positions.shape[0] > 0:
                    positions[filled] = p
                filled += 1
    return filled


@parallel
def group_batches(heads, tails, values, batch_size):
    """Group each run of ``batch_size`` edges by its unique vertices, in the order in which they appear.

    Returns ``(vertices, counts, ptr, partners, weights)``, one row per batch: its ``counts`` first
    vertices, where the v-th meets the ``partners[ptr[v]:ptr[v+1]]``-th through edges of these weights
    (``values`` of the edges; none at all where every edge weighs one).
    """
    n_edges = heads.shape[0]
    n_batches = (n_edges + batch_size - 1) // batch_size
    ends = 2 * min(batch_size, n_edges)
    vertices = np.empty((n_batches, ends), np.int32)
    counts = np.empty(n_batches, np.int32)
    ptr = np.empty((n_batches, ends + 1), np.int32)
    partners = np.empty((n_batches, ends), np.int32)
    weights = np.empty((n_batches, ends if values.shape[0] > 0 else 0), np.float32)
    for b in numba.prange(n_batches):
        edges = (b * batch_size, min(n_edges, (b + 1) * batch_size))
        slots = np.empty(ends, np.int32)
        # 1. number the ends of the batch's edges by vertex
        n = _number_vertices(heads, tails, edges, slots, vertices[b], ptr[b])
        counts[b] = n
        # 2. list, vertex by vertex, the other ends of its edges
        _place_partners(values, edges, slots, ptr[b, : n + 1], partners[b], weights[b])
    return vertices, counts, ptr, partners, weights


@inner
def _number_vertices(heads, tails, edges, slots, vertices, ptr):
    """Mutates: slots, the number of either end of each edge; vertices; ptr. How many vertices there are."""
    bits = 3
    while (1 << bits) < 4 * (edges[1] - edges[0]):
        bits += 1
    # open addressing: a quarter full at most, so that few cells are visited per look-up
    table = np.full(1 << bits, FREE, np.int32)
    shift = np.uint64(64 - bits)
    mask = np.int64((1 << bits) - 1)
    n = 0
    end = 0
    for e in range(edges[0], edges[1]):
        for side in range(2):
            v = heads[e] if side == 0 else tails[e]
            # multiplicative hashing (Knuth 1998, 6.4): the upper bits of v times an odd number
            cell = np.int64((np.uint64(v) * ODD) >> shift)
            while table[cell] != FREE and vertices[table[cell]] != v:
                cell = (cell + 1) & mask
            if table[cell] == FREE:
                table[cell] = n
                vertices[n] = v
                ptr[n] = 0
                n += 1
            slots[end] = table[cell]
            ptr[table[cell]] += 1
            end += 1
    ptr[n] = 0
    return n


@inner
def _place_partners(values, edges, slots, ptr, partners, weights):
    """Mutates: ptr, from counts to the first place of each vertex; partners and weights."""
    total = 0
    for v in range(ptr.shape[0]):
        total += ptr[v]
        ptr[v] = total  # the end of a vertex; filling from the back brings it to the beginning
    for end in range(2 * (edges[1] - edges[0]) - 1, -1, -1):
        v = slots[end]
        ptr[v] -= 1
        partners[ptr[v]] = slots[end ^ 1]  # the ends of an edge lie side by side
        if values.shape[0] > 0:
            weights[ptr[v]] = values[edges[0] + end // 2]


# --- Mini-batches of edges: draw them, group them by vertex, take their gradient, update the Gram matrix.

CHUNK = 128  # vertices of a chunk: columns of a tile, whose rows stay in a core's first cache


@serial
def row_guide(indptr, shift):
    """For every ``2**shift``-th entry the row it lies in: an O(N) table that finds rows in O(1)."""
    n_cells = (indptr[-1] >> shift) + 1
    guide = np.empty(n_cells, np.int32)
    row = 0
    for cell in range(n_cells):
        # the last row that begins at or before the first entry of the cell; empty rows are passed over
        while row < indptr.shape[0] - 2 and indptr[row + 1] <= (cell << shift):
            row += 1
        guide[cell] = row
    return guide


@serial
def edges_at(positions, indptr, indices, weights, scale, guide, shift):
    """Both ends and the scaled weight of the entries at ``positions`` of a CSR matrix."""
    heads = np.empty(positions.shape[0], np.int32)
    tails = np.empty(positions.shape[0], np.int32)
    values = np.ones(positions.shape[0])
    for e in range(positions.shape[0]):
        # the row of an entry: the guide's, or one of the next few
        p = positions[e]
        row = guide[p >> shift]
        while indptr[row + 1] <= p:
            row += 1
        heads[e] = row
        tails[e] = indices[p]
        if weights is not None:
            values[e] = weights[p]
        if scale is not None:
            values[e] *= scale[row] * scale[indices[p]]
    return heads, tails, values


@serial
def incidence_shares(vertices, ptr, indptr):
    """Which part of each vertex's edges lies in the batch."""
    shares = np.empty(vertices.shape[0])
    for v in range(vertices.shape[0]):
        i = vertices[v]
        shares[v] = (ptr[v + 1] - ptr[v]) / (indptr[i + 1] - indptr[i])
    return shares


@serial
def shuffled_entries(blocks, block_size, n_entries):
    """Entry numbers of whole blocks, in the order of ``blocks``: random yet read in runs."""
    positions = np.empty(blocks.shape[0] * block_size, np.int64)
    filled = 0
    for b in blocks:
        for p in range(b * block_size, min(n_entries, (b + 1) * block_size)):
            positions[filled] = p
            filled += 1
    return positions[:filled]


@serial
def induced_edges(nodes, indptr, indices, slot):
    """Positions of the entries ``i < j`` with both ends among ``nodes``.

    Mutates: slot, scratch of one number per node (what other kernels left in it is no node's negative
    mark, so marks need no clearing before).
    """
    # mark the nodes, count the edges between marked ones, list them, clear the marks
    for i in nodes:
        slot[i] = -1
    count = 0
    for i in nodes:
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] > i and slot[indices[p]] == -1:
                count += 1
    positions = np.empty(count, np.int64)
    count = 0
    for i in nodes:
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] > i and slot[indices[p]] == -1:
                positions[count] = p
                count += 1
    for i in nodes:
        slot[i] = 0
    return positions


@serial
def group_by_vertex(heads, tails, values, ends, slot):
    """Group a batch by its unique vertices, in ascending order so that rows are read in order.

    ``ends`` holds heads and tails sorted (numpy sorts faster than compiled code here). Mutates: ends,
    and slot, scratch of one number per node. Returns ``vertices``, and CSR-like ``ptr``,
    ``partners``, ``weights``: vertex ``v`` meets ``partners[ptr[v]:ptr[v+1]]`` through edges of these
    weights (``values`` of the batch).
    """
    n_edges = heads.shape[0]
    ptr = np.empty(2 * n_edges + 1, np.int32)
    n = 0
    for e in range(2 * n_edges):
        if e == 0 or ends[e] != ends[e - 1]:
            # the first of a run of equal ends: a vertex that is new
            # ``ends`` is sorted: vertices are written over its beginning, which has been read
            slot[ends[e]] = n
            ends[n] = ends[e]
            ptr[n] = e
            n += 1
    ptr[n] = 2 * n_edges
    cursor = ptr[:n].copy()
    partners = np.empty(2 * n_edges, np.int32)
    weights = np.empty(2 * n_edges, values.dtype)
    for e in range(n_edges):
        # both directions of the edge, at the next free place of either vertex
        v = slot[heads[e]]
        partners[cursor[v]] = tails[e]
        weights[cursor[v]] = values[e]
        cursor[v] += 1
        v = slot[tails[e]]
        partners[cursor[v]] = heads[e]
        weights[cursor[v]] = values[e]
        cursor[v] += 1
    return ends[:n], ptr[: n + 1], partners, weights


@parallel
def batch_gradient(batch, row_part, Z, C, U, projected):
    """Rows of ``A_S U`` for the vertices of a batch, and ``U' A_S U`` if ``projected``.

    ``batch`` is the tuple of :func:`group_by_vertex`. Row v is ``sum_e |w_e| u_v - w_e u_partner``
    (Eqs. 13, 15). With ``row_part = (shares, row_term)`` it also holds ``shares_v`` times the parts of
    A that are no edges, ``row_term_v u_v - z_v C`` with ``C = diag(a) Z'U``.

    The rows come as tiles of shape (n_chunks, K, CHUNK), vertex last: K is too short a loop to
    vectorise, a chunk of vertices is not.
    """
    vertices, ptr, partners, weights = batch
    shares, row_term = row_part
    n = vertices.shape[0]
    n_columns = U.shape[1]
    n_chunks = (n + CHUNK - 1) // CHUNK
    G = np.zeros((n_chunks, n_columns, CHUNK), U.dtype)
    partial = np.zeros((n_chunks, n_columns, n_columns))
    for c in numba.prange(n_chunks):
        first = c * CHUNK
        size = min(n - first, CHUNK)
        g = G[c]
        zero = U.dtype.type(0)
        u = np.zeros((n_columns, CHUNK), U.dtype)
        z = np.zeros(CHUNK, U.dtype)
        for x in range(size):
            v = first + x
            own = U[np.uint32(vertices[v])]
            total = zero + shares[v] * row_term[vertices[v]]
            # row v of the batch's Laplacian times U: sum of |w| (u_v) - w u_partner (Eqs. 13, 15)
            for q in range(ptr[v], ptr[v + 1]):
                w = weights[q]
                other = U[np.uint32(partners[q])]
                total += abs(w)
                for k in range(n_columns):
                    g[k, x] -= w * other[k]
            for k in range(n_columns):
                g[k, x] += total * own[k]
                u[k, x] = own[k]
        for f in range(Z.shape[1]):
            for x in range(size):
                z[x] = shares[first + x] * Z[np.uint32(vertices[first + x]), f]
            for k in range(n_columns):
                # the low-rank part, - z_v diag(a) Z'U, in the share of the vertex's edges that were drawn
                coefficient = C[f, k]
                for x in range(CHUNK):
                    g[k, x] -= coefficient * z[x]
        # U'G of the chunk, added up in order of the chunks: the bits do not depend on the threads
        if projected:
            for a in range(n_columns):
                for b in range(n_columns):
                    dot = zero
                    for x in range(CHUNK):
                        dot += u[a, x] * g[b, x]
                    partial[c, a, b] = dot
    return G, sum_chunks(partial)


@parallel
def move_rows(vertices, G, small, rates, metric, Z, moments, U):
    """Mutates: rows ``vertices`` of U, by ``- rate (G M^-1 - B U P)`` with ``small = (M^-1, P)`` (Eq. 10).

    ``moments`` is ``(table, (beta1, beta2))`` of AMSGrad (Reddi et al. 2018), a row ``[m, v, vhat]`` per
    node, mutated too; an empty table makes the step plain gradient descent. Returns the change of
    ``M = U'BU``, summed over unique vertices (the erratum of Eq. 19), and of ``Y = Z'U``.
    """
    inverse, P = small
    n = vertices.shape[0]
    n_columns = U.shape[1]
    n_chunks = (n + CHUNK - 1) // CHUNK
    dM = np.zeros((n_chunks, n_columns, n_columns))
    dY = np.zeros((n_chunks, Z.shape[1], n_columns))
    for c in numba.prange(n_chunks):
        first = c * CHUNK
        rows = vertices[first : min(n, first + CHUNK)]
        u = np.zeros((n_columns, CHUNK), U.dtype)
        b = np.zeros(CHUNK, U.dtype)
        rate = np.zeros(CHUNK, U.dtype)
        for x in range(rows.shape[0]):
            # a tile of the rows, vertex last: loops over vertices are vectorised
            b[x] = metric[rows[x]]
            rate[x] = -rates[first + x]
            own = U[np.uint32(rows[x])]
            for k in range(n_columns):
                u[k, x] = own[k]
        step = np.zeros((n_columns, CHUNK), U.dtype)
        for k in range(n_columns):
            for j in range(n_columns):
                # direction G M^-1 - B U P (Eq. 10), a vector of vertices at a time
                left = inverse[j, k]
                right = P[j, k]
                for x in range(CHUNK):
                    step[k, x] += left * G[c, j, x] - right * b[x] * u[j, x]
        if moments[0].shape[0] > 0:
            _amsgrad(rows, step, moments)
        for k in range(n_columns):
            for x in range(CHUNK):
                step[k, x] *= rate[x]
        for x in range(rows.shape[0]):
            own = U[np.uint32(rows[x])]
            for k in range(n_columns):
                # each row belongs to one vertex of the batch and one chunk: no two threads write to it
                own[k] = u[k, x] + step[k, x]
        # changes of U'BU (Eq. 19 over unique vertices) and of Z'U
        _gram_change(u, step, b, dM[c])
        _low_rank_change(rows, Z, step, b, dY[c])
    return sum_chunks(dM), sum_chunks(dY)


@inner
def _amsgrad(rows, g, moments):
    """Mutates: the rows of the table of moments, and g, which becomes the adapted direction."""
    table, betas = moments
    beta1 = betas[0]
    beta2 = betas[1]
    n_columns = g.shape[0]
    size = rows.shape[0]
    tile = np.zeros((3 * n_columns, CHUNK), g.dtype)
    one = g.dtype.type(1)
    tiny = g.dtype.type(1e-12)
    for x in range(size):
        # the moments of the chunk's rows, as a tile
        row = table[np.uint32(rows[x])]
        for k in range(3 * n_columns):
            tile[k, x] = row[k]
    for k in range(n_columns):
        first = tile[k]
        second = tile[n_columns + k]
        largest = tile[2 * n_columns + k]
        for x in range(CHUNK):
            # AMSGrad (Reddi et al. 2018, Algorithm 2): the largest second moment so far divides
            first[x] = beta1 * first[x] + (one - beta1) * g[k, x]
            second[x] = beta2 * second[x] + (one - beta2) * g[k, x] * g[k, x]
            largest[x] = max(largest[x], second[x])
            g[k, x] = first[x] / (np.sqrt(largest[x]) + tiny)
    for x in range(size):
        row = table[np.uint32(rows[x])]
        for k in range(3 * n_columns):
            row[k] = tile[k, x]


@inner
def _gram_change(u, step, b, dM):
    """Mutates: dM, the change of ``U'BU`` when u becomes u + step; step is zero beyond the chunk."""
    n_columns = u.shape[0]
    for j in range(n_columns):
        for k in range(j + 1):
            dot = u.dtype.type(0)
            for x in range(CHUNK):
                # (u + s)'B(u + s) - u'Bu = u'Bs + s'B(u + s)
                dot += b[x] * (u[j, x] * step[k, x] + step[j, x] * (u[k, x] + step[k, x]))
            dM[j, k] = dot
            dM[k, j] = dot


@inner
def _low_rank_change(rows, Z, step, z, dY):
    """Mutates: dY, the change of ``Z'U``, and the scratch z."""
    for f in range(Z.shape[1]):
        for x in range(rows.shape[0]):
            z[x] = Z[np.uint32(rows[x]), f]
        for k in range(step.shape[0]):
            dot = step.dtype.type(0)
            for x in range(CHUNK):
                dot += z[x] * step[k, x]
            dY[f, k] = dot
