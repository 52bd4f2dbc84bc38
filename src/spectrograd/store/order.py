"""An order of the nodes that keeps neighbours near each other, for graphs that may not fit into memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import GraphError
from spectrograd.graph.node_order import PART, SAMPLE, share_near
from spectrograd.kernels.thresholds import USUAL
from spectrograd.store.batches import IngestSettings
from spectrograd.store.stored import StoredGraph

Array = NDArray[Any]
LABEL_SWEEPS = 3  # of label propagation: more move few nodes


def find_order(graph: StoredGraph, settings: IngestSettings) -> Array | None:
    """The nodes in a better order (int32, N), or None where it should stay as it is."""
    if settings.order == "none" or graph.n_entries == 0:
        return None
    resident = 4 * graph.n_entries + 30 * graph.n_nodes
    fits = resident < settings.memory_limit
    if settings.order == "bfs" and not fits:
        raise GraphError(
            f"--order bfs needs the graph in memory, about {resident / 1e6:,.0f} MB; "
            "raise --memory-limit or take --order labelprop"
        )
    if settings.order == "bfs":
        return breadth_first_order(graph)
    if settings.order == "labelprop":
        return label_order(graph)
    if graph.n_nodes < USUAL.reordered_from:
        return None
    order = breadth_first_order(graph) if fits else label_order(graph)
    heads, tails = _some_entries(graph, np.random.default_rng(settings.seed))
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=order.dtype)
    gained = share_near(place[heads], place[tails]) - share_near(heads, tails)
    return order if gained > PART else None


def breadth_first_order(graph: StoredGraph) -> Array:
    """As a search from the first node meets them; the pattern is loaded."""
    from spectrograd.kernels.csr.levels import search_all

    starts, columns = np.zeros(graph.n_nodes + 1, np.int64), np.empty(graph.n_entries, np.int32)
    for block in graph.blocks:
        first = starts[block.start]
        starts[block.start : block.stop + 1] = first + block.indptr
        columns[first : first + len(block.indices)] = block.indices
    return search_all(starts, columns)[3].astype(np.int32)


def label_order(graph: StoredGraph, most: int = USUAL.near) -> Array:
    """Nodes of the same group one after the other: groups of at most ``most``, by label propagation."""
    from spectrograd.kernels.ingest.rows import spread_labels

    n_nodes = graph.n_nodes
    labels, sizes = np.arange(n_nodes, dtype=np.int32), np.ones(n_nodes, np.int32)
    votes, touched = np.zeros(n_nodes, np.int32), np.empty(n_nodes, np.int32)
    for _ in range(LABEL_SWEEPS):
        for block in graph.blocks:
            spread_labels(block.start, block.indptr, block.indices, labels, sizes, most, votes, touched)
    return np.argsort(labels, kind="stable").astype(np.int32)


def _some_entries(graph: StoredGraph, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows and columns of random entries, the same share of every block."""
    heads, tails = [], []
    for block in graph.blocks:
        n = max(1, round(SAMPLE * len(block.indices) / graph.n_entries)) if len(block.indices) else 0
        entries = rng.integers(0, max(1, len(block.indices)), n)
        heads.append(block.start + np.searchsorted(block.indptr, entries, side="right") - 1)
        tails.append(block.indices[entries])
    return np.concatenate(heads), np.concatenate(tails)
