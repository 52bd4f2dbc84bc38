"""Chebyshev filters: eigenvalues below a cut grow, the rest of the spectrum stays bounded.

Where the spectrum's bulk ends (:class:`Bulk`), the polynomial and its recurrence (:class:`Filter`,
:class:`Filtering`), and the singular values that say when a block is filtered enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg as la

from spectrograd.engines.base import Coefficients, Engine, MultiVector
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

MIN_DAMPED_SHARE = 0.05  # of the width of the spectrum: the least interval that a filter damps

# Times the median of the Rayleigh quotients of unit vectors (degrees, of an unnormalised Laplacian): rows
# beyond it are hubs, each with an eigenvalue far above the others.
HUB_RATIO = 4.0
# By how much columns may grow in a filter that leaves one at the lower end: more, and the spectrum ends later
# than the filter does. Early enough for float32, which holds no more than 7 digits below what grows.
MAX_FILTER_GROWTH = 4.0


@dataclass(frozen=True)
class Bulk:
    """The interval of most eigenvalues (mean, standard deviation), and the upper ``end`` of all."""

    mean: float
    deviation: float
    end: float
    has_hubs: bool = False

    @property
    def low(self) -> float:
        """Lower end of the bulk, if it is a semicircle."""
        return self.mean - 2 * self.deviation


def has_hubs(operator: Operator) -> bool:
    """Whether some rows are known to have eigenvalues far above all others."""
    quotients = operator.quotients
    return quotients is not None and bool(quotients.max() > HUB_RATIO * np.median(quotients))


def estimate_bulk(operator: Operator, mean: float, deviation: float) -> Bulk:
    """The bulk of a spectrum with this mean and deviation, as random vectors have them.

    A semicircle ends two deviations from its mean. Where a unit vector has a larger Rayleigh quotient, the
    end is the bound of the operator instead, and mean and deviation, which hubs distort, are those of the
    other rows: ``deviation^2`` is the variance of their quotients and the mean square sum of a row of W, at
    least the mean degree times the mean weight (Cauchy and Schwarz).
    """
    # The Rayleigh quotient of a unit vector bounds the largest
    # eigenvalue from below: a larger one is proof of it.
    quotients = operator.quotients
    end = mean + 2 * deviation
    if quotients is None or not quotients.max() > end:
        return Bulk(mean, deviation, min(operator.upper, end))
    # 1. mean and variance of rows that are no hubs
    usual = quotients[quotients <= HUB_RATIO * np.median(quotients)]  # rows that are no hubs
    mean = float(usual.mean())
    # 2. the mean square of the off-diagonal entries of a row, at least mean^2 / entries
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
        """Growth of ``log |p(value)|`` per degree; 0 inside [cut, upper]."""
        # S(value), above 1 below the cut; T_m(t) = cosh(m acosh t)
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
    """The recurrence of a filter: ``current`` (N x k) is U after ``degree`` degrees of it.

    One pass for each degree; none for the first where the ``product`` ``B^-1 A U`` is known.

    Parameters
    ----------
    smooth
        The polynomial.
    engine, operator
        Where to multiply, and by what: an operator in ``random_walk_form()``.
    U
        Multivector, N x k.
    product
        ``B^-1 A U``, N x k, where it is known.
    owned
        Whether the memory of U and of the product may be used again: two multivectors are then enough.
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
        self.engine = engine
        self.operator = operator
        self.current = U
        self.degree = 0
        self._borrowed = None if owned else U  # must not be written to
        self._previous = U
        self._product = product
        self._coefficients = damping_coefficients(operator.lower, smooth.cut, smooth.upper)

    def advance(self) -> None:
        """Mutates: one degree more; uses the memory of the degree before again."""
        a, b, c = next(self._coefficients)
        # X_m+1 = a B^-1 A X_m + b X_m + c X_m-1, in place of X_m-1 unless that belongs to the caller
        if self._product is not None:  # degree 1 without a pass
            same = np.eye(self.current.shape[1])
            merge = self.engine.combine if self._borrowed is not None else self.engine.combine_inplace
            fresh = merge(self._product, a * same, self.current, b * same)
        else:
            free = self._previous is not self._borrowed and self._previous is not self.current
            out = self._previous if free else None
            rest = (self.operator, self.current, self._previous, (a, b, c), out)
            fresh = self.engine.recurrence(*rest)
        self._previous = self.current
        self.current = fresh
        self._product = None
        self.degree += 1

    def rotate(self, F: Array) -> None:
        """Mutates: replace the columns of the last two degrees by their combinations F (k x k).

        The recurrence does not mix columns, so this may happen at any degree.
        """
        combine = self.engine.combine_inplace if self._borrowed is None else self.engine.combine
        self._borrowed = None
        self.current = combine(self.current, F)
        self._previous = combine(self._previous, F)


def damping_coefficients(lower: float, cut: float, upper: float) -> Iterator[Coefficients]:
    """Generate (a, b, c) of the terms ``a A X + b X + c before`` of a scaled Chebyshev recurrence.

    The recurrence damps [cut, upper]. The scale (Zhou et al. 2006, Algorithm 3.1) keeps the value at
    ``lower`` at 1, against overflow.
    """
    half = (upper - cut) / 2
    centre = (upper + cut) / 2
    # sigma_m = T_m-1 / T_m at ``lower``: each degree is divided by its own value there
    sigma = first = half / (lower - centre)
    yield sigma / half, -centre * sigma / half, 0.0
    while True:
        # 1 / sigma_m+1 = 2 / sigma_1 - sigma_m, the recurrence of Chebyshev polynomials
        following = 1 / (2 / first - sigma)
        a = 2 * following / half
        yield a, -centre * a, -sigma * following
        sigma = following


# --- Singular values of a filtered block: they say when the filter has done enough

# Largest over smallest singular value from which columns are rotated to the singular vectors, each of unit
# length: rounding errors of the largest then stay with it.
MAX_CONDITION = 100.0


class FilteredSingularValues:
    """Singular values of a random block (``width`` columns) on its way through a filter.

    ``factor`` (width x width) maps the block as it is now, orthonormal or nearly so, to the block without the
    rotations applied on the way.
    """

    def __init__(self, width: int) -> None:
        self.undo = np.eye(width)
        self.factor = np.eye(width)

    def measure(self, M: Array) -> None:
        """Mutates: take the singular values from the Gram matrix M (width x width) of the block as it is."""
        # M = V diag(s^2) V': s and V are singular values and right singular vectors of the block
        squares, V = la.eigh((M + M.T) / 2)
        if not squares[-1] > 0:
            raise FloatingPointError("the filter lost all vectors")
        self.roots = np.sqrt(np.maximum(squares, 1e-14 * squares[-1]))
        self.V = V
        self.factor = (self.roots[:, None] * V.T) @ self.undo

    @property
    def is_uneven(self) -> bool:
        """Whether rounding errors of the largest direction are about to cover the others."""
        return bool(self.roots[-1] > MAX_CONDITION * self.roots[0])

    def even_out(self) -> Array:
        """Mutates: return the rotation that makes the block orthonormal; later measurements undo it."""
        self.undo = self.factor
        return np.asarray(self.V / self.roots)

    def error(self, k: int) -> float:
        """Estimate the root of the sum of squared sines of K directions: their share of the noise.

        The other singular values belong to the rest of the spectrum, noise of one size in all directions.
        """
        # A random block is noise of one size: what grew beyond the mean of the others is signal.
        squares = la.svdvals(self.factor) ** 2
        if len(squares) == k:
            return 0.0
        noise = squares[k:].mean()
        return float(np.sqrt((noise / np.maximum(squares[:k] - noise, 1e-300)).sum()))
