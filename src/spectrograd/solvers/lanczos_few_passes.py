"""``lanczos`` where passes over the edges take nearly all the time: graphs on disk and on clusters.

:class:`FewPassLanczos` runs the cycles of :mod:`spectrograd.solvers.lanczos` with blocks of K columns and
guard vectors and a basis of up to twelve blocks. A probe block of random columns is multiplied in the same
passes, so that the certificate (:mod:`spectrograd.certificate.block_probe`) needs few passes of its own; the
first cycle ends early where its vectors are seen to be localised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from spectrograd.certificate.block_probe import (
    MAX_EXTRA_PASSES,
    MAX_LOOKS,
    BlockProbeEvidence,
    ProbeBlock,
    evidence_from_block,
    new_probe_block,
)
from spectrograd.certificate.certificate import TARGET_ODDS, ComplementBound, needed_cut
from spectrograd.certificate.localization import TINY_SHARE, participation
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.chebyshev_filter import MAX_FILTER_GROWTH, estimate_bulk, has_hubs
from spectrograd.linalg.subspace import Basis, orthonormalize
from spectrograd.solvers.base import Problem
from spectrograd.solvers.lanczos import KrylovSolver, LanczosState
from spectrograd.solvers.ritz import guarded_width

MAX_BASIS_BLOCKS = 12  # of a basis, where the user sets no other size: as many passes before a restart
# Passes of a cold start's first cycle after which the Ritz vectors are tested for localisation, and once
# more at its end. Being rough they live on tiny parts for a while where the eigenvectors do not, too:
# only a share of a cluster's volume far below TINY_SHARE ends the cycle, for the loop's ``watch`` to decide.
# Of 79 problems with localised eigenvectors this sees 20, and none of 123 others is taken for one.
LOCALIZATION_CHECKS = (4, 6, 8, 10)
ROUGH_TINY_SHARE = TINY_SHARE / 10


@dataclass(eq=False)
class BlockLanczosState(LanczosState):
    """``probe_block`` is multiplied in the same passes; ``extra`` passes were made for it alone.

    ``n_passes`` counts the passes of all cycles; ``is_localized`` tells that the first one ended early, with
    Ritz vectors on tiny parts of the graph.
    """

    probe_block: ProbeBlock | None = None
    extra: int = 0
    n_passes: int = 0
    is_localized: bool = False


@dataclass(frozen=True)
class FewPassLanczos(KrylovSolver[BlockLanczosState]):
    """The variant of :class:`~spectrograd.solvers.lanczos.Lanczos` where passes are expensive.

    The hyperparameters are the same; the block has K columns and guards (``block_size``), the basis up to
    twelve blocks (``basis_size``).
    """

    def init(self, problem: Problem, rng: np.random.Generator) -> BlockLanczosState:
        """Make the state of the method in memory, with a wide block and a probe block; no pass yet."""
        width = self.block_size or guarded_width(problem, None)
        basis_size = self.basis_size or MAX_BASIS_BLOCKS * width
        state = self.begin(problem, BlockLanczosState(np.empty((0, 0)), rng), width, basis_size)
        if state.basis is not None:
            form = problem.operator.standard_form()
            state.probe_block = new_probe_block(problem.engine, form, rng, state.basis.dtype)
        return state

    def fill(self, problem: Problem, state: BlockLanczosState, basis: Basis) -> None:
        """Mutates: basis and probe block, expanded until the basis is full or the angle is met."""
        assert state.probe_block is not None
        k = problem.n_components
        engine = problem.engine
        while True:
            probe_block = state.probe_block
            if probe_block.X.dtype != basis.dtype:  # the basis went on in float64
                X = engine.astype(probe_block.X, basis.dtype)
                before = engine.astype(probe_block.before, basis.dtype)
                probe_block = replace(probe_block, X=X, before=before)
            # One pass over the edges: the next block of the basis, and the product of the probe block.
            product = basis.expand(state.rng, probe_block.X)
            state.n_passes += 1
            state.measure(basis, k, self.angle)
            # The first Ritz values show where the bulk of the spectrum lies: the probe's filter damps that.
            if not probe_block.filters:
                probe_block = probe_block.begin_filter(*self._filter_interval(problem, state))
                if has_hubs(problem.operator):  # a Lanczos probe of its own takes fewer passes than a filter
                    state.extra = MAX_EXTRA_PASSES
            state.probe_block = self._advance_probe(problem, state, probe_block, product)
            state.is_localized = self._has_localized_vectors(problem, state, basis)
            # Full, good enough, or hopeless: the cycle ends, and ``step`` restarts the basis.
            is_met = basis.done > k + 1 and state.angle_bound(k) <= self.angle
            if basis.full or is_met or state.is_localized:
                return

    def shows_localization(self, state: BlockLanczosState) -> bool:
        """Whether to look at the vectors; also after a first cycle that ended early, being localised."""
        return (state.is_localized and state.iteration == 1) or super().shows_localization(state)

    def _has_localized_vectors(self, problem: Problem, state: BlockLanczosState, basis: Basis) -> bool:
        """Whether most Ritz vectors of the first cycle live on tiny parts of the graph already."""
        k = problem.n_components
        is_first = state.iteration == 0 and problem.start is None
        is_due = basis.full or state.n_passes in LOCALIZATION_CHECKS
        if not (is_first and is_due) or k < 2:
            return False
        assert state.ritz is not None
        engine = problem.engine
        # The first Ritz vector is nearly constant on the graph: it is left out.
        rotation = state.ritz.Y[:, 1:k]
        vectors = engine.combine(basis.vectors.columns(0, basis.done), rotation)
        shares = k * participation(problem.operator, problem.standard.inverse_transform(vectors), engine)
        return float(np.median(shares)) < ROUGH_TINY_SHARE

    def _filter_interval(self, problem: Problem, state: BlockLanczosState) -> tuple[float, float]:
        """The interval that the probe's filter damps: the bulk of the spectrum, taken for a semicircle.

        Its mean and deviation are those of the first Ritz values and residuals of random vectors.
        """
        operator = problem.operator.standard_form()
        k = problem.n_components
        first = k if len(state.values) > k else 0
        mean = float(state.values[first:].mean())
        deviation = float(state.residuals[first:].mean())
        bulk = estimate_bulk(operator, mean, deviation)
        width = operator.upper - operator.lower
        if bulk.has_hubs:  # they are most of the width
            width = bulk.mean + 2 * bulk.deviation - operator.lower
        # at least a twentieth of the width from either end: shorter intervals are not worth damping
        cut = min(max(bulk.low, operator.lower + 0.05 * width), operator.upper - 0.05 * width)
        return cut, min(operator.upper, max(bulk.end, cut + 0.05 * width))

    def _advance_probe(
        self, problem: Problem, state: BlockLanczosState, probe_block: ProbeBlock, product: MultiVector
    ) -> ProbeBlock:
        """The probe block after one more degree, or a new one where its filter is seen to end too low."""
        engine = problem.engine
        operator = problem.standard.operator
        norms = probe_block.lengths
        has_grown = len(norms) > 1 and norms[-1] > MAX_FILTER_GROWTH * norms[0]
        if not has_grown or probe_block.filters[-1].upper >= operator.upper:
            return probe_block.advance(engine, operator, product)
        state.events.append(
            f"iteration {state.iteration}: the spectrum goes on beyond "
            f"{probe_block.filters[-1].upper:.4g}, where "
            f"the filter of the probe was to end; the probe began again, up to {operator.upper:.4g}"
        )
        form = problem.operator.standard_form()
        # New columns: those that grew are filled with the last eigenvectors.
        fresh = new_probe_block(engine, form, state.rng, probe_block.X.dtype)
        return fresh.begin_filter(probe_block.filters[-1].cut, operator.upper)

    def terminate(self, problem: Problem, state: BlockLanczosState) -> bool:
        """Whether the angle is met and the probe's evidence is enough, or more passes would not help."""
        if not self.angle_is_met(problem, state):
            return False
        if state.done:
            return True
        evidence = self._probe_evidence(problem, state)
        state.extra += 1
        if evidence is None or state.extra > MAX_EXTRA_PASSES:
            return True
        # More passes are worth making only while the odds can still fall:
        # rounding sets their floor (``best_odds``).
        # Nothing may be missed below tau, which the residuals and the gap ask for.
        k = problem.n_components
        tau = needed_cut(state.values[:k], evidence.lowest, state.residuals[:k])
        is_enough = evidence.odds_below(tau) <= TARGET_ODDS
        is_hopeless = evidence.best_odds(tau) > TARGET_ODDS or tau >= evidence.filters[-1].cut
        return is_enough or is_hopeless

    def _probe_evidence(self, problem: Problem, state: BlockLanczosState) -> BlockProbeEvidence | None:
        """The evidence of the probe block so far; None before its filter begins."""
        k = problem.n_components
        engine = problem.engine
        operator = problem.standard.operator
        if state.probe_block is None or not state.probe_block.filters or len(state.values) <= k:
            return None
        # Rounding in the cast is taken out by orthonormalising again.
        U = problem.standard.transform(engine.astype(state.U, state.probe_block.X.dtype))
        Q = orthonormalize(engine, U, None).Q
        # The first eigenvalue beyond the result: a residual below its Ritz value, which is rough.
        lowest = float(state.values[k] - state.residuals[k])
        if lowest <= state.values[k - 1]:
            lowest = float(state.values[k])
        return evidence_from_block(engine, operator, state.probe_block, Q, lowest, MAX_LOOKS)

    def complement_bound(self, problem: Problem, state: BlockLanczosState) -> ComplementBound | None:
        """The evidence of the probe block."""
        return self._probe_evidence(problem, state)
