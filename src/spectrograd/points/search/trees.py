"""Exact neighbours in few dimensions: a sorted line, or a k-d tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def search_tree(points: Array, k: int, n_jobs: int | None) -> tuple[Array, Array]:
    """The k others closest to each point (N x p): indices and distances (N x k), nearest first."""
    if points.shape[1] == 1:
        return _search_line(points[:, 0], k)
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=k, algorithm="kd_tree", n_jobs=n_jobs)
    # Without an argument scikit-learn leaves each point out of its own list, twins or not.
    distances, indices = search.fit(points).kneighbors()
    return indices, distances


def _search_line(values: Array, k: int) -> tuple[Array, Array]:
    """On a line the k nearest of a point are among the k before and the k after it."""
    order = np.argsort(values, kind="stable")
    line = values[order]
    offsets = np.concatenate([np.arange(-k, 0), np.arange(1, k + 1)])
    place = np.arange(len(line))[:, None] + offsets
    gap = np.abs(line[np.clip(place, 0, len(line) - 1)] - line[:, None])
    gap[(place < 0) | (place >= len(line))] = np.inf
    best = np.argsort(gap, axis=1, kind="stable")[:, :k]
    indices, distances = np.empty((len(line), k), dtype=np.int64), np.empty((len(line), k))
    indices[order] = order[np.take_along_axis(place, best, axis=1)]
    distances[order] = np.take_along_axis(gap, best, axis=1)
    return indices, distances
