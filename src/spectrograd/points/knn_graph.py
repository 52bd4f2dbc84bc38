"""k-nearest-neighbour graphs of points, and the shortest links between their components (Boruvka)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from spectrograd.graph import Graph
from spectrograd.points.query import KnownPoints, Weights, edge_weights, outlier_scale
from spectrograd.points.search import (
    TREE_MAX_FEATURES,
    Neighbours,
    Search,
    Wanted,
    find_neighbours,
    prefers_ivf,
)
from spectrograd.points.validation import (
    EUCLIDEAN,
    Metric,
    check_metric,
    check_points,
    crowded_places,
    in_metric,
    single_where_exact,
)
from spectrograd.typing import Array, Matrix

Compare = Callable[[Matrix, Matrix], tuple[Array, Array]]

# --- Links between components.

# Where trees do not help, up to the first number of points are compared pair by pair; of more points a sample
# of the second number, drawn from all components alike: the cost of pairs is quadratic.
MAX_COMPARED_POINTS = (20_000, 8_000)


def join_components(
    matrix: sp.csr_array,
    points: Matrix,
    weigh: Callable[[Array, Array, Array], Array],
    metric: object = "euclidean",
    compared: tuple[int, int] = MAX_COMPARED_POINTS,
) -> sp.csr_array:
    """Add edges between the components of a symmetric matrix until there is only one.

    Each round joins every component but the largest to the nearest other one (Boruvka 1926), so the number of
    components at least halves.

    Parameters
    ----------
    matrix : sparse array of shape (n_points, n_points)
        Symmetric.
    points : array or sparse array of shape (n_points, n_features)
    weigh : callable
        ``weigh(rows, cols, distances)``: the weights of links.
    metric : str or callable
        Of scikit-learn; the lengths of links.
    compared : tuple of int
        Points that are compared pair by pair, and the size of the sample of more.
    """
    n_components, labels = connected_components(matrix, directed=False)
    if n_components == 1:
        return matrix
    tree = metric == "euclidean" and not sp.issparse(points) and points.shape[1] <= TREE_MAX_FEATURES
    compare = _compare_by_tree if tree else partial(_compare_by_pairs, metric=metric)
    max_points, sample_size = compared
    few = tree or len(labels) <= max_points
    sample = (
        np.arange(len(labels)) if few else _sample_components(labels, max(1, sample_size // n_components))
    )
    sampled_points = points[sample].astype(np.float64, copy=False)
    while n_components > 1:
        rows, cols, gaps = _shortest_links(sampled_points, labels[sample], compare)
        rows = sample[rows]
        cols = sample[cols]
        links = sp.coo_array((weigh(rows, cols, gaps), (rows, cols)), shape=matrix.shape).tocsr()
        matrix = sp.csr_array(matrix.maximum(links).maximum(links.T.tocsr()))
        n_components, labels = connected_components(matrix, directed=False)
    return matrix


def _sample_components(labels: Array, count: int) -> Array:
    """Sample ``count`` points of each component, or all of a smaller one: sorted row numbers."""
    n_points = len(labels)
    order = np.random.default_rng(0).permutation(n_points)
    components = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels)
    place = np.arange(n_points) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(components[place < count])


def _shortest_links(points: object, labels: Array, compare: Compare) -> tuple[Array, Array, Array]:
    """For every component but the largest, the shortest link to another: both ends and its length."""
    _, component = np.unique(labels, return_inverse=True)
    asking = np.flatnonzero(component != np.argmax(np.bincount(component)))
    nearest, gaps = _nearest_in_other_components(points, component, asking, compare)
    order = np.lexsort((gaps, component[asking]))
    first = order[np.unique(component[asking][order], return_index=True)[1]]
    return asking[first], nearest[first], gaps[first]


def _nearest_in_other_components(
    points: Matrix, component: Array, asking: Array, compare: Compare
) -> tuple[Array, Array]:
    """Find the nearest point of another component, for some of the points: row numbers and distances.

    Numbers of different components differ in some bit: one search per bit and side sees every pair.
    """
    nearest = np.zeros(len(asking), dtype=np.int64)
    gaps = np.full(len(asking), np.inf)
    for bit in range(int(component.max()).bit_length()):
        side = (component >> bit) & 1
        for own in (0, 1):
            here = np.flatnonzero(side[asking] == own)
            there = np.flatnonzero(side != own)
            if len(here) == 0 or len(there) == 0:
                continue
            at, gap = compare(points[there], points[asking[here]])
            closer = gap < gaps[here]
            gaps[here[closer]] = gap[closer]
            nearest[here[closer]] = there[at[closer]]
    return nearest, gaps


def _compare_by_tree(points: Array, queries: Array) -> tuple[Array, Array]:
    """Find the nearest point of each query and its distance, by a k-d tree."""
    from scipy.spatial import KDTree

    gap, at = KDTree(points).query(queries)
    return np.asarray(at), np.asarray(gap)


def _compare_by_pairs(points: object, queries: object, metric: object) -> tuple[Array, Array]:
    """Find the nearest point of each query and its distance, by all pairs."""
    from sklearn.metrics import pairwise_distances_argmin_min

    at, gap = pairwise_distances_argmin_min(queries, points, metric=metric)
    return at, gap


# --- The graph: k nearest neighbours, with weights that follow the local density.


def knn_graph(
    points: ArrayLike,
    n_neighbors: int = 10,
    *,
    metric: Metric = "euclidean",
    weights: Weights = "self-tuned",
    search: Search = "auto",
    recall: float = 0.98,
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
    metric
        scikit-learn's names: ``"euclidean"``, ``"cosine"``, or another one (``"manhattan"``, ...) or a
        function of two points, which are searched exactly.
    weights
        ``"self-tuned"``: ``exp(-d^2 / (s_i s_j))``, s the distance to the last neighbour (Zelnik-Manor and
        Perona, 2004); ``"distance-kernel"``: ``exp(-d^2 / s^2)``, s the median of those that are not zero;
        ``"binary"``: ones. Weights are at least 1e-6, so that no chosen neighbour is lost.
    search
        ``"exact"``, ``"approximate"``, or ``"auto"``: approximate above 20,000 points in more than 8
        dimensions. Either gives the same graph on every call.
    recall
        The share of the true neighbours that an approximate search must find. It is measured on 400 exact
        rows, and the search goes on until it is met; 1 is exact. ``graph.recall`` has what was measured.
    connect
        Join the components of the graph, if there are several, by the shortest links between them (a minimum
        spanning tree of components), weighted as every edge. They stay weak: components far apart stay
        clusters. Above 15 dimensions and 20,000 points the links are the shortest between samples of the
        components.
    n_jobs
        Threads for the search; an exact search takes one by default, as in scikit-learn.

    Notes
    -----
    Among more than ``n_neighbors`` points that coincide, any choice of neighbours is right. They are joined
    as a circulant graph with random steps, which connects them far better than the order of the input would;
    the steps are the same on every call.

    Examples
    --------
    >>> knn_graph([0.0, 1.0, 2.5, 10.0], n_neighbors=1, weights="binary").matrix.toarray()
    array([[0., 1., 0., 0.],
           [1., 0., 1., 0.],
           [0., 1., 0., 1.],
           [0., 0., 1., 0.]])
    """
    return neighbour_graph(points, Wanted(n_neighbors, metric, search, recall, n_jobs), weights, connect)[0]


def neighbour_graph(
    points: ArrayLike, wanted: Wanted, weights: Weights = "self-tuned", connect: bool = False
) -> tuple[Graph, KnownPoints]:
    """Make the graph of :func:`knn_graph`, and the index that finds the neighbours of new points."""
    _check_choices(weights, wanted.search, wanted.recall)
    check_metric(wanted.metric)
    # 1. Search, in the metric that the asked one is reduced to.
    checked = check_points(points, wanted.k)
    if (
        wanted.metric in EUCLIDEAN
        and not sp.issparse(checked)
        and prefers_ivf(checked.shape[0], checked.shape[1], wanted)
    ):
        checked = single_where_exact(checked)
    coordinates, searched_metric, to_metric = in_metric(checked, wanted.metric)
    neighbours = nearest(coordinates, replace(wanted, metric=searched_metric))
    distances = to_metric(neighbours.distances)
    # 2. Weigh the edges, and keep those that either end chose.
    scale = distances[:, -1]
    weigh = partial(edge_weights, scale=scale, weights=weights)
    values = weigh(np.arange(len(distances))[:, None], neighbours.indices, distances)
    matrix = _symmetrize(neighbours.indices, values)
    # 3. Link the components.
    if connect:
        matrix = join_components(
            matrix, coordinates, lambda rows, cols, gaps: weigh(rows, cols, to_metric(gaps)), searched_metric
        )
    outlier_scales = outlier_scale(scale, scale[neighbours.indices])
    index = KnownPoints(checked, scale, outlier_scales, wanted.k, wanted.metric, neighbours.index)
    return replace(Graph._from_clean_csr(matrix, None), recall=neighbours.recall), index


def _check_choices(weights: str, search: str, recall: float) -> None:
    if weights not in get_args(Weights):
        raise ValueError(f"unknown weights {weights!r}; choose one of {', '.join(get_args(Weights))}")
    if search not in get_args(Search):
        raise ValueError(f"unknown search {search!r}; choose one of {', '.join(get_args(Search))}")
    if not 0 < recall <= 1:
        raise ValueError(f"recall is {recall!r}; it is a share above 0 and at most 1")


def _symmetrize(indices: Array, values: Array) -> sp.csr_array:
    """Make the symmetric matrix of the edges that either end chose, from indices and weights (N x k)."""
    n_points, k = indices.shape
    order = np.argsort(indices, axis=1)
    directed = sp.csr_array(
        (
            np.take_along_axis(values, order, axis=1).ravel(),
            np.take_along_axis(indices, order, axis=1).ravel(),
            np.arange(n_points + 1) * k,
        ),
        shape=(n_points, n_points),
    )
    return sp.csr_array(directed.maximum(directed.T.tocsr()))


def nearest(points: Matrix, wanted: Wanted) -> Neighbours:
    """Find the k others nearest to each point (N x p); more than k coinciding points are joined at random."""
    if sp.issparse(points):
        return find_neighbours(points, wanted)
    k = wanted.k
    n_points = len(points)
    groups = crowded_places(points, k)
    if not groups:
        return find_neighbours(points, wanted)
    # 1. Search with at most k points of one place: trees degenerate on thousands of equal points.
    is_searched = np.ones(n_points, dtype=bool)
    for group in groups:
        is_searched[group[k:]] = False
    rows = np.flatnonzero(is_searched)
    neighbours = Neighbours(np.zeros((n_points, k), dtype=np.int64), np.zeros((n_points, k)))
    if len(rows) > k:
        part = find_neighbours(points[rows], wanted)
        neighbours.indices[rows] = rows[part.indices]
        neighbours.distances[rows] = part.distances
        index = None if part.index is None else part.index.of_rows(rows)
        neighbours = replace(neighbours, recall=part.recall, index=index)
    # 2. A circulant graph with random steps inside each place.
    rng = np.random.default_rng(0)  # fixed: the same points always give the same graph
    for group in groups:
        steps = 1 + rng.choice(len(group) - 1, size=k, replace=False)
        neighbours.indices[group] = group[(np.arange(len(group))[:, None] + steps) % len(group)]
        neighbours.distances[group] = 0.0
    return neighbours
