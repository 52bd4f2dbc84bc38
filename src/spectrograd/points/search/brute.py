"""Exact neighbours by comparing all pairs, through scikit-learn: few points, sparse ones, any metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def search_all_pairs(points: Array, k: int, n_jobs: int | None) -> tuple[Array, Array]:
    """The k others closest to each point: indices and distances (N x k), nearest first."""
    # Far from the origin the expanded square |x|^2 - 2xy + |y|^2 loses all its digits.
    centred = points - points.mean(axis=0)
    return measured(centred, search_metric(centred, k, n_jobs, "euclidean")[0])


def search_metric(points: Any, k: int, n_jobs: int | None, metric: Any) -> tuple[Array, Array]:
    """The same in any metric of scikit-learn, for dense or sparse points."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=k, algorithm="brute", metric=metric, n_jobs=n_jobs)
    # Without an argument scikit-learn leaves each point out of its own list, twins or not.
    distances, indices = search.fit(points).kneighbors()
    return indices, distances


def measured(points: Array, indices: Array) -> tuple[Array, Array]:
    """Distances from differences, nearest first: exact zeros for twins, which the expanded square misses."""
    distances = np.empty(indices.shape)
    rows_at_once = max(1, 4_000_000 // (indices.shape[1] * points.shape[1]))
    for start in range(0, len(points), rows_at_once):
        rows = slice(start, start + rows_at_once)
        distances[rows] = np.linalg.norm(points[indices[rows]] - points[rows, None], axis=2)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)
