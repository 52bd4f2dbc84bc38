"""``sum``: the Laplacian of one graph, whose weights are the weighted sums of the layers' weights.

Unlike ``mean``, which normalises each layer by itself, a node counts by its edges in all layers: one with few
edges in a layer is not pulled by these few as strongly as another node by its many. Layers with
more or heavier edges count more.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from spectrograd.aggregation import Layers, mean
from spectrograd.graph import Graph
from spectrograd.operators.composite import SumOperator
from spectrograd.operators.laplacian import Kind, masked_laplacian
from spectrograd.operators.sparse import SparseOperator

NEEDS_EMBEDDINGS = False


def aggregate(layers: Layers, **_: object) -> SparseOperator | SumOperator:
    """``I - D^-1/2 W D^-1/2`` of ``W = sum_s c_s W^s``; of unnormalised layers the sum of Laplacians."""
    if layers.operators[0].scale is None:  # D - W is linear in the weights: this is the mean
        return mean.aggregate(layers)
    if any(operator.is_streamed for operator in layers.operators):
        raise ValueError("aggregation='sum' needs the layers in memory: choose 'mean' or 'projection'")
    used = [(c, operator) for c, operator in zip(layers.weights, layers.sparse, strict=True) if c > 0]
    total = sum(operator.graph.matrix * float(c) for c, operator in used)
    graph = Graph._from_clean_csr(sp.csr_array(total), layers.names)
    kind: Kind = "signed_symmetric" if any(operator.graph.is_signed for _, operator in used) else "symmetric"
    # tau mean degrees of every layer add up to tau mean degrees of the sum
    return masked_laplacian(graph, kind, layers.tau, np.empty(0, np.int64), allow_isolated=True)
