"""The shortest links that make one piece of several: Boruvka's minimum spanning tree between components."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from spectrograd.points.search import TREE_MAX_FEATURES

Array = NDArray[Any]

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

    Each round joins every component but the largest to the nearest other one, so the number of pieces
    at least halves. ``weigh(rows, cols, distances)`` gives the weights of the links, whose lengths are
    in this ``metric`` of scikit-learn.
    """
    n_pieces, labels = connected_components(matrix, directed=False)
    if n_pieces == 1:
        return matrix
    tree = metric == "euclidean" and not sp.issparse(points) and points.shape[1] <= TREE_MAX_FEATURES
    compare = _by_tree if tree else partial(_by_pairs, metric=metric)
    most, drawn = compared
    few = tree or len(labels) <= most
    taking_part = np.arange(len(labels)) if few else _drawn_from_each(labels, max(1, drawn // n_pieces))
    where = points[taking_part]
    while n_pieces > 1:
        rows, cols, gaps = _shortest_links(where, labels[taking_part], compare)
        rows, cols = taking_part[rows], taking_part[cols]
        links = sp.coo_array((weigh(rows, cols, gaps), (rows, cols)), shape=matrix.shape).tocsr()
        matrix = sp.csr_array(matrix.maximum(links).maximum(links.T.tocsr()))
        n_pieces, labels = connected_components(matrix, directed=False)
    return matrix


def _drawn_from_each(labels: Array, count: int) -> Array:
    """Row numbers of so many points of each component, or all of a smaller one."""
    n_points = len(labels)
    order = np.random.default_rng(0).permutation(n_points)
    pieces = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels)
    place = np.arange(n_points) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(pieces[place < count])


def _shortest_links(points: Any, labels: Array, compare: Compare) -> tuple[Array, Array, Array]:
    """For every component but the largest, its point nearest to any other component, and that one."""
    _, piece = np.unique(labels, return_inverse=True)
    asking = np.flatnonzero(piece != np.argmax(np.bincount(piece)))
    nearest, gaps = _nearest_strangers(points, piece, asking, compare)
    order = np.lexsort((gaps, piece[asking]))
    first = order[np.unique(piece[asking][order], return_index=True)[1]]
    return asking[first], nearest[first], gaps[first]


def _nearest_strangers(points: Any, piece: Array, asking: Array, compare: Compare) -> tuple[Array, Array]:
    """The nearest point of another component, for each of those asking.

    Numbers of different components differ in some bit: one search per bit and side sees every pair.
    """
    nearest, gaps = np.zeros(len(asking), dtype=np.int64), np.full(len(asking), np.inf)
    for bit in range(int(piece.max()).bit_length()):
        side = (piece >> bit) & 1
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
