"""From a multilayer graph to one operator: embed the layers where needed, then aggregate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, checked_weights, layer_operators, make_aggregation
from spectrograd.graph import GraphError, MultilayerGraph
from spectrograd.laplacian import Kind, Operator
from spectrograd.metrics import projection_distance
from spectrograd.solvers.embed import Embedded, Settings, embed

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Merged:
    """The aggregated operator, the layers' own embeddings and the seconds each stage took."""

    operator: Operator
    layers: tuple[Embedded, ...]
    weights: Array
    seconds: dict[str, float]

    @property
    def distances(self) -> Array:
        """Pairwise squared projection distances between the layers' subspaces."""
        bases = [layer.embedding.vectors for layer in self.layers]
        return np.array([[projection_distance(U, [V]) for V in bases] for U in bases])


def merge(
    graph: MultilayerGraph,
    n_components: int,
    settings: Settings,
    *,
    laplacian: Kind = "symmetric",
    aggregation: str = "projection",
    alpha: float | str = "auto",
    layer_weights: Sequence[float] | None = None,
) -> Merged:
    """Walk ``laplacian -> solve`` once per layer, then make the single operator (Eq. 22)."""
    aggregate, needs_embeddings = make_aggregation(aggregation)
    weights = checked_weights(layer_weights, graph.n_layers)
    _check_linked(graph)
    operators = layer_operators(graph, laplacian)
    began = time.perf_counter()
    embedded = _embed_layers(operators, n_components, settings) if needs_embeddings else ()
    embedded_at = time.perf_counter()
    vectors = tuple(layer.embedding.vectors for layer in embedded)
    operator = aggregate(Layers(operators, weights, vectors), alpha=alpha)
    seconds = {"layers": embedded_at - began, "merge": time.perf_counter() - embedded_at}
    return Merged(operator, embedded, weights, seconds)


def _embed_layers(
    operators: Sequence[Operator], n_components: int, settings: Settings
) -> tuple[Embedded, ...]:
    """Embed one layer after the other; a time budget is shared by the layers and the merge."""
    if settings.time_budget is not None:
        settings = replace(settings, time_budget=settings.time_budget / (len(operators) + 1))
    return tuple(embed(operator, n_components, settings) for operator in operators)


def _check_linked(graph: MultilayerGraph) -> None:
    """A node may miss from some layers, but not from all."""
    nowhere = np.flatnonzero(sum(layer.degrees for layer in graph.layers) == 0)
    if len(nowhere):
        shown = ", ".join(str(graph.node_names[i]) for i in nowhere[:5])
        raise GraphError(f"{len(nowhere)} nodes have no edge in any layer: {shown}; remove them first")
