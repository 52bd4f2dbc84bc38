"""What the estimators of several layers share: the merge, and what it tells about each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from spectrograd.estimators.base import Clusterer, Embedder
from spectrograd.estimators.inputs import Affinity, as_layers
from spectrograd.pipeline.layer_weights import LayerScores
from spectrograd.pipeline.multilayer import Merged, layer_influence
from spectrograd.pipeline.settings import Settings
from spectrograd.typing import Array


@dataclass(eq=False, repr=False, kw_only=True)
class Layered(BaseEstimator):
    """What estimators of several layers add: how to merge, and what a fit can tell about each layer."""

    affinity: Affinity = "auto"
    aggregation: str = "projection"
    alpha: float | str = "auto"
    layer_weights: Sequence[float] | str | None = None
    aggregation_params: Mapping[str, Any] | None = None

    def fit(self, X: Any, y: None = None, **columns: str) -> Self:
        """Embed, or cluster, layers: a list or dict, a :class:`MultilayerGraph`, a table with a layer column.

        Parameters
        ----------
        X : MultilayerGraph, list, dict, or edge table
            Layers on the same nodes: graphs, affinity matrices (array or scipy sparse, n x n), arrays of
            points (n x features), lists of edges, or paths of files, by name in a dict; or an edge table
            (pandas, polars, pyarrow) with columns ``src``, ``dst`` and ``layer``. ``affinity="auto"`` tells
            matrices from points.
        y : None
            Not used; scikit-learn's pipelines pass it.
        **columns : str
            Columns of an edge table that go by other names (``source=``, ``target=``, ``weight=``,
            ``layer=``), as in ``from_frame``.

        Returns
        -------
        self
        """
        self._fit(as_layers(self, X, columns))
        return self

    def _settings(self, n_nodes: int) -> Settings:
        chosen: Settings = super()._settings(n_nodes)
        return replace(
            chosen,
            aggregation=self.aggregation,
            alpha=self.alpha,
            layer_weights=self.layer_weights,
            aggregation_params=self.aggregation_params or {},
        )

    def _keep_layers(self, merged: Merged) -> None:
        self._merged = merged
        self.layer_names_, self.layer_weights_ = merged.layer_names, merged.weights
        self.layer_embeddings_ = [layer.embedding.vectors for layer in merged.layers]
        self.layer_certificates_ = [layer.certificate for layer in merged.layers]
        self.layer_distances_ = merged.distances if merged.layers else None

    @property
    def layer_scores_(self) -> LayerScores | None:
        """Structure, agreement and copies of each layer; None where the layers were not embedded.

        Computed when first asked for, unless ``layer_weights="auto"`` needed it.
        """
        if self._merged.scores is None and self._merged.layers:
            self._merged = self._merged.scored(self._fitted_settings().seed)
        return self._merged.scores

    def layer_influence(self) -> Array:
        """How far the merged subspace moves when each layer is left out, from 0 to 1.

        The layers' embeddings are reused; each number costs one merge.
        """
        check_is_fitted(self)
        return layer_influence(
            self._merged,
            self._raw_vectors.shape[1],
            self._fitted_settings(),
            aggregation=self.aggregation,
            alpha=self.alpha,
            aggregation_params=self.aggregation_params,
        )

    def _fitted_settings(self) -> Settings:
        return self._settings(len(self.embedding_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # several of them
        return tags


# --- Estimators of several layers over the same nodes.


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
    regularization : float, "auto" or None
        A number is added to every layer, in units of its mean degree; "auto" adds nothing here.
    disconnected : {"components", "regularize", "largest", "error"}
        Components are those of all layers together.
    layer_weights : sequence of float, "equal" (or None) or "auto"
        How much each layer counts; "auto" is not at all for noise, and less for weak layers
        and for those about other clusters than the rest.
    aggregation_params : mapping or None
        Options of the aggregation, such as ``{"p": -5}`` of ``"power-mean"``.

    Attributes
    ----------
    layer_embeddings_ : list of arrays (where the layers were embedded)
    layer_certificates_ : list of Certificate; ``converged_`` asks all of them
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
