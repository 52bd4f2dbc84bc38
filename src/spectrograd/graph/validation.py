"""Validation of adjacency matrices and edge lists: each is accepted, repaired with a warning, or refused.

The result is always a symmetric CSR matrix, positive and without diagonal (:class:`CleanArrays`). Sparse and
dense matrices, torch tensors and lists of edges are accepted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spectrograd.kernels import SMALL, WORTH_THREADS
from spectrograd.notices import parameter, warn
from spectrograd.typing import Array

# --- Tensors


def from_tensor(thing: object) -> Any:
    """Convert a torch tensor, dense or sparse, to a numpy array or a scipy matrix; return others unchanged.

    A caller who has a tensor has loaded torch: it is not imported here. Memory on the host is shared, not
    copied, and the tensor is not changed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(thing, torch.Tensor):
        return thing
    tensor = thing.detach()
    if tensor.dtype == torch.bfloat16:  # numpy has no such type; every value is also a float32
        tensor = tensor.float()
    if tensor.layout == torch.strided:
        return tensor.cpu().numpy()
    if tensor.layout == torch.sparse_coo:
        indices = tensor._indices().cpu().numpy()
        values = tensor._values().cpu().numpy()
        return sp.coo_array((values, (indices[0], indices[1])), shape=tuple(tensor.shape))
    if tensor.layout == torch.sparse_bsc:  # scipy has no such form
        return tensor.to_dense().cpu().numpy()
    if tensor.layout == torch.sparse_csc:
        parts = (tensor.values(), tensor.row_indices(), tensor.ccol_indices())
        form = sp.csc_array
    else:
        parts = (tensor.values(), tensor.col_indices(), tensor.crow_indices())
        form = sp.csr_array if tensor.layout == torch.sparse_csr else sp.bsr_array
    return form(tuple(part.cpu().numpy() for part in parts), shape=tuple(tensor.shape))


# --- Adjacency matrices

_CHECKED_FORMATS = ("csr", "csc", "bsr", "coo")
ROUNDING = 1e-10  # of the largest weight: w_ij and w_ji may differ by so much without a warning


class GraphError(ValueError):
    """The input is not a graph that can be embedded; the message says what, where and what to do."""


class GraphWarning(UserWarning):
    """The input was repaired; the message says how."""


# --- Signs of weights: whoever asks for a signed Laplacian accepts negative weights, nobody else.

_accepts_signs: ContextVar[bool] = ContextVar("accepts_signs", default=False)


@contextmanager
def accept_signs(accepted: bool = True) -> Iterator[None]:
    """Accept negative weights inside: in matrices, edge lists, files and stores alike."""
    token = _accepts_signs.set(accepted or _accepts_signs.get())
    try:
        yield
    finally:
        _accepts_signs.reset(token)


def is_invalid(weights: Array | float) -> Array:
    """Which weights are not finite, or negative where signs are not accepted."""
    bad = np.logical_not(np.isfinite(weights))
    return bad if _accepts_signs.get() else bad | (np.asarray(weights) < 0)


def explain_weight(weight: Any) -> str:
    """What a weight that is refused must be, and which Laplacian would take it."""
    hint = f" ({parameter('laplacian', 'signed')} takes negative ones)" if np.isfinite(weight) else ""
    return f"must be finite and not negative{hint}"


def as_csr(matrix: Any) -> sp.csr_array:
    """Convert the input to a square float CSR matrix, which may share its memory, or raise an error."""
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


def check_structure(matrix: sp.sparray) -> None:
    """Refuse row pointers or indices out of range: compiled kernels do not check them."""
    if matrix.format in ("csr", "csc", "bsr"):
        n_major, n_minor = matrix.shape if matrix.format != "csc" else matrix.shape[::-1]
        if matrix.format == "bsr":
            blocks = matrix.data.shape[1:]
            n_major //= blocks[0]
            n_minor //= blocks[1]
        _check_pointers(matrix, n_major)
        _check_indices("column" if matrix.format != "csc" else "row", matrix.indices, n_minor)
    elif matrix.format == "coo" and matrix.ndim == 2:
        for what, indices, size in zip(("row", "column"), matrix.coords, matrix.shape, strict=True):
            _check_indices(what, indices, size)
            if len(indices) != len(matrix.data):
                raise GraphError(f"broken sparse matrix: {len(matrix.data)} weights, {len(indices)} {what}s")


def _check_pointers(matrix: sp.csr_array, n_rows: int) -> None:
    pointers = matrix.indptr
    n_entries = min(len(matrix.indices), len(matrix.data))
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
    """Return the arrays of a matrix that is known to be clean and is not shared with the caller."""
    weights = None if bool(np.all(csr.data == 1)) else csr.data
    return CleanArrays(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), weights)


def clean_arrays(csr: sp.csr_array) -> CleanArrays | None:
    """Return the arrays of a matrix without faults but rounding between its halves; else None."""
    flawed, weighted, symmetric = _inspect(csr)
    if flawed:
        return None
    if symmetric:
        weights = csr.data.copy() if weighted else None
    else:
        mean, largest = _mean_with_transpose(csr)
        if largest > ROUNDING * float(np.abs(csr.data).max()):
            return None
        weights = None if np.all(mean == 1) else mean
    return CleanArrays(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), weights)


def _inspect(csr: sp.csr_array) -> tuple[bool, bool, bool]:
    """Whether the matrix has flaws other than asymmetry, weights other than one, and is symmetric."""
    indptr = csr.indptr
    indices = csr.indices
    data = csr.data
    low = data.min(initial=1)
    high = data.max(initial=1)
    is_signed = _accepts_signs.get() and low < 0
    if csr.shape[0] > SMALL and not is_signed:
        from spectrograd.kernels.graph import look_over

        run = look_over if len(data) > WORTH_THREADS else look_over.serial
        # The kernel compares bit patterns: positive floats have the order of their bits, NaN is above all.
        bits = np.ascontiguousarray(data).view(f"u{data.itemsize}")
        one, infinite = np.array([1, np.inf], data.dtype).view(bits.dtype)
        flawed, weighted, imbalance = run(indptr, indices, bits, one, infinite)
        return bool(flawed), bool(weighted), int(imbalance) == 0
    valid = low > 0 and high < np.inf  # false for NaN too
    if is_signed:
        valid = bool(np.isfinite(data).all() and data.all())
    if not valid or not csr.has_canonical_format or csr.diagonal().any():
        return True, True, False
    columns = csr.tocsc()
    pairs = ((indptr, columns.indptr), (indices, columns.indices), (data, columns.data))
    return False, not low == high == 1, all(np.array_equal(own, other) for own, other in pairs)


def _mean_with_transpose(csr: sp.csr_array) -> tuple[Array, float]:
    """The weights of ``(W + W') / 2`` and the largest ``|w_ij - w_ji|``, infinite if the patterns differ."""
    if csr.shape[0] > SMALL:
        from numba import get_num_threads

        from spectrograd.kernels.graph import mean_with_transpose

        mean = csr.data.copy()
        parallel = csr.nnz > WORTH_THREADS
        run = mean_with_transpose if parallel else mean_with_transpose.serial
        n_parts = get_num_threads() if parallel else 1
        return mean, float(run(csr.indptr, csr.indices, mean, n_parts))
    columns = csr.tocsc()
    if not (np.array_equal(csr.indptr, columns.indptr) and np.array_equal(csr.indices, columns.indices)):
        return csr.data, np.inf
    return (csr.data + columns.data) * csr.dtype.type(0.5), float(np.abs(csr.data - columns.data).max())


def without_duplicates(csr: sp.csr_array) -> sp.csr_array:
    """Return a canonical copy without stored zeros, or refuse the first invalid weight."""
    csr = sp.csr_array(csr, copy=True)
    if is_invalid(csr.data).any():
        coo = csr.tocoo()
        check_weights(coo.data, coo.row, coo.col)
    before = csr.nnz
    csr.sum_duplicates()
    if csr.nnz < before:
        warn(f"{before - csr.nnz} duplicate entries were summed", GraphWarning)
    csr.eliminate_zeros()
    return csr


def without_loops(csr: sp.csr_array) -> sp.csr_array:
    """Drop the diagonal, in place."""
    loops = np.flatnonzero(csr.diagonal())
    if len(loops):
        warn(f"{len(loops)} self loops dropped (first at node {loops[0]})", GraphWarning)
        csr.setdiag(0)
        csr.eliminate_zeros()
    return csr


def symmetrized(csr: sp.csr_array) -> sp.csr_array:
    """Return ``(W + W') / 2``."""
    transposed = csr.T.tocsr()
    difference = abs(csr - transposed)
    if difference.max() > ROUNDING * float(np.abs(csr.data).max()):
        row = int(np.argmax(difference.max(axis=1).toarray()))
        warn(
            f"the adjacency matrix is not symmetric (first seen in row {row}); using (W + W') / 2",
            GraphWarning,
        )
    return sp.csr_array((csr + transposed) * csr.dtype.type(0.5))


def check_weights(data: Array, rows: Array, cols: Array, names: Array | None = None) -> None:
    """Refuse the first weight that is not finite, or negative without a sign being accepted, by its ends."""
    for bad in (~np.isfinite(data), is_invalid(data)):
        if bad.any():
            at = int(np.argmax(bad))
            ends = (rows[at], cols[at]) if names is None else (names[rows[at]], names[cols[at]])
            raise GraphError(
                f"weight of edge ({ends[0]}, {ends[1]}) is {data[at]}: "
                f"{'negative' if np.isfinite(data[at]) else 'not finite'}; "
                f"weights {explain_weight(data[at])}"
            )


def row_numbers(ends: Array, n_nodes: int) -> Array:
    """Return the ends of edges if they are row numbers; else raise an error."""
    if len(ends) == 0:  # an empty list has no type of its own
        return ends.astype(np.int64)
    if ends.dtype.kind not in "iu":
        raise GraphError("edge list: with n_nodes given the ends must be row numbers (integers)")
    outside = (ends < 0) | (ends >= n_nodes)
    if outside.any():
        at = int(np.argmax(outside))
        raise GraphError(f"edge {at}: node {ends[at]} is outside 0..{n_nodes - 1}")
    return ends


# --- Edge lists: long ones by compiled kernels, others by scipy

MIN_COMPILED_EDGES = 1 << 20  # scipy takes a quarter of a second for so many
_MAX_COMPILED_WEIGHT = 1e300  # sums of smaller weights are finite
_MIN_USED_SHARE = 0.9  # of an array: below, the used part is copied and the rest is released


class _Listing(NamedTuple):
    """Counts of a list of edges: ordered pairs, those listed in both directions, whether all are, equally."""

    n_listed: int
    n_answered: int
    both_ways: bool


def undirected(
    rows: Array, cols: Array, weights: Array | None, n_nodes: int, *, directed: bool = False
) -> CleanArrays:
    """Convert an edge list to a symmetric CSR matrix, whether it lists each edge once or in both directions.

    ``directed`` edges become ``W + W'`` with a warning, unless each has its reverse of the same weight.
    """
    is_long = n_nodes > SMALL and len(rows) >= MIN_COMPILED_EDGES
    if is_long and (weights is None or np.abs(weights).max() < _MAX_COMPILED_WEIGHT):
        arrays, listing, loops = _symmetrize_by_kernels(rows, cols, weights, n_nodes)
    else:
        arrays, listing, loops = _symmetrize_by_scipy(rows, cols, weights, n_nodes)
    n_loops, first_loop = loops
    if n_loops:
        _warn(f"{n_loops} self loops dropped (first at edge {first_loop})")
    n_listed, n_answered, both_ways = listing
    if n_listed < len(rows) - n_loops:
        _warn(f"{len(rows) - n_loops - n_listed} repeated edges were summed")
    if not both_ways and directed and n_listed:
        _warn(
            f"directed edges were made undirected as W + W': {n_listed - n_answered} "
            f"of {n_listed} edges had no reverse, {n_answered // 2} pairs were summed"
        )
    elif not both_ways and n_answered:
        _warn(f"{n_answered} edges listed in both directions were summed")
    return arrays


def _warn(message: str) -> None:
    warn(message, GraphWarning)


def _symmetrize_by_scipy(
    rows: Array, cols: Array, weights: Array | None, n_nodes: int
) -> tuple[CleanArrays, _Listing, tuple[int, int]]:
    data = np.ones(len(rows)) if weights is None else weights
    loops = rows == cols
    first_loop = int(np.argmax(loops)) if len(loops) else 0
    if loops.any():
        rows = rows[~loops]
        cols = cols[~loops]
        data = data[~loops]
    listed = sp.coo_array((data, (rows, cols)), shape=(n_nodes, n_nodes)).tocsr()
    transposed = listed.T.tocsr()
    both_ways = listed.nnz > 0 and _are_equal(listed, transposed)
    csr = listed if both_ways else sp.csr_array(listed + transposed)
    n_answered = 0 if both_ways else _count_answered(listed)
    csr.eliminate_zeros()
    return compact(csr), _Listing(listed.nnz, n_answered, both_ways), (int(loops.sum()), first_loop)


def _count_answered(listed: sp.csr_array) -> int:
    """Count the entries whose transposed entry is stored too, whatever their weights."""
    pattern = sp.csr_array((np.ones(listed.nnz, np.int8), listed.indices, listed.indptr), shape=listed.shape)
    return int(2 * listed.nnz - (pattern + pattern.T.tocsr()).nnz)


def _are_equal(one: sp.csr_array, other: sp.csr_array) -> bool:
    """Whether two canonical matrices are equal; stored zeros do not count."""
    if not one.data.all():
        return bool((one != other).nnz == 0)
    pairs = ((one.indptr, other.indptr), (one.indices, other.indices), (one.data, other.data))
    return all(np.array_equal(own, its) for own, its in pairs)  # the first pair differs in most cases


def _symmetrize_by_kernels(
    rows: Array, cols: Array, weights: Array | None, n_nodes: int
) -> tuple[CleanArrays, _Listing, tuple[int, int]]:
    """Do the same by counting sort, in little more memory than the result."""
    from spectrograd.kernels.edge_lists import close_gaps, merge_directions, scatter_directions
    from spectrograd.kernels.jit import N_SHARES, side_by_side

    starts = np.empty(n_nodes + 1, np.int64)
    sizes = np.empty(n_nodes, np.int64)
    keys = np.empty(2 * len(rows), np.uint32)
    values = np.ones(2 * len(rows))
    # 1. Scatter both directions of every edge to the rows.
    ends = (end.astype(np.int32, copy=False) for end in (rows, cols))
    loops = scatter_directions(*ends, weights, starts, keys, values)
    # 2. Sort and merge within rows, shares of the rows side by side.
    bounds = [n_nodes * share // N_SHARES for share in range(N_SHARES + 1)]
    jobs = [(*share, starts, keys, values, sizes) for share in pairwise(bounds)]
    n_listed, n_both, n_unequal = np.sum(side_by_side(merge_directions, jobs), axis=0).tolist()
    # 3. Close the gaps that merged entries left.
    close_gaps(starts, sizes, keys, values)
    n_entries = int(starts[-1])
    both_ways = n_listed > 0 and n_unequal == 0
    columns = keys[:n_entries].view(np.int32)
    values = values[:n_entries]
    if n_entries < _MIN_USED_SHARE * len(keys):
        columns = columns.copy()
        values = values.copy()
    if both_ways:
        values *= 0.5
    is_unweighted = bool(np.all(values == 1))
    return (
        CleanArrays(starts, columns, None if is_unweighted else values),
        _Listing(n_listed, n_both, both_ways),
        loops,
    )
