"""Estimators of several layers over the same nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator

from spectrograd.aggregation.merge import Merged, merge
from spectrograd.estimators.base import Clusterer, Embedder, labels
from spectrograd.estimators.inputs import Affinity, as_layers
from spectrograd.graph import MultilayerGraph


@dataclass(eq=False, repr=False, kw_only=True)
class Layered(BaseEstimator):
    """What estimators of several layers add."""

    affinity: Affinity = "precomputed"
    aggregation: str = "projection"
    alpha: float | str = "auto"
    layer_weights: Sequence[float] | str | None = None
    aggregation_params: Mapping[str, Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # several of them
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class MultilayerSpectralEmbedding(Layered, Embedder):
    """Embed the nodes that several layers share.

    Parameters not named here are those of :class:`SpectralEmbedding`.

    Parameters
    ----------
    aggregation : {"projection", "mean", "power-mean", "geometric", "grassmann", "joint"}
        ``"projection"`` is the paper's Eq. 22: every layer is embedded first.
    alpha : float or "auto"
        Weight of the layers' subspaces in Eq. 22.
    layer_weights : sequence of float, "auto" or None
        How much each layer counts; None is equally, "auto" less for layers without structure or far
        from the rest.
    aggregation_params : mapping or None
        Options of the aggregation, such as ``{"p": -5}`` of ``"power-mean"``.

    Attributes
    ----------
    layer_embeddings_ : list of arrays (where the layers were embedded)
    layer_certificates_ : list of Certificate; ``converged_`` asks all of them
    layer_distances_ : pairwise projection distances of the layers (the same)
    layer_weights_ : array
    layer_scores_ : LayerScores, with ``layer_weights="auto"``
    layer_names_ : tuple of str

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralEmbedding, datasets
    >>> data = datasets.make_multilayer_gmm(400, 2, 3, random_state=0)
    >>> MultilayerSpectralEmbedding(3, random_state=0).fit_transform(data.graph).shape
    (400, 3)
    """

    def fit(self, X: Any, y: None = None) -> MultilayerSpectralEmbedding:
        """Embed a :class:`MultilayerGraph`, or a list or dict of layers."""
        graph = as_layers(self, X)
        n_columns = self._n_columns(graph.n_nodes)
        merged = _merge(self, graph, n_columns)
        self._keep(self._solve(merged.operator, n_columns, merged.result), self.drop_first)
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class MultilayerSpectralClustering(Layered, Clusterer):
    """Cluster the nodes that several layers share.

    Parameters are those of :class:`MultilayerSpectralEmbedding` and :class:`SpectralClustering`.

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralClustering, datasets
    >>> data = datasets.make_multilayer_gmm(400, 3, 3, random_state=0)
    >>> model = MultilayerSpectralClustering(3, random_state=0).fit(data.graph)
    >>> len(model.labels_), len(model.layer_embeddings_)
    (400, 3)
    """

    def fit(self, X: Any, y: None = None) -> MultilayerSpectralClustering:
        """Cluster a :class:`MultilayerGraph`, or a list or dict of layers."""
        graph = as_layers(self, X)
        n_columns = self._n_columns(graph.n_nodes)
        merged = _merge(self, graph, n_columns)
        self._keep(self._solve(merged.operator, n_columns, merged.result), False)
        self.labels_ = labels(self)
        return self


def _merge(model: Any, graph: MultilayerGraph, n_components: int) -> Merged:
    merged = merge(
        graph,
        n_components,
        model._settings(),
        laplacian=model.laplacian,
        aggregation=model.aggregation,
        alpha=model.alpha,
        layer_weights=model.layer_weights,
        aggregation_params=model.aggregation_params,
    )
    model.names_, model.layer_names_ = graph.node_names, graph.layer_names
    model.layer_weights_, model.layer_scores_ = merged.weights, merged.scores
    model.layer_embeddings_ = [layer.embedding.vectors for layer in merged.layers]
    model.layer_certificates_ = [layer.certificate for layer in merged.layers]
    model.layer_distances_ = merged.distances if merged.layers else None
    return merged
