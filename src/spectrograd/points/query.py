"""Weights of edges by distance, and the neighbours of new points among the points of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from spectrograd.points.search import TREE_MAX_FEATURES
from spectrograd.points.validation import EUCLIDEAN, Metric, in_metric
from spectrograd.typing import Array, Matrix

if TYPE_CHECKING:
    from spectrograd.points.ivf_index import IVFIndex


Weights = Literal["self-tuned", "binary", "distance-kernel"]

# A node whose weights all underflow is isolated in effect: one spurious zero eigenvalue each.
SMALLEST_WEIGHT = 1e-6


def edge_weights(rows: Array, cols: Array, distances: Array, *, scale: Array, weights: Weights) -> Array:
    """Weigh edges by their lengths.

    Parameters
    ----------
    rows, cols : int arrays
        The ends of the edges; they broadcast against each other.
    distances : array
        The lengths.
    scale : array of shape (n_points,)
        Distance of each point to its last neighbour.
    weights : {"self-tuned", "binary", "distance-kernel"}
    """
    if weights == "binary":
        return np.ones_like(distances)
    if weights == "self-tuned":
        own = scale[rows]
        other = scale[cols]
        # A point among twins has no scale of its own: the other end's stands in, or its edge would vanish.
        own, other = np.where(own == 0, other, own), np.where(other == 0, own, other)
    else:
        own = other = np.median(scale[scale > 0]) if scale.any() else np.zeros(())
    # The tiny floor only avoids 0 / 0: distance zero weighs one whatever the scale.
    own, other = (np.maximum(side, np.finfo(np.float64).tiny) for side in (own, other))
    with np.errstate(over="ignore"):  # an infinite exponent is a weight of zero, lifted to the smallest one
        exponent = (distances / own) * (distances / other)
    return np.asarray(np.maximum(np.exp(-exponent), SMALLEST_WEIGHT))


# --- New points: their neighbours among the points of a graph.

DIFFERENCES_PER_CHUNK = 4_000_000  # coordinates
SPARE_CANDIDATES = 5  # neighbours beyond k, whose order rounding may have changed


class QueryResult(NamedTuple):
    """Neighbours of new points.

    Attributes
    ----------
    weights : sparse array of shape (n_new, n_points)
        To the points of the graph.
    same : array of shape (n_new,)
        The point of the graph that coincides with the new one, or -1.
    scale : array of shape (n_new,)
        Distance to the last neighbour.
    outlier_scale : array of shape (n_new,)
        That distance over the mean of the neighbours' own.
    """

    weights: sp.csr_array
    same: Array
    scale: Array
    outlier_scale: Array


@dataclass(frozen=True, eq=False)
class KnownPoints:
    """The points of a k-nearest-neighbour graph, with the search for neighbours of new points.

    The search is the one that made the graph: by its inverted lists, or exact. The bits of a result do not
    depend on the other new points.

    Attributes
    ----------
    points : array or sparse array of shape (n_points, n_features)
        As they were given.
    scale : array of shape (n_points,)
        Distance of each point to its last neighbour.
    outlier_scale : array of shape (n_points,)
        That distance over the mean of its neighbours' own.
    n_neighbors, metric
        Neighbours each point chooses, and by which distance.
    index
        The inverted lists, where the search used them.
    """

    points: Matrix
    scale: Array
    outlier_scale: Array
    n_neighbors: int
    metric: Metric = "euclidean"
    index: IVFIndex | None = None

    def ask(self, new: object) -> QueryResult:
        """Neighbours of new points (n x p), weighted as in the graph."""
        with np.errstate(over="ignore"):
            near, gaps, same = self._nearest(new)
        if not np.isfinite(gaps).all():
            row = int(np.argmax(~np.isfinite(gaps).all(axis=1)))
            raise ValueError(
                f"row {row} lies too far from the training points to measure a distance; leave it out"
            )
        scale = np.concatenate([self.scale, gaps[:, -1]])
        own = len(self.scale) + np.arange(len(near))[:, None]
        weights = edge_weights(own, near, gaps, scale=scale, weights="self-tuned")
        pointers = np.arange(len(near) + 1) * near.shape[1]
        shape = (len(near), len(self.scale))
        matrix = sp.csr_array((weights.ravel(), near.ravel(), pointers), shape=shape)
        return QueryResult(matrix, same, gaps[:, -1], outlier_scale(gaps[:, -1], self.scale[near]))

    def with_more(self, new: Matrix, asked: QueryResult) -> KnownPoints:
        """The points with new ones, given their neighbours; the neighbours of the old points stay."""
        index = self.index
        return replace(
            self,
            points=(sp.vstack if sp.issparse(self.points) else np.vstack)([self.points, new]),
            scale=np.concatenate([self.scale, asked.scale]),
            outlier_scale=np.concatenate([self.outlier_scale, asked.outlier_scale]),
            index=None if index is None else index.with_more(self._in_metric(new)[0], len(self.scale)),
        )

    def _in_metric(self, points: Matrix) -> tuple[Matrix, Metric, Callable[[Array], Array]]:
        """Points as they are searched, of unit norm for cosine distances; see :func:`in_metric`."""
        if sp.issparse(points):
            floats: Matrix = sp.csr_array(points, dtype=np.float64)
        else:
            single = self.index is not None and np.can_cast(points.dtype, np.float32)
            floats = np.ascontiguousarray(points, dtype=np.float32 if single else np.float64)
        return in_metric(floats, self.metric)

    @property
    def _plain_metric(self) -> Metric:
        return "euclidean" if self.metric in (*EUCLIDEAN, "cosine") else self.metric

    @cached_property
    def _searched(self) -> Any:
        return self._in_metric(self.points)[0]

    def _nearest(self, new: object) -> tuple[Array, Array, Array]:
        """Row numbers and distances of the nearest points (n x k); the one that coincides, or -1."""
        queries, metric, to_metric = self._in_metric(new)
        if self.index is not None:
            near, gaps, same = self.index.nearest(self._searched, queries, self.n_neighbors)
            return near, to_metric(gaps), same
        gaps, near = self._search.kneighbors(self._center(queries))
        if metric == "euclidean":  # of differences: exact zeros for twins, which the expanded square misses
            rows = np.repeat(np.arange(len(near)), near.shape[1])
            gaps = to_metric(_distances(queries, self._searched, rows, near.ravel())).reshape(near.shape)
        order = np.lexsort((near, gaps), axis=1)[:, : self.n_neighbors]  # twins in the order of the points
        near, gaps = (np.take_along_axis(part, order, axis=1) for part in (near, gaps))
        return near, gaps, np.where(gaps[:, 0] == 0, near[:, 0], -1)

    @cached_property
    def _origin(self) -> Array | float:
        """Far from the origin the expanded squares of a brute search lose all their digits."""
        plain = sp.issparse(self._searched) or self._has_tree or self._plain_metric != "euclidean"
        return 0.0 if plain else np.asarray(self._searched.mean(axis=0))

    @property
    def _has_tree(self) -> bool:
        euclidean = self._plain_metric == "euclidean" and not sp.issparse(self._searched)
        return euclidean and self._searched.shape[1] <= TREE_MAX_FEATURES

    @cached_property
    def _search(self) -> Any:
        from sklearn.neighbors import NearestNeighbors

        algorithm = "kd_tree" if self._has_tree else "brute"
        count = min(self.n_neighbors + SPARE_CANDIDATES, len(self.scale))
        search = NearestNeighbors(n_neighbors=count, algorithm=algorithm, metric=self._plain_metric)
        return search.fit(self._center(self._searched))

    def _center(self, points: Matrix) -> Matrix:
        return points if sp.issparse(points) else points - self._origin


def _distances(one: Any, other: Any, rows: Array, cols: Array) -> Array:
    """Distances between rows of two sets of points, in chunks."""
    distances = np.empty(len(rows))
    step = max(1, DIFFERENCES_PER_CHUNK // max(1, one.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        differences = one[rows[part]] - other[cols[part]]
        squares = (
            np.asarray(differences.multiply(differences).sum(axis=1)).ravel()
            if sp.issparse(differences)
            else np.einsum("ij,ij->i", differences, differences)
        )
        distances[part] = np.sqrt(squares)
    return distances


def outlier_scale(own: Array, others: Array) -> Array:
    """Divide scales (n) by the mean of the neighbours' own (n x k); where that is 0, return 1 or inf."""
    mean = others.mean(axis=1)
    safe = np.where(mean > 0, mean, 1.0)
    return np.asarray(np.where(mean > 0, own / safe, np.where(own > 0, np.inf, 1.0)))
