"""Mini-batches of edges: draw them, group them by vertex, take their gradient, update the Gram matrix.

A batch never scatters through racing edges: edges are grouped by vertex first (a serial counting
sort), then every vertex gathers its own sum, so any number of threads gives the same bits.
"""

import numba
import numpy as np

from spectrograd.kernels._jit import parallel, serial

CHUNK = 512


@serial
def row_guide(indptr, shift):
    """For every ``2**shift``-th entry the row it lies in: an O(N) table that finds rows in O(1)."""
    n_cells = (indptr[-1] >> shift) + 1
    guide = np.empty(n_cells, np.int32)
    row = 0
    for cell in range(n_cells):
        while row < indptr.shape[0] - 2 and indptr[row + 1] <= (cell << shift):
            row += 1
        guide[cell] = row
    return guide


@serial
def edges_at(positions, indptr, indices, guide, shift):
    """Both ends of the entries at ``positions`` of a CSR matrix."""
    heads = np.empty(positions.shape[0], np.int32)
    tails = np.empty(positions.shape[0], np.int32)
    for e in range(positions.shape[0]):
        p = positions[e]
        row = guide[p >> shift]
        while indptr[row + 1] <= p:
            row += 1
        heads[e] = row
        tails[e] = indices[p]
    return heads, tails


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
    """Positions of the entries ``i < j`` with both ends among ``nodes``. Mutates: slot, restored to -1."""
    for i in nodes:
        slot[i] = 1
    count = 0
    for i in nodes:
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] > i and slot[indices[p]] == 1:
                count += 1
    positions = np.empty(count, np.int64)
    count = 0
    for i in nodes:
        for p in range(indptr[i], indptr[i + 1]):
            if indices[p] > i and slot[indices[p]] == 1:
                positions[count] = p
                count += 1
    for i in nodes:
        slot[i] = -1
    return positions


@serial
def neighbour_by_weight(vertices, uniforms, indptr, weights):
    """Positions of one entry per vertex, drawn with probability ``w_ij / d_i``."""
    positions = np.empty(vertices.shape[0], np.int64)
    for e in range(vertices.shape[0]):
        begin, end = indptr[vertices[e]], indptr[vertices[e] + 1]
        if weights is None:
            positions[e] = begin + np.int64(uniforms[e] * (end - begin))
        else:
            total = 0.0
            for p in range(begin, end):
                total += weights[p]
            target = uniforms[e] * total
            p = begin
            while p < end - 1:
                target -= weights[p]
                if target < 0:
                    break
                p += 1
            positions[e] = p
    return positions


@serial
def group_by_vertex(heads, tails, slot):
    """Group a batch by its unique vertices. Mutates: slot (all -1), restored before returning.

    Returns ``vertices``, and CSR-like ``ptr``, ``partners``, ``edges``: vertex ``v`` meets
    ``partners[ptr[v]:ptr[v+1]]`` through the edges ``edges[ptr[v]:ptr[v+1]]`` of the batch.
    """
    n_edges = heads.shape[0]
    vertices = np.empty(2 * n_edges, np.int32)
    counts = np.zeros(2 * n_edges + 1, np.int32)
    n = 0
    for side in range(2):
        ends = heads if side == 0 else tails
        for e in range(n_edges):
            i = ends[e]
            if slot[i] < 0:
                slot[i] = n
                vertices[n] = i
                n += 1
            counts[slot[i] + 1] += 1
    ptr = counts[: n + 1]
    for v in range(n):
        ptr[v + 1] += ptr[v]
    cursor = ptr[:n].copy()
    partners = np.empty(2 * n_edges, np.int32)
    edges = np.empty(2 * n_edges, np.int32)
    for side in range(2):
        ends, others = (heads, tails) if side == 0 else (tails, heads)
        for e in range(n_edges):
            v = slot[ends[e]]
            partners[cursor[v]] = others[e]
            edges[cursor[v]] = e
            cursor[v] += 1
    vertices = vertices[:n].copy()
    for i in vertices:
        slot[i] = -1
    return vertices, ptr, partners, edges


@parallel
def batch_gradient(batch, edge_weights, row_part, Z, C, U, projected):
    """Rows of ``A_S U`` for the vertices of a batch, and ``U' A_S U`` if ``projected``.

    ``batch`` is the tuple of :func:`group_by_vertex`. Row v is ``sum_e w_e (u_v - u_partner)``
    (Eqs. 13, 15) plus, with ``row_part = (shares, row_term)``, ``shares_v`` times the parts of A that are no edges,
    ``row_term_v u_v - z_v C`` with ``C = diag(a) Z'U``: weighted so that both are equally likely.
    """
    vertices, ptr, partners, edges = batch
    shares, row_term = row_part
    n, n_columns = vertices.shape[0], U.shape[1]
    n_factors = Z.shape[1]
    n_chunks = (n + CHUNK - 1) // CHUNK
    G = np.zeros((n, n_columns), U.dtype)
    partial = np.zeros((n_chunks, n_columns, n_columns))
    for c in numba.prange(n_chunks):
        H = partial[c]
        for v in range(c * CHUNK, min(n, (c + 1) * CHUNK)):
            i = vertices[v]
            own, g = U[i], G[v]
            total = own.dtype.type(0)
            for q in range(ptr[v], ptr[v + 1]):
                w = edge_weights[edges[q]]
                other = U[partners[q]]
                total += w
                for k in range(n_columns):
                    g[k] -= w * other[k]
            share = shares[v]
            total += share * row_term[i]
            for k in range(n_columns):
                g[k] += total * own[k]
            for f in range(n_factors):
                z = share * Z[i, f]
                for k in range(n_columns):
                    g[k] -= z * C[f, k]
            if projected:
                for a in range(n_columns):
                    for b in range(n_columns):
                        H[a, b] += own[a] * g[b]
    H = np.zeros((n_columns, n_columns))
    for c in range(n_chunks):
        H += partial[c]
    return G, H


@parallel
def move_rows(vertices, new, metric, Z, U, gram):
    """Mutates: rows ``vertices`` of U become ``new``.

    Returns the change of ``M = U'BU`` if ``gram`` (summed over unique vertices: the erratum of
    Eq. 19), and of ``Y = Z'U``.
    """
    n, n_columns = new.shape
    n_factors = Z.shape[1]
    n_chunks = (n + CHUNK - 1) // CHUNK
    dM = np.zeros((n_chunks, n_columns, n_columns))
    dY = np.zeros((n_chunks, n_factors, n_columns))
    for c in numba.prange(n_chunks):
        M, Y = dM[c], dY[c]
        delta = np.empty(n_columns)
        for v in range(c * CHUNK, min(n, (c + 1) * CHUNK)):
            i = vertices[v]
            own, fresh = U[i], new[v]
            b = metric[i]
            if gram:
                for j in range(n_columns):
                    for k in range(n_columns):
                        M[j, k] += b * (fresh[j] * fresh[k] - own[j] * own[k])
            for k in range(n_columns):
                delta[k] = fresh[k] - own[k]
                own[k] = fresh[k]
            for f in range(n_factors):
                z = Z[i, f]
                for k in range(n_columns):
                    Y[f, k] += z * delta[k]
    change_M = np.zeros((n_columns, n_columns))
    change_Y = np.zeros((n_factors, n_columns))
    for c in range(n_chunks):
        change_M += dM[c]
        change_Y += dY[c]
    return change_M, change_Y


@parallel
def restricted_descent(batch_rows, G, inverse, P, metric, U, step, moments):
    """New rows after one step along ``2 (G M^-1 - B U P)``, ``P = M^-1 U'A_S U M^-1`` (Eq. 10).

    ``moments`` is ``(m, v, vhat, beta1, beta2)``: AMSGrad (Reddi et al. 2018) on the rows of the batch.
    Mutates: the moments; with empty moments the step is plain gradient descent.
    """
    m, v, vhat, beta1, beta2 = moments
    adaptive = m.shape[0] > 0
    n, n_columns = G.shape
    new = np.empty_like(G)
    for c in numba.prange((n + CHUNK - 1) // CHUNK):
        g = np.empty(n_columns)
        for r in range(c * CHUNK, min(n, (c + 1) * CHUNK)):
            i = batch_rows[r]
            b = metric[i]
            for k in range(n_columns):
                g[k] = 0
            for j in range(n_columns):
                x, y = 2 * G[r, j], 2 * b * U[i, j]
                for k in range(n_columns):
                    g[k] += x * inverse[j, k] - y * P[j, k]
            for k in range(n_columns):
                if adaptive:
                    m[i, k] = beta1 * m[i, k] + (1 - beta1) * g[k]
                    v[i, k] = beta2 * v[i, k] + (1 - beta2) * g[k] * g[k]
                    vhat[i, k] = max(vhat[i, k], v[i, k])
                    new[r, k] = U[i, k] - step * m[i, k] / (np.sqrt(vhat[i, k]) + 1e-12)
                else:
                    new[r, k] = U[i, k] - step * g[k]
    return new
