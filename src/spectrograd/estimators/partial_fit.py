"""Graphs of points that get more of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from spectrograd.certificate import Certificate
from spectrograd.certificate.edge_insertion import EdgeInsertionBound
from spectrograd.estimators.affinity_rows import KernelRows, PointRows, QueryAffinity
from spectrograd.estimators.convergence import warn_unless_converged
from spectrograd.estimators.inputs import graph_of_table, kernel_matrix, without_diagonal
from spectrograd.estimators.out_of_sample import TrainingData
from spectrograd.graph import Graph, GraphError, MultilayerGraph
from spectrograd.graph.components import Connectivity
from spectrograd.graph.node_names import NodeRows
from spectrograd.io import graph_of
from spectrograd.labels.assign import Clustering
from spectrograd.labels.matching import LabelChanges, align_labels, rotation_onto
from spectrograd.labels.nearest_cluster import followed
from spectrograd.operators.laplacian import Kind, Regularization
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
from spectrograd.pipeline.update import FAR, Before, Updated, bound_after_insertion, refit_reason, update
from spectrograd.typing import Array


class Grown(NamedTuple):
    """The graph with its new points, their rows (n_new, n_old), and a maker that knows all points."""

    graph: Graph
    rows: sp.csr_array
    maker: QueryAffinity


def more_points(model: Any, maker: QueryAffinity, graph: Graph, new: Any) -> Grown:
    """Join new points to a graph of points.

    Old neighbours stay neighbours: who among the old points would now choose a new one is not asked, since
    that would change what they have chosen before.
    """
    if not isinstance(maker, PointRows | KernelRows):
        raise ValueError("partial_fit takes points, or edges; a matrix of another size has to be fitted anew")
    if isinstance(maker, KernelRows):
        points = (sp.vstack if sp.issparse(maker.points) else np.vstack)([maker.points, new])
        grown = Graph.from_matrix(without_diagonal(kernel_matrix(model, points)))
        return Grown(grown, maker(model, new).weights, KernelRows(points))
    asked = maker.known.ask(new)
    rows = asked.weights
    matrix = sp.csr_array(sp.block_array([[graph.matrix, rows.T], [rows, None]], format="csr"))
    return Grown(Graph._from_clean_csr(matrix, None), rows, PointRows(maker.known.with_more(new, asked)))


# --- What a model remembers of its last fit, so that clusters keep their names and columns their directions.


@dataclass(frozen=True, eq=False)
class PreviousFit:
    """The last fit.

    Attributes
    ----------
    names : array of shape (n_nodes,)
    embedding : array of shape (n_nodes, k)
    labels : array of shape (n_nodes,) or None
    named
        Whether names tell who a node is; rows of arrays are told by their number, as long as it stays.
    grown
        Whether new nodes can only have come after the old ones.
    """

    names: Array
    embedding: Array
    labels: Array | None
    named: bool
    grown: bool = False

    @classmethod
    def of(cls, model: Any, *, grown: bool = False) -> PreviousFit | None:
        """What a fitted model leaves behind; None before its first fit."""
        if not hasattr(model, "_training_data"):
            return None
        labels = getattr(model, "labels_", None)
        return cls(model.names_, model.embedding_, labels, model._training_data.makers is None, grown)

    def common(self, names: Array, named: bool) -> tuple[Array, Array]:
        """Row numbers then and now of the nodes that both fits know."""
        if self.grown:
            return np.arange(len(self.names)), np.arange(len(self.names))
        if self.named and named:
            then = NodeRows(self.names).rows(names)
            return then[then >= 0], np.flatnonzero(then >= 0)
        if self.named != named or len(names) != len(self.names):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.arange(len(names)), np.arange(len(names))

    def renamed(self, labels: Array, names: Array, named: bool) -> tuple[Array, LabelChanges | None]:
        """New labels under the old names, and what became of the clusters."""
        then, now = self.common(names, named)
        if self.labels is None or not len(then):
            return labels, None
        return align_labels(self.labels[then], labels[now], labels)

    def rotation(self, embedding: Array, names: Array, named: bool) -> Array | None:
        """What turns a new embedding onto the old one; None where they do not compare."""
        then, now = self.common(names, named)
        if embedding.shape[1] != self.embedding.shape[1] or len(then) < embedding.shape[1]:
            return None
        return rotation_onto(self.embedding[then], embedding[now])


# --- ``partial_fit``: a model that follows its graph.

UPDATE_ATTRIBUTES = ("drift_", "update_action_", "refit_reason_", "refit_advised_")


class Changed(NamedTuple):
    """The graph after a change, the rows of new nodes, and makers that know new points.

    ``complement_bound`` is what the last certificate still says of the rest of the spectrum; ``digest`` is
    that of the changed edges.
    """

    graph: Graph | MultilayerGraph
    rows: NewRows | None
    makers: Sequence[QueryAffinity] | None
    complement_bound: EdgeInsertionBound | None = None
    digest: str | None = None


class Fitted(Protocol):
    """What updating asks of the estimator that it is a part of."""

    _training_data: TrainingData
    _raw_vectors: Array
    certificate_: Certificate
    regularization_: Regularization
    connectivity_: Connectivity
    laplacian: Kind
    n_clusters_: int
    labels_: Array
    _last_change: str | None

    def fit(self, X: Any, y: None = None, **columns: str) -> Self:
        """Fit from scratch."""
        ...

    def _settings(self, n_nodes: int) -> Settings: ...

    def _keep(
        self,
        graph: Graph | MultilayerGraph,
        result: Result,
        settings: Settings,
        drop_first: bool,
        previous: Any,
    ) -> None: ...


class PartialFitMixin(Fitted):
    """Mixin of the four estimators: their answer to a graph that changes."""

    def partial_fit(
        self,
        X: Any = None,
        y: None = None,
        *,
        remove: Any = None,
        mode: str = "add",
        new_nodes: str = "create",
    ) -> Self:
        """Take changes of the graph into the model; the first call, before any ``fit``, is a ``fit``.

        The embedding is corrected where that is enough to meet the certificate again, and solved with it as
        a start where it is not. Clusters keep their numbers and the embedding its directions.

        Parameters
        ----------
        X : edges, or new points
            An edge table, a networkx or igraph graph or a :class:`Graph`, by names (several layers: with a
            column ``layer``); or an n x n matrix in the order of the nodes. Of a model of points: further
            points; each is joined to its neighbours among the old ones (or to all, by a kernel).
        y : ignored
        remove : as X, optional
            Edges to take away; each must be there.
        mode : {"add", "set"}
            Whether weights are added to those that are there, or take their place.
        new_nodes : {"create", "refuse"}
            What to do with nodes that the model does not know.

        Returns
        -------
        self
            With ``drift_`` (sine of the angle between the subspaces before and after), ``label_changes_``,
            ``update_action_`` ("kept", "warm start" or "refit"), ``refit_advised_`` and ``refit_reason_``.
        """
        if not hasattr(self, "_training_data"):
            return self.fit(X)
        self._update(X, remove, mode, new_nodes)
        return self

    def _update(self, X: Any, remove: Any, mode: Any, new_nodes: Any) -> Result:
        """Take changes into a fitted model; the result behind what it keeps, with the labels it gave."""
        return self._follow(self._changed(X, remove, mode, new_nodes))

    def _follow_store(self, changes: EdgeChanges) -> Result:
        """Take the graph on disk as it is into a model that was saved before these last changes of it."""
        known = self._training_data
        rows = _new_rows(known.graph, len(self._raw_vectors))
        return self._follow(Changed(known.graph, rows, known.makers, None, changes.digest))

    def _follow(self, changed: Changed) -> Result:
        graph, rows, makers, complement_bound, digest = changed
        settings = replace(
            self._settings(graph.n_nodes),
            n_components=self._raw_vectors.shape[1],
            checkpoint=None,  # a folder belongs to the graph of the fit
        )
        before = Before(self.regularization_, self.certificate_.gap, complement_bound)
        settings = settings.started(labels=hasattr(self, "labels_"))
        done = update(graph, self._start(graph, rows), settings, before)
        result = self._take(graph, done, settings, makers)
        self._last_change = digest
        return result

    def _changed(self, X: Any, remove: Any, mode: Any, new_nodes: Any) -> Changed:
        """Take edges or points into the graph."""
        known = self._training_data
        edges = None if X is None else _edges(X, known.graph)
        if X is not None and edges is None:
            return self._with_points(X)
        changes = EdgeChanges(
            edges, None if remove is None else _removed(remove, known.graph), mode, new_nodes
        )
        graph: Graph | MultilayerGraph
        if not known.graph.is_resident:
            graph = changed_store(known.graph, changes)
        elif isinstance(known.graph, MultilayerGraph):
            graph = changed_layers(known.graph, changes)
        else:
            graph = changed_graph(known.graph, changes)
        rows = _new_rows(graph, known.graph.n_nodes)
        if graph.is_resident or len(self.connectivity_.excluded):  # in memory a probe is cheap
            return Changed(graph, rows, known.makers, None, changes.digest)
        problem = self.laplacian, self.regularization_.tau
        complement_bound = bound_after_insertion(self.certificate_, known.graph, graph, changes, problem)
        return Changed(graph, rows, known.makers, complement_bound, changes.digest)

    def _with_points(self, X: Any) -> Changed:
        """Further points, joined to the old ones."""
        known, several = self._training_data, isinstance(self._training_data.graph, MultilayerGraph)
        if known.makers is None or (several and not isinstance(X, list | tuple)):
            raise GraphError("partial_fit takes edges: a table, a graph, or a square matrix of all nodes")
        kinds = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
        views = (
            [check_array(view, **kinds) for view in X]
            if several
            else [validate_data(self, X, reset=False, **kinds)]
        )
        grown = [
            more_points(self, maker, layer, view)
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

    def _start(self, graph: Graph | MultilayerGraph, rows: NewRows | None) -> Array | None:
        """The old vectors, with rows for nodes that are new or were excluded; None where there are none."""
        old, extension = self._raw_vectors, self._training_data.extension
        if not graph.is_resident:
            return _with_averages(old, rows)
        if extension is None:
            return old if rows is None else None
        unknown = np.flatnonzero(np.append(~extension.active, np.ones(graph.n_nodes - len(old), bool)))
        if not len(unknown):
            return old
        start = np.vstack([old, np.zeros((graph.n_nodes - len(old), old.shape[1]), old.dtype)])
        edges = [sp.csr_array(layer.matrix[unknown]) for layer in graph.layers]
        asked = NewRows(
            tuple(part[:, : len(old)] for part in edges), tuple(part[:, unknown] for part in edges)
        )
        start[unknown] = extension.extend(asked).vectors
        return start

    def _take(self, graph: Graph | MultilayerGraph, done: Updated, settings: Settings, makers: Any) -> Result:
        previous = PreviousFit.of(self, grown=True)
        assert previous is not None
        gap = getattr(self, "_gap_at_fit", None) or self._safe_gap()
        result = done.result
        if previous.labels is not None:
            result = self._labelled(result, done.drift, previous, settings)
        self._makers = makers
        self._keep(graph, result, settings, getattr(self, "drop_first", False), previous)
        self._gap_at_fit, self.drift_, self.update_action_ = gap, done.drift, done.action
        self.refit_reason_ = refit_reason(result, gap, done.drift)
        self.refit_advised_ = bool(self.refit_reason_)
        warn_unless_converged(result, settings)
        return result if previous.labels is None else replace(result, labels=self.labels_)

    def _safe_gap(self) -> float:
        """The gap of the fit for later comparison; over a store its lower bound, the estimate being rough."""
        known = self.certificate_
        return known.gap if self._training_data.graph.is_resident else known.gap_bound

    def _labelled(self, result: Result, drift: float, previous: PreviousFit, settings: Settings) -> Result:
        """Clusters that moved a little are followed; others are found anew."""
        assert previous.labels is not None
        streamed = result.operator.is_streamed  # where so many rows are labelled by a sample of them
        if drift > FAR or streamed or settings.assign_labels != "kmeans":
            return label(result, settings)
        before = np.full(len(result.vectors), -1)
        before[: len(previous.labels)] = previous.labels
        excluded = result.connectivity.excluded
        moved = followed(result.vectors, before, result.norm_regularization, excluded)
        clustering = Clustering(moved, int(self.n_clusters_), "kmeans", None, 0.0)
        return finish_labels(result.labelled(clustering), settings)

    @property
    def update_sentence_(self) -> str:
        """What the last ``partial_fit`` did, in plain words."""
        told = [f"{self.update_action_}: the subspace moved by an angle of sine {self.drift_:.2g}"]
        changes = getattr(self, "label_changes_", None)
        told += [changes.sentence] if changes is not None else []
        told += [f"a refit is advised: {self.refit_reason_}"] if self.refit_advised_ else []
        return "; ".join(told)


def _edges(X: Any, graph: Graph | MultilayerGraph) -> Graph | MultilayerGraph | None:
    """Changes as a graph; None where X holds points."""
    given = graph_of_table(X, {}) or graph_of(X)
    if given is not None:
        return given
    square = getattr(X, "shape", None) == (graph.n_nodes, graph.n_nodes)
    return Graph.from_matrix(X, names=graph.node_names) if square and isinstance(graph, Graph) else None


def _removed(X: Any, graph: Graph | MultilayerGraph) -> Graph | MultilayerGraph:
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
