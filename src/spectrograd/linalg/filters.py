"""Polynomial filters: what lies below a cut grows, the rest of the spectrum stays bounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spectrograd.engines.protocol import Engine, Tall
from spectrograd.operators.protocol import Operator


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

    def apply(self, engine: Engine, operator: Operator, U: Tall) -> Tall:
        """``p(B^-1 A) U`` up to a factor, one pass per degree, for an operator in ``walk_form()``."""
        coefficients = damping(operator.lower, self.cut, self.upper)
        previous = U
        current = engine.recurrence(operator, U, U, next(coefficients))
        spare: Tall | None = None
        for _ in range(self.degree - 1):
            fresh = engine.recurrence(operator, current, previous, next(coefficients), spare)
            spare = None if previous is U else previous
            previous, current = current, fresh
        return current


def damping(lower: float, cut: float, upper: float) -> Iterator[tuple[float, float, float]]:
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
