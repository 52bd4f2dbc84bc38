"""A multilayer graph before and after its layers are merged: pieces, tau, number of clusters, solution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, layer_operators, mean
from spectrograd.embedding import Embedding
from spectrograd.graph import MultilayerGraph
from spectrograd.graph.pieces import Connectivity, connect, report_aside, sublayers
from spectrograd.labels.eigengap import Eigengap, n_eigenvalues, widest_gap
from spectrograd.operators.regularized import TAU, Regularization, checked
from spectrograd.pipeline.all_nodes import kept_tall, with_all_nodes
from spectrograd.pipeline.embedded import Embedded
from spectrograd.pipeline.multilayer import Merged, merge
from spectrograd.pipeline.result import Result, Stages, found
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import input_order
from spectrograd.pipeline.solving import embed
from spectrograd.solvers.loop import INTERRUPTED

Array = NDArray[Any]


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

    def solve(self, settings: Settings, start: Array | None = None) -> Result:
        """The certified embedding of all nodes; ``start`` (N x K) is a guess for a warm start."""
        stages, kept = Stages(settings.on_stage), self.kept
        guess = None if start is None else start[kept]
        with stages("solve"):
            solved = self.merged.embed(self.n_components, settings, start=guess)
        layers = tuple(self._on_all_nodes(layer) for layer in self.merged.layers)
        short = [
            str(name)
            for name, layer in zip(self.merged.layer_names, layers, strict=False)
            if not layer.certificate.converged
        ]
        told = replace(solved.certificate, uncertified_layers=tuple(short))
        return found(
            replace(solved, certificate=told),
            with_all_nodes(solved, self.graph, kept, self.masked),
            self.merged.operator,
            connectivity=self.connectivity,
            regularization=self.regularization,
            eigengap=self.eigengap,
            rows=kept,
            seconds=self.seconds | stages.seconds,
            merged=replace(self.merged, layers=layers),
            tall=kept_tall(solved, settings, self.graph.n_nodes, kept, self.masked),
        )

    def _on_all_nodes(self, layer: Embedded) -> Embedded:
        vectors = with_all_nodes(layer, self.graph, self.kept, self.masked).vectors
        told = layer.embedding
        return replace(layer, embedding=Embedding(vectors, told.eigenvalues, told.names))


def prepare_layers(graph: MultilayerGraph, settings: Settings) -> PreparedLayers:
    """Sort out the pieces, embed the layers where the aggregation asks for it, and merge them.

    Components are those of the union of the layers: a node missing from some layers is connected through
    the others. tau is added to every layer, in units of its own mean degree. ``"auto"`` clusters are
    counted by the eigengap of the sum of the Laplacians, since Eq. 22 has a gap after K by construction.
    """
    stages = Stages(settings.on_stage)
    wanted = checked(settings.regularization)
    connectivity = connect(graph, settings.n_components, settings.disconnected)
    report_aside(connectivity, graph.node_names)
    kept, rows, masked = _taking_part(graph, connectivity)
    regularization = _decide(wanted, settings, connectivity)
    with stages("layers"):
        gap = _gap(kept, settings, regularization.tau, masked)
        k = settings.n_components if gap is None else gap.n_clusters
        merged = merge(
            kept,
            int(k),
            settings,
            laplacian=settings.laplacian,
            aggregation=settings.aggregation,
            alpha=settings.alpha,
            layer_weights=settings.layer_weights,
            aggregation_params=settings.aggregation_params,
            tau=regularization.tau,
            aside=masked,
        )
    moved = connectivity if graph.is_resident else connectivity.moved(rows)
    return PreparedLayers(graph, merged, int(k), regularization, moved, gap, merged.seconds, rows, masked)


def _taking_part(graph: MultilayerGraph, connectivity: Connectivity) -> tuple[MultilayerGraph, Array, Array]:
    """The layers to merge, which row of the result each of their rows is, and which of them are masked.

    Layers on disk keep all rows: those that take no part are masked.
    """
    if graph.is_resident:
        return sublayers(graph, connectivity.kept), connectivity.kept, np.empty(0, np.int64)
    return graph, input_order(graph.layers[0]), connectivity.aside


def _gap(graph: MultilayerGraph, settings: Settings, tau: float, masked: Array) -> Eigengap | None:
    if not isinstance(settings.n_components, str):
        return None
    operators = layer_operators(graph, settings.laplacian, tau, masked)
    summed = mean.aggregate(Layers(operators, np.ones(graph.n_layers)))
    found = embed(summed, n_eigenvalues(graph.n_nodes), settings)
    if found.solution.stop_reason == INTERRUPTED:
        raise KeyboardInterrupt  # rough eigenvalues count no clusters
    gap = widest_gap(found.embedding.eigenvalues)
    gap.warn()
    return gap


def _decide(wanted: float | str | None, settings: Settings, connectivity: Connectivity) -> Regularization:
    in_pieces = connectivity.n_components > 1 and settings.disconnected == "regularize"
    if in_pieces and not isinstance(wanted, float):
        reason = (
            f"{connectivity.n_components} components: {TAU:g} mean degrees in every layer tie them together"
        )
        return Regularization(TAU, reason)
    if isinstance(wanted, str):
        reason = (
            "not used: several layers seldom share their dangling pieces; a number adds tau to each layer"
        )
        return Regularization(0.0, reason)
    return Regularization(wanted or 0.0, "asked for" if wanted else "off")
