"""``grassmann``: the subspace closest to all layers' subspaces; no pass over the edges."""

from __future__ import annotations

import numpy as np

from spectrograd.aggregation import Layers
from spectrograd.operators.base import Operator
from spectrograd.operators.composite import LowRankOperator
from spectrograd.operators.sparse import LowRank

NEEDS_EMBEDDINGS = True


def aggregate(layers: Layers, **_: object) -> Operator:
    """``-Z diag(c) Z'`` with ``Z = [U^1 .. U^S]``: its smallest eigenvectors minimise Eq. 20.

    They are the top left singular vectors of Z (columns times the roots of the weights). The operator has
    rank S K and no edges, so product-based solvers only; a product costs O(N K S) per column.
    """
    factors = np.ascontiguousarray(np.hstack(layers.embeddings))
    coefficients = np.repeat(layers.weights, [U.shape[1] for U in layers.embeddings])
    lower = -float(layers.weights.sum())
    return LowRankOperator(LowRank(factors, coefficients), lower, 0.0, layers.names)
