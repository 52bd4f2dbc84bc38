"""Did the solver skip an eigenvector? Filtered random vectors look for one, with odds that can be stated.

Let ``x`` be Gaussian in the complement of the found subspace and ``y = q(A) x`` for a polynomial that is
small above a cut and large below. If some eigenvector ``v`` outside the subspace had an eigenvalue below
``tau``, then ``y`` would be rich in it and its Rayleigh quotient low. From ``y'(A - rho) y >= 0`` follows

    (v'x)^2 <= |x|^2 ((cut - rho)+ q(rho)^2 + upper - rho) / ((rho - tau) q(tau)^2)

and ``v'x`` is a standard normal number: the chance that it is so small is the chance of a miss.

A block method that starts from m Gaussian columns X carries this evidence in itself. Suppose K + 1
eigenvectors, the columns of V, had eigenvalues below ``tau``, while only K Ritz values of the block
``q(A) X`` lie below ``rho > tau``. Among the combinations ``q(A) X (V'X)' a`` one would then have a Rayleigh
quotient of at least ``rho``, and as above the smallest singular value s of the Gaussian (K + 1) x m matrix
``V'X`` would obey the bound, with ``|X|^2`` for ``|x|^2``. The distance of a row of it from the span of the
others follows a chi distribution with m - K degrees of freedom, and the smallest of these distances is at
most ``sqrt(K + 1) s``: the chance of a miss is at most ``(K + 1) P(chi <= sqrt(K + 1) s)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from spectrograd.engines import Engine
from spectrograd.engines.filters import Filter
from spectrograd.engines.subspace import Ritz, orthonormalize, rayleigh_ritz
from spectrograd.laplacian import Operator

Array = NDArray[Any]
DEGREES = (6, 30)
ENOUGH = 1e-4
PROBE_COLUMNS = 4


@dataclass(frozen=True, eq=False)
class Complement:
    """What the probe saw outside the found subspace.

    ``lowest`` is the smallest Ritz value there; ``odds_below(tau)`` bounds the chance that an
    eigenvalue below ``tau`` was skipped all the same; ``columns`` is the cost, in products of the
    operator with single columns. ``complete`` means that ``lowest`` is known, not guessed. ``directions``
    is K + 1 where the evidence is the random start of a block method, with ``n_vectors`` guard columns.
    """

    lowest: float
    squared_norm: float = 1.0
    n_vectors: int = 0
    columns: int = 0
    upper: float = 2.0
    filters: tuple[Filter, ...] = ()
    complete: bool = False
    directions: int = 0

    def odds_below(self, tau: float) -> float:
        """Bound on the chance that an eigenvector with eigenvalue below ``tau`` was missed."""
        rho = self.lowest
        if tau >= rho:
            return 1.0
        if self.complete:
            return 0.0
        if not self.filters or any(tau >= f.cut for f in self.filters):
            return 1.0  # a filter may have damped what it should have raised
        square, p = math.exp(min(self._log_square(tau), 5.0)), self.directions
        if p:
            return min(1.0, p * float(gammainc(self.n_vectors / 2, p * square / 2)))
        return math.erf(math.sqrt(square / 2)) ** self.n_vectors

    def owed(self, tau: float, odds: float) -> float:
        """How much more ``log |q(tau)|`` a random start needs before the odds are as asked for.

        From a filter whose cut is ``lowest``; infinite where no further filter helps.
        """
        if tau >= min(self.lowest, *(f.cut for f in self.filters)):
            return math.inf
        p = self.directions
        allowed = 2 / p * float(gammaincinv(self.n_vectors / 2, odds / p))
        return max(0.0, (self._log_square(tau) - math.log(allowed)) / 2)

    def _log_square(self, tau: float) -> float:
        """Logarithm of the bound on ``(v'x)^2``, or on the squared singular value."""
        rho = self.lowest
        gain_tau = sum(f.log_gain(tau) for f in self.filters)
        gain_rho = sum(f.log_gain(rho) for f in self.filters)
        cut = max(f.cut for f in self.filters)
        log_above = math.log(max(self.upper - rho, 1e-300))
        log_between = 2 * gain_rho + math.log(max(cut - rho, 1e-300)) if cut > rho else -math.inf
        log_rest = float(np.logaddexp(log_above, log_between)) + math.log(self.squared_norm)
        return log_rest - math.log(rho - tau) - 2 * gain_tau


def block_start(
    n_nodes: int, n_found: int, n_columns: int, lowest: float, upper: float, filters: tuple[Filter, ...]
) -> Complement:
    """The evidence in the start of a block method: Gaussian columns in the metric, then ``filters``.

    ``|X| <= sqrt(N) + sqrt(m) + 6`` fails with odds of 1e-8 (Davidson and Szarek 2001).
    """
    norm = math.sqrt(n_nodes) + math.sqrt(n_columns) + 6
    return Complement(lowest, norm**2, n_columns - n_found, 0, upper, filters, directions=n_found + 1)


def look_outside(
    engine: Engine,
    operator: Operator,
    ritz: Ritz,
    rng: np.random.Generator,
    *,
    beyond: float | None = None,
    max_rounds: int = 10,
    n_vectors: int = PROBE_COLUMNS,
) -> Complement:
    """Filter random vectors in the complement of the Ritz vectors until the odds are good enough.

    ``beyond`` is the solver's guess of the next eigenvalue: with it the first filter has the right cut
    and degree, without it they are found on the way. The filters run in single precision: noise of 1e-7 is
    not what hides an eigenvector from a random vector.
    """
    Q, top = operator.to_walk(ritz.Q), float(ritz.values[-1])
    operator = operator.walk_form()
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
        Y = filters[-1].apply(engine, operator, found.Q.astype(np.float32))
        Y = _deflated(engine, operator, Q, Y.astype(np.float64))
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
