"""Functions of layers that are known by their own K eigenpairs only: no pass over the edges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spectrograd.aggregation import Layers, typical_diagonal
from spectrograd.operators.composite import LowRankOperator
from spectrograd.operators.sparse import LowRank
from spectrograd.typing import Array


def truncated_function(layers: Layers, function: Callable[[Array], Array]) -> LowRankOperator:
    """``sum_s c_s f(L_s)`` with all eigenvalues but the K smallest of each layer replaced by their mean.

    The eigenvalues of a normalised Laplacian have mean 1, so ``f(L_s)`` becomes
    ``f(1) I - U^s diag(f(1) - f(lambda^s)) U^s'``, and the multiple of the identity drops out. A weighted
    form of ``grassmann``: vectors that a layer hardly shows (eigenvalues near 1) hardly count.

    Parameters
    ----------
    layers
        Operators, weights, embeddings (each N x K_s) and their eigenvalues (each K_s).
    function
        Increasing, from eigenvalues of a normalised Laplacian.
    """
    parts = []
    for weight, operator, values in zip(layers.weights, layers.sparse, layers.eigenvalues, strict=True):
        # eigenvalues in units of the diagonal, whose mean is theirs
        relative = values / (typical_diagonal(operator) or 1.0)
        parts.append(weight * np.maximum(function(np.ones(1)) - function(relative), 0.0))
    # no coefficient is negative: the eigenvalues lie in [-sum_s max_k, 0]
    coefficients = np.concatenate(parts)
    lower = -float(sum(part.max(initial=0.0) for part in parts))
    factors = np.ascontiguousarray(np.hstack(layers.embeddings))
    return LowRankOperator(LowRank(factors, coefficients), lower, 0.0, layers.names)
