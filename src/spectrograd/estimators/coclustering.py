"""Clusters of the rows and of the columns of a table at once."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, BiclusterMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from spectrograd.engines import make_engine
from spectrograd.estimators.settings import seed_of
from spectrograd.graph import GraphError, GraphWarning
from spectrograd.graph.feature_rows import ResidentFeatures
from spectrograd.graph.features import FeatureGraph
from spectrograd.graph.validation import check_structure
from spectrograd.labels import assign
from spectrograd.notices import warn
from spectrograd.operators.similarity import SimilarityOperator
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.solve import embed
from spectrograd.solvers.settings import RunContext, SolverSettings
from spectrograd.typing import Array

SVD_METHODS = ("auto", "randomized", "arpack")


class SpectralCoclustering(BiclusterMixin, BaseEstimator):
    """Cluster the rows and the columns of a non-negative table together (Dhillon 2001).

    Rows and columns are the two sides of a bipartite graph with the entries of the table as weights. Its
    Laplacian's eigenvectors are singular vectors of ``A_n = D_r^-1/2 A D_c^-1/2``, found from products with
    A_n and its transpose: the graph is never formed. The drop-in of scikit-learn's class of that name.

    Parameters
    ----------
    n_clusters : int
        Biclusters.
    svd_method : {"auto", "randomized", "arpack"}
        Accepted for scikit-learn's sake: the solver is chosen by ``solver``.
    n_svd_vecs : int or None
        Accepted, and not used either: the certificate decides how much work is enough.
    mini_batch : bool
        Accepted: k-means of many rows works on samples of them anyway.
    init : "k-means++"
        Accepted.
    n_init : int
        Most starts of k-means.
    random_state : int, RandomState or None
        Seed.
    n_components : int or None
        Singular vectors, the trivial one included; None is as many as clusters. scikit-learn takes
        ``1 + ceil(log2(n_clusters))``, which mixes clusters where there are many.
    solver : str
        As of :class:`~spectrograd.SpectralClustering`.
    tol : float or "auto"
        As of :class:`~spectrograd.SpectralClustering`.
    engine : str or dask.distributed.Client
        Where products run.

    Attributes
    ----------
    row_labels_ : array of shape (n_rows,)
    column_labels_ : array of shape (n_columns,)
        -1 for rows and columns of zeros, which a warning counts.
    rows_, columns_ : arrays of bool, shape (n_clusters, n_rows) and (n_clusters, n_columns)
    biclusters_ : tuple
        ``(rows_, columns_)``.
    singular_values_ : array of shape (n_components,)
        Of A_n; the first is 1.
    certificate_ : Certificate
        Of the vectors of the smaller side; ``converged_`` is its yes or no.

    Examples
    --------
    >>> from spectrograd import SpectralCoclustering
    >>> table = np.kron(np.eye(2), np.ones((3, 4))) + 0.1
    >>> model = SpectralCoclustering(2, random_state=0).fit(table)
    >>> bool((model.row_labels_[:3] == model.column_labels_[:4].mean()).all())
    True
    """

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        svd_method: str = "auto",
        n_svd_vecs: int | None = None,
        mini_batch: bool = False,
        init: object = "k-means++",
        n_init: int = 10,
        random_state: object = None,
        n_components: int | None = None,
        solver: str = "auto",
        tol: float | str = "auto",
        engine: object = "auto",
    ) -> None:
        self.n_clusters = n_clusters
        self.svd_method = svd_method
        self.n_svd_vecs = n_svd_vecs
        self.mini_batch = mini_batch
        self.init = init
        self.n_init = n_init
        self.random_state = random_state
        self.n_components = n_components
        self.solver = solver
        self.tol = tol
        self.engine = engine

    def fit(self, X: object, y: None = None) -> Self:
        """Cluster the rows and columns of a table.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_columns)
            Not negative.
        y : None
            Not used.

        Returns
        -------
        self
        """
        # 1. Input: a table without empty rows and columns.
        table = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        table = sp.csr_array(table) if sp.issparse(table) else table
        self._check(table)
        # degrees of the bipartite graph, D_r and D_c
        row_sums = np.asarray(table.sum(axis=1, dtype=np.float64)).ravel()
        column_sums = np.asarray(table.sum(axis=0, dtype=np.float64)).ravel()
        rows = np.flatnonzero(row_sums)
        columns = np.flatnonzero(column_sums)
        part = _part(table, rows, columns)
        # 2. Singular vectors of A_n: eigenvectors of the smaller side, and A_n' of these for the other one.
        n_components = min(self.n_components or self.n_clusters, *part.shape)
        U, V = self._vectors(part, row_sums[rows], column_sums[columns], n_components)
        # 3. Labels: k-means on rows and columns together, in random-walk scaling.
        together = np.vstack([U, V])
        seed = seed_of(self.random_state)
        labels = assign(
            together,
            self.n_clusters,
            n_init=self.n_init,
            unit_rows=True,
            norm_regularization=1.0,
            random_state=seed,
        ).labels
        self.row_labels_ = _on_all(labels[: len(rows)], rows, table.shape[0])
        self.column_labels_ = _on_all(labels[len(rows) :], columns, table.shape[1])
        clusters = np.arange(self.n_clusters)[:, None]
        self.rows_ = self.row_labels_ == clusters
        self.columns_ = self.column_labels_ == clusters
        return self

    def _check(self, table: Any) -> None:
        """Refuse what has no biclusters, in words."""
        if self.svd_method not in SVD_METHODS:
            raise ValueError(f"svd_method={self.svd_method!r}: expected one of {', '.join(SVD_METHODS)}")
        k = self.n_clusters
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= table.shape[0]:
            raise ValueError(
                f"n_clusters={k!r}: expected a whole number from 1 to the number of rows, {table.shape[0]}"
            )
        if sp.issparse(table):
            check_structure(table)
        values = table.data if sp.issparse(table) else table
        if values.size and values.min() < 0:
            lowest = f"{values.min():g}"
            raise GraphError(f"the table has negative entries, the smallest {lowest}: none is a weight")
        if not values.any():
            raise GraphError("the table is empty: all of its entries are zero")
        empty = [int((np.asarray(table.sum(axis=axis)).ravel() == 0).sum()) for axis in (1, 0)]
        if any(empty):
            what = f"{empty[0]} rows and {empty[1]} columns are zero"
            warn(f"{what}: they belong to no cluster (-1)", GraphWarning)

    def _vectors(
        self, table: Any, row_sums: Array, column_sums: Array, n_components: int
    ) -> tuple[Array, Array]:
        """``D_r^-1/2 u`` and ``D_c^-1/2 v`` of the largest singular values; sets their attributes."""
        # 1. the smaller side: its operator has fewer rows
        is_wide = table.shape[0] > table.shape[1]
        own, other = (column_sums, row_sums) if is_wide else (row_sums, column_sums)
        # A_n A_n' = diag(f) Z Z' diag(f) with Z = A D_c^-1/2 and f = d_r^-1/2; its operator is I - A_n A_n'.
        scaled = _scaled(table, 1 / np.sqrt(other), axis=0 if is_wide else 1)
        rows = ResidentFeatures(scaled.T if is_wide else scaled)
        n = rows.shape[0]
        graph = FeatureGraph((), n, features=rows, row_scale=np.ones(n))
        root = np.sqrt(own)
        operator = SimilarityOperator(graph, np.ones(n), 1 / root, upper=1.0)
        settings = SolverSettings(solver=self.solver, tol=self.tol, seed=seed_of(self.random_state))
        # 2. its eigenvectors u of I - A_n A_n', the smallest first
        solved = embed(
            operator, min(n_components, n - 1) or 1, settings, RunContext(make_engine(self.engine))
        )
        self._set_attributes(solved)
        near = solved.embedding.vectors / root[:, None]
        values = np.maximum(self.singular_values_, np.finfo(float).eps)
        # 3. the other side: v = A_n' u / sigma, in random-walk scaling D_c^-1 A' (D_r^-1/2 u) / sigma
        far = np.asarray((table if is_wide else table.T) @ near) / np.outer(other, values)
        return (far, near) if is_wide else (near, far)

    def _set_attributes(self, solved: CertifiedEmbedding) -> None:
        # eigenvalues of I - A_n A_n' are 1 - sigma^2
        self.singular_values_ = np.sqrt(np.clip(1 - solved.embedding.eigenvalues, 0, 1))
        self.certificate_ = solved.certificate
        self.converged_ = solved.certificate.converged
        self.solver_ = solved.solver

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def _part(table: Any, rows: Array, columns: Array) -> Any:
    """The table without empty rows and columns."""
    if len(rows) == table.shape[0] and len(columns) == table.shape[1]:
        return table
    return table[rows][:, columns]


def _scaled(table: Any, factors: Array, axis: int) -> Any:
    """The table with rows (axis 0) or columns (axis 1) times factors; the pattern is not copied."""
    factors = factors.astype(table.dtype)
    if not sp.issparse(table):
        return table * (factors[:, None] if axis == 0 else factors)
    of_entries = np.repeat(factors, np.diff(table.indptr)) if axis == 0 else factors[table.indices]
    return sp.csr_array((table.data * of_entries, table.indices, table.indptr), shape=table.shape)


def _on_all(labels: Array, places: Array, size: int) -> Array:
    """Labels of some places; -1 elsewhere."""
    out = np.full(size, -1, labels.dtype)
    out[places] = labels
    return out
