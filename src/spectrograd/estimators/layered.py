"""What the estimators of several layers share: the merge, and what it tells about each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from spectrograd.estimators.inputs import Affinity
from spectrograd.graph import MultilayerGraph
from spectrograd.graph.pieces import on_all_rows
from spectrograd.pipeline.layer_influence import layer_influence
from spectrograd.pipeline.layer_preparation import treat
from spectrograd.pipeline.layer_weights import LayerScores
from spectrograd.pipeline.multilayer import Merged, merge
from spectrograd.pipeline.single import Treatment, with_all_nodes
from spectrograd.pipeline.solving import Embedded

Array = NDArray[Any]


@dataclass(eq=False, repr=False, kw_only=True)
class Layered(BaseEstimator):
    """What estimators of several layers add: how to merge, and what a fit can tell about each layer."""

    affinity: Affinity = "precomputed"
    aggregation: str = "projection"
    alpha: float | str = "auto"
    layer_weights: Sequence[float] | str | None = None
    aggregation_params: Mapping[str, Any] | None = None

    def _fit_layers(self, graph: MultilayerGraph, n_components: int | str) -> Embedded:
        settings = self._settings()
        treatment = Treatment(self.laplacian, self.regularization, self.disconnected)
        treated = treat(graph, n_components, settings, treatment)
        merged: Merged = merge(
            treated.graph,
            treated.n_components,
            settings,
            laplacian=self.laplacian,
            aggregation=self.aggregation,
            alpha=self.alpha,
            layer_weights=self.layer_weights,
            aggregation_params=self.aggregation_params,
            tau=treated.regularization.tau,
        )
        self.names_, self.layer_names_ = graph.node_names, graph.layer_names
        self.regularization_, self.eigengap_ = treated.regularization, treated.eigengap
        self._keep_connectivity(treated.connectivity, graph.node_names)
        rows = (treated.connectivity.kept, graph.n_nodes)
        self._keep_layers(merged, rows)
        result = self._solve(merged.operator, treated.n_components, merged.result)
        return with_all_nodes(result, graph.names, *rows)

    def _keep_layers(self, merged: Merged, rows: tuple[Array, int]) -> None:
        self._merged = merged
        self.layer_weights_ = merged.weights
        self.layer_embeddings_ = [on_all_rows(layer.embedding.vectors, *rows) for layer in merged.layers]
        self.layer_certificates_ = [layer.certificate for layer in merged.layers]
        self.layer_distances_ = merged.distances if merged.layers else None

    @property
    def layer_scores_(self) -> LayerScores | None:
        """Structure, agreement and copies of each layer; None where the layers were not embedded.

        Computed when first asked for, unless ``layer_weights="auto"`` needed it.
        """
        if self._merged.scores is None and self._merged.layers:
            self._merged = self._merged.scored(self._settings().seed)
        return self._merged.scores

    def layer_influence(self) -> Array:
        """How far the merged subspace moves when each layer is left out, from 0 to 1.

        The layers' embeddings are reused; each number costs one merge.
        """
        check_is_fitted(self)
        return layer_influence(
            self._merged,
            self._raw_vectors.shape[1],
            self._settings(),
            aggregation=self.aggregation,
            alpha=self.alpha,
            aggregation_params=self.aggregation_params,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # several of them
        return tags
