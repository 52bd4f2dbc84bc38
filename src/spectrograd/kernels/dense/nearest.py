"""One pass of k-means: rows to their nearest centres, and the sums that the next centres are made of."""

import numpy as np

from spectrograd.kernels.dense.lanes import WIDTH, put, take
from spectrograd.kernels.jit import inner, serial

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
