"""``chebyshev`` where passes over the edges take nearly all the time: graphs on disk and on clusters.

:class:`FewPassChebyshev` takes the steps of :mod:`spectrograd.solvers.chebyshev` (filter, Rayleigh-Ritz,
stop) and saves passes in three places:

- the product of the Rayleigh-Ritz is the first product of the next filter;
- a probe block of random columns goes through the same filters, so that the certificate
  (:mod:`spectrograd.certificate.block_probe`) needs few passes of its own;
- the first filter looks at the singular values of its block after every degree and stops when they show
  that the subspace is good enough, or that its vectors are localised.

A block has ``width`` columns of the solver (k and guard vectors) and then s columns of the probe, in
random-walk form (``problem.random_walk``).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.linalg as la
from numpy.typing import DTypeLike

from spectrograd.certificate.block_probe import (
    MAX_LOOKS,
    ProbeBlock,
    evidence_from_gram,
    extend_block_probe,
    new_probe_block,
    spectral_norm,
)
from spectrograd.certificate.certificate import TARGET_ODDS, ComplementBound, sine_bound
from spectrograd.certificate.lanczos_probe import Evidence, MeasuredRitz
from spectrograd.certificate.localization import columns_are_localized
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.chebyshev_filter import (
    MAX_FILTER_GROWTH,
    Filter,
    FilteredSingularValues,
    Filtering,
    estimate_bulk,
)
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthogonality_error, orthonormalize
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.base import Problem
from spectrograd.solvers.chebyshev import ChebyshevState, FilteringSolver, ritz_cut
from spectrograd.solvers.ritz import (
    generalized_ritz,
    guarded_start,
    guarded_width,
)
from spectrograd.typing import Array

# The residual that an angle asks for costs more than the angle: errors lie in the bulk of the spectrum,
# some three gaps away; but the gap to the first guard vector is a gap and a half.
RESIDUAL_OVER_ANGLE = 2.0
DEFAULT_ANGLE = 1e-3  # for the first filter, where no angle is asked for
MAX_ORTHOGONALITY_ERROR = 1e-5  # what float32 leaves of a rotated basis, and the certificate accepts
# A gap for which a filter takes more passes is narrow: a Krylov basis gets farther in as many, where it fits.
MAX_PASSES = 60
CERTIFIED_OVER_ASKED = 3  # the angle that a certificate accepts over the one that solvers are asked for
ROUGH_RESIDUAL = 0.05  # a larger residual says that the vector is close to no eigenvector in particular
NO_VECTORS = np.empty((0, 0))
PASSES_BETWEEN_CHECKS = 2  # degrees of the first filter between two tests for localised vectors


@dataclass(eq=False)
class FewPassState(ChebyshevState):
    """``block`` (N x (width + s)) ends with the s columns of the probe; ``product`` is ``B^-1 A block``.

    The next step overwrites both. ``probe_block`` holds the history of the probe's columns (filters, norms)
    without the columns themselves. A snapshot has the first K columns only, and neither product nor probe.
    """

    probe_block: ProbeBlock | None = None
    product: MultiVector | None = None
    has_hubs: bool = False  # the first filter's cut then follows the bulk, not the width of the spectrum

    @property
    def width(self) -> int:
        """Columns of the solver, without those of the probe."""
        return len(self.values)


@dataclass(frozen=True)
class FewPassChebyshev(FilteringSolver[FewPassState]):
    """The variant of :class:`Chebyshev` where passes are expensive; the same hyperparameters.

    Memory: two blocks of N x (width + s), and the K columns of the last snapshot.
    """

    min_degree = 2
    localization_check_at = 1

    def init(self, problem: Problem, rng: np.random.Generator) -> FewPassState:
        """A random block, or the warm start with random guard vectors; one pass."""
        dtype = np.float64 if self.precision == "double" else np.float32
        width = guarded_width(problem, self.guard)
        state = FewPassState(NO_VECTORS, rng, highest=problem.operator.upper)
        state.values = np.zeros(width)
        self._draw_blocks(problem, state, dtype)
        if problem.start is None:
            self._first_product(problem, state)
        else:
            self._rayleigh_ritz(problem, state)
        state.matvecs += width
        return state

    def _draw_blocks(self, problem: Problem, state: FewPassState, dtype: DTypeLike) -> None:
        """Mutates: the first block of the solver, and beside it the columns of a probe."""
        engine = problem.engine
        block = guarded_start(problem, state.width, state.rng, dtype)
        if problem.operator.excluded_rows is not None:  # else they would have to be filtered out
            is_active = np.ones((problem.n_nodes, 1))
            is_active[problem.operator.excluded_rows] = 0
            block = engine.scale_rows(block, engine.from_numpy(is_active))
        probe_block = new_probe_block(engine, problem.operator.random_walk_form(), state.rng, dtype)
        state.block = engine.hstack(block, probe_block.X)
        state.probe_block = replace(probe_block, X=None)

    def _first_product(self, problem: Problem, state: FewPassState) -> None:
        """Mutates: mean and deviation of the spectrum, from the product that begins the first filter."""
        engine = problem.engine
        walk = problem.random_walk.operator
        block = state.block
        product = engine.recurrence(walk, block, block, (1.0, 0.0, 0.0))
        state.product = product
        # Per column x: x'Bx, x'Ax and |B^-1 A x|^2 in B, hence the first two moments of the spectrum.
        pairs = ((block, block), (block, product), (product, product))
        squares, firsts, seconds = (np.diag(M)[: state.width] for M in engine.grams(pairs, walk.metric))
        means = firsts / squares
        second_moments = seconds / squares
        deviation = float(np.sqrt(np.maximum(second_moments - means**2, 0)).mean())
        bulk = estimate_bulk(problem.operator.random_walk_form(), float(means.mean()), deviation)
        # Filters begin at the bulk instead of at Ritz values, which do not exist yet (see ``ritz_cut``).
        state.highest = bulk.end
        state.has_hubs = bulk.has_hubs
        state.values = np.full(state.width, bulk.mean)
        state.residuals = np.full(state.width, bulk.deviation)

    def step(self, problem: Problem, state: FewPassState) -> FewPassState:
        """One filter and one Rayleigh-Ritz, whose product is the first of the next filter."""
        if self.needs_double(problem, state):
            state.block = problem.engine.astype(state.block, np.float64)
            state.product = problem.engine.astype(state.product, np.float64)
        # 1. choose the filter: cut and degree from the last Ritz pairs
        ends = self.spectrum_ends(problem, state)
        polynomial = self.next_filter(problem, state, ends)
        # 2. filter the block and the probe's columns
        degree, is_localized = self._filter(problem, state, polynomial)
        # 3. Rayleigh-Ritz; not of localised vectors, for which the loop's ``watch`` may end the run
        if is_localized:
            state.block, _ = self._orthonormalize_block(problem, state)
        else:
            self._rayleigh_ritz(problem, state)
        state = self.account(problem, state, degree * state.width)
        # 4. stop? By the angle (``terminate``), or where no gap is in sight.
        self._stop_without_gap(state)
        return state

    def cut(self, state: FewPassState, ends: tuple[float, float], is_first: bool) -> float:
        """The largest Ritz value; that of the first filter once more, while guard vectors are rough."""
        cut = ritz_cut(state, ends, is_first)
        if is_first and state.has_hubs:
            # Hubs are most of the width of the spectrum: measure from the bulk, mean +- 2 deviations.
            bulk_low, bulk_high = (float((state.values + c * state.residuals).mean()) for c in (-2, 2))
            return min(max(bulk_low, ends[0] + 0.1 * (bulk_high - ends[0])), cut)
        if is_first or state.iteration > 1 or state.probe_block is None or not state.probe_block.filters:
            return cut
        # Guard vectors after one filter may still be mixtures, whose Ritz values lie in the bulk: a cut there
        # would let most of the spectrum grow. Keep the first cut until a Ritz value below it is accurate.
        first_cut = state.probe_block.filters[-1].cut
        largest_accurate = state.values[state.residuals < ROUGH_RESIDUAL].max(initial=-np.inf)
        return first_cut if largest_accurate < first_cut < cut else cut

    def _filter(self, problem: Problem, state: FewPassState, polynomial: Filter) -> tuple[int, bool]:
        """Mutates: the filtered block. Returns the degrees taken and whether localised vectors ended it.

        ``G = X'BX`` is the Gram matrix of all columns after each degree: its leading block has the singular
        values of the solver's columns, its trailing block the norm of the probe's.
        """
        engine = problem.engine
        walk = problem.random_walk.operator
        probe_block = state.probe_block
        width = state.width
        assert probe_block is not None
        # The first filter may use the full degree: it stops by the singular values below.
        is_first = state.iteration == 0 and problem.start is None
        max_degree = self.degree if is_first else polynomial.degree
        singular_values = FilteredSingularValues(width)
        filtering = Filtering(polynomial, engine, walk, state.block, state.product, owned=True)
        state.block = state.product = None
        state.U = NO_VECTORS
        probe_norms: list[float] = []
        is_localized = False
        G = engine.gram(filtering.current, filtering.current, walk.metric)
        while filtering.degree < max_degree:
            # A probe that grows lies beyond the upper end of the filter: begin again with a safe one.
            probe_norms.append(spectral_norm(G[width:, width:]))
            if probe_norms[-1] > MAX_FILTER_GROWTH * probe_norms[0] and polynomial.upper < walk.upper:
                return self._filter_again(problem, state, polynomial, filtering)
            # One pass over the edges: one more degree, for the solver's columns and the probe block.
            filtering.advance()
            G = engine.gram(filtering.current, filtering.current, walk.metric)
            singular_values.measure(G[:width, :width])
            if is_first:
                error = singular_values.error(problem.n_components)
                if error * RESIDUAL_OVER_ANGLE <= (self.angle or DEFAULT_ANGLE):
                    break
                if filtering.degree % PASSES_BETWEEN_CHECKS == 0:
                    is_localized = columns_are_localized(engine, filtering.current, walk.metric, width)
                if is_localized:
                    break
            # Rotate the columns before rounding errors of the longest direction cover the others.
            if singular_values.is_uneven:
                rotation = la.block_diag(singular_values.even_out(), np.eye(len(G) - width))
                filtering.rotate(rotation)
                G = rotation.T @ G @ rotation
        state.block = filtering.current
        applied = replace(polynomial, degree=filtering.degree)
        state.probe_block = probe_block.with_filter(applied, None, tuple(probe_norms))
        return applied.degree, is_localized

    def _filter_again(
        self, problem: Problem, state: FewPassState, polynomial: Filter, filtering: Filtering
    ) -> tuple[int, bool]:
        """Mutates: a new random block through a filter whose upper end is the bound on the spectrum.

        A filter lets nothing grow between its cut and its upper end. One that ends too low turns every column
        into the last eigenvectors, and soon overflows float32.
        """
        # The bound on the spectrum is safe; the estimate that was too low is forgotten.
        upper = problem.random_walk.operator.upper
        state.events.append(
            f"iteration {state.iteration}: the spectrum goes on beyond {polynomial.upper:.4g}, where a "
            f"filter was to end; begun again after {filtering.degree} passes, up to {upper:.4g}"
        )
        state.highest = upper
        self._draw_blocks(problem, state, filtering.current.dtype)
        wider = replace(polynomial, upper=upper, degree=self.degree)
        degree, is_localized = self._filter(problem, state, wider)
        return degree + filtering.degree, is_localized

    def _rayleigh_ritz(self, problem: Problem, state: FewPassState) -> None:
        """Mutates: Ritz pairs of the block, and its product; one pass, and two blocks at any time."""
        engine = problem.engine
        walk = problem.random_walk.operator
        block, n_lost = self._orthonormalize_block(problem, state)
        state.block = None
        product = engine.recurrence(walk, block, block, (1.0, 0.0, 0.0))
        # H y = theta M y with H = X'AX and M = X'BX (nearly I) of the solver's own columns
        own = slice(state.width)
        H, M = (G[own, own] for G in engine.grams(((block, product), (block, block)), walk.metric))
        values, rotation = generalized_ritz(H, M)
        # Rotate the block and its product; the probe's columns stay.
        rotation = la.block_diag(rotation, np.eye(block.shape[1] - state.width))
        state.block = engine.combine_inplace(block, rotation)
        state.product = engine.combine_inplace(product, rotation)
        # Residuals |B^-1 A x - theta x| in B
        metric = () if walk.metric is None else (walk.metric,)
        squares = engine.gather_blocks(
            partial(_residual_squares, values), state.block, state.product, *metric
        )
        state.values = values
        state.residuals = np.sqrt(np.sum(squares, axis=0))
        if n_lost:
            state.n_lost += n_lost
            state.events.append(f"iteration {state.iteration}: {n_lost} lost directions replaced")

    def _orthonormalize_block(self, problem: Problem, state: FewPassState) -> tuple[MultiVector, int]:
        """The block, its own columns nearly orthonormal after one round, and the number of lost directions.

        The generalised Rayleigh-Ritz corrects what one round of Cholesky QR leaves.
        """
        engine = problem.engine
        metric = problem.random_walk.operator.metric
        block = state.block
        width = state.width
        # One round of Cholesky QR: no pass, and two multivectors less than a second round would take.
        factor, n_lost = inverse_factor(engine.gram(block, block, metric)[:width, :width])
        if not n_lost:
            factor = la.block_diag(factor, np.eye(block.shape[1] - width))
            return engine.combine_inplace(block, factor), 0
        # Directions were lost: random ones take their place, and two rounds are needed.
        Q, n_lost = orthonormalize(engine, engine.columns(block, slice(width)), metric, state.rng)
        return engine.hstack(Q, engine.columns(block, slice(width, None))), n_lost

    def terminate(self, problem: Problem, state: FewPassState) -> bool:
        """Whether the angle is met, by the guard vectors or by the evidence of the probe block."""
        k = problem.n_components
        probe_block = state.probe_block
        is_over = self.angle_is_met(problem, state)
        if is_over or self.angle == 0 or state.iteration == 0:
            return is_over
        if probe_block is None or state.width <= k or not probe_block.filters:
            return False
        engine = problem.engine
        walk = problem.random_walk.operator
        rounding = self._rounding(problem, state) or 0.0
        # Nothing was missed below tau, up to the odds that a certificate accepts ...
        G = engine.gram(state.block, state.block, walk.metric)
        eps = float(np.finfo(state.block.dtype).eps)
        evidence = evidence_from_gram(walk, probe_block, G, k, float(state.values[k]), eps, MAX_LOOKS)
        values = state.values[:k]
        tau = evidence.farthest(float(values[-1]))
        # ... and the residuals are small against the gaps up to tau.
        sine = sine_bound(values, state.residuals[:k] + rounding, tau - rounding)
        return evidence.odds_below(tau) <= TARGET_ODDS and sine <= CERTIFIED_OVER_ASKED * self.angle

    def _stop_without_gap(self, state: FewPassState) -> None:
        """Mutates: the state is done after MAX_PASSES, unless iterations or digits were asked for."""
        if state.probe_block is None or self.max_iter != type(self).max_iter or self.angle == 0:
            return
        # Each degree of a filter reads the edges once (``lengths`` has one
        # norm for each), so does each Rayleigh-Ritz.
        n_passes = len(state.probe_block.lengths) + state.iteration
        if n_passes >= MAX_PASSES and not state.done:
            state.done = True
            state.events.append(f"{n_passes} passes and no gap in sight: max_iter asks for more")

    def _rounding(self, problem: Problem, state: FewPassState) -> float | None:
        """A bound on the move of an eigenvalue by rounding in a product; None where there is no bound."""
        if not (problem.engine.has_blocked_summation and isinstance(problem.operator, SparseOperator)):
            return None
        return problem.operator.rounding(state.block.dtype, blocked=True)

    def vectors(self, problem: Problem, state: FewPassState) -> MultiVector:
        """The first K columns, made when they are first asked for."""
        if state.U.shape[1] == 0:
            first = problem.engine.columns(state.block, slice(problem.n_components))
            state.U = problem.random_walk.inverse_transform(first)
        return state.U

    def snapshot(self, problem: Problem, state: FewPassState) -> FewPassState:
        """The first K columns, with their values."""
        twin = copy.copy(state)
        # what ``finish`` needs: the next step writes over the block
        twin.block = problem.engine.columns(state.block, slice(problem.n_components))
        twin.events = list(state.events)
        twin.product = twin.probe_block = None
        twin.U = NO_VECTORS
        return twin

    def overwrites_state(self, state: FewPassState) -> bool:
        """Always: a step uses the memory of block and product again."""
        return True

    def finish(self, problem: Problem, state: FewPassState) -> MultiVector:
        """A basis in the precision of the run: the certificate casts where it needs more digits."""
        U = self.vectors(problem, state)
        error = orthogonality_error(problem.engine, problem.engine_operator, U)
        return U if error < MAX_ORTHOGONALITY_ERROR else problem.orthonormalize(U).Q

    def evidence(self, problem: Problem, state: FewPassState) -> Evidence:
        """Guard vectors, and the last Ritz pairs where the rounding errors of their product are bounded."""
        k = problem.n_components
        has_product = state.product is not None and state.iteration > 0
        state.product = None  # no filter follows: free its memory
        evidence = self.guard_evidence(problem, state)
        rounding = self._rounding(problem, state) if has_product else None
        if rounding is None:
            return evidence
        ritz = Ritz(state.values[:k], self.vectors(problem, state), None)
        return replace(evidence, last=MeasuredRitz(ritz, state.residuals[:k], rounding))

    def complement_bound(self, problem: Problem, state: FewPassState) -> ComplementBound | None:
        """The evidence of the probe block, extended by a few more passes where it is not enough."""
        k = problem.n_components
        engine = problem.engine
        walk = problem.random_walk.operator
        probe_block = state.probe_block
        if probe_block is None or state.width <= k or state.iteration == 0:
            return None
        self.vectors(problem, state)  # the only part of the block that is used after this
        Q = engine.columns(state.block, slice(k))
        # The two parts replace the block, so that no more than two blocks are held.
        probe_block = replace(probe_block, X=engine.columns(state.block, slice(state.width, None)))
        state.block = None
        if probe_block.null is None:  # else ``extend_block_probe`` orthonormalises
            Q = orthonormalize(engine, Q, walk.metric).Q
        ritz = Ritz(state.values[:k], Q, None)
        cut = float(state.values[-1])
        # The first eigenvalue beyond the result: a residual below its Ritz value, which is rough.
        lowest = float(state.values[k] - state.residuals[k])
        if lowest <= state.values[k - 1]:
            lowest = float(state.values[k])
        return extend_block_probe(
            engine, walk, probe_block, ritz, lowest, cut, state.residuals[:k], MAX_LOOKS
        )


def _residual_squares(values: Array, _: int, X: Array, product: Array, metric: Array | None = None) -> Array:
    """Squared norms of ``B^-1 A x - theta x`` in B, for the first columns x of a block of rows."""
    # the probe's columns, which stand after the solver's, have no values
    residual = product[:, : len(values)].astype(np.float64) - values * X[:, : len(values)]
    mass = np.ones((len(residual), 1)) if metric is None else metric.reshape(-1, 1)
    return np.asarray((mass * residual**2).sum(axis=0))
