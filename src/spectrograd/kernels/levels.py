"""Breadth-first levels: the cheapest look at the shape of a graph."""

import numpy as np

from spectrograd.kernels._jit import serial


@serial
def level_widths(indptr, indices, source, level):
    """Vertices per breadth-first level from ``source``, and a vertex of the last level.

    Mutates: level, which must hold -1 for every vertex not yet reached; reached ones get their level.
    """
    queue = np.empty(level.shape[0], np.int32)
    widths = np.zeros(level.shape[0] + 1, np.int64)
    queue[0], level[source] = source, 0
    widths[0] = 1
    head, tail = 0, 1
    while head < tail:
        i = queue[head]
        head += 1
        depth = level[i] + 1
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            if level[j] < 0:
                level[j] = depth
                widths[depth] += 1
                queue[tail] = j
                tail += 1
    last = queue[tail - 1]
    return widths[: level[last] + 1].copy(), last
