"""``variational-nystrom``: the best vectors in the span of sampled columns (Vladymyrov 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg as la
from numpy.typing import ArrayLike, NDArray

from spectrograd.embedding import arrange
from spectrograd.solvers.landmarks import LandmarkSolver
from spectrograd.solvers.protocol import Problem, State
from spectrograd.solvers.similarity import (
    Kernel,
    PointEmbedding,
    Similarity,
    draw_landmarks,
    row_blocks,
    sampled_points,
)

Array = NDArray[Any]


@dataclass(frozen=True)
class VariationalNystrom(LandmarkSolver):
    """Minimise the true objective over ``X = C Y``, C sampled columns of the similarity.

    **Definition.** ``C = S[:, landmarks]``; solve ``C' S C y = lambda C'C y`` (Rayleigh-Ritz on the span
    of C) and return ``X = C Y``.

    **Meaning.** The same columns as ``nystrom``, but the whole matrix decides how they are combined,
    not the landmark block alone: no other vectors in their span have a smaller objective. The
    eigenvalues are upper bounds. What the span does not reach stays out of reach: rows of nodes that
    neighbour no landmark are zero when ``walk=1``.

    **Cost.** The landmarks' rows and one pass with n columns; O(N n^2) time, O(N n) memory.

    **Use it** instead of ``nystrom`` whenever a pass over the graph can be afforded. **Do not** expect
    digits on sparse graphs unless ``walk`` is raised: the certificate tells.

    Parameters
    ----------
    n_landmarks
        Sampled columns n; all nodes if there are fewer.
    walk
        Use columns of ``S^walk``; 1 is the method of the paper. Each further step is a pass.

    References
    ----------
    Vladymyrov, Carreira-Perpinan: The variational Nystrom method for large-scale spectral problems.
    ICML, 2016.

    Examples
    --------
    >>> from spectrograd import datasets, solvers
    >>> from spectrograd.operators.laplacian import laplacian
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> solvers.solve(Problem(laplacian(graph), 3), VariationalNystrom(n_landmarks=100), seed=0).Q.shape
    (300, 3)
    """

    name: ClassVar[str] = "variational-nystrom"

    def basis(self, problem: Problem, state: State) -> Array:
        """Ritz vectors in the span of the columns."""
        landmarks = draw_landmarks(problem.n_nodes, self.n_landmarks, problem.n_components, state.rng)
        similarity = Similarity.of(problem, state)
        span = _range_basis(similarity.walk(problem.engine, landmarks, self.walk, state))
        small = span.T @ similarity.apply(problem.engine, span)
        state.passes += 1
        _, Y = la.eigh((small + small.T) / 2)
        return _widened(span @ Y[:, ::-1][:, : problem.n_components], problem.n_components)


def variational_nystrom_points(
    points: ArrayLike,
    n_components: int,
    *,
    kernel: str | Kernel = "rbf",
    gamma: float | None = None,
    n_landmarks: int = 200,
    random_state: int | np.random.Generator | None = None,
) -> PointEmbedding:
    """Embed points by a kernel without building a graph: Ritz vectors in the span of sampled columns.

    The kernel matrix is gone through twice in blocks of rows (exact degrees, then the product with the
    basis) and never stored: O(N^2) kernel values, O(N n) memory. Residuals are exact.

    Parameters
    ----------
    points, n_components, kernel, gamma, n_landmarks, random_state
        As for :func:`spectrograd.solvers.nystrom.nystrom_points`.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> points, _ = datasets.make_gaussian_mixture(500, 3, random_state=0)
    >>> variational_nystrom_points(points, 3, random_state=0).embedding.vectors.shape
    (500, 3)
    """
    rng = np.random.default_rng(random_state)
    coordinates, similarity, landmarks = sampled_points(points, n_components, kernel, gamma, n_landmarks, rng)
    blocks = row_blocks(len(coordinates))
    degrees = np.concatenate([similarity(coordinates[b], coordinates).sum(axis=1) for b in blocks])
    scale = 1 / np.sqrt(degrees)
    basis = _range_basis(scale[:, None] * similarity(coordinates, coordinates[landmarks]))
    scaled = scale[:, None] * basis
    product = np.vstack([similarity(coordinates[b], coordinates) @ scaled for b in blocks])
    product *= scale[:, None]
    small = basis.T @ product
    values, Y = la.eigh((small + small.T) / 2)
    values, Y = values[::-1][:n_components], Y[:, ::-1][:, :n_components]
    V = basis @ Y
    residuals = np.linalg.norm(product @ Y - V * values, axis=0)
    return PointEmbedding(arrange(scale[:, None] * V, 1 - values), degrees, landmarks, residuals)


def _range_basis(columns: Array) -> Array:
    """Orthonormal basis of the numerical range, by Gram matrices: products only, twice for accuracy."""
    basis = columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny)
    for _ in range(2):
        values, rotation = la.eigh(basis.T @ basis)
        kept = values > 1e-12 * values[-1]
        basis = basis @ (rotation[:, kept] / np.sqrt(values[kept]))
    return np.asarray(basis)


def _widened(vectors: Array, k: int) -> Array:
    """Zero columns where the span has fewer than k; they are replaced and counted afterwards."""
    return np.pad(vectors, ((0, 0), (0, k - vectors.shape[1])))
