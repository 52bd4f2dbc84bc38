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
    total, diagonal = None, np.zeros(layers.n_nodes)
    lower, upper = 0.0, 0.0
    for weight, operator in zip(layers.weights, layers.operators, strict=True):
        if weight == 0:
            continue
        matrix = operator.graph.matrix * weight
        if operator.scale is not None:
            scaling = sp.diags_array(operator.scale)
            matrix = scaling @ matrix @ scaling
        total = matrix if total is None else total + matrix
        diagonal += weight * operator.diagonal  # zero where the layer does not know the node
        lower += weight * operator.lower
        upper += weight * operator.upper
    graph = Graph._from_clean_csr(sp.csr_array(total), layers.names)
    return Operator(graph, diagonal, lower=lower, upper=upper)
