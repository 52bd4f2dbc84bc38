"""Polynomial filters: what lies below a cut grows, the rest of the spectrum stays bounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg as la

from spectrograd.engines.base import Coefficients, Engine, MultiVector
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

NARROWEST = 0.05  # of the width of the spectrum: what a filter must have to damp


# Times the median of the Rayleigh quotients of unit vectors (degrees, of an unnormalised Laplacian): rows
# beyond it are hubs, each with an eigenvalue far above the others.
HUB = 4.0
# By how much columns may grow in a filter that leaves one at the lower end: more, and the spectrum ends later
# than the filter does. Early enough for float32, which holds no more than 7 digits below what grows.
GROWN = 4.0


@dataclass(frozen=True)
class Bulk:
    """Where most of a spectrum lies, and the ``end`` of all of it."""

    mean: float
    deviation: float
    end: float
    has_hubs: bool = False

    @property
    def low(self) -> float:
        """Where it begins, if it is a semicircle."""
        return self.mean - 2 * self.deviation


def has_hubs(operator: Operator) -> bool:
    """Whether some rows are known to have eigenvalues far above all others."""
    known = operator.quotients
    return known is not None and bool(known.max() > HUB * np.median(known))


def bulk_of(operator: Operator, mean: float, deviation: float) -> Bulk:
    """The bulk of a spectrum with this mean and deviation, as random vectors have them; not placed.

    A semicircle ends two deviations from its mean. Where a unit vector is known to reach farther, the end is
    the bound of the operator instead, and mean and deviation, which its hubs have spoilt, are those of the
    other rows: ``deviation^2`` is the variance of their quotients and the mean square sum of a row of W, at
    least the mean degree times the mean weight (Cauchy and Schwarz).
    """
    known, end = operator.quotients, mean + 2 * deviation
    if known is None or not known.max() > end:
        return Bulk(mean, deviation, min(operator.upper, end))
    usual = known[known <= HUB * np.median(known)]
    mean = float(usual.mean())
    entries = max(1.0, 2 * operator.n_edges / operator.n_nodes)  # of a row
    deviation = min(deviation, float(np.sqrt(usual.var() + mean**2 / entries)))
    return Bulk(mean, deviation, operator.upper, has_hubs=True)


@dataclass(frozen=True)
class Filter:
    """A Chebyshev polynomial: at most one in magnitude on [cut, upper], growing fast below the cut."""

    degree: int
    cut: float
    upper: float

    def rate(self, value: float) -> float:
        """What each degree adds to ``log |p(value)|``; 0 inside [cut, upper]."""
        t = (self.upper + self.cut - 2 * value) / (self.upper - self.cut)
        return math.acosh(t) if t > 1 else 0.0

    def log_gain(self, value: float, lower: float) -> float:
        """``log |p(value) / p(lower)|`` for values below the cut; :meth:`apply` leaves one at ``lower``."""
        here, there = (self.degree * self.rate(at) for at in (value, lower))  # log cosh, without overflow
        return here - there + math.log1p(math.exp(-2 * here)) - math.log1p(math.exp(-2 * there))

    def apply(self, engine: Engine, operator: Operator, U: MultiVector) -> MultiVector:
        """``p(B^-1 A) U`` up to a factor, one pass per degree, for an operator in ``random_walk_form()``."""
        work = Filtering(self, engine, operator, U)
        for _ in range(self.degree):
            work.advance()
        return work.current


class Filtering:
    """A filter at work: ``current`` (N x k) is what ``degree`` degrees of it have made of U.

    One sweep for each degree; none for the first where the ``product`` ``B^-1 A U`` is known. The memory of
    an U that is ``owned``, and then of the product too, is used again: two multivectors are all it takes.
    """

    def __init__(
        self,
        smooth: Filter,
        engine: Engine,
        operator: Operator,
        U: MultiVector,
        product: MultiVector | None = None,
        *,
        owned: bool = False,
    ) -> None:
        self.engine, self.operator, self.current, self.degree = engine, operator, U, 0
        self._given, self._previous, self._product = None if owned else U, U, product
        self._coefficients = damping(operator.lower, smooth.cut, smooth.upper)

    def advance(self) -> None:
        """Mutates: one degree more. The memory of the degree before is used again."""
        a, b, c = next(self._coefficients)
        if self._product is not None:
            same = np.eye(self.current.shape[1])
            merge = self.engine.combine if self._given is not None else self.engine.combine_inplace
            fresh = merge(self._product, a * same, self.current, b * same)
        else:
            free = self._previous is not self._given and self._previous is not self.current
            out = self._previous if free else None
            rest = (self.operator, self.current, self._previous, (a, b, c), out)
            fresh = self.engine.recurrence(*rest)
        self._previous, self.current, self._product = self.current, fresh, None
        self.degree += 1

    def rotate(self, F: Array) -> None:
        """Mutates: columns become combinations F (k x k) of themselves, and so they will have been from now.

        The recurrence does not mix columns, so this may happen at any time.
        """
        turn = self.engine.combine_inplace if self._given is None else self.engine.combine
        self._given = None
        self.current, self._previous = turn(self.current, F), turn(self._previous, F)


def damping(lower: float, cut: float, upper: float) -> Iterator[Coefficients]:
    """Without end, (a, b, c) of the terms ``a A X + b X + c before`` of a scaled Chebyshev recurrence.

    It damps [cut, upper]. The scale (Zhou et al. 2006, Algorithm 3.1) keeps the value at ``lower`` at 1,
    against overflow.
    """
    half, centre = (upper - cut) / 2, (upper + cut) / 2
    sigma = first = half / (lower - centre)
    yield sigma / half, -centre * sigma / half, 0.0
    while True:
        following = 1 / (2 / first - sigma)
        a = 2 * following / half
        yield a, -centre * a, -sigma * following
        sigma = following


# --- When has a filter done enough? The singular values of the block that goes through it tell.

# Largest over smallest singular value from which columns are turned to the singular vectors, each of unit
# length: rounding errors of the largest then stay with it.
UNEVEN = 100.0


class FilteredSingularValues:
    """Singular values of a random block (``width`` columns) on its way through a filter.

    ``factor`` makes of the block as it is now, orthonormal or nearly so, the one without the turns taken.
    """

    def __init__(self, width: int) -> None:
        self.undo, self.factor = np.eye(width), np.eye(width)

    def measure(self, M: Array) -> None:
        """Mutates: look at the Gram matrix of the block as it is."""
        squares, V = la.eigh((M + M.T) / 2)
        if not squares[-1] > 0:
            raise FloatingPointError("the filter lost all vectors")
        self.roots, self.V = np.sqrt(np.maximum(squares, 1e-14 * squares[-1])), V
        self.factor = (self.roots[:, None] * V.T) @ self.undo

    @property
    def uneven(self) -> bool:
        """Whether rounding errors of the largest direction are about to cover the others."""
        return bool(self.roots[-1] > UNEVEN * self.roots[0])

    def evened(self) -> Array:
        """Mutates: the turn that makes the block orthonormal is to be undone in what is measured."""
        self.undo = self.factor
        return np.asarray(self.V / self.roots)

    def error(self, k: int) -> float:
        """About the sine of the angles of K directions, added up: their share of the noise.

        The other singular values are that of the rest of the spectrum, noise of one size in all directions.
        """
        squares = la.svdvals(self.factor) ** 2
        if len(squares) == k:
            return 0.0
        noise = squares[k:].mean()
        return float(np.sqrt((noise / np.maximum(squares[:k] - noise, 1e-300)).sum()))
