"""The numbers of a factor: ``L D L'`` without pivoting, front by front (Duff and Reid 1983).

A front is the dense matrix of a group's columns and the rows below. Its first rows, of the upper triangle, are
the group's entries of ``D L'``; what elimination leaves of the rest is added to the parent's front.
"""

import numpy as np

from spectrograd.kernels._jit import inner, serial
from spectrograd.kernels.lanes import WIDTH, nothing, put, put_first, take, take_first, take_one

PANEL = 8


@serial
def factorize(indptr, indices, weights, diagonal, fronts, values, pivots):
    """Mutates: values, pivots. ``diag(diagonal) - W = L D L'``; False where a pivot is zero.

    ``values`` is a row with eight places to spare, since whole registers are read from it.
    """
    n_groups = len(fronts.columns) - 1
    where = np.empty(len(diagonal), np.int32)  # of a row or column in the present front
    size, widest = _stack_size(fronts)
    stack, base = np.empty((1, size + WIDTH)), np.zeros(n_groups + 1, np.int64)
    pack = np.empty((1, 4 * widest))
    top = 0
    for s in range(n_groups):
        first, w = fronts.columns[s], fronts.columns[s + 1] - fronts.columns[s]
        rows = fronts.rows[fronts.row_start[s] : fronts.row_start[s + 1]]
        r, start = len(rows), fronts.entry_start[s]
        m = w + r
        for c in range(w):
            where[first + c] = c
        for q in range(r):
            where[rows[q]] = w + q
        values[0, start : start + w * m] = 0
        stack[0, top : top + r * r] = 0
        _add_graph(indptr, indices, weights, diagonal, fronts, s, where, values)
        c, bottom = s - 1, top
        while c >= fronts.oldest[s]:
            bottom = base[c]
            _add_child(fronts, c, stack, bottom, where, w, values, start, m, top)
            c = fronts.oldest[c] - 1
        if not _eliminate(values, start, w, m, pivots, first, pack):
            return False
        _subtract(stack, top, r, r, r, values, start + w, m, w, pivots, first, pack)
        for k in range(w):
            inverse = 1 / pivots[first + k]
            for q in range(start + k * m + k, start + (k + 1) * m):
                values[0, q] *= inverse
        if bottom < top:
            for q in range(r * r):
                stack[0, bottom + q] = stack[0, top + q]
        base[s], top = bottom, bottom + r * r
    return True


@inner
def _stack_size(fronts):
    """Most numbers that wait for their parents at once, and the most columns of a group."""
    n_groups = len(fronts.columns) - 1
    base = np.zeros(n_groups, np.int64)
    top, size, widest = 0, 0, 1
    for s in range(n_groups):
        r = fronts.row_start[s + 1] - fronts.row_start[s]
        widest = max(widest, fronts.columns[s + 1] - fronts.columns[s])
        size = max(size, top + r * r)
        base[s] = base[fronts.oldest[s]] if fronts.oldest[s] < s else top
        top = base[s] + r * r
    return size, widest


@inner
def _add_graph(indptr, indices, weights, diagonal, fronts, s, where, values):
    """Mutates: values, to which the group's own rows of the matrix are added."""
    first, stop = fronts.columns[s], fronts.columns[s + 1]
    m = stop - first + fronts.row_start[s + 1] - fronts.row_start[s]
    for j in range(first, stop):
        v = fronts.order[j]
        row = fronts.entry_start[s] + (j - first) * m
        values[0, row + j - first] += diagonal[v]
        for p in range(indptr[v], indptr[v + 1]):
            i = fronts.position[indices[p]]
            if i >= j:
                values[0, row + where[i]] -= weights[p]


@inner
def _add_child(fronts, child, stack, base, where, w, values, start, m, top):
    """Mutates: values, stack. What a child left is added to the front of its parent."""
    first = fronts.row_start[child]
    r = fronts.row_start[child + 1] - first
    rows = fronts.rows
    for a in range(r):
        i = where[rows[first + a]]
        source = base + a * r
        if i < w:
            for b in range(a, r):
                values[0, start + i * m + where[rows[first + b]]] += stack[0, source + b]
        else:
            target = top + (i - w) * (m - w) - w
            for b in range(a, r):
                stack[0, target + where[rows[first + b]]] += stack[0, source + b]


@inner
def _eliminate(values, start, w, m, pivots, first, pack):
    """Mutates: all. The first w rows of a front become those of ``D L'``; False where a pivot is zero."""
    for low in range(0, w, PANEL):
        high = min(low + PANEL, w)
        for k in range(low, high):
            row = start + k * m
            pivot = values[0, row + k]
            if pivot == 0 or not np.isfinite(pivot):
                return False
            pivots[first + k] = pivot
            for j in range(k + 1, high):
                factor, target = values[0, row + j] / pivot, start + j * m
                for i in range(j, m):
                    values[0, target + i] -= factor * values[0, row + i]
        if high < w:
            corner = start + high * m + high
            _subtract(values, corner, m, w - high, m - high, values, start + low * m + high, m, high - low,
                      pivots, first + low, pack)
    return True


@inner
def _subtract(target, corner, stride, n_rows, n_columns, source, begin, length, rank, pivots, first, pack):
    """Mutates: target, the upper triangle of which loses ``U' D^-1 U``, four rows by eight columns at a time.

    Rows of U begin at ``begin + k * length``; what falls below the diagonal is of no account.
    """
    for a in range(0, n_rows, 4):
        for k in range(rank):
            inverse = 1 / pivots[first + k]
            for q in range(4):
                pack[0, 4 * k + q] = source[0, begin + k * length + a + q] * inverse
        for b in range(a, n_columns, WIDTH):
            s0 = s1 = s2 = s3 = nothing(source)
            for k in range(rank):
                u = take(source, 0, begin + k * length + b)
                s0 = s0 + take_one(pack, 0, 4 * k) * u
                s1 = s1 + take_one(pack, 0, 4 * k + 1) * u
                s2 = s2 + take_one(pack, 0, 4 * k + 2) * u
                s3 = s3 + take_one(pack, 0, 4 * k + 3) * u
            place, n = corner + a * stride + b, n_columns - b
            _lower(target, place, n, s0)
            if a + 1 < n_rows:
                _lower(target, place + stride, n, s1)
            if a + 2 < n_rows:
                _lower(target, place + 2 * stride, n, s2)
            if a + 3 < n_rows:
                _lower(target, place + 3 * stride, n, s3)


@inner
def _lower(target, place, n, lanes):
    """Mutates: eight numbers of target, or the n that are left of a row."""
    if n >= WIDTH:
        put(target, 0, place, take(target, 0, place) - lanes)
    else:
        put_first(target, 0, place, n, take_first(target, 0, place, n) - lanes)
