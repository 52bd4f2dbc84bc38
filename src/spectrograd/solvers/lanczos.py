"""``lanczos``: Krylov spaces of a vector or a block, with thick restarts and full reorthogonalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.certificate.probe import Evidence, Guards
from spectrograd.engines.protocol import Tall
from spectrograd.engines.random_rows import new_seed
from spectrograd.kernels import LANES, SMALL
from spectrograd.linalg.filters import Filter
from spectrograd.linalg.krylov import Basis, RitzValues
from spectrograd.linalg.subspace import orthonormalize
from spectrograd.solvers.protocol import Problem, Solver
from spectrograd.solvers.ritz import RitzSolver, RitzState

Array = NDArray[Any]
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
    rough_after = 2

    def suited(self, problem: Problem) -> Solver[Any]:
        """Where sweeps are dear, the form that takes few of them."""
        from spectrograd.solvers.lanczos_sweeps import in_few_sweeps

        return in_few_sweeps(self) if problem.dear_sweeps else self

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

    def _front(self, problem: Problem, rng: np.random.Generator, size: int, dtype: Any) -> Tall:
        """The first block, orthonormal."""
        engine, start, parts = problem.engine, problem.placed_start(dtype), []
        if start is not None:
            parts = [problem.standard.enter(start)]
        missing = size - sum(part.shape[1] for part in parts)
        if missing > 0:
            parts.append(engine.random(problem.n_nodes, missing, new_seed(rng), dtype))
        return orthonormalize(engine, engine.stack(*parts), None, rng).Q

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

    def copies_hold(self, state: LanczosState) -> bool:
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
        state.U = problem.standard.leave(basis.vectors.columns(0, k))

    def evidence(self, problem: Problem, state: LanczosState) -> Evidence:
        """Those of the kept Ritz vectors that may be accurate enough."""
        k = problem.n_components
        known = super().evidence(problem, state)
        n = min(len(state.values) - k - 1, MOST_GUARDS)
        if state.basis is None or n < 1 or state.basis.products != state.products:  # it went on without us
            return known
        vectors = problem.standard.leave(state.basis.vectors.columns(k, k + n))
        return replace(known, guards=Guards(vectors, state.values[k : k + n], state.residuals[k : k + n]))

    def _doubled(self, problem: Problem, basis: Basis, rng: np.random.Generator) -> Basis:
        """Go on in float64 with the Ritz vectors as the first block: a float32 basis is no basis there."""
        X = problem.engine.cast(basis.vectors.columns(0, problem.n_components + 2), np.float64)
        front = orthonormalize(problem.engine, X, None, rng).Q
        return Basis(problem.engine, basis.operator, front, max(basis.limit, 3 * front.shape[1]))

    def _shown(self, problem: Problem, state: LanczosState, X: Tall) -> LanczosState:
        """The start, padded to K and not yet measured: nothing is known of it."""
        k, lower, upper = problem.n_components, problem.operator.lower, problem.operator.upper
        engine, missing = problem.engine, k - X.shape[1]
        if missing > 0:
            X = engine.stack(X, engine.put(np.eye(problem.n_nodes, missing, dtype=X.dtype)))
        state.U = problem.standard.leave(engine.columns(X, slice(k)))
        state.values, state.residuals = np.full(k, (lower + upper) / 2), np.full(k, (upper - lower) / 2)
        return state

    def _exact(self, problem: Problem, state: LanczosState) -> LanczosState:
        """A basis as large as the graph is the whole space."""
        k = problem.n_components
        values, vectors = la.eigh(problem.operator.standard_form().to_dense())
        state.values, state.residuals = values, np.full(len(values), 1e-15)
        state.U = problem.standard.leave(problem.engine.put(vectors[:, :k]))
        self.account(problem, state, problem.n_nodes)
        state.done = True
        return state
