"""``chebyshev`` in few sweeps: for graphs on disk and on clusters, where reading the edges takes the time.

The same method, with four differences. (1) Nothing is swept only to measure: the first product tells where
the spectrum lies, and each product of a Rayleigh-Ritz is the first degree of the next filter and, if it is
the last, that of the certificate. (2) The columns of a probe ride along in every sweep. (3) From a random
start the first filter ends when it has done enough, which the singular values of the filtered block show: K
of them stand out of the others, which are noise. (4) The spectrum is taken to end where a semicircle of the
same variance ends, until Ritz values say otherwise.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.certificate.evidence import Complement
from spectrograd.certificate.localization import TINY_SHARE
from spectrograd.certificate.probe import Evidence, MeasuredRitz
from spectrograd.certificate.riding_probe import Rider, longest, look_further, new_rider
from spectrograd.engines.protocol import Tall
from spectrograd.linalg.filters import Filter, Filtering
from spectrograd.linalg.subspace import Ritz, inverse_factor, orthonormalize
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.chebyshev import SINGLE_FLOOR, Chebyshev, ChebyshevState
from spectrograd.solvers.protocol import Problem, Solver
from spectrograd.solvers.ritz import generalized_ritz, guarded_start, guarded_width

Array = NDArray[Any]
# The residual that an angle asks for is dearer than the angle itself: errors lie in the bulk of the spectrum,
# some three gaps away; but the gap to the first guard vector is a gap and a half.
RESIDUAL_OVER_ANGLE = 2.0
# Largest over smallest singular value from which columns are turned to the singular vectors, each of unit
# length: rounding errors of the largest then stay with it.
UNEVEN = 100.0
BETWEEN_LOOKS = 2  # degrees after which a first filter looks whether its vectors are localised


@dataclass(eq=False)
class SweepingState(ChebyshevState):
    """``product`` is ``B^-1 A`` of the block and the rider's columns, side by side (N x (w + s))."""

    rider: Rider | None = None
    product: Tall | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> SweepingState:
        twin = copy.copy(self)  # talls are replaced, never changed
        twin.events, twin.rng = list(self.events), copy.deepcopy(self.rng, memo)
        return twin


@dataclass(frozen=True)
class FewSweepsChebyshev(Chebyshev):
    """See the module's text; parameters are those of :class:`Chebyshev`."""

    rough_after = 1

    def suited(self, problem: Problem) -> Solver[Any]:
        """Itself."""
        return self

    def init(self, problem: Problem, rng: np.random.Generator) -> SweepingState:
        """A random block, or the warm start with random guard vectors; one sweep."""
        dtype = np.float64 if self.precision == "double" else np.float32
        block = guarded_start(problem, guarded_width(problem, self.guard), rng, dtype)
        if problem.operator.rows_aside is not None:  # else they would have to be filtered out
            part = np.ones((problem.n_nodes, 1))
            part[problem.operator.rows_aside] = 0
            block = problem.engine.scaled(block, problem.engine.put(part))
        state = SweepingState(np.empty((0, 0)), rng, block=block, highest=problem.operator.upper)
        state.rider = new_rider(problem.engine, problem.operator.walk_form(), rng, dtype)
        if problem.start is None:
            self._first_product(problem, state)
        else:
            self._ritz(problem, state)
        state.passes += block.shape[1] / problem.n_components
        return state

    def _first_product(self, problem: Problem, state: SweepingState) -> None:
        """Mutates: mean and deviation of the spectrum, from the product that begins the first filter."""
        engine, walk, width = problem.engine, problem.walk.operator, state.block.shape[1]
        both = self._both(problem, state)
        state.product = engine.recurrence(walk, both, both, (1.0, 0.0, 0.0))
        own = engine.columns(state.product, slice(width))
        pairs = ((state.block, state.block), (state.block, own), (own, own))
        squares, first, second = (np.diag(M) for M in engine.grams(pairs, walk.metric))
        means, second = first / squares, second / squares
        deviation = float(np.sqrt(np.maximum(second - means**2, 0)).mean())
        state.values, state.residuals = np.full(width, means.mean()), np.full(width, deviation)
        state.highest = min(walk.upper, float(means.mean()) + 2 * deviation)
        state.U = problem.walk.leave(engine.columns(state.block, slice(problem.n_components)))

    def _both(self, problem: Problem, state: SweepingState) -> Tall:
        assert state.rider is not None
        return problem.engine.stack(state.block, state.rider.X)

    def step(self, problem: Problem, state: SweepingState) -> SweepingState:  # type: ignore[override]
        """One filter and one Rayleigh-Ritz, whose product is the first of the next filter."""
        operator, k, width = problem.walk.operator, problem.n_components, state.block.shape[1]
        limit = SINGLE_FLOOR * (operator.upper - operator.lower)
        if self.precision == "auto" and state.block.dtype == np.float32 and state.residuals[:k].max() < limit:
            self._double(problem, state)
        if state.values[-1] > state.highest:  # the spectrum does not end there after all
            state.highest = operator.upper
        smooth = self.next_filter(problem, state, (operator.lower, state.highest))
        degree, localized = self._filter(problem, state, smooth)
        if localized:
            self._show(problem, state)
        else:
            self._ritz(problem, state)
        return self.account(problem, state, degree * width)  # type: ignore[return-value]

    def _show(self, problem: Problem, state: SweepingState) -> None:
        """Mutates: K filtered columns, not measured: whoever watches decides whether to go on."""
        Q = orthonormalize(problem.engine, state.block, problem.walk.operator.metric, state.rng).Q
        state.block, state.product = Q, None
        state.U = problem.walk.leave(problem.engine.columns(Q, slice(problem.n_components)))

    def _double(self, problem: Problem, state: SweepingState) -> None:
        """Mutates: block and rider go on in double precision."""
        cast, rider = problem.engine.cast, state.rider
        assert rider is not None
        state.block, state.product = cast(state.block, np.float64), cast(state.product, np.float64)
        state.rider = replace(rider, X=cast(rider.X, np.float64), before=None)

    def _filter(self, problem: Problem, state: SweepingState, smooth: Filter) -> tuple[int, bool]:
        """Mutates: block and rider, filtered; how many degrees, and whether localised vectors ended it."""
        engine, walk, rider, width = problem.engine, problem.walk.operator, state.rider, state.block.shape[1]
        assert rider is not None
        fresh = state.iteration == 0 and problem.start is None
        most, sizes = self.degree if fresh else smooth.degree, _Sizes(width)
        work = Filtering(smooth, engine, walk, self._both(problem, state), state.product, owned=True)
        # Its columns are in the filter's own block from here on; the last good state has its own.
        state.product, state.block, state.rider = None, None, None
        lengths, localized, M = [], False, engine.gram(work.current, work.current, walk.metric)
        while work.degree < most:
            lengths.append(longest(M[width:, width:]))
            work.sweep()
            M = engine.gram(work.current, work.current, walk.metric)
            sizes.measure(M[:width, :width])
            if fresh and sizes.error(problem.n_components) * RESIDUAL_OVER_ANGLE <= (self.angle or 1e-3):
                break
            localized = (
                fresh and work.degree % BETWEEN_LOOKS == 0 and self._localized(problem, work.current, width)
            )
            if localized:
                break
            if sizes.uneven:
                turn = la.block_diag(sizes.evened(), np.eye(len(M) - width))
                work.rotate(turn)
                M = turn.T @ M @ turn
        done, found = replace(smooth, degree=work.degree), work.current
        del work
        state.rider = rider.after(done, engine.columns(found, slice(width, None)), tuple(lengths))
        state.block = engine.columns(found, slice(width))
        return done.degree, localized

    def _localized(self, problem: Problem, X: Tall, width: int) -> bool:
        """Whether most of the first ``width`` columns live on tiny parts of the graph already."""
        seen = problem.engine.statistics(X, problem.walk.operator.metric)
        shares = X.shape[1] * seen.second**2 / (seen.fourth * seen.mass)
        return float(np.median(shares[:width])) < TINY_SHARE

    def _ritz(self, problem: Problem, state: SweepingState) -> None:
        """Mutates: Ritz pairs of the block, and the product with them and the rider; one sweep."""
        engine, walk, rider = problem.engine, problem.walk.operator, state.rider
        assert rider is not None
        block, state.block = state.block, None
        both, lost = self._orthonormal(problem, state, block)
        del block
        product = engine.recurrence(walk, both, both, (1.0, 0.0, 0.0))
        width = both.shape[1] - rider.X.shape[1]
        grams = engine.grams(((both, product), (both, both)), walk.metric)
        H, M = (found[:width, :width] for found in grams)
        values, rotation = generalized_ritz(H, M)
        turn = la.block_diag(rotation, np.eye(rider.X.shape[1]))
        both = engine.combine(both, turn)
        state.product = engine.combine(product, turn)
        del product
        ends = np.concatenate([values, np.zeros(rider.X.shape[1])])
        rest = engine.combine(state.product, np.eye(len(ends)), both, -np.diag(ends))
        squares = np.diag(engine.gram(rest, rest, walk.metric))[:width]
        del rest
        ritz = Ritz(values, engine.columns(both, slice(width)), None)
        self.told(problem, state, ritz, np.sqrt(np.maximum(squares, 0)), lost)

    def _orthonormal(self, problem: Problem, state: SweepingState, block: Tall) -> tuple[Tall, int]:
        """The block, nearly orthonormal after one round, beside the rider; and how many directions were lost.

        What one round leaves the generalised Rayleigh-Ritz corrects.
        """
        engine, metric, rider = problem.engine, problem.walk.operator.metric, state.rider
        assert rider is not None
        factor, lost = inverse_factor(engine.gram(block, block, metric))
        Q = engine.combine(block, factor) if not lost else block
        if lost:
            Q, lost = orthonormalize(engine, block, metric, state.rng)
        return engine.stack(Q, rider.X), lost

    def finish(self, problem: Problem, state: SweepingState) -> Tall:  # type: ignore[override]
        """In the precision of the run: where the certificate wants more, it casts."""
        return problem.orthonormalize(state.U).Q

    def evidence(self, problem: Problem, state: SweepingState) -> Evidence:  # type: ignore[override]
        """The last product too, where the engine keeps enough digits of it."""
        known, k, operator = super().evidence(problem, state), problem.n_components, problem.operator
        if not (problem.engine.sums_in_pieces and isinstance(operator, SparseOperator)):
            return known
        if state.product is None or state.iteration == 0 or len(state.values) < k:
            return known
        ritz = Ritz(state.values[:k], state.U, None)
        rounding = operator.rounding(state.U.dtype, pieced=True)
        return replace(known, last=MeasuredRitz(ritz, state.residuals[:k], rounding))

    def outside(self, problem: Problem, state: SweepingState) -> Complement | None:  # type: ignore[override]
        """What the rider has seen, and with a few sweeps more still sees."""
        k, engine, walk, rider = problem.n_components, problem.engine, problem.walk.operator, state.rider
        if rider is None or state.block is None or len(state.values) <= k or state.iteration == 0:
            return None
        state.product = None  # the last sweep is over
        Q = engine.columns(state.block, slice(k))
        Q = Q if rider.null is not None else orthonormalize(engine, Q, walk.metric).Q  # else done with it
        ritz, residual = Ritz(state.values[:k], Q, None), float(np.linalg.norm(state.residuals[:k]))
        top, cut = float(state.values[k - 1]), float(state.values[-1])
        lowest = float(state.values[k] - state.residuals[k])  # guard vectors are rough
        lowest = lowest if lowest > top else float(state.values[k])
        return look_further(engine, walk, rider, ritz, lowest, cut, residual)


class _Sizes:
    """Singular values of a random block (``width`` columns) on its way through a filter.

    ``factor`` makes of the block as it is now, orthonormal or nearly so, the one without the turns taken.
    """

    def __init__(self, width: int) -> None:
        self.undo, self.factor = np.eye(width), np.eye(width)

    def measure(self, M: Array) -> None:
        """Mutates: look at the Gram matrix of the block as it is."""
        squares, V = la.eigh((M + M.T) / 2)
        if not squares[-1] > 0:
            raise FloatingPointError("the filter lost all vectors")
        self.roots, self.V = np.sqrt(np.maximum(squares, 1e-14 * squares[-1])), V
        self.factor = (self.roots[:, None] * V.T) @ self.undo

    @property
    def uneven(self) -> bool:
        """Whether rounding errors of the largest direction are about to cover the others."""
        return bool(self.roots[-1] > UNEVEN * self.roots[0])

    def evened(self) -> Array:
        """Mutates: the turn that makes the block orthonormal is to be undone in what is measured."""
        self.undo = self.factor
        return np.asarray(self.V / self.roots)

    def error(self, k: int) -> float:
        """About the sine of the angles of K directions, added up: their share of the noise.

        The other singular values are that of the rest of the spectrum, noise of one size in all directions.
        """
        squares = la.svdvals(self.factor) ** 2
        if len(squares) == k:
            return 0.0
        noise = squares[k:].mean()
        return float(np.sqrt((noise / np.maximum(squares[:k] - noise, 1e-300)).sum()))


def in_few_sweeps(solver: Chebyshev) -> FewSweepsChebyshev:
    """The same settings in the form that takes few sweeps."""
    return FewSweepsChebyshev(**{field.name: getattr(solver, field.name) for field in fields(solver)})
