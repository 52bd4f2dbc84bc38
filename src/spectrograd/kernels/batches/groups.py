"""Edges in random order, cut into batches, and every batch grouped by its unique vertices.

None of this looks at the embedding, so batches are prepared side by side, one thread each.
"""

import numba
import numpy as np

from spectrograd.kernels.jit import inner, parallel, serial

FREE = -1
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
        n = _number_vertices(heads, tails, edges, slots, vertices[b], ptr[b])
        counts[b] = n
        _place_partners(values, edges, slots, ptr[b, : n + 1], partners[b], weights[b])
    return vertices, counts, ptr, partners, weights


@inner
def _number_vertices(heads, tails, edges, slots, vertices, ptr):
    """Mutates: slots, the number of either end of each edge; vertices; ptr. How many vertices there are."""
    bits = 3
    while (1 << bits) < 4 * (edges[1] - edges[0]):
        bits += 1
    table = np.full(1 << bits, FREE, np.int32)
    shift, mask = np.uint64(64 - bits), np.int64((1 << bits) - 1)
    n, end = 0, 0
    for e in range(edges[0], edges[1]):
        for side in range(2):
            v = heads[e] if side == 0 else tails[e]
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
