"""How many of the true neighbours a search has found: measured on a sample of exact rows, never assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Recall
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.points.ivf_index import IVFIndex


EXACT = Recall(1.0)


def measured_recall(found: Array, true: Array) -> Recall:
    """Recall of a search on a sample, from distances (n x k) it found and the true ones, nearest first.

    Neighbours count as found when they are as near as the k-th true one: among ties, any will do. A row is
    drawn as a whole, so the error is that of a mean over rows.

    Examples
    --------
    >>> float(measured_recall(np.array([[1.0, 2.0], [1.0, 4.0]]), np.array([[1.0, 2.0], [1.0, 3.0]])))
    0.75
    """
    share = (found <= true[:, -1:] * (1 + 1e-9)).mean(axis=1)  # the same sums may round differently
    error = share.std(ddof=1) / np.sqrt(len(share)) if len(share) > 1 else 0.0
    return Recall(share.mean(), error, len(share))


# --- Searches for nearest neighbours, one file each, and which of them is for what.

Search = Literal["auto", "exact", "approximate"]

# So few points are compared with each other, and so few dimensions searched by a tree, before a kernel for
# lists would be loaded: seconds at most, and nothing is missed.
EXACT_MAX_POINTS, EXACT_MAX_FEATURES = 20_000, 8
# Beyond this many dimensions trees do not help.
TREE_MAX_FEATURES = 15


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest others of each point, nearest first: ``indices``, ``distances`` (N x k), and the recall.

    ``index`` answers for other points, where the search was by lists.
    """

    indices: Array
    distances: Array
    recall: Recall = EXACT
    index: IVFIndex | None = None


@dataclass(frozen=True)
class Wanted:
    """What to search for and how: k others, in a metric, with what recall, on how many threads."""

    k: int
    metric: Any = "euclidean"
    search: Search = "auto"
    recall: float = 0.98
    n_jobs: int | None = None


def find_neighbours(points: Any, wanted: Wanted) -> Neighbours:
    """Search dense or sparse points (N x p) by what suits their number and dimension."""
    if wanted.metric != "euclidean" or sp.issparse(points):
        return Neighbours(*search_metric(points, wanted.k, wanted.n_jobs, wanted.metric))
    found = _by_ivf(points, wanted) if prefers_ivf(points.shape[0], points.shape[1], wanted) else None
    if found is not None:
        return found
    exact = search_tree if points.shape[1] <= TREE_MAX_FEATURES else search_all_pairs
    return Neighbours(*exact(points.astype(np.float64, copy=False), wanted.k, wanted.n_jobs))


def prefers_ivf(n_points: int, n_features: int, wanted: Wanted) -> bool:
    """Whether so many points in so many dimensions are searched approximately."""
    if wanted.search != "auto":
        return wanted.search == "approximate"
    return wanted.recall < 1 and n_points > EXACT_MAX_POINTS and n_features > EXACT_MAX_FEATURES


def _by_ivf(points: Array, wanted: Wanted) -> Neighbours | None:
    from spectrograd.engines import LocalEngine
    from spectrograd.points.ivf_index import search_ivf
    from spectrograd.system import one_thread

    # Our threads take a block of products each: BLAS with threads of its own would only fight with them.
    with LocalEngine(wanted.n_jobs).threads(), one_thread():
        found = search_ivf(points, wanted.k, wanted.recall)
    return None if found is None else Neighbours(*found)


# --- Exact neighbours by comparing all pairs, through scikit-learn: few points, sparse ones, any metric.


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


# --- Exact neighbours in few dimensions: a sorted line, or a k-d tree.


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
