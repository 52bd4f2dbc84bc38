"""Looks at a matrix that would cost a transposed copy elsewhere: symmetry, components."""

import numpy as np

from spectrograd.kernels._jit import serial


@serial
def is_symmetric(indptr, indices, values):
    """Whether a CSR matrix with sorted rows equals its transpose.

    Row by row the entry (i, j) must be the next unmatched one of row j: a cursor per row, no copy.
    """
    n = indptr.shape[0] - 1
    cursor = indptr[:-1].copy()
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            q = cursor[j]
            if q >= indptr[j + 1] or indices[q] != i or values[q] != values[p]:
                return False
            cursor[j] = q + 1
    return True


@serial
def component_of(indptr, indices):
    """The connected component of every vertex of a symmetric matrix, numbered as they are met."""
    n = indptr.shape[0] - 1
    component = np.full(n, -1, np.int32)
    queue = np.empty(n, np.int32)
    n_found = 0
    for source in range(n):
        if component[source] >= 0:
            continue
        queue[0], component[source] = source, n_found
        head, tail = 0, 1
        while head < tail:
            i = queue[head]
            head += 1
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                if component[j] < 0:
                    component[j] = n_found
                    queue[tail] = j
                    tail += 1
        n_found += 1
    return component
