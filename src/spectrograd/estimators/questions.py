"""What ``transform`` and ``predict`` were given, as edges from new nodes to the training nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from spectrograd.estimators.inputs import checked_matrix, graph_of_table
from spectrograd.estimators.row_makers import KernelRows, MatrixRows, RowMaker, Rows
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.names import NodeRows
from spectrograd.io import graph_of
from spectrograd.io.foreign.frames import column_names, from_frame, is_frame
from spectrograd.pipeline.extension import NewRows

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Question:
    """New nodes, and what is known of them.

    Attributes
    ----------
    rows
        Their edges.
    same : array of shape (n_new,)
        The training sample that a new one is, or -1.
    remoteness : array of shape (n_new,) or None
        A distance from the training data, where there are distances.
    names : array of shape (n_new,)
        Names of the new nodes, or row numbers.
    """

    rows: NewRows
    same: Array
    remoteness: Array | None
    names: Array


def asked_of_graph(model: Any, maker: RowMaker | None, names: NodeRows, X: Any) -> Question:
    """The question to a model of one graph."""
    given = graph_of_table(X, {}) or graph_of(X)
    if given is None and maker is None and is_frame(X) and len(column_names(X)) in (2, 3):
        given = from_frame(X)  # a model of a graph is asked by edges
    if isinstance(given, MultilayerGraph):
        raise ValueError("this is a multilayer graph: the model knows one layer")
    if given is not None:
        return _by_names((given,), given.node_names, names)
    X = checked_matrix(X)
    if maker is None:
        maker = MatrixRows(np.empty(0, np.uint64))
        X = _node_rows(X, len(names.names))
    elif isinstance(maker, MatrixRows):
        X = validate_data(model, X, accept_sparse="csr", ensure_all_finite=False, reset=False)
    else:
        kinds = [np.float64, np.float32]
        X = validate_data(model, X, accept_sparse="csr", dtype=kinds, reset=False)
    return _joined([maker(model, X)], _may_be_far(maker))


def asked_of_layers(
    model: Any, makers: Sequence[RowMaker] | None, names: NodeRows, layer_names: Sequence[str], X: Any
) -> Question:
    """The question to a model of several layers; a node may have edges in some layers only."""
    graph = from_frame(X) if is_frame(X) else graph_of(X)
    if isinstance(graph, MultilayerGraph):
        by_name = dict(zip(graph.layer_names, graph.layers, strict=True))
        return _by_names(_in_order(by_name, layer_names), graph.node_names, names)
    if graph is not None or not isinstance(X, Mapping | Sequence):
        raise ValueError("expected the edges of new nodes in several layers: as in fit, a list or a dict")
    named = X if isinstance(X, Mapping) else _numbered(X, layer_names)
    foreign = {str(name): graph_of(layer) for name, layer in named.items()}
    graphs = {name: layer for name, layer in foreign.items() if isinstance(layer, Graph)}
    if graphs and len(graphs) == len(foreign):
        united = MultilayerGraph.from_layers(graphs)
        by_name = dict(zip(united.layer_names, united.layers, strict=True))
        return _by_names(_in_order(by_name, layer_names), united.node_names, names)
    return _rows_of_layers(model, makers, len(names.names), _in_order(named, layer_names))


def _numbered(layers: Sequence[Any], layer_names: Sequence[str]) -> dict[str, Any]:
    if len(layers) != len(layer_names):
        raise ValueError(f"{len(layers)} layers for a model of {len(layer_names)}; None stands for no edges")
    return dict(zip(layer_names, layers, strict=True))


def _in_order(layers: Mapping[Any, Any], layer_names: Sequence[str]) -> tuple[Any, ...]:
    """In the order of the fit; a layer that is not given has no edges."""
    named = {str(name): layer for name, layer in layers.items()}
    unknown = sorted(set(named) - set(layer_names))
    if unknown:
        raise GraphError(f"layer {unknown[0]!r} is unknown to the model; it has {', '.join(layer_names)}")
    return tuple(named.get(name) for name in layer_names)


def _rows_of_layers(
    model: Any, makers: Sequence[RowMaker] | None, n_nodes: int, layers: Sequence[Any]
) -> Question:
    given = [layer for layer in layers if layer is not None]
    if not given or any(layer.shape[0] != given[0].shape[0] for layer in map(_matrix, given)):
        raise ValueError("layers of new nodes must have as many rows, one per new node")
    found = []
    for number, layer in enumerate(layers):
        if layer is None:
            n_new = _matrix(given[0]).shape[0]
            found.append(Rows(sp.csr_array((n_new, n_nodes)), np.full(n_new, -1)))
        elif makers is None:
            found.append(MatrixRows(np.empty(0, np.uint64))(model, _node_rows(layer, n_nodes)))
        else:
            found.append(makers[number](model, check_array(layer, accept_sparse="csr")))
    return _joined(found, makers is not None and any(map(_may_be_far, makers)))


def _matrix(layer: Any) -> Any:
    return checked_matrix(layer) if sp.issparse(layer) else np.atleast_2d(np.asarray(layer))


def _may_be_far(maker: RowMaker) -> bool:
    """A kernel may vanish between points; an edge that was given by hand does not."""
    return isinstance(maker, KernelRows)


def _node_rows(X: Any, n_nodes: int) -> Any:
    matrix = _matrix(X)
    if matrix.ndim != 2 or matrix.shape[1] != n_nodes:
        raise GraphError(
            f"rows of new nodes have shape {matrix.shape}; one column per known node, {n_nodes}, is needed"
        )
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"rows of new nodes have type {matrix.dtype}; real numbers are needed")
    return matrix


def _joined(found: Sequence[Rows], may_be_far: bool) -> Question:
    linked = sum(np.asarray(rows.weights.sum(axis=1)).ravel() for rows in found)
    bare = np.flatnonzero(linked == 0)
    if len(bare) and not may_be_far:
        raise GraphError(
            f"row {bare[0]} has no edge to a known node: nothing can be said of it; leave it out"
        )
    same = np.stack([rows.same for rows in found])
    agreed = np.where((same == same[0]).all(axis=0), same[0], -1)
    remoteness = found[0].remoteness if len(found) == 1 else None
    rows = NewRows(tuple(rows.weights for rows in found))
    return Question(rows, agreed, remoteness, np.arange(len(agreed)))


def _by_names(layers: Sequence[Graph | None], given: Array, names: NodeRows) -> Question:
    """New nodes are those the model does not know; edges between known ones are not looked at."""
    row = names.rows(given)
    new, old = np.flatnonzero(row < 0), np.flatnonzero(row >= 0)
    if not len(new):
        raise GraphError("every node in it is known to the model: there is no new one; see partial_fit")
    if not len(old):
        raise GraphError(
            f"no node in it is known to the model (first: {given[0]}); names must be those of fit"
        )
    place = sp.csr_array(
        (np.ones(len(old)), (np.arange(len(old)), row[old])), shape=(len(old), len(names.names))
    )
    known, between = [], []
    for layer in layers:
        matrix = sp.csr_array((len(given), len(given))) if layer is None else layer.matrix
        known.append(sp.csr_array(matrix[new][:, old] @ place))
        between.append(sp.csr_array(matrix[new][:, new]))
    linked = sum(np.asarray(part.sum(axis=1)).ravel() for part in (*known, *between))
    bare = np.flatnonzero(linked == 0)
    if len(bare):
        raise GraphError(f"the new node {given[new[bare[0]]]} has no edge: nothing can be said of it")
    return Question(NewRows(tuple(known), tuple(between)), np.full(len(new), -1), None, given[new])
