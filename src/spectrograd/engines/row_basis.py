"""A Krylov basis in memory: vectors as rows of one array, made orthogonal and rotated by compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.engines.threadpools import one_thread
from spectrograd.kernels import LANES
from spectrograd.kernels.thresholds import USUAL, Thresholds

Array = NDArray[Any]


class RowBasis:
    """The first ``filled`` rows of ``stored``, limit x N, are the columns of the basis."""

    def __init__(self, n_rows: int, limit: int, dtype: DTypeLike, thresholds: Thresholds = USUAL) -> None:
        self.stored: Array = np.empty((limit, n_rows), dtype)
        self.filled = 0
        self.thresholds = thresholds

    def append(self, X: Array) -> None:
        """Add columns."""
        before, self.filled = self.filled, self.filled + X.shape[1]
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
        """Mutates: rows from ``count`` on become orthogonal to those before."""
        stored, width = self.stored, self.filled - count
        if stored.shape[1] <= self.thresholds.small:
            with one_thread():
                return self._orthogonalize_few(first, count)
        from spectrograd.kernels.dense.krylov import orthogonalize

        run = orthogonalize if stored.shape[1] > self.thresholds.tall else orthogonalize.serial
        coefficients, inner = run(stored, first, count, width)
        return np.asarray(coefficients), np.asarray(inner)

    def _orthogonalize_few(self, first: int, count: int) -> tuple[Array, Array]:
        """The same by numpy, for vectors of few numbers."""
        known, new = self.stored[:count], self.stored[count : self.filled]
        near = self.stored[first:count] @ new.T
        new -= near.T @ self.stored[first:count]
        rest = known @ new.T
        new -= rest.T @ known
        rest[first:] += near
        return rest, np.asarray(new @ new.T, dtype=np.float64)

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: combinations of rows take their place, those behind close up."""
        part, kept, behind = self.stored[start:], Y.shape[1], self.filled - stop
        if Y.size == 1:
            part[0] *= part.dtype.type(Y[0, 0])
        elif kept == 0 or part.shape[1] <= self.thresholds.small:
            with one_thread():
                part[:kept] = Y.T.astype(part.dtype) @ part[: len(Y)]
        else:
            from spectrograd.kernels.dense.krylov import rotate

            run = rotate if part.shape[1] > self.thresholds.tall else rotate.serial
            run(part, np.ascontiguousarray(Y, dtype=np.float64))
        if kept < stop - start:
            part[kept : kept + behind] = self.stored[stop : self.filled].copy()
        self.filled = start + kept + behind
