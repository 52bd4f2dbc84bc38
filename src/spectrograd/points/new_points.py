"""Points that were not there when the graph was made: their neighbours among those that were."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.points.metrics import EUCLIDEAN, Metric, in_metric
from spectrograd.points.search import TREE_MAX_FEATURES
from spectrograd.points.search.brute import search_metric
from spectrograd.points.weights import edge_weights

Array = NDArray[Any]
AT_ONCE = 4_000_000  # coordinates whose differences are held at a time


@dataclass(frozen=True, eq=False)
class KnownPoints:
    """The points of a k-nearest-neighbour graph, ready for questions about others.

    Attributes
    ----------
    points : array or sparse array of shape (n_points, n_features)
        As they were given.
    scale : array of shape (n_points,)
        Distance of each point to its last neighbour.
    remoteness : array of shape (n_points,)
        That distance over the mean of its neighbours' own.
    n_neighbors, metric
        Neighbours each point chooses, and by which distance.
    """

    points: Any
    scale: Array
    remoteness: Array
    n_neighbors: int
    metric: Metric = "euclidean"

    @cached_property
    def _searched(self) -> Any:
        """The points as they are searched: of cosine distances, at unit length."""
        return in_metric(_as_floats(self.points), self.metric)[0]

    @cached_property
    def _centre(self) -> Array | float:
        """Far from the origin the expanded squares of a brute search lose all their digits."""
        plain = sp.issparse(self._searched) or self._has_tree or self.metric not in (*EUCLIDEAN, "cosine")
        return 0.0 if plain else np.asarray(self._searched.mean(axis=0))

    @property
    def _has_tree(self) -> bool:
        euclidean = self.metric in (*EUCLIDEAN, "cosine") and not sp.issparse(self._searched)
        return euclidean and self._searched.shape[1] <= TREE_MAX_FEATURES

    @cached_property
    def _search(self) -> Any:
        from sklearn.neighbors import NearestNeighbors

        metric = in_metric(self._searched, self.metric)[1]
        way = "kd_tree" if self._has_tree else "brute"
        search = NearestNeighbors(n_neighbors=self.n_neighbors, algorithm=way, metric=metric)
        return search.fit(self._moved(self._searched))

    def _moved(self, points: Any) -> Any:
        return points if sp.issparse(points) else points - self._centre

    def rows(self, new: Any) -> tuple[sp.csr_array, Array, Array]:
        """Weights to known points (n_new x n_points), the known point in the same place or -1, remoteness."""
        asked, metric, as_asked = in_metric(_as_floats(new), self.metric)
        gaps, near = self._search.kneighbors(self._moved(asked))
        if metric == "euclidean":  # of differences: exact zeros for twins, which the expanded square misses
            every = np.repeat(np.arange(len(near)), near.shape[1])
            gaps = as_asked(_distances(asked, self._searched, every, near.ravel())).reshape(near.shape)
        order = np.lexsort((near, gaps), axis=1)  # twins in the order of the training points
        near, gaps = (np.take_along_axis(part, order, axis=1) for part in (near, gaps))
        scale = np.concatenate([self.scale, gaps[:, -1]])
        own = len(self.scale) + np.arange(len(near))[:, None]
        weights = edge_weights(own, near, gaps, scale=scale, weights="self-tuned")
        pointers = np.arange(len(near) + 1) * near.shape[1]
        shape = (len(near), len(self.scale))
        matrix = sp.csr_array((weights.ravel(), near.ravel(), pointers), shape=shape)
        same = np.where(gaps[:, 0] == 0, near[:, 0], -1)
        return matrix, same, _ratio(gaps[:, -1], self.scale[near].mean(axis=1))


def known_points(
    points: Any, matrix: sp.csr_array, n_neighbors: int, metric: Metric = "euclidean"
) -> KnownPoints:
    """The points behind a k-nearest-neighbour graph.

    A point's own choices are the nearest of its neighbours in the graph, since whoever chose it without being
    chosen is farther: so their distances are found along the edges, without another search.
    """
    searched, plain, as_asked = in_metric(_as_floats(points), metric)
    if plain == "euclidean":
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        gaps = as_asked(_distances(searched, searched, rows, matrix.indices))
        chosen = np.lexsort((gaps, rows))[matrix.indptr[:-1, None] + np.arange(n_neighbors)]
        near, scale = matrix.indices[chosen], gaps[chosen[:, -1]]
    else:
        near, gaps = search_metric(searched, n_neighbors, None, plain)
        scale = gaps[:, -1]
    return KnownPoints(points, scale, _ratio(scale, scale[near].mean(axis=1)), n_neighbors, metric)


def _as_floats(points: Any) -> Any:
    if sp.issparse(points):
        return sp.csr_array(points, dtype=np.float64)
    return np.asarray(points, dtype=np.float64) + 0.0  # -0.0 and 0.0 are one place


def _distances(one: Any, other: Any, rows: Array, cols: Array) -> Array:
    """Between rows of two sets of points, a part of them at a time."""
    found = np.empty(len(rows))
    step = max(1, AT_ONCE // max(1, one.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        apart = one[rows[part]] - other[cols[part]]
        squares = (
            np.asarray(apart.multiply(apart).sum(axis=1)).ravel()
            if sp.issparse(apart)
            else np.einsum("ij,ij->i", apart, apart)
        )
        found[part] = np.sqrt(squares)
    return found


def _ratio(own: Array, others: Array) -> Array:
    """``own / others``; among twins one for another twin, infinite for a stranger."""
    safe = np.where(others > 0, others, 1.0)
    return np.asarray(np.where(others > 0, own / safe, np.where(own > 0, np.inf, 1.0)))
