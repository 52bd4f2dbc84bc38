"""Listed edges as rows of a symmetric matrix, made where they will stay; who was listed which way is told."""

import numpy as np

from spectrograd.kernels.ingest.rows import sort_row
from spectrograd.kernels.jit import serial


@serial
def scatter_directions(source, target, weights, starts, keys, values):
    """Mutates: starts of the rows (n + 1, int64), and entries of both directions: keys (uint32) and values.

    A key is twice the column, and one more where the edge is listed the other way. Inside a row entries stand
    as they are listed. Without weights (None) values stay what they were. Loops are left out: returns
    how many, and the first.
    """
    starts[:] = 0
    n_loops, first_loop, n_rows = 0, -1, len(starts) - 1
    for e in range(len(source)):
        i, j = source[e], target[e]
        if i != j:
            starts[i + 1] += 1
            starts[j + 1] += 1
        else:
            first_loop = e if n_loops == 0 else first_loop
            n_loops += 1
    for r in range(n_rows):
        starts[r + 1] += starts[r]
    for e in range(len(source)):
        i, j = source[e], target[e]
        if i == j:
            continue
        p, q = starts[i], starts[j]
        starts[i], starts[j] = p + 1, q + 1
        keys[p], keys[q] = 2 * j, 2 * i + 1
        if weights is not None:
            values[p] = values[q] = weights[e]
    for r in range(n_rows, 0, -1):
        starts[r] = starts[r - 1]
    starts[0] = 0
    return n_loops, first_loop


@serial
def merge_directions(first, last, starts, keys, values, sizes):
    """Mutates: rows ``first : last``: sorted, one entry per column at the begin of each; sizes of the rows.

    An entry becomes its column and the sum of both directions; those of weight 0 go. Returns how many were
    listed in the direction of their row, in both, and with another weight in one than in the other (or none).
    """
    longest = 0
    for r in range(first, last):
        longest = max(longest, starts[r + 1] - starts[r])
    other_keys, other_values = np.empty(longest, keys.dtype), np.empty(longest, values.dtype)
    n_listed, n_both, n_unequal = 0, 0, 0
    for r in range(first, last):
        p, end = starts[r], starts[r + 1]
        sort_row(keys[p:end], values[p:end], other_keys, other_values)
        out = p
        while p < end:
            column, ways, forward, backward = keys[p] >> np.uint32(1), 0, 0.0, 0.0
            while p < end and keys[p] >> np.uint32(1) == column:
                if keys[p] & np.uint32(1):
                    backward, ways = backward + values[p], ways | 2
                else:
                    forward, ways = forward + values[p], ways | 1
                p += 1
            n_listed += ways != 2
            n_both += ways == 3
            n_unequal += forward != backward
            keys[out], values[out] = column, forward + backward
            out += forward + backward != 0
        sizes[r] = out - starts[r]
    return n_listed, n_both, n_unequal


@serial
def close_gaps(starts, sizes, keys, values):
    """Mutates: rows of these sizes, wherever they begin, are moved together; starts are those of before."""
    total = 0
    for r in range(len(sizes)):
        begin = starts[r]
        starts[r] = total
        for p in range(begin, begin + sizes[r]):
            keys[total], values[total] = keys[p], values[p]
            total += 1
    starts[len(sizes)] = total
