"""What happens to a multilayer graph before its layers are merged: pieces, tau, the number of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.aggregation import Layers, layer_operators, mean
from spectrograd.graph import MultilayerGraph
from spectrograd.graph.pieces import Connectivity, connect, report_aside, sublayers, union
from spectrograd.labels.eigengap import Eigengap, n_eigenvalues, widest_gap
from spectrograd.operators.regularized import TAU, Regularization, checked
from spectrograd.pipeline.single import Treatment
from spectrograd.pipeline.solving import Settings, embed

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Treated:
    """The nodes that take part, with what was decided about them."""

    graph: MultilayerGraph
    n_components: int
    regularization: Regularization
    connectivity: Connectivity
    eigengap: Eigengap | None = None


def treat(graph: MultilayerGraph, n_components: int | str, settings: Settings, how: Treatment) -> Treated:
    """Apply the policies to all layers together.

    Components are those of the union of the layers: a node missing from some layers is connected through
    the others. tau is added to every layer, in units of its own mean degree. ``"auto"`` clusters are
    counted by the eigengap of the sum of the Laplacians, since Eq. 22 has a gap after K by construction.
    """
    wanted = checked(how.regularization)
    connectivity = connect(union(graph), n_components, how.disconnected)
    report_aside(connectivity, graph.node_names)
    kept = sublayers(graph, connectivity.kept)
    regularization = _decide(wanted, how, connectivity)
    gap = None
    if isinstance(n_components, str):
        operators = layer_operators(kept, how.laplacian, regularization.tau)
        summed = mean.aggregate(Layers(operators, np.ones(graph.n_layers)))
        gap = widest_gap(embed(summed, n_eigenvalues(kept.n_nodes), settings).embedding.eigenvalues)
    k = n_components if gap is None else gap.n_clusters
    return Treated(kept, int(k), regularization, connectivity, gap)


def _decide(wanted: float | str | None, how: Treatment, connectivity: Connectivity) -> Regularization:
    if how.disconnected == "regularize" and connectivity.n_components > 1 and not isinstance(wanted, float):
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
