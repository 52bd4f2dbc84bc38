"""Reordering of nodes: breadth-first order, where it makes passes over the edges faster."""

from __future__ import annotations

import numpy as np

from spectrograd.graph import Graph
from spectrograd.graph.validation import CleanArrays
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.typing import Array

MIN_GAIN = 0.3  # of the edges: so many must become near for a reordering to pay
N_SAMPLED_ENTRIES = 20_000


def near_order(graph: Graph, thresholds: Thresholds = USUAL) -> Array | None:
    """Return the nodes in breadth-first order, or None where few neighbours would become nearer.

    Measured (docs/adr/0019): a pass takes a third of the time on k-NN graphs in the plane and 0.6 of it on
    those of images; block models and merged layers gain nothing.
    """
    if graph.n_nodes < thresholds.reordered_from or graph.n_entries == 0:
        return None
    order = graph.search.order
    position = _inverse(order)
    # Compare the share of near neighbours before and after, on a sample of the entries.
    indptr, indices = graph.pattern
    entries = np.random.default_rng(0).integers(0, len(indices), N_SAMPLED_ENTRIES)
    heads = np.searchsorted(indptr, entries, side="right") - 1
    tails = indices[entries]
    before = share_near(heads, tails, thresholds.near)
    after = share_near(position[heads], position[tails], thresholds.near)
    return order if after - before > MIN_GAIN else None


def share_near(heads: Array, tails: Array, near: int = USUAL.near) -> float:
    """Share of the entries whose two nodes are fewer than ``near`` rows apart."""
    return float((np.abs(heads.astype(np.int64) - tails) < near).mean())


def reordered(graph: Graph, order: Array) -> Graph:
    """Permute the nodes: row i of the result is row ``order[i]``; names are dropped."""
    from spectrograd.kernels.graph import permute
    from spectrograd.kernels.jit import share_rows

    indptr, indices = graph.pattern
    weights = graph.matrix.data if graph.is_weighted else None
    starts = np.concatenate([[0], np.cumsum(np.diff(indptr)[order])]).astype(indptr.dtype)
    columns = np.empty_like(indices)
    values = None if weights is None else np.empty_like(weights)
    arguments = (indptr, indices, weights, order, _inverse(order), starts, columns, values)
    share_rows(permute, graph.n_nodes, *arguments)
    return Graph._from_arrays(CleanArrays(starts, columns, values), None)


def _inverse(order: Array) -> Array:
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order), dtype=order.dtype)
    return inverse
