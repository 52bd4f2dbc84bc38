"""Graphs and features of the same nodes as the layers of one multilayer graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.features import FEATURE_AFFINITIES, feature_graph
from spectrograd.points.knn_graph import neighbour_graph
from spectrograd.points.search import Wanted
from spectrograd.points.validation import Metric
from spectrograd.typing import Array

MAX_SEARCHED_ROWS = 20_000  # of sparse features


@dataclass(frozen=True)
class FeatureOptions:
    """How rows of features become a graph.

    Attributes
    ----------
    n_neighbors
        Of every row.
    affinity
        "nearest_neighbors"; "cosine" or "linear", of all pairs and never formed; "auto" is "cosine" for
        sparse features that are not negative of more than ``MAX_SEARCHED_ROWS`` rows, whose neighbours would
        be searched among all pairs, else "nearest_neighbors".
    metric
        "auto" is "cosine" for sparse features that are not negative (counts, tf-idf), else "euclidean".
    recall, n_jobs
        As of :func:`~spectrograd.knn_graph`.
    """

    n_neighbors: int = 10
    metric: Metric = "auto"
    recall: float = 0.98
    n_jobs: int | None = None
    affinity: str = "auto"


def mixed_layers(
    layers: Mapping[str, object], options: FeatureOptions | None = None, *, names: Array | None = None
) -> MultilayerGraph:
    """Graphs and features, joined to their nearest neighbours or to all rows, as layers on the same nodes.

    Parameters
    ----------
    layers : mapping of name to Graph, or array or sparse matrix of shape (n_nodes, n_features)
    options : FeatureOptions, optional
    names : array of shape (n_nodes,), optional
        Of the rows of features; without them rows are the nodes of the graphs, in their order.
    """
    graphs = [layer for layer in layers.values() if isinstance(layer, Graph)]
    known = next((graph.names for graph in graphs if graph.names is not None), None)
    if names is not None and known is not None:
        _check_names(names, known)
    made = {}
    for name, layer in layers.items():
        if isinstance(layer, Graph):
            made[name] = layer
            continue
        _check_rows(name, layer, graphs, names)
        try:
            graph = feature_layer(layer, options or FeatureOptions())
        except GraphError as error:
            raise GraphError(f"layer {name!r}: {error}") from None
        made[name] = replace(graph, names=known if names is None else names)
    return MultilayerGraph.from_layers(made)


def _check_names(names: Array, known: Array) -> None:
    """Refuse rows of features that the graph has no node for."""
    unknown = names[~np.isin(names.astype(str), known.astype(str))]
    if len(unknown):
        raise GraphError(
            f"{len(unknown)} of {len(names)} rows of features have ids that the graph does not have "
            f"(first: {unknown[0]}): features and graph are of the same nodes"
        )


def _check_rows(name: str, layer: Any, graphs: list[Graph], names: Array | None) -> None:
    """Refuse features of another number of rows than there are names, or nodes."""
    shape = layer.shape if sp.issparse(layer) else np.shape(layer)
    if len(shape) != 2:
        raise GraphError(f"layer {name!r}: features of shape {shape}; one row of numbers per node is needed")
    if names is not None and shape[0] != len(names):
        raise GraphError(f"layer {name!r}: {shape[0]} rows of features, {len(names)} names")
    if names is None and graphs and shape[0] != graphs[0].n_nodes:
        raise GraphError(
            f"layer {name!r}: {shape[0]} rows of features, but the graph has {graphs[0].n_nodes} nodes: rows "
            "are matched by number"
        )


def feature_layer(X: object, options: FeatureOptions) -> Graph:
    """The graph of the nearest rows, or of all pairs; rows of zeros, which have no cosine, are isolated.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_nodes, n_features)
    options : FeatureOptions
    """
    if options.affinity in FEATURE_AFFINITIES:
        return feature_graph(X, options.affinity)
    Z = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
    values: Array = np.asarray(Z.data if sp.issparse(Z) else Z)
    if values.dtype.kind not in "biuf":
        raise GraphError(f"features have type {values.dtype}: real numbers are needed")
    if not np.isfinite(values).all():
        raise GraphError("features are not finite: NaN or infinity is in them")
    counts = sp.issparse(Z) and values.min(initial=0) >= 0
    if counts and options.affinity == "auto" and Z.shape[0] > MAX_SEARCHED_ROWS:
        return feature_graph(Z)
    metric = options.metric
    if metric == "auto":
        metric = "cosine" if counts else "euclidean"
    n_nodes = Z.shape[0]
    filled = np.arange(n_nodes)
    if metric == "cosine":
        filled = np.flatnonzero(np.asarray(abs(Z).sum(axis=1)).ravel())
    n_neighbors = min(options.n_neighbors, len(filled) - 1)
    wanted = Wanted(n_neighbors, metric, recall=options.recall, n_jobs=options.n_jobs)
    graph, _ = neighbour_graph(Z[filled].astype(np.float64), wanted, connect=True)
    if len(filled) == n_nodes:
        return graph
    edges = graph.matrix.tocoo()
    ends = (filled[edges.row], filled[edges.col])
    matrix = sp.coo_array((edges.data, ends), shape=(n_nodes, n_nodes))
    return replace(Graph.from_matrix(matrix.tocsr()), recall=graph.recall)
