"""k-nearest-neighbour graphs, and the shortest links between their components (Boruvka)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from spectrograd.graph import Graph
from spectrograd.points.query import KnownPoints, Weights, edge_weights, outlier_scale
from spectrograd.points.search import TREE_MAX_FEATURES, Neighbours, Search, Wanted, find_neighbours
from spectrograd.points.validation import Metric, check_metric, checked_points, crowded_places, in_metric
from spectrograd.typing import Array

Compare = Callable[[Any, Any], tuple[Array, Array]]

# So many points are compared pair by pair, where trees do not help; of more, as many as the second number,
# drawn from all components alike: the links are no longer the shortest anyway, and pairs cost their square.
COMPARED = (20_000, 8_000)


def join_components(
    matrix: sp.csr_array,
    points: Any,
    weigh: Callable[[Array, Array, Array], Array],
    metric: Any = "euclidean",
    compared: tuple[int, int] = COMPARED,
) -> sp.csr_array:
    """Add edges between the components of a symmetric matrix until there is only one.

    Each round joins every component but the largest to the nearest other one, so the number of components
    at least halves. ``weigh(rows, cols, distances)`` gives the weights of the links, whose lengths are
    in this ``metric`` of scikit-learn.
    """
    n_components_of_graph, labels = connected_components(matrix, directed=False)
    if n_components_of_graph == 1:
        return matrix
    tree = metric == "euclidean" and not sp.issparse(points) and points.shape[1] <= TREE_MAX_FEATURES
    compare = _by_tree if tree else partial(_by_pairs, metric=metric)
    most, drawn = compared
    few = tree or len(labels) <= most
    active = (
        np.arange(len(labels)) if few else _drawn_from_each(labels, max(1, drawn // n_components_of_graph))
    )
    where = points[active]
    while n_components_of_graph > 1:
        rows, cols, gaps = _shortest_links(where, labels[active], compare)
        rows, cols = active[rows], active[cols]
        links = sp.coo_array((weigh(rows, cols, gaps), (rows, cols)), shape=matrix.shape).tocsr()
        matrix = sp.csr_array(matrix.maximum(links).maximum(links.T.tocsr()))
        n_components_of_graph, labels = connected_components(matrix, directed=False)
    return matrix


def _drawn_from_each(labels: Array, count: int) -> Array:
    """Row numbers of so many points of each component, or all of a smaller one."""
    n_points = len(labels)
    order = np.random.default_rng(0).permutation(n_points)
    components = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels)
    place = np.arange(n_points) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(components[place < count])


def _shortest_links(points: Any, labels: Array, compare: Compare) -> tuple[Array, Array, Array]:
    """For every component but the largest, its point nearest to any other component, and that one."""
    _, component = np.unique(labels, return_inverse=True)
    asking = np.flatnonzero(component != np.argmax(np.bincount(component)))
    nearest, gaps = _nearest_strangers(points, component, asking, compare)
    order = np.lexsort((gaps, component[asking]))
    first = order[np.unique(component[asking][order], return_index=True)[1]]
    return asking[first], nearest[first], gaps[first]


def _nearest_strangers(points: Any, component: Array, asking: Array, compare: Compare) -> tuple[Array, Array]:
    """The nearest point of another component, for each of those asking.

    Numbers of different components differ in some bit: one search per bit and side sees every pair.
    """
    nearest, gaps = np.zeros(len(asking), dtype=np.int64), np.full(len(asking), np.inf)
    for bit in range(int(component.max()).bit_length()):
        side = (component >> bit) & 1
        for own in (0, 1):
            here, there = np.flatnonzero(side[asking] == own), np.flatnonzero(side != own)
            if len(here) == 0 or len(there) == 0:
                continue
            at, gap = compare(points[there], points[asking[here]])
            closer = gap < gaps[here]
            gaps[here[closer]], nearest[here[closer]] = gap[closer], there[at[closer]]
    return nearest, gaps


def _by_tree(points: Array, queries: Array) -> tuple[Array, Array]:
    """The nearest point of each query, and how far it is."""
    from scipy.spatial import KDTree

    gap, at = KDTree(points).query(queries)
    return np.asarray(at), np.asarray(gap)


def _by_pairs(points: Any, queries: Any, metric: Any) -> tuple[Array, Array]:
    from sklearn.metrics import pairwise_distances_argmin_min

    at, gap = pairwise_distances_argmin_min(queries, points, metric=metric)
    return at, gap


# --- Points to graph: k nearest neighbours, with weights that follow the local density.


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
        Threads for the search; an exact one takes one unless told otherwise, as in scikit-learn.

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
    return neighbour_graph(points, Wanted(n_neighbors, metric, search, recall, n_jobs), weights, connect)[0]


def neighbour_graph(
    points: ArrayLike, wanted: Wanted, weights: Weights = "self-tuned", connect: bool = False
) -> tuple[Graph, KnownPoints]:
    """As :func:`knn_graph`, and what the search has found out, for questions about other points."""
    _check_choices(weights, wanted.search, wanted.recall)
    check_metric(wanted.metric)
    given = checked_points(points, wanted.k)
    coordinates, searched, as_asked = in_metric(given, wanted.metric)
    found = nearest(coordinates, replace(wanted, metric=searched))
    distances = as_asked(found.distances)
    scale = distances[:, -1]
    weigh = partial(edge_weights, scale=scale, weights=weights)
    values = weigh(np.arange(len(distances))[:, None], found.indices, distances)
    matrix = _either_way(found.indices, values)
    if connect:
        matrix = join_components(
            matrix, coordinates, lambda rows, cols, gaps: weigh(rows, cols, as_asked(gaps)), searched
        )
    known = KnownPoints(
        given, scale, outlier_scale(scale, scale[found.indices]), wanted.k, wanted.metric, found.index
    )
    return replace(Graph._from_clean_csr(matrix, None), recall=found.recall), known


def _check_choices(weights: str, search: str, recall: float) -> None:
    if weights not in get_args(Weights):
        raise ValueError(f"unknown weights {weights!r}; choose one of {', '.join(get_args(Weights))}")
    if search not in get_args(Search):
        raise ValueError(f"unknown search {search!r}; choose one of {', '.join(get_args(Search))}")
    if not 0 < recall <= 1:
        raise ValueError(f"recall is {recall!r}; it is a share above 0 and at most 1")


def _either_way(indices: Array, values: Array) -> sp.csr_array:
    """A symmetric matrix of the edges that either end chose, from indices and weights (N x k)."""
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


def nearest(points: Any, wanted: Wanted) -> Neighbours:
    """Find the k others closest to each point (N x p), crowds of equal points apart."""
    if sp.issparse(points):
        return find_neighbours(points, wanted)
    k, n_points = wanted.k, len(points)
    groups = crowded_places(points, k)
    if not groups:
        return find_neighbours(points, wanted)
    # Nobody needs more than k points of one place, and trees degenerate on thousands of twins.
    kept = np.ones(n_points, dtype=bool)
    for group in groups:
        kept[group[k:]] = False
    rows = np.flatnonzero(kept)
    found = Neighbours(np.zeros((n_points, k), dtype=np.int64), np.zeros((n_points, k)))
    if len(rows) > k:
        few = find_neighbours(points[rows], wanted)
        found.indices[rows], found.distances[rows] = rows[few.indices], few.distances
        index = None if few.index is None else few.index.of_rows(rows)
        found = replace(found, recall=few.recall, index=index)
    rng = np.random.default_rng(0)  # fixed: the same points always give the same graph
    for group in groups:
        steps = 1 + rng.choice(len(group) - 1, size=k, replace=False)
        found.indices[group] = group[(np.arange(len(group))[:, None] + steps) % len(group)]
        found.distances[group] = 0.0
    return found
