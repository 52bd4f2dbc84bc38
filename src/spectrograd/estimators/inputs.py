"""What ``fit`` was given, as a graph or as layers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_clusterer
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from spectrograd.estimators.affinity_rows import (
    HALF,
    DistanceRows,
    FeatureQuery,
    KernelRows,
    MatrixRows,
    PointRows,
    QueryAffinity,
)
from spectrograd.estimators.settings import seed_of
from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.features import FEATURE_AFFINITIES, feature_graph
from spectrograd.graph.validation import ROUNDING, accept_signs, check_structure, from_tensor, is_invalid
from spectrograd.io import graph_of, read_graph
from spectrograd.io.columns import layer_offer
from spectrograd.io.edge_table import name_in_messages
from spectrograd.io.features import read_features
from spectrograd.io.interop.frames import (
    column_names,
    from_frame,
    from_pairs,
    holds_texts,
    is_frame,
    is_list_of_pairs,
    takes_for_edges,
)
from spectrograd.labels.eigengap import FIRST_MAX_CLUSTERS
from spectrograd.notices import warn
from spectrograd.operators.laplacian import is_signed_kind
from spectrograd.pipeline.memory_estimate import is_stored, open_within
from spectrograd.points.fourier import MAX_KERNEL_POINTS, N_PAIRS, fourier_graph
from spectrograd.points.knn_graph import neighbour_graph
from spectrograd.points.mixed_layers import FeatureOptions, mixed_layers
from spectrograd.points.search import Wanted
from spectrograd.points.validation import EUCLIDEAN, POINT_TYPES
from spectrograd.store import open_store
from spectrograd.system import as_bytes

if TYPE_CHECKING:
    from spectrograd.estimators.base import Spectral

Affinity = str | Callable[..., Any]
AUTO = "auto"
PAIRWISE = ("precomputed", "precomputed_nearest_neighbors")
AFFINITIES = ("nearest_neighbors", "rbf", *FEATURE_AFFINITIES, *PAIRWISE, AUTO)


@dataclass(frozen=True, eq=False)
class FitInput:
    """The graph that ``fit`` was given, and how it came about.

    Attributes
    ----------
    graph
        One graph, or layers.
    dtype
        Of ``embedding_``: single precision where the input was.
    makers
        How arrays of new samples become weights, one per layer; None where ``fit`` was given a graph.
    attributes
        Fitted attributes by name: ``affinity_``, ``affinity_matrix_``, ``n_neighbors_``.
    """

    graph: Graph | MultilayerGraph
    dtype: type[np.floating] = np.float64
    makers: tuple[QueryAffinity, ...] | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)


def is_pairwise(affinity: Affinity) -> bool:
    """Whether ``fit`` gets a square matrix rather than points."""
    return affinity in ("precomputed", "precomputed_nearest_neighbors")


def as_graph(model: Spectral, X: object, columns: Mapping[str, str]) -> FitInput:
    """What ``fit`` was given, as a graph; arrays are read as ``affinity`` says.

    ``columns`` name those of an edge table, as the keywords of :func:`spectrograd.from_frame` do.
    ``affinity_matrix_`` is set as by scikit-learn, but not for a :class:`Graph`: that is its own matrix.
    Weights may be negative where the Laplacian is a signed one.
    """
    with accept_signs(is_signed_kind(model.laplacian)):
        return _as_graph(model, X, columns)


def _as_graph(model: Spectral, X: Any, columns: Mapping[str, str]) -> FitInput:
    # 1. edges: a path, a graph, a table
    X = from_tensor(X)
    if isinstance(X, str | os.PathLike) and model.affinity in FEATURE_AFFINITIES:
        return _features_of_file(model, X)
    given = _from_path(model, X, columns) or graph_of_edges(X, columns)
    if isinstance(given, MultilayerGraph):
        raise ValueError("this is a multilayer graph: use the Multilayer estimators")
    if given is not None:
        return FitInput(given)
    # 2. an array: a matrix of affinities, or points
    check_affinity(model.affinity)
    X = check_matrix(X)
    # "auto" looks at the array: a graph's matrix, or points
    affinity = detect_affinity({"X": X}) if model.affinity == AUTO else model.affinity
    attributes: dict[str, object] = {"affinity_": affinity}
    maker: QueryAffinity
    if affinity in FEATURE_AFFINITIES or _is_large_kernel(affinity, X):
        return _features_input(model, affinity, X)
    if affinity == "precomputed":
        X = _validate_matrix(model, X)
        matrix = X
        graph = Graph.from_matrix(X)
        maker = MatrixRows.of(X)
    else:
        kinds = point_types(model, affinity)
        X = validate_data(model, X, accept_sparse="csr", dtype=kinds, ensure_min_samples=2)
        matrix, graph, maker = _affinity(model, affinity, X)
        attributes |= _neighbor_attributes(model, affinity, X)
    attributes["affinity_matrix_"] = matrix
    return FitInput(graph, np.float32 if X.dtype == np.float32 else np.float64, (maker,), attributes)


def _validate_matrix(model: Spectral, X: Any) -> Any:
    """As scikit-learn does; Graph looks for what is not finite, and names the edge.

    Sparse matrices have no names of columns, and their structure was checked: what is left is done here, in a
    hundredth of the time.
    """
    if sp.issparse(X) and X.ndim == 2 and X.shape[0] >= 2 and X.dtype.kind in "biuf":
        model.n_features_in_ = X.shape[1]
        if hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
        return X
    return validate_data(model, X, accept_sparse=True, ensure_all_finite=False, ensure_min_samples=2)


def _features_of_file(model: Spectral, path: Any) -> FitInput:
    """A file of features, in memory or, where it does not fit, read again in every pass."""
    features, names = read_features(path, memory_limit=as_bytes(model.memory_limit))
    graph = feature_graph(features, model.affinity, names=names)  # type: ignore[arg-type]
    return FitInput(graph, makers=(FeatureQuery(graph),), attributes={"affinity_": model.affinity})


def _is_large_kernel(affinity: Affinity, X: object) -> bool:
    return affinity == "rbf" and not sp.issparse(X) and getattr(X, "shape", (0,))[0] > MAX_KERNEL_POINTS


def _features_input(model: Spectral, affinity: object, X: Any) -> FitInput:
    """Rows of features, whose similarities are never formed; a Gaussian kernel by Fourier features."""
    kinds = [np.float64, np.float32]
    if affinity in FEATURE_AFFINITIES:  # which names what is not finite
        X = validate_data(
            model, X, accept_sparse="csr", dtype=kinds, ensure_all_finite=False, ensure_min_samples=2
        )
        graph = feature_graph(X, affinity)
        maker = FeatureQuery(graph)
    else:
        X = validate_data(model, X, dtype=kinds, ensure_min_samples=2)
        given = dict(model.kernel_params or {}).get("gamma", model.gamma)
        gamma = 1 / X.shape[1] if given is None else float(given)
        graph, fourier = fourier_graph(X, gamma, seed_of(model.random_state))
        maker = FeatureQuery(graph, fourier)
        warn(
            f"affinity='rbf' of {len(X):,} points: the kernel by {graph.features.shape[1]:,} Fourier "
            f"features, whose weights are off by {graph.kernel_error:.2g} (root mean square of "
            f"{N_PAIRS:,} pairs)",
            GraphWarning,
        )
    kind = np.float32 if X.dtype == np.float32 else np.float64
    return FitInput(graph, kind, (maker,), {"affinity_": affinity})


def as_layers(model: Spectral, X: object, columns: Mapping[str, str]) -> FitInput:
    """The same for several layers; arrays of points become one layer each."""
    with accept_signs(is_signed_kind(model.laplacian)):
        return _as_layers(model, X, columns)


def _as_layers(model: Spectral, X: object, columns: Mapping[str, str]) -> FitInput:
    if is_list_of_pairs(X):
        raise GraphError("these are the edges of one graph; several layers are a list or dict of such lists")
    graph = (
        _from_path(model, X, columns)
        or graph_of_table(X, columns)
        or (from_frame(X) if is_frame(X) else graph_of(X))
    )
    if isinstance(graph, MultilayerGraph):
        return FitInput(graph)
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
        return FitInput(foreign)
    check_affinity(model.affinity)
    named = X if isinstance(X, Mapping) else {str(i): layer for i, layer in enumerate(X)}
    takes_features = model.affinity == AUTO or model.affinity in FEATURE_AFFINITIES
    mixed = _mixed_layers(model, named) if takes_features else None
    if mixed is not None:
        return FitInput(mixed)
    affinity = _affinity_of_layers(model, named)
    return _matrix_layers(X) if affinity == "precomputed" else _point_layers(model, affinity, named)


def _mixed_layers(model: Spectral, named: Mapping[object, object]) -> MultilayerGraph | None:
    """Graphs and features of the same nodes; None where all layers are of one kind."""
    layers: dict[str, object] = {}
    for name, layer in named.items():
        graph = _foreign_layer(layer)
        if isinstance(graph, MultilayerGraph):
            return None
        layers[str(name)] = check_matrix(layer) if graph is None else graph
    graphs = _names_of_graphs(layers)
    # of one kind: the usual ways for graphs or for points
    if len(graphs) == len(layers) or (not graphs and model.affinity == AUTO):
        return None
    for name in graphs:
        with name_in_messages(f"layer {name!r}"):
            layers[name] = (
                layers[name] if isinstance(layers[name], Graph) else Graph.from_matrix(layers[name])
            )
    metric = "auto" if model.metric == "euclidean" else model.metric
    options = FeatureOptions(model.n_neighbors or 10, metric, model.recall, model.n_jobs, str(model.affinity))
    return mixed_layers(layers, options)


def _affinity_of_layers(model: Spectral, named: Mapping[object, object]) -> Affinity:
    """Whether layers are affinity matrices, or points and of which affinity."""
    if model.affinity != AUTO:
        return model.affinity
    if any(isinstance(layer, Graph) for layer in named.values()):
        return "precomputed"
    return detect_affinity({f"layer {name!r}": check_matrix(x) for name, x in named.items()})


def _point_layers(model: Spectral, affinity: Affinity, named: Mapping[str, object]) -> FitInput:
    points = {
        name: check_array(check_matrix(layer), accept_sparse="csr", input_name=f"view {name!r}")
        for name, layer in named.items()
    }
    made = {name: _affinity(model, affinity, x) for name, x in points.items()}
    graph = MultilayerGraph.from_layers({name: layer for name, (_, layer, _) in made.items()})
    attributes: dict[str, object] = {"affinity_": affinity}
    for x in points.values():  # all views have as many points
        attributes |= _neighbor_attributes(model, affinity, x)
    return FitInput(graph, makers=tuple(maker for _, _, maker in made.values()), attributes=attributes)


def detect_affinity(arrays: Mapping[str, object]) -> str:
    """What ``affinity="auto"`` is for these arrays; where it may be doubted, a warning says so.

    A square matrix that is symmetric and sparse, or symmetric, not negative and zero on its diagonal, holds
    the weights of a graph; so does a sparse one that is not negative and zero on its diagonal (directions).
    Everything else holds points.
    """
    # all arrays of one kind, or an error: layers of points and layers of weights mean different things
    graphs = _names_of_graphs(arrays)
    square = [name for name, X in arrays.items() if name not in graphs and _is_square(X)]
    if graphs and len(graphs) < len(arrays):
        other = next(name for name in arrays if name not in graphs)
        raise GraphError(
            f"{graphs[0]} is a graph's matrix, {other} holds points; make a graph of the points first, "
            "knn_graph(points), or set affinity='precomputed' or 'nearest_neighbors' for all"
        )
    if graphs and not all(sp.issparse(X) for X in arrays.values()):
        _warn_of_affinity(
            f"{graphs[0]} is square, symmetric and zero on its diagonal: taken for the weights of a graph "
            "(affinity='precomputed'); for points set affinity='nearest_neighbors', for distances "
            "affinity='precomputed_nearest_neighbors'"
        )
    elif square:
        _warn_of_affinity(
            f"{square[0]} is square, but no graph's matrix (symmetric, not negative, zero on its diagonal): "
            "taken for points (affinity='nearest_neighbors'); for a matrix of affinities set "
            "affinity='precomputed'"
        )
    return "precomputed" if graphs else "nearest_neighbors"


def _warn_of_affinity(message: str) -> None:
    warnings.warn(message, GraphWarning, stacklevel=6)


def _is_square(X: Any) -> bool:
    try:
        shape = X.shape if sp.issparse(X) else np.asarray(X).shape
    except ValueError:  # ragged lists: whoever checks the array says it better
        return False
    return len(shape) == 2 and shape[0] == shape[1] and shape[0] > 1


def _names_of_graphs(arrays: Mapping[str, Any]) -> list[str]:
    """Names of the arrays that hold graphs; beside a graph a square one of zeros is a layer without edges."""
    graphs = {name for name, X in arrays.items() if isinstance(X, Graph) or holds_graph(X)}
    if not graphs:
        return []
    return [name for name, X in arrays.items() if name in graphs or _is_square_of_zeros(X)]


def _is_square_of_zeros(X: Any) -> bool:
    if not _is_square(X):
        return False
    return X.nnz == 0 if sp.issparse(X) else not np.any(X)


def holds_graph(X: Any) -> bool:
    """Whether a matrix has the properties that the weights of a graph have, and points do not."""
    if not _is_square(X):
        return False
    if not sp.issparse(X):
        return _is_dense_graph(np.asarray(X))
    if X.dtype.kind not in "biuf" or not X.nnz:
        return False
    csr = sp.csr_array(X).astype(np.float64, copy=False)
    if not np.isfinite(csr.data).all():
        return True  # the graph's own check names the edge
    # directions are allowed in a sparse matrix: points are seldom sparse, square and zero on the diagonal
    if csr.data.min() >= 0 and not csr.diagonal().any():
        return True
    return bool(abs(csr - csr.T).max() <= ROUNDING * abs(csr).max())


def _is_dense_graph(X: Any) -> bool:
    if X.dtype.kind not in "biuf" or not X.any():
        return False
    finite = X[np.isfinite(X)] if X.dtype.kind == "f" else X
    if not finite.size or is_invalid(finite).any() or X.diagonal().any():
        return False
    both = np.isfinite(X) & np.isfinite(
        X.T
    )  # the rest is refused by the graph's own check: it names the edge
    values = np.where(both, X, 0).astype(np.float64)
    return bool(np.abs(values - values.T).max() <= ROUNDING * float(np.abs(finite).max()))


def _matrix_layers(X: Mapping[str, object] | Sequence[object]) -> FitInput:
    layers = list(X.values() if isinstance(X, Mapping) else X)
    graph = MultilayerGraph.from_layers(X)
    attributes = {"affinity_": "precomputed"}
    if any(isinstance(layer, Graph) for layer in layers):
        return FitInput(graph, attributes=attributes)
    arrays = [layer if sp.issparse(layer) else np.asarray(layer) for layer in layers]
    return FitInput(graph, makers=tuple(map(MatrixRows.of, arrays)), attributes=attributes)


def _from_path(model: Spectral, X: Any, columns: Mapping[str, str]) -> Graph | MultilayerGraph | None:
    """The graph of a file, or of several as layers; None for other things.

    A store is loaded where that fits ``memory_limit``, else streamed from the disk.
    """
    paths = [X] if isinstance(X, str | os.PathLike) else X
    if (
        not isinstance(paths, list | tuple)
        or not paths
        or not all(isinstance(x, str | os.PathLike) for x in paths)
    ):
        return None
    if len(paths) > 1 or not is_stored(paths[0]):
        return read_graph(*paths, **cast(dict[str, Any], dict(columns)))
    X = paths[0]
    n_nodes = open_store(X).n_nodes
    k = model._n_columns(n_nodes)
    k = FIRST_MAX_CLUSTERS if isinstance(k, str) else k
    return open_within(X, k, model.memory_limit, model.solver, model.engine)


def graph_of_edges(X: Any, columns: Mapping[str, str]) -> Graph | MultilayerGraph | None:
    """The graph of what ``fit`` was given, where it holds edges: a table, a list of pairs, a graph."""
    graph = graph_of_table(X, columns) or graph_of(X)
    if graph is not None:
        return graph
    if is_frame(X) and takes_for_edges(X):
        names = column_names(X)
        return from_frame(X, source=names[0], target=names[1])
    if isinstance(X, np.ndarray) and X.dtype.kind in "US" and X.ndim == 2:
        X = list(map(tuple, X.tolist()))
        if not is_list_of_pairs(X):
            raise GraphError(f"an array of texts of shape (..., {len(X[0])}): edges are two columns of ids")
    if not is_list_of_pairs(X):
        return None
    if not any(isinstance(end, str) for pair in X for end in pair[:2]):
        warnings.warn(
            "a list of tuples of whole numbers is taken for edges; for points give an array",
            GraphWarning,
            stacklevel=4,
        )
    return from_pairs(X)


def graph_of_table(X: object, columns: Mapping[str, str]) -> Graph | MultilayerGraph | None:
    """The graph of a table whose columns are named, or that cannot be one of points; None for others."""
    if columns and not is_frame(X):
        what = next(iter(columns))
        raise GraphError(f"{what}= names a column of an edge table, but X is of type {type(X).__name__}")
    if columns or (is_frame(X) and holds_texts(X)):
        return from_frame(X, **columns)
    return None


def check_matrix(X: object) -> Any:
    """Arrays as numpy wants them today, sparse ones checked before compiled code follows their indices."""
    X = from_tensor(X)
    if sp.issparse(X):
        check_structure(X)
    if isinstance(X, np.matrix):
        raise TypeError("np.matrix is not supported. Please convert to a numpy array with np.asarray(X)")
    return X


def _foreign_layers(X: Mapping[object, object] | Sequence[object]) -> MultilayerGraph | None:
    """Graphs and edge tables of other libraries, united by the names of their nodes; None for arrays."""
    named = X if isinstance(X, Mapping) else dict(enumerate(X))
    graphs = {str(name): _foreign_layer(layer) for name, layer in named.items()}
    single = {name: graph for name, graph in graphs.items() if isinstance(graph, Graph)}
    return MultilayerGraph.from_layers(single) if single and len(single) == len(graphs) else None


def _foreign_layer(layer: object) -> Graph | MultilayerGraph | None:
    if isinstance(layer, str | os.PathLike):
        return read_graph(layer)
    return from_pairs(layer) if is_list_of_pairs(layer) else graph_of(layer)


def check_affinity(affinity: Affinity) -> None:
    """Refuse a name that neither we nor scikit-learn's kernels know."""
    from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

    known = (*AFFINITIES, *(name for name in PAIRWISE_KERNEL_FUNCTIONS if name not in AFFINITIES))
    if not callable(affinity) and affinity not in known:
        raise ValueError(f"affinity={affinity!r}: expected one of {', '.join(known)}, or a function")


def _affinity(model: Spectral, affinity: Affinity, X: Any) -> tuple[Any, Graph, QueryAffinity]:
    """The matrix scikit-learn calls ``affinity_matrix_``, the graph of its edges, and how to ask it more."""
    if affinity == "nearest_neighbors":
        options = Wanted(n_neighbors_of(model, X), model.metric, recall=model.recall, n_jobs=model.n_jobs)
        graph, known = neighbour_graph(X, options, connect=True)
        return graph.matrix, graph, PointRows(known)
    if affinity == "precomputed_nearest_neighbors":
        graph = _graph_of_distances(model, X)
        return graph.matrix, graph, DistanceRows(n_neighbors_of(model, X), graph.n_nodes)
    kernel = kernel_matrix(model, X)
    return kernel, Graph.from_matrix(without_diagonal(kernel)), KernelRows(X)


def point_types(model: Spectral, affinity: Affinity) -> list[type[np.number]]:
    """Types of points that need no copy: a search by Euclidean distance takes small integers as they are."""
    searched = affinity == "nearest_neighbors" and model.metric in EUCLIDEAN
    return list(POINT_TYPES) if searched else [np.float64, np.float32]


def without_diagonal(matrix: Any) -> Any:
    """A copy without loops, quietly: that each point resembles itself is no flaw of the input."""
    edges = matrix.copy()
    if sp.issparse(edges):
        edges.setdiag(0)
    else:
        np.fill_diagonal(edges, 0)
    return edges


def n_neighbors_of(model: Spectral, X: Any) -> int:
    """Neighbours of each point: as asked for, else a tenth of the points."""
    n_points = int(X.shape[0])
    n_neighbors = max(n_points // 10, 1) if model.n_neighbors is None else model.n_neighbors
    return min(n_neighbors, n_points - 1)


def _neighbor_attributes(model: Spectral, affinity: Affinity, X: object) -> dict[str, object]:
    of_neighbors = affinity in ("nearest_neighbors", "precomputed_nearest_neighbors")
    return {"n_neighbors_": n_neighbors_of(model, X)} if of_neighbors else {}


def _graph_of_distances(model: Spectral, X: object) -> Graph:
    """The graph of the nearest neighbours by a matrix of distances."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=n_neighbors_of(model, X), metric="precomputed", n_jobs=model.n_jobs)
    near = search.fit(X).kneighbors_graph(X)  # as in scikit-learn, a point counts among its neighbours
    return Graph.from_matrix(without_diagonal((near + near.T) * HALF))


def kernel_matrix(model: Spectral, X: object, known: object = None) -> Any:
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
