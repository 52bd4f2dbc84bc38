"""The Lanczos probe: a random vector in the complement bounds the odds of a skipped eigenvector.

Let x be a Gaussian vector in the complement of the solver's subspace, and ``q_0 .. q_j`` the orthonormal
vectors that Lanczos' recurrence makes of it there,

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
the solver's subspace, and without its part along G a vector of Rayleigh quotient at most

    tau + r^2 / ((theta - tau) (1 - r^2 / (theta - tau)^2)),

so the operator restricted to the complement of both would have an eigenvalue below that, a little above tau.

All of this is measured in the precision of the Ritz vectors, float64 wherever memory allows it. A solver
in float32 may give a guard vector a value and a residual that are off by as many units of its last digit as a
row is long, and a component that hangs by light edges then looks like one far away: so G is made orthogonal
to the Ritz vectors, and its values and residuals come from a product of its own. ``noise``, by how much
rounding may move an eigenvalue (it knows the longest row), is added to r and tau and taken from theta.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.linalg as la
from scipy.special import gammainc, gammaincinv

from spectrograd.certificate.certificate import TARGET_ODDS, ComplementBound, needed_cut, probe_seed
from spectrograd.certificate.mixed_columns import MixedColumns
from spectrograd.engines import Engine
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.engines.krylov_basis import RowBasis
from spectrograd.kernels import LANES
from spectrograd.linalg.subspace import Coordinates, Ritz, orthonormalize, rayleigh_ritz, residuals
from spectrograd.operators.base import Operator
from spectrograd.typing import Array

FIRST_CHECK_STEPS = 4
MAX_STEPS = 500
MAX_GUARD_LEAK = 0.3
MAX_MEASURED_GUARDS = (
    8  # measured by one product of their own, which for so many columns is as quick as for one
)
LARGE_POLYNOMIAL = 1e150


@dataclass(frozen=True)
class Recurrence:
    """The coefficients of Lanczos' recurrence: ``alphas`` 0 .. j - 1 and ``betas`` 1 .. j."""

    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()

    def extend(self, alpha: float, beta: float) -> Recurrence:
        """The recurrence with one more step."""
        return Recurrence((*self.alphas, alpha), (*self.betas, beta))

    @cached_property
    def lowest(self) -> float:
        """The lowest Ritz value."""
        if len(self.alphas) == 1:  # LAPACK's wrapper wants an entry beside the diagonal
            return self.alphas[0]
        d = np.array(self.alphas)
        e = np.array(self.betas[:-1])
        return float(la.lapack.dsterf(d, e)[0][0])

    def log_sum(self, value: float) -> tuple[float, float]:
        """``log(p_0^2 + .. + p_j^2)`` at a value, and by how much the last step let ``log |p|`` grow."""
        before = 0.0
        p = 1.0
        beta = 0.0
        total = 1.0
        rate = 0.0
        # beta_i+1 p_i+1 = (t - alpha_i) p_i - beta_i p_i-1
        for alpha, following in zip(self.alphas, self.betas, strict=True):
            new = ((value - alpha) * p - beta * before) / following
            before = p
            p = new
            beta = following
            total += p * p
            rate = math.log(abs(p / before)) if p * before != 0 else 0.0
            if abs(p) > LARGE_POLYNOMIAL:  # what is left out would make it larger still
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
        shifted = self.shift_by_guards(tau)
        if not shifted < self.recurrence.lowest:
            return 1.0
        # |v'x|^2 <= |x|^2 / sum p_i^2; v'x is Gaussian, its square a chi-square of one degree
        log_square = math.log(self.square) - self.recurrence.log_sum(shifted)[0]
        return min(1.0, self.looks * float(gammainc(0.5, math.exp(log_square) / 2)))

    def shift_by_guards(self, tau: float) -> float:
        """Below this the complement of the guard vectors has an eigenvalue if one below tau was missed."""
        if self.leak == 0:
            return tau + self.noise
        distance = self.theta - self.noise - tau
        # tau + r^2 / ((theta - tau) (1 - r^2 / (theta - tau)^2)), see the module's text
        square = (self.leak / distance) ** 2 if distance > 0 else 1.0
        return tau + self.noise + square * distance / (1 - square) if square < 1 else math.inf

    def remaining_steps(self, tau: float, odds: float) -> int:
        """Estimate how many more steps the odds need."""
        shifted = self.shift_by_guards(tau)
        if shifted >= self.recurrence.lowest:
            return 0
        total, rate = self.recurrence.log_sum(shifted)
        # log(p_0^2 + .. + p_j^2) grows by 2 rate per step
        missing = math.log(self.square / (2 * float(gammaincinv(0.5, odds / self.looks)))) - total
        return math.ceil(missing / (2 * rate)) if rate > 0 else 0


@dataclass(frozen=True, eq=False)
class Guards:
    """Ritz pairs after the K-th, from the same subspace: vectors N x g, values (g,), residuals (g,).

    ``is_measured`` says that values and residuals are of a product in the precision of the certificate, and
    the vectors orthonormal to the K others.
    """

    vectors: MultiVector
    values: Array
    residuals: Array
    is_measured: bool = False


@dataclass(frozen=True, eq=False)
class MeasuredRitz:
    """K Ritz pairs, orthonormal in the metric, and their residuals (K,) without ``rounding``.

    ``rounding`` bounds how far the rounding of their product may have moved an eigenvalue.
    """

    ritz: Ritz
    residuals: Array
    rounding: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """A solver's evidence on the spectrum beyond its K Ritz pairs.

    ``beyond`` is its estimate of the first eigenvalue that it does not return, ``complete`` says that nothing
    below that can have been missed (a dense factorisation), ``countable`` that a factorisation, which counts
    eigenvalues, is cheap; ``guards`` are further Ritz pairs, and ``complement_bound`` is the solver's own
    bound on the rest of the spectrum. ``last`` are its Ritz pairs with their residuals, where its last
    product may serve the certificate. ``mixed`` says that the columns are no eigenvectors but mixtures of
    them, and what is known of these. ``pairs`` are its Ritz pairs where they are in float64 and orthonormal
    together with the guards: the certificate then needs a product and no Rayleigh-Ritz.
    """

    beyond: float | None = None
    complete: bool = False
    countable: bool = False
    guards: Guards | None = None
    complement_bound: ComplementBound | None = None
    last: MeasuredRitz | None = None
    mixed: MixedColumns | None = None
    pairs: Ritz | None = None

    def in_units(self, unit: float) -> Evidence:
        """The evidence for eigenvalues ``unit`` times as large, without vectors of the old scale."""
        beyond = None if self.beyond is None else unit * self.beyond
        mixed = None if self.mixed is None else self.mixed.in_units(unit)
        return Evidence(beyond, self.complete, self.countable, mixed=mixed)


def select_accurate(
    engine: Engine, guards: Guards | None, values: Array, residuals: Array | float
) -> Guards | None:
    """The first guards whose residuals move the eigenvalue at tau by a tenth of its distance at most."""
    if guards is None or not len(guards.values):
        return None
    lowest = float(guards.values[0])
    # |R|_F of the first 1, 2, .. guards
    leaks = np.sqrt(np.cumsum(guards.residuals**2))
    n = int(
        (
            leaks[:MAX_MEASURED_GUARDS] <= MAX_GUARD_LEAK * (lowest - needed_cut(values, lowest, residuals))
        ).sum()
    )
    if n == 0:
        return None
    vectors = engine.columns(guards.vectors, slice(n))
    return Guards(vectors, guards.values[:n], guards.residuals[:n], guards.is_measured)


def _measure_guards(engine: Engine, standard: Coordinates, Q: MultiVector, guards: Guards) -> Guards:
    """The guards in standard coordinates, orthogonal to Q (N x K), their residuals measured anew."""
    G = standard.transform(engine.astype(guards.vectors, Q.dtype))
    if guards.is_measured:
        return replace(guards, vectors=G)
    same = np.eye(G.shape[1])
    for _ in range(2):  # the second time takes out what rounding left
        G = engine.combine(G, same, Q, -engine.gram(Q, G))
    # one product of at most eight columns
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
    residuals: Array | float = 0.0,
    deadline: float = math.inf,
    rounding: float | None = None,
    looks: float = 1.0,
) -> ComplementBound:
    """Run Lanczos from a random vector in the complement of the Ritz vectors until the odds are good enough.

    Parameters
    ----------
    engine, operator
        The operator as it was made.
    ritz
        K Ritz pairs; all products are in the precision of their vectors (N x K).
    rng
        Draws the seed, into which degrees and Ritz values are mixed.
    beyond
        The solver's estimate of the next eigenvalue.
    guards
        Further Ritz pairs; those that are accurate enough are projected out too.
    residuals
        Those of the Ritz pairs, of shape (K,).
    deadline
        A moment of ``time.perf_counter`` after which no step is made; the odds are those of the steps so far.
    rounding
        By how much rounding may move an eigenvalue; None: as of a plain product.
    looks
        As many probes share the level of the odds.
    """
    top = float(ritz.values[-1])
    noise = operator.rounding(ritz.Q.dtype) if rounding is None else rounding
    standard = Coordinates.standard(engine, operator)
    # 1. Guards, measured by one product of their own.
    Q = standard.transform(ritz.Q)
    offered = select_accurate(engine, guards, ritz.values, residuals)
    measured = None if offered is None else _measure_guards(engine, standard, Q, offered)
    accurate = select_accurate(engine, measured, ritz.values, residuals)
    # 2. The random vector.
    seed = probe_seed(new_seed(rng), operator, ritz.values)
    probe = _LanczosProbe(engine, standard.operator, Q, accurate, seed, noise, looks)
    probe.n_columns = int(
        offered is not None and not offered.is_measured
    )  # of eight columns at most: as quick as of one
    guess = math.inf if beyond is None or beyond <= top else beyond
    if measured is not None:  # instead of the solver's estimate
        guess = float(measured.values[0])
    # 3. Lanczos steps, until the odds at the needed cut are good enough.
    max_steps = min(MAX_STEPS, operator.n_nodes - probe.at)
    pause = FIRST_CHECK_STEPS
    while True:
        for _ in range(min(pause, max_steps - probe.n_steps)):
            probe.step()
            if time.perf_counter() >= deadline:
                return probe.evidence(guess)
        evidence = probe.evidence(guess)
        tau = needed_cut(ritz.values, evidence.lowest, residuals)
        over = evidence.lowest <= top or probe.n_steps >= max_steps or probe.ended
        if over or evidence.odds_below(tau) <= TARGET_ODDS:
            return evidence
        # Look again when the odds may be met: after a tenth more steps at least, twice as many at most.
        pause = max(1 + probe.n_steps // 10, min(evidence.remaining_steps(tau, TARGET_ODDS), probe.n_steps))


class _LanczosProbe:
    """Lanczos' recurrence from a random vector outside the span of the Ritz vectors and guards.

    ``vectors`` holds those, and the last two vectors of the recurrence with space for the next, which is made
    orthogonal to them all: the operator is restricted to the complement, however rough the vectors are.
    """

    def __init__(
        self,
        engine: Engine,
        operator: Operator,
        Q: MultiVector,
        guards: Guards | None,
        seed: int,
        noise: float,
        looks: float,
    ) -> None:
        self.engine = engine
        self.operator = operator
        self.dtype = Q.dtype
        n = operator.n_nodes
        projected_out = [Q] if guards is None else [Q, guards.vectors]
        self.at = sum(X.shape[1] for X in projected_out)
        self.vectors = engine.basis(n, self.at + 3, Q.dtype)
        for X in projected_out:
            self.vectors.append(X)
        self.theta = math.inf
        self.leak = 0.0
        if guards is not None:
            self.theta = float(guards.values[0])
            self.leak = float(np.linalg.norm(guards.residuals))
            # rounding moves each guard's residual by ``noise`` at most
            self.leak += math.sqrt(len(guards.values)) * noise
        self.vectors.append(engine.random(n, 1, seed, Q.dtype))
        # |x|^2 of the part of the random vector in the complement: what
        # was drawn minus Ritz vectors and guards
        self.square = float(self.vectors.orthogonalize(0, self.at)[1][0, 0])
        self.vectors.rotate(self.at, self.at + 1, np.array([[1 / math.sqrt(self.square)]]))
        self.noise = noise
        self.looks = looks
        self.recurrence = Recurrence()
        self.ended = False
        self.n_columns = 0  # of products before the first step

    @property
    def n_steps(self) -> int:
        return len(self.recurrence.alphas)

    @cached_property
    def _column_product(self) -> LinearMap:
        return self.engine.column_product(self.operator, self.dtype)

    def step(self) -> None:
        """Mutates: one Lanczos step, which is one product."""
        if self.ended:
            return
        if isinstance(self.vectors, RowBasis) and self.vectors.takes_single:
            self._step_in_few_calls(self.vectors)
            return
        # 1. the product A q_i
        last = self.at + min(self.n_steps, 1)
        self.vectors.append(self.engine.apply(self.operator, self.vectors.columns(last, last + 1)))
        # 2. orthogonal to the Ritz vectors, the guards and the last two vectors; alpha_i, beta_i+1
        coefficients, inner = self.vectors.orthogonalize(self.at, last + 1)
        alpha = float(coefficients[-1, 0])
        beta = math.sqrt(float(inner[0, 0]))
        self.ended = not beta > self.noise  # an invariant subspace: x has no component outside
        beta = max(beta, self.noise)
        # 3. q_i+1 = rest / beta_i+1
        last_two = np.diag([1.0, 1 / beta])  # the last vector and the new one; the one before is dropped
        self.vectors.rotate(self.at, last + 2, np.vstack([np.zeros((last - self.at, 2)), last_two]))
        self.recurrence = self.recurrence.extend(alpha, beta)

    def _step_in_few_calls(self, vectors: RowBasis) -> None:
        """Mutates: the same step in fewer calls, on graphs that are not too large."""
        last = vectors.filled - 1
        product = self._column_product(vectors.stored[last])
        coefficients, beta = vectors.append_orthogonal(product, self.at)
        self.ended = not beta > self.noise
        if last > self.at:  # the vector before the last is needed no more
            vectors.drop(self.at)
        self.recurrence = self.recurrence.extend(float(coefficients[-1]), max(beta, self.noise))

    def evidence(self, guess: float) -> LanczosProbeEvidence:
        """The evidence so far."""
        return LanczosProbeEvidence(
            lowest=min(guess, self.recurrence.lowest),
            columns=self.n_columns + self.n_steps,
            recurrence=self.recurrence,
            square=self.square,
            theta=self.theta,
            leak=self.leak,
            noise=self.noise,
            looks=self.looks,
        )


# --- The inverse probe, where a factorisation exists: fewer steps.
#
# ``T = (A - pole B)^-1 B`` has the eigenvectors of the pencil, with values ``1 / (t - pole)``; those of the
# smallest t are its largest, and far from the others. If K + 1 eigenvectors had eigenvalues below tau, some
# combination v of them would be orthogonal to the Ritz vectors, and ``v'BTv >= 1 / (tau - pole)``. So -T,
# restricted to their complement, would have an eigenvalue of at most ``-1 / (tau - pole)``, and the
# recurrence of a random vector bounds the odds of that.
#
# A solve for eight columns takes hardly longer than for one. The squares of v's coordinates in eight random
# vectors, each bounded by its own recurrence, sum to a chi-square of eight degrees of freedom, which is small
# far more rarely than that of one: for odds of 5e-4 it has to be below 0.7, and not below 4e-7.

LinearMap = Callable[[Array], Array]
MAX_SOLVES = 12  # as expensive as the numbers of another factorisation, which would count eigenvalues
INVERSE_ROUNDING = 1e-12  # of the largest eigenvalue of T


@dataclass(frozen=True, eq=False)
class InverseProbeEvidence(ComplementBound):
    """Evidence of Lanczos recurrences under -T from random vectors of squared lengths ``squares``."""

    recurrences: tuple[Recurrence, ...] = ()
    squares: tuple[float, ...] = ()
    pole: float = 0.0
    noise: float = 0.0

    def odds_below(self, tau: float) -> float:
        """See the module's text."""
        if tau >= self.lowest:
            return 1.0
        # the eigenvalue of -T that belongs to tau
        value = self.noise - 1 / (tau - self.pole)
        largest = 0.0
        for recurrence, square in zip(self.recurrences, self.squares, strict=True):
            if not value < recurrence.lowest:
                return 1.0
            # bounds on the squared coordinates of v sum to a chi-square of as many degrees
            largest += square * math.exp(-recurrence.log_sum(value)[0])
        return float(gammainc(len(self.squares) / 2, largest / 2))


def run_inverse_probe(
    engine: Engine,
    times: LinearMap,
    metric: Array,
    ritz: Ritz,
    pole: float,
    rng: np.random.Generator,
    *,
    beyond: float,
    residuals: Array | float,
    n_vectors: int = LANES,
    most_solves: int = MAX_SOLVES,
) -> InverseProbeEvidence:
    """Run Lanczos under T from random vectors until the odds are good enough.

    Parameters
    ----------
    engine
        Of numpy arrays.
    times
        Multiplies an array (N x n_vectors) by T.
    metric : array of shape (N,)
        The diagonal of B.
    ritz
        K Ritz pairs in random-walk form, vectors N x K.
    pole
        The shift of the factorisation, below all Ritz values.
    rng
        Draws the random vectors.
    beyond
        The solver's estimate of the next eigenvalue.
    residuals
        Those of the Ritz pairs, of shape (K,).
    n_vectors, most_solves
        Recurrences side by side, and solves at most.
    """
    start = rng.standard_normal((len(metric), n_vectors), dtype=np.float32)
    top = float(ritz.values[-1])
    probe = _InverseProbe(engine, times, metric, ritz, pole, start)
    while True:
        probe.step()
        evidence = probe.evidence(beyond)
        tau = needed_cut(ritz.values, evidence.lowest, residuals)
        over = evidence.lowest <= top or evidence.odds_below(tau) <= TARGET_ODDS
        if over or probe.n_steps == most_solves:
            return evidence


class _InverseProbe:
    """Some recurrences side by side, in random-walk form, orthogonal to the Ritz vectors.

    ``basis`` holds these, and the last two vectors of each recurrence, the latest in columns ``at``.
    """

    def __init__(
        self, engine: Engine, times: LinearMap, metric: Array, ritz: Ritz, pole: float, start: Array
    ) -> None:
        self.engine = engine
        self.times = times
        self.metric = metric
        self.pole = pole
        self.noise = INVERSE_ROUNDING / (float(ritz.values[0]) - pole)
        n, k = ritz.Q.shape
        n_vectors = start.shape[1]
        self.basis = np.zeros((n, k + 2 * n_vectors))
        self.basis[:, :k] = ritz.Q
        self.at = slice(k, k + n_vectors)
        self.width = n_vectors
        self.recurrences = (Recurrence(),) * n_vectors
        # standard normal in the metric, then projected out of the span of the Ritz vectors
        x = start / np.sqrt(metric)[:, None]
        x -= engine.combine(ritz.Q, engine.gram(ritz.Q, x, metric))
        self.squares = np.diag(engine.gram(x, x, metric))
        self.basis[:, self.at] = self.current = x / np.sqrt(self.squares)
        self.betas = np.zeros(n_vectors)

    @property
    def n_steps(self) -> int:
        return len(self.recurrences[0].alphas)

    def step(self) -> None:
        """Mutates: one Lanczos step of each recurrence, which is one solve."""
        # 1. the solve: T q_i (N x n_vectors)
        product = self.times(self.current)
        parts = self.engine.gram(self.basis, product, self.metric)
        # 2. coefficients: alpha_i per recurrence; the others' vectors are
        # left alone, so each is a Lanczos of its own
        alphas = np.diag(parts[self.at]).copy()
        k = parts.shape[0] - 2 * self.width
        parts[k:] = 0
        before = slice(k, k + self.width) if self.at.start > k else slice(k + self.width, None)
        parts[self.at] = np.diag(alphas)
        parts[before] = -np.diag(self.betas)
        # 3. beta_i+1 q_i+1 = -(T q_i - alpha_i q_i - beta_i q_i-1),
        # orthogonal to the Ritz vectors; the sign is -T's
        new = self.engine.combine(self.basis, parts)
        new -= product
        self.betas = np.maximum(np.sqrt(np.diag(self.engine.gram(new, new, self.metric))), self.noise)
        new /= self.betas
        # 4. the new vectors take the place of the last but one
        self.basis[:, before] = self.current = new
        self.at = before
        grown = zip(self.recurrences, -alphas, self.betas, strict=True)
        self.recurrences = tuple(r.extend(float(a), float(b)) for r, a, b in grown)

    def evidence(self, guess: float) -> InverseProbeEvidence:
        """The evidence so far."""
        lowest = min(r.lowest for r in self.recurrences)
        lowest = min(guess, self.pole - 1 / lowest) if lowest < 0 else guess
        squares = tuple(float(square) for square in self.squares)
        return InverseProbeEvidence(
            lowest, self.width * self.n_steps, None, self.recurrences, squares, self.pole, self.noise
        )
