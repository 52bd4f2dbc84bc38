"""``shift-invert``: sparse direct factorisation and Lanczos on the inverse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from spectrograd.graph import Graph
from spectrograd.laplacian import Operator
from spectrograd.solvers.protocol import Problem, Solver, State

Array = NDArray[Any]
BYTES_PER_ENTRY = 12  # a float64 and its row number
FILL_FACTOR = 1.0  # calibrated against SuperLU with minimum degree, see estimated_fill


@dataclass(frozen=True)
class ShiftInvert(Solver):
    """Lanczos on ``(A + shift I)^-1`` (Ericsson and Ruhe 1980), factored by SuperLU.

    Definition: the largest eigenvalues of the inverse are the smallest of A, and far apart, so some
    ``3 K`` solves find them whatever the gap. Low-rank parts enter through the Woodbury formula.

    Cost: that of the factor, which is the number of entries it fills. Road networks, meshes and k-NN
    graphs of points in the plane fill little: exact in seconds. Block models and social graphs fill
    almost everything: :func:`estimated_fill` says so first, and the solver refuses.

    Parameters
    ----------
    shift
        Relative to the width of the spectrum; makes the matrix definite although L is singular.
    tol
        ARPACK's tolerance on the eigenvalues of the inverse; 0 is machine precision.
    memory_limit
        Bytes the factor may take by the estimate; above that a ValueError.
    """

    shift: float = 1e-5
    tol: float = 1e-9
    memory_limit: float = 2e9
    max_iter: int = 1

    name: ClassVar[str] = "shift-invert"
    direct: ClassVar[bool] = True

    def init(self, problem: Problem, rng: np.random.Generator) -> State:
        """Estimate the fill, and refuse before any work is done."""
        needed = 2 * BYTES_PER_ENTRY * estimated_fill(problem.operator.graph)
        if needed > self.memory_limit:
            raise ValueError(
                f"shift-invert: the factor would take about {needed / 1e9:.2g} GB, the limit is "
                f"{self.memory_limit / 1e9:.2g} GB; use solver='lanczos' or 'chebyshev', or raise memory_limit"
            )
        return State(np.zeros((problem.n_nodes, problem.n_components)), rng)

    def step(self, problem: Problem, state: State) -> State:
        """The first step is the last."""
        operator, k, n = problem.operator.standard_form(), problem.n_components, problem.n_nodes
        sigma = operator.lower - self.shift * (operator.upper - operator.lower)
        solve = shifted_inverse(operator, sigma)
        inverse = sla.LinearOperator((n, n), matvec=solve, dtype=np.float64)
        basis = min(n - 1, max(2 * k + 2, 20))
        start = state.rng.standard_normal(n)
        if problem.start is not None:
            start = _blended(problem, start)
        try:
            found, vectors = sla.eigsh(
                inverse, k, which="LA", v0=start, ncv=basis, tol=self.tol, maxiter=1000
            )
        except sla.ArpackNoConvergence as stopped:
            vectors = stopped.eigenvectors
            missing = k - vectors.shape[1]
            state.events.append(f"ARPACK found {k - missing} of {k} eigenvectors; the others are random")
            vectors = np.hstack([vectors, state.rng.standard_normal((n, missing))])
            found = np.zeros(k)  # unknown: the probe may replace any of them
        vectors = _with_skipped_copies(vectors, found, solve, state.rng)
        state.U = np.ascontiguousarray(problem.operator.from_standard(vectors))
        state.iteration, state.done = 1, True
        return state


def _with_skipped_copies(vectors: Array, found: Array, solve: Any, rng: np.random.Generator) -> Array:
    """Swap in what inverse iteration finds outside the span: a copy of an eigenvalue ARPACK skipped.

    ``found`` are the eigenvalues of the inverse; a probe with a larger Rayleigh quotient was missed.
    """
    probes = rng.standard_normal((len(vectors), 2))
    for _ in range(4):
        probes -= vectors @ (vectors.T @ probes)
        probes = np.linalg.qr(probes)[0]
        images = solve(probes)
        values, Y = la.eigh(probes.T @ images)
        probes, images = probes @ Y, images @ Y
        if values[-1] <= 0.5 * found.min():
            break
        probes, before = images, probes
        probes[:, values <= 0] = before[:, values <= 0]
    else:
        probes = before
    everything, quotients = np.hstack([vectors, probes]), np.concatenate([found, values])
    best = np.argsort(quotients)[::-1][: vectors.shape[1]]
    return np.asarray(everything[:, best])


def _blended(problem: Problem, start: Array) -> Array:
    """One vector from a block of guesses: ARPACK takes no more."""
    assert problem.start is not None
    root = 1.0 if problem.operator.metric is None else np.sqrt(problem.operator.metric)
    mixed = np.where(np.isfinite(problem.start), problem.start, 0).sum(axis=1) * root
    return np.asarray(mixed / (np.linalg.norm(mixed) or 1.0) + 1e-3 * start / np.linalg.norm(start))


def shifted_inverse(operator: Operator, sigma: float) -> Any:
    """``x -> (A - sigma I)^-1 x`` for an operator in standard form, by LU and Woodbury."""
    scale = np.ones(operator.n_nodes) if operator.scale is None else operator.scale
    scaled = sp.diags_array(scale) @ operator.graph.matrix @ sp.diags_array(scale)
    matrix = sp.csc_array(sp.diags_array(operator.diagonal - sigma) - scaled)
    factor = sla.splu(
        sp.csc_matrix(matrix),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    if operator.low_rank is None:
        return factor.solve
    # (S - Z a Z')^-1 = S^-1 + S^-1 Z (a^-1 - Z' S^-1 Z)^-1 Z' S^-1
    kept = operator.low_rank.coefficients != 0
    Z, a = operator.low_rank.factors[:, kept], operator.low_rank.coefficients[kept]
    SZ = factor.solve(np.ascontiguousarray(Z, dtype=np.float64))
    small = la.lu_factor(np.diag(1 / a) - Z.T @ SZ)

    def solve(x: Array) -> Array:
        y = factor.solve(x)
        return np.asarray(y + SZ @ la.lu_solve(small, Z.T @ y))

    return solve


def estimated_fill(graph: Graph) -> float:
    """Entries one triangular factor will have, from the width of breadth-first levels.

    A level is a separator. The thinnest one among those that leave at least a quarter of the vertices on
    either side has ``s`` vertices, which elimination makes a dense block of ``s^2 / 2`` entries; nested
    dissection repeats this on halves with separators that shrink like sqrt(n), so each of the
    ``log2(n)`` generations costs as much (Lipton, Rose and Tarjan 1979). Two searches, a few
    milliseconds; on the far side it only has to be catastrophic where the truth is.
    """
    from spectrograd.kernels.levels import level_widths

    matrix = graph.matrix
    indptr, indices = matrix.indptr, matrix.indices
    worst, seen = 0.0, np.full(graph.n_nodes, -1, np.int32)
    left = graph.n_nodes
    while left > 0:
        source = int(np.argmax(seen < 0))
        before = np.count_nonzero(seen < 0)
        _, far = level_widths(indptr, indices, source, seen)
        size = before - np.count_nonzero(seen < 0)
        left = before - size
        if size > 50:
            widths, _ = level_widths(indptr, indices, far, np.full(graph.n_nodes, -1, np.int32))
            worst = max(worst, _separator(widths) ** 2 / 2 * math.log2(size))
        if left <= max(worst, 50):  # what remains cannot be worse than what is known
            break
    return float(graph.n_edges + graph.n_nodes + FILL_FACTOR * worst)


def _separator(widths: Array) -> float:
    """The thinnest level that cuts off at least a quarter on each side, or the middle one."""
    total = widths.sum()
    below = np.cumsum(widths) - widths
    above = total - below - widths
    fair = np.minimum(below, above) >= total / 4
    if fair.any():
        return float(widths[fair].min())
    return float(widths.max())
