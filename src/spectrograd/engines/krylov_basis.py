"""Krylov bases of engines: a list of multivectors for any engine, rows of one array in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

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
        chosen = [
            multivector
            if (low, high) == (0, multivector.shape[1])
            else self.engine.columns(multivector, slice(low, high))
            for multivector, low, high in self._within(start, stop)
        ]
        return chosen[0] if len(chosen) == 1 else self.engine.hstack(*chosen)

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: block Gram-Schmidt, first against the columns from ``first`` on, then against all."""
        new = self.columns(count, self._total)
        coefficients = np.zeros((count, new.shape[1]))
        # Block Gram-Schmidt, the second time against all columns: "twice is enough" (Parlett 1998, 6.9).
        for begin in (first, 0):
            blocks = [self.engine.columns(t, slice(a, b)) for t, a, b in self._within(begin, count)]
            projections = [self.engine.gram(block, new) for block in blocks]
            for block, projection in zip(blocks, projections, strict=True):
                new = self.engine.combine(new, np.eye(new.shape[1]), block, -projection)
            if projections:
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
        self.multivectors = [
            t if b == t.shape[1] else self.engine.columns(t, slice(a, b)) for t, a, b in self._within(0, stop)
        ]


# --- In memory: vectors as rows of one array, orthogonalised and rotated by compiled kernels


class RowBasis:
    """The first ``filled`` rows of ``stored``, limit x N, are the columns of the basis."""

    def __init__(self, n_rows: int, limit: int, dtype: DTypeLike, thresholds: Thresholds = USUAL) -> None:
        self.stored: Array = np.empty((limit, n_rows), dtype)
        self.filled = 0
        self.thresholds = thresholds

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
        stored = self.stored
        width = self.filled - count
        if stored.shape[1] <= self.thresholds.small:
            with one_thread():
                return self._orthogonalize_small(first, count)
        from spectrograd.kernels.multivector import orthogonalize

        run = orthogonalize if stored.shape[1] > self.thresholds.parallel_rows else orthogonalize.serial
        coefficients, inner = run(stored, first, count, width)
        return np.asarray(coefficients), np.asarray(inner)

    def _orthogonalize_small(self, first: int, count: int) -> tuple[Array, Array]:
        """Do the same by numpy, for short vectors."""
        basis = self.stored[:count]
        new = self.stored[count : self.filled]
        # 1. against the last vectors, which hold nearly all of the projection
        # (count - first, width): three-term recurrences leave hardly anything along the others
        near = self.stored[first:count] @ new.T
        new -= near.T @ self.stored[first:count]
        # 2. against all: "twice is enough" (Kahan; Parlett 1980)
        rest = basis @ new.T
        new -= rest.T @ basis
        rest[first:] += near
        return rest, np.asarray(new @ new.T, dtype=np.float64)

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: replace rows by their combinations; the rows behind close up."""
        part = self.stored[start:]
        width = Y.shape[1]
        behind = self.filled - stop
        if Y.size == 1:
            part[0] *= part.dtype.type(Y[0, 0])
        elif width == 0 or part.shape[1] <= self.thresholds.small:
            with one_thread():
                part[:width] = Y.T.astype(part.dtype) @ part[: len(Y)]
        else:
            from spectrograd.kernels.multivector import rotate

            run = rotate if part.shape[1] > self.thresholds.parallel_rows else rotate.serial
            run(part, np.ascontiguousarray(Y, dtype=np.float64))
        # fewer columns than before: those behind close up
        if width < stop - start:
            part[width : width + behind] = self.stored[stop : self.filled].copy()
        self.filled = start + width + behind
