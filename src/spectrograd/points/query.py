"""From distances to weights of edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from spectrograd.points.search import TREE_MAX_FEATURES
from spectrograd.points.validation import EUCLIDEAN, Metric, in_metric
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.points.ivf_index import IVFIndex


Weights = Literal["self-tuned", "binary", "distance-kernel"]

# A node whose weights all underflow is isolated in effect: one spurious zero eigenvalue each.
SMALLEST_WEIGHT = 1e-6


def edge_weights(rows: Array, cols: Array, distances: Array, *, scale: Array, weights: Weights) -> Array:
    """Weights of edges of these lengths; ``scale`` (N) is each point's distance to its last neighbour."""
    if weights == "binary":
        return np.ones_like(distances)
    if weights == "self-tuned":
        own, other = scale[rows], scale[cols]
        # A point among twins has no scale of its own: the other end's stands in, or its edge would vanish.
        own, other = np.where(own == 0, other, own), np.where(other == 0, own, other)
    else:
        own = other = np.median(scale[scale > 0]) if scale.any() else np.zeros(())
    # The tiny floor only avoids 0 / 0: distance zero weighs one whatever the scale.
    own, other = (np.maximum(side, np.finfo(np.float64).tiny) for side in (own, other))
    with np.errstate(over="ignore"):  # an infinite exponent is a weight of zero, lifted to the smallest one
        exponent = (distances / own) * (distances / other)
    return np.asarray(np.maximum(np.exp(-exponent), SMALLEST_WEIGHT))


# --- Points that were not there when the graph was made: their neighbours among those that were.

AT_ONCE = 4_000_000  # coordinates whose differences are held at a time
SPARE = 5  # neighbours beyond those wanted, of which rounding may have made the last ones


class Asked(NamedTuple):
    """What is known of new points.

    ``weights`` to known points (n_new x n_points); the known point in the ``same`` place or -1; ``scale``:
    the distance to the last neighbour; ``outlier_scale``: that over the mean of the neighbours' own.
    """

    weights: sp.csr_array
    same: Array
    scale: Array
    outlier_scale: Array


@dataclass(frozen=True, eq=False)
class KnownPoints:
    """The points of a k-nearest-neighbour graph, ready for questions about others.

    Each new point is searched for by itself, to the last bit, in the way the graph was made: by the lists of
    that search, or exactly.

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
        The lists, where the search was by lists.
    """

    points: Any
    scale: Array
    outlier_scale: Array
    n_neighbors: int
    metric: Metric = "euclidean"
    index: IVFIndex | None = None

    def ask(self, new: Any) -> Asked:
        """Neighbours of new points (n x p), weighted as in the graph."""
        with np.errstate(over="ignore"):
            near, gaps, same = self._nearest(new)
        if not np.isfinite(gaps).all():
            row = int(np.argmax(~np.isfinite(gaps).all(axis=1)))
            raise ValueError(
                f"row {row} lies too far from the training points to tell a distance; leave it out"
            )
        scale = np.concatenate([self.scale, gaps[:, -1]])
        own = len(self.scale) + np.arange(len(near))[:, None]
        weights = edge_weights(own, near, gaps, scale=scale, weights="self-tuned")
        pointers = np.arange(len(near) + 1) * near.shape[1]
        shape = (len(near), len(self.scale))
        matrix = sp.csr_array((weights.ravel(), near.ravel(), pointers), shape=shape)
        return Asked(matrix, same, gaps[:, -1], outlier_scale(gaps[:, -1], self.scale[near]))

    def with_more(self, new: Any, asked: Asked) -> KnownPoints:
        """The same with these points, after they were asked for; what the old ones have chosen stays."""
        index = self.index
        return replace(
            self,
            points=(sp.vstack if sp.issparse(self.points) else np.vstack)([self.points, new]),
            scale=np.concatenate([self.scale, asked.scale]),
            outlier_scale=np.concatenate([self.outlier_scale, asked.outlier_scale]),
            index=None if index is None else index.with_more(self._in_metric(new)[0], len(self.scale)),
        )

    def _in_metric(self, points: Any) -> tuple[Any, Metric, Callable[[Array], Array]]:
        """Points as a search sees them, of cosine distances at unit length; see :func:`in_metric`."""
        if sp.issparse(points):
            floats: Any = sp.csr_array(points, dtype=np.float64)
        else:
            single = self.index is not None and points.dtype == np.float32
            floats = np.ascontiguousarray(points, dtype=np.float32 if single else np.float64)
        return in_metric(floats, self.metric)

    @property
    def _plain_metric(self) -> Metric:
        return "euclidean" if self.metric in (*EUCLIDEAN, "cosine") else self.metric

    @cached_property
    def _searched(self) -> Any:
        return self._in_metric(self.points)[0]

    def _nearest(self, new: Any) -> tuple[Array, Array, Array]:
        """Row numbers and distances of the nearest known points (n x k); the one in the same place or -1."""
        asked, metric, as_asked = self._in_metric(new)
        if self.index is not None:
            near, gaps, same = self.index.nearest(self._searched, asked, self.n_neighbors)
            return near, as_asked(gaps), same
        gaps, near = self._search.kneighbors(self._moved(asked))
        if metric == "euclidean":  # of differences: exact zeros for twins, which the expanded square misses
            every = np.repeat(np.arange(len(near)), near.shape[1])
            gaps = as_asked(_distances(asked, self._searched, every, near.ravel())).reshape(near.shape)
        order = np.lexsort((near, gaps), axis=1)[:, : self.n_neighbors]  # twins in the order of the points
        near, gaps = (np.take_along_axis(part, order, axis=1) for part in (near, gaps))
        return near, gaps, np.where(gaps[:, 0] == 0, near[:, 0], -1)

    @cached_property
    def _centre(self) -> Array | float:
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

        way = "kd_tree" if self._has_tree else "brute"
        count = min(self.n_neighbors + SPARE, len(self.scale))
        search = NearestNeighbors(n_neighbors=count, algorithm=way, metric=self._plain_metric)
        return search.fit(self._moved(self._searched))

    def _moved(self, points: Any) -> Any:
        return points if sp.issparse(points) else points - self._centre


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


def outlier_scale(own: Array, others: Array) -> Array:
    """Scales (n) over the mean of the neighbours' own (n x k); beside twins 1 for a twin, else infinite."""
    mean = others.mean(axis=1)
    safe = np.where(mean > 0, mean, 1.0)
    return np.asarray(np.where(mean > 0, own / safe, np.where(own > 0, np.inf, 1.0)))
