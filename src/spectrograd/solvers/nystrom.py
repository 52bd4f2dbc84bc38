"""Landmark methods: ``nystrom`` and ``variational-nystrom``, for graphs and for points without a graph.

Both are direct: one step from sampled columns of the similarity to vectors. :class:`Nystrom` extends the
eigenvectors of the sampled block (Fowlkes et al. 2004); :class:`VariationalNystrom` takes the best vectors in
the span of the columns (Vladymyrov 2016).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import ArrayLike

from spectrograd.embedding import arrange
from spectrograd.operators.base import ALL
from spectrograd.solvers.base import Problem, Solver, State
from spectrograd.solvers.similarity import (
    Kernel,
    PointEmbedding,
    Similarity,
    draw_landmarks,
    row_blocks,
    sampled_points,
)
from spectrograd.typing import Array


@dataclass(frozen=True)
class LandmarkSolver(Solver[State]):
    """Vectors from ``n_landmarks`` columns of ``S^walk``, S the similarity."""

    n_landmarks: int = 200
    walk: int = 1
    max_iter: int = 1

    requires = ALL
    direct: ClassVar[bool] = True

    @abstractmethod
    def basis(self, problem: Problem, state: State) -> Array:
        """N x K approximate eigenvectors of the operator in standard form."""

    def init(self, problem: Problem, rng: np.random.Generator) -> State:
        """Return an empty state: the one step draws the landmarks."""
        return State(np.zeros((problem.n_nodes, problem.n_components)), rng)

    def step(self, problem: Problem, state: State) -> State:
        """The first step is the last."""
        vectors = problem.standard.inverse_transform(self.basis(problem, state))
        state.U, n_random = problem.orthonormalize(vectors, state.rng)
        if n_random:
            state.events.append(f"{n_random} directions beyond the rank of the sample are random")
        state.iteration = 1
        state.done = True
        return state


# --- ``nystrom``: eigenvectors extended from sampled columns (Fowlkes et al. 2004).

SAMPLE_ROWS = 200


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
    # 1. columns of the kernel at the landmarks, C (N x n)
    columns = similarity(coordinates, coordinates[landmarks])
    # 2. degrees of the approximation, d = C A_nn^-1 C'1
    root = _inverse_root(columns[landmarks])
    degrees = columns @ (root @ (root.T @ columns.sum(axis=0)))
    degrees = np.maximum(degrees, columns.sum(axis=1))  # the approximation can undershoot: far points
    scale = 1 / np.sqrt(degrees)
    # 3. extend the eigenvectors of the normalised block
    values, V = _extend(scale[:, None] * columns * scale[landmarks], landmarks, n_components)
    # 4. residuals on a sample of the rows of the true kernel
    rows = rng.choice(len(V), min(SAMPLE_ROWS, len(V)), replace=False)
    product = scale[rows, None] * (similarity(coordinates[rows], coordinates) @ (scale[:, None] * V))
    residuals = np.linalg.norm(product - V[rows] * values, axis=0) * np.sqrt(len(V) / len(rows))
    # 5. back to the pencil: u = D^-1/2 v, lambda = 1 - value
    embedding = arrange(scale[:, None] * V, 1 - values)
    return PointEmbedding(embedding, degrees, landmarks, residuals[np.argsort(1 - values, kind="stable")])


class _Extended(NamedTuple):
    values: Array
    vectors: Array


def _extend(columns: Array, landmarks: Array, k: int) -> _Extended:
    """The one-shot method: leading eigenpairs of ``C A_nn^-1 C'``, orthonormal, largest first."""
    # 1. F = C A_nn^-1/2 (Fowlkes et al. 2004)
    F = columns @ _inverse_root(columns[landmarks])
    # 2. R = F'F = Q E Q', largest first
    E, Q = la.eigh(F.T @ F)
    E = E[::-1][:k]
    Q = Q[:, ::-1][:, :k]
    # 3. V = F Q E^-1/2; columns that the rank does not allow are zero
    V = F @ (Q / np.sqrt(np.maximum(E, np.finfo(float).tiny)))
    missing = k - V.shape[1]
    return _Extended(np.pad(E, (0, missing)), np.pad(V, ((0, 0), (0, missing))))


def _inverse_root(block: Array) -> Array:
    """``A_nn^-1/2`` on the numerical range: n x rank, ``root @ root.T`` is the pseudo-inverse."""
    values, vectors = la.eigh((block + block.T) / 2)
    in_range = values > 1e-10 * max(values[-1], 0.0)
    return np.asarray(vectors[:, in_range] / np.sqrt(values[in_range]))


# --- ``variational-nystrom``: the best vectors in the span of sampled columns (Vladymyrov 2016).


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
    digits on sparse graphs unless ``walk`` is raised: the certificate says so.

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
        # 1. an orthonormal basis of the columns: C'C = I below
        span = _range_basis(similarity.walk(problem.engine, landmarks, self.walk, state))
        # 2. C'SC, one pass with n columns
        small = span.T @ similarity.apply(problem.engine, span)
        state.matvecs += span.shape[1]
        # 3. the K largest Ritz vectors
        _, Y = la.eigh((small + small.T) / 2)
        return _widen(span @ Y[:, ::-1][:, : problem.n_components], problem.n_components)


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
    # 1. exact degrees: the kernel matrix in blocks of rows, none of them kept
    blocks = row_blocks(len(coordinates))
    degrees = np.concatenate([similarity(coordinates[b], coordinates).sum(axis=1) for b in blocks])
    scale = 1 / np.sqrt(degrees)
    # 2. an orthonormal basis of the normalised columns (N x n)
    basis = _range_basis(scale[:, None] * similarity(coordinates, coordinates[landmarks]))
    # 3. its product with the normalised kernel matrix, again in blocks
    scaled = scale[:, None] * basis
    product = np.vstack([similarity(coordinates[b], coordinates) @ scaled for b in blocks])
    product *= scale[:, None]
    # 4. Rayleigh-Ritz, and exact residuals
    small = basis.T @ product
    values, Y = la.eigh((small + small.T) / 2)
    values = values[::-1][:n_components]
    Y = Y[:, ::-1][:, :n_components]
    V = basis @ Y
    residuals = np.linalg.norm(product @ Y - V * values, axis=0)
    return PointEmbedding(arrange(scale[:, None] * V, 1 - values), degrees, landmarks, residuals)


def _range_basis(columns: Array) -> Array:
    """Orthonormal basis of the numerical range, by Gram matrices: products only, twice for accuracy."""
    # unit columns first: a Gram matrix of one scale
    basis = columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny)
    for _ in range(2):
        values, rotation = la.eigh(basis.T @ basis)
        in_range = values > 1e-12 * values[-1]
        basis = basis @ (rotation[:, in_range] / np.sqrt(values[in_range]))
    return np.asarray(basis)


def _widen(vectors: Array, k: int) -> Array:
    """Zero columns where the span has fewer than k; they are replaced and counted afterwards."""
    return np.pad(vectors, ((0, 0), (0, k - vectors.shape[1])))
