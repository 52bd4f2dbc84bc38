"""Adjacency matrices and edge lists as they come: checked, repaired with a word, or refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.graph.tensors import from_tensor
from spectrograd.kernels import SMALL, WORTH_THREADS
from spectrograd.notices import warn

Array = NDArray[Any]
_CHECKED_FORMATS = ("csr", "csc", "bsr", "coo")
ROUNDING = 1e-10  # of the largest weight, by how much w_ij and w_ji may differ without a word


class GraphError(ValueError):
    """The input is not a graph we can embed; the message says what, where and what to do."""


class GraphWarning(UserWarning):
    """The input was repaired; the message says how."""


def as_csr(matrix: Any) -> sp.csr_array:
    """The input as a square float CSR matrix, which may share its memory, or a clear error."""
    matrix = from_tensor(matrix)
    if sp.issparse(matrix):
        check_structure(matrix)
    else:
        matrix = np.asarray(matrix)
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"adjacency matrix has type {matrix.dtype}; real numbers are needed")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"adjacency matrix has shape {matrix.shape}; it must be square")
    if matrix.shape[0] == 0:
        raise GraphError("the graph is empty: no nodes, no edges")
    if matrix.dtype == np.float16:  # scipy has no sparse matrices of it; every value is also a float32
        matrix = matrix.astype(np.float32)
    csr = sp.csr_array(matrix)
    if sp.issparse(matrix) and matrix.format not in _CHECKED_FORMATS:
        check_structure(csr)
    csr.prune()
    return csr if csr.dtype in (np.float32, np.float64) else csr.astype(np.float64)


def check_structure(matrix: Any) -> None:
    """Refuse row pointers or indices that point outside a sparse matrix: compiled code would follow them."""
    if matrix.format in ("csr", "csc", "bsr"):
        along, across = matrix.shape if matrix.format != "csc" else matrix.shape[::-1]
        if matrix.format == "bsr":
            blocks = matrix.data.shape[1:]
            along, across = along // blocks[0], across // blocks[1]
        _check_pointers(matrix, along)
        _check_indices("column" if matrix.format != "csc" else "row", matrix.indices, across)
    elif matrix.format == "coo" and matrix.ndim == 2:
        for what, indices, size in zip(("row", "column"), matrix.coords, matrix.shape, strict=True):
            _check_indices(what, indices, size)
            if len(indices) != len(matrix.data):
                raise GraphError(f"broken sparse matrix: {len(matrix.data)} weights, {len(indices)} {what}s")


def _check_pointers(matrix: Any, n_rows: int) -> None:
    pointers, n_entries = matrix.indptr, min(len(matrix.indices), len(matrix.data))
    if pointers.dtype.kind not in "iu" or len(pointers) != n_rows + 1 or pointers[0] != 0:
        raise GraphError(f"broken sparse matrix: indptr must hold {n_rows + 1} integers and begin with 0")
    falls = pointers[1:] < pointers[:-1]
    if falls.any() or pointers[-1] > n_entries:
        at = int(np.argmax(falls)) if falls.any() else n_rows - 1
        raise GraphError(
            f"broken sparse matrix: indptr[{at + 1}] is {pointers[at + 1]}; it must not fall, nor exceed the "
            f"{n_entries} stored entries; build the matrix again"
        )


def _check_indices(what: str, indices: Array, size: int) -> None:
    if indices.dtype.kind not in "iu":
        raise GraphError(f"broken sparse matrix: {what} indices of type {indices.dtype}, not integers")
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        at = int(np.argmax((indices < 0) | (indices >= size)))
        raise GraphError(
            f"broken sparse matrix: {what} index {indices[at]} of entry {at} is outside 0..{size - 1}; "
            "build the matrix again"
        )


class CleanArrays(NamedTuple):
    """A symmetric CSR matrix, positive and without diagonal, that shares no memory with the input.

    ``weights`` is None when all are one.
    """

    indptr: Array
    indices: Array
    weights: Array | None


def compact(csr: sp.csr_array) -> CleanArrays:
    """The arrays of a matrix that is known to be clean and our own."""
    weights = None if bool(np.all(csr.data == 1)) else csr.data
    return CleanArrays(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), weights)


def clean_arrays(csr: sp.csr_array) -> CleanArrays | None:
    """The arrays of a matrix that needs no repair but the rounding of its halves; None if it needs one."""
    flawed, weighted, symmetric = _look_over(csr)
    if flawed:
        return None
    if symmetric:
        weights = csr.data.copy() if weighted else None
    else:
        mean, largest = _mean_with_transpose(csr)
        if largest > ROUNDING * csr.data.max():
            return None
        weights = None if np.all(mean == 1) else mean
    return CleanArrays(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), weights)


def _look_over(csr: sp.csr_array) -> tuple[bool, bool, bool]:
    """Whether the matrix has flaws other than asymmetry, weights other than one, and is symmetric."""
    indptr, indices, data = csr.indptr, csr.indices, csr.data
    if csr.shape[0] > SMALL:
        from spectrograd.kernels.csr.structure import look_over

        run = look_over if len(data) > WORTH_THREADS else look_over.serial
        bits = np.ascontiguousarray(data).view(f"u{data.itemsize}")
        one, infinite = np.array([1, np.inf], data.dtype).view(bits.dtype)
        flawed, weighted, imbalance = run(indptr, indices, bits, one, infinite)
        return bool(flawed), bool(weighted), int(imbalance) == 0
    low, high = data.min(initial=1), data.max(initial=1)
    positive = low > 0 and high < np.inf  # false for NaN too
    if not positive or not csr.has_canonical_format or csr.diagonal().any():
        return True, True, False
    columns = csr.tocsc()
    pairs = ((indptr, columns.indptr), (indices, columns.indices), (data, columns.data))
    return False, not low == high == 1, all(np.array_equal(own, other) for own, other in pairs)


def _mean_with_transpose(csr: sp.csr_array) -> tuple[Array, float]:
    """The weights of ``(W + W') / 2`` and the largest ``|w_ij - w_ji|``, infinite if the patterns differ."""
    if csr.shape[0] > SMALL:
        from numba import get_num_threads

        from spectrograd.kernels.csr.structure import mean_with_transpose

        mean, large = csr.data.copy(), csr.nnz > WORTH_THREADS
        run, n_parts = (mean_with_transpose, get_num_threads()) if large else (mean_with_transpose.serial, 1)
        return mean, float(run(csr.indptr, csr.indices, mean, n_parts))
    columns = csr.tocsc()
    if not (np.array_equal(csr.indptr, columns.indptr) and np.array_equal(csr.indices, columns.indices)):
        return csr.data, np.inf
    return (csr.data + columns.data) * csr.dtype.type(0.5), float(np.abs(csr.data - columns.data).max())


def without_duplicates(csr: sp.csr_array) -> sp.csr_array:
    """A canonical copy without stored zeros, or an error about the first bad weight."""
    csr = sp.csr_array(csr, copy=True)
    if not np.all(np.isfinite(csr.data)) or np.any(csr.data < 0):
        coo = csr.tocoo()
        check_weights(coo.data, coo.row, coo.col)
    before = csr.nnz
    csr.sum_duplicates()
    if csr.nnz < before:
        warn(f"{before - csr.nnz} duplicate entries were summed", GraphWarning)
    csr.eliminate_zeros()
    return csr


def without_loops(csr: sp.csr_array) -> sp.csr_array:
    """The matrix without its diagonal, in place."""
    loops = np.flatnonzero(csr.diagonal())
    if len(loops):
        warn(f"{len(loops)} self loops dropped (first at node {loops[0]})", GraphWarning)
        csr.setdiag(0)
        csr.eliminate_zeros()
    return csr


def symmetrized(csr: sp.csr_array) -> sp.csr_array:
    """``(W + W') / 2``."""
    transposed = csr.T.tocsr()
    difference = abs(csr - transposed)
    if difference.max() > ROUNDING * csr.data.max():
        row = int(np.argmax(difference.max(axis=1).toarray()))
        warn(
            f"the adjacency matrix is not symmetric (first seen in row {row}); using (W + W') / 2",
            GraphWarning,
        )
    return sp.csr_array((csr + transposed) * csr.dtype.type(0.5))


def check_weights(data: Array, rows: Array, cols: Array, names: Array | None = None) -> None:
    """Refuse the first weight that is not finite or negative, by the names of its ends."""
    for bad, what in ((~np.isfinite(data), "not finite"), (data < 0, "negative")):
        if bad.any():
            at = int(np.argmax(bad))
            ends = (rows[at], cols[at]) if names is None else (names[rows[at]], names[cols[at]])
            raise GraphError(
                f"weight of edge ({ends[0]}, {ends[1]}) is {data[at]}: {what}; "
                "weights must be finite and not negative"
            )


def row_numbers(ends: Array, n_nodes: int) -> Array:
    """The ends of edges as they are, if they are row numbers; else an error."""
    if len(ends) == 0:  # an empty list has no type of its own
        return ends.astype(np.int64)
    if ends.dtype.kind not in "iu":
        raise GraphError("edge list: with n_nodes given the ends must be row numbers (integers)")
    outside = (ends < 0) | (ends >= n_nodes)
    if outside.any():
        at = int(np.argmax(outside))
        raise GraphError(f"edge {at}: node {ends[at]} is outside 0..{n_nodes - 1}")
    return ends
