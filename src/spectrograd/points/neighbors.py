"""Points to graph: k nearest neighbours, with weights that follow the local density."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from spectrograd.extras import MissingExtra, need
from spectrograd.graph import Graph, GraphWarning
from spectrograd.points.descent import measured, search_approximately
from spectrograd.points.links import TREE_MAX_FEATURES, join_components

Array = NDArray[Any]
Weights = Literal["self-tuned", "binary", "distance-kernel"]
Search = Literal["auto", "exact", "approximate"]

# pynndescent compiles for most of a minute in each process; an exact search of so many points, or of any
# number of them in so few dimensions, does not take longer.
EXACT_MAX_POINTS, EXACT_MAX_FEATURES = 100_000, 8
# A node whose weights all underflow is isolated in effect: one spurious zero eigenvalue each.
SMALLEST_WEIGHT = 1e-6


def knn_graph(
    points: ArrayLike,
    n_neighbors: int = 10,
    *,
    weights: Weights = "self-tuned",
    search: Search = "auto",
    connect: bool = False,
    n_jobs: int | None = None,
) -> Graph:
    """Join every point to its ``n_neighbors`` nearest ones; an edge stands if either end chose the other.

    Parameters
    ----------
    points
        N x p coordinates; a 1-D array is one column. A scipy sparse matrix stays sparse, and crowds of
        equal points are then not spread over a ring.
    n_neighbors
        Neighbours each point chooses, itself never among them, even where points coincide.
    weights
        ``"self-tuned"``: ``exp(-d^2 / (s_i s_j))``, s the distance to the last neighbour (Zelnik-Manor and
        Perona, 2004); ``"distance-kernel"``: ``exp(-d^2 / s^2)``, s the median of those that are not zero;
        ``"binary"``: ones. Weights are at least 1e-6, so that no chosen neighbour is lost.
    search
        ``"exact"``, ``"approximate"`` (pynndescent, ``pip install spectrograd[knn]``; the same on every
        call), or ``"auto"``: approximate above 100,000 points in more than 8 dimensions.
    connect
        Join the pieces of the graph, if there are several, by the shortest links between them (a minimum
        spanning tree of pieces), weighted as every edge. They stay weak: pieces far apart stay clusters.
        Above 15 dimensions and 20,000 points the links are the shortest between samples of the pieces.
    n_jobs
        Threads for the search, as in scikit-learn.

    Notes
    -----
    Among more than ``n_neighbors`` points in one place, who neighbours whom is a free choice. They stand in a
    ring and look random steps ahead, which holds them together far better than joining them in the order of
    the input would; the steps are the same on every call.

    Examples
    --------
    >>> knn_graph([0.0, 1.0, 2.5, 10.0], n_neighbors=1, weights="binary").matrix.toarray()
    array([[0., 1., 0., 0.],
           [1., 0., 1., 0.],
           [0., 1., 0., 1.],
           [0., 0., 1., 0.]])
    """
    coordinates = _checked_points(points, n_neighbors)
    n_points = coordinates.shape[0]
    if weights not in get_args(Weights):
        raise ValueError(f"unknown weights {weights!r}; choose one of {', '.join(get_args(Weights))}")
    if search not in get_args(Search):
        raise ValueError(f"unknown search {search!r}; choose one of {', '.join(get_args(Search))}")
    indices, distances = _nearest(coordinates, n_neighbors, n_jobs, search)
    weigh = partial(_edge_weights, scale=distances[:, -1], weights=weights)
    values = weigh(np.arange(len(indices))[:, None], indices, distances)
    order = np.argsort(indices, axis=1)
    directed = sp.csr_array(
        (
            np.take_along_axis(values, order, axis=1).ravel(),
            np.take_along_axis(indices, order, axis=1).ravel(),
            np.arange(n_points + 1) * n_neighbors,
        ),
        shape=(n_points, n_points),
    )
    matrix = sp.csr_array(directed.maximum(directed.T.tocsr()))
    return Graph._from_clean_csr(join_components(matrix, coordinates, weigh) if connect else matrix, None)


def _checked_points(points: ArrayLike, n_neighbors: int) -> Any:
    coordinates: Any = points if sp.issparse(points) else np.asarray(points)
    if coordinates.dtype.kind not in "biuf":
        raise ValueError(f"points have type {coordinates.dtype}; numbers are needed")
    if coordinates.ndim == 1:
        coordinates = coordinates[:, None]
    if coordinates.ndim != 2 or coordinates.shape[1] == 0:
        raise ValueError(f"points have shape {coordinates.shape}; one row of coordinates per point is needed")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors is {n_neighbors}; it must be at least 1")
    others = coordinates.shape[0] - 1
    if n_neighbors > others:
        raise ValueError(f"n_neighbors is {n_neighbors}, but a point has only {others} others to choose from")
    coordinates = coordinates.astype(np.float64)
    if sp.issparse(coordinates):
        return _finite_sparse(sp.csr_array(coordinates))
    bad = ~np.isfinite(coordinates).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} points are not finite (first in row {int(np.argmax(bad))}); drop or fill them"
        )
    return np.ascontiguousarray(coordinates + 0.0)  # -0.0 and 0.0 are one place, but not the same bytes


def _finite_sparse(points: sp.csr_array) -> sp.csr_array:
    bad = ~np.isfinite(points.data)
    if bad.any():
        row = int(np.searchsorted(points.indptr, np.argmax(bad), side="right")) - 1
        raise ValueError(f"points are not finite (first in row {row}); drop or fill them")
    return points


def _edge_weights(rows: Array, cols: Array, distances: Array, *, scale: Array, weights: Weights) -> Array:
    """Weights of edges of these lengths; ``scale`` is each point's distance to its last neighbour."""
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


def _nearest(points: Array, k: int, n_jobs: int | None, search: Search = "auto") -> tuple[Array, Array]:
    """Find the k others closest to each point: indices and distances, nearest first."""
    if sp.issparse(points):
        return _search_sparse(points, k, n_jobs)
    groups = _crowded_places(points, k)
    # Nobody needs more than k points of one place, and trees degenerate on thousands of twins.
    kept = np.ones(len(points), dtype=bool)
    for group in groups:
        kept[group[k:]] = False
    rows = np.flatnonzero(kept)
    indices = np.zeros((len(points), k), dtype=np.int64)
    distances = np.zeros((len(points), k))
    if len(rows) > k:
        look = _search_for(points[rows], search)
        found, distances[rows] = look(points[rows], k, n_jobs)
        indices[rows] = rows[found]
    rng = np.random.default_rng(0)  # fixed: the same points always give the same graph
    for group in groups:
        steps = 1 + rng.choice(len(group) - 1, size=k, replace=False)
        indices[group] = group[(np.arange(len(group))[:, None] + steps) % len(group)]
        distances[group] = 0.0
    return indices, distances


def _search_for(points: Array, search: Search) -> Callable[[Array, int, int | None], tuple[Array, Array]]:
    n_points, n_features = points.shape
    if n_features == 1 and search != "approximate":
        return _search_sorted
    many = n_points > EXACT_MAX_POINTS and n_features > EXACT_MAX_FEATURES
    if search == "exact" or (search == "auto" and not many):
        return _search_space
    try:
        need("pynndescent", f"an approximate search of {n_points:,} points in {n_features} dimensions")
    except MissingExtra as missing:
        if search == "approximate":
            raise
        warnings.warn(f"{missing}; the exact one may take long", GraphWarning, stacklevel=4)
        return _search_space
    return search_approximately


def _crowded_places(points: Array, k: int) -> list[Array]:
    """Row numbers of the points of every place that holds more than k of them."""
    if np.all(np.diff(np.sort(points[:, 0]))):
        return []  # the usual case, settled by one column
    as_bytes = points.view(np.dtype((np.void, points.dtype.itemsize * points.shape[1]))).ravel()
    keys = points[:, 0] if points.shape[1] == 1 else as_bytes
    _, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(place, kind="stable"), np.cumsum(count)[:-1])
    return [members[at] for at in np.flatnonzero(count > k)]


def _search_sorted(points: Array, k: int, _n_jobs: int | None) -> tuple[Array, Array]:
    """On a line the k nearest of a point are among the k before and the k after it."""
    order = np.argsort(points[:, 0], kind="stable")
    line = points[order, 0]
    offsets = np.concatenate([np.arange(-k, 0), np.arange(1, k + 1)])
    place = np.arange(len(line))[:, None] + offsets
    gap = np.abs(line[np.clip(place, 0, len(line) - 1)] - line[:, None])
    gap[(place < 0) | (place >= len(line))] = np.inf
    best = np.argsort(gap, axis=1, kind="stable")[:, :k]
    indices, distances = np.empty((len(line), k), dtype=np.int64), np.empty((len(line), k))
    indices[order] = order[np.take_along_axis(place, best, axis=1)]
    distances[order] = np.take_along_axis(gap, best, axis=1)
    return indices, distances


def _search_space(points: Array, k: int, n_jobs: int | None) -> tuple[Array, Array]:
    from sklearn.neighbors import NearestNeighbors

    tree = points.shape[1] <= TREE_MAX_FEATURES
    # Far from the origin the expanded square |x|^2 - 2xy + |y|^2 of the brute search loses all its digits.
    centred = points if tree else points - points.mean(axis=0)
    search = NearestNeighbors(n_neighbors=k, algorithm="kd_tree" if tree else "brute", n_jobs=n_jobs)
    # Without an argument scikit-learn leaves each point out of its own list, twins or not.
    distances, indices = search.fit(centred).kneighbors()
    return (indices, distances) if tree else measured(centred, indices)


def _search_sparse(points: sp.csr_array, k: int, n_jobs: int | None) -> tuple[Array, Array]:
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=k, algorithm="brute", n_jobs=n_jobs).fit(points)
    distances, indices = search.kneighbors()
    return indices, distances
