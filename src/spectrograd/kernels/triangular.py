"""Solves with a factor for many right-hand sides at once: a row of eight stays in registers."""

import numba

from spectrograd.kernels._jit import inner, parallel
from spectrograd.kernels.lanes import WIDTH, put, take, take_one


@parallel
def recur(fronts, values, pivots, metric, work, current, previous, coefficients):
    """Mutates: work, and previous, which becomes ``a (L D L')^-1 M current + b current + c previous``.

    ``a, b, c = coefficients``; ``metric`` is the diagonal of M, all in the factor's order. The columns
    are a multiple of eight. One step of a three-term recurrence; ``(1, 0, 0)`` is a plain solve.
    """
    a, b, c = coefficients
    for panel in numba.prange(current.shape[1] // WIDTH):
        k = panel * WIDTH
        for j in range(len(metric)):
            put(work, j, k, metric[j] * take(current, j, k))
        _forward(fronts.columns, fronts.row_start, fronts.rows, fronts.entry_start, values, work, k)
        _backward(fronts.columns, fronts.row_start, fronts.rows, fronts.entry_start, values, pivots, work, k)
        for j in range(len(metric)):
            sums = a * take(work, j, k) + b * take(current, j, k)
            put(previous, j, k, sums + c * take(previous, j, k))


@inner
def _forward(columns, row_start, rows, entry_start, values, X, k):
    """Mutates: X, which becomes ``L^-1 X``."""
    for s in range(len(columns) - 1):
        first, w = columns[s], columns[s + 1] - columns[s]
        start, stop = row_start[s], row_start[s + 1]
        m, entries = w + stop - start, entry_start[s]
        for t in range(w - 1):
            x = take(X, first + t, k)
            for i in range(t + 1, w):
                put(X, first + i, k, take(X, first + i, k) - take_one(values, 0, entries + t * m + i) * x)
        entries += w
        fours = start + (stop - start) // 4 * 4
        for p in range(start, fours, 4):
            i0, i1, i2, i3 = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
            x0, x1, x2, x3 = take(X, i0, k), take(X, i1, k), take(X, i2, k), take(X, i3, k)
            e = entries + p - start
            for t in range(w):
                x = take(X, first + t, k)
                x0 = x0 - take_one(values, 0, e) * x
                x1 = x1 - take_one(values, 0, e + 1) * x
                x2 = x2 - take_one(values, 0, e + 2) * x
                x3 = x3 - take_one(values, 0, e + 3) * x
                e += m
            put(X, i0, k, x0)
            put(X, i1, k, x1)
            put(X, i2, k, x2)
            put(X, i3, k, x3)
        for p in range(fours, stop):
            x0, e = take(X, rows[p], k), entries + p - start
            for t in range(w):
                x0 = x0 - take_one(values, 0, e) * take(X, first + t, k)
                e += m
            put(X, rows[p], k, x0)


@inner
def _backward(columns, row_start, rows, entry_start, values, pivots, X, k):
    """Mutates: X, which becomes ``L'^-1 D^-1 X``."""
    n_groups = len(columns) - 1
    for r in range(n_groups):
        s = n_groups - 1 - r
        first, w = columns[s], columns[s + 1] - columns[s]
        start, stop = row_start[s], row_start[s + 1]
        m, entries = w + stop - start, entry_start[s]
        fours = w // 4 * 4
        for t in range(0, fours, 4):
            j = first + t
            x0, x1 = take(X, j, k) / pivots[j], take(X, j + 1, k) / pivots[j + 1]
            x2, x3 = take(X, j + 2, k) / pivots[j + 2], take(X, j + 3, k) / pivots[j + 3]
            e = entries + t * m + w
            for p in range(start, stop):
                x = take(X, rows[p], k)
                x0 = x0 - take_one(values, 0, e) * x
                x1 = x1 - take_one(values, 0, e + m) * x
                x2 = x2 - take_one(values, 0, e + 2 * m) * x
                x3 = x3 - take_one(values, 0, e + 3 * m) * x
                e += 1
            put(X, j, k, x0)
            put(X, j + 1, k, x1)
            put(X, j + 2, k, x2)
            put(X, j + 3, k, x3)
        for t in range(fours, w):
            x0 = take(X, first + t, k) / pivots[first + t]
            e = entries + t * m + w
            for p in range(start, stop):
                x0 = x0 - take_one(values, 0, e) * take(X, rows[p], k)
                e += 1
            put(X, first + t, k, x0)
        for q in range(1, w):
            t = w - 1 - q
            x0 = take(X, first + t, k)
            for i in range(t + 1, w):
                x0 = x0 - take_one(values, 0, entries + t * m + i) * take(X, first + i, k)
            put(X, first + t, k, x0)
