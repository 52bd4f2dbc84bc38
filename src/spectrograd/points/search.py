"""Searches for nearest neighbours: which one is used, the exact ones, and the recall of approximate ones.

Few points are compared pair by pair, few dimensions are searched by a k-d tree, and many points in many
dimensions by inverted lists (:mod:`spectrograd.points.ivf_index`), whose recall is measured on a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Recall
from spectrograd.points.validation import Metric
from spectrograd.typing import Array, Matrix

if TYPE_CHECKING:
    from spectrograd.points.ivf_index import IVFIndex

EXACT_RECALL = Recall(1.0)


def estimate_recall(found: Array, true: Array) -> Recall:
    """Estimate the recall of a search from its distances on a sample of rows and the true ones.

    A neighbour counts where it is as near as the k-th true one: among ties, any will do. A row is sampled as
    a whole, so the standard error is that of a mean over rows.

    Parameters
    ----------
    found, true : array of shape (n_rows, k)
        Nearest first.

    Examples
    --------
    >>> float(estimate_recall(np.array([[1.0, 2.0], [1.0, 4.0]]), np.array([[1.0, 2.0], [1.0, 3.0]])))
    0.75
    """
    share = (found <= true[:, -1:] * (1 + 1e-9)).mean(axis=1)  # the same sums may round differently
    error = share.std(ddof=1) / np.sqrt(len(share)) if len(share) > 1 else 0.0
    return Recall(share.mean(), error, len(share))


# --- Choice of the search.

Search = Literal["auto", "exact", "approximate"]

# Up to this size an exact search takes seconds at most, before the kernels of inverted lists are loaded.
EXACT_MAX_POINTS = 20_000
EXACT_MAX_FEATURES = 8
# Beyond this many dimensions trees do not help.
TREE_MAX_FEATURES = 15
N_TIES = 8  # candidates beyond the k nearest, among which equal distances are decided by the index


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The k nearest other points of each point: ``indices`` and ``distances`` (N x k), nearest first.

    ``recall`` is the measured recall of the search, ``index`` the inverted lists, where it used them.
    """

    indices: Array
    distances: Array
    recall: Recall = EXACT_RECALL
    index: IVFIndex | None = None


@dataclass(frozen=True)
class Wanted:
    """Settings of a search: k other points, metric, kind of search, recall to reach, number of threads."""

    k: int
    metric: Metric = "euclidean"
    search: Search = "auto"
    recall: float = 0.98
    n_jobs: int | None = None


def find_neighbours(points: Matrix, wanted: Wanted) -> Neighbours:
    """Find the nearest others of dense or sparse points (N x p); their size decides the search."""
    if wanted.metric != "euclidean" or sp.issparse(points):
        return Neighbours(*search_metric(points, wanted.k, wanted.n_jobs, wanted.metric))
    approximate = (
        _search_by_ivf(points, wanted) if prefers_ivf(points.shape[0], points.shape[1], wanted) else None
    )
    if approximate is not None:
        return approximate
    exact = search_tree if points.shape[1] <= TREE_MAX_FEATURES else search_all_pairs
    return Neighbours(*exact(points.astype(np.float64, copy=False), wanted.k, wanted.n_jobs))


def prefers_ivf(n_points: int, n_features: int, wanted: Wanted) -> bool:
    """Whether points of this number and dimension are searched by inverted lists."""
    if wanted.search != "auto":
        return wanted.search == "approximate"
    return wanted.recall < 1 and n_points > EXACT_MAX_POINTS and n_features > EXACT_MAX_FEATURES


def _search_by_ivf(points: Array, wanted: Wanted) -> Neighbours | None:
    from spectrograd.engines import LocalEngine
    from spectrograd.points.ivf_index import search_ivf
    from spectrograd.system import one_thread

    # Our threads share the blocks of products: threads of BLAS would compete with them.
    with LocalEngine(wanted.n_jobs).threads(), one_thread():
        neighbours = search_ivf(points, wanted.k, wanted.recall)
    return None if neighbours is None else Neighbours(*neighbours)


# --- Exact search by all pairs, through scikit-learn: few points, sparse points, any metric.


def search_all_pairs(points: Array, k: int, n_jobs: int | None) -> tuple[Array, Array]:
    """Return the k others nearest to each point: indices and distances (N x k), nearest first."""
    # Far from the origin the expanded square |x|^2 - 2xy + |y|^2 loses all its digits.
    centred = points - points.mean(axis=0)
    # Which of several points at the same distance comes last depends on how threads share the pairs. So a
    # few more are found, and of equal distances the lower index counts.
    n_found = min(k + N_TIES, len(points) - 1)
    found, _ = search_metric(centred, n_found, n_jobs, "euclidean")
    indices, distances = measure_distances(centred, np.sort(found, axis=1))
    return indices[:, :k], distances[:, :k]


def search_metric(points: object, k: int, n_jobs: int | None, metric: object) -> tuple[Array, Array]:
    """Return the same in any metric of scikit-learn, for dense or sparse points."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=k, algorithm="brute", metric=metric, n_jobs=n_jobs)
    # Without an argument scikit-learn leaves each point out of its own list, twins or not.
    distances, indices = search.fit(points).kneighbors()
    return indices, distances


def measure_distances(points: Array, indices: Array) -> tuple[Array, Array]:
    """Compute distances (N x k) from differences and sort by them.

    Coinciding points get exact zeros, which the expanded square misses.
    """
    distances = np.empty(indices.shape)
    rows_per_chunk = max(1, 4_000_000 // (indices.shape[1] * points.shape[1]))
    for start in range(0, len(points), rows_per_chunk):
        rows = slice(start, start + rows_per_chunk)
        distances[rows] = np.linalg.norm(points[indices[rows]] - points[rows, None], axis=2)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)


# --- Exact search in few dimensions: by sorting on a line, else by a k-d tree.


def search_tree(points: Array, k: int, n_jobs: int | None) -> tuple[Array, Array]:
    """Return the k others nearest to each point (N x p): indices and distances (N x k), nearest first."""
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
    position = np.arange(len(line))[:, None] + offsets
    gap = np.abs(line[np.clip(position, 0, len(line) - 1)] - line[:, None])
    gap[(position < 0) | (position >= len(line))] = np.inf
    best = np.argsort(gap, axis=1, kind="stable")[:, :k]
    indices = np.empty((len(line), k), dtype=np.int64)
    distances = np.empty((len(line), k))
    indices[order] = order[np.take_along_axis(position, best, axis=1)]
    distances[order] = np.take_along_axis(gap, best, axis=1)
    return indices, distances
