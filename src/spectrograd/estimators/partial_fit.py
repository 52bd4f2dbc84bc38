"""``partial_fit``: a fitted estimator takes in changes of its graph, or further points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from spectrograd.aggregation import AUTO
from spectrograd.certificate.edge_insertion import EdgeInsertionBound
from spectrograd.estimators.affinity_rows import KernelRows, PointRows, QueryAffinity
from spectrograd.estimators.fitted import PreviousFit, set_result_attributes, warn_unless_converged
from spectrograd.estimators.inputs import graph_of_table, kernel_matrix, without_diagonal
from spectrograd.estimators.settings import make_context, make_settings
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.validation import accept_signs
from spectrograd.io import graph_of
from spectrograd.labels.assign import Clustering
from spectrograd.labels.nearest_cluster import follow_clusters
from spectrograd.operators.laplacian import is_signed_kind
from spectrograd.pipeline.aggregation_choice import AggregationChoice
from spectrograd.pipeline.edge_changes import (
    EdgeChanges,
    changed_graph,
    changed_layers,
    changed_store,
    last_rows,
)
from spectrograd.pipeline.out_of_sample import NewRows
from spectrograd.pipeline.result import Result
from spectrograd.pipeline.run import finish_labels, label
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.treatment import after_update
from spectrograd.pipeline.update import (
    MAX_DRIFT,
    Before,
    Updated,
    bound_after_insertion,
    refit_reason,
    update,
)
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.estimators.base import Spectral


class Grown(NamedTuple):
    """The graph with its new points, their rows (n_new, n_old), and a maker that knows all points."""

    graph: Graph
    rows: sp.csr_array
    maker: QueryAffinity


def more_points(model: Spectral, maker: QueryAffinity, graph: Graph, new: Any) -> Grown:
    """Join new points to a graph of points.

    Old neighbours stay neighbours: who among the old points would now choose a new one is not asked, since
    that would change what they have chosen before.
    """
    if not isinstance(maker, PointRows | KernelRows):
        raise ValueError("partial_fit takes points, or edges; a matrix of another size has to be fitted anew")
    if isinstance(maker, KernelRows):
        # a kernel joins all points to each other: the graph is made anew
        points = (sp.vstack if sp.issparse(maker.points) else np.vstack)([maker.points, new])
        grown = Graph.from_matrix(without_diagonal(kernel_matrix(model, points)))
        return Grown(grown, maker(model, new).weights, KernelRows(points))
    asked = maker.known.ask(new)
    rows = asked.weights
    # [[W, R'], [R, 0]]: new points are joined to old ones only
    matrix = sp.csr_array(sp.block_array([[graph.matrix, rows.T], [rows, None]], format="csr"))
    return Grown(Graph._from_clean_csr(matrix, None), rows, PointRows(maker.known.with_more(new, asked)))


# --- ``partial_fit``: a model that follows its graph.


class Changed(NamedTuple):
    """The graph after a change, the rows of new nodes, and makers that know new points.

    ``complement_bound`` is what the last certificate still says of the rest of the spectrum; ``digest`` is
    that of the changed edges.
    """

    # 2. the graph with its changes, on disk or in memory
    graph: Graph | MultilayerGraph
    rows: NewRows | None
    makers: Sequence[QueryAffinity] | None
    complement_bound: EdgeInsertionBound | None = None
    digest: str | None = None


def update_model(model: Spectral, X: object, remove: object, mode: object, new_nodes: object) -> Result:
    """Take changes into a fitted model; the result behind what it keeps, with the labels it gave."""
    return _follow(model, _change(model, X, remove, mode, new_nodes))


def follow_store(model: Spectral, changes: EdgeChanges) -> Result:
    """Take the graph on disk as it is into a model that was saved before these last changes of it."""
    known = model._training_data
    rows = _new_rows(known.graph, len(model._raw_vectors))
    return _follow(model, Changed(known.graph, rows, known.makers, None, changes.digest))


def _follow(model: Spectral, changed: Changed) -> Result:
    graph, rows, makers, complement_bound, digest = changed
    settings = replace(
        make_settings(model, graph.n_nodes),
        n_components=model._raw_vectors.shape[1],
        n_clusters=getattr(model, "n_clusters_", None),
    )
    context = replace(make_context(model), checkpoint=None)  # a folder belongs to the graph of the fit
    # 1. what outlives the change: aggregation, regularisation, gap, a bound on the rest of the spectrum
    chosen = _kept_choice(model)
    if chosen is not None:
        settings = chosen.as_settings(settings, len(graph.layers))
    before = Before(model.regularization_, model.certificate_.gap, complement_bound)
    context = context.start_clock(settings, labels=hasattr(model, "labels_"))
    # 2. correct, solve from the old vectors, or solve anew
    done = update(graph, _start(model, graph, rows), settings, context, before)
    if chosen is not None and done.result.merged is not None:
        merged = replace(done.result.merged, chosen=chosen)
        done = replace(done, result=replace(done.result, merged=merged))
    # 3. fitted attributes
    result = _set_update_attributes(model, graph, done, settings, context, makers)
    model._last_change = digest
    return result


def _kept_choice(model: Spectral) -> AggregationChoice | None:
    """The aggregation that ``"auto"`` chose at the fit, which a change of the graph does not undo."""
    chosen: AggregationChoice | None = getattr(model, "_aggregation_choice", None)
    return chosen.kept() if chosen is not None and getattr(model, "aggregation", "") == AUTO else None


def _change(model: Spectral, X: object, remove: object, mode: Any, new_nodes: Any) -> Changed:
    """Take edges or points into the graph."""
    known = model._training_data
    with accept_signs(is_signed_kind(model.laplacian)):
        # 1. the changes as graphs; where X holds none, it holds points
        edges = None if X is None else _edges(X, known.graph)
        removed = None if remove is None else _edges_to_remove(remove, known.graph)
    if X is not None and edges is None:
        return _add_points(model, X)
    changes = EdgeChanges(edges, removed, mode, new_nodes)
    graph: Graph | MultilayerGraph
    if not known.graph.is_resident:
        graph = changed_store(known.graph, changes)
    elif isinstance(known.graph, MultilayerGraph):
        graph = changed_layers(known.graph, changes)
    else:
        graph = changed_graph(known.graph, changes)
    # 3. edges of new nodes, and what the last certificate still says
    rows = _new_rows(graph, known.graph.n_nodes)
    if len(model.connectivity_.excluded):
        return Changed(graph, rows, known.makers, None, changes.digest)
    problem = model.laplacian, model.regularization_.tau
    complement_bound = bound_after_insertion(model.certificate_, known.graph, graph, changes, problem)
    return Changed(graph, rows, known.makers, complement_bound, changes.digest)


def _add_points(model: Spectral, X: Any) -> Changed:
    """Further points, joined to the old ones."""
    known = model._training_data
    several = isinstance(known.graph, MultilayerGraph)
    if known.makers is None or (several and not isinstance(X, list | tuple)):
        raise GraphError("partial_fit takes edges: a table, a graph, or a square matrix of all nodes")
    kinds = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
    views = (
        [check_array(view, **kinds) for view in X]
        if several
        else [validate_data(model, X, reset=False, **kinds)]
    )
    grown = [
        more_points(model, maker, layer, view)
        for maker, layer, view in zip(known.makers, known.graph.layers, views, strict=True)
    ]
    rows = NewRows(tuple(part.rows for part in grown))
    graphs = tuple(part.graph for part in grown)
    graph = (
        MultilayerGraph(graphs, known.graph.layer_names)
        if isinstance(known.graph, MultilayerGraph)
        else graphs[0]
    )
    return Changed(graph, rows, tuple(part.maker for part in grown))


def _start(model: Spectral, graph: Graph | MultilayerGraph, rows: NewRows | None) -> Array | None:
    """The old vectors, with rows for nodes that are new or were excluded; None where there are none."""
    old = model._raw_vectors
    extension = model._training_data.extension
    if not graph.is_resident:
        return _with_averages(old, rows)
    if extension is None:
        return old if rows is None else None
    # rows that were excluded, and rows of new nodes: extended from their edges (Bengio et al. 2004)
    unknown = np.flatnonzero(np.append(~extension.active, np.ones(graph.n_nodes - len(old), bool)))
    if not len(unknown):
        return old
    start = np.vstack([old, np.zeros((graph.n_nodes - len(old), old.shape[1]), old.dtype)])
    edges = [sp.csr_array(layer.matrix[unknown]) for layer in graph.layers]
    asked = NewRows(tuple(part[:, : len(old)] for part in edges), tuple(part[:, unknown] for part in edges))
    start[unknown] = extension.extend(asked).vectors
    return start


def _set_update_attributes(
    model: Spectral,
    graph: Graph | MultilayerGraph,
    done: Updated,
    settings: Settings,
    context: RunContext,
    makers: Any,
) -> Result:
    """Mutates model: the attributes of ``fit`` after the change, and those that describe the change."""
    previous = PreviousFit.of(model, grown=True)
    assert previous is not None
    gap_at_fit = getattr(model, "_gap_at_fit", None) or _safe_gap(model)
    result = done.result
    if previous.labels is not None:
        result = _update_labels(model, done, previous, settings, context)
    set_result_attributes(model, graph, makers, result, settings, previous)
    model._gap_at_fit = gap_at_fit
    model.drift_ = done.drift
    model.update_action_ = done.action
    model.refit_reason_ = refit_reason(result, gap_at_fit, done.drift) or _doubt_of_aggregation(result)
    model.refit_advised_ = bool(model.refit_reason_)
    if result.interrupted:
        raise KeyboardInterrupt
    warn_unless_converged(result, settings)
    return result if previous.labels is None else replace(result, labels=model.labels_)


def _doubt_of_aggregation(result: Result) -> str:
    """Why an aggregation that was chosen by evidence should be chosen anew; empty where not."""
    merged = result.merged
    if merged is None or merged.inputs is None or result.labels is None:
        return ""
    return merged.chosen.doubt(merged.inputs, result.labels[result.rows])


def _safe_gap(model: Spectral) -> float:
    """The gap of the fit for later comparison; over a store its lower bound, the estimate being rough."""
    known = model.certificate_
    return known.gap if model._training_data.graph.is_resident else known.gap_bound


def _update_labels(
    model: Spectral, done: Updated, previous: PreviousFit, settings: Settings, context: RunContext
) -> Result:
    """Clusters that moved a little are followed; others are found anew."""
    assert previous.labels is not None
    result = replace(done.result, treatment=after_update(getattr(model, "treatment_", None), done.result))
    streamed = result.operator.is_streamed  # where so many rows are labelled by a sample of them
    if done.drift > MAX_DRIFT or streamed or settings.assign_labels != "kmeans":
        return label(result, settings, context)
    before = np.full(len(result.vectors), -1)
    before[: len(previous.labels)] = previous.labels
    excluded = result.connectivity.excluded
    weights = result.column_weights
    moved = follow_clusters(result.vectors, before, result.norm_regularization, excluded, weights)
    clustering = Clustering(moved, int(model.n_clusters_), "kmeans", None, 0.0)
    return finish_labels(result.labelled(clustering), settings, context)


def update_sentence(model: Spectral) -> str:
    """What the last ``partial_fit`` did, in plain words."""
    parts = [f"{model.update_action_}: the subspace moved by an angle of sine {model.drift_:.2g}"]
    changes = getattr(model, "label_changes_", None)
    parts += [changes.sentence] if changes is not None else []
    parts += [f"a refit is advised: {model.refit_reason_}"] if model.refit_advised_ else []
    return "; ".join(parts)


def _edges(X: object, graph: Graph | MultilayerGraph) -> Graph | MultilayerGraph | None:
    """Changes as a graph; None where X holds points."""
    given = graph_of_table(X, {}) or graph_of(X)
    if given is not None:
        return given
    square = getattr(X, "shape", None) == (graph.n_nodes, graph.n_nodes)
    return Graph.from_matrix(X, names=graph.node_names) if square and isinstance(graph, Graph) else None


def _edges_to_remove(X: object, graph: Graph | MultilayerGraph) -> Graph | MultilayerGraph:
    edges = _edges(X, graph)
    if edges is None:
        raise GraphError("remove: expected edges, as a table, a graph or a square matrix of all nodes")
    return edges


def _with_averages(old: Array, rows: NewRows | None) -> Array:
    """Vectors (n, k) with rows for new nodes: the means of their known neighbours, which is a start."""
    if rows is None:
        return old
    edges = sum(rows.known[1:], start=rows.known[0])
    degrees = np.asarray(edges.sum(axis=1)).reshape(-1, 1)
    return np.vstack([old, edges @ old / np.where(degrees > 0, degrees, 1)]).astype(old.dtype)


def _new_rows(graph: Graph | MultilayerGraph, n_old: int) -> NewRows | None:
    """Edges of the nodes that came last."""
    if graph.n_nodes == n_old:
        return None
    rows = [last_rows(layer, n_old) for layer in graph.layers]
    return NewRows(tuple(part[:, :n_old] for part in rows), tuple(part[:, n_old:] for part in rows))
