"""The shortest links that make one piece of several: Boruvka's minimum spanning tree between components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

Array = NDArray[Any]

# Beyond this many dimensions trees do not help, and pairs are compared one by one.
TREE_MAX_FEATURES = 15
# So many points take part in that; of more, a fixed random share of each component.
MOST_COMPARED = 20_000


def join_components(
    matrix: sp.csr_array, points: Any, weigh: Callable[[Array, Array, Array], Array]
) -> sp.csr_array:
    """Add edges between the components of a symmetric matrix until there is only one.

    Each round joins every component but the largest to the nearest other one, so the number of pieces
    at least halves. ``weigh(rows, cols, distances)`` gives the weights of the links.
    """
    n_pieces, labels = connected_components(matrix, directed=False)
    taking_part = _participants(points, labels, n_pieces)
    where = points[taking_part]
    while n_pieces > 1:
        rows, cols, gaps = _shortest_links(where, labels[taking_part])
        rows, cols = taking_part[rows], taking_part[cols]
        links = sp.coo_array((weigh(rows, cols, gaps), (rows, cols)), shape=matrix.shape).tocsr()
        matrix = sp.csr_array(matrix.maximum(links).maximum(links.T.tocsr()))
        n_pieces, labels = connected_components(matrix, directed=False)
    return matrix


def _participants(points: Any, labels: Array, n_pieces: int) -> Array:
    n_points = points.shape[0]
    if _has_tree(points) or n_points <= MOST_COMPARED:
        return np.arange(n_points)
    order = np.random.default_rng(0).permutation(n_points)
    pieces = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels, minlength=n_pieces)
    place = np.arange(n_points) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(pieces[place < max(1, MOST_COMPARED // n_pieces)])


def _shortest_links(points: Any, labels: Array) -> tuple[Array, Array, Array]:
    """For every component but the largest, its point nearest to any other component, and that one."""
    _, piece = np.unique(labels, return_inverse=True)
    asking = np.flatnonzero(piece != np.argmax(np.bincount(piece)))
    nearest, gaps = _nearest_strangers(points, piece, asking)
    order = np.lexsort((gaps, piece[asking]))
    first = order[np.unique(piece[asking][order], return_index=True)[1]]
    return asking[first], nearest[first], gaps[first]


def _nearest_strangers(points: Any, piece: Array, asking: Array) -> tuple[Array, Array]:
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
            at, gap = _search(points[there], points[asking[here]])
            closer = gap < gaps[here]
            gaps[here[closer]], nearest[here[closer]] = gap[closer], there[at[closer]]
    return nearest, gaps


def _search(points: Any, queries: Any) -> tuple[Array, Array]:
    if _has_tree(points):
        from scipy.spatial import KDTree

        gap, at = KDTree(points).query(queries)
        return np.asarray(at), np.asarray(gap)
    from sklearn.metrics import pairwise_distances_argmin_min

    at, gap = pairwise_distances_argmin_min(queries, points)
    return at, gap


def _has_tree(points: Any) -> bool:
    return not sp.issparse(points) and points.shape[1] <= TREE_MAX_FEATURES
