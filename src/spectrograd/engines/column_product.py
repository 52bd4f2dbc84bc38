"""Products of one column after another by the same operator in memory: what they share is prepared once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse import _sparsetools

from spectrograd.kernels.thresholds import Thresholds
from spectrograd.operators.sparse import SparseOperator
from spectrograd.typing import Array

ColumnProduct = Callable[[Array], Array]


def scipy_product(operator: SparseOperator) -> ColumnProduct:
    """``A x`` of a small graph, without a low-rank part, by scipy's compiled loop.

    Scipy's operator ``@`` takes a third of the time of so small a product to find that loop.
    """
    n = operator.n_nodes
    diagonal = operator.diagonal
    W = operator.scaled_matrix
    arrays = (W.indptr, W.indices, W.data)

    def product(x: Array) -> Array:
        along_edges = np.zeros(n, x.dtype)
        _sparsetools.csr_matvec(n, n, *arrays, x, along_edges)
        result = diagonal * x
        result -= along_edges
        return result

    return product


def compiled_product(operator: SparseOperator, dtype: DTypeLike, thresholds: Thresholds) -> ColumnProduct:
    """``A x`` of a larger graph in memory, without a low-rank part, by the kernel of its own."""
    from spectrograd.kernels.jit import read_only
    from spectrograd.kernels.spmm import laplacian_column

    # as ``kernels.spmm.multiply`` has them
    scale = operator.scale
    numbers = (read_only(operator.diagonal, dtype), read_only(scale, dtype))
    calls = []
    for b in operator.graph.blocks:
        weights = b.weights_in(dtype)
        weights = None if weights is None else read_only(weights, dtype)
        arrays = (read_only(array, array.dtype) for array in (b.indptr, b.indices))
        threaded = len(b.indices) > thresholds.worth_threads
        calls.append((laplacian_column if threaded else laplacian_column.serial, (b.start, *arrays, weights)))

    def product(x: Array) -> Array:
        gathered = x if scale is None else scale * x
        result = np.empty_like(x)
        for kernel, rows in calls:
            kernel(*rows, *numbers, x, gathered, result)
        return result

    return product
