"""Estimators of several layers over the same nodes."""

from __future__ import annotations

from dataclasses import dataclass

from spectrograd.estimators.base import Clusterer, Embedder
from spectrograd.estimators.layered import Layered


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
