"""One pass of k-means: rows to their nearest centres, and the sums that the next centres are made of."""

import numpy as np

from spectrograd.kernels.jit import inner, serial
from spectrograd.kernels.simd import WIDTH, put, take

CHUNK = 1024


@serial
def assign_rows(first, last, rows, centres, table, labels, gaps, tallies):
    """Mutates: the nearest centre of each row in ``labels``, its squared distance in ``gaps``; ``tallies``.

    ``table`` holds the centres as columns, then ``-|c|^2 / 2``, padded to whole lanes: a row is nearest to
    the centre of largest ``x'c - |c|^2 / 2``. ``tallies`` has a row per chunk and centre: the sum of its
    rows, how many they are, and by how much their squared distances would grow without it. Only the chunks
    from ``first`` to ``last`` are worked on: threads share them, and no sum depends on who did which.
    """
    n_columns = rows.shape[1]
    scores = np.empty((1, table.shape[1]))
    for i in range(first * CHUNK, min(rows.shape[0], last * CHUNK)):
        for b in range(0, table.shape[1], WIDTH):
            total = take(table, n_columns, b)
            for j in range(n_columns):
                total = total + rows[i, j] * take(table, j, b)
            put(scores, 0, b, total)
        own, lead = _winner(scores, centres.shape[0])
        tally = tallies[i // CHUNK, own]
        gap = 0.0
        for j in range(n_columns):
            tally[j] += rows[i, j]
            gap += (rows[i, j] - centres[own, j]) ** 2
        tally[n_columns] += 1
        tally[n_columns + 1] += 2 * lead
        labels[i], gaps[i] = own, gap


@inner
def _winner(scores, count):
    """The first of the largest scores and its lead, without branches that a processor would guess wrong."""
    own, best, second = 0, scores[0, 0], -np.inf
    for k in range(1, count):
        score = scores[0, k]
        lower = best if score > best else score
        second = lower if lower > second else second
        own = k if score > best else own
        best = score if score > best else best
    return own, best - second


# --- Nearest neighbours: the smallest of many distances, kept as they are made, and exact ones for a few.

RUN = 32  # distances looked at together first: nearly all runs hold nothing new


@serial
def keep_closest(products, row_terms, column_terms, ids, rows, own, gaps, found):
    """Mutates: ``gaps`` and ``found``, each row's smallest squared distances so far, sorted, and to whom.

    The distance of query i and column j is ``row_terms[i] + column_terms[j] - 2 products[i, j]``; the query
    is row ``rows[i]`` of ``gaps`` and ``found`` (n x m), the column is point ``ids[j]``, beyond which there
    may be columns of padding. Point ``own[i]`` is the query itself and is passed over.
    """
    n_kept = gaps.shape[1]
    n_columns = ids.shape[0]
    for i in range(products.shape[0]):
        row = rows[i]
        bound = gaps[row, n_kept - 1] - row_terms[i]
        for begin in range(0, n_columns, RUN):
            end = min(begin + RUN, n_columns)
            if end == begin + RUN:
                n_new = 0  # a sum without branches: whole lanes at once
                for j in range(begin, begin + RUN):
                    n_new += column_terms[j] - 2 * products[i, j] < bound
                if n_new == 0:
                    continue
            for j in range(begin, end):
                gap = column_terms[j] - 2 * products[i, j]
                if gap < bound and ids[j] != own[i]:
                    whole = gap + row_terms[i]
                    at = n_kept - 1
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
