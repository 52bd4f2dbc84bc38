"""What ``fit`` was given, as a graph or as layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.io import align_layers, graph_of
from spectrograd.neighbors import knn_graph

AFFINITIES = ("nearest_neighbors", "rbf", "precomputed", "precomputed_nearest_neighbors")


def as_graph(model: Any, X: Any) -> Graph:
    """What ``fit`` was given, as a graph; arrays are read as ``affinity`` says."""
    graph = graph_of(X)
    if isinstance(graph, MultilayerGraph):
        raise ValueError("this is a multilayer graph: use the Multilayer estimators")
    if graph is not None:
        return graph
    if model.affinity not in AFFINITIES:
        raise ValueError(f"affinity={model.affinity!r}: expected one of {', '.join(AFFINITIES)}")
    if model.affinity == "precomputed":
        validate_data(
            model, X, accept_sparse="csr", dtype=None, ensure_all_finite=False, ensure_min_samples=2
        )
        return Graph.from_matrix(X)
    X = validate_data(model, X, accept_sparse="csr", ensure_min_samples=2)
    return _graph_of_points(model, X)


def _graph_of_points(model: Any, X: Any) -> Graph:
    if model.affinity == "precomputed_nearest_neighbors":
        from sklearn.neighbors import kneighbors_graph

        near = kneighbors_graph(X, model.n_neighbors, metric="precomputed", include_self=False)
        return Graph.from_matrix((near + near.T) * 0.5)
    if model.affinity == "rbf":
        from sklearn.metrics.pairwise import rbf_kernel

        kernel = rbf_kernel(X)
        np.fill_diagonal(kernel, 0)
        return Graph.from_matrix(kernel)
    n_neighbors = min(model.n_neighbors, X.shape[0] - 1)
    return knn_graph(X, n_neighbors, connect=True, n_jobs=model.n_jobs)


def _foreign_layers(X: Mapping[Any, Any] | Sequence[Any]) -> MultilayerGraph | None:
    """Graphs and edge tables of other libraries, united by the names of their nodes; None for arrays."""
    named = X if isinstance(X, Mapping) else dict(enumerate(X))
    graphs = {str(name): graph_of(layer) for name, layer in named.items()}
    single = {name: graph for name, graph in graphs.items() if isinstance(graph, Graph)}
    return align_layers(single) if single and len(single) == len(graphs) else None


def as_layers(model: Any, X: Any) -> MultilayerGraph:
    """The same for several layers; arrays of points become one k-NN layer each."""
    graph = graph_of(X)
    if isinstance(graph, MultilayerGraph):
        return graph
    if graph is not None or not isinstance(X, Mapping | Sequence):
        raise ValueError("expected several layers: a MultilayerGraph, or a list or dict of layers")
    foreign = _foreign_layers(X)
    if foreign is not None:
        return foreign
    if model.affinity == "precomputed":
        return MultilayerGraph.from_layers(X)
    named = X if isinstance(X, Mapping) else {str(i): layer for i, layer in enumerate(X)}
    points = {
        name: check_array(layer, accept_sparse="csr", input_name=f"view {name!r}")
        for name, layer in named.items()
    }
    return MultilayerGraph.from_layers({name: _graph_of_points(model, x) for name, x in points.items()})
