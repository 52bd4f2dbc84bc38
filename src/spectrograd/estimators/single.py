"""Estimators of one graph."""

from __future__ import annotations

from typing import Any

from spectrograd.estimators.base import Clusterer, Embedder, labels
from spectrograd.estimators.inputs import as_graph
from spectrograd.laplacian import laplacian


class SpectralEmbedding(Embedder):
    """Embed the nodes of a graph (or points, through their neighbours) by eigenvectors of its Laplacian.

    Parameters
    ----------
    n_components : int
        Columns of the embedding.
    affinity : {"nearest_neighbors", "rbf", "precomputed", "precomputed_nearest_neighbors"}
        How ``fit(X)`` turns X into a graph, as in scikit-learn. A :class:`Graph` is taken as it is.
    laplacian : {"random_walk", "symmetric", "unnormalized"}
        Which eigenproblem; the paper uses ``"unnormalized"``.
    solver : str
        ``"auto"`` or a name from ``spectrograd.solvers.REGISTRY``; ``solver_params`` go to it.
    drop_first : bool
        Leave out the trivial first eigenvector.
    tol, max_iter, time_budget
        When to stop; a run out of time returns its best state, and ``certificate_`` tells how good it is.
    random_state : int, RandomState or None
        Seed; the same seed gives the same result.

    Attributes
    ----------
    embedding_ : array of shape (n_nodes, n_components)
    eigenvalues_ : array of shape (n_components,)
    certificate_ : Certificate
        Residuals and verdict; ``converged_`` is its yes or no.
    history_ : tuple of Progress
    solver_, n_iter_ : what ran and for how long
    names_ : node names in the order of the rows, where the input had any

    Examples
    --------
    >>> from spectrograd import SpectralEmbedding, datasets
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> SpectralEmbedding(2, random_state=0).fit_transform(data.graph).shape
    (300, 2)
    """

    def fit(self, X: Any, y: None = None) -> SpectralEmbedding:
        """Embed a graph, an affinity matrix or points."""
        graph = as_graph(self, X)
        result = self._solve(laplacian(graph, self.laplacian), self._n_columns(graph.n_nodes))
        self._keep(result, self.drop_first)
        self.names_ = graph.node_names
        return self


class SpectralClustering(Clusterer):
    """Cluster the nodes of a graph (or points, through their neighbours).

    Embeds into ``n_clusters`` eigenvectors (the trivial one included, as scikit-learn does), then
    assigns labels on rows of unit length. Parameters not named here are those of
    :class:`SpectralEmbedding`.

    Parameters
    ----------
    n_clusters : int
    assign_labels : {"kmeans", "cluster_qr", "discretize"}
    n_init : int
        Restarts of k-means.

    Attributes
    ----------
    labels_ : array of shape (n_nodes,)

    Examples
    --------
    >>> from spectrograd import SpectralClustering, datasets, metrics
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> labels = SpectralClustering(3, random_state=0).fit_predict(data.graph)
    >>> round(metrics.nmi(data.labels, labels), 1)
    1.0
    """

    def fit(self, X: Any, y: None = None) -> SpectralClustering:
        """Cluster a graph, an affinity matrix or points."""
        graph = as_graph(self, X)
        self._keep(self._solve(laplacian(graph, self.laplacian), self._n_columns(graph.n_nodes)), False)
        self.names_ = graph.node_names
        self.labels_ = labels(self)
        return self
