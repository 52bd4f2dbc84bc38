"""What is known of the eigenvectors that a solver did not return, and with which odds.

A block method that starts from m Gaussian columns X carries such evidence in itself. Suppose K + 1
eigenvectors, the columns of V, had eigenvalues below ``tau``, while only K Ritz values of the block
``q(A) X`` lie below ``rho > tau``. Among the combinations ``q(A) X (V'X)' a`` one would then have a Rayleigh
quotient of at least ``rho``, and from ``y'(A - rho) y >= 0`` the smallest singular value s of the Gaussian
(K + 1) x m matrix ``V'X`` would obey

    s^2 <= |X|^2 max {(x - rho) q(x)^2 : rho <= x <= upper} / ((rho - tau) q(tau)^2).

The distance of a row of it from the span of the others follows a chi distribution with m - K degrees of
freedom, and the smallest of these distances is at most ``sqrt(K + 1) s``: the chance of a miss is at most
``(K + 1) P(chi <= sqrt(K + 1) s)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammainc, gammaincinv

from spectrograd.engines.filters import Filter

GOOD_ANGLE = 0.03  # what clustering needs: beyond it labels no longer change
LIKELY_MISS = 1e-3
ENOUGH = LIKELY_MISS / 2
LEAST_PART, MOST_PART = 0.05, 0.5  # of the gap: where tau may lie
HALVINGS = 12


@dataclass(frozen=True, eq=False)
class Complement:
    """What lies outside the found subspace; this one knows it.

    ``lowest`` is the smallest eigenvalue there (or Ritz value, where it is not known), ``columns`` the cost,
    in products of the operator with single columns, and nothing lies below ``sure`` (None: ``lowest``).
    """

    lowest: float
    columns: int = 0
    sure: float | None = None

    def odds_below(self, tau: float) -> float:
        """Bound on the chance that an eigenvector with eigenvalue below ``tau`` was missed."""
        return 0.0 if tau < (self.lowest if self.sure is None else self.sure) else 1.0


@dataclass(frozen=True, eq=False)
class RandomStart(Complement):
    """The random start of a block method, of which ``n_found`` Ritz values lie below ``lowest``.

    ``freedom`` is how many columns it had beyond those, ``log_square_norm`` a bound on ``log |X|^2``.
    """

    upper: float = 2.0
    filters: tuple[Filter, ...] = ()
    n_found: int = 1
    freedom: int = 1
    log_square_norm: float = 0.0

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if not self._reaches(tau):
            return 1.0
        square, p = math.exp(min(self.log_square(tau), 5.0)), self.n_found + 1
        return min(1.0, p * float(gammainc(self.freedom / 2, p * square / 2)))

    def _reaches(self, tau: float) -> bool:
        """Whether tau lies below all cuts: elsewhere a filter may have damped what it should have raised."""
        return tau < self.lowest and bool(self.filters) and all(tau < f.cut for f in self.filters)

    def owed(self, tau: float, odds: float) -> float:
        """How much more ``log |q(tau)|`` is needed before the odds are as asked for.

        From a filter whose cut is ``lowest``; infinite where no further filter helps.
        """
        if not self._reaches(tau):
            return math.inf
        p = self.n_found + 1
        allowed = 2 / p * float(gammaincinv(self.freedom / 2, odds / p))
        return max(0.0, (self.log_square(tau) - math.log(allowed)) / 2)

    def degrees(self, gain: float, tau: float) -> float:
        """How many degrees of a filter like the last one, cut at ``lowest``, add so much gain."""
        return replace(self.filters[-1], degree=1, cut=self.lowest).degree_for(gain, tau)

    def gain(self, value: float) -> float:
        """``log |q(value)|``."""
        return sum(f.log_gain(value) for f in self.filters)

    def log_square(self, tau: float) -> float:
        """Logarithm of the bound on ``s^2``."""
        largest = self.log_square_norm + self._log_largest()
        return largest - math.log(self.lowest - tau) - 2 * self.gain(tau)

    def _log_largest(self) -> float:
        """Bound on the logarithm of ``(x - rho) q(x)^2`` for x above ``rho = lowest``, where q decreases.

        Above all cuts q is at most one; below, x is taken at the right end of an interval and q at the left.
        """
        rho, cut = self.lowest, max(f.cut for f in self.filters)
        found = math.log(max(self.upper - rho, 1e-300))
        right = cut - rho
        for halving in range(HALVINGS if right > 0 else 0):
            left = right / 2 if halving < HALVINGS - 1 else 0.0
            found = max(found, math.log(max(right, 1e-300)) + 2 * self.gain(rho + left))
            right = left
        return found


def block_start(
    n_nodes: int, n_found: int, n_columns: int, lowest: float, upper: float, filters: tuple[Filter, ...]
) -> RandomStart:
    """The evidence in the start of a block method: Gaussian columns in the metric, then ``filters``.

    ``|X| <= sqrt(N) + sqrt(m) + 6`` fails with odds of 1e-8 (Davidson and Szarek 2001).
    """
    norm = math.sqrt(n_nodes) + math.sqrt(n_columns) + 6
    return RandomStart(lowest, 0, None, upper, filters, n_found, n_columns - n_found, 2 * math.log(norm))


def needed_cut(top: float, lowest: float, residual: float) -> float:
    """``tau`` between the last value found and the lowest outside: so far must the evidence reach.

    By Davis and Kahan ``residual / (tau - top)`` bounds the sine that should be good; tau is no higher
    than that takes, since evidence is cheaper the farther it stays from ``lowest``.
    """
    gap = max(lowest - top, 0.0)
    return top + float(np.clip(residual / (0.99 * GOOD_ANGLE), LEAST_PART * gap, MOST_PART * gap))
