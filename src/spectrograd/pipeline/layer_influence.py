"""Many merges of the same layers: alpha sweeps and leave-one-layer-out, layer embeddings reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, make_aggregation
from spectrograd.aggregation.projection import aggregate as project
from spectrograd.pipeline.embedded import Embedded
from spectrograd.pipeline.multilayer import Merged
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solving import embed

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class AlphaPoint:
    """One alpha of a sweep: the merged embedding and its squared distance to each layer (Eq. 20)."""

    alpha: float | str
    result: Embedded
    distances: Array


def sweep_alpha(
    layers: Layers | Merged,
    alphas: Iterable[float | str],
    n_components: int,
    settings: Settings | None = None,
) -> tuple[AlphaPoint, ...]:
    """Merge by Eq. 22 once per alpha; the layers' embeddings are those given, nothing is solved twice.

    Each run starts from the result before, so neighbouring values are cheap for iterative solvers.

    Parameters
    ----------
    layers
        Layers with their embeddings: ``Layers(...)`` or what :func:`merge` returned.
    alphas
        Numbers >= 0 or "auto".
    n_components
        Columns of the merged embedding.
    settings
        How to solve.
    """
    inputs = embedded_layers(layers)
    chosen = settings or Settings()
    points: list[AlphaPoint] = []
    start = None
    for alpha in alphas:
        result = embed(project(inputs, alpha=alpha), n_components, chosen, start=start)
        start = result.embedding.vectors
        distances = np.array([_distance(start, U) for U in inputs.embeddings])
        points.append(AlphaPoint(alpha, result, distances))
    return tuple(points)


def layer_influence(
    layers: Layers | Merged,
    n_components: int,
    settings: Settings | None = None,
    *,
    aggregation: str = "projection",
    alpha: float | str = "auto",
    aggregation_params: Mapping[str, Any] | None = None,
) -> Array:
    """How far the merged subspace moves when a layer is left out: per layer, from 0 to 1.

    The squared projection distance between the merge of all layers and that of all but one, over
    ``n_components``. A layer of weight zero has no influence. ``joint`` is judged as ``projection``: the
    layers it found are kept.
    """
    kind = make_aggregation(aggregation)
    options = {} if kind.run is not None else kind.checked(aggregation_params)
    inputs = embedded_layers(layers) if kind.needs_embeddings else _given(layers)
    chosen = settings or Settings()
    if len(inputs.operators) < 2:
        raise ValueError("leaving one layer out needs at least two layers")

    def subspace(given: Layers, start: Array | None) -> Array:
        operator = kind.aggregate(given, alpha=alpha, **options)
        return embed(operator, n_components, chosen, start=start).embedding.vectors

    whole = subspace(inputs, None)
    moved = np.zeros(len(inputs.operators))
    for left_out in np.flatnonzero(inputs.weights):
        weights = inputs.weights.copy()
        weights[left_out] = 0.0
        if weights.sum() == 0:
            raise ValueError("only one layer has a weight: leaving it out leaves nothing to merge")
        rest = subspace(replace(inputs, weights=weights), whole)
        moved[left_out] = _distance(whole, rest) / n_components
    return moved


def embedded_layers(layers: Layers | Merged) -> Layers:
    """The layers behind either form, or an error when nobody embedded them."""
    inputs = _given(layers)
    if len(inputs.embeddings) != len(inputs.operators):
        raise ValueError(
            "the layers have no embeddings to reuse: merge them with aggregation='projection' first"
        )
    return inputs


def _given(layers: Layers | Merged) -> Layers:
    inputs = layers.inputs if isinstance(layers, Merged) else layers
    assert inputs is not None
    return inputs


def _distance(merged: Array, layer: Array) -> float:
    """``(K + K_s) / 2 - |U' U^s|^2``: a layer with few nodes may have fewer columns."""
    widths = (merged.shape[1] + layer.shape[1]) / 2
    return float(max(0.0, widths - float(np.sum((merged.T @ layer) ** 2))))
