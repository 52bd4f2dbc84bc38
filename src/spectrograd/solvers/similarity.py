"""The similarity behind the landmark and power methods, and kernels between points.

Those methods look for the *largest* eigenvectors of an affinity matrix, ours are the *smallest* of an
operator ``A``. Both are the same vectors for ``S = c I - A``; for a normalised Laplacian ``S`` with
``c = 1`` is the normalised affinity ``D^-1/2 W D^-1/2`` of the papers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.embedding import Embedding
from spectrograd.engines.base import Engine, MultiVector
from spectrograd.linalg.subspace import upper_edge
from spectrograd.operators.base import Operator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.solvers.base import Problem, State
from spectrograd.typing import Array

Kernel = Callable[[Array, Array], Array]
Shift = Literal["centre", "psd"]
LANCZOS_STEPS = 30
BLOCK_ENTRIES = 4_000_000


@dataclass(frozen=True, eq=False)
class Similarity:
    """``S = shift I - A`` with ``A`` in standard form (its metric is the identity), placed on the engine."""

    operator: Operator
    shift: float

    @classmethod
    def of(cls, problem: Problem, state: State, shift: Shift = "psd") -> Similarity:
        """The similarity of a problem.

        ``"psd"`` takes the largest eigenvalue of ``A`` as shift, estimated by a few Lanczos steps: the
        least one for which ``S`` is positive semidefinite. A larger one would add a multiple of the
        identity, which no sample of columns can represent. ``"centre"`` takes the mean of the diagonal
        (for a normalised Laplacian 1) or the middle of the spectrum where that is larger, or all that is
        known.
        """
        if shift not in ("centre", "psd"):
            raise ValueError(f"shift={shift!r}: expected 'centre' or 'psd'")
        operator = problem.operator.standard_form()
        placed = problem.standard.operator
        if shift == "centre":
            # the largest |eigenvalue| of S is smallest where the shift is the middle of the spectrum
            middle = (operator.lower + operator.upper) / 2
            if isinstance(operator, SparseOperator):
                middle = max(middle, float(operator.diagonal.mean()))
            return cls(placed, middle)
        steps = min(LANCZOS_STEPS, operator.n_nodes - 1)
        state.matvecs += steps
        return cls(placed, upper_edge(problem.engine, placed, state.rng, steps))

    def __deepcopy__(self, memo: dict[int, object]) -> Similarity:
        """Itself: it never changes, and the loop copies states."""
        return self

    def apply(self, engine: Engine, U: MultiVector) -> MultiVector:
        """``S @ U``: one pass."""
        unit = np.eye(U.shape[1])
        return engine.combine(U, self.shift * unit, engine.apply(self.operator, U), -unit)

    @property
    def sparse(self) -> SparseOperator:
        """The operator, for methods that read its columns."""
        return cast(SparseOperator, self.operator)

    def columns(self, nodes: Array) -> Array:
        """``S[:, nodes]`` as a dense N x n array; reads the rows of those nodes only."""
        operator = self.sparse
        # rows of a symmetric matrix are its columns: N x n
        columns = np.ascontiguousarray(operator.graph.matrix[nodes].toarray().T.astype(np.float64))
        if operator.scale is not None:
            # A = D^-1/2 W D^-1/2 on both sides
            columns *= operator.scale[:, None]
            columns *= operator.scale[nodes]
        if operator.low_rank is not None:
            Z = operator.low_rank.factors
            a = operator.low_rank.coefficients
            columns += Z @ (a[:, None] * Z[nodes].T)
        # the diagonal of S = shift I - A; its off-diagonal part is +W
        columns[nodes, np.arange(len(nodes))] += self.shift - operator.diagonal[nodes]
        return columns

    def walk(self, engine: Engine, nodes: Array, n_steps: int, state: State) -> Array:
        """``S^n_steps [:, nodes]``; every step after the first is a pass."""
        if n_steps < 1:
            raise ValueError(f"walk={n_steps}: at least one step is needed")
        columns = self.columns(nodes)
        state.matvecs += len(nodes) / len(columns)
        for _ in range(n_steps - 1):
            # one step of the walk: S times the columns
            columns = self.apply(engine, columns)
            columns /= np.abs(columns).max()  # a common factor: S^n stays a multiple of itself
            state.matvecs += len(nodes)
        return columns


def draw_landmarks(n_nodes: int, n_landmarks: int, least: int, rng: np.random.Generator) -> Array:
    """Distinct nodes, uniformly; all of them where there are fewer than asked for."""
    if n_landmarks < least:
        raise ValueError(f"n_landmarks={n_landmarks}: at least as many as components are needed ({least})")
    return np.sort(rng.choice(n_nodes, min(n_landmarks, n_nodes), replace=False))


class PointEmbedding(NamedTuple):
    """An embedding of points whose graph was never built.

    ``embedding`` solves ``L u = lambda D u`` for the kernel matrix (its diagonal included),
    ``degrees`` are the D it used, ``residuals`` say how far each vector is from an eigenvector.
    """

    embedding: Embedding
    degrees: Array
    landmarks: Array
    residuals: Array


def _make_kernel(kernel: str | Kernel, gamma: float | None, points: Array) -> Kernel:
    """``"rbf"``: ``exp(-gamma |x - y|^2)``; or any function of two arrays of points."""
    if callable(kernel):
        return kernel
    if kernel != "rbf":
        raise ValueError(f"kernel={kernel!r}: expected 'rbf' or a function of two arrays of points")
    from sklearn.metrics.pairwise import rbf_kernel

    width = 1 / points.shape[1] if gamma is None else gamma

    def rbf(X: Array, Y: Array) -> Array:
        return np.asarray(rbf_kernel(X, Y, gamma=width))

    return rbf


def _check_points(points: ArrayLike, n_components: int) -> Array:
    """Float64 coordinates, one row per point, or a clear error."""
    coordinates = np.asarray(points, dtype=np.float64)
    if coordinates.ndim != 2 or not np.isfinite(coordinates).all():
        raise ValueError(
            f"points have shape {coordinates.shape}; one row of finite coordinates each is needed"
        )
    if not 1 <= n_components < len(coordinates):
        raise ValueError(f"n_components={n_components}: choose 1..{len(coordinates) - 1}")
    return coordinates


def sampled_points(
    points: ArrayLike,
    n_components: int,
    kernel: str | Kernel,
    gamma: float | None,
    n_landmarks: int,
    rng: Any,
) -> tuple[Array, Kernel, Array]:
    """Coordinates (N x p), the kernel between any of them, and the row numbers of the landmarks."""
    coordinates = _check_points(points, n_components)
    similarity = _make_kernel(kernel, gamma, coordinates)
    return coordinates, similarity, draw_landmarks(len(coordinates), n_landmarks, n_components, rng)


def row_blocks(n_points: int) -> list[slice]:
    """Slices of the kernel matrix that fit into a few tens of megabytes."""
    rows = max(1, BLOCK_ENTRIES // n_points)
    return [slice(start, min(start + rows, n_points)) for start in range(0, n_points, rows)]
