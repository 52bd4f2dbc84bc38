"""Solves with a factor for many right-hand sides at once: a row of eight stays in registers."""

import numpy as np

from spectrograd.kernels.dense.lanes import nothing, put, take, take_one
from spectrograd.kernels.jit import serial
from spectrograd.kernels.ldl.fronts import Fronts
from spectrograd.kernels.ldl.subtrees import Parts
from spectrograd.kernels.threads import side_by_side


def recur(
    fronts: Fronts,
    parts: Parts,
    values: np.ndarray,
    pivots: np.ndarray,
    metric: np.ndarray,
    work: np.ndarray,
    current: np.ndarray,
    previous: np.ndarray,
    coefficients: tuple[float, float, float],
) -> None:
    """Mutates: work, and previous, which becomes ``a (L D L')^-1 M current + b current + c previous``.

    ``a, b, c = coefficients``; ``metric`` is the diagonal of M. Vectors are in the factor's order and come as
    panels of eight columns, those of ``work`` with the places of the parts behind them. One step of a
    three-term recurrence; ``(1, 0, 0)`` is a plain solve.
    """
    shape = (fronts.columns, fronts.row_start, parts.rows, fronts.entry_start)
    panels, nobody = list(zip(work, current, previous, strict=True)), parts.stands_for[:0]

    def down(part, collects, X, Y):
        _forward(shape, values, metric, part, collects, X, Y)

    def up(part, collects, X, Y, Z):
        _backward(shape, values, pivots, part, collects, X, Y, Z, coefficients)

    def turn(X, Y, Z):
        down(parts.above, parts.stands_for, X, Y)
        up(parts.above, parts.stands_for, X, Y, Z)

    below = [(part, nobody, *panel) for panel in panels for part in parts.subtrees]
    side_by_side(down, [job[:-1] for job in below])
    side_by_side(turn, panels)
    side_by_side(up, below)


@serial
def _forward(shape, values, metric, part, collects, X, Y):
    """Mutates: X, which becomes ``L^-1 M Y`` on the part's columns.

    The part above ``collects`` what subtrees left for columns of it at the places from ``len(Y)`` on.
    """
    columns, row_start, rows, entry_start = shape
    for j in range(part.begin, part.end):
        put(X, j, 0, nothing(X))
    for s in part.groups:
        for j in range(columns[s], columns[s + 1]):
            put(X, j, 0, metric[j] * take(Y, j, 0))
    for q in range(len(collects)):
        put(X, collects[q], 0, take(X, collects[q], 0) + take(X, len(Y) + q, 0))
    for s in part.groups:
        first, w = columns[s], columns[s + 1] - columns[s]
        start, stop = row_start[s], row_start[s + 1]
        m, entries = w + stop - start, entry_start[s]
        for t in range(w - 1):
            x = take(X, first + t, 0)
            for i in range(t + 1, w):
                put(X, first + i, 0, take(X, first + i, 0) - take_one(values, 0, entries + t * m + i) * x)
        entries += w
        fours = start + (stop - start) // 4 * 4
        for p in range(start, fours, 4):
            i0, i1, i2, i3 = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
            x0, x1, x2, x3 = take(X, i0, 0), take(X, i1, 0), take(X, i2, 0), take(X, i3, 0)
            e = entries + p - start
            for t in range(w):
                x = take(X, first + t, 0)
                x0 = x0 - take_one(values, 0, e) * x
                x1 = x1 - take_one(values, 0, e + 1) * x
                x2 = x2 - take_one(values, 0, e + 2) * x
                x3 = x3 - take_one(values, 0, e + 3) * x
                e += m
            put(X, i0, 0, x0)
            put(X, i1, 0, x1)
            put(X, i2, 0, x2)
            put(X, i3, 0, x3)
        for p in range(fours, stop):
            x0, e = take(X, rows[p], 0), entries + p - start
            for t in range(w):
                x0 = x0 - take_one(values, 0, e) * take(X, first + t, 0)
                e += m
            put(X, rows[p], 0, x0)


@serial
def _backward(shape, values, pivots, part, collects, X, current, previous, coefficients):
    """Mutates: X, which becomes ``L'^-1 D^-1 X``, and previous, as soon as that is known."""
    columns, row_start, rows, entry_start = shape
    a, b, c = coefficients
    n_groups = len(part.groups)
    for r in range(n_groups):
        s = part.groups[n_groups - 1 - r]
        first, w = columns[s], columns[s + 1] - columns[s]
        start, stop = row_start[s], row_start[s + 1]
        m, entries = w + stop - start, entry_start[s]
        fours = w // 4 * 4
        for t in range(0, fours, 4):
            j = first + t
            x0, x1 = take(X, j, 0) / pivots[j], take(X, j + 1, 0) / pivots[j + 1]
            x2, x3 = take(X, j + 2, 0) / pivots[j + 2], take(X, j + 3, 0) / pivots[j + 3]
            e = entries + t * m + w
            for p in range(start, stop):
                x = take(X, rows[p], 0)
                x0 = x0 - take_one(values, 0, e) * x
                x1 = x1 - take_one(values, 0, e + m) * x
                x2 = x2 - take_one(values, 0, e + 2 * m) * x
                x3 = x3 - take_one(values, 0, e + 3 * m) * x
                e += 1
            put(X, j, 0, x0)
            put(X, j + 1, 0, x1)
            put(X, j + 2, 0, x2)
            put(X, j + 3, 0, x3)
        for t in range(fours, w):
            x0 = take(X, first + t, 0) / pivots[first + t]
            e = entries + t * m + w
            for p in range(start, stop):
                x0 = x0 - take_one(values, 0, e) * take(X, rows[p], 0)
                e += 1
            put(X, first + t, 0, x0)
        for q in range(1, w):
            t = w - 1 - q
            x0 = take(X, first + t, 0)
            for i in range(t + 1, w):
                x0 = x0 - take_one(values, 0, entries + t * m + i) * take(X, first + i, 0)
            put(X, first + t, 0, x0)
        for j in range(first, first + w):
            sums = a * take(X, j, 0) + b * take(current, j, 0)
            put(previous, j, 0, sums + c * take(previous, j, 0))
    for q in range(len(collects)):
        put(X, len(current) + q, 0, take(X, collects[q], 0))
