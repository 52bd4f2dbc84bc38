"""Models that answer for nodes they have not seen: ``transform``, ``predict`` and how far to trust them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from spectrograd.estimators.questions import Question, asked_of_graph, asked_of_layers
from spectrograd.estimators.row_makers import PointRows, RowMaker
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.names import NodeRows
from spectrograd.labels.nearest_cluster import NearestCluster
from spectrograd.pipeline.extension import Extension
from spectrograd.pipeline.outliers import Remoteness, disagreement
from spectrograd.pipeline.store_changes import sampled_rows
from spectrograd.store import StoredGraph

Array = NDArray[Any]
UNKNOWN = -1  # the label of a node that no cluster can be found for


@dataclass(eq=False)
class Answer:
    """What the last ``transform`` or ``predict`` found beside its result."""

    scores: Array | None = None
    names: Array | None = None


class Found(NamedTuple):
    """Rows of new nodes (n_new, k), which are joined to known ones, and which training row each is."""

    vectors: Array
    reached: Array
    same: Array


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a fitted model keeps in order to answer for new nodes, and to be updated.

    ``makers`` tell how arrays of samples become weights, one per layer; None where ``fit`` was given a graph.
    """

    graph: Graph | MultilayerGraph
    extension: Extension | None
    names: Array
    makers: Sequence[RowMaker] | None = None
    clusters: NearestCluster | None = None
    answer: Answer = field(default_factory=Answer)

    @cached_property
    def rows_by_name(self) -> NodeRows:
        """Which row a name has."""
        return NodeRows(self.names)

    @cached_property
    def remoteness(self) -> Remoteness:
        """How far out the training rows themselves lie."""
        assert self.extension is not None
        part = self.extension.taking_part
        if self.makers is not None and len(self.makers) == 1 and isinstance(self.makers[0], PointRows):
            return Remoteness.of(self.makers[0].known.remoteness[part])
        if isinstance(self.graph, StoredGraph):
            rows = sampled_rows(self.graph)
            linked = np.asarray(rows.sum(axis=1)).ravel() > 0
            return Remoteness.of(self._disagreement([rows])[linked])
        layers = self.graph.layers if isinstance(self.graph, MultilayerGraph) else (self.graph,)
        return Remoteness.of(self._disagreement([layer.matrix for layer in layers])[part])

    def _disagreement(self, rows: Sequence[Any]) -> Array:
        assert self.extension is not None
        return disagreement(self.extension.vectors, rows, [layer.weight for layer in self.extension.layers])

    def rows(self, question: Question) -> Found:
        """Rows of the embedding for new nodes."""
        assert self.extension is not None
        found = self.extension.extend(question.rows)
        at = question.same >= 0
        vectors, reached = found.vectors, found.reached | at
        vectors[at] = self.extension.vectors[question.same[at]]
        self.answer.names = question.names
        statistic = question.remoteness
        if statistic is None:
            statistic = self._disagreement(question.rows.known)
        self.answer.scores = np.where(reached, self.remoteness.score(statistic), 1.0)
        return Found(vectors, reached, question.same)


def rotated(vectors: Array, rotation: Array | None) -> Array:
    """Rows (n, k) turned, each by itself to the last bit."""
    return vectors if rotation is None else np.einsum("ij,jk->ik", vectors, rotation)


class Living(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin of the four estimators: what they know of nodes they have not seen."""

    _knowledge: Knowledge
    _float: Any
    _rotation: Array | None

    def transform(self, X: Any) -> Array:
        """Rows of the embedding for new nodes or points, each by itself and without another solve.

        Parameters
        ----------
        X : as in ``fit``
            New points, of as many features; kernel or distance rows to the training points where the
            affinity is precomputed; or the edges of new nodes: a matrix of weights of shape
            (n_new, n_nodes), an edge table, a networkx or igraph graph or a :class:`Graph`, by names. Nodes
            that the model does not know are new, edges between known ones are not looked at; new nodes
            joined to new nodes only are reached by a few sweeps.

        Returns
        -------
        array of shape (n_new, n_components)
            In the order of X, or of ``new_names_``. Zero where no edge leads to a node that took part in
            ``fit``. A training sample gets its own row.
        """
        vectors = self._rows_for(X).vectors
        drop = vectors.shape[1] - self.embedding_.shape[1]
        return rotated(vectors[:, drop:], self._rotation).astype(self._float, copy=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model into a folder, in place of an earlier model; see :func:`spectrograd.load`.

        The folder holds arrays and JSON, and appears whole or not at all. The graph and, for points, the
        training points are part of it; ``history_`` and ``affinity_matrix_`` are not.
        """
        from spectrograd.estimators.saving import save_model

        check_is_fitted(self)
        save_model(self, path)

    def _rows_for(self, X: Any) -> Found:
        check_is_fitted(self)
        knowledge = self._knowledge
        if not knowledge.graph.is_resident and isinstance(knowledge.graph, MultilayerGraph):
            raise ValueError(
                "the layers of this model are on disk, where new nodes are not looked up: add them with "
                "partial_fit (spectrograd update), or fit the model in memory"
            )
        if knowledge.extension is None:
            raise ValueError(
                f"aggregation={self.aggregation!r} has no rows for new nodes: "
                "choose 'projection', 'mean', 'grassmann' or 'joint', or fit again"
            )
        return knowledge.rows(self._question(X))

    def _question(self, X: Any) -> Question:
        makers, names = self._knowledge.makers, self._knowledge.rows_by_name
        if isinstance(self._knowledge.graph, MultilayerGraph):
            return asked_of_layers(self, makers, names, self._knowledge.graph.layer_names, X)
        return asked_of_graph(self, None if makers is None else makers[0], names, X)

    @property
    def graph_(self) -> Graph | MultilayerGraph:
        """The graph of the model, as the last ``fit`` or ``partial_fit`` left it."""
        check_is_fitted(self)
        return self._knowledge.graph

    @property
    def outlier_score_(self) -> Array:
        """How far each row of the last ``transform`` or ``predict`` lies from the training data.

        Shape (n_new,): the share of training rows that lie less far out, uniform on [0, 1] for rows drawn
        like them. Of points, "far out" is the distance to the last neighbour over the mean of the
        neighbours' own; of nodes, how little their neighbours agree on a cluster.
        """
        return self._answered("scores")

    @property
    def new_names_(self) -> Array:
        """Names of the nodes of the last ``transform`` or ``predict``, in the order of its rows."""
        return self._answered("names")

    def _answered(self, what: str) -> Array:
        value: Array | None = getattr(getattr(self, "_knowledge", Answer()), "answer", Answer()).__dict__[
            what
        ]
        if value is None:
            raise AttributeError(f"there is an answer for new nodes after transform or predict only ({what})")
        return value


class LivingClusters(Living):
    """What clusterings add: labels of new nodes."""

    labels_: Array

    def predict(self, X: Any, *, outlier_quantile: float | None = None) -> Array:
        """Clusters of new nodes or points: the nearest cluster of each row of ``transform``.

        Parameters
        ----------
        X : as in ``transform``
        outlier_quantile : float in (0, 1], optional
            Rows whose ``outlier_score_`` reaches it get -1: 0.99 refuses what lies farther out than 99 % of
            the training data. Without it only rows get -1 that no edge joins to the training data.

        Returns
        -------
        array of shape (n_new,)
        """
        q = outlier_quantile
        if q is not None and not (isinstance(q, int | float) and 0 < q <= 1):
            raise ValueError(f"outlier_quantile={q!r}: expected a number above 0 and at most 1, or None")
        found, clusters = self._rows_for(X), self._knowledge.clusters
        assert clusters is not None
        labels = np.where(found.reached, clusters.labels(found.vectors), UNKNOWN)
        labels = np.where(found.same >= 0, self.labels_[found.same], labels)
        return labels if q is None else np.where(self.outlier_score_ >= q, UNKNOWN, labels)
