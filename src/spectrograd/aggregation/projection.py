"""``projection``: Eq. 22, Laplacians plus closeness to every layer's subspace (Dong et al. 2014)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from spectrograd.aggregation import Layers, mean
from spectrograd.laplacian import LowRank, Operator

NEEDS_EMBEDDINGS = True


def aggregate(layers: Layers, *, alpha: float | str = "auto", **_: Any) -> Operator:
    """``L_MLG = sum_s c_s (L^s - alpha U^s U^s')``: sparse plus rank S K, never N x N.

    ``alpha`` is relative to the scale of the Laplacians: "auto" is 0.5 for normalised layers, and
    0.5 times the mean of the diagonal otherwise, so that both parts stay comparable (docs/adr/0003).
    """
    summed = mean.aggregate(layers)
    strength = resolve_alpha(alpha, layers)
    factors = np.ascontiguousarray(np.hstack(layers.embeddings))
    widths = [U.shape[1] for U in layers.embeddings]
    coefficients = strength * np.repeat(layers.weights, widths)
    # each U^s U^s' is a projector, so the sum lowers the spectrum by at most alpha times the weights
    lower = summed.lower - strength * float(layers.weights.sum())
    return replace(summed, low_rank=LowRank(factors, coefficients), lower=lower)


def resolve_alpha(alpha: float | str, layers: Layers) -> float:
    """The number behind ``alpha``."""
    if alpha == "auto":
        return 0.5 * float(np.mean([operator.diagonal.mean() for operator in layers.operators]))
    value = float(alpha)
    if not np.isfinite(value) or value < 0:
        raise ValueError(f"alpha={alpha}: expected a number >= 0 or 'auto'")
    return value
