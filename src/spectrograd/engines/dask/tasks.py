"""Tasks of the Dask workers: kernels of the local engine on blocks of rows. No task changes its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from spectrograd.engines.base import Statistics, gaussian_rows
from spectrograd.engines.dask.partition import RowParts, cut
from spectrograd.engines.local import LocalEngine
from spectrograd.graph import GraphError, RowBlock
from spectrograd.kernels import PARALLEL_ROWS, SMALL, WORTH_THREADS
from spectrograd.store.stored_graph import StoredGraph, StorePlace
from spectrograd.typing import Array

SLICE_ROWS = 65_536  # rows of a slice for gather_blocks: its intermediate results fit beside the block


def with_threads(task: Callable[..., object]) -> Callable[..., Any]:
    """Wrap a task: it runs with as many threads as its worker has."""

    @wraps(task)
    def limited(*arguments: object) -> Any:
        from distributed import get_worker

        try:
            n_threads = int(get_worker().state.nthreads)
        except ValueError:  # not on a worker
            n_threads = 1
        with LocalEngine(n_threads).threads():
            return task(*arguments)

    return limited


def cut_from_store(place: StorePlace, bounds: Array, at: int) -> RowParts:
    """Read row block ``at`` of a graph on disk, on the worker."""
    rows = open_place(place).rows_between(int(bounds[at]), int(bounds[at + 1]))
    return cut(rows, bounds, at)


def open_place(place: StorePlace) -> StoredGraph:
    """Open the graph of a place; an error names the worker that does not have it."""
    try:
        return place.open()
    except (OSError, GraphError) as error:
        raise GraphError(
            f"worker {address()}: {error}; workers open a store by themselves, so it must be at the same "
            "path on all of them"
        ) from None


def address() -> str:
    """Address of the worker that this runs on."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:  # not on a worker
        return "here"


def count_sent_rows(block: RowParts) -> dict[int, int | None]:
    """Count the rows of other blocks that come to this block, by block; None for all of them."""
    return {j: len(block.touched[j]) if j in block.touched else None for j in block.parts}


def touched_rows(block: RowParts, j: int) -> Array:
    """Numbers of the rows of block j that this block touches."""
    return block.touched[j]


def identity(value: object) -> Any:
    """Return the value itself."""
    return value


def project_features(rows: Any, X: Array) -> Array:
    """``Z' X`` of a block of rows of features, in float64."""
    return np.asarray(rows.T @ X.astype(np.float64, copy=False))


def expand_features(rows: object, C: Array) -> Array:
    """``Z C`` of a block of rows of features, in the type of C."""
    return np.asarray(rows @ C, dtype=C.dtype)


@with_threads
def streamed_rows(
    where: tuple[StorePlace, int, int], diagonal: Array, scale: Array | None, X: Array, *V: Array
) -> Array:
    """``diag(diagonal) X - diag(scale) W V`` for rows that are read on the way; V are all rows, in order."""
    place, start, stop = where
    graph = open_place(place)
    # rows of the whole multivector: columns of a streamed block are global
    all_rows = np.concatenate(V)
    out = np.empty_like(X)
    own = _column(diagonal)
    factors = _column(scale)
    assert own is not None
    for block in graph.blocks.between(start, stop):
        mine = slice(block.start - start, block.stop - start)
        some = None if factors is None else factors[mine]
        _subtract(block, own[mine], some, X[mine], all_rows, out[mine])
    return out


@with_threads
def own_rows(block: RowParts, at: int, diagonal: Array, scale: Array | None, X: Array, V: Array) -> Array:
    """``diag(diagonal) X - diag(scale) W V`` for the part of W that meets the block's own rows."""
    out = np.empty_like(X)
    _subtract(block.parts.get(at), _column(diagonal), _column(scale), X, V, out)
    return out


@with_threads
def own_recurrence(
    block: RowParts,
    at: int,
    diagonal: Array,
    metric: Array | None,
    coefficients: tuple[float, ...],
    X: Array,
    before: Array,
) -> Array:
    """``a B^-1 (diag(diagonal) - W) X + b X + c before`` for the part of W that meets its own rows."""
    own = _column(diagonal)
    mass = _column(metric)
    part = block.parts.get(at)
    assert own is not None
    a, b, c = (X.dtype.type(value) for value in coefficients)
    if part is None or len(X) <= SMALL:
        masses = X.dtype.type(1) if mass is None else mass[:, None]
        product = own[:, None] * X
        if part is not None:
            product -= _matrix(part, X) @ X
        return np.asarray(a * product / masses + b * X + c * before, dtype=X.dtype)
    from spectrograd.kernels.spmm import recurrence

    # the kernel of the local engine, on the block's own rows and columns
    out = np.empty_like(X)
    rows = (0, part.indptr, part.indices)
    numbers = (part.weights_in(X.dtype), own, mass, (a, b, c), None)
    recurrence(rows, *numbers, X, before, out, len(part.indices) > WORTH_THREADS)
    return out


@with_threads
def neighbour_rows(
    block: RowParts,
    others: tuple[int, ...],
    weight: float,
    scale: Array | None,
    metric: Array | None,
    *V: Array,
) -> Array:
    """``-weight diag(scale / metric) W_j V_j`` summed over other blocks, one after the other."""
    n_rows = block.parts[others[0]].n_rows
    dtype = V[0].dtype
    factors = np.full(n_rows, weight, dtype)
    factors = factors if scale is None else factors * _column(scale)
    factors = factors if metric is None else factors / _column(metric)
    # blocks are added in the order of the arguments: the same bits whichever rows came first
    out = np.zeros((n_rows, V[0].shape[1]), dtype)
    ones = np.ones(n_rows, dtype)
    for other, rows in zip(others, V, strict=True):
        _subtract(block.parts[other], ones, factors, out, rows, out)
    return out


def own_and_neighbour_rows(
    own: Callable[..., Array],
    n_own: int,
    groups: Sequence[tuple[int, ...]],
    weight: float,
    *arguments: object,
) -> Array:
    """Sum ``own`` of its arguments and the products with groups of neighbours: several tasks in one.

    After the arguments of ``own`` come ``scale``, ``metric`` and the rows of the neighbours.
    """
    here = arguments[:n_own]
    scale, metric, *rows = arguments[n_own:]
    blocks = iter(rows)
    shares = [
        neighbour_rows(here[0], group, weight, scale, metric, *islice(blocks, len(group))) for group in groups
    ]
    return add_in_order(own(*here), *shares)


def _subtract(
    part: RowBlock | None, diagonal: Array | None, factors: Array | None, U: Array, V: Array, out: Array
) -> None:
    """Mutates out, which may be U: ``diag(diagonal) U - diag(factors) W V``."""
    assert diagonal is not None
    if part is None or len(out) <= SMALL:
        product = 0 if part is None else _matrix(part, V) @ V
        out[:] = diagonal[:, None] * U - (product if factors is None else factors[:, None] * product)
        return
    from spectrograd.kernels.spmm import multiply

    rows = (0, part.indptr, part.indices)
    numbers = (part.weights_in(V.dtype), diagonal, factors)
    multiply(rows, *numbers, U, V, out, len(part.indices) > WORTH_THREADS)


def _matrix(part: RowBlock, V: Array) -> sp.csr_array:
    weights = np.ones(len(part.indices), V.dtype) if part.weights is None else part.weights_in(V.dtype)
    return sp.csr_array((weights, part.indices, part.indptr), shape=(part.n_rows, len(V)))


def _column(vector: Array | None) -> Array | None:
    return None if vector is None else np.ascontiguousarray(vector[:, 0])


def add_in_order(first: Array, *more: Array) -> Array:
    """Add arrays in the order of the arguments."""
    out = np.array(first)
    for term in more:
        out += term
    return out


@with_threads
def gram(X: Array, Y: Array, metric: Array | None, symmetric: bool) -> Array:
    """Contribution of some rows to ``X' diag(metric) Y``."""
    return LocalEngine().gram(X, Y, _column(metric), symmetric=symmetric)


@with_threads
def grams(metric: Array | None, symmetric: tuple[bool, ...], *blocks: Array) -> Array:
    """Contributions of some rows to several Gram matrices, as one vector; X and Y of each follow in turn."""
    engine = LocalEngine()
    mass = _column(metric)
    pairs = zip(blocks[::2], blocks[1::2], symmetric, strict=True)
    return np.concatenate([engine.gram(X, Y, mass, symmetric=same).ravel() for X, Y, same in pairs])


@with_threads
def subtract(X: Array, C: tuple[Array, ...], *blocks: Array) -> Array:
    """``X - sum_i Y_i C_i`` of the blocks Y_i."""
    return np.asarray(LocalEngine().subtract(X, blocks, C))


@with_threads
def column_statistics(start: int, X: Array, metric: Array | None) -> Statistics:
    """Statistics of the columns of some rows, the first of which is number ``start``."""
    statistics = LocalEngine().column_statistics(X, _column(metric))
    return statistics._replace(peak_rows=statistics.peak_rows + start)


@with_threads
def combine(X: Array, C: Array, Y: Array | None, E: Array | None) -> Array:
    """``X C + Y E``."""
    return LocalEngine().combine(X, C, Y, E)


@with_threads
def subtract_low_rank(
    product: Array, Z: Array, coefficients: Array, inner: Array, metric: Array | None
) -> Array:
    """``product - B^-1 Z diag(coefficients) inner``, with ``inner = Z' X``."""
    small = -coefficients[:, None] * inner
    if metric is None:
        return LocalEngine().combine(product, np.eye(product.shape[1]), Z, small)
    return np.asarray(product + (Z / metric) @ small.astype(Z.dtype), dtype=product.dtype)


@with_threads
def residual_squares(Q: Array, AQ: Array, values: Array, metric: Array | None) -> Array:
    """Squared norms of ``A q - theta B q`` in ``B^-1``, contribution of some rows."""
    mass = _column(metric)
    if len(Q) <= SMALL:
        masses = np.ones((1, 1)) if mass is None else mass[:, None].astype(np.float64)
        k = len(values)
        rest = AQ[:, :k].astype(np.float64) - masses * Q[:, :k] * values
        return np.asarray((rest**2 / masses).sum(axis=0))
    from spectrograd.kernels.multivector import residual

    return residual(Q, AQ, values, mass, False, len(Q) > PARALLEL_ROWS)[1]


def random(start: int, stop: int, n_columns: int, seed: int, dtype: DTypeLike) -> Array:
    """Gaussian rows: the same wherever they are made."""
    return gaussian_rows(start, stop, n_columns, seed, dtype)


def astype(X: Array, dtype: DTypeLike) -> Array:
    """X in another type."""
    return X.astype(dtype)


def columns(X: Array, chosen: slice) -> Array:
    """Copy some columns, so that the others can be freed."""
    return np.array(X[:, chosen], order="C")


def hstack(*blocks: Array) -> Array:
    """Put blocks side by side, in the type of the first."""
    return np.hstack(blocks).astype(blocks[0].dtype, copy=False)


def take_rows(X: Array, chosen: Array) -> Array:
    """Some rows."""
    return np.asarray(X[chosen])


@with_threads
def map_block(function: Callable[..., Array], start: int, *blocks: Array) -> Array:
    """``function(start, *blocks)``."""
    return np.ascontiguousarray(function(start, *blocks))


@with_threads
def map_slices(function: Callable[..., object], start: int, *blocks: Array) -> list[Any]:
    """``function`` of slices of the blocks, in order."""
    firsts = range(0, max(1, len(blocks[0])), SLICE_ROWS)
    return [function(start + first, *(b[first : first + SLICE_ROWS] for b in blocks)) for first in firsts]


@with_threads
def call_on_block(function: Callable[..., object], start: int, *blocks: Array) -> Any:
    """``function(start, *blocks)``, whatever that is."""
    return function(start, *blocks)
