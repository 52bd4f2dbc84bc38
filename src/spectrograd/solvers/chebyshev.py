"""``chebyshev``: block subspace iteration, filtered by Chebyshev polynomials of the operator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from spectrograd.linalg.filters import NARROWEST, Filter
from spectrograd.linalg.krylov import upper_edge
from spectrograd.solvers.protocol import Problem, Solver
from spectrograd.solvers.ritz import RitzSolver, RitzState, guarded_start, guarded_width, ritz_pairs

Precision = Literal["auto", "single", "double"]
# Single precision leaves residuals of a few 1e-7 of the spectrum's width; below this, go on in double.
SINGLE_FLOOR = 5e-6
SAMPLE = 4
# Columns from which it pays to find out where the spectrum ends, by so many steps from a single vector.
WIDE, EDGE_STEPS = 16, 10


@dataclass(eq=False)
class ChebyshevState(RitzState):
    """Filters end at ``highest``."""

    highest: float = 2.0


ChebyshevT = TypeVar("ChebyshevT", bound=ChebyshevState)


@dataclass(frozen=True)
class FilteringSolver(RitzSolver[ChebyshevT]):
    """What the forms of ``chebyshev`` share: its parameters, and the choice of a filter."""

    degree: int = 40
    guard: int | None = None
    precision: Precision = "auto"
    angle: float = 0.0
    max_iter: int = 100

    name: ClassVar[str] = "chebyshev"
    shortest: ClassVar[int] = 4  # degree of a filter: less is not worth its Rayleigh-Ritz

    def next_filter(self, problem: Problem, state: ChebyshevT, ends: tuple[float, float]) -> Filter:
        """The filter of a step between the ends of the spectrum, as long as what is still missing takes."""
        k = problem.n_components
        fresh = state.iteration == 0 and problem.start is None
        cut = self._cut(state, ends, fresh)
        gain = 1e3
        if self.angle > 0 and not fresh:  # no more than what is still missing, and a bit
            gain = float(np.clip(3 * state.angle_bound(k) / self.angle, 10, 1e3))
        degree = filter_degree(state, k, cut, ends, self.degree, gain)
        return Filter(max(degree, min(self.shortest, self.degree)), cut, ends[1])

    def _cut(self, state: ChebyshevT, ends: tuple[float, float], fresh: bool) -> float:
        """The largest Ritz value; for random vectors, where the bulk of the spectrum may end.

        Their Rayleigh quotient is the mean of the spectrum and their residual its standard deviation
        s; a semicircle ends 2 s below its mean.
        """
        lower, upper = ends
        width = upper - lower
        low, high = float(state.values[0]), float(state.values[-1])
        if fresh:
            high = max(lower + 0.1 * width, float((state.values - 2 * state.residuals).mean()))
            return min(high, upper - NARROWEST * width)
        return min(max(high, low + 1e-9 * width), upper - NARROWEST * width)


@dataclass(frozen=True)
class Chebyshev(FilteringSolver[ChebyshevState]):
    """Filtered subspace iteration (Zhou, Saad, Tiago and Chelikowsky 2006).

    Definition: ``U <- Ritz(T_m(S) U)`` where T_m is the Chebyshev polynomial of degree m and S maps
    ``[cut, upper]`` to [-1, 1]: components above the cut stay bounded, those below grow like
    ``exp(m acosh|S|)``. The cut is the largest Ritz value of the guard vectors, so it follows the
    spectrum by itself. Meaning: m steps of a random walk that forgets everything but the clusters.

    Cost: m passes with K + guard columns and one Rayleigh-Ritz per step. Few passes (15 to 30) where
    there is a gap after a few eigenvalues, as in block models, social graphs and merged layers; many on
    geometric graphs (the passes grow like ``sqrt(upper / gap)``): use ``multilevel`` or
    ``shift-invert`` there. Being a block method it does not skip repeated eigenvalues.

    Parameters
    ----------
    degree
        Highest degree of one filter; the degree in use aims at a thousandfold damping.
    guard
        Extra columns; None fills up to a multiple of 8.
    precision
        ``"auto"`` iterates in float32 and changes to float64 where that limits the residual.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    """

    rough_after = 2

    def suited(self, problem: Problem) -> Solver[Any]:
        """Where sweeps are dear, the form that takes few of them."""
        from spectrograd.solvers.chebyshev_sweeps import in_few_sweeps

        return in_few_sweeps(self) if problem.dear_sweeps else self

    def init(self, problem: Problem, rng: np.random.Generator) -> ChebyshevState:
        """A random block, or the warm start with random guard vectors."""
        dtype = np.float64 if self.precision == "double" else np.float32
        width = guarded_width(problem, self.guard)
        state = ChebyshevState(np.empty((0, 0)), rng, block=guarded_start(problem, width, rng, dtype))
        state.highest = problem.operator.upper
        if width > WIDE:
            state.highest = upper_edge(problem.engine, problem.standard.operator, rng, EDGE_STEPS)
            state.passes += EDGE_STEPS / problem.n_components
        if problem.start is not None:
            return self.measured(problem, problem.walk.operator, state)
        return self._sampled(problem, state)

    def _sampled(self, problem: Problem, state: ChebyshevState) -> ChebyshevState:
        """A random block, of which a few columns tell as much as all: the spectrum's mean and deviation."""
        engine, width = problem.engine, state.block.shape[1]
        few = engine.columns(state.block, slice(SAMPLE))
        ritz, deviation, _ = ritz_pairs(engine, problem.walk.operator, few, state.rng)
        state.values, state.residuals = np.full(width, ritz.values.mean()), np.full(width, deviation.mean())
        state.U = problem.walk.leave(engine.columns(state.block, slice(problem.n_components)))
        return state

    def step(self, problem: Problem, state: ChebyshevState) -> ChebyshevState:
        """One filter and one Rayleigh-Ritz."""
        operator, k, block = problem.walk.operator, problem.n_components, state.block
        width = operator.upper - operator.lower
        limited = block.dtype == np.float32 and state.residuals[:k].max() < SINGLE_FLOOR * width
        if limited and self.precision == "auto":
            block = problem.engine.cast(block, np.float64)
        if state.values[-1] > state.highest:  # the spectrum does not end there after all
            state.highest = operator.upper
        smooth = self.next_filter(problem, state, (operator.lower, state.highest))
        state.block = smooth.apply(problem.engine, operator, block)
        state = self.measured(problem, operator, state)
        return self.account(problem, state, (smooth.degree + 1) * block.shape[1])


def filter_degree(
    state: RitzState, k: int, cut: float, ends: tuple[float, float], limit: int, gain: float
) -> int:
    """Degree that damps what lies above the cut by ``gain`` against the k-th eigenvalue.

    That one is guessed a residual below its Ritz value (or the cut, if that is lower), so filters are
    short while little is known.
    Smaller where the first vector would outgrow the k-th beyond what float32 can tell apart.
    """
    lower, upper = ends
    half = (upper - cut) / 2
    growth = []
    for i in (0, k - 1):
        guess = max(lower, min(cut, float(state.values[i])) - float(state.residuals[i]))
        growth.append(math.acosh(max(1.0, (upper - half - guess) / half)))
    wanted = math.log(2 * gain) / max(growth[1], 1e-9)
    spread = growth[0] - growth[1]
    allowed = math.log(1e4) / spread if spread > 0 else wanted
    return int(np.clip(math.ceil(min(wanted, allowed)), 1, limit))
