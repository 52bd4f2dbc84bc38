"""``lanczos``: block Lanczos with thick restarts and full reorthogonalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from spectrograd.engines.subspace import _inverse_factor, orthonormalize
from spectrograd.laplacian import Operator
from spectrograd.solvers.protocol import Problem, State
from spectrograd.solvers.ritz import RitzSolver, RitzState

Array = NDArray[Any]
SINGLE_FLOOR = 1e-5
MAX_GROWTH = 3.0


@dataclass(eq=False)
class LanczosState(RitzState):
    """``block`` holds the kept Ritz vectors and, last, the ``front`` columns not yet multiplied."""

    front: int = 0


@dataclass(frozen=True)
class Lanczos(RitzSolver):
    """Thick-restart block Lanczos (Wu and Simon 2000; Stewart's Krylov-Schur 2001), smallest eigenvalues.

    Definition: Rayleigh-Ritz on ``span{X, A X, .., A^p X}`` with X of ``block_size`` columns; at a restart
    the best Ritz vectors and the residual block stay, which keeps the space a Krylov space. Meaning: the
    best polynomial filter of each degree, found without knowing the spectrum.

    A single vector finds one copy of a repeated eigenvalue; a block finds as many as it has columns, and
    each restart adds a random column, so further copies come in too.

    Cost: one pass of ``block_size`` columns per block and ``O(N basis_size)`` numbers of memory, whose
    orthogonalisation costs about as much as the passes. The fewest passes of all methods where the
    wanted eigenvalues are separated (block models, social graphs, merged layers); slow on geometric
    graphs, where the gap is tiny.

    Parameters
    ----------
    block_size
        None is K, at most 8.
    basis_size
        Columns before a restart; None is ``max(2 K + 2 block_size, 10 block_size)``, and up to three
        times as many after a few restarts.
    precision
        ``"auto"`` keeps the basis in float32 until that limits the residual, then float64.
    angle
        Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.
    """

    block_size: int | None = None
    basis_size: int | None = None
    precision: Literal["auto", "single", "double"] = "auto"
    angle: float = 0.0
    max_iter: int = 300

    name: ClassVar[str] = "lanczos"

    def init(self, problem: Problem, rng: np.random.Generator) -> LanczosState:
        """A random block; a warm start enters as the vectors kept from a restart."""
        n, k = problem.n_nodes, problem.n_components
        dtype = np.float64 if self.precision == "double" else np.float32
        size = min(max(1, self.block_size or min(k, 8)), n)
        front = rng.standard_normal((n, size))
        if problem.start is not None:
            # the sum of the start vectors is no Krylov basis: let them lead the first block instead
            size = min(max(size, k), n)
            front = rng.standard_normal((n, size)) * 1e-3
            root = 1.0 if problem.operator.metric is None else np.sqrt(problem.operator.metric)[:, None]
            given = np.where(np.isfinite(problem.start), problem.start, 0) * root
            front[:, :k] += given / max(float(np.abs(given).max()), 1e-300)
        block = problem.engine.combine(front, _inverse_factor(front.T @ front)[0]).astype(dtype)
        state = LanczosState(np.empty((0, 0)), rng, block=block, front=block.shape[1])
        return self._shown(problem, state, problem.operator.standard_form())

    def step(self, problem: Problem, state: State) -> LanczosState:
        """One cycle: fill the basis, take Ritz vectors, restart."""
        assert isinstance(state, LanczosState)
        operator, k = problem.operator.standard_form(), problem.n_components
        width = operator.upper - operator.lower
        single = state.block.dtype == np.float32
        if single and self.precision == "auto" and state.residuals[:k].max() < SINGLE_FLOOR * width:
            self._doubled(problem, state)
        size, base = state.front, self.block_size or min(k, 8)
        limit = max(self.basis_size or max(2 * k + 2 * base, 10 * base), k + 3 * size)
        if self.basis_size is None:  # many restarts mean a small gap: higher degrees, up to a point
            limit = round(limit * min(MAX_GROWTH, 1 + 0.25 * max(0, state.iteration - 4)))
        if problem.n_nodes <= limit + size:
            return self._exact(problem, state, operator)
        basis = _Basis(problem, operator, state, limit)
        columns = 0
        while basis.filled + basis.front <= limit:
            columns += basis.expand(state.rng)
        theta, Y = la.eigh(basis.T[: basis.done, : basis.done])
        coupling = np.linalg.norm(basis.R @ Y[basis.done - basis.R.shape[1] :], axis=0)
        keep = min(basis.done - 1, k + max(size, (basis.done - k) // 3))
        Q = basis.Q[:, : basis.done] @ Y[:, :keep].astype(basis.Q.dtype)
        front = basis.Q[:, basis.done : basis.filled]
        extra = self._fresh(state, [Q, front]) if basis.front < 2 * size and state.iteration < 4 else []
        state.block = np.hstack([Q, front, *extra])
        state.front = front.shape[1] + len(extra)
        state.values, state.residuals = theta[:keep], coupling[:keep]
        state.U = problem.operator.from_standard(np.ascontiguousarray(Q[:, :k]))
        if not np.isfinite(state.U).all():
            raise FloatingPointError("the basis overflowed")
        if np.abs(problem.engine.gram(Q[:, :k], Q[:, :k], None) - np.eye(k)).max() > 1e-3:
            state.events.append(f"iteration {state.iteration}: the basis lost its orthogonality, begun anew")
            self._doubled(problem, state)
            state.residuals = np.full(keep, (operator.upper - operator.lower) / 2)  # not to be trusted
        return self._counted(problem, state, columns)

    def _doubled(self, problem: Problem, state: LanczosState) -> None:
        """Go on in float64 with the Ritz vectors as the first block: a float32 basis is no basis there."""
        keep = min(problem.n_components + 2, state.block.shape[1])
        X = state.block[:, :keep].astype(np.float64)
        state.block = orthonormalize(problem.engine, X, None, state.rng).Q
        state.front = keep

    def _counted(self, problem: Problem, state: LanczosState, columns: int) -> LanczosState:
        self.account(problem, state, columns)
        return state

    def _fresh(self, state: LanczosState, against: list[Array]) -> list[Array]:
        """A random direction outside the space: where copies of a found eigenvalue would hide."""
        x = state.rng.standard_normal((len(against[0]), 1)).astype(against[0].dtype)
        for _ in range(2):
            for Q in against:
                x -= Q @ (Q.T @ x)
            x /= np.linalg.norm(x)
        return [x]

    def _shown(self, problem: Problem, state: LanczosState, operator: Operator) -> LanczosState:
        """Ritz values of the first block, padded to K: a start has to be measurable."""
        k, X = problem.n_components, state.block
        AX = problem.engine.spmm(operator, X)
        theta, Y = la.eigh(problem.engine.gram(X, AX, None))
        residual = problem.engine.combine(AX, Y) - problem.engine.combine(X, Y * theta)
        missing = max(0, k - X.shape[1])
        state.values = np.concatenate([theta, np.full(missing, theta[-1])])
        state.residuals = np.concatenate(
            [np.linalg.norm(residual, axis=0), np.full(missing, (operator.upper - operator.lower) / 2)]
        )
        rest = state.rng.standard_normal((len(X), missing)) / np.sqrt(len(X))
        state.U = problem.operator.from_standard(np.hstack([problem.engine.combine(X, Y), rest])[:, :k])
        return state

    def _exact(self, problem: Problem, state: LanczosState, operator: Operator) -> LanczosState:
        """A basis as large as the graph is the whole space."""
        k = problem.n_components
        values, vectors = la.eigh(operator.to_dense())
        state.values, state.residuals = values, np.full(len(values), 1e-15)
        state.block = vectors[:, : min(problem.n_nodes, k + 1)]
        state.U = problem.operator.from_standard(np.ascontiguousarray(vectors[:, :k]))
        state.done = True
        return self._counted(problem, state, problem.n_nodes)


class _Basis:
    """One cycle's basis: Q (filled columns, the last ``front`` not yet multiplied) and ``T = Q'AQ``."""

    def __init__(self, problem: Problem, operator: Operator, state: LanczosState, limit: int) -> None:
        self.problem, self.operator = problem, operator
        self.filled, self.front = state.block.shape[1], state.front
        self.done = self.filled - self.front
        size = max(limit, self.filled) + 2 * self.front
        self.Q = np.empty((problem.n_nodes, size), state.block.dtype)
        self.Q[:, : self.filled] = state.block
        self.T = np.zeros((size, size))
        self.T[np.arange(self.done), np.arange(self.done)] = state.values[: self.done]
        self.R = np.zeros((self.front, self.front))

    def expand(self, rng: np.random.Generator) -> int:
        """Multiply the front by A and orthogonalise the product twice against the whole basis."""
        a, b = self.done, self.filled
        W = self.problem.engine.spmm(self.operator, np.ascontiguousarray(self.Q[:, a:b]))
        known = self.Q[:, :b]
        for _ in range(2):  # once is not enough: orthonormalising W magnifies what is left
            C = known.T @ W
            W -= known @ C
            self.T[:b, a:b] += C
        self.T[a:b, :b] = self.T[:b, a:b].T
        self.T[a:b, a:b] = (self.T[a:b, a:b] + self.T[a:b, a:b].T) / 2
        F, self.R = self._orthonormal(W, known, rng)
        c = b + F.shape[1]
        self.Q[:, b:c] = F
        self.done, self.filled, self.front = b, c, c - b
        return int(b - a)

    def _orthonormal(self, W: Array, known: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """``W = F R``; directions that vanished are replaced by random ones, which R does not see."""
        gram = self.problem.engine.gram
        tiny = np.finfo(W.dtype).eps * 10 * (self.operator.upper - self.operator.lower)
        values, Y = la.eigh(gram(W, W, None))
        alive = values > max(tiny**2, 1e-12 * values[-1])
        roots = np.sqrt(values[alive])
        F = np.empty_like(W)
        n_alive = int(alive.sum())
        F[:, :n_alive] = W @ (Y[:, alive] / roots).astype(W.dtype)
        F[:, n_alive:] = rng.standard_normal((len(W), W.shape[1] - n_alive))
        for _ in range(2 if n_alive < W.shape[1] else 1):
            fresh = F[:, n_alive:]
            if fresh.shape[1]:
                for Q in (known, F[:, :n_alive]):
                    fresh -= Q @ (Q.T @ fresh)
            F = F @ _inverse_factor(gram(F, F, None))[0].astype(F.dtype)
        # whatever rotation was used to make F, R = F'W is exact up to rounding
        return F, gram(F, W, None)
