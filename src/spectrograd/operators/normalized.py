"""A matrix that is normalised after its layers were added, as the paper's eigendecomposition takes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spectrograd.operators.sparse import LowRank, SparseOperator


def normalized(operator: SparseOperator) -> SparseOperator:
    """``D^-1/2 A D^-1/2`` with D the degrees of the graph: of all layers together where A is their sum.

    For one graph without a low-rank part this is the normalised Laplacian. A is to be unnormalised
    (no ``scale``, the identity as metric), and every node needs an edge.

    Examples
    --------
    >>> from spectrograd.graph import Graph
    >>> from spectrograd.operators.laplacian import laplacian
    >>> path = laplacian(Graph.from_edges([0, 1], [1, 2]), "unnormalized")
    >>> normalized(path).diagonal.tolist()
    [1.0, 1.0, 1.0]
    """
    if operator.scale is not None or operator.metric is not None:
        raise ValueError("this operator is normalised already: begin with unnormalised layers")
    degrees = operator.graph.degrees
    if not degrees.min() > 0:
        raise ValueError("a node without any edge cannot be normalised: remove it first")
    scale = 1 / np.sqrt(degrees)
    low_rank = operator.low_rank and LowRank(
        operator.low_rank.factors * scale[:, None], operator.low_rank.coefficients
    )
    return replace(
        operator,
        diagonal=operator.diagonal / degrees,
        scale=scale,
        low_rank=low_rank,
        lower=min(operator.lower, 0.0) / float(degrees.min()),
        upper=2.0,
    )
