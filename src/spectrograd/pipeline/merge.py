"""The merge of layers: embed them where needed, weigh them, and make one operator of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spectrograd.aggregation import (
    AUTO,
    Aggregation,
    LayerOperator,
    Layers,
    check_aggregation,
    layer_operators,
    make_aggregation,
    normalize_weights,
    without_absent,
)
from spectrograd.engines import LocalEngine
from spectrograd.graph import GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.features import FeatureGraph
from spectrograd.notices import warn
from spectrograd.operators.base import Operator
from spectrograd.operators.composite import LowRankOperator
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline.aggregation_choice import AggregationChoice, choose_candidate
from spectrograd.pipeline.layer_embeddings import (
    certify_layer,
    embed_layer,
    n_linked_components,
    report_components,
)
from spectrograd.pipeline.layer_weights import LayerScores, layer_distances, weigh_layers
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.rough_solve import REASON as ROUGH
from spectrograd.pipeline.rough_solve import certify_rough, comparing, is_rough, rough_embed
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import certify_solution, embed
from spectrograd.pipeline.treatment import Treatment
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array

ASKED_FOR = AggregationChoice("projection", "asked for")


@dataclass(frozen=True, eq=False)
class Merged:
    """The aggregated operator, the layers' own embeddings and the seconds each stage took.

    ``result`` is set where the aggregation found the merged embedding itself; ``scores`` where the
    layers were embedded. ``candidate`` is the embedding that ``auto`` compared, for whoever leaves the solver
    to it as well, and ``treatment`` which vectors of it make the clusters, where that was compared.
    """

    operator: Operator
    layers: tuple[CertifiedEmbedding, ...]
    weights: Array
    seconds: dict[str, float]
    layer_names: tuple[str, ...] = ()
    scores: LayerScores | None = None
    result: CertifiedEmbedding | None = None
    inputs: Layers | None = None
    chosen: AggregationChoice = ASKED_FOR
    candidate: CertifiedEmbedding | None = None
    treatment: Treatment | None = None

    @property
    def distances(self) -> Array:
        """Pairwise squared projection distances between the layers' subspaces."""
        return layer_distances([layer.embedding.vectors for layer in self.layers])

    @property
    def layers_behind(self) -> tuple[CertifiedEmbedding, ...]:
        """The layers' own embeddings where they are part of what was merged, and have to be right for it."""
        used = make_aggregation(self.chosen.aggregation).embeds_layers(self.chosen.params)
        return self.layers if used else ()

    @property
    def uncertified_layers(self) -> tuple[str, ...]:
        """Names of the layers that have weight in the merge by embeddings that are not certified."""
        parts = zip(self.layer_names, self.weights, self.layers_behind, strict=False)
        return tuple(
            str(name) for name, weight, layer in parts if weight > 0 and not layer.certificate.converged
        )

    def scored(self, seed: int | None) -> Merged:
        """The same, with the scores of the layers that were embedded."""
        assert self.inputs is not None
        return replace(self, scores=weigh_layers(self.inputs.sparse, self.inputs.embeddings, seed))

    def embed(
        self,
        n_components: int,
        settings: Settings,
        context: RunContext | None = None,
        *,
        start: Array | None = None,
    ) -> CertifiedEmbedding:
        """The merged embedding: the one found on the way, or solved for now."""
        if self.result is not None:
            return self.result
        context = context or RunContext()
        free = settings.solver == "auto" and context.observer is None and start is None
        if self.candidate is not None and free:
            return certify_rough(self.operator, self.candidate, settings, context)
        return embed_merged(self.operator, n_components, settings, context, start)


def embed_merged(
    operator: Operator, n_components: int, settings: Settings, context: RunContext, start: Array | None
) -> CertifiedEmbedding:
    """The certified embedding of a merge; one of subspaces alone has an exact way of its own."""
    own_way = isinstance(operator, LowRankOperator) and context.observer is None
    if own_way and is_rough(operator, settings, context):
        return certify_rough(
            operator, rough_embed(operator, n_components, settings, context), settings, context
        )
    return embed(operator, n_components, settings, context, start=start)


def merge(
    graph: MultilayerGraph,
    n_components: int,
    settings: Settings,
    context: RunContext | None = None,
    *,
    laplacian: Kind = "symmetric",
    aggregation: str = "projection",
    alpha: float | str = "auto",
    layer_weights: Sequence[float] | str | None = None,
    aggregation_params: Mapping[str, object] | None = None,
    tau: float = 0.0,
    excluded: Array | None = None,
) -> Merged:
    """Walk ``laplacian -> solve`` once per layer, then make the single operator (Eq. 22).

    ``aggregation="auto"`` compares some merges (:mod:`spectrograd.pipeline.aggregation_choice`).
    ``layer_weights="auto"`` embeds the layers whatever the aggregation, since it compares their subspaces.
    Layers without an edge get no weight, with a warning. ``tau`` regularises every layer. Rows ``excluded``
    of layers on disk take no part.

    Parameters
    ----------
    graph
        Layers on the same nodes.
    n_components
        Columns of each layer's embedding.
    settings, context
        How each layer is solved, and where.
    laplacian
        Kind of each layer's Laplacian.
    aggregation, aggregation_params
        Name of the aggregation, and its parameters.
    alpha
        Weight of the layers' projectors (Eq. 22), or "auto".
    layer_weights
        One number per layer, "equal" or "auto"; None is one each.
    tau
        Regularisation of every layer, in units of its mean degree.
    excluded : array of int, optional
        Rows that take no part.
    """
    context = context or RunContext()
    check_aggregation(aggregation, aggregation_params)
    settings = replace(settings, alpha=alpha, layer_weights=layer_weights)
    weights = _without_empty(_initial_weights(layer_weights, graph.n_layers), graph)
    chosen = _choose_unseen(graph, n_components, settings, context) if aggregation == AUTO else None
    if aggregation != AUTO:
        chosen = AggregationChoice(aggregation, "asked for", dict(aggregation_params or {}))
    if tau and chosen is not None and make_aggregation(chosen.aggregation).run is not None:
        raise ValueError(f"aggregation {aggregation!r} does not take regularised layers: choose another")
    if not tau:
        _check_linked(graph, excluded)
    # 1. The layers' Laplacians, and their own embeddings where these are asked for.
    began = time.perf_counter()
    operators = layer_operators(graph, laplacian, tau, excluded)
    weighs = isinstance(layer_weights, str) and layer_weights == "auto"
    embedded: tuple[CertifiedEmbedding, ...] = ()
    if weighs or chosen is None or _embeds_first(chosen):
        embedded = _embed_layers(graph, operators, n_components, settings, context, rough=chosen is None)
    # 2. Weights.
    scores = (
        weigh_layers(Layers(operators, weights).sparse, _vectors(embedded), settings.seed) if weighs else None
    )
    if scores is not None:
        weights = normalize_weights(weights * scores.weights, graph.n_layers)
    layers = _as_inputs(operators, weights, embedded, tau)
    # 3. The merge.
    embedded_at = time.perf_counter()
    if chosen is None:
        merged = _merge_by_choice(layers, graph.layer_names, embedded, n_components, settings, context)
    else:
        merged = _merge_as_asked(chosen, layers, embedded, n_components, settings, context)
    seconds = {"layers": embedded_at - began, "merge": time.perf_counter() - embedded_at}
    return replace(merged, seconds=seconds, layer_names=graph.layer_names, scores=scores)


def _embeds_first(chosen: AggregationChoice) -> bool:
    """Whether an aggregation needs the layers' embeddings before it begins."""
    kind = make_aggregation(chosen.aggregation)
    return kind.embeds_layers(chosen.params) and kind.run is None


def _embed_layers(
    graph: MultilayerGraph,
    operators: Sequence[LayerOperator],
    n_components: int,
    settings: Settings,
    context: RunContext,
    *,
    rough: bool,
) -> tuple[CertifiedEmbedding, ...]:
    """The layers' own embeddings, each with its share of the time budget; ``rough`` ones by quick solves."""
    report_components(graph.layer_names, [n_linked_components(g) for g in graph.layers], n_components)
    budget = context.seconds_left(settings)
    if budget is not None:  # each layer has a clock of its own
        settings = replace(settings, time_budget=budget / (len(operators) + 1))
        context = context.without_clock()
    solve = rough_embed if rough else embed
    own = comparing(settings) if rough else settings
    return tuple(embed_layer(operator, n_components, own, context, solve) for operator in operators)


def _merge_as_asked(
    chosen: AggregationChoice,
    layers: Layers,
    embedded: tuple[CertifiedEmbedding, ...],
    n_components: int,
    settings: Settings,
    context: RunContext,
) -> Merged:
    """One aggregation, by name."""
    kind = make_aggregation(chosen.aggregation)
    options = kind.check_options(chosen.params)
    if kind.run is None:
        operator = kind.aggregate(layers, alpha=settings.alpha, **options)
        return Merged(operator, embedded, layers.weights, {}, inputs=layers, chosen=chosen)
    embedded, result, operator = _run_joint(
        kind, layers, n_components, settings, context, settings.alpha, options
    )
    layers = _as_inputs(layers.operators, layers.weights, embedded, layers.tau)
    return Merged(operator, embedded, layers.weights, {}, result=result, inputs=layers, chosen=chosen)


def _merge_by_choice(
    layers: Layers,
    layer_names: Sequence[str],
    rough: tuple[CertifiedEmbedding, ...],
    n_components: int,
    settings: Settings,
    context: RunContext,
) -> Merged:
    """The best of the candidates; only the layers that are part of it need a certificate.

    A merge is the merge of the subspaces that it was given: the angle by which the merged subspace turns is
    that of the layers times their share of the operator over its gap, so layers need the same certificate.
    """
    asked = settings.solver != "auto"
    choice, best = choose_candidate(
        layers, layer_names, rough, n_components, comparing(settings), context, with_edges=asked
    )
    if choice.layer is not None:
        alone = np.where(np.arange(len(rough)) == choice.layer, float(len(rough)), 0.0)
        layers = replace(layers, weights=alone)
    merged = Merged(
        best.operator,
        rough,
        layers.weights,
        {},
        inputs=layers,
        chosen=choice,
        candidate=best.embedding,
        treatment=best.treatment,
    )
    if not merged.layers_behind:
        return merged
    certified = tuple(
        certify_layer(operator, n_components, settings, context, found)
        for operator, found in zip(layers.sparse, rough, strict=True)
    )
    merged = replace(merged, layers=certified)
    if all(one.reason == ROUGH or one is two for one, two in zip(certified, rough, strict=True)):
        return merged  # of the same subspaces
    layers = _as_inputs(layers.operators, layers.weights, certified, layers.tau)
    kind = make_aggregation(choice.aggregation)
    operator = kind.aggregate(layers, alpha=settings.alpha, **choice.params)
    return replace(merged, operator=operator, inputs=layers, candidate=None)


def _choose_unseen(
    graph: MultilayerGraph, n_components: int, settings: Settings, context: RunContext
) -> AggregationChoice | None:
    """The choice where candidates are not compared; None where they are."""
    if not graph.is_resident:
        return AggregationChoice("projection", "the layers are on disk, where every candidate costs passes")
    if not isinstance(context.engine, LocalEngine):
        return AggregationChoice("projection", "candidates are compared on the local engine only")
    if any(isinstance(layer, FeatureGraph) for layer in graph.layers):
        return AggregationChoice("projection", "some layers have no edges that could compare candidates")
    if any(layer.is_signed for layer in graph.layers):
        return AggregationChoice("projection", "some layers are signed: no candidates are compared")
    if settings.alpha != "auto":
        return AggregationChoice("projection", "alpha was given, which is a parameter of this one")
    if graph.n_layers == 1:
        return AggregationChoice("mean", "there is one layer: nothing to merge")
    if n_components >= graph.n_nodes - 1:
        return AggregationChoice("mean", "there are hardly more nodes than columns")
    return None


def _as_inputs(
    operators: tuple[LayerOperator, ...],
    weights: Array,
    embedded: Sequence[CertifiedEmbedding],
    tau: float,
) -> Layers:
    eigenvalues = tuple(layer.embedding.eigenvalues for layer in embedded)
    return Layers(operators, weights, _vectors(embedded), eigenvalues, tau)


def _run_joint(
    chosen: Aggregation,
    layers: Layers,
    n_components: int,
    settings: Settings,
    context: RunContext,
    alpha: float | str,
    options: Mapping[str, object],
) -> tuple[tuple[CertifiedEmbedding, ...], CertifiedEmbedding, Operator]:
    """Layers and merged graph in one run, each with its own certificate."""
    assert chosen.run is not None
    solution, merged, own = chosen.run(layers, n_components, settings, context, alpha=alpha, **options)
    operator = chosen.aggregate(replace(layers, embeddings=own), alpha=alpha)
    embedded = tuple(
        certify_solution(without_absent(op), replace(solution, Q=Q), settings, context)
        for op, Q in zip(layers.sparse, own, strict=True)
    )
    return embedded, certify_solution(operator, replace(solution, Q=merged), settings, context), operator


def _vectors(embedded: Sequence[CertifiedEmbedding]) -> tuple[Array, ...]:
    return tuple(layer.embedding.vectors for layer in embedded)


def _initial_weights(weights: Sequence[float] | str | None, n_layers: int) -> Array:
    if not isinstance(weights, str):
        return normalize_weights(weights, n_layers)
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
    return normalize_weights(np.where(empty, 0.0, weights), len(weights))


def _check_linked(graph: MultilayerGraph, excluded: Array | None) -> None:
    """A node may miss from some layers, but not from all, unless it was excluded."""
    nowhere = np.flatnonzero(sum(layer.degrees for layer in graph.layers) == 0)
    nowhere = nowhere if excluded is None else np.setdiff1d(nowhere, excluded)
    if len(nowhere):
        shown = ", ".join(str(graph.node_names[i]) for i in nowhere[:5])
        raise GraphError(f"{len(nowhere)} nodes have no edge in any layer: {shown}; remove them first")
