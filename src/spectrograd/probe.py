"""Did the solver skip an eigenvector? Filtered random vectors look for one, with odds that can be stated.

Let X be n Gaussian columns in the complement of the found subspace, and ``Y = q(A) X`` for a polynomial that
is at most one above a cut and large below. If some eigenvector ``v`` outside the subspace had an eigenvalue
below ``tau < cut``, then the combination ``y = Y a`` with ``a`` along ``X'v`` would hold it with weight
``|q(tau)| |v'X|`` at least. A vector whose Rayleigh quotient is ``rho`` holds at most the share
``(upper - rho) / (upper - tau)`` of its square below ``tau``; with rho the lowest Ritz value of Y and |Y| its
largest singular value, both measured,

    |v'X|^2 <= |Y|^2 (upper - rho) / ((upper - tau) q(tau)^2)

and ``|v'X|`` follows a chi distribution with n degrees of freedom: the chance that it is so small is the
chance of a miss.

Filters are shorter if further Ritz vectors G, beyond the K that were asked for, are taken out as well: the
cut is then that of the first eigenvalue after them. They need not be accurate. With residuals of norm r and
values above ``theta``, ``|G'v| <= r / (theta - tau)`` for every unit vector v in the span E of the
eigenvectors below tau (a Sylvester equation). If E had K + 1 dimensions, some v in it would be orthogonal to
the found subspace, and without its part along G a vector of Rayleigh quotient at most

    tau + r^2 / ((theta - tau) (1 - r^2 / (theta - tau)^2)),

so the operator restricted to the complement of both would have an eigenvalue below that, a little above tau.

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
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from spectrograd.engines import Engine
from spectrograd.engines.filters import Filter
from spectrograd.engines.krylov import upper_edge
from spectrograd.engines.subspace import Ritz
from spectrograd.laplacian import SMALL, Operator

Array = NDArray[Any]
GOOD_ANGLE = 0.03  # what clustering needs: beyond it labels no longer change
LIKELY_MISS = 1e-3
ENOUGH = LIKELY_MISS / 2
PROBE_COLUMNS = 4
LEAST_DEGREE, MOST_DEGREES, MOST_ROUNDS = 4, 300, 10
FIRST_DEGREE = 12  # of the first look, where nothing is known of what lies outside
LEAST_PART, MOST_PART = 0.05, 0.5  # of the gap: where tau may lie
LONG, EDGE_STEPS = 60, 12  # a filter that is worth so many steps to find where the spectrum ends
SMALL_LEAK = 0.3
QUIET = 9.0  # log of the growth of rounding errors in the found directions between two cleanings
LOUD, LISTEN = 1e12, 20  # entries no longer than this; how often to look
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
class Evidence(Complement, ABC):
    """Odds from Gaussian columns and the filters they went through.

    ``directions`` is the number of eigenvectors of which one must be missed, ``freedom`` the degrees of
    freedom of its distance from the others.
    """

    upper: float = 2.0
    filters: tuple[Filter, ...] = ()
    freedom: int = 1
    directions: int = 1
    log_square_norm: float = 0.0

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if tau >= self.lowest or not self.filters or any(tau >= f.cut for f in self.filters):
            return 1.0  # a filter may have damped what it should have raised
        square, p = math.exp(min(self.log_square(tau), 5.0)), self.directions
        return min(1.0, p * float(gammainc(self.freedom / 2, p * square / 2)))

    def owed(self, tau: float, odds: float) -> float:
        """How much more ``log |q(tau)|`` is needed before the odds are as asked for.

        From a filter whose cut is ``lowest``; infinite where no further filter helps.
        """
        if tau >= min(self.lowest, *(f.cut for f in self.filters)):
            return math.inf
        return max(0.0, (self.log_square(tau) - _log_allowed(self.freedom, self.directions, odds)) / 2)

    def degrees(self, gain: float, tau: float) -> float:
        """How many degrees of a filter like the last one, cut at ``lowest``, add so much gain."""
        return replace(self.filters[-1], degree=1, cut=self.lowest).degree_for(gain, tau)

    @abstractmethod
    def log_square(self, tau: float) -> float:
        """Logarithm of the bound on the squared singular value."""

    def gain(self, value: float) -> float:
        """``log |q(value)|``."""
        return sum(f.log_gain(value) for f in self.filters)


@dataclass(frozen=True, eq=False)
class Probed(Evidence):
    """Filtered random vectors: ``|Y|^2`` and its lowest Ritz value ``rho`` were measured.

    ``theta`` and ``leak`` are the lowest value and the residual of the guard vectors that were taken out.
    """

    rho: float = 0.0
    theta: float = math.inf
    leak: float = 0.0

    def log_square(self, tau: float) -> float:
        """Logarithm of the bound on ``|v'X|^2``."""
        if self.leak > 0:
            square = (self.leak / (self.theta - tau)) ** 2 if tau < self.theta else 1.0
            if square >= 1:
                return math.inf
            tau += square * (self.theta - tau) / (1 - square)
        share = (self.upper - self.rho) / (self.upper - tau)
        return self.log_square_norm + math.log(max(share, 1e-12)) - 2 * self.gain(tau)


@dataclass(frozen=True, eq=False)
class RandomStart(Evidence):
    """The random start of a block method, of which K Ritz values lie below ``lowest``."""

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
    free, directions = n_columns - n_found, n_found + 1
    return RandomStart(lowest, 0, None, upper, filters, free, directions, 2 * math.log(norm))


def needed_cut(top: float, lowest: float, residual: float) -> float:
    """``tau`` between the last value found and the lowest outside: so far must the evidence reach.

    By Davis and Kahan ``residual / (tau - top)`` bounds the sine that should be good; tau is no higher
    than that takes, since evidence is cheaper the farther it stays from ``lowest``.
    """
    gap = max(lowest - top, 0.0)
    return top + float(np.clip(residual / (0.99 * GOOD_ANGLE), LEAST_PART * gap, MOST_PART * gap))


@dataclass(frozen=True, eq=False)
class Guards:
    """Ritz vectors after those that were asked for, from the same subspace; ``beyond`` is the next value."""

    vectors: Array
    values: Array
    residuals: Array
    beyond: float

    def first(self, n: int) -> Guards:
        """The first n of them."""
        beyond = float(self.values[n]) if n < len(self.values) else self.beyond
        return Guards(self.vectors[:, :n], self.values[:n], self.residuals[:n], beyond)


def _accurate(guards: Guards | None, top: float, residual: float) -> Guards | None:
    """As many as move the eigenvalue that is looked for by a tenth of its distance at most."""
    if guards is None or not len(guards.values):
        return None
    lowest = float(guards.values[0])
    leaks = np.sqrt(np.cumsum(guards.residuals**2))
    n = int((leaks <= SMALL_LEAK * (lowest - needed_cut(top, lowest, residual))).sum())
    return guards.first(n) if n else None


def look_outside(
    engine: Engine,
    operator: Operator,
    ritz: Ritz,
    rng: np.random.Generator,
    *,
    beyond: float | None = None,
    highest: float | None = None,
    guards: Guards | None = None,
    residual: float = 0.0,
    n_vectors: int | None = None,
) -> Complement:
    """Filter random vectors in the complement of the Ritz vectors until the odds are good enough.

    ``beyond`` is the solver's guess of the next eigenvalue: with it the first filter has the right cut
    and degree, without it they are found on the way. ``highest`` is where the spectrum seems to end: the
    filters need not be small beyond (and if they are not, it is measured). ``guards`` are further Ritz
    vectors, of which those that are accurate enough are taken out too. The filters run in single precision:
    noise of 1e-7 is not what hides an eigenvector from a random vector.
    """
    guards = _accurate(guards, float(ritz.values[-1]), residual)
    look = _Look(engine, operator, ritz, operator.upper if highest is None else highest, guards)
    if n_vectors is None:  # scipy multiplies four columns in more than four times the time of one
        n_vectors = PROBE_COLUMNS if operator.n_nodes > SMALL else 1
    Y = look.random_columns(min(n_vectors, operator.n_nodes - ritz.Q.shape[1]), rng)
    known = beyond is not None and beyond > look.top
    lowest = beyond if beyond is not None and known else look.measured(Y)[0]
    cut = lowest if guards is None else guards.beyond
    gain = (math.log(1.5 * operator.n_nodes) - _log_allowed(Y.shape[1], 1, ENOUGH)) / 2
    tau = needed_cut(look.top, lowest, residual)
    if highest is None and look.next_filter(cut, tau, gain, MOST_DEGREES).degree > LONG:
        look.highest = upper_edge(engine, operator, rng, EDGE_STEPS)
    filters: tuple[Filter, ...] = ()
    spent = 0
    for turn in range(MOST_ROUNDS):
        limit = MOST_DEGREES - spent if known or turn else FIRST_DEGREE
        wanted = look.next_filter(cut, tau, gain, limit)
        smooth, Y = look.filtered(wanted, Y)
        filters, spent = (*filters, smooth), spent + smooth.degree + 1
        if smooth.degree < wanted.degree and look.highest < operator.upper:
            look.highest, filters = operator.upper, ()  # the spectrum does not end there after all
            Y = look.random_columns(Y.shape[1], rng)
            continue
        rho, log_norm = look.measured(Y)
        cut, lowest = min(cut, rho), min(lowest, rho)
        evidence = (operator.upper, filters, Y.shape[1], 1, log_norm, rho)
        seen = Probed(lowest, spent * Y.shape[1], None, *evidence, *look.taken)
        tau = needed_cut(look.top, lowest, residual)
        gain = min(gain, seen.owed(tau, ENOUGH))
        if lowest <= look.top or seen.odds_below(tau) <= ENOUGH or spent >= MOST_DEGREES:
            break
    return seen


def _log_allowed(freedom: int, directions: int, odds: float) -> float:
    """Logarithm of the squared singular value whose odds these are."""
    return math.log(2 / directions * float(gammaincinv(freedom / 2, odds / directions)))


class _Look:
    """Random columns outside the span of the Ritz vectors, in walk form and single precision."""

    def __init__(
        self, engine: Engine, operator: Operator, ritz: Ritz, highest: float, guards: Guards | None
    ) -> None:
        self.engine, self.top, self.highest = engine, float(ritz.values[-1]), highest
        self.operator = operator.walk_form()
        found = ritz.Q if guards is None else np.hstack([ritz.Q, guards.vectors])
        self.Q = np.ascontiguousarray(operator.to_walk(found), dtype=np.float32)
        self.taken = (math.inf, 0.0)
        if guards is not None:
            self.taken = (float(guards.values[0]), float(np.linalg.norm(guards.residuals)))

    def random_columns(self, n_columns: int, rng: np.random.Generator) -> Array:
        """Gaussian in the metric."""
        X = rng.standard_normal((self.operator.n_nodes, n_columns), dtype=np.float32)
        if self.operator.metric is not None:
            X /= np.sqrt(self.operator.metric, dtype=np.float32)[:, None]
        return self.cleaned(X)

    def cleaned(self, X: Array) -> Array:
        """Without the found directions."""
        C = self.engine.gram(self.Q, X, self.operator.metric)
        return self.engine.combine(X, np.eye(X.shape[1]), self.Q, -C)

    def next_filter(self, cut: float, tau: float, gain: float, limit: int) -> Filter:
        """As high a degree as the gain at ``tau`` needs."""
        cut = max(cut, self.top + 1e-3 * (self.operator.upper - self.top))  # never damp the found subspace
        unit = Filter(1, cut, max(self.highest, (cut + self.operator.upper) / 2))
        degree = unit.degree_for(gain, tau)
        return replace(unit, degree=max(LEAST_DEGREE, math.ceil(min(degree, limit))))

    def filtered(self, smooth: Filter, X: Array) -> tuple[Filter, Array]:
        """The filter as far as it was run, and ``T_m(A) X``.

        Rounding errors in the found directions would outgrow all else: they are taken out of both vectors of
        the recurrence as often as needed, which in the complement goes on as if nothing had been. What leaks
        into inaccurate directions and back again is ``leak^2`` times that growth: no more than a percent.
        """
        half, centre = (smooth.upper - smooth.cut) / 2, (smooth.upper + smooth.cut) / 2
        quiet = min(QUIET, math.log(0.01) - 2 * math.log(max(self.taken[1] / half, 1e-9)))
        every = max(1, int(quiet / max(smooth.rate(self.operator.lower), 1e-9)))
        step = self.engine.recurrence
        previous, current = X, step(self.operator, X, X, (-1 / half, centre / half, 0.0))
        for degree in range(2, smooth.degree + 1):
            if degree % every == 0:
                previous, current = self.cleaned(previous), self.cleaned(current)
            if degree % min(every, LISTEN) == 0 and not np.abs(current).max() < LOUD:
                smooth = replace(smooth, degree=degree - 1)  # whatever it is that grows, it can be seen
                break
            twice = (-2 / half, 2 * centre / half, -1.0)
            previous, current = current, step(self.operator, current, previous, twice)
        return smooth, self.cleaned(current)

    def measured(self, Y: Array) -> tuple[float, float]:
        """The lowest Ritz value of the span of Y, and ``log |Y|^2``."""
        M = self.engine.gram(Y, Y, self.operator.metric)
        H = self.engine.gram(Y, self.engine.spmm(self.operator, Y), None)
        squares, basis = la.eigh(M)
        kept = squares > 1e-10 * squares[-1]
        basis = basis[:, kept] / np.sqrt(squares[kept])
        return float(la.eigvalsh(basis.T @ (H + H.T) @ basis / 2)[0]), math.log(squares[-1])
