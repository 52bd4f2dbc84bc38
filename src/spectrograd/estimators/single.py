"""Estimators of one graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from sklearn.base import ClusterMixin, TransformerMixin

from spectrograd.estimators.base import Spectral, check_clusters, check_components, labels
from spectrograd.estimators.inputs import as_graph
from spectrograd.laplacian import Kind

Array = NDArray[Any]


class SpectralEmbedding(TransformerMixin, Spectral):
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
    regularization : float, "auto" or None
        ``tau`` in units of the mean degree d: adds ``tau d / N`` to every pair of nodes, implicitly. "auto"
        adds 0.1 only where the eigenvectors are seen to sit on tiny dangling pieces.
    disconnected : {"components", "regularize", "largest", "error"}
        What to do with a graph in pieces. "components" embeds them together and sets specks aside,
        "regularize" ties all pieces together, "largest" keeps one, "error" refuses. Nodes set aside are
        named in a warning; their rows are zero.
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
        Through all attempts; the first of each says in its ``events`` why the solver was picked.
    attempts_ : tuple of Attempt
        Which solvers ran, why, at what cost and how each ended.
    solver_, n_iter_ : what ran and for how long
    regularization_ : Regularization
        ``tau`` that was used and the reason.
    connectivity_ : Connectivity
        Components, and the row numbers set ``aside``; ``set_aside_`` holds their names.
    names_ : node names in the order of the rows, where the input had any

    Examples
    --------
    >>> from spectrograd import SpectralEmbedding, datasets
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> SpectralEmbedding(2, random_state=0).fit_transform(data.graph).shape
    (300, 2)
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 10,
        laplacian: Kind = "random_walk",
        solver: str = "auto",
        solver_params: Mapping[str, Any] | None = None,
        regularization: float | str | None = "auto",
        disconnected: str = "components",
        drop_first: bool = True,
        tol: float | str = "auto",
        max_iter: int | None = None,
        time_budget: float | None = None,
        batch_size: int = 4000,
        random_state: Any = None,
        n_jobs: int | None = None,
        engine: str = "auto",
        memory_limit: str | None = None,
        checkpoint: str | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.laplacian = laplacian
        self.solver = solver
        self.solver_params = solver_params
        self.regularization = regularization
        self.disconnected = disconnected
        self.drop_first = drop_first
        self.tol = tol
        self.max_iter = max_iter
        self.time_budget = time_budget
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: None = None) -> SpectralEmbedding:
        """Embed a graph, an affinity matrix or points."""
        graph = as_graph(self, X)
        extra = 1 if self.drop_first else 0
        check_components(self.n_components, graph.n_nodes - extra, "n_components")
        self._keep(self._solve_graph(graph, self.n_components + extra), self.drop_first)
        self.names_ = graph.node_names
        return self

    def fit_transform(self, X: Any, y: None = None) -> Array:
        """Embed and return the vectors."""
        return self.fit(X).embedding_


class SpectralClustering(ClusterMixin, Spectral):
    """Cluster the nodes of a graph (or points, through their neighbours).

    Embeds into ``n_clusters`` eigenvectors (the trivial one included, as scikit-learn does), then
    assigns labels on rows of unit length. Parameters not named here are those of
    :class:`SpectralEmbedding`.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" is the number before the largest eigengap, at most 20.
    assign_labels : {"kmeans", "cluster_qr", "discretize"}
    n_init : int
        Most starts of k-means; they end when two agree.

    Attributes
    ----------
    labels_ : array of shape (n_nodes,)
        -1 for nodes set aside.
    n_clusters_ : int
    eigengap_ : Eigengap or None
        Eigenvalues and gaps that "auto" chose by: the data of the eigengap plot.

    Examples
    --------
    >>> from spectrograd import SpectralClustering, datasets, metrics
    >>> data = datasets.make_block_model(300, 3, random_state=0)
    >>> labels = SpectralClustering(3, random_state=0).fit_predict(data.graph)
    >>> round(metrics.nmi(data.labels, labels), 1)
    1.0
    """

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 10,
        laplacian: Kind = "random_walk",
        solver: str = "auto",
        solver_params: Mapping[str, Any] | None = None,
        regularization: float | str | None = "auto",
        disconnected: str = "components",
        tol: float | str = "auto",
        max_iter: int | None = None,
        time_budget: float | None = None,
        batch_size: int = 4000,
        random_state: Any = None,
        n_jobs: int | None = None,
        engine: str = "auto",
        memory_limit: str | None = None,
        checkpoint: str | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        assign_labels: str = "kmeans",
        n_init: int = 10,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.laplacian = laplacian
        self.solver = solver
        self.solver_params = solver_params
        self.regularization = regularization
        self.disconnected = disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.time_budget = time_budget
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.verbose = verbose
        self.assign_labels = assign_labels
        self.n_init = n_init

    def fit(self, X: Any, y: None = None) -> SpectralClustering:
        """Cluster a graph, an affinity matrix or points."""
        graph = as_graph(self, X)
        check_clusters(self.n_clusters, graph.n_nodes)
        self._keep(self._solve_graph(graph, self.n_clusters), False)
        self.names_ = graph.node_names
        self.labels_ = labels(self)
        return self
