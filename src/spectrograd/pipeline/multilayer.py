"""From a multilayer graph to one operator: embed the layers where needed, weigh them, aggregate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import (
    Aggregation,
    Layers,
    checked_weights,
    layer_operators,
    make_aggregation,
    without_absent,
)
from spectrograd.embedding import Embedding
from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.notices import warn
from spectrograd.operators.laplacian import Kind
from spectrograd.operators.protocol import Operator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.certifying import certified
from spectrograd.pipeline.embedded import Embedded
from spectrograd.pipeline.layer_agreement import layer_distances
from spectrograd.pipeline.layer_weights import LayerScores, weigh_layers
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solving import embed
from spectrograd.solvers.loop import INTERRUPTED

Array = NDArray[Any]
LOOSE = 1e-3


@dataclass(frozen=True, eq=False)
class Merged:
    """The aggregated operator, the layers' own embeddings and the seconds each stage took.

    ``result`` is set where the aggregation found the merged embedding itself; ``scores`` where the
    layers were embedded.
    """

    operator: Operator
    layers: tuple[Embedded, ...]
    weights: Array
    seconds: dict[str, float]
    layer_names: tuple[str, ...] = ()
    scores: LayerScores | None = None
    result: Embedded | None = None
    inputs: Layers | None = None

    @property
    def distances(self) -> Array:
        """Pairwise squared projection distances between the layers' subspaces."""
        return layer_distances([layer.embedding.vectors for layer in self.layers])

    def scored(self, seed: int | None) -> Merged:
        """The same, with the scores of the layers that were embedded."""
        assert self.inputs is not None
        return replace(self, scores=weigh_layers(self.inputs.operators, self.inputs.embeddings, seed))

    def embed(self, n_components: int, settings: Settings, *, start: Array | None = None) -> Embedded:
        """The merged embedding: the one found on the way, or solved for now."""
        return self.result or embed(self.operator, n_components, settings, start=start)


def merge(
    graph: MultilayerGraph,
    n_components: int,
    settings: Settings,
    *,
    laplacian: Kind = "symmetric",
    aggregation: str = "projection",
    alpha: float | str = "auto",
    layer_weights: Sequence[float] | str | None = None,
    aggregation_params: Mapping[str, Any] | None = None,
    tau: float = 0.0,
    aside: Array | None = None,
) -> Merged:
    """Walk ``laplacian -> solve`` once per layer, then make the single operator (Eq. 22).

    ``layer_weights="auto"`` embeds the layers whatever the aggregation, since it compares their
    subspaces. Layers without an edge get no weight, with a warning. ``tau`` regularises every layer. Rows
    ``aside`` of layers on disk take no part.
    """
    chosen = make_aggregation(aggregation)
    if tau and chosen.run is not None:
        raise ValueError(f"aggregation {aggregation!r} does not take regularised layers: choose another")
    options = chosen.checked(aggregation_params)
    automatic = isinstance(layer_weights, str) and layer_weights == "auto"
    weights = _without_empty(_given_weights(layer_weights, graph.n_layers), graph)
    if not tau:
        _check_linked(graph, aside)
    operators = layer_operators(graph, laplacian, tau, aside)
    began = time.perf_counter()
    embedded: tuple[Embedded, ...] = ()
    scores = None
    if automatic or (chosen.needs_embeddings and chosen.run is None):
        share = _budget_share(settings, len(operators) + 1)
        pieces = [_pieces(layer) for layer in graph.layers]
        _tell_of_pieces(graph.layer_names, pieces, n_components)
        embedded = tuple(
            _embed_layer(operator, n_components, _loosened(share) if count > n_components else share)
            for operator, count in zip(operators, pieces, strict=True)
        )
    if automatic:
        scores = weigh_layers(operators, _vectors(embedded), settings.seed)
        weights = checked_weights(weights * scores.weights, graph.n_layers)
    layers = Layers(operators, weights, _vectors(embedded))
    embedded_at = time.perf_counter()
    result = None
    operator: Operator
    if chosen.run is not None:
        embedded, result, operator = _simultaneous(chosen, layers, n_components, settings, alpha, options)
        layers = replace(layers, embeddings=_vectors(embedded))
    else:
        operator = chosen.aggregate(layers, alpha=alpha, **options)
    seconds = {"layers": embedded_at - began, "merge": time.perf_counter() - embedded_at}
    return Merged(operator, embedded, weights, seconds, graph.layer_names, scores, result, layers)


def _budget_share(settings: Settings, n_stages: int) -> Settings:
    """A time budget is shared by the layers and the merge."""
    if settings.time_budget is None:
        return settings
    return settings.without_clock(settings.time_budget / n_stages)


def _pieces(layer: Graph) -> int:
    """Connected components with an edge."""
    return int(layer.components.max()) + 1 - len(layer.isolated)


def _loosened(settings: Settings) -> Settings:
    """Settings for a layer whose embedding is one of many: no certificate can be met, so do not try.

    The eigenvalue zero then has more copies than there are columns. A loose Krylov run returns vectors
    spread over all of them; a tight one hunts for copies without end (docs/adr/0013).
    """
    if settings.solver != "auto" or settings.tol != "auto":
        return settings
    return replace(settings, solver="eigen", params={"tol": LOOSE})


def _tell_of_pieces(names: Sequence[str], pieces: Sequence[int], n_components: int) -> None:
    many = [f"{name!r} ({count})" for name, count in zip(names, pieces, strict=True) if count > n_components]
    if many:
        warn(
            f"layers in more than {n_components} connected pieces: {', '.join(many)}; their own embeddings "
            "are one choice of many, and are not certified",
            GraphWarning,
        )


def _embed_layer(operator: SparseOperator, n_components: int, settings: Settings) -> Embedded:
    """A layer on the nodes it has; columns that only separate absent nodes are left out."""
    result = embed(without_absent(operator), n_components, settings)
    if result.solution.stop_reason == INTERRUPTED:
        raise KeyboardInterrupt  # half a layer is nothing to merge
    linked = int((operator.graph.degrees > 0).sum())
    if linked > n_components:
        return result
    kept = max(0, linked - 1)  # the rest of the subspace is made of absent nodes
    told = result.embedding
    narrow = Embedding(told.vectors[:, :kept], told.eigenvalues[:kept], told.names)
    return replace(result, embedding=narrow)


def _simultaneous(
    chosen: Aggregation,
    layers: Layers,
    n_components: int,
    settings: Settings,
    alpha: float | str,
    options: Mapping[str, Any],
) -> tuple[tuple[Embedded, ...], Embedded, Operator]:
    """Layers and merged graph in one run, each with its own certificate."""
    assert chosen.run is not None
    solution, merged, own = chosen.run(layers, n_components, settings, alpha=alpha, **options)
    operator = chosen.aggregate(replace(layers, embeddings=own), alpha=alpha)
    embedded = tuple(
        certified(without_absent(op), replace(solution, Q=Q), settings)
        for op, Q in zip(layers.operators, own, strict=True)
    )
    return embedded, certified(operator, replace(solution, Q=merged), settings), operator


def _vectors(embedded: Sequence[Embedded]) -> tuple[Array, ...]:
    return tuple(layer.embedding.vectors for layer in embedded)


def _given_weights(weights: Sequence[float] | str | None, n_layers: int) -> Array:
    if not isinstance(weights, str):
        return checked_weights(weights, n_layers)
    if weights not in ("equal", "auto"):
        raise ValueError(f"layer_weights={weights!r}: expected 'equal', 'auto' or one number per layer")
    return np.ones(n_layers)


def _without_empty(weights: Array, graph: MultilayerGraph) -> Array:
    empty = np.array([layer.n_edges == 0 for layer in graph.layers])
    if not empty.any():
        return weights
    names = ", ".join(repr(name) for name, bare in zip(graph.layer_names, empty, strict=True) if bare)
    if not (weights[~empty] > 0).any():
        raise GraphError(f"no layer with a positive weight has an edge (without edges: {names})")
    warn(f"layers without any edge are left out: {names}", GraphWarning)
    return checked_weights(np.where(empty, 0.0, weights), len(weights))


def _check_linked(graph: MultilayerGraph, aside: Array | None) -> None:
    """A node may miss from some layers, but not from all, unless it was set aside."""
    nowhere = np.flatnonzero(sum(layer.degrees for layer in graph.layers) == 0)
    nowhere = nowhere if aside is None else np.setdiff1d(nowhere, aside)
    if len(nowhere):
        shown = ", ".join(str(graph.node_names[i]) for i in nowhere[:5])
        raise GraphError(f"{len(nowhere)} nodes have no edge in any layer: {shown}; remove them first")
