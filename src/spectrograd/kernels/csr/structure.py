"""What would cost a transposed copy of a matrix elsewhere: flaws, symmetry, rounding, another order."""

import numba
import numpy as np

from spectrograd.kernels.jit import inner, parallel, serial

CHUNK = 1024
BATCH = 128


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
        flaw, other, total = False, False, np.uint64(0)
        for i in range(c * CHUNK, min(n, (c + 1) * CHUNK)):
            previous = -1
            for p in range(indptr[i], indptr[i + 1]):
                j, weight = np.int64(indices[p]), bits[p]
                flaw |= (j <= previous) | (j >= n) | (j == i) | (weight == 0) | (weight >= infinite)
                other |= weight != one
                previous = j
                hashed = edge_hash(i, j, weight)
                total += hashed if i < j else np.uint64(0) - hashed
        flawed[c], weighted[c], sums[c] = flaw, other, total
    return flawed.any(), weighted.any(), sums.sum()


@inner
def edge_hash(i, j, bits):
    """64 bits of an edge and its weight, whichever way it is read."""
    edge = (np.uint64(min(i, j)) << np.uint64(32)) | np.uint64(max(i, j))
    return mixed(mixed(edge + np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(bits))


@inner
def mixed(x):
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
    half, largest = values.dtype.type(0.5), values.dtype.type(0)
    for i in range(last):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            if j <= i or j < first or j >= last:
                continue
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
            begin = indptr[order[i]] - starts[i]
            for q in range(starts[i], starts[i + 1]):
                columns[q] = indices[begin + q]
            if values is not None:
                for q in range(starts[i], starts[i + 1]):
                    values[q] = weights[begin + q]
        for q in range(starts[low], starts[high]):
            columns[q] = place[columns[q]]
        for i in range(low, high):
            _sort(columns, values, starts[i], starts[i + 1])


@inner
def _sort(columns, values, first, last):
    """Mutates: a row, by ascending columns (Shell 1959: little code, and no row is too long for it)."""
    gap = (last - first) // 2 | 1
    while True:
        for p in range(first + gap, last):
            column, q = columns[p], p
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
