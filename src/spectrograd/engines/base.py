"""Every verb that follows from the mandatory ones: derive an engine from this, override for speed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.engines.protocol import (
    Array,
    Coefficients,
    Cost,
    KrylovBasis,
    Nearest,
    Statistics,
    Tall,
    Work,
)
from spectrograd.engines.random_rows import gaussian_rows
from spectrograd.engines.tall_list import TallList
from spectrograd.interruption import check
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.operators.protocol import Offer, Operator
from spectrograd.operators.sparse import LowRank, SparseOperator

IN_CACHE = 4096  # rows of a dozen columns, with what is made of them
MEDIAN_ROWS = 20_000  # whose median stands for that of all: its error is below one in a hundred


class BaseEngine(ABC):
    """The contract of :class:`~spectrograd.engines.protocol.Engine` from three verbs, for numpy arrays.

    An engine with talls of another kind also has ``put``, ``rows``, ``map`` and ``fold`` of its own.
    """

    name: ClassVar[str] = ""
    work: Work
    cost: Cost = Cost()
    thresholds: Thresholds = USUAL
    offers: ClassVar[frozenset[Offer]] = frozenset()
    sums_in_pieces: ClassVar[bool] = False

    def summary(self) -> dict[str, Any]:
        """What ``--summary-json`` holds."""
        return {"name": self.name, "sweeps": self.work.sweeps, "columns": self.work.columns}

    # mandatory

    @abstractmethod
    def sweep(self, operator: SparseOperator, X: Tall) -> Tall:
        """``diag(diagonal) X - diag(scale) W diag(scale) X`` for a placed operator."""

    @abstractmethod
    def gram(self, X: Tall, Y: Tall, metric: Tall | None = None, *, symmetric: bool = False) -> Array:
        """``X' diag(metric) Y`` in float64."""

    @abstractmethod
    def combine(self, X: Tall, C: Array, Y: Tall | None = None, E: Array | None = None) -> Tall:
        """``X C + Y E`` in the type of X."""

    # how rows are kept

    def put(self, rows: Array) -> Tall:
        """Host rows as a tall."""
        return np.ascontiguousarray(rows)

    def rows(self, X: Tall, indices: Array | None = None) -> Array:
        """The rows that are asked for."""
        return np.asarray(X if indices is None else X[indices])

    def map(self, function: Callable[..., Array], *talls: Tall) -> Tall:
        """``function(start, *blocks)`` as a tall; here all rows are one block."""
        return function(0, *talls)

    def fold(self, function: Callable[..., Any], *talls: Tall) -> list[Any]:
        """``function(start, *blocks)`` of each block, on the host; here of slices that stay in the cache."""
        starts = range(0, talls[0].shape[0], IN_CACHE)
        return [function(start, *(tall[start : start + IN_CACHE] for tall in talls)) for start in starts]

    # derived: operators

    def threads(self) -> AbstractContextManager[None]:
        """Nothing to limit."""
        return nullcontext()

    def place(self, operator: Operator) -> Operator:
        """The operator with talls for its vectors."""
        return operator.placed(self)

    def apply(self, operator: Operator, X: Tall, *more: Tall) -> Any:
        """``A X``, or several products at once."""
        check()
        talls = (X, *more)
        if any(tall.dtype != X.dtype for tall in more):
            raise TypeError("talls that share a sweep must be of one type")
        self.work.sweeps += 1
        self.work.columns += sum(tall.shape[1] for tall in talls)
        if not more:
            return operator.product(self, X)
        product = operator.product(self, self.stack(*talls))
        ends = np.cumsum([0, *(tall.shape[1] for tall in talls)])
        return tuple(self.columns(product, slice(*ends[i : i + 2])) for i in range(len(talls)))

    def subtract_low_rank(self, product: Tall, low_rank: LowRank, X: Tall) -> Tall:
        """A Gram matrix and a combination."""
        Z, a = low_rank.factors, low_rank.coefficients
        return self.combine(product, np.eye(X.shape[1]), Z, -a[:, None] * self.gram(Z, X))

    def recurrence(
        self, operator: Operator, X: Tall, before: Tall, coefficients: Coefficients, out: Tall | None = None
    ) -> Tall:
        """A product and two combinations; nothing is written into ``out``."""
        a, b, c = (value * np.eye(X.shape[1]) for value in coefficients)
        product = self.apply(operator, X)
        if operator.metric is not None:
            product = self.map(_divided, product, operator.metric)
        moved = self.combine(product, a, X, b)
        return moved if coefficients[2] == 0 else self.combine(moved, np.eye(X.shape[1]), before, c)

    def residual(self, operator: Operator, Q: Tall, AQ: Tall, values: Array) -> Array:
        """Squares of the differences, summed over the blocks."""
        more = () if operator.metric is None else (operator.metric,)
        squares = self.fold(lambda _, *blocks: _residual_squares(values, *blocks), Q, AQ, *more)
        return np.asarray(np.sqrt(np.sum(squares, axis=0)))

    # derived: algebra

    def turned(self, X: Tall, C: Array, Y: Tall | None = None, E: Array | None = None) -> Tall:
        """A new tall: nothing can be written into the old one."""
        return self.combine(X, C, Y, E)

    def scaled(self, X: Tall, factors: Tall) -> Tall:
        """``diag(factors) X``."""
        return self.map(_multiplied, X, factors)

    def columns(self, X: Tall, chosen: slice) -> Tall:
        """By a combination."""
        return self.combine(X, np.eye(X.shape[1])[:, chosen])

    def stack(self, *talls: Tall) -> Tall:
        """By combinations, one tall after the other."""
        found, *more = talls
        for tall in more:
            a, b = found.shape[1], tall.shape[1]
            found = self.combine(found, np.eye(a, a + b), tall, np.eye(b, a + b, a))
        return found

    def basis(self, n_rows: int, limit: int, dtype: DTypeLike) -> KrylovBasis:
        """A list of talls."""
        return TallList(self)

    # derived: rows

    def random(self, n_rows: int, n_columns: int, seed: int, dtype: DTypeLike) -> Tall:
        """Made on the host."""
        return self.put(gaussian_rows(0, n_rows, n_columns, seed, dtype))

    def zeros(self, n_rows: int, n_columns: int, dtype: DTypeLike) -> Tall:
        """Made on the host."""
        return self.put(np.zeros((n_rows, n_columns), dtype))

    def cast(self, X: Tall, dtype: DTypeLike) -> Tall:
        """X itself where it is of that type."""
        return X if X.dtype == dtype else self.map(lambda _, rows: rows.astype(dtype), X)

    def take(self, X: Tall, chosen: Array) -> Tall:
        """Through the host."""
        return self.put(self.rows(X, chosen))

    def spread(self, X: Tall, chosen: Array, n_rows: int) -> Tall:
        """Through the host."""
        out = np.zeros((n_rows, X.shape[1]), X.dtype)
        out[chosen] = self.rows(X)
        return self.put(out)

    # derived: statistics

    def statistics(self, X: Tall, metric: Tall | None = None) -> Statistics:
        """Two folds: the peaks, and the moments in their units."""
        peaks, rows, finite = _first_peaks(self.fold(_peaks, X))
        units = np.maximum(np.abs(peaks), 1e-300)
        more = () if metric is None else (metric,)
        sums = self.fold(lambda _, *blocks: _moments(units, *blocks), X, *more)
        second, fourth, mass = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
        return Statistics(finite, peaks, rows, second, fourth, float(mass))

    def row_norms(self, X: Tall) -> tuple[Tall, float]:
        """Lengths row by row; the median of evenly spaced ones."""
        norms, n = self.map(_lengths, X), X.shape[0]
        few = np.arange(0, n, -(-n // MEDIAN_ROWS))
        return norms, float(np.median(self.rows(norms, few)))

    def nearest(self, X: Tall, centres: Array) -> Nearest:
        """Two maps and a fold."""
        found = self.map(lambda _, rows: _winners(rows, centres), X)  # label, gap and lead in one tall
        tallies = self.fold(lambda _, rows, own: _tallies(rows, own, len(centres)), X, found)
        sums, sizes, use, inertia = (sum(parts) for parts in zip(*tallies, strict=True))
        labels = self.map(lambda _, own: own[:, :1].astype(np.int64), found)
        return Nearest(labels, self.columns(found, slice(1, 2)), sums, sizes, use, float(inertia))


def _divided(_: int, X: Array, divisor: Array) -> Array:
    return np.asarray(X / divisor, dtype=X.dtype)


def _multiplied(_: int, X: Array, factors: Array) -> Array:
    return np.asarray(X * factors, dtype=X.dtype)


def _residual_squares(values: Array, Q: Array, AQ: Array, metric: Array | float = 1.0) -> Array:
    k = len(values)
    rest = AQ[:, :k].astype(np.float64) - metric * Q[:, :k] * values
    return np.asarray((rest**2 / metric).sum(axis=0))


def _peaks(start: int, rows: Array) -> tuple[Array, Array, bool]:
    """Entries of largest magnitude, their row numbers, and whether all numbers are finite."""
    where = np.abs(rows.T, order="C").argmax(axis=1)
    return (
        rows[where, np.arange(rows.shape[1])].astype(np.float64),
        where + start,
        bool(np.isfinite(rows).all()),
    )


def _first_peaks(parts: list[tuple[Array, Array, bool]]) -> tuple[Array, Array, bool]:
    peaks, rows, finite = parts[0]
    for other, where, good in parts[1:]:
        higher = np.abs(other) > np.abs(peaks)
        peaks, rows = np.where(higher, other, peaks), np.where(higher, where, rows)
        finite = finite and good
    return peaks, rows, finite


def _moments(units: Array, rows: Array, metric: Array | None = None) -> tuple[Array, Array, float]:
    mass = np.ones((len(rows), 1)) if metric is None else metric.reshape(-1, 1).astype(np.float64)
    squares = (rows / units) ** 2
    return (mass * squares).sum(axis=0), (mass * squares**2).sum(axis=0), float(mass.sum())


def _lengths(_: int, rows: Array) -> Array:
    """N x 1; squares are taken in units of the largest entry: they may leave the range of numbers."""
    largest = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64)
    scaled = rows / np.where(largest == 0, 1, largest)
    return np.asarray(largest * np.sqrt((scaled**2).sum(axis=1, keepdims=True)))


def _winners(rows: Array, centres: Array) -> Array:
    """Per row the nearest centre, the squared distance to it, and by how much the second best is farther."""
    rows = rows.astype(np.float64)
    scores, every = rows @ centres.T - (centres**2).sum(axis=1) / 2, np.arange(len(rows))
    labels = np.argmax(scores, axis=1)
    best = scores[every, labels]
    scores[every, labels] = -np.inf
    lead = 2 * (best - scores.max(axis=1)) if len(centres) > 1 else np.full(len(rows), np.inf)
    return np.column_stack([labels, ((rows - centres[labels]) ** 2).sum(axis=1), lead])


def _tallies(rows: Array, found: Array, count: int) -> tuple[Array, Array, Array, float]:
    labels = found[:, 0].astype(np.int64)
    sums = np.stack([np.bincount(labels, column, count) for column in rows.T], axis=1)
    use = np.bincount(labels, found[:, 2], count)
    return sums, np.bincount(labels, minlength=count), use, float(found[:, 1].sum())
