"""A multilayer graph before and after its layers are merged: pieces, tau, number of clusters, solution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, layer_operators, mean
from spectrograd.graph import MultilayerGraph
from spectrograd.graph.pieces import Connectivity, connect, on_all_rows, report_aside, sublayers, union
from spectrograd.labels.eigengap import Eigengap, n_eigenvalues, widest_gap
from spectrograd.operators.regularized import TAU, Regularization, checked
from spectrograd.pipeline.multilayer import Merged, merge
from spectrograd.pipeline.result import Result, Stages, found
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import with_all_nodes
from spectrograd.pipeline.solving import Embedded, embed

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

    @property
    def kept(self) -> Array:
        """Row numbers of the nodes that take part."""
        return self.connectivity.kept

    def solve(self, settings: Settings, start: Array | None = None) -> Result:
        """The certified embedding of all nodes; ``start`` (N x K) is a guess for a warm start."""
        stages, kept, n_nodes = Stages(settings.on_stage), self.kept, self.graph.n_nodes
        guess = None if start is None else start[kept]
        with stages("solve"):
            solved = self.merged.embed(self.n_components, settings, start=guess)
        layers = tuple(_on_all_nodes(layer, kept, n_nodes) for layer in self.merged.layers)
        return found(
            solved,
            with_all_nodes(solved, self.graph.names, kept, n_nodes),
            self.merged.operator,
            connectivity=self.connectivity,
            regularization=self.regularization,
            eigengap=self.eigengap,
            rows=kept,
            seconds=self.seconds | stages.seconds,
            merged=replace(self.merged, layers=layers),
        )


def prepare_layers(graph: MultilayerGraph, settings: Settings) -> PreparedLayers:
    """Sort out the pieces, embed the layers where the aggregation asks for it, and merge them.

    Components are those of the union of the layers: a node missing from some layers is connected through
    the others. tau is added to every layer, in units of its own mean degree. ``"auto"`` clusters are
    counted by the eigengap of the sum of the Laplacians, since Eq. 22 has a gap after K by construction.
    """
    stages = Stages(settings.on_stage)
    wanted = checked(settings.regularization)
    connectivity = connect(union(graph), settings.n_components, settings.disconnected)
    report_aside(connectivity, graph.node_names)
    kept = sublayers(graph, connectivity.kept)
    regularization = _decide(wanted, settings, connectivity)
    with stages("layers"):
        gap = _gap(kept, settings, regularization.tau)
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
        )
    return PreparedLayers(graph, merged, int(k), regularization, connectivity, gap, merged.seconds)


def _gap(graph: MultilayerGraph, settings: Settings, tau: float) -> Eigengap | None:
    if not isinstance(settings.n_components, str):
        return None
    operators = layer_operators(graph, settings.laplacian, tau)
    summed = mean.aggregate(Layers(operators, np.ones(graph.n_layers)))
    gap = widest_gap(embed(summed, n_eigenvalues(graph.n_nodes), settings).embedding.eigenvalues)
    gap.warn()
    return gap


def _on_all_nodes(layer: Embedded, kept: Array, n_nodes: int) -> Embedded:
    vectors = on_all_rows(layer.embedding.vectors, kept, n_nodes)
    return replace(layer, embedding=replace(layer.embedding, vectors=vectors))


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
