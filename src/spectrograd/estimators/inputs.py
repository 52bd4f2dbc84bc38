"""What ``fit`` was given, as a graph or as layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_clusterer
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from spectrograd.estimators.row_makers import (
    HALF,
    DistanceRows,
    KernelRows,
    MatrixRows,
    PointRows,
    RowMaker,
)
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.cleaning import check_structure
from spectrograd.graph.tensors import from_tensor
from spectrograd.io import graph_of
from spectrograd.io.foreign.frames import column_names, from_frame, holds_texts, is_frame
from spectrograd.io.read.columns import layer_offer
from spectrograd.labels.eigengap import MOST
from spectrograd.pipeline.needs import is_stored, open_within
from spectrograd.points.neighbors import neighbour_graph
from spectrograd.points.search import Wanted
from spectrograd.store import open_store

Affinity = str | Callable[..., Any]
AFFINITIES = ("nearest_neighbors", "rbf", "precomputed", "precomputed_nearest_neighbors")


def is_pairwise(affinity: Affinity) -> bool:
    """Whether ``fit`` gets a square matrix rather than points."""
    return affinity in AFFINITIES[2:]


def as_graph(model: Any, X: Any, columns: Mapping[str, str] | None = None) -> Graph:
    """What ``fit`` was given, as a graph; arrays are read as ``affinity`` says.

    ``columns`` name those of an edge table, as the keywords of :func:`spectrograd.from_frame` do.
    Sets ``affinity_matrix_`` as scikit-learn does, but not for a :class:`Graph`: that is its own matrix.
    """
    model._float, model._makers = np.float64, None
    vars(model).pop("affinity_matrix_", None)  # of an earlier fit
    X = from_tensor(X)
    given = _from_store(model, X) or graph_of_table(X, columns or {}) or graph_of(X)
    if isinstance(given, MultilayerGraph):
        raise ValueError("this is a multilayer graph: use the Multilayer estimators")
    if given is not None:
        return given
    check_affinity(model.affinity)
    X = checked_matrix(X)
    maker: RowMaker
    if model.affinity == "precomputed":
        # Graph looks for what is not finite, and names the edge
        X = validate_data(model, X, accept_sparse=True, ensure_all_finite=False, ensure_min_samples=2)
        matrix, graph, maker = X, Graph.from_matrix(X), MatrixRows.of(X)
    else:
        X = validate_data(model, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        matrix, graph, maker = _affinity(model, X)
    model.affinity_matrix_, model._makers = matrix, (maker,)
    model._float = np.float32 if X.dtype == np.float32 else np.float64
    return graph


def as_layers(model: Any, X: Any, columns: Mapping[str, str] | None = None) -> MultilayerGraph:
    """The same for several layers; arrays of points become one layer each."""
    model._float, model._makers = np.float64, None
    graph = (
        _from_store(model, X)
        or graph_of_table(X, columns or {})
        or (from_frame(X) if is_frame(X) else graph_of(X))
    )
    if isinstance(graph, MultilayerGraph):
        return graph
    if is_frame(X):
        raise GraphError(
            "edge table: no column 'layer'; for one graph use the estimators of one graph"
            + layer_offer(column_names(X))
        )
    if graph is not None or not isinstance(X, Mapping | Sequence):
        raise ValueError(
            "expected several layers: a MultilayerGraph, a list or dict of layers, or an edge table with "
            "columns src, dst, layer and weight"
        )
    foreign = _foreign_layers(X)
    if foreign is not None:
        return foreign
    check_affinity(model.affinity)
    if model.affinity == "precomputed":
        return _matrix_layers(model, X)
    named = X if isinstance(X, Mapping) else {str(i): layer for i, layer in enumerate(X)}
    points = {
        name: check_array(checked_matrix(layer), accept_sparse="csr", input_name=f"view {name!r}")
        for name, layer in named.items()
    }
    made = {name: _affinity(model, x) for name, x in points.items()}
    model._makers = tuple(maker for _, _, maker in made.values())
    return MultilayerGraph.from_layers({name: graph for name, (_, graph, _) in made.items()})


def _matrix_layers(model: Any, X: Mapping[Any, Any] | Sequence[Any]) -> MultilayerGraph:
    layers = list(X.values() if isinstance(X, Mapping) else X)
    graph = MultilayerGraph.from_layers(X)
    if not any(isinstance(layer, Graph) for layer in layers):
        arrays = [layer if sp.issparse(layer) else np.asarray(layer) for layer in layers]
        model._makers = tuple(MatrixRows.of(layer) for layer in arrays)
    return graph


def _from_store(model: Any, X: Any) -> Graph | MultilayerGraph | None:
    """The graph of a store's path: loaded where that fits ``memory_limit``, else streamed from the disk."""
    if not is_stored(X):
        return None
    n_nodes = open_store(X).n_nodes
    k = model._n_columns(n_nodes)
    how = getattr(model, "solver", "auto"), getattr(model, "engine", "auto")
    return open_within(X, MOST if isinstance(k, str) else k, model.memory_limit, *how)


def graph_of_table(X: Any, columns: Mapping[str, str]) -> Graph | MultilayerGraph | None:
    """The graph of a table whose columns are named, or that cannot be one of points; None for others."""
    if columns and not is_frame(X):
        what = next(iter(columns))
        raise GraphError(f"{what}= names a column of an edge table, but X is of type {type(X).__name__}")
    if columns or (is_frame(X) and holds_texts(X)):
        return from_frame(X, **columns)
    return None


def checked_matrix(X: Any) -> Any:
    """Arrays as numpy wants them today, sparse ones checked before compiled code follows their indices."""
    X = from_tensor(X)
    if sp.issparse(X):
        check_structure(X)
    if isinstance(X, np.matrix):
        raise TypeError("np.matrix is not supported. Please convert to a numpy array with np.asarray(X)")
    return X


def _foreign_layers(X: Mapping[Any, Any] | Sequence[Any]) -> MultilayerGraph | None:
    """Graphs and edge tables of other libraries, united by the names of their nodes; None for arrays."""
    named = X if isinstance(X, Mapping) else dict(enumerate(X))
    graphs = {str(name): graph_of(layer) for name, layer in named.items()}
    single = {name: graph for name, graph in graphs.items() if isinstance(graph, Graph)}
    return MultilayerGraph.from_layers(single) if single and len(single) == len(graphs) else None


def check_affinity(affinity: Affinity) -> None:
    """Refuse a name that neither we nor scikit-learn's kernels know."""
    from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

    known = (*AFFINITIES, *(name for name in PAIRWISE_KERNEL_FUNCTIONS if name not in AFFINITIES))
    if not callable(affinity) and affinity not in known:
        raise ValueError(f"affinity={affinity!r}: expected one of {', '.join(known)}, or a function")


def _affinity(model: Any, X: Any) -> tuple[Any, Graph, RowMaker]:
    """The matrix scikit-learn calls ``affinity_matrix_``, the graph of its edges, and how to ask it more."""
    if model.affinity in ("nearest_neighbors", "precomputed_nearest_neighbors"):
        graph, maker = _neighbors(model, X)
        return graph.matrix, graph, maker
    kernel = kernel_matrix(model, X)
    return kernel, Graph.from_matrix(without_diagonal(kernel)), KernelRows(X)


def without_diagonal(matrix: Any) -> Any:
    """A copy without loops, quietly: that each point resembles itself is no flaw of the input."""
    edges = matrix.copy()
    if sp.issparse(edges):
        edges.setdiag(0)
    else:
        np.fill_diagonal(edges, 0)
    return edges


def _neighbors(model: Any, X: Any) -> tuple[Graph, RowMaker]:
    wanted = max(X.shape[0] // 10, 1) if model.n_neighbors is None else model.n_neighbors
    model.n_neighbors_ = min(wanted, X.shape[0] - 1)
    if model.affinity == "nearest_neighbors":
        wanted = Wanted(model.n_neighbors_, model.metric, recall=model.recall, n_jobs=model.n_jobs)
        graph, known = neighbour_graph(X, wanted, connect=True)
        return graph, PointRows(known)
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=model.n_neighbors_, metric="precomputed", n_jobs=model.n_jobs)
    near = search.fit(X).kneighbors_graph(X)  # as in scikit-learn, a point counts among its neighbours
    graph = Graph.from_matrix(without_diagonal((near + near.T) * HALF))
    return graph, DistanceRows(model.n_neighbors_, graph.n_nodes)


def kernel_matrix(model: Any, X: Any, known: Any = None) -> Any:
    """A kernel matrix of the points (or between them and ``known`` points), under scikit-learn's names."""
    from sklearn.metrics.pairwise import pairwise_kernels

    given = dict(model.kernel_params or {})
    if callable(model.affinity):
        # as in scikit-learn: a clustering's function takes two points, an embedding's takes all of them
        if is_clusterer(model):
            return pairwise_kernels(X, known, metric=model.affinity, **given)
        if known is None:
            return model.affinity(X)
        raise ValueError(
            "affinity is a function of all points: it has no rows for new ones; fit them as well"
        )
    params = {"gamma": model.gamma, "degree": model.degree, "coef0": model.coef0} | given
    return pairwise_kernels(X, known, metric=model.affinity, filter_params=True, **params)
