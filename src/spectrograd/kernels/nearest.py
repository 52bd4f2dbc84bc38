"""Nearest neighbours: the smallest of many distances, kept as they are made, and exact ones for a few."""

import numpy as np

from spectrograd.kernels.jit import serial
from spectrograd.kernels.simd import WIDTH, largest, nothing, take, total

RUN = 2 * WIDTH  # distances looked at together first: nearly all runs hold nothing new


@serial
def keep_closest(products, row_terms, column_terms, ids, rows, own, gaps, found):
    """Mutates: ``gaps`` and ``found``, each row's smallest squared distances so far, sorted, and to whom.

    The distance of query i and column j is ``row_terms[i] + column_terms[j] - 2 products[i, j]``; the query
    is row ``rows[i]`` of ``gaps`` and ``found`` (n x m), the column is point ``ids[j]``, beyond which there
    may be columns of padding. Point ``own[i]`` is the query itself and is passed over.
    """
    n_kept = gaps.shape[1]
    n_columns = ids.shape[0]
    terms = column_terms.reshape((1, n_columns))
    none = nothing(products)
    for i in range(products.shape[0]):
        # |x - y|^2 = |x|^2 + |y|^2 - 2 x'y; the bound leaves |x|^2 out, which is common to the row
        row = rows[i]
        bound = gaps[row, n_kept - 1] - row_terms[i]
        for begin in range(0, n_columns, RUN):
            end = min(begin + RUN, n_columns)
            if end == begin + RUN:
                # by how much distances are below the bound, summed: whole lanes at once, without branches
                below = none
                for j in range(begin, end, WIDTH):
                    product = take(products, i, j)
                    below = below + largest(product + product - take(terms, 0, j) + bound, none)
                if not total(below) > 0:
                    continue
            for j in range(begin, end):
                gap = column_terms[j] - (products[i, j] + products[i, j])
                if gap < bound and ids[j] != own[i]:
                    whole = gap + row_terms[i]
                    at = n_kept - 1
                    # insertion into a sorted row of n_kept: new neighbours
                    # become rare after the first columns
                    while at > 0 and gaps[row, at - 1] > whole:
                        gaps[row, at] = gaps[row, at - 1]
                        found[row, at] = found[row, at - 1]
                        at -= 1
                    gaps[row, at] = whole
                    found[row, at] = ids[j]
                    bound = gaps[row, n_kept - 1] - row_terms[i]


@serial
def candidate_gaps(first, last, points, unit, asked, candidates, gaps):
    """Mutates: ``gaps[i]``, squared distances of ``asked[i]`` to its candidates among the points.

    By differences, in double precision whatever the points are in, and in this ``unit`` of length, a power
    of two, so that no square leaves the range of doubles; a candidate of -1 is infinitely far. Only the rows
    from ``first`` to ``last`` are worked on.
    """
    scale = 1.0 / unit
    for i in range(first, last):
        for c in range(candidates.shape[1]):
            other = candidates[i, c]
            if other < 0:
                gaps[i, c] = np.inf
                continue
            total = 0.0
            for j in range(points.shape[1]):
                step = (np.float64(asked[i, j]) - np.float64(points[other, j])) * scale
                total += step * step
            gaps[i, c] = total
