"""``shift-invert``: sparse direct factorisation and filtered subspace iteration on the inverse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.engines.filters import Filter
from spectrograd.factor import Factor
from spectrograd.fill import estimated_fill
from spectrograd.laplacian import Operator
from spectrograd.solvers.protocol import Problem, State
from spectrograd.solvers.ritz import RitzSolver, RitzState, guarded_start

Array = NDArray[Any]
SPREAD = 1e4  # how much of another vector a column may hold before Rayleigh-Ritz cannot tell them apart
MOST_SOLVES = 30  # with eight columns; what another factorisation costs
BYTES_PER_ENTRY = 12  # a float64 and its row number


@dataclass(frozen=True)
class RationalFilter(Filter):
    """A Chebyshev polynomial of ``1 / (A - pole)``: bounded by one above the cut, growing below it."""

    pole: float

    def rate(self, value: float) -> float:
        """What each degree adds to ``log |p(value)|``; 0 above the cut."""
        t = 2 * (self.cut - self.pole) / (value - self.pole) - 1
        return math.acosh(t) if t > 1 else 0.0

    def through(self, inverse: Inverse, X: Array) -> Array:
        """``p(T) X`` by the three-term recurrence; one solve per degree."""
        scale = 2 * (self.cut - self.pole)
        previous = inverse.enter(X)
        current = scale * inverse.apply(previous) - previous
        for _ in range(self.degree - 1):
            following = inverse.apply(current)
            following *= 2 * scale
            following -= 2 * current
            following -= previous
            previous, current = current, following
        return inverse.leave(current, X.shape[1])


@dataclass(frozen=True, eq=False)
class Inverse:
    """``T = (A - pole B)^-1 B`` by a sparse factorisation and Woodbury's formula, in the factor's own order.

    ``(S - Z a Z')^-1 = S^-1 + S^-1 Z (a^-1 - Z' S^-1 Z)^-1 Z' S^-1`` with ``SZ = S^-1 Z``.
    """

    factor: Factor
    metric: Array | None
    Z: Array | None = None
    SZ: Array | None = None
    small: Any = None

    @classmethod
    def of(cls, operator: Operator, pole: float) -> Inverse:
        """Factorise; a breakdown is an error."""
        factor = Factor.of(operator, pole)
        if factor is None:
            raise ValueError("shift-invert: the factorisation broke down; use 'lanczos' or 'chebyshev'")
        metric = None if operator.metric is None else factor.enter(operator.metric[:, None])[:, :1]
        if operator.low_rank is None:
            return cls(factor, metric)
        kept = operator.low_rank.coefficients != 0
        Z, a = factor.enter(operator.low_rank.factors[:, kept]), operator.low_rank.coefficients[kept]
        SZ, r = factor.solve_inside(Z.copy()), len(a)
        small = la.lu_factor(np.diag(1 / a) - Z[:, :r].T @ SZ[:, :r])
        return cls(factor, metric, Z[:, :r], SZ[:, :r], small)

    def enter(self, X: Array) -> Array:
        """A padded copy in the factor's order."""
        return self.factor.enter(X)

    def leave(self, X: Array, n_columns: int) -> Array:
        """Back in the order of the nodes."""
        return np.ascontiguousarray(self.factor.leave(X)[:, :n_columns])

    def apply(self, X: Array) -> Array:
        """``T X``."""
        Y = self.factor.solve_inside(X.copy() if self.metric is None else self.metric * X)
        if self.Z is not None:
            Y += self.SZ @ la.lu_solve(self.small, self.Z.T @ Y)
        return Y


@dataclass(eq=False)
class FactoredState(RitzState):
    """A state that keeps the factorisation."""

    inverse: Inverse | None = None
    pole: float = 0.0
    most: int = 1  # solves per step


@dataclass(frozen=True)
class ShiftInvert(RitzSolver):
    """Subspace iteration with Chebyshev polynomials of ``(A + shift B)^-1 B``, factored by SuperLU.

    Definition: ``U <- Ritz(T_m(S) U)`` where S maps the inverse's eigenvalues beyond the guard vectors to
    [-1, 1]. The inverse's wanted eigenvalues are large and far apart, so a few solves find them
    whatever the gap. Low-rank parts enter through the Woodbury formula.

    Cost: that of the factor, which is the number of entries it fills. Road networks, meshes and k-NN
    graphs of points in the plane fill little: exact in seconds. Block models and social graphs fill
    almost everything: :func:`estimated_fill` says so first, and the solver refuses.

    Parameters
    ----------
    shift
        Relative to the width of the spectrum; makes the matrix definite although L is singular.
    degree
        Most solves per step.
    guard
        Extra columns; None fills up to a multiple of 8, which costs no more.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    memory_limit
        Bytes the factor may take by the estimate; above that a ValueError.
    """

    shift: float = 1e-5
    degree: int = 30
    guard: int | None = None
    angle: float = 0.0
    memory_limit: float = 2e9
    max_iter: int = 100

    name: ClassVar[str] = "shift-invert"

    def init(self, problem: Problem, rng: np.random.Generator) -> FactoredState:
        """Estimate the fill, and refuse before any work is done; factorise, and smooth a random block."""
        needed = 2 * BYTES_PER_ENTRY * estimated_fill(problem.operator.graph)
        if needed > self.memory_limit:
            raise ValueError(
                f"shift-invert: the factor would take about {needed / 1e9:.2g} GB, the limit is "
                f"{self.memory_limit / 1e9:.2g} GB; use 'lanczos' or 'chebyshev', or raise memory_limit"
            )
        operator = problem.operator.walk_form().astype(np.float64)
        pole = operator.lower - self.shift * (operator.upper - operator.lower)
        inverse = Inverse.of(operator, pole)
        block = guarded_start(problem, self._width(problem), rng, np.float64)
        state = FactoredState(np.empty((0, 0)), rng, block=block, inverse=inverse, pole=pole)
        state.most = self.degree
        if problem.start is None:
            state.filters = ()
            smooth = inverse.apply(inverse.apply(inverse.enter(block)))  # nothing is known yet
            state.block = inverse.leave(smooth, block.shape[1])
        state.block = _unit_columns(state.block)
        self.measured(problem, operator, state)
        return state

    def _width(self, problem: Problem) -> int:
        k = problem.n_components
        guard = 3 + -(k + 3) % 8 if self.guard is None else self.guard
        return min(k + guard, problem.n_nodes)

    def step(self, problem: Problem, state: State) -> FactoredState:
        """One filter and one Rayleigh-Ritz."""
        assert isinstance(state, FactoredState)
        assert state.inverse is not None
        operator = problem.operator.walk_form().astype(np.float64)
        smooth = self._next_filter(problem, operator, state)
        state.block = _unit_columns(smooth.through(state.inverse, state.block))
        if state.filters is not None:
            state.filters = (*state.filters, smooth)
        self.measured(problem, operator, state)
        self.account(problem, state, len(state.values))
        exact = 1e-13 * (operator.upper - operator.lower)
        state.done = state.done or bool(state.residuals[: problem.n_components].max() < exact)
        return state

    def _next_filter(self, problem: Problem, operator: Operator, state: FactoredState) -> RationalFilter:
        """As much as is missing, and no more than keeps the first vector from drowning the K-th."""
        k = problem.n_components
        evidence = state.owed > 0
        top, high = float(state.values[k - 1]), float(state.values[k if evidence else -1])
        high = max(high, top + 1e-12 * (operator.upper - operator.lower))
        unit = RationalFilter(1, high, operator.upper, state.pole)
        if evidence:
            wanted = unit.degree_for(state.owed, self.tau(state, k))
        else:
            missing = 3 * state.angle_bound(k) / self.angle if self.angle > 0 else np.inf
            wanted = math.log(2 * float(np.clip(missing, 10, 1e6))) / max(unit.rate(top), 1e-9)
        degree = int(np.clip(math.floor(min(wanted + 1, _allowed(unit, state, k))), 1, state.most))
        return RationalFilter(degree, high, operator.upper, state.pole)

    def back_off(self, problem: Problem, state: State) -> State | None:
        """Shorter filters: the first vectors drowned the others."""
        assert isinstance(state, FactoredState)
        state.most //= 2
        state.events.append(f"iteration {state.iteration}: diverged, at most {state.most} solves per step")
        return state if state.most > 0 else None

    def worth_proving(self, state: RitzState, degrees: float) -> bool:
        """The other way is to count the eigenvalues by a second factorisation."""
        return degrees * -(-len(state.values) // 8) <= MOST_SOLVES


def _allowed(unit: RationalFilter, state: RitzState, k: int) -> float:
    """The degree up to which no vector drowns the K-th column, which holds ``residual / distance`` of it."""
    top = float(state.values[k - 1])
    most = math.inf
    for value, residual in zip(state.values[: k - 1], state.residuals[: k - 1], strict=True):
        growth = unit.rate(float(value)) - unit.rate(top)
        if growth > 1e-9:
            held = max(float(residual) / (top - float(value)), 1e-14)
            most = min(most, math.log(max(SPREAD / held, 1.0)) / growth)
    return most


def _unit_columns(X: Array) -> Array:
    """Columns of length one, so that the Gram matrix is of one scale; zeros stay zeros."""
    X = X / np.maximum(np.abs(X).max(axis=0), 1e-300)
    return np.asarray(X / np.maximum(np.linalg.norm(X, axis=0), 1e-300))
