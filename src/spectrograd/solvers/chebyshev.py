"""``chebyshev``: subspace iteration filtered by Chebyshev polynomials of the operator.

One step of the method (Zhou, Saad, Tiago and Chelikowsky 2006), for the pencil ``A u = lambda B u``:

1. **Choose a filter.** ``T_m(S)`` is the Chebyshev polynomial of degree m of S, which is ``B^-1 A`` mapped
   such that ``[cut, upper]`` becomes [-1, 1]. Eigenvectors above the cut stay bounded, those below grow like
   ``exp(m acosh|S|)``. The cut is the largest Ritz value of the guard vectors (:func:`ritz_cut`), the degree
   follows from the accuracy that is still missing (:func:`filter_degree`).
2. **Filter.** ``X <- T_m(S) X`` by the three-term recurrence: one pass over the edges per degree.
3. **Rayleigh-Ritz.** Values, vectors and residuals in the span of X.
4. **Stop** when the bound on the subspace angle (Davis and Kahan, from residuals and gap) is met.

:class:`FilteringSolver` has the hyperparameters and step 1, :class:`~spectrograd.solvers.ritz.RitzSolver`
has steps 3 and 4, and :class:`Chebyshev` puts them together for graphs in memory.
:mod:`spectrograd.solvers.chebyshev_few_passes` is its variant for graphs on disk and on clusters.

``k`` is the number of eigenvectors asked for, ``width = k + guard`` the number of columns of the solver; the
columns beyond k are *guard vectors*, which speed up convergence and show the gap after the k-th eigenvalue.
All blocks (N x width) are in random-walk form (``problem.random_walk``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import numpy as np

from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.linalg.chebyshev_filter import (
    MIN_DAMPED_SHARE,
    Filter,
)
from spectrograd.linalg.subspace import upper_edge
from spectrograd.solvers.base import Problem
from spectrograd.solvers.ritz import (
    RitzSolver,
    RitzState,
    filter_block,
    guarded_start,
    guarded_width,
    ritz_pairs,
)

Precision = Literal["auto", "single", "double"]
# Residual over the width of the spectrum. Float32 leaves a few 1e-7 of it; below this, go on in float64.
SINGLE_FLOOR = 5e-6
SAMPLE_COLUMNS = 4  # of a random block: enough for the mean and the deviation of the spectrum
MIN_EDGE_COLUMNS = 16  # from which it pays to estimate the upper end of the spectrum
EDGE_STEPS = 10  # of Lanczos, for that estimate
FILTER_GAIN = 1e3  # by which a filter damps what lies above the cut against the k-th eigenvector
MIN_FILTER_GAIN = 10.0  # however little the angle lacks
SINGLE_SPREAD = 1e4  # by which the first vector may outgrow the k-th in a filter: float32 has seven digits


@dataclass(eq=False)
class ChebyshevState(RitzState):
    """Ritz pairs of the block, and what the filters know.

    Filters end at ``highest``, the upper end of the spectrum as far as it is known. ``looks_localized``: the
    first filter ended before its degree, since its columns were seen to live on few nodes.
    """

    highest: float = 2.0
    looks_localized: bool = False


ChebyshevT = TypeVar("ChebyshevT", bound=ChebyshevState)


@dataclass(frozen=True)
class FilteringSolver(RitzSolver[ChebyshevT]):
    """The hyperparameters of ``chebyshev`` and its choice of a filter, for both classes."""

    degree: int = 40
    guard: int | None = None
    precision: Precision = "auto"
    angle: float = 0.0
    max_iter: int = 100

    name: ClassVar[str] = "chebyshev"
    min_degree: ClassVar[int]  # of a filter: a lower one is not worth its Rayleigh-Ritz

    @abstractmethod
    def cut(self, state: ChebyshevT, ends: tuple[float, float], is_first: bool) -> float:
        """The eigenvalue above which the next filter damps; ``ends`` are those of the spectrum."""

    def next_filter(self, problem: Problem, state: ChebyshevT, ends: tuple[float, float]) -> Filter:
        """Choose the filter of a step between the ends of the spectrum: cut, degree, upper end."""
        k = problem.n_components
        is_first = state.iteration == 0 and problem.start is None
        cut = self.cut(state, ends, is_first)
        # Degrees that are taken while the angle is unknown: a thousandfold damping.
        gain = FILTER_GAIN
        if self.angle > 0 and not is_first:
            # A filter divides the angle by its gain: what is missing, with a factor of three to spare.
            missing = 3 * state.angle_bound(k) / self.angle
            gain = float(np.clip(missing, MIN_FILTER_GAIN, FILTER_GAIN))
        degree = filter_degree(state, k, cut, ends, self.degree, gain)
        return Filter(max(degree, min(self.min_degree, self.degree)), cut, ends[1])

    def needs_double(self, problem: Problem, state: ChebyshevT) -> bool:
        """Whether float32 limits the residual from now on."""
        operator = problem.random_walk.operator
        floor = SINGLE_FLOOR * (operator.upper - operator.lower)
        is_single = state.block.dtype == np.float32
        residual = state.residuals[: problem.n_components].max()
        return self.precision == "auto" and is_single and residual < floor

    def spectrum_ends(self, problem: Problem, state: ChebyshevT) -> tuple[float, float]:
        """Ends of the spectrum for a filter; mutates ``highest`` where a Ritz value lies beyond it."""
        operator = problem.random_walk.operator
        state.highest = operator.upper if state.values[-1] > state.highest else state.highest  # was too low
        return operator.lower, state.highest


def ritz_cut(state: RitzState, ends: tuple[float, float], is_first: bool) -> float:
    """The largest Ritz value; of random vectors, where the bulk of the spectrum seems to begin.

    The Rayleigh quotient of a random vector is the mean of the spectrum and its residual the standard
    deviation s; a semicircle begins 2 s below its mean.
    """
    lower, upper = ends
    width = upper - lower
    if is_first:
        low_end = float((state.values - 2 * state.residuals).mean())
        # never below a tenth of the width: where eigenvalues crowd at zero, the deviation is too large
        cut = max(lower + 0.1 * width, low_end)
    else:
        cut = max(float(state.values[-1]), float(state.values[0]) + 1e-9 * width)
    return min(cut, upper - MIN_DAMPED_SHARE * width)


def filter_degree(
    state: RitzState, k: int, cut: float, ends: tuple[float, float], max_degree: int, gain: float
) -> int:
    """Degree that damps what lies above the cut by ``gain`` against the k-th eigenvalue.

    Parameters
    ----------
    state, k
        Ritz values and residuals, each of shape (width,), and the number of eigenvectors asked for. An
        eigenvalue is guessed one residual below its Ritz value (or below the cut, if that is lower), so that
        filters are short while little is known.
    cut, ends
        Where the filter begins to damp, and the ends (lower, upper) of the spectrum.
    max_degree
        Upper limit; lower where the first vector would outgrow the k-th beyond the digits of float32.
    """
    lower, upper = ends
    # S maps [cut, upper] to [-1, 1]: S(t) = (upper - half - t) / half, above 1 below the cut
    half = (upper - cut) / 2
    # 1. Rates of growth of the first and of the k-th eigenvector.
    # T_m grows like exp(m r) at a value below the cut, with the rate r = acosh|S(value)|.
    rates = []
    for i in (0, k - 1):
        guess = max(lower, min(cut, float(state.values[i])) - float(state.residuals[i]))
        rates.append(math.acosh(max(1.0, (upper - half - guess) / half)))
    # 2. T_m(rate) = cosh(m rate) is about exp(m rate) / 2: the gain asks for m = log(2 gain) / rate.
    rate_spread = rates[0] - rates[1]
    sufficient = math.log(2 * gain) / max(rates[1], 1e-9)
    # 3. No degree at which the first vector fills the digits of the others.
    allowed = math.log(SINGLE_SPREAD) / rate_spread if rate_spread > 0 else sufficient
    return int(np.clip(math.ceil(min(sufficient, allowed)), 1, max_degree))


@dataclass(frozen=True)
class Chebyshev(FilteringSolver[ChebyshevState]):
    """Filtered subspace iteration (Zhou, Saad, Tiago and Chelikowsky 2006).

    Definition: ``U <- Ritz(T_m(S) U)``, see the module's text; the cut follows the spectrum by itself.
    Meaning: m steps of a random walk that forgets everything but the clusters.

    Cost: m passes with K + guard columns and one Rayleigh-Ritz per step. Few passes (15 to 30) where
    there is a gap after a few eigenvalues, as in block models, social graphs and merged layers; many on
    geometric graphs (the passes grow like ``sqrt(upper / gap)``): use ``multilevel`` or
    ``shift-invert`` there. Being a block method it does not skip repeated eigenvalues.

    Parameters
    ----------
    degree
        Highest degree of one filter; the degree in use aims at a thousandfold damping.
    guard
        Extra columns; None fills up to a multiple of 4, with at least three.
    precision
        ``"auto"`` iterates in float32 and changes to float64 where that limits the residual.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    """

    min_degree = 4
    localization_check_at = 2

    def init(self, problem: Problem, rng: np.random.Generator) -> ChebyshevState:
        """A random block, or the warm start with random guard vectors."""
        dtype = np.float64 if self.precision == "double" else np.float32
        width = guarded_width(problem, self.guard)
        state = ChebyshevState(np.empty((0, 0)), rng, block=guarded_start(problem, width, rng, dtype))
        # The upper end of the spectrum: a bound, or an estimate where that saves many columns.
        # A lower end than the bound makes [cut, upper] shorter, so that a degree damps more.
        state.highest = problem.operator.upper
        if width > MIN_EDGE_COLUMNS:
            state.highest = upper_edge(problem.engine, problem.standard.operator, rng, EDGE_STEPS)
            state.matvecs += EDGE_STEPS
        if problem.start is not None:
            return self.take_ritz_pairs(problem, problem.random_walk.operator, state)
        return self._sample_spectrum(problem, state)

    def _sample_spectrum(self, problem: Problem, state: ChebyshevState) -> ChebyshevState:
        """Mutates: values and residuals of the random block, by the Ritz pairs of a few of its columns."""
        engine = problem.engine
        width = state.block.shape[1]
        sample = engine.columns(state.block, slice(SAMPLE_COLUMNS))
        # residuals of random vectors: about the standard deviation of the spectrum
        ritz, deviations, _ = ritz_pairs(engine, problem.random_walk.operator, sample, state.rng)
        state.values = np.full(width, ritz.values.mean())
        state.residuals = np.full(width, deviations.mean())
        state.U = problem.random_walk.inverse_transform(
            engine.columns(state.block, slice(problem.n_components))
        )
        return state

    def cut(self, state: ChebyshevState, ends: tuple[float, float], is_first: bool) -> float:
        """The largest Ritz value."""
        return ritz_cut(state, ends, is_first)

    def step(self, problem: Problem, state: ChebyshevState) -> ChebyshevState:
        """One filter and one Rayleigh-Ritz."""
        operator = problem.random_walk.operator
        block = state.block
        # A random block shows localised eigenvectors as it is filtered; later ones look at the Ritz vectors.
        is_random = state.iteration == 0 and problem.start is None
        if self.needs_double(problem, state):
            block = problem.engine.astype(block, np.float64)
        # 1. choose the filter: cut and degree from the last Ritz pairs
        ends = self.spectrum_ends(problem, state)
        polynomial = self.next_filter(problem, state, ends)
        # 2. filter: X <- T_m(S) X, one pass per degree (Algorithm 3.1 of Zhou et al. 2006)
        state.block, degree, state.looks_localized = filter_block(
            problem.engine, operator, polynomial, block, is_random
        )
        # 3. Rayleigh-Ritz: one pass
        state = self.take_ritz_pairs(problem, operator, state)
        # 4. stop? The loop asks ``terminate``, which compares the angle bound.
        # Products: of the filter and of Rayleigh-Ritz.
        return self.account(problem, state, (degree + 1) * block.shape[1])

    def shows_localization(self, state: ChebyshevState) -> bool:
        """Whether to look at the vectors; also after a first filter that ended early, being localised."""
        return state.looks_localized or super().shows_localization(state)

    def terminate(self, problem: Problem, state: ChebyshevState) -> bool:
        """Whether the angle is met."""
        return self.angle_is_met(problem, state)

    def evidence(self, problem: Problem, state: ChebyshevState) -> Evidence:
        """The first value beyond the result, and the guard vectors."""
        return self.guard_evidence(problem, state)
