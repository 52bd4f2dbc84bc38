"""Graphs as columns: each edge once, its ends by name."""

from __future__ import annotations

import numpy as np

from spectrograd.graph import Array, Graph, MultilayerGraph
from spectrograd.graph.names import as_objects


def edge_columns(graph: Graph | MultilayerGraph) -> dict[str, Array]:
    """Return the columns ``src``, ``dst``, ``weight`` (where a weight is not one) and ``layer``.

    Examples
    --------
    >>> {k: v.tolist() for k, v in edge_columns(Graph.from_edges(["a", "b"], ["b", "c"], [2, 1])).items()}
    {'src': ['a', 'b'], 'dst': ['b', 'c'], 'weight': [2.0, 1.0]}
    """
    layers = graph.layers if isinstance(graph, MultilayerGraph) else (graph,)
    triples = [edge_rows(layer) for layer in layers]
    rows, cols, weights = (np.concatenate(parts) for parts in zip(*triples, strict=True))
    columns = {"src": graph.node_names[rows], "dst": graph.node_names[cols]}
    if any(layer.is_weighted for layer in layers):
        columns["weight"] = weights
    if isinstance(graph, MultilayerGraph):
        columns["layer"] = np.repeat(as_objects(graph.layer_names), [layer.n_edges for layer in layers])
    return columns


def edge_rows(graph: Graph) -> tuple[Array, Array, Array]:
    """Return the ends of each edge as row numbers, smaller one first, and its weight."""
    entries = graph.matrix.tocoo()
    rows, cols = entries.coords
    once = rows < cols
    return rows[once], cols[once], entries.data[once]
