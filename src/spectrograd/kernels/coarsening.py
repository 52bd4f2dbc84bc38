"""Coarsening: heavy-edge matching and the Galerkin product, without a general sparse product."""

import numba
import numpy as np
import scipy.sparse as sp

from spectrograd.kernels.jit import parallel, serial

N_PARTS = 8  # fixed, so that the result does not depend on the number of threads
CHUNK = 2048


def match(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, mass: np.ndarray, largest: int
) -> tuple[np.ndarray, int]:
    """Aggregates of a graph: vertex -> coarse vertex, and their number.

    Vertices in order pair with the free neighbour of largest ``w_ij / max(mass_i, mass_j)``; those left
    over join the aggregate of their strongest neighbour while it has fewer than ``largest`` members,
    else stay alone.
    """
    n = len(indptr) - 1
    part = np.full(n, -1, np.int32)
    size = np.zeros(n, np.int32)
    n_parts = _match(indptr, indices, weights, mass, largest, part, size)
    return part, n_parts


@serial
def _match(indptr, indices, weights, mass, largest, part, size):
    """Mutates: part, size. The number of aggregates."""
    n_parts = 0
    # Two rounds over the vertices: pairs of free neighbours first, then those left over join an aggregate.
    for late in (False, True):
        for i in range(len(part)):
            if part[i] >= 0:
                continue
            best = -1
            strongest = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                a = part[j]
                if (a >= 0 and size[a] < largest) if late else (a < 0 and j != i):
                    # w_ij / max(mass_i, mass_j): a light vertex does not drag a hub into its aggregate
                    w = 1.0 if weights is None else np.float64(weights[p])
                    w /= max(mass[i], mass[j])
                    if w > strongest:
                        best = j
                        strongest = w
            if late and best >= 0:
                part[i] = part[best]
                size[part[i]] += 1
            elif late or best >= 0:  # alone, or with a free neighbour
                part[i] = part[best if best >= 0 else i] = n_parts
                size[n_parts] = 1 if late else 2
                n_parts += 1
    return n_parts


def members(part: np.ndarray, n_parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices grouped by aggregate: ``order[begin[c]:begin[c+1]]`` are those of c."""
    n = len(part)
    one = np.ones(len(part), np.int8)
    grouped = sp.csr_array((one, part, np.arange(n + 1)), shape=(n, n_parts)).tocsc()  # sorts by counting
    return grouped.indptr.astype(np.int64), grouped.indices.astype(np.int32, copy=False)


@parallel
def galerkin(indptr, indices, weights, part, begin, order):
    """``P'WP`` without its diagonal as CSR, P the indicator of the aggregates; weights in float64.

    Each of a fixed number of parts of the coarse rows has its own table of where a column stands.
    """
    n_coarse = begin.shape[0] - 1
    capacity = np.zeros(n_coarse + 1, np.int64)
    for c in range(n_coarse):
        # 1. an upper bound on the entries of each coarse row: those of its members
        capacity[c + 1] = capacity[c]
        for q in range(begin[c], begin[c + 1]):
            capacity[c + 1] += indptr[order[q] + 1] - indptr[order[q]]
    columns = np.empty(capacity[-1], np.int32)
    values = np.empty(capacity[-1])
    length = np.zeros(n_coarse + 1, np.int64)
    for t in numba.prange(N_PARTS):
        # 2. ``place[d]``: where in the row column d stands; entries before ``first`` are of earlier rows
        place = np.full(n_coarse, -1, np.int64)
        for c in range(t * n_coarse // N_PARTS, (t + 1) * n_coarse // N_PARTS):
            first = capacity[c]
            end = first
            for q in range(begin[c], begin[c + 1]):
                i = order[q]
                for p in range(indptr[i], indptr[i + 1]):
                    d = part[indices[p]]
                    # an edge inside the aggregate vanishes from the Laplacian
                    if d == c:
                        continue
                    w = 1.0
                    if weights is not None:
                        w = np.float64(weights[p])
                    at = place[d]
                    if at < first:
                        place[d] = end
                        columns[end] = d
                        values[end] = w
                        end += 1
                    else:
                        values[at] += w
            length[c + 1] = end - first
    for c in range(n_coarse):
        length[c + 1] += length[c]
    # 3. close the gaps that the upper bound has left
    indices_out = np.empty(length[-1], np.int32)
    weights_out = np.empty(length[-1])
    for t in numba.prange(N_PARTS):
        for c in range(t * n_coarse // N_PARTS, (t + 1) * n_coarse // N_PARTS):
            for x in range(length[c + 1] - length[c]):
                indices_out[length[c] + x] = columns[capacity[c] + x]
                weights_out[length[c] + x] = values[capacity[c] + x]
    return length, indices_out, weights_out


@parallel
def restrict(begin, order, scale, R):
    """``P' diag(scale) R``: sums over the aggregates; ``scale`` may be None."""
    n_coarse = begin.shape[0] - 1
    n_columns = R.shape[1]
    out = np.zeros((n_coarse, n_columns), R.dtype)
    for c in numba.prange((n_coarse + CHUNK - 1) // CHUNK):
        for a in range(c * CHUNK, min(n_coarse, (c + 1) * CHUNK)):
            row = out[a]
            for q in range(begin[a], begin[a + 1]):
                own = R[order[q]]
                s = R.dtype.type(1)
                if scale is not None:
                    s = scale[order[q]]
                for k in range(n_columns):
                    row[k] += s * own[k]
    return out


@parallel
def add_prolonged(part, C, X):
    """Mutates: X, by ``P C``: every vertex adds its aggregate's row."""
    n, n_columns = X.shape
    for c in numba.prange((n + CHUNK - 1) // CHUNK):
        for i in range(c * CHUNK, min(n, (c + 1) * CHUNK)):
            row = X[i]
            coarse = C[part[i]]
            for k in range(n_columns):
                row[k] += coarse[k]


def entries_left(
    indptr: np.ndarray,
    indices: np.ndarray,
    part: np.ndarray,
    begin: np.ndarray,
    order: np.ndarray,
    chosen: np.ndarray,
) -> float:
    """What share of the entries of the chosen aggregates is left after coarsening."""
    counts = np.zeros(2, np.int64)
    last_seen = np.full(len(begin) - 1, -1, np.int32)
    _count_entries(indptr, indices, part, begin, order, chosen, last_seen, counts)
    return float(counts[1] / max(counts[0], 1))


@serial
def _count_entries(indptr, indices, part, begin, order, chosen, last_seen, counts):
    """Mutates: last_seen, and counts by the entries before and after."""
    for k in range(len(chosen)):
        c = chosen[k]
        last_seen[c] = c  # entries inside an aggregate vanish
        for m in range(begin[c], begin[c + 1]):
            i = order[m]
            counts[0] += indptr[i + 1] - indptr[i]
            for p in range(indptr[i], indptr[i + 1]):
                # the first edge to an aggregate stays, all others merge with it
                neighbour = part[indices[p]]
                if last_seen[neighbour] != c:
                    last_seen[neighbour] = c
                    counts[1] += 1
