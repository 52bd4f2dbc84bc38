"""Did the solver skip an eigenvector? Filtered random vectors look for one, with odds that can be stated.

Let ``x`` be Gaussian in the complement of the found subspace and ``y = q(A) x`` for a polynomial that is
small above a cut and large below. If some eigenvector ``v`` outside the subspace had an eigenvalue below
``tau``, then ``y`` would be rich in it and its Rayleigh quotient low. From ``y'(A - rho) y >= 0`` follows

    (v'x)^2 <= |x|^2 ((cut - rho)+ q(rho)^2 + upper - rho) / ((rho - tau) q(tau)^2)

and ``v'x`` is a standard normal number: the chance that it is so small is the chance of a miss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines import Engine
from spectrograd.engines.subspace import Ritz, orthonormalize, rayleigh_ritz
from spectrograd.laplacian import Operator

Array = NDArray[Any]
DEGREES = (6, 30)
ENOUGH = 1e-4


@dataclass(frozen=True)
class Filter:
    """A Chebyshev polynomial: at most one in magnitude on [cut, upper], growing fast below the cut."""

    degree: int
    cut: float
    upper: float

    def log_gain(self, value: float) -> float:
        """``log |p(value)|``, or 0 (its bound) inside [cut, upper]."""
        t = (self.upper + self.cut - 2 * value) / (self.upper - self.cut)
        return self.degree * math.acosh(t) if t > 1 else 0.0

    def apply(self, engine: Engine, operator: Operator, X: Array) -> Array:
        """``p(B^-1 A) X`` by the three-term recurrence; one pass per degree."""
        centre, half = (self.upper + self.cut) / 2, (self.upper - self.cut) / 2
        metric = operator.metric

        def shifted(Y: Array) -> Array:
            AY = engine.spmm(operator, Y)
            if metric is not None:
                AY /= metric[:, None]
            return np.asarray((AY - centre * Y) / half)

        before, now = X, shifted(X)
        for _ in range(self.degree - 1):
            before, now = now, 2 * shifted(now) - before
        return now


@dataclass(frozen=True, eq=False)
class Complement:
    """What the probe saw outside the found subspace.

    ``lowest`` is the smallest Ritz value there; ``odds_below(tau)`` bounds the chance that an
    eigenvalue below ``tau`` was skipped all the same; ``columns`` is the cost, in products of the
    operator with single columns. ``complete`` means that ``lowest`` is known, not guessed.
    """

    lowest: float
    squared_norm: float = 1.0
    n_vectors: int = 0
    columns: int = 0
    upper: float = 2.0
    filters: tuple[Filter, ...] = ()
    complete: bool = False

    def odds_below(self, tau: float) -> float:
        """Bound on the chance that an eigenvector with eigenvalue below ``tau`` was missed."""
        rho = self.lowest
        if tau >= rho:
            return 1.0
        if self.complete:
            return 0.0
        gain_tau = sum(f.log_gain(tau) for f in self.filters)
        gain_rho = sum(f.log_gain(rho) for f in self.filters)
        cut = max(f.cut for f in self.filters)
        log_above = math.log(max(self.upper - rho, 1e-300))
        log_between = 2 * gain_rho + math.log(max(cut - rho, 1e-300)) if cut > rho else -math.inf
        log_rest = np.logaddexp(log_above, log_between) + math.log(self.squared_norm)
        log_square = log_rest - math.log(rho - tau) - 2 * gain_tau
        chance = 1.0 if log_square > 5 else math.erf(math.exp(log_square / 2) / math.sqrt(2))
        return float(chance**self.n_vectors)


def look_outside(
    engine: Engine,
    operator: Operator,
    ritz: Ritz,
    rng: np.random.Generator,
    *,
    beyond: float | None = None,
    max_rounds: int = 10,
    n_vectors: int = 4,
) -> Complement:
    """Filter random vectors in the complement of the Ritz vectors until the odds are good enough.

    ``beyond`` is the solver's guess of the next eigenvalue: with it the first filter has the right cut
    and degree, without it they are found on the way.
    """
    Q, top = ritz.Q, float(ritz.values[-1])
    n_vectors = min(n_vectors, operator.n_nodes - Q.shape[1])
    X = rng.standard_normal((operator.n_nodes, n_vectors))
    if operator.metric is not None:
        X /= np.sqrt(operator.metric)[:, None]  # Gaussian in the metric
    X = _deflated(engine, operator, Q, X)
    squared_norm = float(np.diag(engine.gram(X, X, operator.metric)).max())
    found = rayleigh_ritz(engine, operator, orthonormalize(engine, X, operator.metric, rng).Q)
    filters: list[Filter] = []
    columns = n_vectors
    seen = Complement(float(found.values[0]), squared_norm, n_vectors, columns, operator.upper)
    for turn in range(max_rounds):
        guess = beyond if turn == 0 and beyond is not None else float(found.values[0])
        cut = _next_cut(top, guess, operator.upper)
        filters.append(Filter(_degree(top, cut, operator, squared_norm), cut, operator.upper))
        Y = _deflated(engine, operator, Q, filters[-1].apply(engine, operator, found.Q))
        found = rayleigh_ritz(engine, operator, orthonormalize(engine, Y, operator.metric, rng).Q)
        columns += (filters[-1].degree + 1) * n_vectors
        lowest = float(found.values[0])
        seen = Complement(lowest, squared_norm, n_vectors, columns, operator.upper, tuple(filters))
        if lowest <= top or seen.odds_below(top + 0.5 * (lowest - top)) < ENOUGH:
            break
    return seen


def _deflated(engine: Engine, operator: Operator, Q: Array, X: Array) -> Array:
    """Take the found directions out, twice for accuracy."""
    for _ in range(2):
        X = X - Q @ engine.gram(Q, X, operator.metric)
    return X


def _next_cut(top: float, lowest: float, upper: float) -> float:
    """Damp everything above the lowest Ritz value seen outside, but never the found subspace itself."""
    return max(lowest, top + 1e-3 * (upper - top))


def _degree(top: float, cut: float, operator: Operator, squared_norm: float) -> int:
    """Degree after which one random vector would betray a skipped eigenvector nine times in ten."""
    tau, half = (top + cut) / 2, (operator.upper - cut) / 2
    gain = 0.5 * math.log(squared_norm * (operator.upper - operator.lower) / (1e-2 * (cut - tau)))
    rate = math.acosh(1 + (cut - tau) / half)
    return int(np.clip(math.ceil(gain / rate), *DEGREES))
