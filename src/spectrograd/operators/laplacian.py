"""Laplacians of a graph as operators."""

from __future__ import annotations

import warnings
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import Graph, GraphError
from spectrograd.operators.sparse import LowRank as LowRank
from spectrograd.operators.sparse import SparseOperator

Array = NDArray[Any]
Kind = Literal["random_walk", "symmetric", "unnormalized"]


def laplacian(graph: Graph, kind: Kind = "random_walk", *, allow_isolated: bool = False) -> SparseOperator:
    """The Laplacian of a graph as an operator.

    Parameters
    ----------
    graph
        The graph; a node without edges has no place in a spectral embedding, so it is an error
        unless ``allow_isolated`` (a layer of a multilayer graph may have such nodes).
    kind
        ``"unnormalized"``: ``L = D - W`` (the paper, Eq. 2). ``"symmetric"``:
        ``D^-1/2 L D^-1/2`` (Eq. 3). ``"random_walk"``: ``L u = lambda D u``, metric ``B = D``.

    Examples
    --------
    >>> triangle = Graph.from_edges([0, 1, 2], [1, 2, 0])
    >>> (laplacian(triangle, "unnormalized") @ np.ones(3)).tolist()
    [0.0, 0.0, 0.0]
    """
    if kind not in get_args(Kind):
        raise ValueError(f"laplacian={kind!r}: expected one of {', '.join(get_args(Kind))}")
    degrees = graph.degrees
    if degrees.max() > np.finfo(np.float64).max / 2:
        raise GraphError("the weights are too large: their sums overflow; divide all of them by 1e10, say")
    _check_isolated(graph, allow_isolated)
    linked = degrees > 0
    if kind == "unnormalized":
        return SparseOperator(graph, degrees, upper=_largest_two(degrees))
    if kind == "symmetric":
        scale = np.where(linked, 1 / np.sqrt(np.where(linked, degrees, 1)), 0.0)
        return SparseOperator(graph, linked.astype(np.float64), scale=scale)
    return SparseOperator(graph, degrees, metric=degrees if linked.all() else np.where(linked, degrees, 1.0))


def _largest_two(degrees: Array) -> float:
    """The sum of the two largest degrees: no eigenvalue of ``D - W`` is larger.

    Of the Perron vector x of ``D + W``, which bounds ``D - W``, let x_i be the largest entry and x_j the
    largest of i's neighbours. Then ``(l - d_i) x_i <= d_i x_j`` and ``(l - d_j) x_j <= d_j x_i``, so
    ``(l - d_i) (l - d_j) <= d_i d_j`` and ``l <= d_i + d_j`` (Anderson and Morley 1985, with weights).
    """
    return float(np.partition(degrees, -2)[-2:].sum()) if len(degrees) > 1 else 2.0 * float(degrees.max())


def _check_isolated(graph: Graph, allowed: bool) -> None:
    isolated = graph.isolated
    if len(isolated) == 0 or allowed:
        return
    if graph.n_edges == 0:
        raise GraphError("the graph is empty: it has nodes but no edge")
    shown = ", ".join(str(graph.node_names[i]) for i in isolated[:5])
    more = ", ..." if len(isolated) > 5 else ""
    raise GraphError(
        f"{len(isolated)} isolated nodes (without any edge): {shown}{more}; remove them before embedding"
    )


def __getattr__(name: str) -> Any:
    """The name that 0.1 published, for one release."""
    if name != "Operator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "operators.laplacian.Operator is now operators.SparseOperator", DeprecationWarning, stacklevel=2
    )
    return SparseOperator
