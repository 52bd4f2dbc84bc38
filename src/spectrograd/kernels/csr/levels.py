"""Breadth-first search: components and levels, the cheapest looks at the shape of a graph."""

import numpy as np

from spectrograd.kernels.jit import inner, serial


def search_all(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Components, the levels from vertex 0 with one vertex of the last, and the order of the search.

    Components are numbered as they are met. The matrix must be symmetric.
    """
    component, seen, queue, ends = _room(len(indptr) - 1)
    n_levels = _search(indptr, indices, 0, True, component, seen, queue, ends)
    return component, np.diff(ends[: n_levels + 1]), int(queue[ends[n_levels] - 1]), queue


def level_widths(indptr: np.ndarray, indices: np.ndarray, source: int) -> tuple[np.ndarray, int]:
    """Vertices per breadth-first level from ``source``, and a vertex of the last level."""
    component, seen, queue, ends = _room(len(indptr) - 1)
    n_levels = _search(indptr, indices, source, False, component, seen, queue, ends)
    return np.diff(ends[: n_levels + 1]), int(queue[ends[n_levels] - 1])


def _room(n):
    """Component, whether seen, and queue of the vertices; where in the queue each level ends."""
    return np.zeros(n, np.int32), np.zeros(n, np.uint8), np.empty(n, np.int32), np.zeros(n + 1, np.int64)


@serial
def _search(indptr, indices, source, everywhere, component, seen, queue, ends):
    """Mutates: all arrays but the graph. Levels from ``source``; ``everywhere``, other components as well.

    One kernel for both, and memory from outside: what is not there need not be compiled.
    """
    n = len(seen)
    n_levels, n_found, other = 0, 0, 0
    begin = np.int64(0)  # of a constant, numba would compile versions of its own
    while True:
        seen[source], queue[begin], head, tail = 1, source, begin, begin + 1
        while tail > head:
            if n_found == 0:
                n_levels += 1
                ends[n_levels] = tail
            head, tail = tail, _next_level(indptr, indices, seen, queue, head, tail) if tail < n else n
        for q in range(begin if n_found > 0 else tail, tail):
            component[queue[q]] = n_found
        if not everywhere or tail == n:
            return n_levels
        while seen[other]:
            other += 1
        source, begin, n_found = other, tail, n_found + 1


@inner
def _next_level(indptr, indices, seen, queue, head, end):
    """Mutates: seen, and queue, to which the next level is appended: where it ends.

    A level that holds a good part of the graph is faster found from the other side: an unseen vertex
    stops at its first neighbour in the level before, which after a few looks it finds
    (bottom-up steps: Beamer, Asanovic and Patterson 2012).
    """
    n, tail = len(seen), end
    front, unseen = float(end - head), float(n - end)
    # An unseen vertex looks at about n / front neighbours; a vertex of the front at all of its own.
    if 16 * front <= n or front * front * len(indices) <= unseen * n * n:
        for q in range(head, end):
            i = queue[q]
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                if not seen[j]:
                    seen[j] = 1
                    queue[tail] = j
                    tail += 1
        return tail
    # A seen neighbour is in the last level: those before it have no unseen neighbours left.
    for i in range(n):
        if not seen[i]:
            for p in range(indptr[i], indptr[i + 1]):
                if seen[indices[p]]:
                    queue[tail] = i
                    tail += 1
                    break
    for q in range(end, tail):
        seen[queue[q]] = 1
    return tail
