"""Krylov bases of engines: a list of multivectors for any engine, rows of one array in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.kernels import LANES
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.system import one_thread
from spectrograd.typing import Array

if TYPE_CHECKING:
    from spectrograd.engines.base import Engine, MultiVector


class MultiVectorList:
    """Columns in a few multivectors side by side; narrow ones are joined: O(log k) of them for k columns."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.multivectors: list[MultiVector] = []

    def append(self, X: MultiVector) -> None:
        """Add columns; before that, the last multivectors are joined where the one before is no wider."""
        multivectors = self.multivectors
        # as in a binary counter: widths fall by half at least from left to right
        while len(multivectors) > 1 and multivectors[-2].shape[1] <= multivectors[-1].shape[1]:
            last = multivectors.pop()
            multivectors[-1] = self.engine.hstack(multivectors[-1], last)
        multivectors.append(X)

    def columns(self, start: int, stop: int) -> MultiVector:
        """Some of the columns."""
        chosen = self._blocks(start, stop)
        return chosen[0] if len(chosen) == 1 else self.engine.hstack(*chosen)

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: block Gram-Schmidt, first against the columns from ``first`` on, then against all."""
        new = self.columns(count, self._total)
        coefficients = np.zeros((count, new.shape[1]))
        # Block Gram-Schmidt, the second time against all columns: "twice is enough" (Parlett 1998, 6.9).
        for begin in (first, 0):
            blocks = self._blocks(begin, count)
            # one round to the workers of a cluster for all of them
            projections = self.engine.grams([(block, new) for block in blocks])
            if projections:
                new = self.engine.subtract(new, blocks, projections)
                coefficients[begin:] += np.vstack(projections)
        self._cut(count)
        self.multivectors.append(new)
        return coefficients, self.engine.gram(new, new, symmetric=True)

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: replace some columns by their combinations."""
        behind = None if stop == self._total else self.columns(stop, self._total)
        chosen = self.engine.combine(self.columns(start, stop), Y)
        self._cut(start)
        self.multivectors += [chosen] if behind is None else [chosen, behind]

    def parts(self) -> Iterator[MultiVector]:
        """The multivectors as they are: sums depend on how columns are grouped."""
        return iter(self.multivectors)

    def restore(self, parts: Iterable[MultiVector]) -> None:
        """Mutates: the same multivectors again."""
        self.multivectors = list(parts)

    @property
    def _total(self) -> int:
        return sum(multivector.shape[1] for multivector in self.multivectors)

    def _within(self, start: int, stop: int) -> list[tuple[MultiVector, int, int]]:
        """List the multivectors between two columns, each with the range of its own columns there."""
        ranges = []
        offset = 0
        for multivector in self.multivectors:
            low = max(start - offset, 0)
            high = min(stop - offset, multivector.shape[1])
            if low < high:
                ranges.append((multivector, low, high))
            offset += multivector.shape[1]
        return ranges

    def _cut(self, stop: int) -> None:
        """Mutates: only the first columns stay."""
        self.multivectors = self._blocks(0, stop)

    def _blocks(self, start: int, stop: int) -> list[MultiVector]:
        """Multivectors with some of the columns between them; those with no others as they are."""
        return [
            multivector
            if (low, high) == (0, multivector.shape[1])
            else self.engine.columns(multivector, slice(low, high))
            for multivector, low, high in self._within(start, stop)
        ]


# --- In memory: vectors as rows of one array, orthogonalised and rotated by BLAS in chunks of nodes

# Nodes of a chunk. Measured with one thread: calls cost nothing beside the products of so many, forty rows of
# them stay in a core's second cache, and nothing has to be compiled, at the speed of kernels of our own.
CHUNK = 1 << 14
SINGLE = 2 * CHUNK  # nodes up to which a single vector takes one call per product: chunks cost it a third
FEW = 4  # rows of which BLAS multiplies each one alone (gemv) faster than all together (gemm)
TINY_LENGTH = 1e-30  # of a column that vanished


class RowBasis:
    """The first ``filled`` rows of ``stored``, limit x N, are the columns of the basis.

    Sums over the chunks are added in order, so the bits do not depend on the number of threads.
    """

    def __init__(self, n_rows: int, limit: int, dtype: DTypeLike, thresholds: Thresholds = USUAL) -> None:
        self.stored: Array = np.empty((limit, n_rows), dtype)
        self.filled = 0
        self.thresholds = thresholds

    @property
    def takes_single(self) -> bool:
        """Whether a single vector is orthogonalised in few calls (:meth:`append_orthogonal`)."""
        return bool(self.stored.shape[1] <= SINGLE)

    def append_orthogonal(self, x: Array, first: int) -> tuple[Array, float]:
        """Mutates the basis and x (N): as ``append`` and :meth:`orthogonalize`, of one column; no chunks.

        The column is of unit length then; returned are its coefficients and what its length was.
        """
        basis = self.stored[: self.filled]
        near = basis[first:]
        with one_thread():
            # as in `_orthogonalize_chunk`
            along = near @ x
            x -= along @ near
            coefficients = basis @ x
            x -= coefficients @ basis
            length = math.sqrt(x @ x)
        coefficients[first:] += along
        np.multiply(x, x.dtype.type(1 / max(length, TINY_LENGTH)), out=self.stored[self.filled])
        self.filled += 1
        return coefficients, length

    def drop(self, column: int) -> None:
        """Mutates: remove one column; those behind close up."""
        self.filled -= 1
        self.stored[column : self.filled] = self.stored[column + 1 : self.filled + 1]

    def append(self, X: Array) -> None:
        """Add columns."""
        before = self.filled
        self.filled += X.shape[1]
        self.stored[before : self.filled] = X.T

    def columns(self, start: int, stop: int) -> Array:
        """A copy, N x (stop - start)."""
        return np.array(self.stored[start:stop].T, order="C")

    def parts(self) -> Iterator[Array]:
        """A few columns at a time."""
        return (self.columns(a, min(a + LANES, self.filled)) for a in range(0, self.filled, LANES))

    def restore(self, parts: Iterable[Array]) -> None:
        """Mutates: the same columns again."""
        for part in parts:
            self.append(part)

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: make the rows from ``count`` on orthogonal to those before."""
        basis = self.stored[:count]
        new = self.stored[count : self.filled]
        if self.stored.shape[1] <= CHUNK:
            with one_thread():
                return _orthogonalize_chunk(basis, new, first)

        def without_near(nodes: slice) -> Array:
            _subtract(new[:, nodes], near, basis[first:, nodes])
            return _products(basis[:, nodes], new[:, nodes])

        def without_all(nodes: slice) -> Array:
            _subtract(new[:, nodes], rest, basis[:, nodes])
            return np.asarray(new[:, nodes] @ new[:, nodes].T)

        with one_thread():
            # 1. coefficients along the last vectors, which hold nearly all of the projection:
            # three-term recurrences leave hardly anything along the others
            near = self._sum(lambda nodes: _products(basis[first:, nodes], new[:, nodes]))
            # 2. take them out, and measure what is left along all: "twice is enough" (Parlett 1998, 6.9)
            rest = self._sum(without_near)
            # 3. take that out; inner products of the remainder
            inner = self._sum(without_all)
        rest[first:] += near
        return rest, inner

    def combinations(self, Y: Array) -> Array:
        """The first columns times Y (m x k), N x k: no copy of them is made."""
        C = Y.T.astype(self.stored.dtype)
        made = np.empty((self.stored.shape[1], len(C)), self.stored.dtype)

        def combine(nodes: slice) -> None:
            made[nodes] = (C @ self.stored[: len(Y), nodes]).T

        with one_thread():
            self._by_chunks(combine)
        return made

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: replace rows by their combinations; the rows behind close up."""
        part = self.stored[start:]
        width = Y.shape[1]
        behind = self.filled - stop
        if Y.size == 1:
            part[0] *= part.dtype.type(Y[0, 0])
        elif width > 0:
            C = Y.T.astype(part.dtype)

            def combine(nodes: slice) -> None:
                part[:width, nodes] = C @ part[: len(Y), nodes]

            with one_thread():
                self._by_chunks(combine)
        # fewer columns than before: those behind close up
        if width < stop - start:
            part[width : width + behind] = self.stored[stop : self.filled].copy()
        self.filled = start + width + behind

    def _sum(self, products: Callable[[slice], Array]) -> Array:
        """Add in float64 what ``products`` makes of each chunk, in order."""
        total, *others = self._by_chunks(products)
        total = total.astype(np.float64)
        for part in others:
            total += part
        return np.asarray(total)

    def _by_chunks(self, work: Callable[[slice], Any]) -> list[Any]:
        """Results for all chunks, in order; threads share them where there are enough."""
        n_nodes = self.stored.shape[1]
        chunks = [slice(start, start + CHUNK) for start in range(0, n_nodes, CHUNK)]
        if n_nodes <= self.thresholds.parallel_rows:
            return [work(nodes) for nodes in chunks]
        from spectrograd.kernels.jit import side_by_side

        return side_by_side(work, [(nodes,) for nodes in chunks])


def _orthogonalize_chunk(basis: Array, new: Array, first: int) -> tuple[Array, Array]:
    """Mutates: the same three steps where one chunk holds all nodes."""
    near = _products(basis[first:], new)
    _subtract(new, near, basis[first:])
    rest = _products(basis, new)
    _subtract(new, rest, basis)
    rest[first:] += near
    return rest, np.asarray(new @ new.T, dtype=np.float64)


def _products(rows: Array, new: Array) -> Array:
    """``rows new'``, one entry for each pair of rows."""
    if 1 < len(new) < FEW:
        return np.stack([rows @ one for one in new], axis=1)
    return np.asarray(rows @ new.T)


def _subtract(new: Array, coefficients: Array, rows: Array) -> None:
    """Mutates: ``new -= coefficients' rows``."""
    C = coefficients.T.astype(new.dtype, copy=False)
    if 1 < len(new) < FEW:
        for one, c in zip(new, C, strict=True):
            one -= c @ rows
    else:
        new -= C @ rows
