"""Nearest neighbours by pynndescent: nearly all of them, in much less time than all pairs take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# More of the true neighbours are found when more are asked for than are needed: 98 % with so many.
SPARE_NEIGHBORS = 10


def search_approximately(points: Array, k: int, n_jobs: int | None) -> tuple[Array, Array]:
    """Find nearly all of the k others closest to each point: indices and true distances, nearest first."""
    from pynndescent import NNDescent

    centred = points - points.mean(axis=0)  # it works in single precision
    wanted = min(k + 1 + SPARE_NEIGHBORS, len(points))
    index = NNDescent(centred.astype(np.float32), n_neighbors=wanted, random_state=0, n_jobs=n_jobs)
    found = np.asarray(index.neighbor_graph[0], dtype=np.int64)
    # Nearest first, without the point itself and without gaps: those go to the end and are cut off.
    useless = (found < 0) | (found == np.arange(len(found))[:, None])
    short = np.flatnonzero((~useless).sum(axis=1) < k)
    found = np.take_along_axis(found, np.argsort(useless, axis=1, kind="stable"), axis=1)[:, :k]
    if len(short):  # too few were found: look at all others
        found[short] = _nearest_of_rows(centred, short, k)
    return measured(centred, found)


def _nearest_of_rows(points: Array, rows: Array, k: int) -> Array:
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(points).kneighbors(points[rows])[1]
    order = np.argsort(found == rows[:, None], axis=1, kind="stable")
    return np.asarray(np.take_along_axis(found, order, axis=1)[:, :k])


def measured(points: Array, indices: Array) -> tuple[Array, Array]:
    """Distances from differences, nearest first: exact zeros for twins, which the expanded square misses."""
    distances = np.empty(indices.shape)
    rows_at_once = max(1, 4_000_000 // (indices.shape[1] * points.shape[1]))
    for start in range(0, len(points), rows_at_once):
        rows = slice(start, start + rows_at_once)
        distances[rows] = np.linalg.norm(points[indices[rows]] - points[rows, None], axis=2)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)
