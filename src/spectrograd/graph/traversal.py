"""Breadth-first searches: the components of a graph and its levels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.kernels.thresholds import USUAL, Thresholds

Array = NDArray[Any]


class Levels(NamedTuple):
    """Vertices per breadth-first level from some vertex, and one vertex of the last level."""

    widths: Array
    last: int

    @property
    def size(self) -> int:
        """Vertices reached."""
        return int(self.widths.sum())


class Search(NamedTuple):
    """The component of every vertex, numbered as they are met; the levels from vertex 0; the order of all."""

    component: Array
    first: Levels
    order: Array


def search(indptr: Array, indices: Array, thresholds: Thresholds = USUAL) -> Search:
    """Search the whole of a symmetric matrix."""
    if len(indptr) > thresholds.small + 1:
        from spectrograd.kernels.csr.levels import search_all

        component, widths, last, order = search_all(indptr, indices)
        return Search(component, Levels(widths, int(last)), order)
    from scipy.sparse import csgraph  # heavy, and not needed to make a graph

    first = levels(indptr, indices, 0, thresholds)
    as_it_is = np.arange(len(indptr) - 1)  # no order matters for a small graph
    if first.size == len(indptr) - 1:
        return Search(np.zeros(first.size, np.int32), first, as_it_is)
    return Search(csgraph.connected_components(_matrix(indptr, indices), directed=False)[1], first, as_it_is)


def levels(indptr: Array, indices: Array, source: int, thresholds: Thresholds = USUAL) -> Levels:
    """Search from one vertex of a symmetric matrix."""
    if len(indptr) > thresholds.small + 1:
        from spectrograd.kernels.csr.levels import level_widths

        widths, last = level_widths(indptr, indices, source)
        return Levels(widths, int(last))
    from scipy.sparse import csgraph

    order, parent = csgraph.breadth_first_order(_matrix(indptr, indices), source)
    place = np.empty(len(parent), np.int64)
    place[order] = np.arange(len(order))
    met_by = place[parent[order[1:]]]  # ascending: a level is the vertices met by those of the level before
    ends = [0, 1]
    while ends[-1] < len(order):
        ends.append(1 + int(met_by.searchsorted(ends[-1])))
    return Levels(np.diff(ends), int(order[ends[-2] :].min()))


def _matrix(indptr: Array, indices: Array) -> sp.csr_array:
    n_nodes = len(indptr) - 1
    return sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(n_nodes, n_nodes))
