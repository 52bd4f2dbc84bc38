"""From a multilayer graph to a certified result: prepare it, merge its layers, solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from spectrograd.aggregation import (
    Layers,
    layer_operators,
    make_aggregation,
    mean,
)
from spectrograd.embedding import Embedding
from spectrograd.graph import GraphError, MultilayerGraph
from spectrograd.graph.components import Connectivity, connect, report_excluded, sublayers
from spectrograd.graph.features import FeatureGraph
from spectrograd.labels.eigengap import Eigengap, bulk_edge, n_eigenvalues, n_more_eigenvalues, widest_gap
from spectrograd.operators.laplacian import TAU, Kind, Regularization, check_regularization
from spectrograd.pipeline.merge import Merged, embed_merged, merge
from spectrograd.pipeline.result import CertifiedEmbedding, Result, Stages, make_result
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import input_order, multivector_of_all_nodes, with_all_nodes
from spectrograd.pipeline.solve import embed
from spectrograd.solvers.loop import INTERRUPTED
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array

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
        certificate = replace(solved.certificate, uncertified_layers=self.merged.uncertified_layers)
        treatment = self.merged.treatment
        if treatment is not None and treatment.rows == "commute" and solved.Q.shape[1] == self.n_components:
            treatment = None  # solved for anew, with the columns asked for
        result = make_result(
            replace(solved, certificate=certificate),
            embedding=with_all_nodes(solved, self.graph, kept, self.masked),
            operator=self.merged.operator,
            connectivity=self.connectivity,
            regularization=self.regularization,
            eigengap=self.eigengap,
            rows=kept,
            seconds=self.seconds | stages.seconds,
            merged=replace(self.merged, layers=layers),
            multivector=multivector_of_all_nodes(solved, context, self.graph.n_nodes, kept, self.masked),
        )
        return replace(result, treatment=treatment)

    def _on_all_nodes(self, layer: CertifiedEmbedding) -> CertifiedEmbedding:
        vectors = with_all_nodes(layer, self.graph, self.kept, self.masked).vectors
        own = layer.embedding
        return replace(layer, embedding=Embedding(vectors, own.eigenvalues, own.names))


def prepare_layers(graph: MultilayerGraph, settings: Settings, context: RunContext) -> PreparedLayers:
    """Sort out the components, embed the layers where the aggregation asks for it, and merge them.

    Components are those of the union of the layers: a node missing from some layers is connected through
    the others. tau is added to every layer, in units of its own mean degree. ``"auto"`` clusters are
    counted by the eigengap of the sum of the Laplacians, since Eq. 22 has a gap after K by construction.
    """
    stages = Stages(context.on_stage)
    _check_common_nodes(graph)
    wanted = check_regularization(settings.regularization)
    # 1. components of the union of the layers
    connectivity = connect(graph, settings.n_components, settings.disconnected)
    report_excluded(connectivity, graph.node_names)
    kept, rows, masked = _active(graph, connectivity)
    # 2. tau, the same for all layers in units of their mean degrees
    regularization = _decide_regularization(wanted, settings, connectivity)
    with stages("layers"):
        # 3. K, by the eigengap of the sum of the Laplacians, unless it is given
        gap = _gap(kept, settings, context, regularization.tau, masked)
        k = settings.n_components if gap is None else gap.n_clusters
        # 4. embed the layers, and make one operator of them
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


def _check_common_nodes(graph: MultilayerGraph) -> None:
    """Some node must be in two layers; without one they were hardly named alike."""
    if graph.n_layers < 2 or not graph.is_resident:
        return
    n_layers_of = sum((layer.degrees > 0).astype(np.int64) for layer in graph.layers)
    if np.max(n_layers_of) < 2 and sum(layer.n_edges > 0 for layer in graph.layers) > 1:
        names = ", ".join(repr(name) for name in graph.layer_names[:5])
        raise GraphError(
            f"the layers {names} have no node in common, so there is nothing to merge: "
            "are their nodes named alike?"
        )


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
    if any(isinstance(layer, FeatureGraph) for layer in graph.layers):
        raise GraphError(
            "the number of clusters is not found where a layer's similarities are never formed: say how many"
        )
    operators = layer_operators(graph, settings.laplacian, tau, masked)
    summed = mean.aggregate(Layers(operators, np.ones(graph.n_layers)))
    common: Kind = "unnormalized" if settings.laplacian == "unnormalized" else "symmetric"
    edge = bulk_edge(graph.layers, common, tau)

    def look(n_values: int) -> Eigengap:
        solved = embed(summed, n_values, settings, context)
        if solved.stop_reason == INTERRUPTED:
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
    aggregation: str | None = None,
    alpha: float | str = "auto",
    aggregation_params: Mapping[str, object] | None = None,
) -> Array:
    """The move of the merged subspace when a layer is left out: per layer, from 0 to 1.

    ``aggregation`` is by default that of the merge, and of plain layers ``"projection"``.

    The squared projection distance between the merge of all layers and that of all but one, over
    ``n_components``. A layer of weight zero has no influence. ``joint`` is judged as ``projection``: the
    layers it found are kept.

    Parameters
    ----------
    layers
        Layers, or a merge of them; the layers' embeddings are used again.
    n_components
        Columns of the merged embedding.
    settings, context
        How the merges are solved, and where.
    aggregation, aggregation_params
        Name of the aggregation, and its parameters.
    alpha
        Weight of the layers' projectors (Eq. 22), or "auto".
    """
    if aggregation is None and isinstance(layers, Merged):
        aggregation = layers.chosen.aggregation
        aggregation_params = layers.chosen.params
        if layers.chosen.layer is not None:  # chosen alone: the others have no say, and it has all
            return np.asarray(np.eye(len(layers.weights))[layers.chosen.layer])
    kind = make_aggregation(aggregation or "projection")
    options = {} if kind.run is not None else kind.check_options(aggregation_params)
    inputs = embedded_layers(layers) if kind.embeds_layers(options) else _inputs_of(layers)
    chosen = settings or Settings()
    if len(inputs.operators) < 2:
        raise ValueError("leaving one layer out needs at least two layers")

    def subspace(given: Layers, start: Array | None) -> Array:
        operator = kind.aggregate(given, alpha=alpha, **options)
        return embed_merged(operator, n_components, chosen, context or RunContext(), start).embedding.vectors

    whole = subspace(inputs, None)
    moved = np.zeros(len(inputs.operators))
    for left_out in np.flatnonzero(inputs.weights):
        weights = inputs.weights.copy()
        weights[left_out] = 0.0
        if weights.sum() == 0:
            raise ValueError("only one layer has a weight: leaving it out leaves nothing to merge")
        # a warm start: most layers have little influence, and a few steps show it
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
