"""Plain NumPy and SciPy: the three mandatory verbs and nothing else; the example for a new engine."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from spectrograd.engines.base import Engine, Work
from spectrograd.operators.sparse import SparseOperator
from spectrograd.typing import Array


class NumpyEngine(Engine):
    """Multivectors are numpy arrays; nothing is compiled, and nothing is fast."""

    name = "numpy"

    def __init__(self) -> None:
        self.work = Work()

    def spmm(self, operator: SparseOperator, X: Array) -> Array:
        """Row block after row block; those of a graph on disk are forgotten as the loop goes on."""
        V = X if operator.scale is None else operator.scale * X
        product = np.empty_like(V)
        for block in operator.graph.blocks:
            weights = np.ones(len(block.indices)) if block.weights is None else block.weights
            # columns of all nodes, rows of the block only
            W = sp.csr_array((weights, block.indices, block.indptr), shape=(block.n_rows, len(X)))
            product[block.start : block.stop] = W @ V
        if operator.scale is not None:
            product = operator.scale * product
        return np.asarray(operator.diagonal * X - product, dtype=X.dtype)

    def gram(self, X: Array, Y: Array, metric: Array | None = None, *, symmetric: bool = False) -> Array:
        """Compute in float64, whatever the type of the multivectors."""
        left = X.astype(np.float64) if metric is None else metric * X.astype(np.float64)
        return np.asarray(left.T @ Y.astype(np.float64))

    def combine(self, X: Array, C: Array, Y: Array | None = None, E: Array | None = None) -> Array:
        """Compute in the type of X."""
        product = X @ C if Y is None or E is None else X @ C + Y @ E
        return np.asarray(product, dtype=X.dtype)
