"""Reordering of nodes, where it makes passes over the edges faster.

Breadth-first order brings neighbours near each other; rows of equal length side by side let the processor
foresee where each of them ends.
"""

from __future__ import annotations

import numpy as np

from spectrograd.graph import Graph
from spectrograd.graph.validation import CleanArrays
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.typing import Array

MIN_GAIN = 0.3  # of the edges: so many must become near for a reordering to pay
N_SAMPLED_ENTRIES = 20_000
LENGTH_WINDOW = 1024  # rows that trade places by their length: near enough to stay in a core's cache


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


def length_order(graph: Graph, order: Array | None = None, thresholds: Thresholds = USUAL) -> Array | None:
    """Return ``order`` (the rows as they are, without one) with long rows before short ones in each window.

    The loop over a row ends when the row does, and a processor that guesses wrongly when that is loses some
    twenty cycles: in rows of ten entries more than their gathers take (docs/adr/0061). None where there is
    nothing to gain: rows of one length, or so long that their ends do not count.
    """
    lengths = np.diff(graph.pattern[0])
    if order is not None:
        lengths = lengths[order]
    n = graph.n_nodes
    usual = n > thresholds.small and graph.n_entries <= thresholds.long_rows * n
    if not usual or lengths.min() == lengths.max():
        return order
    # one stable sort by window, then by falling length
    longest = int(lengths.max())
    keys = (np.arange(n) // LENGTH_WINDOW) * (longest + 1) + (longest - lengths)
    within = np.argsort(keys, kind="stable").astype(np.int32)
    return within if order is None else order[within]


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
