"""Breadth-first search: components and levels, the cheapest looks at the shape of a graph."""

import numpy as np

from spectrograd.kernels._jit import inner, serial


@serial
def search_all(indptr, indices):
    """Components, the levels from vertex 0 with one vertex of the last, and the order of the search.

    Components are numbered as they are met. The matrix must be symmetric.
    """
    n = indptr.shape[0] - 1
    component = np.zeros(n, np.int32)
    seen = np.zeros(n, np.uint8)
    queue = np.empty(n, np.int32)
    first, tail = spread(indptr, indices, 0, seen, queue, 0)
    last = queue[tail - 1]
    n_found = 1
    for source in range(n):
        if tail == n:
            break
        if not seen[source]:
            begin = tail
            _, tail = spread(indptr, indices, source, seen, queue, begin)
            for q in range(begin, tail):
                component[queue[q]] = n_found
            n_found += 1
    return component, first, last, queue


@serial
def level_widths(indptr, indices, source):
    """Vertices per breadth-first level from ``source``, and a vertex of the last level."""
    n = indptr.shape[0] - 1
    queue = np.empty(n, np.int32)
    widths, tail = spread(indptr, indices, source, np.zeros(n, np.uint8), queue, 0)
    return widths, queue[tail - 1]


@inner
def spread(indptr, indices, source, seen, queue, begin):
    """Vertices per level from ``source``, and where the queue ends.

    Mutates: seen, and queue from ``begin`` on, where the vertices are appended level by level.

    A level that holds a good part of the graph is faster found from the other side: an unseen vertex
    stops at its first neighbour in the level before, which after a few looks it finds
    (bottom-up steps: Beamer, Asanovic and Patterson 2012).
    """
    n = seen.shape[0]
    queue[begin], seen[source] = source, 1
    widths = [1]
    head, tail = begin, begin + 1
    while tail < n:
        end = tail
        front, unseen = float(end - head), float(n - end)
        # An unseen vertex looks at about n / front neighbours; a vertex of the front at all of its own.
        if 16 * front > n and front * front * indices.shape[0] > unseen * n * n:
            tail = found_from_below(indptr, indices, seen, queue, tail)
        else:
            for q in range(head, end):
                i = queue[q]
                for p in range(indptr[i], indptr[i + 1]):
                    j = indices[p]
                    if not seen[j]:
                        seen[j] = 1
                        queue[tail] = j
                        tail += 1
        if tail == end:
            break
        widths.append(tail - end)
        head = end
    return np.array(widths), tail


@inner
def found_from_below(indptr, indices, seen, queue, tail):
    """Mutates: seen and queue. Appends the unseen vertices that have a seen neighbour.

    Such a neighbour is in the last level: those before it have no unseen neighbours left.
    """
    end = tail
    for i in range(seen.shape[0]):
        if not seen[i]:
            for p in range(indptr[i], indptr[i + 1]):
                if seen[indices[p]]:
                    queue[tail] = i
                    tail += 1
                    break
    for q in range(end, tail):
        seen[queue[q]] = 1
    return tail
