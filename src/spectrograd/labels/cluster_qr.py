"""Clusters as directions (Damle, Minden and Ying, arXiv 1609.08251): one row of each, found by pivoting."""

from __future__ import annotations

import numpy as np

from spectrograd.typing import Array


def cluster_qr(rows: Array, n_clusters: int) -> tuple[Array, Array]:
    """Labels, and the row that stands for each cluster; the rows have at least as many columns."""
    pivots = _pivots(rows, n_clusters)
    # Algorithm 1 of Damle et al., step 3: the orthogonal matrix nearest to the chosen rows.
    left, _, right = np.linalg.svd(rows[pivots].T.astype(np.float64), full_matrices=False)
    return np.argmax(np.abs(rows @ (left @ right)), axis=1), pivots


def pivot_centres(rows: Array, n_clusters: int) -> Array:
    """Means of these clusters; a pivot that won no row stands for its own cluster."""
    labels, pivots = cluster_qr(rows, n_clusters)
    sizes = np.bincount(labels, minlength=n_clusters)
    sums = np.stack([np.bincount(labels, column, n_clusters) for column in rows.T], axis=1)
    means = sums / np.maximum(sizes, 1)[:, None]
    return np.where((sizes > 0)[:, None], means, rows[pivots])


def _pivots(rows: Array, count: int) -> Array:
    """The first pivots of a QR of the transpose: each time the row that is longest outside of those before.

    LAPACK would go on to factorise all N columns.
    """
    outside = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    directions = np.zeros((count, rows.shape[1]))
    pivots = np.zeros(count, dtype=np.int64)
    for turn in range(count):
        # 1. the row with the longest part outside the directions so far
        pivots[turn] = np.argmax(outside)
        direction = rows[pivots[turn]].astype(np.float64)
        # 2. its direction, orthogonal to those before
        for _ in range(2):  # once more for what rounding left
            direction -= directions[:turn].T @ (directions[:turn] @ direction)
        length = np.linalg.norm(direction)
        directions[turn] = direction / length if length > 0 else 0
        # 3. what is left outside of it (Businger and Golub 1965)
        outside -= (rows @ directions[turn].astype(rows.dtype)) ** 2
        outside[pivots[turn]] = -np.inf
    return pivots
