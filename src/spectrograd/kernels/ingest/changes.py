"""Rows of a stored graph with the changes that were made since."""

from spectrograd.kernels.jit import serial


@serial
def merge_rows(rows, old_weights, changes, one, indptr, columns, weights):
    """Mutates: indptr, columns and weights become the rows with their changes; how many entries there are.

    ``rows`` are row pointers and columns (ascending in each row), ``changes`` those of the same rows with
    their weights; ``old_weights`` may be None: all are ``one``. A changed entry takes the place of the one
    that is there, or a place of its own; with a weight of zero it goes. There is room for all.
    """
    starts, old_columns = rows
    change_starts, new_columns, new_weights = changes
    n = 0
    indptr[0] = 0
    for i in range(len(starts) - 1):
        e, end = starts[i], starts[i + 1]
        for c in range(change_starts[i], change_starts[i + 1]):
            while e < end and old_columns[e] < new_columns[c]:
                columns[n] = old_columns[e]
                weights[n] = one if old_weights is None else old_weights[e]
                e, n = e + 1, n + 1
            if e < end and old_columns[e] == new_columns[c]:
                e += 1
            if new_weights[c] != 0:
                columns[n], weights[n] = new_columns[c], new_weights[c]
                n += 1
        while e < end:
            columns[n] = old_columns[e]
            weights[n] = one if old_weights is None else old_weights[e]
            e, n = e + 1, n + 1
        indptr[i + 1] = n
    return n
