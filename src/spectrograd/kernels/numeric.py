"""The numbers of a factor: ``L D L'`` without pivoting, front by front (Duff and Reid 1983).

A front is the dense matrix of a group's columns and the rows below them, its upper triangle. Its first rows
become the group's entries of ``D L'``; what elimination leaves of the rest is added to the parent's front.
"""

import numpy as np

from spectrograd.kernels._jit import inner, serial
from spectrograd.kernels.fronts import Fronts
from spectrograd.kernels.lanes import WIDTH, nothing, put, put_first, take, take_first, take_one

PANEL = 8


def factorize(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, diagonal: np.ndarray, fronts: Fronts
) -> tuple[np.ndarray, np.ndarray] | None:
    """``diag(diagonal) - W = L D L'`` in the fronts' order: the entries of ``L'`` and D.

    The entries are a row with eight places to spare, since whole registers are read from it. None where a
    pivot is zero.
    """
    widths, heights = np.diff(fronts.columns), np.diff(fronts.row_start)
    values, pivots = np.empty((1, fronts.entry_start[-1] + WIDTH)), np.empty(len(diagonal))
    base = np.zeros(len(widths), np.int64)
    stack = np.empty((1, _stack_size(fronts.oldest, heights, base) + WIDTH))
    pack = np.empty((1, 4 * widths.max()))
    where = np.empty(len(diagonal), np.int32)
    matrix = (indptr, indices, weights, diagonal)
    done = _factorize(matrix, fronts, values, pivots, where, stack, base, pack)
    return (values, pivots) if done else None


@serial
def _stack_size(oldest, heights, base):
    """Mutates: base, where on the stack each front is left. Most numbers that wait for their parents."""
    top, size = 0, 0
    for s in range(len(oldest)):
        r = heights[s]
        size = max(size, top + r * r)
        base[s] = base[oldest[s]] if oldest[s] < s else top
        top = base[s] + r * r
    return size


@serial
def _factorize(matrix, fronts, values, pivots, where, stack, base, pack):
    """Mutates: all but the first two; ``where`` is the place of a row in the present front."""
    columns, row_start, rows, entry_start = fronts.columns, fronts.row_start, fronts.rows, fronts.entry_start
    top = np.int64(0)  # of a constant, numba would compile versions of its own
    for s in range(len(base)):
        first, w, start = columns[s], columns[s + 1] - columns[s], entry_start[s]
        r = row_start[s + 1] - row_start[s]
        m = w + r
        for c in range(w):
            where[first + c] = c
        for q in range(r):
            where[rows[row_start[s] + q]] = w + q
        for q in range(start, start + w * m):
            values[0, q] = 0
        for q in range(top, top + r * r):
            stack[0, q] = 0
        _add_graph(matrix, fronts.order, fronts.position, first, w, where, values, start, m)
        c = s - 1
        while c >= fronts.oldest[s]:
            child = (row_start[c], row_start[c + 1], base[c])
            _add_child(rows, child, stack, where, w, values, start, m, top)
            c = fronts.oldest[c] - 1
        if not _eliminate(values, start, w, m, pivots, first, pack):
            return False
        _subtract(stack, top, r, (r, r), values, start + w, m, w, pivots, first, pack)
        for k in range(w):
            inverse = 1 / pivots[first + k]
            for q in range(start + k * m + k, start + (k + 1) * m):
                values[0, q] *= inverse
        if base[s] < top:
            for q in range(r * r):
                stack[0, base[s] + q] = stack[0, top + q]
        top = base[s] + r * r
    return True


@inner
def _add_graph(matrix, order, position, first, w, where, values, start, m):
    """Mutates: values, to which the group's own rows of the matrix are added."""
    indptr, indices, weights, diagonal = matrix
    for c in range(w):
        v, row = order[first + c], start + c * m
        values[0, row + c] += diagonal[v]
        for p in range(indptr[v], indptr[v + 1]):
            i = position[indices[p]]
            if i >= first + c:
                values[0, row + where[i]] -= weights[p]


@inner
def _add_child(rows, child, stack, where, w, values, start, m, top):
    """Mutates: values, stack. What a child left is added to the front of its parent."""
    low, high, source = child
    for a in range(low, high):
        i = where[rows[a]]
        if i < w:
            for b in range(a, high):
                values[0, start + i * m + where[rows[b]]] += stack[0, source + b - low]
        else:
            target = top + (i - w) * (m - w) - w
            for b in range(a, high):
                stack[0, target + where[rows[b]]] += stack[0, source + b - low]
        source += high - low


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
            begin, rank, size = start + low * m + high, high - low, (w - high, m - high)
            _subtract(values, corner, m, size, values, begin, m, rank, pivots, first + low, pack)
    return True


@inner
def _subtract(target, corner, stride, size, source, begin, length, rank, pivots, first, pack):
    """Mutates: target, the upper triangle of which loses ``U' D^-1 U``, four rows by eight columns at a time.

    Rows of U begin at ``begin + k * length``; what falls below the diagonal is of no account.
    """
    n_rows, n_columns = size
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
