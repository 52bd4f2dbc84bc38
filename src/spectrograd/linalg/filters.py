"""Polynomial filters: what lies below a cut grows, the rest of the spectrum stays bounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.protocol import Coefficients, Engine, Tall
from spectrograd.operators.protocol import Operator

Array = NDArray[Any]
NARROWEST = 0.05  # of the width of the spectrum: what a filter must have to damp


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
        work = Filtering(self, engine, operator, U)
        for _ in range(self.degree):
            work.sweep()
        return work.current


class Filtering:
    """A filter at work: ``current`` (N x k) is what ``degree`` degrees of it have made of U.

    One sweep for each degree; none for the first where the ``product`` ``B^-1 A U`` is known. The memory of
    an U that is ``owned``, and then of the product too, is used again: two talls are all it takes.
    """

    def __init__(
        self,
        smooth: Filter,
        engine: Engine,
        operator: Operator,
        U: Tall,
        product: Tall | None = None,
        *,
        owned: bool = False,
    ) -> None:
        self.engine, self.operator, self.current, self.degree = engine, operator, U, 0
        self._given, self._previous, self._product = None if owned else U, U, product
        self._coefficients = damping(operator.lower, smooth.cut, smooth.upper)

    def sweep(self) -> None:
        """Mutates: one degree more. The memory of the degree before is used again."""
        a, b, c = next(self._coefficients)
        if self._product is not None:
            same = np.eye(self.current.shape[1])
            merge = self.engine.combine if self._given is not None else self.engine.turned
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
        turn = self.engine.turned if self._given is None else self.engine.combine
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
