"""Estimators of several layers on the same nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from spectrograd.certificate import Certificate
from spectrograd.estimators.base import Clusterer, Embedder, Spectral
from spectrograd.estimators.inputs import as_layers
from spectrograd.estimators.parameter_docs import document_parameters
from spectrograd.estimators.settings import make_settings
from spectrograd.pipeline.aggregation_choice import AggregationChoice
from spectrograd.pipeline.layer_labels import cluster_layers, layer_agreement
from spectrograd.pipeline.layer_weights import LayerScores
from spectrograd.pipeline.merge import Merged
from spectrograd.pipeline.multilayer import layer_influence
from spectrograd.typing import Array


@dataclass(eq=False, repr=False, kw_only=True)
class Layered(Spectral):
    """What estimators of several layers add: how to merge, and what a fit can tell about each layer."""

    aggregation: str = "auto"
    alpha: float | str = "auto"
    layer_weights: Sequence[float] | str | None = None
    aggregation_params: Mapping[str, object] | None = None
    aggregation_: str = field(init=False)
    aggregation_reason_: str = field(init=False)
    layer_names_: tuple[str, ...] = field(init=False)
    layer_weights_: Array = field(init=False)
    layer_embeddings_: list[Array] = field(init=False)
    layer_certificates_: list[Certificate] = field(init=False)
    layer_distances_: Array | None = field(init=False)
    _merged: Merged = field(init=False)
    _aggregation_choice: AggregationChoice = field(init=False)
    _read = staticmethod(as_layers)

    @property
    def layer_scores_(self) -> LayerScores | None:
        """Structure, agreement and copies of each layer; None where the layers were not embedded.

        Computed when first asked for, unless ``layer_weights="auto"`` needed it.
        """
        if self._merged.scores is None and self._merged.layers:
            self._merged = self._merged.scored(make_settings(self, len(self.embedding_)).seed)
        return self._merged.scores

    def layer_influence(self) -> Array:
        """How far the merged subspace moves when each layer is left out, from 0 to 1.

        The layers' embeddings are reused; each number costs one merge.
        """
        check_is_fitted(self)
        return layer_influence(
            self._merged,
            self._raw_vectors.shape[1],
            make_settings(self, len(self.embedding_)),
            alpha=self.alpha,
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # several of them
        return tags


@document_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class MultilayerSpectralEmbedding(Embedder, Layered):
    """Embed the nodes that several layers share.

    Parameters come in four blocks: those that scikit-learn's estimators have as well, under the same
    names; then graph, solver and resources.

    Parameters
    ----------
    n_components : int
        Columns of the embedding.
    drop_first : bool
        Leave out the trivial first eigenvector.
    {parameters}

    Attributes
    ----------
    aggregation_, aggregation_reason_ : str
        The aggregation and why; with ``"auto"`` how much its clusters tell
        about the edges, and the next best.
    layer_embeddings_ : list of arrays (where the layers were embedded)
    layer_certificates_ : list of Certificate; ``converged_`` asks all those that are part of the merge
    layer_distances_ : pairwise projection distances of the layers (the same)
    layer_weights_ : array
    layer_scores_ : LayerScores: structure, strength, agreement, copies and noise of each layer
    layer_names_ : tuple of str

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralEmbedding, datasets
    >>> data = datasets.make_multilayer_gmm(400, 2, 3, random_state=0)
    >>> MultilayerSpectralEmbedding(3, random_state=0).fit_transform(data.graph).shape
    (400, 3)
    """


@document_parameters
@dataclass(eq=False, repr=False, kw_only=True)
class MultilayerSpectralClustering(Clusterer, Layered):
    """Cluster the nodes that several layers share.

    Parameters come in four blocks: those that scikit-learn's estimators have as well, under the same
    names; then graph, solver and resources.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" is the number before the largest eigengap, at most 60 (over a store 20); a warning says where
        no number is clear.
    n_components : int or None
        Columns of the embedding where they should differ from ``n_clusters``, for k-means.
    assign_labels : {"kmeans", "cluster_qr", "discretize"}
        How rows of the embedding become clusters.
    n_init : int
        Maximum number of starts of k-means; on larger graphs they end when two agree.
    {parameters}

    Attributes
    ----------
    labels_, membership_, cluster_verdict_, n_clusters_, eigengap_
        As of :class:`SpectralClustering`.
    aggregation_, aggregation_reason_, layer_embeddings_, layer_certificates_, layer_distances_,
    layer_weights_, layer_scores_, layer_names_
        As of :class:`MultilayerSpectralEmbedding`.
    layer_labels_ : array of shape (n_layers, n_nodes), or None
        Clusters of each layer by itself, under the names of the merged ones; -1 where it does not know a
        node.
    layer_agreement_ : array of shape (n_nodes,), or None
        Share of the layers that link a node which put it into its merged cluster.

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralClustering, datasets
    >>> data = datasets.make_multilayer_gmm(400, 3, 3, random_state=0)
    >>> model = MultilayerSpectralClustering(3, random_state=0).fit(data.graph)
    >>> len(model.labels_), len(model.layer_embeddings_)
    (400, 3)
    """

    @property
    def layer_labels_(self) -> Array | None:
        """Clusters of each layer by itself, computed when asked for; None where no layer was embedded."""
        check_is_fitted(self)
        if not self._merged.layers:
            return None
        seed = make_settings(self, len(self.embedding_)).seed
        return cluster_layers(self.layer_embeddings_, self.labels_, self.n_clusters_, seed)

    @property
    def layer_agreement_(self) -> Array | None:
        """Per node, the share of the layers that put it into its merged cluster, of those that link it."""
        own = self.layer_labels_
        return None if own is None else layer_agreement(own, self.labels_)
