"""The fitted attributes of an estimator: from a result of the pipeline, and beside the fit before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from spectrograd.estimators.affinity_rows import QueryAffinity
from spectrograd.estimators.inputs import FitInput
from spectrograd.estimators.out_of_sample import TrainingData, rotate
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.node_names import NodeRows, plain_texts
from spectrograd.labels.matching import LabelChanges, align_labels, rotation_onto
from spectrograd.labels.nearest_cluster import nearest_cluster
from spectrograd.notices import warn
from spectrograd.pipeline import Result, Settings
from spectrograd.pipeline.merge import Merged
from spectrograd.pipeline.out_of_sample import extension_of
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.estimators.base import Spectral

UPDATE_ATTRIBUTES = ("drift_", "update_action_", "refit_reason_", "refit_advised_")
# What an earlier fit, or an update after it, has left and the next one may not set.
FORGOTTEN_ATTRIBUTES = (
    "affinity_",
    "affinity_matrix_",
    "n_neighbors_",
    "label_changes_",
    "_gap_at_fit",
    "treatment_",
    *UPDATE_ATTRIBUTES,
)


# --- The last fit, so that clusters keep their names and columns their directions.


@dataclass(frozen=True, eq=False)
class PreviousFit:
    """The last fit.

    Attributes
    ----------
    names : array of shape (n_nodes,)
    embedding : array of shape (n_nodes, k)
    labels : array of shape (n_nodes,) or None
    named
        Whether nodes are matched by name; rows of arrays are matched by number, as long as that stays.
    grown
        Whether new nodes can only have come after the old ones.
    """

    names: Array
    embedding: Array
    labels: Array | None
    named: bool
    grown: bool = False

    @classmethod
    def of(cls, model: Spectral, *, grown: bool = False) -> PreviousFit | None:
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
            # by name: rows then, for the rows now; -1 for nodes that are new
            then = NodeRows(self.names).rows(names)
            return then[then >= 0], np.flatnonzero(then >= 0)
        if self.named != named or len(names) != len(self.names):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.arange(len(names)), np.arange(len(names))

    def rename_clusters(self, labels: Array, names: Array, named: bool) -> tuple[Array, LabelChanges | None]:
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


def warm_start(model: Spectral, n_nodes: int, n_components: int | str) -> Array | None:
    """The vectors of the last fit, where they are asked for and fit the problem."""
    previous: Array | None = getattr(model, "_raw_vectors", None)
    fits = previous is not None and previous.shape == (n_nodes, n_components)
    return previous if model.warm_start and fits else None


# --- Attributes.


def set_fit_attributes(
    model: Spectral, source: FitInput, result: Result, settings: Settings, previous: PreviousFit | None
) -> None:
    """Mutates model: every attribute that ``fit`` promises."""
    for name in FORGOTTEN_ATTRIBUTES:
        model.__dict__.pop(name, None)
    model.__dict__.update(source.attributes)
    model._float = source.dtype
    model.knn_recall_ = source.graph.recall
    set_result_attributes(model, source.graph, source.makers, result, settings, previous)


def set_result_attributes(
    model: Spectral,
    graph: Graph | MultilayerGraph,
    makers: Sequence[QueryAffinity] | None,
    result: Result,
    settings: Settings,
    previous: PreviousFit | None = None,
) -> None:
    """Mutates model: what a result of the pipeline tells, after ``fit`` as after ``partial_fit``.

    Parameters
    ----------
    model
    graph, result, settings
        The input and output of the pipeline.
    makers
        How arrays of new samples become weights; None for a model of a graph.
    previous
        The fit before, whose directions and cluster numbers go on.
    """
    # 1. the embedding, turned onto that of the last fit
    embedding = result.embedding.without_first() if model._drops_first else result.embedding
    names = result.embedding.names
    model.names_ = np.arange(len(result.vectors)) if names is None else plain_texts(names)
    named = makers is None
    model._rotation = None if previous is None else previous.rotation(embedding.vectors, model.names_, named)
    model.embedding_ = rotate(embedding.vectors, model._rotation).astype(model._float, copy=False)
    model.eigenvalues_ = embedding.eigenvalues
    # 2. how it was computed, and how good it is
    model.connectivity_ = result.connectivity
    model.excluded_ = model.names_[result.connectivity.excluded]
    model.regularization_ = result.regularization
    model.eigengap_ = result.eigengap
    if result.treatment is not None:
        model.treatment_ = result.treatment
    model.certificate_ = result.certificate
    model.converged_ = result.converged
    model.history_ = result.history
    model.attempts_ = result.attempts
    model.n_iter_ = result.history[-1].iteration
    model.solver_ = result.solver
    model.solver_reason_ = result.reason
    if result.merged is not None:
        model.__dict__.update(_layer_attributes(result.merged))
    # 3. clusters, under the numbers of the last fit
    clusters = None
    if result.labels is not None:
        labels = result.labels
        if previous is not None:
            labels, model.label_changes_ = previous.rename_clusters(labels, model.names_, named)
        model.__dict__.update(
            labels_=labels,
            n_clusters_=int(result.n_clusters or 0),
            membership_=result.membership,
            _cluster_verdict=result.judge,  # the verdict, once it was asked for
        )
        clusters = nearest_cluster(result.vectors, labels, result.norm_regularization, result.column_weights)
    # 4. for new nodes and changes of the graph
    model._raw_vectors = result.vectors
    model._multivector = result.multivector
    model._last_change = None  # the caller knows which change came last,
    model._store_seen = None  # and the fingerprint of the store that the graph was read from
    extension = extension_of(graph, result, settings)
    model._training_data = TrainingData(graph, extension, model.names_, makers, clusters)


def _layer_attributes(merged: Merged) -> dict[str, object]:
    """What estimators of several layers tell of each layer."""
    return {
        "_merged": merged,
        "_aggregation_choice": merged.chosen,
        "aggregation_": merged.chosen.aggregation,
        "aggregation_reason_": merged.chosen.reason,
        "layer_names_": merged.layer_names,
        "layer_weights_": merged.weights,
        "layer_embeddings_": [layer.embedding.vectors for layer in merged.layers],
        "layer_certificates_": [layer.certificate for layer in merged.layers],
        "layer_distances_": merged.distances if merged.layers else None,
    }


def warn_unless_converged(result: Result, settings: Settings) -> None:
    """Warn where the accuracy asked for was not reached, be it by a layer behind a merge."""
    if result.converged or not settings.has_goal:
        return
    remedy = "raise max_iter, time_budget or tol, or choose another solver or number of clusters"
    if result.certificate.mixed is not None and result.certificate.is_as_asked:
        return
    if result.certificate.gap <= 0:
        remedy = "another number of eigenvectors or clusters may suit the graph better"
    if result.certificate.converged:
        remedy = "the layers named have embeddings of their own that are rough, or one choice of many"
    warn(f"{result.certificate.sentence}; {remedy}", ConvergenceWarning)
