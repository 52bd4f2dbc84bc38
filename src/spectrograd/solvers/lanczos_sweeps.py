"""``lanczos`` in few sweeps: block Krylov with K and a few columns, in whose sweeps a probe rides along.

Blocks as wide as what is looked for take the fewest sweeps of all methods, and as many columns of memory as
they have sweeps; what does not fit is restarted. After the first product the Ritz values tell where the
filter of the probe has to lie; the run ends when the angle is met and the probe has seen enough.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate.evidence import ENOUGH, Complement, needed_cut
from spectrograd.certificate.riding_probe import LOOKS, MOST_MORE, Ridden, Rider, look_at, new_rider
from spectrograd.engines.protocol import Tall
from spectrograd.linalg.filters import GROWN, bulk_of, has_hubs
from spectrograd.linalg.krylov import Basis
from spectrograd.linalg.subspace import orthonormalize
from spectrograd.solvers.lanczos import Lanczos, LanczosState
from spectrograd.solvers.protocol import Problem, Solver
from spectrograd.solvers.ritz import guarded_width

Array = NDArray[Any]
MOST_BLOCKS = 12  # of a basis, unless told otherwise: as many sweeps before a restart


@dataclass(eq=False)
class RidingState(LanczosState):
    """``rider`` shares the sweeps; ``extra`` of them were made for it alone, the angle being met."""

    rider: Rider | None = None
    extra: int = 0


@dataclass(frozen=True)
class FewSweepsLanczos(Lanczos):
    """See the module's text; parameters are those of :class:`Lanczos`."""

    def suited(self, problem: Problem) -> Solver[Any]:
        """Itself."""
        return self

    def init(self, problem: Problem, rng: np.random.Generator) -> RidingState:
        """As in memory, with a wide block and a rider; no sweep yet."""
        width = self.block_size or guarded_width(problem, None)
        wide = replace(self, block_size=width, basis_size=self.basis_size or MOST_BLOCKS * width)
        begun = Lanczos.init(wide, problem, rng)
        state = RidingState(**{field.name: getattr(begun, field.name) for field in fields(begun)})
        if state.basis is not None:
            form, dtype = problem.operator.standard_form(), state.basis.dtype
            state.rider = new_rider(problem.engine, form, rng, dtype)
        return state

    def fill(self, problem: Problem, state: LanczosState, basis: Basis) -> None:
        """Mutates the basis and the rider: full, or as large as the angle takes."""
        assert isinstance(state, RidingState)
        assert state.rider is not None
        k, engine = problem.n_components, problem.engine
        while True:
            rider = state.rider
            if rider.X.dtype != basis.dtype:  # it goes on in double precision
                cast = (engine.cast(X, basis.dtype) for X in (rider.X, rider.before))
                rider = replace(rider, **dict(zip(("X", "before"), cast, strict=True)))
            product = basis.expand(state.rng, rider.X)
            state.look(basis, k, self.angle)
            if not rider.filters:
                rider = rider.beginning(*self._ends(problem, state))
                if has_hubs(problem.operator):  # a recurrence of its own takes fewer passes than its filter
                    state.extra = MOST_MORE
            state.rider = self._advanced(problem, state, rider, product)
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

    def _advanced(self, problem: Problem, state: RidingState, rider: Rider, product: Tall) -> Rider:
        """One degree later; or at the beginning again, where its filter is seen to end too low."""
        engine, operator = problem.engine, problem.standard.operator
        grown = len(rider.lengths) > 1 and rider.lengths[-1] > GROWN * rider.lengths[0]
        if not grown or rider.filters[-1].upper >= operator.upper:
            return rider.advanced(engine, operator, product)
        cut, dtype = rider.filters[-1].cut, rider.X.dtype
        state.events.append(
            f"iteration {state.iteration}: the spectrum goes on beyond {rider.filters[-1].upper:.4g}, where "
            f"the filter of the probe was to end; the probe began again, up to {operator.upper:.4g}"
        )
        fresh = new_rider(engine, problem.operator.standard_form(), state.rng, dtype)
        return fresh.beginning(cut, operator.upper)

    def terminate(self, problem: Problem, state: LanczosState) -> bool:
        """Whether the angle is met and the rider has seen enough, or will not."""
        if not super().terminate(problem, state):
            return False
        if state.done or not isinstance(state, RidingState):
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

    def _seen(self, problem: Problem, state: RidingState) -> Ridden | None:
        k, engine, operator = problem.n_components, problem.engine, problem.standard.operator
        if state.rider is None or not state.rider.filters or len(state.values) <= k:
            return None
        U = problem.standard.enter(engine.cast(state.U, state.rider.X.dtype))
        lowest = float(state.values[k] - state.residuals[k])
        lowest = lowest if lowest > state.values[k - 1] else float(state.values[k])
        return look_at(engine, operator, state.rider, orthonormalize(engine, U, None).Q, lowest, LOOKS)

    def outside(self, problem: Problem, state: LanczosState) -> Complement | None:
        """What the rider has seen."""
        return self._seen(problem, state) if isinstance(state, RidingState) else None


def in_few_sweeps(solver: Lanczos) -> FewSweepsLanczos:
    """The same settings in the form that takes few sweeps."""
    return FewSweepsLanczos(**{field.name: getattr(solver, field.name) for field in fields(solver)})
