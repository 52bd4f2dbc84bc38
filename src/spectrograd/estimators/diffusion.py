"""Diffusion maps: coordinates of points or nodes in which distances are those of a random walk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from spectrograd.certificate import Certificate
from spectrograd.engines import make_engine
from spectrograd.estimators.affinity_rows import QueryAffinity
from spectrograd.estimators.inputs import Affinity, as_graph
from spectrograd.estimators.settings import check_components, seed_of
from spectrograd.graph import Graph, GraphError, RowBlock
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import prepare_graph
from spectrograd.pipeline.solve import embed
from spectrograd.points.validation import Metric
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array


class DiffusionMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embed points or nodes by the random walk on their graph (Coifman and Lafon 2006).

    With the kernel K, its own weights (K_ii) included, ``q = K 1`` estimates the density,
    ``K_a = K / (q q')^alpha`` takes it out, and the walk is ``P = D^-1 K_a``. Coordinates are
    ``lambda_k^t psi_k`` for the largest eigenvalues of P but the trivial one; psi has unit mean square under
    the stationary distribution.

    Parameters
    ----------
    n_components : int
        Coordinates.
    alpha : float from 0 to 1
        1 undoes the density of the sampling, 1/2 gives the Fokker-Planck operator, 0 is the plain walk.
    t : int, float or "auto"
        Steps of the walk; "auto" adds up all of them, ``sum_t lambda^t = lambda / (1 - lambda)``: distances
        on every scale at once (Haghverdi et al. 2016), without a number to choose.
    affinity, n_neighbors, metric, recall, gamma
        How ``fit(X)`` turns an array into a graph, as of :class:`~spectrograd.SpectralEmbedding`.
    self_weight : float or "auto"
        K_ii. "auto": 1 for points, whose kernel is 1 at distance 0, and none for graphs.
    solver, tol, random_state, n_jobs, engine
        As of :class:`~spectrograd.SpectralEmbedding`.

    Attributes
    ----------
    embedding_ : array of shape (n_nodes, n_components)
        Zero for nodes that are not connected to the rest.
    eigenvalues_ : array of shape (n_components,)
        Of P, falling.
    t_ : float or "auto"
    certificate_ : Certificate
        Of eigenvalues ``1 - lambda``; ``converged_`` is its yes or no.

    Examples
    --------
    >>> from spectrograd import DiffusionMap
    >>> angle = np.linspace(0, np.pi, 200)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> first = DiffusionMap(2, random_state=0).fit_transform(arc)[:, 0]
    >>> bool((np.diff(first) > 0).all() or (np.diff(first) < 0).all())
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: float = 1.0,
        t: float | str = 1,
        affinity: Affinity = "auto",
        n_neighbors: int = 10,
        metric: Metric = "euclidean",
        recall: float = 0.98,
        gamma: float | None = None,
        self_weight: float | str = "auto",
        solver: str = "auto",
        tol: float | str = "auto",
        random_state: object = None,
        n_jobs: int | None = None,
        engine: object = "auto",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.t = t
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.recall = recall
        self.gamma = gamma
        self.self_weight = self_weight
        self.solver = solver
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine

    # What reading an input asks of an estimator beside the parameters above.
    laplacian = "random_walk"
    memory_limit = None
    kernel_params: Mapping[str, object] | None = None
    degree = 3
    coef0 = 1

    _makers: tuple[QueryAffinity, ...] | None
    certificate_: Certificate

    def fit(self, X: object, y: None = None, **columns: str) -> Self:
        """Embed points, a graph or an affinity matrix.

        Parameters
        ----------
        X, **columns
            As for :class:`~spectrograd.SpectralEmbedding`.
        y : None
            Not used.

        Returns
        -------
        self
        """
        # 1. Input: a graph, and what the parameters say.
        self._check()
        source = as_graph(self, X, columns)
        graph = source.graph
        if not isinstance(graph, Graph) or not graph.is_resident or not isinstance(graph.blocks, tuple):
            raise GraphError("a diffusion map is of one graph in memory: load it, or form its weights")
        check_components(self.n_components, graph.n_nodes - 1, "n_components")
        own = self._own_weight(source.makers)
        # 2. The walk without the density: q = K 1, K_a = K / (q q')^alpha.
        density = graph.degrees + own
        settings = Settings(
            n_components=self.n_components + 1,
            disconnected="largest",
            solver=self.solver,
            tol=self.tol,
            seed=seed_of(self.random_state),
        )
        context = RunContext(make_engine(self.engine, n_jobs=self.n_jobs))
        prepared = prepare_graph(graph, settings, context)
        operator = diffusion_operator(prepared.part, density[prepared.kept], self.alpha, own)
        # 3. Eigenvectors, scaled to the stationary distribution and to t.
        solved = embed(operator, self.n_components + 1, settings, context)
        assert operator.metric is not None
        # unit mean square under the stationary distribution d_i / sum d: the embedding has u'Du = 1
        psi = solved.embedding.vectors[:, 1:] * np.sqrt(operator.metric.sum())
        self.eigenvalues_ = 1 - solved.embedding.eigenvalues[1:]
        self._psi = np.zeros((graph.n_nodes, self.n_components))
        self._psi[prepared.kept] = psi
        self._active = np.zeros(graph.n_nodes, bool)
        self._active[prepared.kept] = True
        self._density = density
        self._own = own
        self._makers = source.makers
        self._float = source.dtype
        self.t_ = self.t
        self.embedding_ = (self._psi * self._powers).astype(source.dtype, copy=False)
        self.certificate_ = solved.certificate
        self.converged_ = solved.certificate.converged
        self.solver_ = solved.solver
        return self

    def fit_transform(self, X: object, y: None = None, **columns: str) -> Array:
        """Embed and return the coordinates."""
        return self.fit(X, None, **columns).embedding_

    def transform(self, X: object) -> Array:
        """Coordinates of new points by the same walk (Nystrom), exact for points of the fit.

        Parameters
        ----------
        X : array of shape (n_new, n_features)
            New points; for a model of a graph or of a matrix, rows of weights to its nodes (n_new, n_nodes).

        Returns
        -------
        array of shape (n_new, n_components)
            Zero for a point that is joined to none.
        """
        check_is_fitted(self)
        same = None
        if self._makers is None:
            weights = sp.csr_array(X)
        else:
            rows = self._makers[0](self, X)
            weights = sp.csr_array(rows.weights)
            same = rows.same
        if weights.shape[1] != len(self._psi):
            n_nodes = len(self._psi)
            raise GraphError(f"rows of shape {weights.shape}: one weight per node, {n_nodes}, is needed")
        psi = self._extend(weights)
        if same is not None:
            psi[same >= 0] = self._psi[same[same >= 0]]
        return np.asarray((psi * self._powers).astype(self.embedding_.dtype, copy=False))

    def _extend(self, weights: sp.csr_array) -> Array:
        """Psi of new rows: ``(lambda D - K_xx) psi(x) = sum_j K_a(x, j) psi_j``."""
        # columns of K_a(x, j) = K(x, j) / (q(x) q_j)^alpha
        active = sp.diags_array(np.where(self._active, self._density**-self.alpha, 0.0))
        density = np.asarray(weights.sum(axis=1)).ravel() + self._own
        linked = np.asarray((weights @ active).sum(axis=1)).ravel() > 0
        own = np.where(density > 0, density, 1.0) ** -self.alpha
        scaled = sp.csr_array(sp.diags_array(own) @ weights @ active)
        # K_a(x, x): the own weight counts in the degree and moves to the left side
        loop = self._own * own**2
        mass = np.asarray(scaled.sum(axis=1)).ravel() + loop
        # P psi = lambda psi in the row of x, solved for psi(x); a training point gets its own row back
        bottom = np.outer(mass, self.eigenvalues_) - loop[:, None]
        psi = np.asarray(scaled @ self._psi)
        return np.where(linked[:, None], psi / np.where(bottom == 0, 1, bottom), 0.0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model into a folder; see :func:`spectrograd.load`."""
        from spectrograd.estimators.persistence import save_model

        check_is_fitted(self)
        save_model(self, path)

    @property
    def _powers(self) -> Array:
        """``lambda^t``; of all t together ``lambda / (1 - lambda)``."""
        values = self.eigenvalues_
        if isinstance(self.t, str):
            return np.asarray(values / np.maximum(1 - values, np.finfo(float).eps))
        return np.asarray(np.sign(values) * np.abs(values) ** self.t)

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def _n_columns(self, n_nodes: int) -> int:
        return self.n_components + 1

    def _own_weight(self, makers: object) -> float:
        if self.self_weight == "auto":
            return 0.0 if makers is None or self.affinity == "precomputed" else 1.0
        return float(self.self_weight)

    def _check(self) -> None:
        """Refuse parameters that mean nothing."""
        if not isinstance(self.alpha, int | float) or not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha={self.alpha!r}: expected a number from 0 to 1")
        given = self.t
        if given != "auto" and (isinstance(given, str) or not 0 <= given < np.inf):
            raise ValueError(f"t={given!r}: expected 'auto' or a number that is not negative")
        own = self.self_weight
        if own != "auto" and (isinstance(own, str) or not 0 <= own < np.inf):
            raise ValueError(f"self_weight={own!r}: expected 'auto' or a number that is not negative")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def diffusion_operator(graph: Graph, density: Array, alpha: float, own: float = 0.0) -> SparseOperator:
    """The pencil ``(D - K_a, D)`` of the walk on a graph without the density of its nodes.

    Parameters
    ----------
    graph : Graph
    density : array of shape (n_nodes,)
        q, own weights included.
    alpha : float
    own : float
        K_ii: it counts in D, and nowhere else.
    """
    factors = density**-alpha
    blocks = []
    for block in graph.blocks:
        # w_ij / (q_i q_j)^alpha, block by block
        rows = np.repeat(factors[block.start : block.stop], np.diff(block.indptr))
        weights = rows * factors[block.indices]
        if block.weights is not None:
            weights *= block.weights
        blocks.append(RowBlock(block.start, block.indptr, block.indices, weights))
    walk = replace(graph, blocks=tuple(blocks))
    return SparseOperator(walk, walk.degrees, metric=walk.degrees + own * factors**2)
