"""Coordinate-wise power iteration: a few coordinates per round, chosen by how far they are from done."""

import numpy as np

from spectrograd.kernels.jit import serial


@serial
def coordinate_rounds(matrix, diagonal, low_rank, x, z, size, n_rounds):
    """Mutates: ``x``, and ``z`` so that it stays ``(M + diag(diagonal)) x``.

    Power iteration on ``S = M + diag(diagonal) + P diag(a) P'`` with ``matrix = (indptr, indices, data)``
    the CSR form of the symmetric M and ``low_rank = (P, a)``. A round computes ``y = S x / theta``,
    theta the Rayleigh quotient, and moves the ``size`` coordinates where ``|y - x|`` is largest to y.
    Returns theta, the residual ``|S x - theta x| / |x|`` before the last round, and the entries of M read.
    """
    indptr, indices, data = matrix
    P, a = low_rank
    n_rows, rank = P.shape
    h = np.zeros(rank)
    for i in range(n_rows):
        for r in range(rank):
            h[r] += P[i, r] * x[i]
    change = np.empty(n_rows)
    distance = np.empty(n_rows)
    theta, residual, n_read = 0.0, 0.0, 0
    for _ in range(n_rounds):
        g = a * h
        xx, xz, zz = 0.0, 0.0, 0.0
        for i in range(n_rows):
            full = z[i]
            for r in range(rank):
                full += P[i, r] * g[r]
            change[i] = full
            xx += x[i] * x[i]
            xz += x[i] * full
            zz += full * full
        theta = xz / xx
        residual = np.sqrt(max(zz / xx - theta * theta, 0.0))
        if not theta > 0:
            break
        for i in range(n_rows):
            change[i] = change[i] / theta - x[i]
            distance[i] = abs(change[i])
        least = np.partition(distance, n_rows - size)[n_rows - size] if size < n_rows else 0.0
        left = size
        for i in range(n_rows):
            if distance[i] < least or left == 0 or distance[i] == 0.0:
                continue
            left -= 1
            step = change[i]
            x[i] += step
            z[i] += diagonal[i] * step
            for r in range(rank):
                h[r] += P[i, r] * step
            for p in range(indptr[i], indptr[i + 1]):
                z[indices[p]] += data[p] * step
            n_read += indptr[i + 1] - indptr[i]
    return theta, residual, n_read
