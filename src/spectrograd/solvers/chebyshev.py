"""``chebyshev``: block subspace iteration, filtered by Chebyshev polynomials of the operator."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import scipy.linalg as la

from spectrograd.certificate.block_probe import (
    LOOKS,
    ProbeBlock,
    evidence_from_gram,
    extend_block_probe,
    longest,
    new_probe_block,
)
from spectrograd.certificate.certificate import ENOUGH, ComplementBound
from spectrograd.certificate.lanczos_probe import Evidence, MeasuredRitz
from spectrograd.certificate.localization import TINY_SHARE
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.chebyshev import GROWN, NARROWEST, Filter, FilteredSingularValues, Filtering, bulk_of
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthogonality_error, orthonormalize, upper_edge
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.base import Problem
from spectrograd.solvers.ritz import (
    RitzSolver,
    RitzState,
    generalized_ritz,
    guarded_start,
    guarded_width,
    ritz_pairs,
)
from spectrograd.typing import Array

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

    localization_check_at = 2

    def init(self, problem: Problem, rng: np.random.Generator) -> ChebyshevState:
        """A random block, or the warm start with random guard vectors."""
        dtype = np.float64 if self.precision == "double" else np.float32
        width = guarded_width(problem, self.guard)
        state = ChebyshevState(np.empty((0, 0)), rng, block=guarded_start(problem, width, rng, dtype))
        state.highest = problem.operator.upper
        if width > WIDE:
            state.highest = upper_edge(problem.engine, problem.standard.operator, rng, EDGE_STEPS)
            state.matvecs += EDGE_STEPS
        if problem.start is not None:
            return self.measured(problem, problem.random_walk.operator, state)
        return self._sampled(problem, state)

    def _sampled(self, problem: Problem, state: ChebyshevState) -> ChebyshevState:
        """A random block, of which a few columns tell as much as all: the spectrum's mean and deviation."""
        engine, width = problem.engine, state.block.shape[1]
        few = engine.columns(state.block, slice(SAMPLE))
        ritz, deviation, _ = ritz_pairs(engine, problem.random_walk.operator, few, state.rng)
        state.values, state.residuals = np.full(width, ritz.values.mean()), np.full(width, deviation.mean())
        state.U = problem.random_walk.inverse_transform(
            engine.columns(state.block, slice(problem.n_components))
        )
        return state

    def step(self, problem: Problem, state: ChebyshevState) -> ChebyshevState:
        """One filter and one Rayleigh-Ritz."""
        operator, k, block = problem.random_walk.operator, problem.n_components, state.block
        width = operator.upper - operator.lower
        limited = block.dtype == np.float32 and state.residuals[:k].max() < SINGLE_FLOOR * width
        if limited and self.precision == "auto":
            block = problem.engine.astype(block, np.float64)
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


# --- ``chebyshev`` in few sweeps: for graphs on disk and on clusters, where reading the edges takes the time.

# The residual that an angle asks for is dearer than the angle itself: errors lie in the bulk of the spectrum,
# some three gaps away; but the gap to the first guard vector is a gap and a half.
RESIDUAL_OVER_ANGLE = 2.0
ORTHONORMAL = 1e-5  # what float32 leaves of a basis that was rotated, and nobody minds
# A gap that takes a filter more is narrow: a Krylov basis gets farther in as many sweeps, where it has room.
MAX_PASSES = 60
OVER_ASKED = 3  # the angle of a certificate over the one that solvers are asked for
ROUGH = 0.05  # residuals above this are those of no vector in particular
NO_VECTORS = np.empty((0, 0))
PASSES_BETWEEN_CHECKS = 2  # degrees after which a first filter looks whether its vectors are localised


@dataclass(eq=False)
class FewPassState(ChebyshevState):
    """``block`` (N x (w + s)) ends with the columns of the probe block; ``product`` is ``B^-1 A`` of it.

    Both are written over by the next step. ``probe_block`` tells how its columns came about and has none
    itself. What a run keeps meanwhile has the first K columns only, and neither product nor probe_block.
    """

    probe_block: ProbeBlock | None = None
    product: MultiVector | None = None
    has_hubs: bool = False  # the first filter's cut then follows the bulk, not the width of the spectrum

    @property
    def width(self) -> int:
        """Columns of the solver's own."""
        return len(self.values)


@dataclass(frozen=True)
class FewPassChebyshev(FilteringSolver[FewPassState]):
    """See the module's text; parameters are those of :class:`Chebyshev`."""

    localization_check_at = 1
    shortest = 2

    def init(self, problem: Problem, rng: np.random.Generator) -> FewPassState:
        """A random block, or the warm start with random guard vectors; one sweep."""
        dtype = np.float64 if self.precision == "double" else np.float32
        width = guarded_width(problem, self.guard)
        state = FewPassState(NO_VECTORS, rng, highest=problem.operator.upper)
        state.values = np.zeros(width)
        self._begin(problem, state, dtype)
        if problem.start is None:
            self._first_product(problem, state)
        else:
            self._ritz(problem, state)
        state.matvecs += width
        return state

    def _begin(self, problem: Problem, state: FewPassState, dtype: Any) -> None:
        """Mutates: the first block, and the columns of a probe beside it."""
        engine = problem.engine
        block = guarded_start(problem, state.width, state.rng, dtype)
        if problem.operator.excluded_rows is not None:  # else they would have to be filtered out
            part = np.ones((problem.n_nodes, 1))
            part[problem.operator.excluded_rows] = 0
            block = engine.scale_rows(block, engine.from_numpy(part))
        probe_block = new_probe_block(engine, problem.operator.random_walk_form(), state.rng, dtype)
        state.block, state.probe_block = engine.hstack(block, probe_block.X), replace(probe_block, X=None)

    def _first_product(self, problem: Problem, state: FewPassState) -> None:
        """Mutates: mean and deviation of the spectrum, from the product that begins the first filter."""
        engine, walk, block = problem.engine, problem.random_walk.operator, state.block
        product = state.product = engine.recurrence(walk, block, block, (1.0, 0.0, 0.0))
        pairs = ((block, block), (block, product), (product, product))
        squares, means, second = (np.diag(M)[: state.width] for M in engine.grams(pairs, walk.metric))
        means, second = means / squares, second / squares
        deviation = float(np.sqrt(np.maximum(second - means**2, 0)).mean())
        bulk = bulk_of(problem.operator.random_walk_form(), float(means.mean()), deviation)
        state.highest, state.has_hubs = bulk.end, bulk.has_hubs
        state.values, state.residuals = (np.full(state.width, of) for of in (bulk.mean, bulk.deviation))

    def step(self, problem: Problem, state: FewPassState) -> FewPassState:
        """One filter and one Rayleigh-Ritz, whose product is the first of the next filter."""
        operator, k = problem.random_walk.operator, problem.n_components
        limit = SINGLE_FLOOR * (operator.upper - operator.lower)
        if self.precision == "auto" and state.block.dtype == np.float32 and state.residuals[:k].max() < limit:
            state.block = problem.engine.astype(state.block, np.float64)
            state.product = problem.engine.astype(state.product, np.float64)
        if state.values[-1] > state.highest:  # the spectrum does not end there after all
            state.highest = operator.upper
        smooth = self.next_filter(problem, state, (operator.lower, state.highest))
        degree, localized = self._filter(problem, state, smooth)
        if localized:  # not measured: whoever watches decides whether to go on
            state.block, _ = self._orthonormal(problem, state)
        else:
            self._ritz(problem, state)
        state = self.account(problem, state, degree * state.width)
        self._stop_without_gap(state)
        return state

    def _stop_without_gap(self, state: FewPassState) -> None:
        """Mutates: the state is done after so many sweeps, unless iterations or digits were asked for."""
        if state.probe_block is None or self.max_iter != type(self).max_iter or self.angle == 0:
            return
        n_passes = len(state.probe_block.lengths) + state.iteration
        if n_passes >= MAX_PASSES and not state.done:
            state.done = True
            state.events.append(f"{n_passes} sweeps and no gap in sight: max_iter asks for more")

    def _cut(self, state: FewPassState, ends: tuple[float, float], fresh: bool) -> float:
        """Where the first filter had it, while guard vectors are as rough as that has left them."""
        usual = super()._cut(state, ends, fresh)
        if fresh and state.has_hubs:
            low, high = (float((state.values + of * state.residuals).mean()) for of in (-2, 2))
            return min(max(low, ends[0] + 0.1 * (high - ends[0])), usual)
        if fresh or state.iteration > 1 or state.probe_block is None or not state.probe_block.filters:
            return usual
        before, k_th = (
            state.probe_block.filters[-1].cut,
            state.values[state.residuals < ROUGH].max(initial=-np.inf),
        )
        return before if k_th < before < usual else usual

    def _filter(self, problem: Problem, state: FewPassState, smooth: Filter) -> tuple[int, bool]:
        """Mutates: the block, filtered; how many degrees, and whether localised vectors ended it."""
        engine, walk, probe_block, width = (
            problem.engine,
            problem.random_walk.operator,
            state.probe_block,
            state.width,
        )
        assert probe_block is not None
        fresh = state.iteration == 0 and problem.start is None
        most, sizes = self.degree if fresh else smooth.degree, FilteredSingularValues(width)
        work = Filtering(smooth, engine, walk, state.block, state.product, owned=True)
        state.product, state.block, state.U = None, None, NO_VECTORS
        lengths, localized, M = [], False, engine.gram(work.current, work.current, walk.metric)
        while work.degree < most:
            lengths.append(longest(M[width:, width:]))
            if lengths[-1] > GROWN * lengths[0] and smooth.upper < walk.upper:
                return self._filter_again(problem, state, smooth, work)
            work.advance()
            M = engine.gram(work.current, work.current, walk.metric)
            sizes.measure(M[:width, :width])
            if fresh and sizes.error(problem.n_components) * RESIDUAL_OVER_ANGLE <= (self.angle or 1e-3):
                break
            localized = (
                fresh
                and work.degree % PASSES_BETWEEN_CHECKS == 0
                and self._localized(problem, work.current, width)
            )
            if localized:
                break
            if sizes.uneven:
                turn = la.block_diag(sizes.evened(), np.eye(len(M) - width))
                work.rotate(turn)
                M = turn.T @ M @ turn
        state.block, done = work.current, replace(smooth, degree=work.degree)
        state.probe_block = probe_block.after(done, None, tuple(lengths))
        return done.degree, localized

    def _filter_again(
        self, problem: Problem, state: FewPassState, smooth: Filter, work: Filtering
    ) -> tuple[int, bool]:
        """Mutates: a new random block through a filter that ends where the spectrum certainly does.

        Below the end of the spectrum a filter lets nothing grow. One that ends too low turns every column
        into the last eigenvectors, and soon beyond the numbers of float32.
        """
        upper = problem.random_walk.operator.upper
        state.events.append(
            f"iteration {state.iteration}: the spectrum goes on beyond {smooth.upper:.4g}, where a filter "
            f"was to end; begun again after {work.degree} passes, up to {upper:.4g}"
        )
        state.highest = upper
        self._begin(problem, state, work.current.dtype)
        degree, localized = self._filter(problem, state, replace(smooth, upper=upper, degree=self.degree))
        return degree + work.degree, localized

    def _localized(self, problem: Problem, X: MultiVector, width: int) -> bool:
        """Whether most of the first ``width`` columns live on tiny parts of the graph already."""
        seen = problem.engine.column_statistics(X, problem.random_walk.operator.metric)
        shares = X.shape[1] * seen.second**2 / (seen.fourth * seen.mass)
        return float(np.median(shares[:width])) < TINY_SHARE

    def _ritz(self, problem: Problem, state: FewPassState) -> None:
        """Mutates: Ritz pairs of the block, and its product; one sweep, and two multivectors at any time."""
        engine, walk = problem.engine, problem.random_walk.operator
        block, lost = self._orthonormal(problem, state)
        state.block = None
        product = engine.recurrence(walk, block, block, (1.0, 0.0, 0.0))
        own = slice(state.width)
        H, M = (of[own, own] for of in engine.grams(((block, product), (block, block)), walk.metric))
        values, rotation = generalized_ritz(H, M)
        turn = la.block_diag(rotation, np.eye(block.shape[1] - state.width))
        state.block, state.product = (
            engine.combine_inplace(block, turn),
            engine.combine_inplace(product, turn),
        )
        metric = () if walk.metric is None else (walk.metric,)
        squares = engine.gather_blocks(partial(_squares, values), state.block, state.product, *metric)
        state.values, state.residuals = values, np.sqrt(np.sum(squares, axis=0))
        if lost:
            state.n_lost += lost
            state.events.append(f"iteration {state.iteration}: {lost} lost directions replaced")

    def _orthonormal(self, problem: Problem, state: FewPassState) -> tuple[MultiVector, int]:
        """The block, its own columns nearly orthonormal after one round, and how many directions were lost.

        What one round leaves the generalised Rayleigh-Ritz corrects.
        """
        engine, metric, block, width = (
            problem.engine,
            problem.random_walk.operator.metric,
            state.block,
            state.width,
        )
        factor, lost = inverse_factor(engine.gram(block, block, metric)[:width, :width])
        if not lost:
            return engine.combine_inplace(block, la.block_diag(factor, np.eye(block.shape[1] - width))), 0
        own, probe_columns = (engine.columns(block, of) for of in (slice(width), slice(width, None)))
        Q, lost = orthonormalize(engine, own, metric, state.rng)
        return engine.hstack(Q, probe_columns), lost

    def terminate(self, problem: Problem, state: FewPassState) -> bool:
        """Whether the angle is met, by the guard vectors or by what the probe_block has seen."""
        k, probe_block = problem.n_components, state.probe_block
        if super().terminate(problem, state) or self.angle == 0 or state.iteration == 0:
            return super().terminate(problem, state)
        if probe_block is None or state.width <= k or not probe_block.filters:
            return False
        engine, walk, rounding = (
            problem.engine,
            problem.random_walk.operator,
            self._rounding(problem, state) or 0.0,
        )
        M, eps = engine.gram(state.block, state.block, walk.metric), float(np.finfo(state.block.dtype).eps)
        seen = evidence_from_gram(walk, probe_block, M, k, float(state.values[k]), eps, LOOKS)
        top, error = float(state.values[k - 1]), float(np.linalg.norm(state.residuals[:k] + rounding))
        tau = seen.farthest(top)
        return seen.odds_below(tau) <= ENOUGH and error <= OVER_ASKED * self.angle * (tau - top - rounding)

    def _rounding(self, problem: Problem, state: FewPassState) -> float | None:
        """By how much that of a product may move an eigenvalue; None where too much to count on it."""
        if not (problem.engine.has_blocked_summation and isinstance(problem.operator, SparseOperator)):
            return None
        return problem.operator.rounding(state.block.dtype, blocked=True)

    def vectors(self, problem: Problem, state: FewPassState) -> MultiVector:
        """The first K columns, made when they are first asked for."""
        if state.U.shape[1] == 0:
            state.U = problem.random_walk.inverse_transform(
                problem.engine.columns(state.block, slice(problem.n_components))
            )
        return state.U

    def snapshot(self, problem: Problem, state: FewPassState) -> FewPassState:
        """The first K columns, with their values."""
        twin = copy.copy(state)
        twin.block = problem.engine.columns(state.block, slice(problem.n_components))
        twin.product, twin.probe_block, twin.U, twin.events = None, None, NO_VECTORS, list(state.events)
        return twin

    def overwrites_state(self, state: FewPassState) -> bool:
        """Always."""
        return True

    def orthogonality(self, problem: Problem, state: FewPassState) -> float:
        """Of the columns where they are."""
        return orthogonality_error(
            problem.engine, problem.random_walk.operator, state.block, problem.n_components
        )

    def finish(self, problem: Problem, state: FewPassState) -> MultiVector:
        """In the precision of the run: where the certificate wants more, it casts."""
        U = self.vectors(problem, state)
        orthonormal = orthogonality_error(problem.engine, problem.engine_operator, U) < ORTHONORMAL
        return U if orthonormal else problem.orthonormalize(U).Q

    def evidence(self, problem: Problem, state: FewPassState) -> Evidence:
        """The last product too, where the engine keeps enough digits of it."""
        measured = state.product is not None and state.iteration > 0
        state.product = None  # the last sweep is over
        known, k, rounding = super().evidence(problem, state), problem.n_components, None
        if measured:
            rounding = self._rounding(problem, state)
        if rounding is None:
            return known
        ritz = Ritz(state.values[:k], self.vectors(problem, state), None)
        return replace(known, last=MeasuredRitz(ritz, state.residuals[:k], rounding))

    def complement_bound(self, problem: Problem, state: FewPassState) -> ComplementBound | None:
        """What the probe_block has seen, and with a few sweeps more still sees."""
        k, engine, walk, probe_block = (
            problem.n_components,
            problem.engine,
            problem.random_walk.operator,
            state.probe_block,
        )
        if probe_block is None or state.width <= k or state.iteration == 0:
            return None
        self.vectors(problem, state)  # all that is asked for after this
        Q, X = (engine.columns(state.block, of) for of in (slice(k), slice(state.width, None)))
        probe_block, state.block = replace(probe_block, X=X), None
        Q = (
            Q if probe_block.null is not None else orthonormalize(engine, Q, walk.metric).Q
        )  # else done with it
        ritz, residual = Ritz(state.values[:k], Q, None), float(np.linalg.norm(state.residuals[:k]))
        top, cut = float(state.values[k - 1]), float(state.values[-1])
        lowest = float(state.values[k] - state.residuals[k])  # guard vectors are rough
        lowest = lowest if lowest > top else float(state.values[k])
        return extend_block_probe(engine, walk, probe_block, ritz, lowest, cut, residual, LOOKS)


def _squares(values: Array, _: int, X: Array, product: Array, metric: Array | None = None) -> Array:
    """Squared norms of ``B^-1 A x - theta x`` in B, for the first columns x of a block of rows."""
    rest = product[:, : len(values)].astype(np.float64) - values * X[:, : len(values)]
    mass = np.ones((len(rest), 1)) if metric is None else metric.reshape(-1, 1)
    return np.asarray((mass * rest**2).sum(axis=0))
