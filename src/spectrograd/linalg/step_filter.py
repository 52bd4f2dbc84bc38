"""Flat filters: a Jackson-damped Chebyshev step, and the count of eigenvalues below its edge.

A filter that only has to grow below a cut (:mod:`spectrograd.linalg.chebyshev_filter`) weighs the first
eigenvectors most. Here all below the edge get a weight near one and all others one near zero: with the
Chebyshev expansion of a step, damped by Jackson's factors against its oscillations (Weisse, Wellein,
Alvermann and Fehske, Rev. Mod. Phys. 78, 2006: the kernel polynomial method).

The same recurrence gives the moments ``x' T_m x`` of random columns, and these the density of eigenvalues:
their count below any value with its standard error (Di Napoli, Polizzi and Saad 2016), the edge itself, and
what a filter of any degree will let through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spectrograd.engines.base import Coefficients, Engine, MultiVector
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

GRID_PER_MOMENT = 4  # points of the density: enough to integrate products of two filters exactly
MAX_GROWTH = 1.5  # of a moment over that of degree zero: more, and eigenvalues lie outside of the interval
LEAST_STEP_DEGREE = 4
# A filter is good enough with a tenth of noise: k-means averages over the rows of a cluster.
MAX_NOISE = 0.1
MIN_FLATNESS = 0.9
COUNT_ERRORS = 2.0  # standard errors of the count among which the edge may lie


def jackson_factors(degree: int) -> Array:
    """Jackson's damping factors ``g_0 .. g_degree`` (Weisse et al. 2006, Eq. 71): the kernel is positive.

    Examples
    --------
    >>> jackson_factors(2).round(4).tolist()
    [1.0, 0.7071, 0.25]
    """
    n = degree + 2
    m = np.arange(degree + 1)
    angle = math.pi / n
    factors = (n - m) * np.cos(angle * m) + np.sin(angle * m) / math.tan(angle)
    return np.asarray(factors / n)


def step_coefficients(edge: float, degree: int) -> Array:
    """Chebyshev coefficients ``c_0 .. c_degree`` of a damped step: 1 on [-1, edge], 0 on [edge, 1].

    ``c_0 = 1 - acos(edge) / pi`` and ``c_m = -2 sin(m acos(edge)) / (m pi)``, times Jackson's factors.
    """
    angle = math.acos(min(1.0, max(-1.0, edge)))
    m = np.arange(1, degree + 1)
    plain = np.append(1 - angle / math.pi, -2 * np.sin(m * angle) / (m * math.pi))
    return np.asarray(plain * jackson_factors(degree))


class ChebyshevTerms:
    """The terms ``T_m(S) X`` of a block X, with S = ``B^-1 A`` mapped from the operator's bounds to [-1, 1].

    Parameters
    ----------
    engine, operator
        Where to multiply, and by what: an operator in ``random_walk_form()``.
    X
        Multivector, N x d; its memory is used again, as that of all terms but the last two.
    """

    def __init__(self, engine: Engine, operator: Operator, X: MultiVector) -> None:
        self.engine = engine
        self.operator = operator
        self.degree = 0
        self.current = X
        self.previous = X
        half = (operator.upper - operator.lower) / 2
        self._slope = 1 / half
        self._offset = -(operator.upper + operator.lower) / (2 * half)

    def advance(self) -> None:
        """Mutates: one degree more, ``T_m+1 = 2 S T_m - T_m-1``; one pass over the edges."""
        # T_1 = S T_0, T_m+1 = 2 S T_m - T_m-1 (the memory of T_m-1 is used again)
        first = self.degree == 0
        scale = 1.0 if first else 2.0
        rule: Coefficients = (scale * self._slope, scale * self._offset, 0.0 if first else -1.0)
        out = None if first else self.previous
        fresh = self.engine.recurrence(self.operator, self.current, self.previous, rule, out)
        self.previous = self.current
        self.current = fresh
        self.degree += 1


class Moments:
    """Chebyshev moments ``mu_m = x' B T_m(S) x`` of each column x of a block, two for every pass.

    ``columns`` (2 degree + 1, d) come from ``T_2m = 2 T_m T_m - T_0`` and ``T_2m+1 = 2 T_m+1 T_m - T_1``.
    """

    def __init__(self, terms: ChebyshevTerms) -> None:
        self.terms = terms
        metric = terms.operator.metric
        squares = np.diag(terms.engine.gram(terms.current, terms.current, metric, symmetric=True))
        self._columns = [squares]

    def extend(self, degree: int) -> None:
        """Mutates: advance the terms to ``degree`` and take their moments.

        Raises
        ------
        FloatingPointError
            Where eigenvalues lie outside of the operator's bounds.
        """
        terms = self.terms
        engine = terms.engine
        while terms.degree < degree:
            terms.advance()
            pairs = ((terms.current, terms.previous), (terms.current, terms.current))
            across, squares = (np.diag(M) for M in engine.grams(pairs, terms.operator.metric))
            # mu_2m-1 = 2 <T_m, T_m-1> - mu_1 and mu_2m = 2 <T_m, T_m> - mu_0: two moments per pass
            start = self._columns[0]
            first = across if terms.degree == 1 else self._columns[1]
            odd = across if terms.degree == 1 else 2 * across - first
            self._columns += [odd, 2 * squares - start]
            if not np.abs(self._columns[-1]).max() <= MAX_GROWTH * start.max():
                raise FloatingPointError("moments grow: eigenvalues lie outside of the operator's bounds")

    @property
    def columns(self) -> Array:
        """All moments so far, (2 degree + 1, d)."""
        return np.array(self._columns)

    def density(self, trace: float) -> SpectralDensity:
        """The density of ``trace`` eigenvalues, by the kernel polynomial method."""
        columns = self.columns
        bounds = (self.terms.operator.lower, self.terms.operator.upper)
        return SpectralDensity.of(trace * columns / columns[0], bounds)


@dataclass(frozen=True)
class Edge:
    """The edge of a step: ``value``, the ``count`` of eigenvalues below it and its ``standard_error``."""

    value: float
    count: float
    standard_error: float


class StepQuality(NamedTuple):
    """The predicted quality of a filter, by a density of eigenvalues.

    ``noise`` is the share of the filtered squares that lies above the edge; ``flatness`` the effective number
    of vectors below it (participation of their weights) over their count.
    """

    noise: float
    flatness: float

    @property
    def is_good(self) -> bool:
        """Whether clusters can be found in such columns."""
        return self.noise <= MAX_NOISE and self.flatness >= MIN_FLATNESS


@dataclass(frozen=True, eq=False)
class SpectralDensity:
    """A density of eigenvalues, by the kernel polynomial method.

    Attributes
    ----------
    points : array of shape (n,)
        Values in [-1, 1], ascending.
    weights : array of shape (n, d)
        Number of eigenvalues at each, as each random column has it.
    bounds
        Lower and upper end of the spectrum, which -1 and 1 stand for.
    """

    points: Array
    weights: Array
    bounds: tuple[float, float]

    @classmethod
    def of(cls, moments: Array, bounds: tuple[float, float]) -> SpectralDensity:
        """Estimate the density from the moments (m + 1, d) of columns: Chebyshev-Gauss quadrature."""
        degree = len(moments) - 1
        n = GRID_PER_MOMENT * (degree + 1)
        angles = math.pi * (np.arange(n)[::-1] + 0.5) / n
        # mu_0 + 2 sum_m g_m mu_m cos(m theta), over n points of equal weight (Weisse et al. 2006, Eq. 79)
        factors = jackson_factors(degree) * np.where(np.arange(degree + 1) > 0, 2.0, 1.0)
        waves = np.cos(angles[:, None] * np.arange(degree + 1)) * factors
        return cls(np.cos(angles), waves @ moments / n, bounds)

    def value_at(self, point: float) -> float:
        """The eigenvalue that a point of [-1, 1] stands for."""
        lower, upper = self.bounds
        return lower + (point + 1) * (upper - lower) / 2

    def point_at(self, value: float) -> float:
        """The point of [-1, 1] that an eigenvalue is mapped to."""
        lower, upper = self.bounds
        return 2 * (value - lower) / (upper - lower) - 1

    def find_edge(self, n_below: float) -> Edge:
        """The emptiest place among those below which ``n_below`` eigenvalues may lie.

        The count decides up to its standard error; within that, the gap of the spectrum does.
        """
        # 1. the count below every point, and its standard error over the random columns
        counts = np.cumsum(self.weights, axis=0)
        means = counts.mean(axis=1)
        n_columns = counts.shape[1]
        errors = counts.std(axis=1, ddof=1) / math.sqrt(n_columns) if n_columns > 1 else means
        allowed = np.maximum(COUNT_ERRORS * errors, 0.5)
        # 2. points at which the count agrees with the number asked for
        near = np.abs(means - n_below) <= allowed
        nearest = int(np.abs(means - n_below).argmin())
        near[nearest] = True
        # Only the run of such places around the nearest one: counts need not be monotone in noise.
        first = nearest - int(np.argmin(np.append(near[nearest::-1], False))) + 1
        last = nearest + int(np.argmin(np.append(near[nearest:], False))) - 1
        # On points equally spaced in the angle, density per eigenvalue is weight over sin(angle).
        spacing = np.sqrt(1 - self.points**2)
        emptiness = self.weights.mean(axis=1) / spacing
        at = first + int(emptiness[first : last + 1].argmin())
        return Edge(self.value_at(float(self.points[at])), float(means[at]), float(errors[at]))

    def quality(self, edge: float, degree: int) -> StepQuality:
        """Predict the effect on random columns of the step of this degree with its edge there."""
        point = self.point_at(edge)
        # the squared filter at every point: its share of the length of a random column there
        squares = np.polynomial.chebyshev.chebval(self.points, step_coefficients(point, degree)) ** 2
        weights = np.maximum(self.weights.mean(axis=1), 0.0)
        below = self.points <= point
        inside = float(weights[below] @ squares[below])
        outside = float(weights[~below] @ squares[~below])
        fourth = float(weights[below] @ squares[below] ** 2)
        if not inside > 0:
            return StepQuality(1.0, 0.0)
        return StepQuality(outside / (inside + outside), inside**2 / (fourth * float(weights[below].sum())))

    def least_degree(self, edge: float, max_degree: int) -> int | None:
        """The least degree of a step that is good enough; None where none up to ``max_degree`` is."""
        degrees = range(LEAST_STEP_DEGREE, max_degree + 1)
        return next((degree for degree in degrees if self.quality(edge, degree).is_good), None)


def apply_step(engine: Engine, operator: Operator, X: MultiVector, edge: float, degree: int) -> MultiVector:
    """``h(B^-1 A) X`` with the damped step h of a degree; one pass per degree, and three blocks.

    Parameters
    ----------
    engine, operator
        Where to multiply, and by what: an operator in ``random_walk_form()``.
    X
        Multivector, N x d; its memory is used again.
    edge
        Eigenvalue at which the step falls.
    degree
        Of the polynomial.
    """
    point = 2 * (edge - operator.lower) / (operator.upper - operator.lower) - 1
    coefficients = step_coefficients(point, degree)
    same = np.eye(X.shape[1])
    terms = ChebyshevTerms(engine, operator, X)
    # h(S) X = sum_m c_m T_m(S) X
    filtered = engine.combine(X, coefficients[0] * same)
    for coefficient in coefficients[1:]:
        terms.advance()
        filtered = engine.combine_inplace(filtered, same, terms.current, coefficient * same)
    return filtered
