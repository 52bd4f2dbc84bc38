"""An order of the nodes that keeps neighbours near each other in memory, where that makes passes faster."""

from __future__ import annotations

import numpy as np

from spectrograd.graph import Graph
from spectrograd.graph.validation import CleanArrays
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.typing import Array

PART = 0.3  # of the edges: how many must come near for the order to be worth its making
SAMPLE = 20_000


def near_order(graph: Graph, thresholds: Thresholds = USUAL) -> Array | None:
    """The nodes in breadth-first order, or None where it would not bring many neighbours nearer.

    Measured (docs/adr/0019): a pass takes a third of the time on k-NN graphs in the plane and 0.6 of it on
    those of images; block models and merged layers gain nothing.
    """
    if graph.n_nodes < thresholds.reordered_from or graph.n_entries == 0:
        return None
    order = graph.search.order
    place = _inverse(order)
    indptr, indices = graph.pattern
    entries = np.random.default_rng(0).integers(0, len(indices), SAMPLE)
    heads, tails = np.searchsorted(indptr, entries, side="right") - 1, indices[entries]
    now = share_near(heads, tails, thresholds.near)
    then = share_near(place[heads], place[tails], thresholds.near)
    return order if then - now > PART else None


def share_near(heads: Array, tails: Array, near: int = USUAL.near) -> float:
    """Part of the entries whose two nodes are fewer than ``near`` rows apart."""
    return float((np.abs(heads.astype(np.int64) - tails) < near).mean())


def reordered(graph: Graph, order: Array) -> Graph:
    """The graph with its nodes in this order, without their names."""
    from spectrograd.kernels.graph import permute
    from spectrograd.kernels.jit import share_rows

    indptr, indices = graph.pattern
    weights = graph.matrix.data if graph.is_weighted else None
    starts = np.concatenate([[0], np.cumsum(np.diff(indptr)[order])]).astype(indptr.dtype)
    columns, values = np.empty_like(indices), None if weights is None else np.empty_like(weights)
    given = (indptr, indices, weights, order, _inverse(order), starts, columns, values)
    share_rows(permute, graph.n_nodes, *given)
    return Graph._from_arrays(CleanArrays(starts, columns, values), None)


def _inverse(order: Array) -> Array:
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=order.dtype)
    return place
