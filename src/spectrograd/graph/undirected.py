"""Edges as they are listed, to a symmetric matrix: long lists by compiled code, others by scipy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from spectrograd.graph.cleaning import CleanArrays, GraphWarning, compact
from spectrograd.kernels import SMALL
from spectrograd.notices import warn

Array = NDArray[Any]
WORTH_COMPILING = 1 << 20  # edges; scipy takes a quarter of a second for so many
_HUGE = 1e300  # sums of weights below are surely finite
_KEPT = 0.9  # of an array: where more is unused it is copied


class _Listing(NamedTuple):
    """What a list of edges was like: ordered pairs in it, those that are there both ways, all so alike."""

    n_listed: int
    n_answered: int
    both_ways: bool


def undirected(
    rows: Array, cols: Array, weights: Array | None, n_nodes: int, *, directed: bool = False
) -> CleanArrays:
    """Symmetric CSR of an edge list, whether it lists each edge once or in both directions.

    ``directed`` edges become ``W + W'`` with a warning, unless each has its reverse of the same weight.
    """
    worth = n_nodes > SMALL and len(rows) >= WORTH_COMPILING
    if worth and (weights is None or weights.max() < _HUGE):
        arrays, listing, loops = _compiled(rows, cols, weights, n_nodes)
    else:
        arrays, listing, loops = _by_scipy(rows, cols, weights, n_nodes)
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


def _by_scipy(
    rows: Array, cols: Array, weights: Array | None, n_nodes: int
) -> tuple[CleanArrays, _Listing, tuple[int, int]]:
    data, loops = np.ones(len(rows)) if weights is None else weights, rows == cols
    first_loop = int(np.argmax(loops)) if len(loops) else 0
    if loops.any():
        rows, cols, data = rows[~loops], cols[~loops], data[~loops]
    listed = sp.coo_array((data, (rows, cols)), shape=(n_nodes, n_nodes)).tocsr()
    transposed = listed.T.tocsr()
    both_ways = listed.nnz > 0 and _same(listed, transposed)
    csr = listed if both_ways else sp.csr_array(listed + transposed)
    n_answered = 0 if both_ways else _n_answered(listed)
    csr.eliminate_zeros()
    return compact(csr), _Listing(listed.nnz, n_answered, both_ways), (int(loops.sum()), first_loop)


def _n_answered(listed: sp.csr_array) -> int:
    """How many entries have one on the other side, whatever their weights: a sum drops those of 0."""
    pattern = sp.csr_array((np.ones(listed.nnz, np.int8), listed.indices, listed.indptr), shape=listed.shape)
    return int(2 * listed.nnz - (pattern + pattern.T.tocsr()).nnz)


def _same(one: sp.csr_array, other: sp.csr_array) -> bool:
    """Whether two canonical matrices are equal; stored zeros do not count."""
    if not one.data.all():
        return bool((one != other).nnz == 0)
    pairs = ((one.indptr, other.indptr), (one.indices, other.indices), (one.data, other.data))
    return all(np.array_equal(own, its) for own, its in pairs)  # mostly the first pair tells


def _compiled(
    rows: Array, cols: Array, weights: Array | None, n_nodes: int
) -> tuple[CleanArrays, _Listing, tuple[int, int]]:
    """The same by counting, in little more memory than the result."""
    from spectrograd.kernels.ingest.directions import close_gaps, merge_directions, scatter_directions
    from spectrograd.kernels.threads import N_SHARES, side_by_side

    starts, sizes = np.empty(n_nodes + 1, np.int64), np.empty(n_nodes, np.int64)
    keys, values = np.empty(2 * len(rows), np.uint32), np.ones(2 * len(rows))
    ends = (end.astype(np.int32, copy=False) for end in (rows, cols))
    loops = scatter_directions(*ends, weights, starts, keys, values)
    bounds = [n_nodes * share // N_SHARES for share in range(N_SHARES + 1)]
    jobs = [(*share, starts, keys, values, sizes) for share in pairwise(bounds)]
    n_listed, n_both, n_unequal = np.sum(side_by_side(merge_directions, jobs), axis=0).tolist()
    close_gaps(starts, sizes, keys, values)
    n_entries, both_ways = int(starts[-1]), n_listed > 0 and n_unequal == 0
    columns, values = keys[:n_entries].view(np.int32), values[:n_entries]
    if n_entries < _KEPT * len(keys):
        columns, values = columns.copy(), values.copy()
    if both_ways:
        values *= 0.5
    plain = bool(np.all(values == 1))
    return (
        CleanArrays(starts, columns, None if plain else values),
        _Listing(n_listed, n_both, both_ways),
        loops,
    )
