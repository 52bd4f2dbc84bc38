"""``mean``: the (weighted) sum of the layers' Laplacians (Argyriou 2005, Tang 2012, Chen & Hero 2017)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from spectrograd.aggregation import Layers, with_neutral_nodes
from spectrograd.graph import Graph
from spectrograd.operators.composite import SumOperator
from spectrograd.operators.similarity import SimilarityOperator
from spectrograd.operators.sparse import LowRank, SparseOperator

NEEDS_EMBEDDINGS = False


def aggregate(layers: Layers, **_: object) -> SparseOperator | SumOperator:
    """``sum_s c_s L^s`` as one sparse operator, the union of the layers' edges.

    With layers on disk, or of similarities that are never formed, it stays a sum.
    """
    operators = tuple(with_neutral_nodes(operator) for operator in layers.operators)
    layers = replace(layers, operators=operators)
    if any(operator.is_streamed or isinstance(operator, SimilarityOperator) for operator in operators):
        used = [(float(c), part) for c, part in zip(layers.weights, operators, strict=True) if c > 0]
        return SumOperator(tuple(part for _, part in used), tuple(c for c, _ in used))
    return _add_layers(layers)


def _add_layers(layers: Layers) -> SparseOperator:
    total = None
    diagonal = np.zeros(layers.n_nodes)
    lower = 0.0
    upper = 0.0
    parts: list[tuple[float, LowRank]] = []
    for weight, operator in zip(layers.weights, layers.sparse, strict=True):
        if weight == 0:
            continue
        matrix = operator.scaled_matrix if weight == 1 else operator.scaled_matrix * weight
        total = matrix if total is None else total + matrix
        diagonal += weight * operator.diagonal
        lower += weight * operator.lower
        upper += weight * operator.upper
        if operator.low_rank is not None:  # a regularised layer
            parts.append((weight, operator.low_rank))
    graph = Graph._from_clean_csr(sp.csr_array(total), layers.names)
    low_rank = None
    if parts:
        factors = np.hstack([part.factors for _, part in parts])
        low_rank = LowRank(factors, np.concatenate([weight * part.coefficients for weight, part in parts]))
    return SparseOperator(graph, diagonal, low_rank=low_rank, lower=lower, upper=upper)
