"""``lanczos``: Krylov spaces of a vector or a block, with thick restarts and full reorthogonalisation.

One step of the method is a cycle (Wu and Simon 2000; Stewart 2001), for the operator A in standard form (its
metric is the identity):

1. **Expand.** Multiply the last block of the basis by A and orthogonalise the product against the basis. So
   ``A Q = Q T + (next block) (coupling)``, and the basis spans ``{X, A X, .., A^p X}`` (:class:`Basis`).
2. **Rayleigh-Ritz.** ``T y = theta y``: Ritz values and residuals without another product. Done every few
   expansions only; :meth:`LanczosState.measure` guesses from the rate of Chebyshev polynomials when the angle
   will be met.
3. **Restart** when the basis is full or the angle is met: the best Ritz vectors and the residual block begin
   the next basis, which keeps it a Krylov space ("thick" restart).
4. **Stop** when the bound on the subspace angle (from residuals and gaps, as in the certificate) is met.

:class:`Lanczos` is the method for graphs in memory, from a single vector or a block.
:mod:`spectrograd.solvers.lanczos_few_passes` is its variant for graphs on disk and on clusters.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

import numpy as np
import scipy.linalg as la
from numpy.typing import DTypeLike

from spectrograd.certificate.lanczos_probe import Evidence, Guards
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.kernels import LANES, SMALL
from spectrograd.linalg.chebyshev_filter import Filter
from spectrograd.linalg.subspace import Basis, Ritz, RitzValues, orthonormalize, rayleigh_ritz
from spectrograd.solvers.base import Problem
from spectrograd.solvers.ritz import RitzSolver, RitzState
from spectrograd.typing import Array

# Residual over the width of the spectrum below which a float32 basis is continued in float64.
SINGLE_FLOOR = 1e-5
# Of the residual that the angle asks for, what a basis may leave out that goes on in float64; and of the
# largest direction, squared, what is worth none of its own.
NOISE_SHARE = 0.9
LEAST_DIRECTION = 1e-12
CACHE_BYTES = 1 << 20  # of a core's own cache; a basis in float64 that fills more of it slows every step
INVARIANT_RESIDUAL = 1e-12  # of the width: residuals of a space that no product leaves
MIN_DOUBLE_BLOCKS = 6  # of a basis that goes on with many directions, before a restart
RESTART_SHARE = 0.4  # of the vectors beyond K, how many outlive a restart
MAX_GUARDS = 8  # Ritz vectors beyond K that the certificate gets
# Steps to the next Rayleigh-Ritz, as shares of the steps that fill a basis: at least, and while the angle
# bound says nothing yet.
MIN_PAUSE = 0.1
PAUSE_WITHOUT_BOUND = 0.3
PAUSE_SHARE = 0.4  # of the steps that Chebyshev polynomials would need
# One thread of an ordinary machine: a product per entry of the matrix, and the small eigenproblem.
SECONDS_PER_ENTRY = 1e-9
RITZ_SECONDS = 1e-4
SECONDS_PER_CUBE = 4e-9


@dataclass(eq=False)
class LanczosState(RitzState):
    """``basis`` belongs to the run: copies of a state share it, only ``U`` and the values are their own.

    Values and residuals are those of the basis after so many ``products`` (matvecs). ``pause`` counts the
    steps to the next Rayleigh-Ritz. ``filling`` marks a cycle that has begun, after ``products_before``.
    ``noise`` is the norm of what the residuals of the K vectors have outside the basis, which was float32.
    """

    basis: Basis | None = None
    ritz: RitzValues | None = None
    products: int = 0
    pause: int = 0
    filling: bool = False
    products_before: int = 0
    noise: float = 0.0

    def residuals_of(self, ritz: RitzValues, k: int) -> Array:
        """The residuals of Ritz vectors, each with its part of the noise."""
        return np.asarray(np.hypot(ritz.residuals, self.noise / math.sqrt(k)))

    def measure(self, basis: Basis, k: int, angle: float) -> None:
        """Mutates: Ritz values and residuals of the basis, and the pause until the angle may be met.

        A step gains at least the factor that a Chebyshev polynomial gains per degree between the k-th and the
        next Ritz value.
        """
        self.is_single_vector = basis.front == 1
        self.ritz = basis.ritz()
        self.values = self.ritz.values
        self.residuals = self.residuals_of(self.ritz, k)
        # no bound yet (there is no gap between Ritz values): look again after a share of the basis
        steps_per_basis = basis.limit / basis.front
        bound = self.angle_bound(k)
        is_small = basis.n_nodes <= SMALL  # there a Rayleigh-Ritz takes as long as several steps
        if angle == 0 or not angle < bound < (1 if is_small else math.inf):
            pause = steps_per_basis if is_small else PAUSE_WITHOUT_BOUND * steps_per_basis
            self.pause = min(math.ceil(pause), _affordable_pause(basis))
            return
        upper = float(self.values[-1] + self.residuals[-1])
        # steps that a Chebyshev polynomial would need (Saad 2011, Theorem 6.3)
        rate = Filter(1, float(self.values[k]), upper).rate(float(self.values[k - 1]))
        missing_steps = math.log(bound / angle) / max(rate, 1e-9)
        # Ritz vectors that a restart has kept hold the others' share of the rest: it takes far fewer.
        pause = math.ceil(max(MIN_PAUSE * steps_per_basis, PAUSE_SHARE * missing_steps))
        self.pause = min(pause, _affordable_pause(basis))


def _affordable_pause(basis: Basis) -> int:
    """Steps after which another Rayleigh-Ritz takes a tenth of their time: few where products are slow.

    Bounds on what is missing are worst cases, and a vector that separates late is not foreseen.
    """
    # a step: the product (entries), and orthogonalisation against m vectors (n m / 2 on the mean of a cycle)
    entries = 2.0 * basis.operator.n_edges
    m = basis.done
    step = basis.front * SECONDS_PER_ENTRY * (entries + basis.n_nodes * (1 + m / 2))
    return max(1, math.ceil(10 * (RITZ_SECONDS + SECONDS_PER_CUBE * m**3) / step))


def _unit_null_vector(problem: Problem) -> MultiVector | None:
    """The null vector that is known of the operator, in standard coordinates, of unit length; else None."""
    null = problem.operator.null_vector
    if null is None:
        return None
    engine = problem.engine
    unit = problem.standard.transform(engine.from_numpy(null[:, None] / np.abs(null).max()))
    return engine.combine(unit, engine.gram(unit, unit) ** -0.5)


def _first_basis(problem: Problem, front: MultiVector, limit: int, null: MultiVector | None) -> Basis:
    """The basis of a front that is orthogonal to the null vector: this one is a Ritz vector of value zero."""
    operator = problem.standard.operator
    if null is None:
        return Basis(problem.engine, operator, front, limit)
    coupling = np.zeros((front.shape[1], 1))
    return Basis.of_ritz_pairs(problem.engine, operator, null, np.zeros(1), front, coupling, limit)


def usual_basis_size(k: int, size: int) -> int:
    """Vectors of a basis before a restart, where a block has so many columns."""
    return max(2 * k + 20, k + 10 * size, k + 2 + size)


LanczosT = TypeVar("LanczosT", bound=LanczosState)


@dataclass(frozen=True)
class KrylovSolver(RitzSolver[LanczosT]):
    """The hyperparameters of ``lanczos`` and the cycle of the method, for both classes."""

    block_size: int | None = None
    basis_size: int | None = None
    precision: Literal["auto", "single", "double"] = "auto"
    angle: float = 0.0
    max_iter: int = 500

    name: ClassVar[str] = "lanczos"
    localization_check_at = 2

    @classmethod
    def streamed_columns(cls, k: int) -> int:
        """A basis of few blocks, the Ritz vectors and their last good state."""
        return usual_basis_size(k, min(k, 8)) + 2 * k

    @abstractmethod
    def fill(self, problem: Problem, state: LanczosT, basis: Basis) -> None:
        """Mutates: the basis, expanded until it is full or the angle is met."""

    def begin(self, problem: Problem, state: LanczosT, size: int, basis_size: int | None) -> LanczosT:
        """Mutates: the state, which gets a random block of so many columns, led by the warm start.

        The basis of a single random vector is in float64 where it stays in a core's cache: the Ritz pairs are
        those of the result. It begins with the null vector then, if that is known.
        """
        n = problem.n_nodes
        k = problem.n_components
        if problem.start is not None:
            size = max(size, k)
        size = min(size, n)
        is_single = size == 1 and problem.start is None
        # 1. space for the basis: at least K + 2 vectors and a block, or a restart would keep nothing
        limit = max(basis_size or usual_basis_size(k, size), k + 2 + size)
        is_cached = is_single and 8 * n * limit <= CACHE_BYTES
        is_double = self.precision == "double" or (self.precision == "auto" and is_cached)
        # 2. an orthonormal block: the start of the Krylov space
        null = _unit_null_vector(problem) if is_double and is_single else None
        front = self._first_block(problem, state.rng, size, np.float64 if is_double else np.float32, null)
        state.pause = limit if n <= SMALL else 0
        # 3. the basis, whose first product comes with the first step
        if n > limit + 2 * size:  # else the basis would be the whole space: see ``_solve_dense``
            state.basis = _first_basis(problem, front, limit, null)
        return self.set_unmeasured(problem, state, front)

    def _first_block(
        self,
        problem: Problem,
        rng: np.random.Generator,
        size: int,
        dtype: DTypeLike,
        null: MultiVector | None,
    ) -> MultiVector:
        """The warm start and random columns up to ``size``: orthonormal, orthogonal to the null vector."""
        engine = problem.engine
        start = problem.start_on_engine(dtype)
        parts = [] if start is None else [problem.standard.transform(start)]
        n_random = size - sum(part.shape[1] for part in parts)
        if n_random > 0:
            parts.append(engine.random(problem.n_nodes, n_random, new_seed(rng), dtype))
        X = engine.hstack(*parts)
        if null is not None:
            X = engine.combine(X, np.eye(size), null, -engine.gram(null, X))
        return orthonormalize(engine, X, None, rng).Q

    def set_unmeasured(self, problem: Problem, state: LanczosT, X: MultiVector) -> LanczosT:
        """Mutates: ``U`` is the start, padded to K columns; nothing is known of it but its range."""
        k = problem.n_components
        lower = problem.operator.lower
        upper = problem.operator.upper
        engine = problem.engine
        n_missing = k - X.shape[1]
        if n_missing > 0:
            X = engine.hstack(X, engine.from_numpy(np.eye(problem.n_nodes, n_missing, dtype=X.dtype)))
        state.U = problem.standard.inverse_transform(engine.columns(X, slice(k)))
        # The loop takes an objective that grows for divergence: no Ritz value is above the upper end.
        state.values = np.full(k, upper)
        state.residuals = np.full(k, (upper - lower) / 2)
        return state

    def step(self, problem: Problem, state: LanczosT) -> LanczosT:
        """One cycle: fill the basis, take Ritz vectors, restart."""
        if state.basis is None:
            return self._solve_dense(problem, state)
        if not state.filling:  # else this cycle was interrupted between two products, and goes on
            if self._needs_double(problem, state, state.basis):
                state.basis = self._double_basis(problem, state, state.basis)
            state.filling = True
            state.products_before = state.basis.products
        # 1. and 2. expand the basis, with a Rayleigh-Ritz every few steps
        self.fill(problem, state, state.basis)
        # 3. thick restart: the Ritz vectors begin the next basis
        self._restart(problem, state, state.basis)
        state.filling = False
        # 4. stop? The loop asks ``terminate``, which compares the angle bound.
        return self.account(problem, state, state.basis.products - state.products_before)

    def _restart(self, problem: Problem, state: LanczosT, basis: Basis) -> None:
        """Mutates: the Ritz vectors, and a basis that begins with them."""
        k = problem.n_components
        ritz = state.ritz
        assert ritz is not None
        # thick restart (Wu and Simon 2000): more vectors than K keep the gap to the next wide
        # at most all but one vector: a basis without a new direction would not grow
        keep = min(basis.done - 1, k + max(1, round(RESTART_SHARE * (basis.done - k))))
        basis.restart(ritz, keep)
        state.values = ritz.values[:keep]
        state.residuals = state.residuals_of(ritz, k)[:keep]
        state.products = basis.products
        state.U = problem.standard.inverse_transform(basis.vectors.columns(0, k))

    def _needs_double(self, problem: Problem, state: LanczosT, basis: Basis) -> bool:
        """Whether float32 limits the residual from now on."""
        floor = SINGLE_FLOOR * (problem.operator.upper - problem.operator.lower)
        residual = state.residuals[: problem.n_components].max()
        return self.precision == "auto" and basis.dtype == np.float32 and residual < floor

    def _double_basis(self, problem: Problem, state: LanczosT, basis: Basis) -> Basis:
        """Mutates ``matvecs`` and ``noise``: a basis in float64 of Ritz vectors Q and their residuals R.

        Nearly all of R lies along the front, which had made a Krylov space of Q; rounding errors of float32
        lie along all directions, some 1e-7 in each. As many directions of R are the next front as the angle
        asks for, mostly one. The others are ``noise`` that no step takes away: it counts as residual.
        """
        engine = problem.engine
        k = problem.n_components
        # 1. Rayleigh-Ritz of the Ritz vectors and some guards in float64: one product of all
        width = min(basis.done, k + MAX_GUARDS + 1)
        if self.angle == 0 or problem.n_nodes <= basis.limit + (MIN_DOUBLE_BLOCKS + 2) * width:
            # Asked for all digits, or with hardly more rows than vectors: a block of Ritz vectors, as a start
            X = engine.astype(basis.vectors.columns(0, k + 2), np.float64)
            front = orthonormalize(engine, X, None, state.rng).Q
            return Basis(engine, basis.operator, front, max(basis.limit, 3 * front.shape[1]))
        # The Ritz vectors stand first in the basis since the restart;
        # casting leaves errors of some 1e-7 in them.
        X = engine.astype(basis.vectors.columns(0, width), np.float64)
        ritz = rayleigh_ritz(engine, basis.operator, orthonormalize(engine, X, None, state.rng).Q)
        m = len(ritz.values)
        state.matvecs += m
        # 2. R = A Q - Q diag(theta), and its singular values: R'R = V diag(s^2) V'
        R = engine.combine(ritz.AQ, np.eye(m), ritz.Q, -np.diag(ritz.values))
        M = engine.gram(R, R)
        squares, V = np.linalg.eigh(M)
        least = INVARIANT_RESIDUAL * (problem.operator.upper - problem.operator.lower)
        if not squares[-1] > least**2:  # invariant to the last digits: a block of them, as from a start
            return Basis(engine, basis.operator, ritz.Q, max(basis.limit, 3 * m))
        # 3. the directions of the front, the largest first, until what is left out is small enough
        gap = float(ritz.values[k] - ritz.values[k - 1]) if m > k else 0.0
        allowed = NOISE_SHARE * self.angle * gap
        first = m
        state.noise = math.inf
        # The noise is what columns of R have outside the chosen
        # directions: |R|_F^2 - |V_chosen' R'R V_chosen|.
        while state.noise > allowed and first > 0 and squares[first - 1] > LEAST_DIRECTION * squares[-1]:
            first -= 1
            chosen = V[:k, first:] * np.sqrt(squares[first:])
            state.noise = math.sqrt(max(0.0, float(np.trace(M[:k, :k]) - np.square(chosen).sum())))
        roots = np.sqrt(squares[first:])
        front = engine.combine(R, V[:, first:] / roots)
        # orthogonal to Q once more: rounding of R against Q is as large as R itself where R is tiny
        front = engine.combine(front, np.eye(len(roots)), ritz.Q, -engine.gram(ritz.Q, front))
        front = orthonormalize(engine, front, None, state.rng).Q
        limit = max(basis.limit, m + MIN_DOUBLE_BLOCKS * len(roots))
        # A Q = Q diag(theta) + front coupling: a Krylov decomposition again (Stewart 2001)
        coupling = roots[:, None] * V[:, first:].T
        return Basis.of_ritz_pairs(engine, basis.operator, ritz.Q, ritz.values, front, coupling, limit)

    def _solve_dense(self, problem: Problem, state: LanczosT) -> LanczosT:
        """Solve by LAPACK where a basis would be as large as the graph."""
        k = problem.n_components
        # all N eigenpairs: the values beyond K are the evidence of the certificate
        values, vectors = la.eigh(problem.operator.standard_form().to_dense())
        state.values = values
        state.residuals = np.full(len(values), 1e-15)
        state.U = problem.standard.inverse_transform(problem.engine.from_numpy(vectors[:, :k]))
        self.account(problem, state, problem.n_nodes)
        state.done = True
        return state

    def snapshots_are_copies(self, state: LanczosT) -> bool:
        """Not where they share a basis, which grows by whole blocks."""
        return state.basis is None

    def evidence(self, problem: Problem, state: LanczosT) -> Evidence:
        """The first value beyond the result, and the next Ritz vectors, which may be accurate enough."""
        k = problem.n_components
        evidence = self.guard_evidence(problem, state)
        n_guards = min(len(state.values) - k - 1, MAX_GUARDS)
        has_moved_on = state.basis is not None and state.basis.products != state.products
        if state.basis is None or n_guards < 1 or has_moved_on:
            return evidence
        guards = slice(k, k + n_guards)
        vectors = problem.standard.inverse_transform(state.basis.vectors.columns(k, k + n_guards))
        pairs = Ritz(state.values[:k], state.U, None) if state.basis.dtype == np.float64 else None
        known = Guards(vectors, state.values[guards], state.residuals[guards])
        return replace(evidence, guards=known, pairs=pairs)


@dataclass(frozen=True)
class Lanczos(KrylovSolver[LanczosState]):
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

    def init(self, problem: Problem, rng: np.random.Generator) -> LanczosState:
        """A random block, led by the warm start if there is one."""
        if self._goes_on_with(problem):
            return self._go_on(problem, rng)
        # A block as wide as the registers of a core costs a pass hardly more than one column.
        size = max(1, self.block_size or min(problem.n_components, LANES))
        return self.begin(problem, LanczosState(np.empty((0, 0)), rng), size, self.basis_size)

    def _goes_on_with(self, problem: Problem) -> bool:
        """Whether the basis that the plan looked at is one that this solver would have made."""
        basis = problem.basis
        alike = (self.block_size, self.basis_size, self.precision) == (1, None, "auto")
        if basis is None or problem.start is not None or not alike or basis.front != 1 or basis.full:
            return False
        large = basis.limit >= usual_basis_size(problem.n_components, 1)
        return large and problem.n_nodes > basis.limit + 2

    def _go_on(self, problem: Problem, rng: np.random.Generator) -> LanczosState:
        """The state whose basis is that of the plan; its products are counted."""
        assert problem.basis is not None
        basis = problem.basis
        state = LanczosState(np.empty((0, 0)), rng, basis=basis, matvecs=basis.products)
        return self.set_unmeasured(problem, state, basis.vectors.columns(0, 1))

    def fill(self, problem: Problem, state: LanczosState, basis: Basis) -> None:
        """Mutates: the basis, expanded until it is full or the angle is met."""
        k = problem.n_components
        while True:
            # one product of the front: the next block of the Krylov space
            basis.expand(state.rng)
            state.pause -= 1
            if basis.full or (self.angle > 0 and state.pause <= 0 and basis.done > k + 1):
                state.measure(basis, k, self.angle)
                if basis.full or state.angle_bound(k) <= self.angle:
                    return

    def terminate(self, problem: Problem, state: LanczosState) -> bool:
        """Whether the angle is met."""
        return self.angle_is_met(problem, state)
