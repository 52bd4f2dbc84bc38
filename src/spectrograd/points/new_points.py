"""Points that were not there when the graph was made: their neighbours among those that were."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.points.links import TREE_MAX_FEATURES
from spectrograd.points.weights import edge_weights

Array = NDArray[Any]
AT_ONCE = 4_000_000  # coordinates whose differences are held at a time


@dataclass(frozen=True, eq=False)
class KnownPoints:
    """The points of a k-nearest-neighbour graph, ready for questions about others.

    Attributes
    ----------
    points : array or sparse array of shape (n_points, n_features)
    scale : array of shape (n_points,)
        Distance of each point to its last neighbour.
    remoteness : array of shape (n_points,)
        That distance over the mean of its neighbours' own.
    n_neighbors
        Neighbours each point chooses.
    """

    points: Any
    scale: Array
    remoteness: Array
    n_neighbors: int

    @cached_property
    def _centre(self) -> Array | float:
        """Far from the origin the expanded squares of a brute search lose all their digits."""
        in_space = sp.issparse(self.points) or self.points.shape[1] <= TREE_MAX_FEATURES
        return 0.0 if in_space else np.asarray(self.points.mean(axis=0))

    @cached_property
    def _search(self) -> Any:
        from sklearn.neighbors import NearestNeighbors

        tree = not sp.issparse(self.points) and self.points.shape[1] <= TREE_MAX_FEATURES
        search = NearestNeighbors(n_neighbors=self.n_neighbors, algorithm="kd_tree" if tree else "brute")
        return search.fit(self.points if sp.issparse(self.points) else self.points - self._centre)

    def rows(self, new: Any) -> tuple[sp.csr_array, Array, Array]:
        """Weights to known points (n_new x n_points), the known point in the same place or -1, remoteness."""
        asked = sp.csr_array(new, dtype=np.float64) if sp.issparse(self.points) else np.asarray(new) + 0.0
        near = self._search.kneighbors(
            asked if sp.issparse(asked) else asked - self._centre, return_distance=False
        )
        every = np.repeat(np.arange(len(near)), near.shape[1])
        gaps = _distances(asked, self.points, every, near.ravel()).reshape(near.shape)
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


def known_points(points: Any, matrix: sp.csr_array, n_neighbors: int) -> KnownPoints:
    """The points behind a k-nearest-neighbour graph.

    A point's own choices are the nearest of its neighbours in the graph, since whoever chose it without being
    chosen is farther: so their distances are found along the edges, without another search.
    """
    points = sp.csr_array(points, dtype=np.float64) if sp.issparse(points) else np.asarray(points, np.float64)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    gaps = _distances(points, points, rows, matrix.indices)
    order = np.lexsort((gaps, rows))
    chosen = order[matrix.indptr[:-1, None] + np.arange(n_neighbors)]
    scale = gaps[chosen[:, -1]]
    remoteness = _ratio(scale, scale[matrix.indices[chosen]].mean(axis=1))
    return KnownPoints(points, scale, remoteness, n_neighbors)


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
