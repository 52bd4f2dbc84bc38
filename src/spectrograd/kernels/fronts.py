"""The shape of a factor before its numbers: which columns are alike, and which rows each group reaches."""

from typing import NamedTuple

import numpy as np

from spectrograd.kernels._jit import inner, serial
from spectrograd.kernels.ordering import NONE

# A pivot joins its parent where the two have at most so many columns, or few of the entries become zeros.
ALWAYS, OFTEN, SELDOM = 1, 4, 24
MANY_ZEROS, SOME_ZEROS, FEW_ZEROS = .3, .1, .05


class Fronts(NamedTuple):
    """Groups of neighbouring columns of L with the same rows below them, children before parents.

    Column j stands for node ``order[j]``, which is its inverse ``position``. Group ``s`` has the columns
    ``columns[s] : columns[s + 1]``, the rows ``rows[row_start[s] : row_start[s + 1]]`` below them
    (ascending), its entries from ``entry_start[s]`` on, and its descendants are ``oldest[s] : s``.
    """

    order: np.ndarray
    position: np.ndarray
    columns: np.ndarray
    row_start: np.ndarray
    rows: np.ndarray
    entry_start: np.ndarray
    oldest: np.ndarray


@serial
def arrange_fronts(indptr, indices, pivots, into, parent, width, below, n_hubs):
    """The fronts of a graph from what :func:`~spectrograd.kernels.ordering.minimum_degree` returns."""
    n_pivots = len(pivots)
    joined = _join_small(pivots, parent, width, below, n_hubs)
    kept, group, up, oldest = _postorder(pivots, parent, joined)
    columns = np.zeros(len(kept) + 1, np.int64)
    for s in range(len(kept)):
        columns[s + 1] = columns[s] + width[kept[s]]
    order, position, owner = _number(into, joined, group, columns)
    row_start, rows = _rows(indptr, indices, order, position, owner, up, columns, below[kept])
    entry_start = np.zeros(len(kept) + 1, np.int64)
    for s in range(len(kept)):
        w = columns[s + 1] - columns[s]
        entry_start[s + 1] = entry_start[s] + w * (w + row_start[s + 1] - row_start[s])
    return order, position, columns, row_start, rows, entry_start, oldest


@inner
def _join_small(pivots, parent, width, below, n_hubs):
    """Mutates: parent, width, below. The pivot that each joins, itself where it stays."""
    joined, zeros = np.arange(len(parent)), np.zeros(len(parent))
    n_pivots = len(pivots)
    for k in range(n_pivots):
        c = pivots[k]
        after_hubs = k - (n_pivots - n_hubs)
        if after_hubs >= 0:
            below[c] = n_hubs - 1 - after_hubs
            parent[c] = pivots[k + 1] if k + 1 < n_pivots else NONE
        elif n_hubs > 0:
            below[c] += n_hubs
            if parent[c] == NONE:
                parent[c] = pivots[n_pivots - n_hubs]
    for k in range(n_pivots):
        c = pivots[k]
        p = parent[c]
        if p == NONE:
            continue
        w = width[c] + width[p]
        wasted = zeros[c] + zeros[p] + width[c] * float(width[p] + below[p] - below[c])
        share = wasted / (w * (w + below[p]))
        if (
            w <= ALWAYS
            or (w <= OFTEN and share < MANY_ZEROS)
            or (w <= SELDOM and share < SOME_ZEROS)
            or share < FEW_ZEROS
        ):
            joined[c], width[p], zeros[p] = p, w, wasted
    for k in range(n_pivots):  # parents first
        c = pivots[n_pivots - 1 - k]
        joined[c] = joined[joined[c]]
    for k in range(n_pivots):
        c = pivots[k]
        if parent[c] != NONE:
            parent[c] = joined[parent[c]]
    return joined


@inner
def _postorder(pivots, parent, joined):
    """The kept pivots with children before parents and descendants together, and their tree by numbers."""
    n, n_pivots = len(parent), len(pivots)
    child, sibling = np.full(n, NONE, np.int32), np.full(n, NONE, np.int32)
    group, stack = np.full(n, NONE, np.int32), np.empty(n_pivots, np.int32)
    n_kept, depth = 0, 0
    for k in range(n_pivots):
        c = pivots[n_pivots - 1 - k]
        if joined[c] != c:
            continue
        n_kept += 1
        if parent[c] != NONE:
            child[c], sibling[c] = child[c], child[parent[c]]
            child[parent[c]] = c
    kept, oldest = np.empty(n_kept, np.int32), np.empty(n_kept, np.int32)
    done = 0
    for k in range(n_pivots):
        root = pivots[k]
        if joined[root] != root or parent[root] != NONE:
            continue
        stack[0], depth = root, 1
        while depth > 0:
            c = stack[depth - 1]
            if child[c] != NONE:  # its children first, and then it has none left
                stack[depth] = child[c]
                depth += 1
                child[c] = sibling[child[c]]
            else:
                depth -= 1
                kept[done], group[c] = c, done
                done += 1
    up = np.full(n_kept, NONE, np.int32)
    for s in range(n_kept):
        oldest[s] = s
    for s in range(n_kept):
        if parent[kept[s]] != NONE:
            up[s] = group[parent[kept[s]]]
            oldest[up[s]] = min(oldest[up[s]], oldest[s])
    return kept, group, up, oldest


@inner
def _number(into, joined, group, columns):
    """The order of the nodes, its inverse, and the group of every column."""
    n = len(into)
    order, position, owner = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    free = columns[:-1].copy()
    for v in range(n):
        p = v
        while into[p] != NONE:
            if into[into[p]] != NONE:
                into[p] = into[into[p]]  # shorter for those who follow
            p = into[p]
        s = group[joined[p]]
        order[free[s]], position[v], owner[free[s]] = v, free[s], s
        free[s] += 1
    return order, position, owner


@inner
def _rows(indptr, indices, order, position, owner, up, columns, most):
    """Rows below each group: those of an edge are all groups on the way up from its first end."""
    n_groups = len(columns) - 1
    row_start, seen = np.zeros(n_groups + 1, np.int64), np.full(n_groups, NONE, np.int32)
    for s in range(n_groups):
        row_start[s + 1] = row_start[s] + most[s]
    rows, end = np.empty(row_start[-1], np.int32), row_start[:-1].copy()
    for i in range(len(order)):
        v, mine = order[i], owner[i]
        for p in range(indptr[v], indptr[v + 1]):
            j = position[indices[p]]
            if j < i:
                s = owner[j]
                while s != mine and seen[s] != i:
                    seen[s] = i
                    rows[end[s]] = i
                    end[s] += 1
                    s = up[s]
    total = 0
    for s in range(n_groups):  # close the gaps that hubs may leave
        first, row_start[s] = row_start[s], total
        for p in range(first, end[s]):
            rows[total] = rows[p]
            total += 1
    row_start[-1] = total
    return row_start, rows[:total]
