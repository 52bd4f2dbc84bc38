"""``eigen``: the eigendecomposition, dense for small graphs and ARPACK above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy.linalg as la
import scipy.sparse.linalg as sla

from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.subspace import Ritz
from spectrograd.operators.base import RESIDENT, Operator
from spectrograd.solvers.base import Problem, Solver, State
from spectrograd.typing import Array

DENSE_BELOW = 1500


@dataclass(eq=False)
class EigenState(State):
    """``beyond`` is the next eigenvalue; ``complete`` says that LAPACK has found all ``values`` below it."""

    beyond: float | None = None
    complete: bool = False
    values: Array | None = None


@dataclass(frozen=True)
class Eigen(Solver[EigenState]):
    """The eigenvectors of the smallest eigenvalues, by LAPACK or ARPACK.

    **Definition.** ``A u = lambda B u``. With the ``random_walk`` Laplacian (``L f = lambda D f``) and
    ``drop_first``, which leaves out the constant, this is Laplacian eigenmaps:
    ``SpectralEmbedding(solver="eigen", laplacian="random_walk", drop_first=True)``.

    **Meaning.** The exact answer, against which all others are measured. ARPACK works on
    ``upper I - A`` with a single vector at a time: it may skip copies of a repeated eigenvalue.

    **Cost.** Dense: O(N^3) time, O(N^2) memory. ARPACK: tens of passes where a gap follows the K-th
    eigenvalue, hundreds on k-NN graphs; O(N max(2K, 40)) memory.

    **Use it** in memory, whenever passes are cheap. **Do not** on graphs larger than memory.

    Parameters
    ----------
    method
        ``"dense"`` forms the N x N matrix (the paper's baseline), ``"arpack"`` needs products only,
        ``"auto"`` is dense below 1,500 nodes.
    tol
        ARPACK's tolerance; 0 is machine precision.

    References
    ----------
    Belkin, Niyogi: Laplacian eigenmaps for dimensionality reduction and data representation. Neural
    Computation, 2003. Lehoucq, Sorensen, Yang: ARPACK users' guide. SIAM, 1998.

    Examples
    --------
    >>> from spectrograd import datasets, solvers
    >>> from spectrograd.operators.laplacian import laplacian
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> solvers.solve(Problem(laplacian(graph), 3), Eigen(), seed=0).last.residual < 1e-10
    True
    """

    method: Literal["auto", "dense", "arpack"] = "auto"
    tol: float = 0.0
    max_iter: int = 1

    name: ClassVar[str] = "eigen"
    requires = RESIDENT
    direct: ClassVar[bool] = True

    def init(self, problem: Problem, rng: np.random.Generator) -> EigenState:
        """Return an empty state with a random generator, for the start vector of ARPACK."""
        return EigenState(np.zeros((problem.n_nodes, problem.n_components)), rng)

    def step(self, problem: Problem, state: EigenState) -> EigenState:
        """The first step is the last."""
        if self.method not in ("auto", "dense", "arpack"):
            raise ValueError(f"method={self.method!r}: expected 'auto', 'dense' or 'arpack'")
        # 1. K + 1 eigenvectors in standard form, B^-1/2 A B^-1/2
        dense = self.method == "dense" or (self.method == "auto" and problem.n_nodes <= DENSE_BELOW)
        vectors = _solve_dense(problem, state) if dense else self._arpack(problem, state)
        # 2. back to the pencil: x = B^-1/2 v
        state.U = np.ascontiguousarray(problem.standard.inverse_transform(vectors))
        state.iteration = 1
        state.done = True
        return state

    def evidence(self, problem: Problem, state: EigenState) -> Evidence:
        """The eigenvalue after those of the result; LAPACK misses none."""
        pairs = Ritz(state.values, state.U, None) if state.values is not None else None
        return Evidence(state.beyond, state.complete, pairs=pairs)

    def finish(self, problem: Problem, state: EigenState) -> MultiVector:
        """The eigenvectors; those of LAPACK are orthonormal as they are."""
        return state.U if state.complete else super().finish(problem, state)

    def _arpack(self, problem: Problem, state: EigenState) -> Array:
        """Largest eigenvalues of ``upper I - A``: no factorisation, and it converges faster than 'SA'.

        One vector more than asked for shows where the next eigenvalue is.
        """
        operator = problem.operator.standard_form()
        k = problem.n_components
        n = problem.n_nodes
        product = _negate_and_shift(problem, operator, state)
        # The basis of ARPACK holds at least twice as many vectors as are sought (Lehoucq et al. 1998).
        start = state.rng.standard_normal(n)
        more = min(k + 1, n - 1)
        basis = min(n - 1, max(2 * more + 1, 40 if self.tol == 0 else 20))
        try:
            _, vectors = sla.eigsh(product, more, which="LA", v0=start, tol=self.tol, ncv=basis, maxiter=5000)
        except sla.ArpackNoConvergence as stopped:
            return _complete_basis(stopped.eigenvectors, k, state)
        vectors = np.asarray(vectors[:, ::-1])  # scipy's order is ascending
        if more > k:
            # The Rayleigh quotient of one vector more: where the rest of the spectrum begins.
            last = vectors[:, k:]
            state.beyond = float((last * problem.engine.apply(operator, last)).sum() / (last**2).sum())
        return vectors[:, :k]


def _negate_and_shift(problem: Problem, operator: Operator, state: EigenState) -> sla.LinearOperator:
    """``upper I - A`` for ARPACK."""

    def multiply(x: Array) -> Array:
        state.matvecs += 1
        product = problem.engine.apply(operator, x.reshape(-1, 1)).ravel()
        return np.asarray(operator.upper * x.ravel() - product)

    return sla.LinearOperator(operator.shape, matvec=multiply, dtype=np.float64)


def _solve_dense(problem: Problem, state: EigenState) -> Array:
    """LAPACK finds all there is, and the next eigenvalue at no cost: the certificate needs no probe."""
    matrix = problem.operator.standard_form().to_dense()
    k = problem.n_components
    values, vectors = la.eigh(matrix, subset_by_index=(0, k), overwrite_a=True)
    state.beyond = float(values[k])
    state.values = values[:k]
    state.complete = True
    return np.asarray(vectors[:, :k])


def _complete_basis(vectors: Array, k: int, state: EigenState) -> Array:
    """A partial result is better than an exception; the certificate says what is missing."""
    state.events.append(f"ARPACK vectors {vectors.shape[1]} of {k} eigenvectors; the others are random")
    rest = state.rng.standard_normal((len(vectors), k - vectors.shape[1]))
    return np.linalg.qr(np.hstack([vectors, rest]))[0]
