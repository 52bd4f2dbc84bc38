"""``mean``: the (weighted) sum of the layers' Laplacians (Argyriou 2005, Tang 2012, Chen & Hero 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from spectrograd.aggregation import Layers
from spectrograd.graph import Graph
from spectrograd.laplacian import Operator

NEEDS_EMBEDDINGS = False


def aggregate(layers: Layers, **_: Any) -> Operator:
    """``sum_s c_s L^s`` as one sparse operator: the union of the layers' edges."""
    total, diagonal = None, np.zeros(layers.operators[0].n_nodes)
    lower, upper = 0.0, 0.0
    for weight, operator in zip(layers.weights, layers.operators, strict=True):
        matrix = operator.graph.matrix * weight
        if operator.scale is not None:
            scaling = sp.diags_array(operator.scale)
            matrix = scaling @ matrix @ scaling
        total = matrix if total is None else total + matrix
        # a node that a layer does not know has nothing to say in the sum
        diagonal += weight * np.where(operator.graph.degrees > 0, operator.diagonal, 0.0)
        lower += weight * operator.lower
        upper += weight * operator.upper
    names = layers.operators[0].graph.names
    graph = Graph._from_clean_csr(sp.csr_array(total), names)
    return Operator(graph, diagonal, lower=lower, upper=upper)
