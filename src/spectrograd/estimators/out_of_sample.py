"""New nodes: from what ``transform`` and ``predict`` were given to edges, and to rows of the embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from spectrograd.estimators.affinity_rows import (
    FeatureQuery,
    KernelRows,
    MatrixRows,
    PointRows,
    QueryAffinity,
    Rows,
)
from spectrograd.estimators.inputs import check_matrix, graph_of_table, point_types
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.node_names import NodeRows
from spectrograd.graph.validation import accept_signs
from spectrograd.io import graph_of
from spectrograd.io.interop.frames import column_names, from_frame, is_frame
from spectrograd.labels.nearest_cluster import NearestCluster
from spectrograd.pipeline.edge_changes import sampled_rows
from spectrograd.pipeline.out_of_sample import Extension, NewRows, OutlierScale, disagreement
from spectrograd.store import StoredGraph
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.estimators.base import Clusterer, Spectral


@dataclass(frozen=True, eq=False)
class Query:
    """New nodes, and what is known of them.

    Attributes
    ----------
    rows
        Their edges.
    same : array of shape (n_new,)
        The training sample that a new one is, or -1.
    outlier_scale : array of shape (n_new,) or None
        A distance from the training data, where there are distances.
    names : array of shape (n_new,)
        Names of the new nodes, or row numbers.
    """

    rows: NewRows
    same: Array
    outlier_scale: Array | None
    names: Array


def query_graph(model: Spectral, maker: QueryAffinity | None, names: NodeRows, X: object) -> Query:
    """The query to a model of one graph."""
    # 1. edges by name: a graph or a table
    given = graph_of_table(X, {}) or graph_of(X)
    if given is None and maker is None and is_frame(X) and len(column_names(X)) in (2, 3):
        given = from_frame(X)  # a model of a graph is asked by edges
    if isinstance(given, MultilayerGraph):
        raise ValueError("this is a multilayer graph: the model knows one layer")
    if given is not None:
        return _by_names((given,), given.node_names, names)
    # 2. an array: weights to all nodes, or samples that the maker of the fit turns into weights
    X = check_matrix(X)
    if maker is None:
        maker = MatrixRows(np.empty(0, np.uint64))
        X = _node_rows(X, len(names.names))
    elif isinstance(maker, MatrixRows):
        X = validate_data(model, X, accept_sparse="csr", ensure_all_finite=False, reset=False)
    else:
        kinds = point_types(model, "nearest_neighbors" if isinstance(maker, PointRows) else model.affinity)
        X = validate_data(model, X, accept_sparse="csr", dtype=kinds, reset=False)
    return _join_rows([maker(model, X)], _may_be_far(maker))


def query_layers(
    model: Spectral,
    makers: Sequence[QueryAffinity] | None,
    names: NodeRows,
    layer_names: Sequence[str],
    X: Any,
) -> Query:
    """The query to a model of several layers; a node may have edges in some layers only."""
    graph = from_frame(X) if is_frame(X) else graph_of(X)
    if isinstance(graph, MultilayerGraph):
        by_name = dict(zip(graph.layer_names, graph.layers, strict=True))
        return _by_names(_in_order(by_name, layer_names), graph.node_names, names)
    if graph is not None or not isinstance(X, Mapping | Sequence):
        raise ValueError("expected the edges of new nodes in several layers: as in fit, a list or a dict")
    named = X if isinstance(X, Mapping) else _by_layer_names(X, layer_names)
    foreign = {str(name): graph_of(layer) for name, layer in named.items()}
    graphs = {name: layer for name, layer in foreign.items() if isinstance(layer, Graph)}
    if graphs and len(graphs) == len(foreign):
        united = MultilayerGraph.from_layers(graphs)
        by_name = dict(zip(united.layer_names, united.layers, strict=True))
        return _by_names(_in_order(by_name, layer_names), united.node_names, names)
    return _rows_of_layers(model, makers, len(names.names), _in_order(named, layer_names))


def _by_layer_names(layers: Sequence[object], layer_names: Sequence[str]) -> dict[str, object]:
    if len(layers) != len(layer_names):
        raise ValueError(f"{len(layers)} layers for a model of {len(layer_names)}; None stands for no edges")
    return dict(zip(layer_names, layers, strict=True))


def _in_order(layers: Mapping[Any, object], layer_names: Sequence[str]) -> tuple[Any, ...]:
    """In the order of the fit; a layer that is not given has no edges."""
    named = {str(name): layer for name, layer in layers.items()}
    unknown = sorted(set(named) - set(layer_names))
    if unknown:
        raise GraphError(f"layer {unknown[0]!r} is unknown to the model; it has {', '.join(layer_names)}")
    return tuple(named.get(name) for name in layer_names)


def _rows_of_layers(
    model: Spectral, makers: Sequence[QueryAffinity] | None, n_nodes: int, layers: Sequence[Any]
) -> Query:
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
    return _join_rows(found, makers is not None and any(map(_may_be_far, makers)))


def _matrix(layer: object) -> Any:
    return check_matrix(layer) if sp.issparse(layer) else np.atleast_2d(np.asarray(layer))


def _may_be_far(maker: QueryAffinity) -> bool:
    """A kernel may vanish between points; an edge that was given by hand does not."""
    return isinstance(maker, KernelRows | FeatureQuery)


def _node_rows(X: object, n_nodes: int) -> Any:
    matrix = _matrix(X)
    if matrix.ndim != 2 or matrix.shape[1] != n_nodes:
        raise GraphError(
            f"rows of new nodes have shape {matrix.shape}; one column per known node, {n_nodes}, is needed"
        )
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"rows of new nodes have type {matrix.dtype}; real numbers are needed")
    return matrix


def _join_rows(found: Sequence[Rows], may_be_far: bool) -> Query:
    # a new node needs an edge in some layer
    linked = sum(np.asarray(abs(rows.weights).sum(axis=1)).ravel() for rows in found)
    bare = np.flatnonzero(linked == 0)
    if len(bare) and not may_be_far:
        raise GraphError(
            f"row {bare[0]} has no edge to a known node: nothing can be said of it; leave it out"
        )
    same = np.stack([rows.same for rows in found])
    agreed = np.where((same == same[0]).all(axis=0), same[0], -1)
    outlier_scale = found[0].outlier_scale if len(found) == 1 else None
    rows = NewRows(tuple(rows.weights for rows in found))
    return Query(rows, agreed, outlier_scale, np.arange(len(agreed)))


def _by_names(layers: Sequence[Graph | None], given: Array, names: NodeRows) -> Query:
    """New nodes are those the model does not know; edges between known ones are not looked at."""
    row = names.rows(given)
    new = np.flatnonzero(row < 0)
    old = np.flatnonzero(row >= 0)
    if not len(new):
        raise GraphError("every node in it is known to the model: there is no new one; see partial_fit")
    if not len(old):
        raise GraphError(
            f"no node in it is known to the model (first: {given[0]}); names must be those of fit"
        )
    # columns of the query to rows of the model
    place = sp.csr_array(
        (np.ones(len(old)), (np.arange(len(old)), row[old])), shape=(len(old), len(names.names))
    )
    known = []
    between = []
    for layer in layers:
        matrix = sp.csr_array((len(given), len(given))) if layer is None else layer.matrix
        known.append(sp.csr_array(matrix[new][:, old] @ place))
        between.append(sp.csr_array(matrix[new][:, new]))
    linked = sum(np.asarray(abs(part).sum(axis=1)).ravel() for part in (*known, *between))
    bare = np.flatnonzero(linked == 0)
    if len(bare):
        raise GraphError(f"the new node {given[new[bare[0]]]} has no edge: nothing can be said of it")
    return Query(NewRows(tuple(known), tuple(between)), np.full(len(new), -1), None, given[new])


# --- Rows for new nodes, and how far to trust them.

UNKNOWN = -1  # the label of a node that no cluster can be found for


@dataclass(frozen=True, eq=False)
class Extrapolated:
    """The embedding of new nodes.

    Attributes
    ----------
    query
        What was asked, with the names of the new nodes.
    vectors : array of shape (n_new, k)
    reached : array of shape (n_new,)
        Whether edges join a new node to training nodes.
    training
        The data of the fit, to which outlier scores compare.
    """

    query: Query
    vectors: Array
    reached: Array
    training: TrainingData

    @cached_property
    def scores(self) -> Array:
        """Outlier scores (n_new,), computed when first asked for."""
        return self.training.outlier_scores(self.query, self.reached)


@dataclass(eq=False)
class LastQuery:
    """The last ``transform`` or ``predict``, for ``outlier_score_`` and ``new_names_``, which go with it."""

    rows: Extrapolated | None = None


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a fitted model keeps in order to embed new nodes, and to be updated.

    ``makers`` tell how arrays of samples become weights, one per layer; None where ``fit`` was given a graph.
    """

    graph: Graph | MultilayerGraph
    extension: Extension | None
    names: Array
    makers: Sequence[QueryAffinity] | None = None
    clusters: NearestCluster | None = None
    last_query: LastQuery = field(default_factory=LastQuery)

    @cached_property
    def rows_by_name(self) -> NodeRows:
        """Which row a name has."""
        return NodeRows(self.names)

    @cached_property
    def outlier_scale(self) -> OutlierScale | None:
        """How far out the training rows themselves lie; None where new nodes cannot be embedded."""
        if self.extension is None:
            return None
        part = self.extension.active
        if self.makers is not None and len(self.makers) == 1 and isinstance(self.makers[0], PointRows):
            return OutlierScale.of(self.makers[0].known.outlier_scale[part])
        if isinstance(self.graph, StoredGraph):
            rows = sampled_rows(self.graph)
            linked = np.asarray(abs(rows).sum(axis=1)).ravel() > 0
            return OutlierScale.of(self._disagreement([rows])[linked])
        layers = self.graph.layers
        return OutlierScale.of(self._disagreement([layer.matrix for layer in layers])[part])

    def _disagreement(self, rows: Sequence[object]) -> Array:
        assert self.extension is not None
        return disagreement(self.extension.vectors, rows, self.extension.layer_weights)

    def rows(self, query: Query) -> Extrapolated:
        """Rows of the embedding for new nodes."""
        assert self.extension is not None
        extended = self.extension.extend(query.rows)
        is_known = query.same >= 0
        vectors = extended.vectors
        # a training sample gets its own row, to the last bit
        vectors[is_known] = self.extension.vectors[query.same[is_known]]
        return Extrapolated(query, vectors, extended.reached | is_known, self)

    def outlier_scores(self, query: Query, reached: Array) -> Array:
        """Scores by distances where the model has points, else by how little the neighbours agree."""
        statistic = query.outlier_scale
        if statistic is None:
            statistic = self._disagreement(query.rows.known)
        assert self.outlier_scale is not None
        return np.where(reached, self.outlier_scale.score(statistic), 1.0)


def rotate(vectors: Array, rotation: Array | None) -> Array:
    """Rows (n, k) turned, each by itself to the last bit."""
    return vectors if rotation is None else np.einsum("ij,jk->ik", vectors, rotation)


# --- Queries to a fitted model.


def extrapolate(model: Spectral, X: object) -> Extrapolated:
    """Rows of the embedding for what ``transform`` or ``predict`` was given; the model stays as it is."""
    check_is_fitted(model)
    training_data = model._training_data
    if not training_data.graph.is_resident and isinstance(training_data.graph, MultilayerGraph):
        raise ValueError(
            "the layers of this model are on disk, where new nodes are not looked up: add them with "
            "partial_fit (spectrograd update), or fit the model in memory"
        )
    if training_data.extension is None:
        raise ValueError(
            f"aggregation={model.aggregation_!r} has no rows for new nodes: "
            "choose 'projection', 'mean', 'sum', 'grassmann' or 'joint', or fit again"
        )
    return training_data.rows(make_query(model, X))


def make_query(model: Spectral, X: object) -> Query:
    """The edges and the names of what ``transform`` or ``predict`` was given."""
    check_is_fitted(model)
    makers = model._training_data.makers
    names = model._training_data.rows_by_name
    graph = model._training_data.graph
    if isinstance(graph, MultilayerGraph):
        return query_layers(model, makers, names, graph.layer_names, X)
    with accept_signs(graph.is_signed):
        return query_graph(model, None if makers is None else makers[0], names, X)


def new_embedding(model: Spectral, rows: Extrapolated) -> Array:
    """The columns and directions of ``embedding_`` for new rows."""
    n_dropped = rows.vectors.shape[1] - model.embedding_.shape[1]
    return rotate(rows.vectors[:, n_dropped:], model._rotation).astype(model._float, copy=False)


def new_labels(model: Clusterer, rows: Extrapolated, outlier_quantile: float | None) -> Array:
    """The nearest cluster of each row; -1 for rows that no edge joins, or that lie too far out."""
    clusters = model._training_data.clusters
    assert clusters is not None
    labels = np.where(rows.reached, clusters.labels(rows.vectors), UNKNOWN)
    # a training sample keeps its label
    same = rows.query.same
    labels = np.where(same >= 0, model.labels_[same], labels)
    if outlier_quantile is None:
        return labels
    return np.where(rows.scores >= outlier_quantile, UNKNOWN, labels)


def check_quantile(quantile: object) -> None:
    """Refuse an ``outlier_quantile`` that is none."""
    if quantile is not None and not (isinstance(quantile, int | float) and 0 < quantile <= 1):
        raise ValueError(f"outlier_quantile={quantile!r}: expected a number above 0 and at most 1, or None")


def remember(model: Spectral, rows: Extrapolated) -> Extrapolated:
    """Keep what was asked, without the vectors, for ``outlier_score_`` and ``new_names_``."""
    model._training_data.last_query.rows = replace(rows, vectors=rows.vectors[:0])
    return rows


def last_query(model: Spectral) -> Extrapolated:
    """What :func:`remember` kept; before the first query an AttributeError."""
    training_data = getattr(model, "_training_data", None)
    rows: Extrapolated | None = None if training_data is None else training_data.last_query.rows
    if rows is None:
        raise AttributeError("there was no transform or predict yet; ask score_samples(X) or new_names(X)")
    return rows
