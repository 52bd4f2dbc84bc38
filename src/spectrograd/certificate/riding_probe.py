"""A probe that rides along: random columns in the solver's own sweeps tell what it has skipped.

Let X be s Gaussian columns, standard in the metric B and independent of all that the solver uses, and p a
polynomial that is positive and falls on the spectrum below tau (a product of the solver's own Chebyshev
filters). If more than K eigenvalues lay below tau, some unit vector v in the span of their eigenvectors would
be orthogonal to the K vectors Q that were found. ``w = p(A) v`` lies in that span too, is at least ``p(tau)``
long, and

    |w'B X| = |v'B p(A) X| <= |(I - Q Q'B) p(A) X|_2 = rho,

while ``|w'B X|^2 / |w|^2`` is chi-square with s degrees of freedom: the odds that it is below
``(rho / p(tau))^2`` bound the chance of a miss. No sweep is made for it, and nothing of X enters the solver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from spectrograd.certificate.evidence import ENOUGH, Complement, needed_cut
from spectrograd.engines.protocol import Engine, Tall
from spectrograd.engines.random_rows import new_seed
from spectrograd.linalg.coordinates import Coordinates
from spectrograd.linalg.filters import Filter
from spectrograd.linalg.subspace import Ritz
from spectrograd.operators.protocol import Operator

Array = NDArray[Any]
# Columns: chi-square of 8 degrees is below 0.7 in one of 2,000 cases, of one degree only below 4e-7; more
# columns would save a sweep and cost more in each.
COLUMNS = 8
# What it may ask for after the solver has stopped: few sweeps, no more than a probe of its own takes.
MORE_AT_ONCE, MOST_MORE = 4, 24


@dataclass(frozen=True, eq=False)
class Rider:
    """Columns on their way: ``X`` (N x s, in walk form) after the ``filters``; ``length`` was their norm."""

    X: Tall
    length: float
    filters: tuple[Filter, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Rider:
        """Itself: it never changes."""
        return self

    @property
    def degree(self) -> int:
        """Sweeps so far."""
        return sum(smooth.degree for smooth in self.filters)

    def after(self, smooth: Filter, X: Tall) -> Rider:
        """One filter later."""
        return Rider(X, self.length, (*self.filters, smooth))


def new_rider(engine: Engine, operator: Operator, rng: np.random.Generator, dtype: Any) -> Rider:
    """Columns that are standard normal in the metric of the operator's walk form."""
    walk = operator.walk_form()
    X = engine.random(operator.n_nodes, COLUMNS, new_seed(rng), dtype)
    if walk.metric is not None:
        X = engine.scaled(X, engine.put((1 / np.sqrt(walk.metric))[:, None]))
    return Rider(X, _norm(engine, X, engine.place(walk).metric))


@dataclass(frozen=True, eq=False)
class Ridden(Complement):
    """What the columns tell: ``rho`` is their norm outside of what was found, rounding included."""

    rho: float = math.inf
    filters: tuple[Filter, ...] = ()
    lower: float = 0.0
    n_columns: int = COLUMNS

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if tau >= self.lowest or any(tau >= smooth.cut for smooth in self.filters):
            return 1.0
        gain = sum(smooth.log_gain(tau, self.lower) for smooth in self.filters)  # log p(tau), at most 0
        log_square = 2 * (math.log(max(self.rho, 1e-300)) - gain)
        return float(gammainc(self.n_columns / 2, math.exp(min(log_square, 700)) / 2))


def look_at(engine: Engine, walk: Coordinates, rider: Rider, Q: Tall, lowest: float) -> Ridden:
    """What a rider tells of the complement of Q (N x K, orthonormal in walk form); no sweep."""
    metric, lower = walk.operator.metric, walk.operator.lower
    outside = engine.combine(rider.X, np.eye(rider.X.shape[1]), Q, -engine.gram(Q, rider.X, metric))
    eps = float(np.finfo(rider.X.dtype).eps)
    rounding = 2 * rider.degree * eps * rider.length  # of every sweep, as long as the columns were at first
    rho = _norm(engine, outside, metric) + rounding
    columns = rider.degree * rider.X.shape[1]
    return Ridden(lowest, columns, None, rho, rider.filters, lower, int(rider.X.shape[1]))


def look_further(
    engine: Engine, walk: Coordinates, rider: Rider, ritz: Ritz, lowest: float, cut: float, residual: float
) -> Ridden:
    """The same, with a few sweeps more where the odds are not good enough yet.

    ``ritz`` are the vectors found, in walk form, with values and ``residual``; ``lowest`` is the solver's
    guess of the next eigenvalue and ``cut`` where filters begin.
    """
    tau = needed_cut(float(ritz.values[-1]), lowest, residual)
    seen = look_at(engine, walk, rider, ritz.Q, lowest)
    for _ in range(MOST_MORE // MORE_AT_ONCE):
        if seen.odds_below(tau) <= ENOUGH or tau >= cut:
            break
        smooth = Filter(MORE_AT_ONCE, cut, walk.operator.upper)
        rider = rider.after(smooth, smooth.apply(engine, walk.operator, rider.X))
        seen = look_at(engine, walk, rider, ritz.Q, lowest)
    return seen


def _norm(engine: Engine, X: Tall, metric: Tall | None) -> float:
    """The largest singular value in the metric."""
    M = engine.gram(X, X, metric)
    return math.sqrt(max(float(np.linalg.eigvalsh((M + M.T) / 2)[-1]), 0.0))
