"""From a multilayer graph to one operator: embed the layers where needed, weigh them, aggregate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spectrograd.aggregation import (
    Aggregation,
    Layers,
    checked_weights,
    layer_operators,
    make_aggregation,
    mean,
    without_absent,
)
from spectrograd.embedding import Embedding
from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph
from spectrograd.graph.components import Connectivity, connect, report_excluded, sublayers
from spectrograd.labels.eigengap import Eigengap, bulk_edge, n_eigenvalues, n_more_eigenvalues, widest_gap
from spectrograd.notices import warn
from spectrograd.operators.base import Operator
from spectrograd.operators.laplacian import TAU, Kind, Regularization, checked
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.layer_weights import LayerScores, layer_distances, weigh_layers
from spectrograd.pipeline.result import CertifiedEmbedding, Result, Stages, make_result
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import input_order, multivector_of_all_nodes, with_all_nodes
from spectrograd.pipeline.solve import certify_solution, embed
from spectrograd.solvers.loop import INTERRUPTED
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array

LOOSE_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Merged:
    """The aggregated operator, the layers' own embeddings and the seconds each stage took.

    ``result`` is set where the aggregation found the merged embedding itself; ``scores`` where the
    layers were embedded.
    """

    operator: Operator
    layers: tuple[CertifiedEmbedding, ...]
    weights: Array
    seconds: dict[str, float]
    layer_names: tuple[str, ...] = ()
    scores: LayerScores | None = None
    result: CertifiedEmbedding | None = None
    inputs: Layers | None = None

    @property
    def distances(self) -> Array:
        """Pairwise squared projection distances between the layers' subspaces."""
        return layer_distances([layer.embedding.vectors for layer in self.layers])

    def scored(self, seed: int | None) -> Merged:
        """The same, with the scores of the layers that were embedded."""
        assert self.inputs is not None
        return replace(self, scores=weigh_layers(self.inputs.operators, self.inputs.embeddings, seed))

    def embed(
        self,
        n_components: int,
        settings: Settings,
        context: RunContext | None = None,
        *,
        start: Array | None = None,
    ) -> CertifiedEmbedding:
        """The merged embedding: the one found on the way, or solved for now."""
        return self.result or embed(self.operator, n_components, settings, context, start=start)


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
    aggregation_params: Mapping[str, Any] | None = None,
    tau: float = 0.0,
    excluded: Array | None = None,
) -> Merged:
    """Walk ``laplacian -> solve`` once per layer, then make the single operator (Eq. 22).

    ``layer_weights="auto"`` embeds the layers whatever the aggregation, since it compares their
    subspaces. Layers without an edge get no weight, with a warning. ``tau`` regularises every layer. Rows
    ``aside`` of layers on disk take no part.
    """
    context = context or RunContext()
    chosen = make_aggregation(aggregation)
    if tau and chosen.run is not None:
        raise ValueError(f"aggregation {aggregation!r} does not take regularised layers: choose another")
    options = chosen.checked(aggregation_params)
    automatic = isinstance(layer_weights, str) and layer_weights == "auto"
    # 1. one Laplacian per layer; layers without an edge weigh nothing
    weights = _without_empty(_initial_weights(layer_weights, graph.n_layers), graph)
    if not tau:
        _check_linked(graph, excluded)
    operators = layer_operators(graph, laplacian, tau, excluded)
    # 2. embed each layer, where the aggregation or the weights compare subspaces
    began = time.perf_counter()
    embedded: tuple[CertifiedEmbedding, ...] = ()
    scores = None
    if automatic or (chosen.needs_embeddings and chosen.run is None):
        share, own = _budget_share(settings, context, len(operators) + 1)
        components = [_n_components(layer) for layer in graph.layers]
        _report_components(graph.layer_names, components, n_components)
        embedded = tuple(
            _embed_layer(operator, n_components, _loosen(share) if count > n_components else share, own)
            for operator, count in zip(operators, components, strict=True)
        )
    # 3. weigh the layers by structure and agreement
    if automatic:
        scores = weigh_layers(operators, _vectors(embedded), settings.seed)
        weights = checked_weights(weights * scores.weights, graph.n_layers)
    # 4. one operator: sum_s w_s (L_s - alpha U_s U_s') is Eq. 22
    layers = Layers(operators, weights, _vectors(embedded))
    embedded_at = time.perf_counter()
    result = None
    operator: Operator
    if chosen.run is not None:
        embedded, result, operator = _run_joint(
            chosen, layers, n_components, settings, context, alpha, options
        )
        layers = replace(layers, embeddings=_vectors(embedded))
    else:
        operator = chosen.aggregate(layers, alpha=alpha, **options)
    seconds = {"layers": embedded_at - began, "merge": time.perf_counter() - embedded_at}
    return Merged(operator, embedded, weights, seconds, graph.layer_names, scores, result, layers)


def _budget_share(settings: Settings, context: RunContext, n_stages: int) -> tuple[Settings, RunContext]:
    """A time budget is shared by the layers and the merge; each layer has a clock of its own."""
    budget = context.seconds_left(settings)
    if budget is None:
        return settings, context
    return replace(settings, time_budget=budget / n_stages), context.without_clock()


def _n_components(layer: Graph) -> int:
    """Connected components with an edge."""
    return int(layer.components.max()) + 1 - len(layer.isolated)


def _loosen(settings: Settings) -> Settings:
    """Settings for a layer whose embedding is one of many: no certificate can be met, so do not try.

    The eigenvalue zero then has more copies than there are columns. A loose Krylov run returns vectors
    spread over all of them; a tight one hunts for copies without end (docs/adr/0013).
    """
    if settings.solver != "auto" or settings.tol != "auto":
        return settings
    return replace(settings, solver="eigen", params={"tol": LOOSE_TOLERANCE})


def _report_components(names: Sequence[str], components: Sequence[int], n_components: int) -> None:
    many = [
        f"{name!r} ({count})" for name, count in zip(names, components, strict=True) if count > n_components
    ]
    if many:
        warn(
            f"layers in more than {n_components} connected components: {', '.join(many)}; "
            "their own embeddings "
            "are one choice of many, and are not certified",
            GraphWarning,
        )


def _embed_layer(
    operator: SparseOperator, n_components: int, settings: Settings, context: RunContext
) -> CertifiedEmbedding:
    """A layer on the nodes it has; columns that only separate absent nodes are left out."""
    result = embed(without_absent(operator), n_components, settings, context)
    if result.solution.stop_reason == INTERRUPTED:
        raise KeyboardInterrupt  # half a layer is nothing to merge
    linked = int((operator.graph.degrees > 0).sum())
    if linked > n_components:
        return result
    kept = max(0, linked - 1)  # the rest of the subspace is made of absent nodes
    told = result.embedding
    narrow = Embedding(told.vectors[:, :kept], told.eigenvalues[:kept], told.names)
    return replace(result, embedding=narrow)


def _run_joint(
    chosen: Aggregation,
    layers: Layers,
    n_components: int,
    settings: Settings,
    context: RunContext,
    alpha: float | str,
    options: Mapping[str, Any],
) -> tuple[tuple[CertifiedEmbedding, ...], CertifiedEmbedding, Operator]:
    """Layers and merged graph in one run, each with its own certificate."""
    assert chosen.run is not None
    solution, merged, own = chosen.run(layers, n_components, settings, context, alpha=alpha, **options)
    operator = chosen.aggregate(replace(layers, embeddings=own), alpha=alpha)
    embedded = tuple(
        certify_solution(without_absent(op), replace(solution, Q=Q), settings, context)
        for op, Q in zip(layers.operators, own, strict=True)
    )
    return embedded, certify_solution(operator, replace(solution, Q=merged), settings, context), operator


def _vectors(embedded: Sequence[CertifiedEmbedding]) -> tuple[Array, ...]:
    return tuple(layer.embedding.vectors for layer in embedded)


def _initial_weights(weights: Sequence[float] | str | None, n_layers: int) -> Array:
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


def _check_linked(graph: MultilayerGraph, excluded: Array | None) -> None:
    """A node may miss from some layers, but not from all, unless it was excluded."""
    nowhere = np.flatnonzero(sum(layer.degrees for layer in graph.layers) == 0)
    nowhere = nowhere if excluded is None else np.setdiff1d(nowhere, excluded)
    if len(nowhere):
        shown = ", ".join(str(graph.node_names[i]) for i in nowhere[:5])
        raise GraphError(f"{len(nowhere)} nodes have no edge in any layer: {shown}; remove them first")


# --- A multilayer graph before and after its layers are merged.


@dataclass(frozen=True, eq=False)
class PreparedLayers:
    """Layers that are merged: what is left to do is to solve, by whatever solver."""

    graph: MultilayerGraph
    merged: Merged
    n_components: int
    regularization: Regularization
    connectivity: Connectivity
    eigengap: Eigengap | None
    seconds: dict[str, float]
    kept: Array  # row numbers of the result, one per row of the merged operator
    masked: Array  # rows of that operator which take no part

    def solve(
        self, settings: Settings, context: RunContext | None = None, start: Array | None = None
    ) -> Result:
        """The certified embedding of all nodes; ``start`` (N x K) is a guess for a warm start."""
        context = (context or RunContext()).start_clock(settings)
        stages = Stages(context.on_stage)
        kept = self.kept
        guess = None if start is None else start[kept]
        with stages("solve"):
            solved = self.merged.embed(self.n_components, settings, context, start=guess)
        layers = tuple(self._on_all_nodes(layer) for layer in self.merged.layers)
        short = [
            str(name)
            for name, layer in zip(self.merged.layer_names, layers, strict=False)
            if not layer.certificate.converged
        ]
        told = replace(solved.certificate, uncertified_layers=tuple(short))
        return make_result(
            replace(solved, certificate=told),
            with_all_nodes(solved, self.graph, kept, self.masked),
            self.merged.operator,
            connectivity=self.connectivity,
            regularization=self.regularization,
            eigengap=self.eigengap,
            rows=kept,
            seconds=self.seconds | stages.seconds,
            merged=replace(self.merged, layers=layers),
            multivector=multivector_of_all_nodes(solved, context, self.graph.n_nodes, kept, self.masked),
        )

    def _on_all_nodes(self, layer: CertifiedEmbedding) -> CertifiedEmbedding:
        vectors = with_all_nodes(layer, self.graph, self.kept, self.masked).vectors
        told = layer.embedding
        return replace(layer, embedding=Embedding(vectors, told.eigenvalues, told.names))


def prepare_layers(graph: MultilayerGraph, settings: Settings, context: RunContext) -> PreparedLayers:
    """Sort out the components, embed the layers where the aggregation asks for it, and merge them.

    Components are those of the union of the layers: a node missing from some layers is connected through
    the others. tau is added to every layer, in units of its own mean degree. ``"auto"`` clusters are
    counted by the eigengap of the sum of the Laplacians, since Eq. 22 has a gap after K by construction.
    """
    stages = Stages(context.on_stage)
    wanted = checked(settings.regularization)
    connectivity = connect(graph, settings.n_components, settings.disconnected)
    report_excluded(connectivity, graph.node_names)
    kept, rows, masked = _active(graph, connectivity)
    regularization = _decide_regularization(wanted, settings, connectivity)
    with stages("layers"):
        gap = _gap(kept, settings, context, regularization.tau, masked)
        k = settings.n_components if gap is None else gap.n_clusters
        merged = merge(
            kept,
            int(k),
            settings,
            context,
            laplacian=settings.laplacian,
            aggregation=settings.aggregation,
            alpha=settings.alpha,
            layer_weights=settings.layer_weights,
            aggregation_params=settings.aggregation_params,
            tau=regularization.tau,
            excluded=masked,
        )
    moved = connectivity if graph.is_resident else connectivity.moved(rows)
    return PreparedLayers(graph, merged, int(k), regularization, moved, gap, merged.seconds, rows, masked)


def _active(graph: MultilayerGraph, connectivity: Connectivity) -> tuple[MultilayerGraph, Array, Array]:
    """The layers to merge, which row of the result each of their rows is, and which of them are masked.

    Layers on disk keep all rows: those that take no part are masked.
    """
    if graph.is_resident:
        return sublayers(graph, connectivity.kept), connectivity.kept, np.empty(0, np.int64)
    return graph, input_order(graph.layers[0]), connectivity.excluded


def _gap(
    graph: MultilayerGraph, settings: Settings, context: RunContext, tau: float, masked: Array
) -> Eigengap | None:
    if not isinstance(settings.n_components, str):
        return None
    operators = layer_operators(graph, settings.laplacian, tau, masked)
    summed = mean.aggregate(Layers(operators, np.ones(graph.n_layers)))
    common: Kind = "unnormalized" if settings.laplacian == "unnormalized" else "symmetric"
    edge = bulk_edge(graph.layers, common, tau)

    def look(n_values: int) -> Eigengap:
        solved = embed(summed, n_values, settings, context)
        if solved.solution.stop_reason == INTERRUPTED:
            raise KeyboardInterrupt  # rough eigenvalues count no clusters
        return widest_gap(solved.embedding.eigenvalues, edge)

    gap = look(n_eigenvalues(graph.n_nodes))
    more = n_more_eigenvalues(graph.n_nodes)
    limited = settings.time_budget is not None or settings.memory_limit is not None
    if gap.asks_for_more and more > len(gap.eigenvalues) and graph.is_resident and not limited:
        second = look(more)
        gap = second if second.clear else gap
    gap.warn()
    return gap


def _decide_regularization(
    wanted: float | str | None, settings: Settings, connectivity: Connectivity
) -> Regularization:
    component_labels = connectivity.n_components > 1 and settings.disconnected == "regularize"
    if component_labels and not isinstance(wanted, float):
        reason = (
            f"{connectivity.n_components} components: {TAU:g} mean degrees in every layer tie them together"
        )
        return Regularization(TAU, reason)
    if isinstance(wanted, str):
        reason = (
            "not used: several layers seldom share their dangling components; a number adds tau to each layer"
        )
        return Regularization(0.0, reason)
    return Regularization(wanted or 0.0, "asked for" if wanted else "off")


# --- Leave one layer out: how much each layer matters for the merge.


def layer_influence(
    layers: Layers | Merged,
    n_components: int,
    settings: Settings | None = None,
    context: RunContext | None = None,
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
    inputs = embedded_layers(layers) if kind.needs_embeddings else _inputs_of(layers)
    chosen = settings or Settings()
    if len(inputs.operators) < 2:
        raise ValueError("leaving one layer out needs at least two layers")

    def subspace(given: Layers, start: Array | None) -> Array:
        operator = kind.aggregate(given, alpha=alpha, **options)
        return embed(operator, n_components, chosen, context, start=start).embedding.vectors

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
    inputs = _inputs_of(layers)
    if len(inputs.embeddings) != len(inputs.operators):
        raise ValueError(
            "the layers have no embeddings to reuse: merge them with aggregation='projection' first"
        )
    return inputs


def _inputs_of(layers: Layers | Merged) -> Layers:
    inputs = layers.inputs if isinstance(layers, Merged) else layers
    assert inputs is not None
    return inputs


def _distance(merged: Array, layer: Array) -> float:
    """``(K + K_s) / 2 - |U' U^s|^2``: a layer with few nodes may have fewer columns."""
    widths = (merged.shape[1] + layer.shape[1]) / 2
    return float(max(0.0, widths - float(np.sum((merged.T @ layer) ** 2))))
