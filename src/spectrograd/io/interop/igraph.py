"""igraph graphs, in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.graph import Graph, GraphError
from spectrograd.graph.node_names import as_names
from spectrograd.io.interop.frames import comes_from, edge_rows
from spectrograd.system import need


def from_igraph(graph: Any, *, weight: str | None = "weight") -> Graph:
    """Make a graph of an igraph graph.

    Parameters
    ----------
    graph : igraph.Graph
        Directions are dropped (``W + W'``) with a warning. Nodes are called by their attribute ``name``
        where they have it.
    weight : str or None
        Edge attribute with the weight; without it, and with None, every edge weighs one.
    """
    ends = np.array(graph.get_edgelist(), dtype=np.int64).reshape(-1, 2)
    names = as_names(graph.vs["name"]) if "name" in graph.vs.attributes() else None
    values = None
    if weight is not None and weight in graph.es.attributes():
        values = graph.es[weight]
        if any(value is None for value in values):
            at = values.index(None)
            raise GraphError(f"edge {at} has no {weight!r}, others have; set it or pass weight=None")
    columns = (ends[:, 0], ends[:, 1], values)
    return Graph.from_edges(*columns, names=names, n_nodes=graph.vcount(), directed=graph.is_directed())


def to_igraph(graph: Graph, **values: ArrayLike) -> Any:
    """Make an igraph graph, with names, weights and, for each keyword, an attribute on the nodes."""
    igraph = need("igraph", "to_igraph")
    rows, cols, weights = edge_rows(graph)
    made = igraph.Graph(n=graph.n_nodes, edges=list(zip(rows.tolist(), cols.tolist(), strict=True)))
    if graph.names is not None:
        made.vs["name"] = graph.names.tolist()
    if graph.is_weighted:
        made.es["weight"] = weights.tolist()
    for attribute, column in values.items():
        made.vs[attribute] = np.asarray(column).tolist()
    return made


def is_igraph(thing: object) -> bool:
    """Whether a thing is an igraph graph."""
    return comes_from(thing, "igraph") and hasattr(thing, "vs")
