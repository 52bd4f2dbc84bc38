"""Breadth-first search: components and levels, the cheapest looks at the shape of a graph."""

import numba
import numpy as np

from spectrograd.kernels.jit import inner, parallel, serial


def search_all(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Components, the levels from vertex 0 with one vertex of the last, and the order of the search.

    Components are numbered as they are met. The matrix must be symmetric.
    """
    component, seen, queue, ends = _capacity(len(indptr) - 1)
    n_levels = _search(indptr, indices, 0, True, component, seen, queue, ends)
    return component, np.diff(ends[: n_levels + 1]), int(queue[ends[n_levels] - 1]), queue


def level_widths(indptr: np.ndarray, indices: np.ndarray, source: int) -> tuple[np.ndarray, int]:
    """Vertices per breadth-first level from ``source``, and a vertex of the last level."""
    component, seen, queue, ends = _capacity(len(indptr) - 1)
    n_levels = _search(indptr, indices, source, False, component, seen, queue, ends)
    return np.diff(ends[: n_levels + 1]), int(queue[ends[n_levels] - 1])


def _capacity(n):
    """Component, whether seen, and queue of the vertices; where in the queue each level ends."""
    return np.zeros(n, np.int32), np.zeros(n, np.uint8), np.empty(n, np.int32), np.zeros(n + 1, np.int64)


@serial
def _search(indptr, indices, source, everywhere, component, seen, queue, ends):
    """Mutates: all arrays but the graph. Levels from ``source``; ``everywhere``, other components as well.

    One kernel for both, and memory from outside: what is not there need not be compiled.
    """
    n = len(seen)
    n_levels = 0
    n_found = 0
    other = 0
    begin = np.int64(0)  # of a constant, numba would compile versions of its own
    while True:
        seen[source] = 1
        queue[begin] = source
        head = begin
        tail = begin + 1
        # one level of the search after the other; once all vertices are seen the queue is complete
        while tail > head:
            if n_found == 0:
                n_levels += 1
                ends[n_levels] = tail
            head, tail = tail, _next_level(indptr, indices, seen, queue, head, tail) if tail < n else n
        # the first component has number 0, as the array has from the start
        for q in range(begin if n_found > 0 else tail, tail):
            component[queue[q]] = n_found
        if not everywhere or tail == n:
            return n_levels
        # the next component begins at the first vertex not seen
        while seen[other]:
            other += 1
        source = other
        begin = tail
        n_found = n_found + 1


@inner
def _next_level(indptr, indices, seen, queue, head, end):
    """Mutates: seen, and queue, to which the next level is appended: where it ends.

    A level that holds a good part of the graph is faster found from the other side: an unseen vertex
    stops at its first neighbour in the level before, which after a few looks it finds
    (bottom-up steps: Beamer, Asanovic and Patterson 2012).
    """
    n = len(seen)
    tail = end
    front = float(end - head)
    unseen = float(n - end)
    # An unseen vertex looks at about n / front neighbours; a vertex of the front at all of its own.
    if 16 * front <= n or front * front * len(indices) <= unseen * n * n:
        # top-down: the neighbours of the level
        for q in range(head, end):
            i = queue[q]
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                if not seen[j]:
                    seen[j] = 1
                    queue[tail] = j
                    tail += 1
        return tail
    # Bottom-up: every unseen vertex looks for one neighbour that is seen.
    # A seen neighbour is in the last level: those before it have no unseen neighbours left.
    for i in range(n):
        if not seen[i]:
            for p in range(indptr[i], indptr[i + 1]):
                if seen[indices[p]]:
                    queue[tail] = i
                    tail += 1
                    break
    # marked only now: during the search "seen" means "before this level"
    for q in range(end, tail):
        seen[queue[q]] = 1
    return tail


# --- What would cost a transposed copy of a matrix elsewhere: flaws, symmetry, rounding, another order.

CHUNK = 1024  # rows of a chunk that a thread reads
BATCH = 128  # rows that are permuted together


@parallel
def look_over(indptr, indices, bits, one, infinite):
    """Whether a CSR matrix has any flaw, whether any weight is not one, and how far it is from symmetric.

    ``bits`` are the weights read as unsigned integers, ``one`` and ``infinite`` the bits of these numbers. A
    flaw is a weight that is not positive and finite, an entry on the diagonal or outside the matrix, a
    row that is not sorted or holds a column twice. The third number is a sum modulo 2^64 of one hash
    per entry, of its edge ``{i, j}`` and its weight, positive above the diagonal and negative below. Without
    flaws it is 0 if and only if the matrix equals its transpose, but for odds of about 2^-60 (no defence
    against a matrix made to deceive it). One streaming pass: nothing is looked up in other rows.
    """
    n = indptr.shape[0] - 1
    n_chunks = (n + CHUNK - 1) // CHUNK
    flawed = np.zeros(n_chunks, np.bool_)
    weighted = np.zeros(n_chunks, np.bool_)
    sums = np.zeros(n_chunks, np.uint64)
    for c in numba.prange(n_chunks):
        flaw = False
        other = False
        total = np.uint64(0)
        for i in range(c * CHUNK, min(n, (c + 1) * CHUNK)):
            previous = -1
            for p in range(indptr[i], indptr[i + 1]):
                j = np.int64(indices[p])
                weight = bits[p]
                # sorted, inside the matrix, off the diagonal, positive and finite:
                # as integers, bits of floats are ordered
                flaw |= (j <= previous) | (j >= n) | (j == i) | (weight == 0) | (weight >= infinite)
                other |= weight != one
                previous = j
                # each edge is added once above the diagonal and subtracted once
                # below: a symmetric matrix sums to zero
                hashed = edge_hash(i, j, weight)
                total += hashed if i < j else np.uint64(0) - hashed
        flawed[c] = flaw
        weighted[c] = other
        sums[c] = total
    return flawed.any(), weighted.any(), sums.sum()


@inner
def edge_hash(i, j, bits):
    """64 bits of an edge and its weight, whichever way it is read."""
    edge = (np.uint64(min(i, j)) << np.uint64(32)) | np.uint64(max(i, j))
    return mix_bits(mix_bits(edge + np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(bits))


@inner
def mix_bits(x):
    """The finaliser of splitmix64: every bit of x changes half of the others (Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@parallel
def mean_with_transpose(indptr, indices, values, n_parts):
    """Mutates: values become those of ``(W + W') / 2``; the largest ``|w_ij - w_ji|``.

    Infinite where the patterns differ: values are then of no use. Rows must be sorted and the diagonal empty.
    Each of ``n_parts`` threads reads all entries above the diagonal and changes those of its own columns.
    """
    n = indptr.shape[0] - 1
    largest = np.zeros(n_parts, values.dtype)
    for part in numba.prange(n_parts):
        columns = (n * part // n_parts, n * (part + 1) // n_parts)
        largest[part] = _mean_in_columns(columns, indptr, indices, values)
    return largest.max()


@inner
def _mean_in_columns(columns, indptr, indices, values):
    """Mutates: entries above the diagonal in these columns, and their twins.

    Row by row the entry (i, j) must be the next unmatched one of row j: a cursor per row, no transposed copy.
    """
    first, last = columns
    cursor = np.empty(last - first, np.int64)
    for j in range(first, last):
        cursor[j - first] = indptr[j]
    half = values.dtype.type(0.5)
    largest = values.dtype.type(0)
    for i in range(last):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            if j <= i or j < first or j >= last:
                continue
            # the twin (j, i): rows are sorted, so it is the first entry of row j that has no partner yet
            q = cursor[j - first]
            if q >= indptr[j + 1] or indices[q] != i:
                return values.dtype.type(np.inf)
            cursor[j - first] = q + 1
            largest = max(largest, abs(values[p] - values[q]))
            values[p] = values[q] = (values[p] + values[q]) * half
    for j in range(first, last):  # what is left below the diagonal has no twin
        q = cursor[j - first]
        if q < indptr[j + 1] and indices[q] < j:
            return values.dtype.type(np.inf)
    return largest


@serial
def permute(first, last, indptr, indices, weights, order, place, starts, columns, values):
    """Mutates: columns and values of rows ``first : last`` of a matrix with its nodes in another order.

    ``place`` is the inverse of ``order``, ``starts`` are the new row pointers.
    Weights and values may be None.
    """
    for low in range(first, last, BATCH):  # step by step: the processor then waits for many rows at once
        high = min(low + BATCH, last)
        for i in range(low, high):
            # 1. copy the row from its old place
            begin = indptr[order[i]] - starts[i]
            for q in range(starts[i], starts[i + 1]):
                columns[q] = indices[begin + q]
            if values is not None:
                for q in range(starts[i], starts[i + 1]):
                    values[q] = weights[begin + q]
        for q in range(starts[low], starts[high]):
            # 2. rename its columns
            columns[q] = place[columns[q]]
        for i in range(low, high):
            # 3. sort it by its new columns
            _sort(columns, values, starts[i], starts[i + 1])


@inner
def _sort(columns, values, first, last):
    """Mutates: a row, by ascending columns (Shell 1959: little code, and no row is too long for it)."""
    gap = (last - first) // 2 | 1
    while True:
        for p in range(first + gap, last):
            column = columns[p]
            q = p
            if columns[q - gap] <= column:
                continue
            value = np.float64(0) if values is None else values[p]
            while q >= first + gap and columns[q - gap] > column:
                columns[q] = columns[q - gap]
                if values is not None:
                    values[q] = values[q - gap]
                q -= gap
            columns[q] = column
            if values is not None:
                values[q] = value
        if gap == 1:
            return
        gap = gap // 3 | 1
