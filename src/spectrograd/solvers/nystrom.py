"""``nystrom``: eigenvectors extended from sampled columns (Fowlkes et al. 2004)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
    sampled_points,
)

Array = NDArray[Any]
CHECKED_ROWS = 200


@dataclass(frozen=True)
class Nystrom(LandmarkSolver):
    """Solve on a few landmarks and extend the solution to all nodes.

    **Definition.** ``C = S[:, landmarks]`` are sampled columns of the similarity ``S = c I - A``
    (``c`` the least shift that makes it positive semidefinite), ``A_nn`` their rows at the landmarks. With
    ``F = C A_nn^-1/2`` and ``R = F'F = A_nn + A_nn^-1/2 B B' A_nn^-1/2 = Q E Q'`` the vectors are
    ``V = F Q E^-1/2``: the exact eigenvectors of ``C A_nn^-1 C'``, which stands for ``S``.

    **Meaning.** The similarity is taken to have a rank of at most the number of landmarks. That holds for
    smooth kernels on points, where every column is dense; it does not hold for sparse graphs, where a
    node that neighbours no landmark has a row of zeros. ``walk`` repairs that at the price of passes.

    **Cost.** The landmarks' rows are read once; O(N n^2) time, O(N n) memory. No iteration.

    **Use it** for a first look at dense affinities, or without a graph (:func:`nystrom_points`).
    **Do not** for sparse graphs with ``walk=1``: the certificate will say NOT converged.

    Parameters
    ----------
    n_landmarks
        Sampled columns n; all nodes if there are fewer.
    walk
        Use columns of ``S^walk`` instead: a few steps of a random walk, whose columns are dense and of
        low rank. 1 is the method of the paper.

    References
    ----------
    Fowlkes, Belongie, Chung, Malik: Spectral grouping using the Nystrom method. IEEE TPAMI, 2004.

    Examples
    --------
    >>> from spectrograd import datasets, solvers
    >>> from spectrograd.operators.laplacian import laplacian
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> solvers.solve(Problem(laplacian(graph), 3), Nystrom(n_landmarks=100, walk=20), seed=0).Q.shape
    (300, 3)
    """

    name: ClassVar[str] = "nystrom"

    def basis(self, problem: Problem, state: State) -> Array:
        """Extended from the landmarks."""
        return nystrom_basis(problem, state, self.n_landmarks, self.walk)


def nystrom_basis(problem: Problem, state: State, n_landmarks: int, walk: int = 1) -> Array:
    """N x K approximate eigenvectors of the operator in standard form."""
    landmarks = draw_landmarks(problem.n_nodes, n_landmarks, problem.n_components, state.rng)
    columns = Similarity.of(problem, state).walk(problem.engine, landmarks, walk, state)
    return _extend(columns, landmarks, problem.n_components).vectors


def nystrom_points(
    points: ArrayLike,
    n_components: int,
    *,
    kernel: str | Kernel = "rbf",
    gamma: float | None = None,
    n_landmarks: int = 200,
    random_state: int | np.random.Generator | None = None,
) -> PointEmbedding:
    """Embed points by a kernel without building a graph: N x n kernel values, never N x N.

    Degrees are those of the approximation too: ``d = C A_nn^-1 C' 1``. Residuals are measured on 200
    random rows of the true kernel matrix and scaled up.

    Parameters
    ----------
    points
        N x p coordinates.
    n_components
        Vectors wanted, the constant one included.
    kernel, gamma
        ``"rbf"`` is ``exp(-gamma |x - y|^2)``, gamma ``1 / p`` when not given; or a function
        ``k(X, Y)`` returning the matrix of similarities.
    n_landmarks
        Sampled columns.
    random_state
        Seed.

    Examples
    --------
    >>> from spectrograd import datasets
    >>> points, _ = datasets.make_gaussian_mixture(500, 3, random_state=0)
    >>> nystrom_points(points, 3, random_state=0).embedding.vectors.shape
    (500, 3)
    """
    rng = np.random.default_rng(random_state)
    coordinates, similarity, landmarks = sampled_points(points, n_components, kernel, gamma, n_landmarks, rng)
    columns = similarity(coordinates, coordinates[landmarks])
    root = _inverse_root(columns[landmarks])
    degrees = columns @ (root @ (root.T @ columns.sum(axis=0)))
    degrees = np.maximum(degrees, columns.sum(axis=1))  # the approximation can undershoot: far points
    scale = 1 / np.sqrt(degrees)
    values, V = _extend(scale[:, None] * columns * scale[landmarks], landmarks, n_components)
    rows = rng.choice(len(V), min(CHECKED_ROWS, len(V)), replace=False)
    product = scale[rows, None] * (similarity(coordinates[rows], coordinates) @ (scale[:, None] * V))
    residuals = np.linalg.norm(product - V[rows] * values, axis=0) * np.sqrt(len(V) / len(rows))
    embedding = arrange(scale[:, None] * V, 1 - values)
    return PointEmbedding(embedding, degrees, landmarks, residuals[np.argsort(1 - values, kind="stable")])


class _Extended(NamedTuple):
    values: Array
    vectors: Array


def _extend(columns: Array, landmarks: Array, k: int) -> _Extended:
    """The one-shot method: leading eigenpairs of ``C A_nn^-1 C'``, orthonormal, largest first."""
    F = columns @ _inverse_root(columns[landmarks])
    E, Q = la.eigh(F.T @ F)
    E, Q = E[::-1][:k], Q[:, ::-1][:, :k]
    V = F @ (Q / np.sqrt(np.maximum(E, np.finfo(float).tiny)))
    missing = k - V.shape[1]
    return _Extended(np.pad(E, (0, missing)), np.pad(V, ((0, 0), (0, missing))))


def _inverse_root(block: Array) -> Array:
    """``A_nn^-1/2`` on the numerical range: n x rank, ``root @ root.T`` is the pseudo-inverse."""
    values, vectors = la.eigh((block + block.T) / 2)
    kept = values > 1e-10 * max(values[-1], 0.0)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
