"""``projection``: Eq. 22, Laplacians plus closeness to every layer's subspace (Dong et al. 2014)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spectrograd.aggregation import Layers, mean, typical_diagonal
from spectrograd.operators.composite import LowRankOperator, SumOperator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.typing import Array

NEEDS_EMBEDDINGS = True


def aggregate(layers: Layers, *, alpha: float | str = "auto", **_: object) -> SparseOperator | SumOperator:
    """``L_MLG = sum_s c_s (L^s - alpha_s U^s U^s')``: sparse plus rank S K, never N x N.

    A number is the paper's ``alpha``, the same for all layers; "auto" follows each layer's own scale
    (see :func:`resolve_alpha`).
    """
    # 1. the sparse part, sum_s c_s L^s
    summed = mean.aggregate(layers)
    # 2. the low-rank part: factors [U^1 .. U^S] (N x S K), each with the coefficient c_s alpha_s
    strengths = layers.weights * resolve_alpha(alpha, layers)
    factors = np.hstack(layers.embeddings)
    coefficients = np.repeat(strengths, [U.shape[1] for U in layers.embeddings])
    # 3. one operator of both
    if isinstance(summed, SumOperator):  # layers on disk, which cannot be added entry by entry
        closeness = LowRank(np.ascontiguousarray(factors), coefficients)
        near = LowRankOperator(closeness, -float(strengths.sum()), 0.0, layers.names)
        return SumOperator((*summed.operators, near), (*summed.weights, 1.0))
    if summed.low_rank is not None:  # of regularised layers
        factors = np.hstack([factors, summed.low_rank.factors])
        coefficients = np.concatenate([coefficients, summed.low_rank.coefficients])
    # each U^s U^s' is a projector, so the sum lowers the spectrum by at most the sum of the strengths
    lower = summed.lower - float(strengths.sum())
    return replace(summed, low_rank=LowRank(np.ascontiguousarray(factors), coefficients), lower=lower)


def resolve_alpha(alpha: float | str, layers: Layers) -> Array:
    """The number behind ``alpha``, one per layer.

    "auto" is half the median of the layer's diagonal over the nodes it links: 0.5 for normalised
    layers (Dong et al. 2014), half the median degree otherwise. Both parts of Eq. 22 then scale alike
    with the weights, layer by layer; a median, because one hub must not set the balance.
    """
    if alpha == "auto":
        return 0.5 * np.array([typical_diagonal(operator) for operator in layers.operators])
    try:
        value = float(alpha)
    except (TypeError, ValueError):
        value = float("nan")
    if not np.isfinite(value) or value < 0:
        raise ValueError(f"alpha={alpha!r}: expected a number >= 0 or 'auto'")
    return np.full(len(layers.operators), value)
