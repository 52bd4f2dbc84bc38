"""Did the solver skip an eigenvector? A random vector looks for one, with odds that can be stated.

Let x be a Gaussian vector in the complement of the found subspace, and ``q_0 .. q_j`` the orthonormal vectors
that Lanczos' recurrence makes of it there,

    A q_i = beta_i q_i-1 + alpha_i q_i + beta_i+1 q_i+1,    q_0 = x / |x|.

If some unit vector v outside the subspace were an eigenvector with eigenvalue t, then its coordinates
``v'q_i`` would follow the same recurrence: ``v'q_i = p_i(t) v'q_0`` with polynomials p_i that start from
``p_0 = 1``. Their squares sum to one at most, so

    (v'x)^2 <= |x|^2 / (p_0(t)^2 + .. + p_j(t)^2),

and ``v'x`` is Gaussian: the chance that it is so small is the chance of a miss. The zeros of the p_i are Ritz
values, none below the lowest one of all, so below that the sum grows as t falls: what holds at ``tau`` holds
for all eigenvalues below. No polynomial of the operator does better, and nothing has to be known of the
spectrum.

Fewer steps will do if further Ritz vectors G, beyond the K that were asked for, are taken out as well: the
recurrence then meets a wider gap. They need not be accurate. With residuals of norm r and
values above ``theta``, ``|G'v| <= r / (theta - tau)`` for every unit vector v in the span E of the
eigenvectors below tau (a Sylvester equation). If E had K + 1 dimensions, some v in it would be orthogonal to
the found subspace, and without its part along G a vector of Rayleigh quotient at most

    tau + r^2 / ((theta - tau) (1 - r^2 / (theta - tau)^2)),

so the operator restricted to the complement of both would have an eigenvalue below that, a little above tau.

All of this is measured in the precision of the found vectors, float64 wherever there is room for it. A solver
in float32 may give a guard vector a value and a residual that are off by as many units of its last digit as a
row is long, and a component that hangs by light edges then looks like one far away: so G is made orthogonal
to what was found, and its values and residuals come from a product of its own. ``noise``, by how much
rounding may move an eigenvalue (it knows the longest row), is added to r and tau and taken from theta.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.linalg as la
from scipy.special import gammainc, gammaincinv

from spectrograd.certificate.certificate import ENOUGH, ComplementBound, needed_cut, probe_seed
from spectrograd.engines import Engine
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.kernels import LANES
from spectrograd.linalg.subspace import Coordinates, Ritz, orthonormalize, rayleigh_ritz, residuals
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

FIRST_CHECK, MOST_STEPS = 4, 500
SMALL_LEAK = 0.3
MOST_GUARDS = 8  # measured by one product of their own, which for so many columns is as quick as for one
ENORMOUS = 1e150


@dataclass(frozen=True)
class Recurrence:
    """The coefficients of Lanczos' recurrence: ``alphas`` 0 .. j - 1 and ``betas`` 1 .. j."""

    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()

    def followed(self, alpha: float, beta: float) -> Recurrence:
        """One step longer."""
        return Recurrence((*self.alphas, alpha), (*self.betas, beta))

    @cached_property
    def lowest(self) -> float:
        """The lowest Ritz value."""
        d, e = np.array(self.alphas), np.array(self.betas[:-1])
        return float(la.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(0, 0))[0])

    def log_sum(self, value: float) -> tuple[float, float]:
        """``log(p_0^2 + .. + p_j^2)`` at a value, and by how much the last step let ``log |p|`` grow."""
        before, p, beta, total, rate = 0.0, 1.0, 0.0, 1.0, 0.0
        for alpha, following in zip(self.alphas, self.betas, strict=True):
            before, p = p, ((value - alpha) * p - beta * before) / following
            beta, total = following, total + p * p
            rate = math.log(abs(p / before)) if p * before != 0 else 0.0
            if abs(p) > ENORMOUS:  # what is left out would make it larger still
                break
        return math.log(total), rate


@dataclass(frozen=True, eq=False)
class LanczosProbeEvidence(ComplementBound):
    """The recurrence of a random vector whose squared length was ``square``.

    ``theta`` and ``leak`` are the lowest value and the residual, rounding included, of the guard vectors that
    were taken out, and ``noise`` is by how much rounding may have moved an eigenvalue. The odds are those
    of the recurrence times ``looks``: as many probes share the level at which one of them is believed.
    """

    recurrence: Recurrence = field(default_factory=Recurrence)
    square: float = 1.0
    theta: float = math.inf
    leak: float = 0.0
    noise: float = 0.0
    looks: float = 1.0

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if tau >= self.lowest:
            return 1.0
        shifted = self.shifted(tau)
        if not shifted < self.recurrence.lowest:
            return 1.0
        log_square = math.log(self.square) - self.recurrence.log_sum(shifted)[0]
        return min(1.0, self.looks * float(gammainc(0.5, math.exp(log_square) / 2)))

    def shifted(self, tau: float) -> float:
        """Below this the complement of the guard vectors has an eigenvalue if one below tau was missed."""
        if self.leak == 0:
            return tau + self.noise
        distance = self.theta - self.noise - tau
        square = (self.leak / distance) ** 2 if distance > 0 else 1.0
        return tau + self.noise + square * distance / (1 - square) if square < 1 else math.inf

    def steps_owed(self, tau: float, odds: float) -> int:
        """About how many more steps the odds will take."""
        shifted = self.shifted(tau)
        if shifted >= self.recurrence.lowest:
            return 0
        total, rate = self.recurrence.log_sum(shifted)
        missing = math.log(self.square / (2 * float(gammaincinv(0.5, odds / self.looks)))) - total
        return math.ceil(missing / (2 * rate)) if rate > 0 else 0


@dataclass(frozen=True, eq=False)
class Guards:
    """Ritz vectors after those that were asked for, from the same subspace."""

    vectors: MultiVector
    values: Array
    residuals: Array


@dataclass(frozen=True, eq=False)
class MeasuredRitz:
    """The K Ritz pairs of a result, orthonormal in its metric, and their residuals without ``rounding``.

    That is by how much the rounding of their product may have moved an eigenvalue.
    """

    ritz: Ritz
    residuals: Array
    rounding: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a solver knows of the spectrum beyond its result.

    ``beyond`` is its estimate of the first eigenvalue that it does not return, ``complete`` says that nothing
    below that can have been missed (a dense factorisation), ``countable`` that a factorisation, which counts
    eigenvalues, is cheap; ``guards`` are further Ritz vectors, and ``complement_bound`` is what it found out
    itself. ``last`` are its Ritz pairs with their residuals, where its last product may serve the
    certificate.
    """

    beyond: float | None = None
    complete: bool = False
    countable: bool = False
    guards: Guards | None = None
    complement_bound: ComplementBound | None = None
    last: MeasuredRitz | None = None

    def in_units(self, unit: float) -> Evidence:
        """Of eigenvalues so many times as large, without what belongs to vectors of other numbers."""
        beyond = None if self.beyond is None else unit * self.beyond
        return Evidence(beyond, self.complete, self.countable)


def _accurate(engine: Engine, guards: Guards | None, top: float, residual: float) -> Guards | None:
    """As many as move the eigenvalue that is looked for by a tenth of its distance at most."""
    if guards is None or not len(guards.values):
        return None
    lowest = float(guards.values[0])
    leaks = np.sqrt(np.cumsum(guards.residuals**2))
    n = int((leaks[:MOST_GUARDS] <= SMALL_LEAK * (lowest - needed_cut(top, lowest, residual))).sum())
    if n == 0:
        return None
    return Guards(engine.columns(guards.vectors, slice(n)), guards.values[:n], guards.residuals[:n])


def _measured(engine: Engine, standard: Coordinates, found: MultiVector, guards: Guards) -> Guards:
    """The guards in standard coordinates: orthogonal to what was found, and measured."""
    G = standard.transform(engine.astype(guards.vectors, found.dtype))
    same = np.eye(G.shape[1])
    for _ in range(2):  # the second time takes out what rounding left
        G = engine.combine(G, same, found, -engine.gram(found, G))
    ritz = rayleigh_ritz(engine, standard.operator, orthonormalize(engine, G, None).Q)
    return Guards(ritz.Q, ritz.values, residuals(engine, standard.operator, ritz))


def run_lanczos_probe(
    engine: Engine,
    operator: Operator,
    ritz: Ritz,
    rng: np.random.Generator,
    *,
    beyond: float | None = None,
    guards: Guards | None = None,
    residual: float = 0.0,
    deadline: float = math.inf,
    rounding: float | None = None,
    looks: float = 1.0,
) -> ComplementBound:
    """Follow a random vector in the complement of the Ritz vectors until the odds are good enough.

    ``beyond`` is the solver's guess of the next eigenvalue, ``guards`` are further Ritz vectors, of which
    those that are accurate enough are taken out too, and ``residual`` that of the Ritz vectors. All products
    are in the precision of these, by whose ``rounding`` (None: as of a plain product) an eigenvalue may move.
    ``looks`` probes share the level. After ``deadline``, a moment of ``time.perf_counter``, no further step
    is taken, and the odds are those of the steps so far.
    """
    top = float(ritz.values[-1])
    noise = operator.rounding(ritz.Q.dtype) if rounding is None else rounding
    standard = Coordinates.standard(engine, operator)
    found, offered = standard.transform(ritz.Q), _accurate(engine, guards, top, residual)
    measured = None if offered is None else _measured(engine, standard, found, offered)
    accurate = _accurate(engine, measured, top, residual)
    seed = probe_seed(new_seed(rng), operator, ritz.values)
    walk = _Walk(engine, standard.operator, found, accurate, seed, noise, looks)
    walk.n_columns = 0 if offered is None else 1  # of eight columns at most: as quick as of one
    guess = math.inf if beyond is None or beyond <= top else beyond
    if measured is not None:  # what the solver said of them is not needed any more
        guess = float(measured.values[0])
    most = min(MOST_STEPS, operator.n_nodes - walk.at)
    pause = FIRST_CHECK
    while True:
        for _ in range(min(pause, most - walk.n_steps)):
            walk.step()
            if time.perf_counter() >= deadline:
                return walk.seen(guess)
        seen = walk.seen(guess)
        tau = needed_cut(top, seen.lowest, residual)
        if seen.lowest <= top or walk.n_steps >= most or walk.ended or seen.odds_below(tau) <= ENOUGH:
            return seen
        pause = max(1 + walk.n_steps // 10, min(seen.steps_owed(tau, ENOUGH), walk.n_steps))


class _Walk:
    """Lanczos' recurrence from a random vector outside the span of the Ritz vectors and guards.

    ``vectors`` holds those, and the last two vectors of the recurrence with room for the next, which is made
    orthogonal to them all: the operator is restricted to the complement, however rough the vectors are.
    """

    def __init__(
        self,
        engine: Engine,
        operator: Operator,
        found: MultiVector,
        guards: Guards | None,
        seed: int,
        noise: float,
        looks: float,
    ) -> None:
        self.engine, self.operator, n = engine, operator, operator.n_nodes
        taken_out = [found] if guards is None else [found, guards.vectors]
        self.at = sum(X.shape[1] for X in taken_out)
        self.vectors = engine.basis(n, self.at + 3, found.dtype)
        for X in taken_out:
            self.vectors.append(X)
        self.theta, self.leak = math.inf, 0.0
        if guards is not None:
            self.theta, self.leak = float(guards.values[0]), float(np.linalg.norm(guards.residuals))
            self.leak += math.sqrt(len(guards.values)) * noise
        self.vectors.append(engine.random(n, 1, seed, found.dtype))
        self.square = float(self.vectors.orthogonalize(0, self.at)[1][0, 0])
        self.vectors.rotate(self.at, self.at + 1, np.array([[1 / math.sqrt(self.square)]]))
        self.noise, self.looks = noise, looks
        self.recurrence, self.ended = Recurrence(), False
        self.n_columns = 0  # of products before the first step

    @property
    def n_steps(self) -> int:
        return len(self.recurrence.alphas)

    def step(self) -> None:
        """Mutates: one product."""
        if self.ended:
            return
        last = self.at + min(self.n_steps, 1)
        self.vectors.append(self.engine.apply(self.operator, self.vectors.columns(last, last + 1)))
        coefficients, inner = self.vectors.orthogonalize(self.at, last + 1)
        alpha, beta = float(coefficients[-1, 0]), math.sqrt(float(inner[0, 0]))
        self.ended = not beta > self.noise  # an invariant subspace: all that x holds is known
        beta = max(beta, self.noise)
        kept = np.diag([1.0, 1 / beta])  # the last vector and the new one; the one before goes
        self.vectors.rotate(self.at, last + 2, np.vstack([np.zeros((last - self.at, 2)), kept]))
        self.recurrence = self.recurrence.followed(alpha, beta)

    def seen(self, guess: float) -> LanczosProbeEvidence:
        """The evidence so far."""
        lowest = min(guess, self.recurrence.lowest)
        out = (self.theta, self.leak, self.noise, self.looks)
        return LanczosProbeEvidence(
            lowest, self.n_columns + self.n_steps, None, self.recurrence, self.square, *out
        )


# --- The same probe with the inverse of the operator, where a factorisation is at hand: fewer steps.

Times = Callable[[Array], Array]
MOST_SOLVES = 12  # what the numbers of another factorisation, which counts, cost
ROUNDING = 1e-12  # of the largest eigenvalue of T


@dataclass(frozen=True, eq=False)
class Inverted(ComplementBound):
    """Recurrences of random vectors under -T, whose squared lengths were ``squares``."""

    recurrences: tuple[Recurrence, ...] = ()
    squares: tuple[float, ...] = ()
    pole: float = 0.0
    noise: float = 0.0

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if tau >= self.lowest:
            return 1.0
        value, largest = self.noise - 1 / (tau - self.pole), 0.0
        for recurrence, square in zip(self.recurrences, self.squares, strict=True):
            if not value < recurrence.lowest:
                return 1.0
            largest += square * math.exp(-recurrence.log_sum(value)[0])
        return float(gammainc(len(self.squares) / 2, largest / 2))


def run_inverse_probe(
    engine: Engine,
    times: Times,
    metric: Array,
    ritz: Ritz,
    pole: float,
    rng: np.random.Generator,
    *,
    beyond: float,
    residual: float,
    n_vectors: int = LANES,
    most_solves: int = MOST_SOLVES,
) -> Inverted:
    """Follow random vectors under ``times``, which is T, until the odds are good enough.

    ``ritz`` is what was found, ``residual`` its error, ``beyond`` the solver's guess of the next eigenvalue.
    """
    start = rng.standard_normal((len(metric), n_vectors), dtype=np.float32)
    top, walk = float(ritz.values[-1]), _InverseWalk(engine, times, metric, ritz, pole, start)
    while True:
        walk.step()
        seen = walk.seen(beyond)
        tau = needed_cut(top, seen.lowest, residual)
        enough = seen.lowest <= top or seen.odds_below(tau) <= ENOUGH
        if enough or walk.n_steps == most_solves:
            return seen


class _InverseWalk:
    """Some recurrences side by side, in walk form; all are kept orthogonal to what was found.

    ``basis`` holds that, and the last two vectors of each recurrence, the latest in columns ``at``.
    """

    def __init__(
        self, engine: Engine, times: Times, metric: Array, ritz: Ritz, pole: float, start: Array
    ) -> None:
        self.engine, self.times, self.metric, self.pole = engine, times, metric, pole
        self.noise = ROUNDING / (float(ritz.values[0]) - pole)
        (n, k), n_vectors = ritz.Q.shape, start.shape[1]
        self.basis = np.zeros((n, k + 2 * n_vectors))
        self.basis[:, :k] = ritz.Q
        self.at, self.width = slice(k, k + n_vectors), n_vectors
        self.recurrences = (Recurrence(),) * n_vectors
        x = start / np.sqrt(metric)[:, None]
        x -= engine.combine(ritz.Q, engine.gram(ritz.Q, x, metric))
        self.squares = np.diag(engine.gram(x, x, metric))
        self.basis[:, self.at] = self.current = x / np.sqrt(self.squares)
        self.betas = np.zeros(n_vectors)

    @property
    def n_steps(self) -> int:
        return len(self.recurrences[0].alphas)

    def step(self) -> None:
        """Mutates: one solve."""
        product = self.times(self.current)
        parts = self.engine.gram(self.basis, product, self.metric)
        alphas, k = np.diag(parts[self.at]).copy(), parts.shape[0] - 2 * self.width
        parts[k:] = 0
        before = slice(k, k + self.width) if self.at.start > k else slice(k + self.width, None)
        parts[self.at], parts[before] = np.diag(alphas), -np.diag(self.betas)
        new = self.engine.combine(self.basis, parts)
        new -= product
        self.betas = np.maximum(np.sqrt(np.diag(self.engine.gram(new, new, self.metric))), self.noise)
        new /= self.betas
        self.basis[:, before] = self.current = new
        self.at = before
        grown = zip(self.recurrences, -alphas, self.betas, strict=True)
        self.recurrences = tuple(r.followed(float(a), float(b)) for r, a, b in grown)

    def seen(self, guess: float) -> Inverted:
        """The evidence so far."""
        lowest = min(r.lowest for r in self.recurrences)
        lowest = min(guess, self.pole - 1 / lowest) if lowest < 0 else guess
        squares = tuple(float(square) for square in self.squares)
        return Inverted(
            lowest, self.width * self.n_steps, None, self.recurrences, squares, self.pole, self.noise
        )
