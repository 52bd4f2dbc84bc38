"""Searches for nearest neighbours, one file each, and which of them is for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.graph import Recall
from spectrograd.points.recall import EXACT

if TYPE_CHECKING:
    from spectrograd.points.search.list_search import ListIndex

Array = NDArray[Any]
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
    index: ListIndex | None = None


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
    from spectrograd.points.search.brute import search_all_pairs, search_metric
    from spectrograd.points.search.trees import search_tree

    if wanted.metric != "euclidean" or sp.issparse(points):
        return Neighbours(*search_metric(points, wanted.k, wanted.n_jobs, wanted.metric))
    found = _by_lists(points, wanted) if worth_lists(points.shape[0], points.shape[1], wanted) else None
    if found is not None:
        return found
    exact = search_tree if points.shape[1] <= TREE_MAX_FEATURES else search_all_pairs
    return Neighbours(*exact(points.astype(np.float64, copy=False), wanted.k, wanted.n_jobs))


def worth_lists(n_points: int, n_features: int, wanted: Wanted) -> bool:
    """Whether so many points in so many dimensions are searched approximately."""
    if wanted.search != "auto":
        return wanted.search == "approximate"
    return wanted.recall < 1 and n_points > EXACT_MAX_POINTS and n_features > EXACT_MAX_FEATURES


def _by_lists(points: Array, wanted: Wanted) -> Neighbours | None:
    from spectrograd.engines import LocalEngine
    from spectrograd.engines.threadpools import one_thread
    from spectrograd.points.search.list_search import search_lists

    # Our threads take a block of products each: BLAS with threads of its own would only fight with them.
    with LocalEngine(wanted.n_jobs).threads(), one_thread():
        found = search_lists(points, wanted.k, wanted.recall)
    return None if found is None else Neighbours(*found)
