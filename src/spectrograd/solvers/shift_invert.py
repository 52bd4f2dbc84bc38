"""``shift-invert``: sparse direct factorisation and filtered subspace iteration on the inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la

from spectrograd.certificate.certificate import ComplementBound, probe_seed
from spectrograd.certificate.lanczos_probe import Evidence, run_inverse_probe
from spectrograd.engines.base import Coefficients, new_seed
from spectrograd.graph import Graph
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.linalg.ldl import Factor, estimate_fill, factor_bytes, max_factor_bytes
from spectrograd.linalg.subspace import Ritz
from spectrograd.operators.base import ALL
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.serialization.codec import DERIVED
from spectrograd.solvers.base import Problem
from spectrograd.solvers.ritz import RitzSolver, RitzState, guarded_start
from spectrograd.typing import Array

MAX_SPREAD = 1e4  # how much of another vector a column may hold before Rayleigh-Ritz cannot tell them apart


@dataclass(frozen=True)
class RationalFilter:
    """A Chebyshev polynomial of ``1 / (A - pole)``: bounded by one on [cut, upper], growing below the cut."""

    degree: int
    cut: float
    upper: float
    pole: float

    def rate(self, value: float) -> float:
        """Growth of ``log |p(value)|`` per degree; 0 above the cut."""
        # 1 / (value - pole) in [0, 1 / (cut - pole)] is mapped to [-1, 1]
        t = 2 * (self.cut - self.pole) / (value - self.pole) - 1
        return math.acosh(t) if t > 1 else 0.0

    def through(self, inverse: Inverse, X: Array) -> Array:
        """``p(T) X`` by the three-term recurrence; one solve per degree."""
        scale = 2 * (self.cut - self.pole)
        first = (scale, -1.0, 0.0)
        others = (2 * scale, -2.0, -1.0)
        return inverse.recur(X, [first] + [others] * (self.degree - 1))


@dataclass(frozen=True, eq=False)
class Woodbury:
    """A low-rank part: ``(S - Z a Z')^-1 = S^-1 + SZ (a^-1 - Z' SZ)^-1 SZ'`` with ``SZ = S^-1 Z``."""

    SZ: Array
    BSZ: Array
    small: Any

    @classmethod
    def of(cls, low_rank: LowRank, factor: Factor, metric: Array) -> Woodbury:
        """Solve for the factors; metric and result are in the factor's order."""
        nonzero = low_rank.coefficients != 0
        Z = low_rank.factors[:, nonzero]
        a = low_rank.coefficients[nonzero]
        # S^-1 Z (N x r), once for all solves
        SZ = factor.solve(Z)
        # a^-1 - Z'S^-1 Z (r x r): the capacitance matrix of Woodbury's formula; indefinite, so LU
        small = la.lu_factor(np.diag(1 / a) - Z.T @ SZ)
        inside = SZ[factor.order]
        return cls(inside, metric[:, None] * inside, small)

    def times(self, panels: Array) -> Array:
        """Coefficients of SZ in what is missing of ``T X``, for every panel X."""
        return np.array([la.lu_solve(self.small, self.BSZ.T @ X) for X in panels])


@dataclass(frozen=True, eq=False)
class Inverse:
    """``T = (A - pole B)^-1 B`` by a sparse factorisation and Woodbury's formula, in the factor's order."""

    factor: Factor
    metric: Array
    woodbury: Woodbury | None

    @classmethod
    def of(cls, operator: SparseOperator, pole: float, thresholds: Thresholds = USUAL) -> Inverse:
        """Factorise; a breakdown is an error."""
        factor = Factor.of(operator, pole, thresholds)
        if factor is None:
            raise ValueError("shift-invert: the factorisation broke down; use 'lanczos' or 'chebyshev'")
        metric = np.ones(operator.n_nodes) if operator.metric is None else operator.metric[factor.order]
        metric.flags.writeable = False  # as operators have it: the same compiled kernels
        low_rank = operator.low_rank
        return cls(factor, metric, None if low_rank is None else Woodbury.of(low_rank, factor, metric))

    def recur(self, X: Array, steps: Sequence[Coefficients]) -> Array:
        """Steps ``X_i+1 = a T X_i + b X_i + c X_i-1`` from X and zero; the last one's result."""
        return self.factor.inverse_transform(self.recur_panels(self.factor.transform(X), steps), X.shape[1])

    def recur_panels(self, current: Array, steps: Sequence[Coefficients]) -> Array:
        """Steps on panels in the factor's order; mutates the panels given, if there are several steps."""
        previous = np.zeros(current.shape)
        work = self.factor.workspace(current)
        for a, b, c in steps:
            # 1. the low-rank correction of T X_i, small: r x width
            missing = None if self.woodbury is None else a * self.woodbury.times(current)
            # 2. a S^-1 B X_i + b X_i + c X_i-1 by two triangular solves, in place of X_i-1
            self.factor.step(self.metric, current, previous, work, (a, b, c))
            if self.woodbury is not None:
                previous += self.woodbury.SZ @ missing
            # 3. the two blocks change places
            previous, current = current, previous
        return current


@dataclass(eq=False)
class FactoredState(RitzState):
    """A state that keeps the factorisation."""

    inverse: Inverse | None = field(default=None, metadata={DERIVED: True})
    pole: float = 0.0
    most: int = 1  # solves per step


@dataclass(frozen=True)
class ShiftInvert(RitzSolver[FactoredState]):
    """Subspace iteration with Chebyshev polynomials of ``(A + shift B)^-1 B``, by a sparse factorisation.

    Definition: ``U <- Ritz(T_m(S) U)`` where S maps the inverse's eigenvalues beyond the guard vectors to
    [-1, 1]. The inverse's wanted eigenvalues are large and far apart, so a few solves find them
    whatever the gap. Low-rank parts enter through the Woodbury formula.

    Cost: that of the factor, which is the number of entries it fills. Road networks, meshes and k-NN
    graphs of points in the plane fill little: exact in seconds. Block models and social graphs fill
    almost everything: an estimate says so first, and the solver refuses.

    Parameters
    ----------
    shift
        Relative to the width of the spectrum; makes the matrix definite although L is singular. None is
        0.2 / N: the K-th eigenvalue of a graph in the plane is about K / N, and the shift a part of that.
    degree
        Most solves per step.
    guard
        Extra columns; None fills up to a multiple of 8, which costs no more.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    memory_limit
        Bytes the factor may take by the estimate, else a ValueError; None: three quarters of all memory,
        infinite: nobody looks.
    """

    shift: float | None = None
    degree: int = 30
    guard: int | None = None
    angle: float = 0.0
    memory_limit: float | None = None
    max_iter: int = 100

    name: ClassVar[str] = "shift-invert"
    requires = ALL
    localization_check_at = 1

    @classmethod
    def extra_bytes(cls, graph: Graph) -> int:
        """The Cholesky factor, by an estimate of its fill."""
        return math.ceil(factor_bytes(estimate_fill(graph)))

    def init(self, problem: Problem, rng: np.random.Generator) -> FactoredState:
        """Estimate the fill, and refuse before any work is done; factorise, and smooth a random block."""
        # 1. the fill: refused before any work where the factor is too large
        limit = max_factor_bytes() if self.memory_limit is None else self.memory_limit
        needed = 0.0 if math.isinf(limit) else factor_bytes(estimate_fill(problem.sparse.graph))
        if needed > limit:
            raise ValueError(
                f"shift-invert: the factor would take about {needed / 1e9:.2g} GB, the limit is "
                f"{limit / 1e9:.2g} GB; use 'lanczos' or 'chebyshev', or raise memory_limit"
            )
        # 2. factor (A - pole B) = L D L', pole below the spectrum
        operator = problem.sparse.random_walk_form().astype(np.float64)
        pole = operator.lower - self._shift(problem) * (operator.upper - operator.lower)
        inverse = Inverse.of(operator, pole, problem.engine.thresholds)
        # 3. K columns and guards, smoothed by two solves, and their Ritz pairs
        block = guarded_start(problem, self._width(problem), rng, np.float32).astype(np.float64)
        state = FactoredState(np.empty((0, 0)), rng, block=block, inverse=inverse, pole=pole)
        state.most = self.degree
        if problem.start is None:
            state.block = inverse.recur(block, [(1.0, 0.0, 0.0)] * 2)  # nothing is known yet
        state.block = _unit_columns(state.block)
        self.take_ritz_pairs(problem, operator, state)
        return state

    def _shift(self, problem: Problem) -> float:
        return max(0.2 / problem.n_nodes, 1e-8) if self.shift is None else self.shift

    def _width(self, problem: Problem) -> int:
        k = problem.n_components
        guard = 3 + -(k + 3) % 8 if self.guard is None else self.guard
        return min(k + guard, problem.n_nodes)

    def step(self, problem: Problem, state: FactoredState) -> FactoredState:
        """One filter and one Rayleigh-Ritz."""
        assert state.inverse is not None
        operator = problem.sparse.random_walk_form().astype(np.float64)
        # 1. choose the filter: a Chebyshev polynomial of the inverse
        polynomial = self._next_filter(problem, operator, state)
        # 2. filter: one triangular solve per degree
        state.block = _unit_columns(polynomial.through(state.inverse, state.block))
        # 3. Rayleigh-Ritz with A itself: one pass
        self.take_ritz_pairs(problem, operator, state)
        self.account(problem, state, len(state.values))
        exact = 1e-13 * (operator.upper - operator.lower)
        state.done = state.done or bool(state.residuals[: problem.n_components].max() < exact)
        return state

    def _next_filter(
        self, problem: Problem, operator: SparseOperator, state: FactoredState
    ) -> RationalFilter:
        """The filter of a step: enough for the missing accuracy, and short enough for the K-th vector."""
        k = problem.n_components
        # The filter damps what lies above the last guard vector.
        top = float(state.values[k - 1])
        high = float(state.values[-1])
        # never below the K-th value: a filter between equal values would have no length
        high = max(high, top + 1e-12 * (operator.upper - operator.lower))
        unit = RationalFilter(1, high, operator.upper, state.pole)
        # T_m(rate) >= missing: acosh(x) is about log(2 x)
        missing = 3 * state.angle_bound(k) / self.angle if self.angle > 0 else np.inf
        sufficient = math.log(2 * float(np.clip(missing, 10, 1e6))) / max(unit.rate(top), 1e-9)
        degree = int(np.clip(math.floor(min(sufficient + 1, _max_degree(unit, state, k))), 1, state.most))
        return RationalFilter(degree, high, operator.upper, state.pole)

    def back_off(self, problem: Problem, state: FactoredState) -> FactoredState | None:
        """Shorter filters: the first vectors drowned the others."""
        state.most //= 2
        state.events.append(f"iteration {state.iteration}: diverged, at most {state.most} solves per step")
        return state if state.most > 0 else None

    def evidence(self, problem: Problem, state: FactoredState) -> Evidence:
        """Ritz values beyond the result; and another factorisation, which counts, is affordable."""
        return replace(self.guard_evidence(problem, state), countable=True)

    def terminate(self, problem: Problem, state: FactoredState) -> bool:
        """Whether the angle is met."""
        return self.angle_is_met(problem, state)

    def complement_bound(self, problem: Problem, state: FactoredState) -> ComplementBound | None:
        """Random vectors under the inverse, unless another factorisation, which counts, is as quick."""
        k = problem.n_components
        inverse = state.inverse
        if inverse is None or len(state.values) <= k or inverse.factor.quick:
            return None
        vectors = np.ascontiguousarray(state.block[:, :k])[inverse.factor.order]
        return run_inverse_probe(
            problem.engine,
            lambda X: inverse.recur_panels(X[None], [(1.0, 0.0, 0.0)])[0],
            inverse.metric,
            Ritz(state.values[:k], vectors, vectors[:0]),
            state.pole,
            np.random.default_rng(probe_seed(new_seed(state.rng), problem.operator, state.values[:k])),
            beyond=float(state.values[k]),
            residuals=state.residuals[:k],
        )


def _max_degree(unit: RationalFilter, state: RitzState, k: int) -> float:
    """The degree up to which no vector drowns the K-th column, which holds ``residual / distance`` of it."""
    top = float(state.values[k - 1])
    least = unit.rate(top)
    most = math.inf
    for value, residual in zip(state.values[: k - 1], state.residuals[: k - 1], strict=True):
        # After m degrees the share of this vector in column K has grown
        # by exp(m growth): stop below MAX_SPREAD.
        growth = unit.rate(float(value)) - least
        if growth > 1e-9:
            held = max(float(residual) / (top - float(value)), 1e-14)
            most = min(most, math.log(max(MAX_SPREAD / held, 1.0)) / growth)
    return most


def _unit_columns(X: Array) -> Array:
    """Mutates X: columns of length one, so that the Gram matrix is of one scale; zeros stay zeros."""
    squares = np.einsum("ij,ij->j", X, X)
    if not (np.isfinite(squares).all() and squares.min() > 1e-200):  # the squares left the range
        X /= np.maximum(np.abs(X).max(axis=0), 1e-300)
        squares = np.einsum("ij,ij->j", X, X)
    X /= np.maximum(np.sqrt(squares), 1e-300)
    return X
