"""``lanczos``: Krylov spaces of a vector or a block, with thick restarts and full reorthogonalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.linalg as la

from spectrograd.certificate.block_probe import (
    LOOKS,
    MOST_MORE,
    BlockProbeEvidence,
    ProbeBlock,
    evidence_from_block,
    new_probe_block,
)
from spectrograd.certificate.certificate import ENOUGH, ComplementBound, needed_cut
from spectrograd.certificate.lanczos_probe import Evidence, Guards
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.kernels import LANES, SMALL
from spectrograd.linalg.chebyshev import GROWN, Filter, bulk_of, has_hubs
from spectrograd.linalg.subspace import Basis, RitzValues, orthonormalize
from spectrograd.solvers.base import Problem
from spectrograd.solvers.ritz import RitzSolver, RitzState, guarded_width

SINGLE_FLOOR = 1e-5
KEPT = 0.4  # of the vectors beyond K, how many outlive a restart
MOST_GUARDS = 8
SOONEST, UNKNOWN = 0.1, 0.3  # of a basis: steps to the next look at the Ritz values


@dataclass(eq=False)
class LanczosState(RitzState):
    """``basis`` belongs to the run: copies of a state share it, only ``U`` and the values are theirs.

    They tell of the basis as it was after so many ``products``. ``pause`` counts the steps to the next look
    at the Ritz values. A cycle that is ``filling`` began with so many ``products_before``.
    """

    basis: Basis | None = None
    ritz: RitzValues | None = None
    products: int = 0
    pause: int = 0
    filling: bool = False
    products_before: int = 0

    def look(self, basis: Basis, k: int, angle: float) -> None:
        """Measure, and guess when the angle will be met: a step gains what Chebyshev's polynomials gain."""
        self.ritz = basis.ritz()
        self.values, self.residuals = self.ritz.values, self.ritz.residuals
        steps = basis.limit / basis.front
        bound, top = self.angle_bound(k), float(self.values[-1] + self.residuals[-1])
        small = basis.n_nodes <= SMALL  # there a look takes as long as several steps
        if angle == 0 or not angle < bound < (1 if small else math.inf):
            self.pause = math.ceil(steps if small else UNKNOWN * steps)
            return
        rate = Filter(1, float(self.values[k]), top).rate(float(self.values[k - 1]))
        self.pause = math.ceil(max(SOONEST * steps, math.log(bound / angle) / max(rate, 1e-9)))


@dataclass(frozen=True)
class Lanczos(RitzSolver[LanczosState]):
    """Thick-restart Lanczos (Wu and Simon 2000; Stewart's Krylov-Schur 2001), smallest eigenvalues.

    Definition: Rayleigh-Ritz on ``span{X, A X, .., A^p X}``; at a restart the best Ritz vectors and the
    residual stay, which keeps the space a Krylov space. Meaning: the best polynomial filter of each
    degree, found without knowing the spectrum.

    A block finds as many copies of a repeated eigenvalue as it has columns. A single vector finds one, but
    takes by far the fewest products: ``auto`` begins with one on small graphs, and goes on with a block
    method if the certificate's probe finds that some were missed.

    Cost: a pass for one block per step, and ``O(N basis_size)`` numbers of memory, whose orthogonalisation
    costs about as much as the passes. The fewest products of all methods; but since a pass for eight columns
    takes hardly longer than for one, ``chebyshev`` is mostly faster where passes are compiled. Geometric
    graphs, whose gaps are tiny, are for ``shift-invert``.

    Parameters
    ----------
    block_size
        Columns of the start; None is K, at most 8.
    basis_size
        Vectors before a restart; None is ``2 K + 20``, and at least ``K`` and ten blocks.
    precision
        ``"auto"`` keeps the basis in float32 until that limits the residual, then float64.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    """

    block_size: int | None = None
    basis_size: int | None = None
    precision: Literal["auto", "single", "double"] = "auto"
    angle: float = 0.0
    max_iter: int = 500

    name: ClassVar[str] = "lanczos"
    localization_check_at = 2

    def init(self, problem: Problem, rng: np.random.Generator) -> LanczosState:
        """A random block, led by the warm start if there is one."""
        n, k = problem.n_nodes, problem.n_components
        dtype = np.float64 if self.precision == "double" else np.float32
        size = max(1, self.block_size or min(k, LANES))
        if problem.start is not None:
            size = max(size, k)
        front = self._front(problem, rng, min(size, n), dtype)
        size = front.shape[1]
        limit = max(self.basis_size or max(2 * k + 20, k + 10 * size), k + 2 + size)
        state = LanczosState(np.empty((0, 0)), rng, pause=limit if n <= SMALL else 0)
        if n > limit + 2 * size:
            state.basis = Basis(problem.engine, problem.standard.operator, front, limit)
        return self._shown(problem, state, front)

    def _front(self, problem: Problem, rng: np.random.Generator, size: int, dtype: Any) -> MultiVector:
        """The first block, orthonormal."""
        engine, start, parts = problem.engine, problem.start_on_engine(dtype), []
        if start is not None:
            parts = [problem.standard.transform(start)]
        missing = size - sum(part.shape[1] for part in parts)
        if missing > 0:
            parts.append(engine.random(problem.n_nodes, missing, new_seed(rng), dtype))
        return orthonormalize(engine, engine.hstack(*parts), None, rng).Q

    def step(self, problem: Problem, state: LanczosState) -> LanczosState:
        """One cycle: fill the basis, take Ritz vectors, restart."""
        k, width = problem.n_components, problem.operator.upper - problem.operator.lower
        if state.basis is None:
            return self._exact(problem, state)
        if not state.filling:  # else this cycle was left at a product, and goes on
            single = state.basis.dtype == np.float32
            if single and self.precision == "auto" and state.residuals[:k].max() < SINGLE_FLOOR * width:
                state.basis = self._doubled(problem, state.basis, state.rng)
            state.filling, state.products_before = True, state.basis.products
        self.fill(problem, state, state.basis)
        self._restart(problem, state, state.basis)
        state.filling = False
        self.account(problem, state, state.basis.products - state.products_before)
        return state

    def snapshots_are_copies(self, state: LanczosState) -> bool:
        """They share the basis, which grows by whole blocks."""
        return state.basis is None

    def fill(self, problem: Problem, state: LanczosState, basis: Basis) -> None:
        """Mutates the basis: full, or as large as the angle takes."""
        k = problem.n_components
        while True:
            basis.expand(state.rng)
            state.pause -= 1
            if basis.full or (self.angle > 0 and state.pause <= 0 and basis.done > k + 1):
                state.look(basis, k, self.angle)
                if basis.full or state.angle_bound(k) <= self.angle:
                    return

    def _restart(self, problem: Problem, state: LanczosState, basis: Basis) -> None:
        """Mutates: Ritz vectors, and a basis that begins with them."""
        k, ritz = problem.n_components, state.ritz
        assert ritz is not None
        keep = min(basis.done - 1, k + max(1, round(KEPT * (basis.done - k))))
        basis.restart(ritz, keep)
        state.values, state.residuals = ritz.values[:keep], ritz.residuals[:keep]
        state.products = basis.products
        state.U = problem.standard.inverse_transform(basis.vectors.columns(0, k))

    def evidence(self, problem: Problem, state: LanczosState) -> Evidence:
        """Those of the kept Ritz vectors that may be accurate enough."""
        k = problem.n_components
        known = super().evidence(problem, state)
        n = min(len(state.values) - k - 1, MOST_GUARDS)
        if state.basis is None or n < 1 or state.basis.products != state.products:  # it went on without us
            return known
        vectors = problem.standard.inverse_transform(state.basis.vectors.columns(k, k + n))
        return replace(known, guards=Guards(vectors, state.values[k : k + n], state.residuals[k : k + n]))

    def _doubled(self, problem: Problem, basis: Basis, rng: np.random.Generator) -> Basis:
        """Go on in float64 with the Ritz vectors as the first block: a float32 basis is no basis there."""
        X = problem.engine.astype(basis.vectors.columns(0, problem.n_components + 2), np.float64)
        front = orthonormalize(problem.engine, X, None, rng).Q
        return Basis(problem.engine, basis.operator, front, max(basis.limit, 3 * front.shape[1]))

    def _shown(self, problem: Problem, state: LanczosState, X: MultiVector) -> LanczosState:
        """The start, padded to K and not yet measured: nothing is known of it."""
        k, lower, upper = problem.n_components, problem.operator.lower, problem.operator.upper
        engine, missing = problem.engine, k - X.shape[1]
        if missing > 0:
            X = engine.hstack(X, engine.from_numpy(np.eye(problem.n_nodes, missing, dtype=X.dtype)))
        state.U = problem.standard.inverse_transform(engine.columns(X, slice(k)))
        state.values, state.residuals = np.full(k, (lower + upper) / 2), np.full(k, (upper - lower) / 2)
        return state

    def _exact(self, problem: Problem, state: LanczosState) -> LanczosState:
        """A basis as large as the graph is the whole space."""
        k = problem.n_components
        values, vectors = la.eigh(problem.operator.standard_form().to_dense())
        state.values, state.residuals = values, np.full(len(values), 1e-15)
        state.U = problem.standard.inverse_transform(problem.engine.from_numpy(vectors[:, :k]))
        self.account(problem, state, problem.n_nodes)
        state.done = True
        return state


# --- ``lanczos`` in few sweeps: block Krylov with K and a few columns, in whose sweeps a probe rides along.

MOST_BLOCKS = 12  # of a basis, unless told otherwise: as many sweeps before a restart


@dataclass(eq=False)
class BlockLanczosState(LanczosState):
    """``probe_block`` shares the sweeps; ``extra`` of them were made for it alone, the angle being met."""

    probe_block: ProbeBlock | None = None
    extra: int = 0


@dataclass(frozen=True)
class FewPassLanczos(Lanczos):
    """See the module's text; parameters are those of :class:`Lanczos`."""

    def init(self, problem: Problem, rng: np.random.Generator) -> BlockLanczosState:
        """As in memory, with a wide block and a probe_block; no sweep yet."""
        width = self.block_size or guarded_width(problem, None)
        wide = replace(self, block_size=width, basis_size=self.basis_size or MOST_BLOCKS * width)
        begun = Lanczos.init(wide, problem, rng)
        state = BlockLanczosState(**{field.name: getattr(begun, field.name) for field in fields(begun)})
        if state.basis is not None:
            form, dtype = problem.operator.standard_form(), state.basis.dtype
            state.probe_block = new_probe_block(problem.engine, form, rng, dtype)
        return state

    def fill(self, problem: Problem, state: LanczosState, basis: Basis) -> None:
        """Mutates the basis and the probe_block: full, or as large as the angle takes."""
        assert isinstance(state, BlockLanczosState)
        assert state.probe_block is not None
        k, engine = problem.n_components, problem.engine
        while True:
            probe_block = state.probe_block
            if probe_block.X.dtype != basis.dtype:  # it goes on in double precision
                cast = (engine.astype(X, basis.dtype) for X in (probe_block.X, probe_block.before))
                probe_block = replace(probe_block, **dict(zip(("X", "before"), cast, strict=True)))
            product = basis.expand(state.rng, probe_block.X)
            state.look(basis, k, self.angle)
            if not probe_block.filters:
                probe_block = probe_block.beginning(*self._ends(problem, state))
                if has_hubs(problem.operator):  # a recurrence of its own takes fewer passes than its filter
                    state.extra = MOST_MORE
            state.probe_block = self._advanced(problem, state, probe_block, product)
            if basis.full or (basis.done > k + 1 and state.angle_bound(k) <= self.angle):
                return

    def _ends(self, problem: Problem, state: LanczosState) -> tuple[float, float]:
        """Of the bulk of the spectrum, by the first products of random vectors: a semicircle's."""
        operator, k = problem.operator.standard_form(), problem.n_components
        first = k if len(state.values) > k else 0
        mean, deviation = float(state.values[first:].mean()), float(state.residuals[first:].mean())
        bulk = bulk_of(operator, mean, deviation)
        width = operator.upper - operator.lower
        if bulk.has_hubs:  # they are most of the width
            width = bulk.mean + 2 * bulk.deviation - operator.lower
        cut = min(max(bulk.low, operator.lower + 0.05 * width), operator.upper - 0.05 * width)
        return cut, min(operator.upper, max(bulk.end, cut + 0.05 * width))

    def _advanced(
        self, problem: Problem, state: BlockLanczosState, probe_block: ProbeBlock, product: MultiVector
    ) -> ProbeBlock:
        """One degree later; or at the beginning again, where its filter is seen to end too low."""
        engine, operator = problem.engine, problem.standard.operator
        grown = len(probe_block.lengths) > 1 and probe_block.lengths[-1] > GROWN * probe_block.lengths[0]
        if not grown or probe_block.filters[-1].upper >= operator.upper:
            return probe_block.advanced(engine, operator, product)
        cut, dtype = probe_block.filters[-1].cut, probe_block.X.dtype
        state.events.append(
            f"iteration {state.iteration}: the spectrum goes on beyond "
            f"{probe_block.filters[-1].upper:.4g}, where "
            f"the filter of the probe was to end; the probe began again, up to {operator.upper:.4g}"
        )
        fresh = new_probe_block(engine, problem.operator.standard_form(), state.rng, dtype)
        return fresh.beginning(cut, operator.upper)

    def terminate(self, problem: Problem, state: LanczosState) -> bool:
        """Whether the angle is met and the probe_block has seen enough, or will not."""
        if not super().terminate(problem, state):
            return False
        if state.done or not isinstance(state, BlockLanczosState):
            return True
        seen, state.extra = self._seen(problem, state), state.extra + 1
        if seen is None or state.extra > MOST_MORE:
            return True
        tau = self._tau(problem, state, seen.lowest)
        return seen.odds_below(tau) <= ENOUGH or seen.best_odds(tau) > ENOUGH or tau >= seen.filters[-1].cut

    def _tau(self, problem: Problem, state: LanczosState, lowest: float) -> float:
        k = problem.n_components
        residual = float(np.linalg.norm(state.residuals[:k]))
        return needed_cut(float(state.values[k - 1]), lowest, residual)

    def _seen(self, problem: Problem, state: BlockLanczosState) -> BlockProbeEvidence | None:
        k, engine, operator = problem.n_components, problem.engine, problem.standard.operator
        if state.probe_block is None or not state.probe_block.filters or len(state.values) <= k:
            return None
        U = problem.standard.transform(engine.astype(state.U, state.probe_block.X.dtype))
        lowest = float(state.values[k] - state.residuals[k])
        lowest = lowest if lowest > state.values[k - 1] else float(state.values[k])
        return evidence_from_block(
            engine, operator, state.probe_block, orthonormalize(engine, U, None).Q, lowest, LOOKS
        )

    def complement_bound(self, problem: Problem, state: LanczosState) -> ComplementBound | None:
        """What the probe_block has seen."""
        return self._seen(problem, state) if isinstance(state, BlockLanczosState) else None
