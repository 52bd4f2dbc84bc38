"""networkx graphs, in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.graph import Graph, GraphError
from spectrograd.graph.node_names import as_names
from spectrograd.io.interop.frames import comes_from, edge_rows
from spectrograd.system import check_version, need


def from_networkx(graph: Any, *, weight: str | None = "weight") -> Graph:
    """Make a graph of a networkx graph; nodes keep their order and their ids, of any kind.

    Parameters
    ----------
    graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
        Directions are dropped (``W + W'``) and parallel edges summed, each with a warning.
    weight : str or None
        Edge attribute with the weight; an edge without it weighs one. None: every edge does.

    Examples
    --------
    >>> import networkx
    >>> from_networkx(networkx.path_graph(["a", ("b", 1), 7])).node_names.tolist()
    ['a', ('b', 1), 7]
    """
    check_version("networkx", "a networkx graph")
    nodes = list(graph)
    row_of = {node: row for row, node in enumerate(nodes)}
    listed = list(graph.edges(data=weight, default=1) if weight else ((*end[:2], 1) for end in graph.edges()))
    rows = np.fromiter((row_of[edge[0]] for edge in listed), dtype=np.int64, count=len(listed))
    cols = np.fromiter((row_of[edge[1]] for edge in listed), dtype=np.int64, count=len(listed))
    weights = [_number(edge) for edge in listed]
    return Graph.from_edges(rows, cols, weights, names=as_names(nodes), directed=graph.is_directed())


def to_networkx(graph: Graph, **values: ArrayLike) -> Any:
    """Make a networkx graph, with weights and, for each keyword, an attribute on the nodes.

    Examples
    --------
    >>> graph = Graph.from_edges(["a", "b"], ["b", "c"])
    >>> to_networkx(graph, label=[0, 0, 1]).nodes["c"]
    {'label': 1}
    """
    networkx = need("networkx", "to_networkx")
    names = graph.node_names.tolist()
    made = networkx.Graph()
    made.add_nodes_from(names)
    for attribute, column in values.items():
        rows = np.asarray(column)
        if len(rows) != len(names):
            raise GraphError(f"{attribute}: {len(rows)} values for {len(names)} nodes")
        networkx.set_node_attributes(made, dict(zip(names, rows.tolist(), strict=True)), attribute)
    ends = zip(*(column.tolist() for column in edge_rows(graph)), strict=True)
    if graph.is_weighted:
        made.add_weighted_edges_from((names[row], names[col], weight) for row, col, weight in ends)
    else:
        made.add_edges_from((names[row], names[col]) for row, col, _ in ends)
    return made


def is_networkx(thing: object) -> bool:
    """Whether a thing is a networkx graph."""
    return comes_from(thing, "networkx") and hasattr(thing, "edges")


def _number(edge: tuple[Any, Any, Any]) -> float:
    try:
        return float(edge[2])
    except (TypeError, ValueError):
        raise GraphError(f"weight of edge ({edge[0]}, {edge[1]}) is {edge[2]!r}: not a number") from None
