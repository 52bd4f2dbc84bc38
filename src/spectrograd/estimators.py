"""scikit-learn skins over the line graph -> operator -> embedding -> clusters; no mathematics here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data

from spectrograd.aggregation.merge import Merged, merge
from spectrograd.cluster import assign
from spectrograd.engines import make_engine
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.laplacian import Kind, Operator, laplacian
from spectrograd.neighbors import knn_graph
from spectrograd.solvers.embed import Embedded, Settings, embed

Array = NDArray[Any]
AFFINITIES = ("nearest_neighbors", "rbf", "precomputed", "precomputed_nearest_neighbors")


class _Spectral(BaseEstimator):
    """What all four estimators share: from parameters to settings, from results to fitted names."""

    def _settings(self) -> Settings:
        self._refuse_unbuilt()
        return Settings(
            solver=self.solver,
            params=self.solver_params or {},
            tol=self.tol,
            max_iter=self.max_iter,
            time_budget=self.time_budget,
            batch_size=self.batch_size,
            seed=_seed(self.random_state),
            engine=make_engine(self.engine, n_jobs=self.n_jobs),
            hooks=_hooks(self.verbose),
        )

    def _refuse_unbuilt(self) -> None:
        """Parameters of the contract whose machinery is not in this release say so only when used."""
        for name, neutral in (("memory_limit", None), ("checkpoint", None)):
            if getattr(self, name) is not neutral:
                raise ValueError(f"{name}={getattr(self, name)!r} is not available in this release")
        if self.regularization not in ("auto", None):
            raise ValueError(f"regularization={self.regularization!r} is not available in this release")

    def _solve(self, operator: Operator, n_components: int, found: Embedded | None = None) -> Embedded:
        start = self._warm_start(operator, n_components)
        result = found or embed(operator, n_components, self._settings(), start=start)
        self._raw_vectors = result.embedding.vectors
        self.certificate_ = result.certificate
        layers = getattr(self, "layer_certificates_", [])
        self.converged_ = result.certificate.converged and all(c.converged for c in layers)
        self.history_ = result.solution.history
        self.n_iter_ = result.solution.last.iteration
        self.solver_ = result.choice.name
        self.solver_reason_ = result.choice.reason
        return result

    def _warm_start(self, operator: Operator, n_components: int) -> Array | None:
        previous = getattr(self, "_raw_vectors", None)
        fits = previous is not None and previous.shape == (operator.n_nodes, n_components)
        return previous if self.warm_start and fits else None

    def _keep(self, result: Embedded, drop_first: bool) -> None:
        embedding = result.embedding.without_first() if drop_first else result.embedding
        self.embedding_ = embedding.vectors
        self.eigenvalues_ = embedding.eigenvalues

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = getattr(self, "affinity", "") in AFFINITIES[2:]
        return tags


class SpectralEmbedding(TransformerMixin, _Spectral):
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
        graph = _as_graph(self, X)
        extra = 1 if self.drop_first else 0
        _check_components(self.n_components, graph.n_nodes - extra, "n_components")
        result = self._solve(laplacian(graph, self.laplacian), self.n_components + extra)
        self._keep(result, self.drop_first)
        self.names_ = graph.node_names
        return self

    def fit_transform(self, X: Any, y: None = None) -> Array:
        """Embed and return the vectors."""
        return self.fit(X).embedding_


class SpectralClustering(ClusterMixin, _Spectral):
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

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 10,
        laplacian: Kind = "random_walk",
        solver: str = "auto",
        solver_params: Mapping[str, Any] | None = None,
        regularization: float | str | None = "auto",
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
        graph = _as_graph(self, X)
        _check_components(self.n_clusters, graph.n_nodes, "n_clusters")
        self._keep(self._solve(laplacian(graph, self.laplacian), self.n_clusters), False)
        self.names_ = graph.node_names
        self.labels_ = _labels(self)
        return self


class MultilayerSpectralEmbedding(_Spectral):
    """Embed the nodes that several layers share.

    Parameters not named here are those of :class:`SpectralEmbedding`.

    Parameters
    ----------
    aggregation : {"projection", "mean", "power-mean", "geometric", "grassmann", "joint"}
        ``"projection"`` is the paper's Eq. 22: every layer is embedded first.
    alpha : float or "auto"
        Weight of the layers' subspaces in Eq. 22.
    layer_weights : sequence of float, "auto" or None
        How much each layer counts; None is equally, "auto" less for layers without structure or far
        from the rest.
    aggregation_params : mapping or None
        Options of the aggregation, such as ``{"p": -5}`` of ``"power-mean"``.

    Attributes
    ----------
    layer_embeddings_ : list of arrays (where the layers were embedded)
    layer_certificates_ : list of Certificate; ``converged_`` asks all of them
    layer_distances_ : pairwise projection distances of the layers (the same)
    layer_weights_ : array
    layer_scores_ : LayerScores, with ``layer_weights="auto"``
    layer_names_ : tuple of str

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralEmbedding, datasets
    >>> data = datasets.make_multilayer_gmm(400, 2, 3, random_state=0)
    >>> MultilayerSpectralEmbedding(3, random_state=0).fit_transform(data.graph).shape
    (400, 3)
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        affinity: str = "precomputed",
        n_neighbors: int = 10,
        laplacian: Kind = "random_walk",
        solver: str = "auto",
        solver_params: Mapping[str, Any] | None = None,
        regularization: float | str | None = "auto",
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
        aggregation: str = "projection",
        alpha: float | str = "auto",
        layer_weights: Sequence[float] | str | None = None,
        aggregation_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.laplacian = laplacian
        self.solver = solver
        self.solver_params = solver_params
        self.regularization = regularization
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
        self.aggregation = aggregation
        self.alpha = alpha
        self.layer_weights = layer_weights
        self.aggregation_params = aggregation_params

    def fit(self, X: Any, y: None = None) -> MultilayerSpectralEmbedding:
        """Embed a :class:`MultilayerGraph`, or a list or dict of layers."""
        graph = _as_layers(self, X)
        extra = 1 if self.drop_first else 0
        _check_components(self.n_components, graph.n_nodes - extra, "n_components")
        merged = _merge(self, graph, self.n_components + extra)
        self._keep(self._solve(merged.operator, self.n_components + extra, merged.result), self.drop_first)
        return self

    def fit_transform(self, X: Any, y: None = None) -> Array:
        """Embed and return the vectors."""
        return self.fit(X).embedding_


class MultilayerSpectralClustering(ClusterMixin, _Spectral):
    """Cluster the nodes that several layers share.

    Parameters are those of :class:`MultilayerSpectralEmbedding` and :class:`SpectralClustering`.

    Examples
    --------
    >>> from spectrograd import MultilayerSpectralClustering, datasets
    >>> data = datasets.make_multilayer_gmm(400, 3, 3, random_state=0)
    >>> model = MultilayerSpectralClustering(3, random_state=0).fit(data.graph)
    >>> len(model.labels_), len(model.layer_embeddings_)
    (400, 3)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        affinity: str = "precomputed",
        n_neighbors: int = 10,
        laplacian: Kind = "random_walk",
        solver: str = "auto",
        solver_params: Mapping[str, Any] | None = None,
        regularization: float | str | None = "auto",
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
        aggregation: str = "projection",
        alpha: float | str = "auto",
        layer_weights: Sequence[float] | str | None = None,
        aggregation_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.laplacian = laplacian
        self.solver = solver
        self.solver_params = solver_params
        self.regularization = regularization
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
        self.aggregation = aggregation
        self.alpha = alpha
        self.layer_weights = layer_weights
        self.aggregation_params = aggregation_params

    def fit(self, X: Any, y: None = None) -> MultilayerSpectralClustering:
        """Cluster a :class:`MultilayerGraph`, or a list or dict of layers."""
        graph = _as_layers(self, X)
        _check_components(self.n_clusters, graph.n_nodes, "n_clusters")
        merged = _merge(self, graph, self.n_clusters)
        self._keep(self._solve(merged.operator, self.n_clusters, merged.result), False)
        self.labels_ = _labels(self)
        return self


def _merge(model: Any, graph: MultilayerGraph, n_components: int) -> Merged:
    merged = merge(
        graph,
        n_components,
        model._settings(),
        laplacian=model.laplacian,
        aggregation=model.aggregation,
        alpha=model.alpha,
        layer_weights=model.layer_weights,
        aggregation_params=model.aggregation_params,
    )
    model.names_, model.layer_names_ = graph.node_names, graph.layer_names
    model.layer_weights_, model.layer_scores_ = merged.weights, merged.scores
    model.layer_embeddings_ = [layer.embedding.vectors for layer in merged.layers]
    model.layer_certificates_ = [layer.certificate for layer in merged.layers]
    model.layer_distances_ = merged.distances if merged.layers else None
    return merged


def _labels(model: Any) -> Array:
    seed = _seed(model.random_state)
    return assign(
        model.embedding_,
        model.n_clusters,
        method=model.assign_labels,
        n_init=model.n_init,
        unit_rows=True,
        random_state=seed,
    ).labels


def _as_graph(model: Any, X: Any) -> Graph:
    """What ``fit`` was given, as a graph; arrays are read as ``affinity`` says."""
    if isinstance(X, Graph):
        return X
    if isinstance(X, MultilayerGraph):
        raise ValueError("this is a multilayer graph: use the Multilayer estimators")
    if model.affinity not in AFFINITIES:
        raise ValueError(f"affinity={model.affinity!r}: expected one of {', '.join(AFFINITIES)}")
    if model.affinity == "precomputed":
        validate_data(
            model, X, accept_sparse="csr", dtype=None, ensure_all_finite=False, ensure_min_samples=2
        )
        return Graph.from_matrix(X)
    X = validate_data(model, X, accept_sparse="csr", ensure_min_samples=2)
    return _graph_of_points(model, X)


def _graph_of_points(model: Any, X: Any) -> Graph:
    if model.affinity == "precomputed_nearest_neighbors":
        from sklearn.neighbors import kneighbors_graph

        near = kneighbors_graph(X, model.n_neighbors, metric="precomputed", include_self=False)
        return Graph.from_matrix((near + near.T) * 0.5)
    if model.affinity == "rbf":
        from sklearn.metrics.pairwise import rbf_kernel

        kernel = rbf_kernel(X)
        np.fill_diagonal(kernel, 0)
        return Graph.from_matrix(kernel)
    n_neighbors = min(model.n_neighbors, X.shape[0] - 1)
    return knn_graph(X, n_neighbors, n_jobs=model.n_jobs)


def _as_layers(model: Any, X: Any) -> MultilayerGraph:
    if isinstance(X, MultilayerGraph):
        return X
    if isinstance(X, Graph) or not isinstance(X, Mapping | Sequence):
        raise ValueError("expected several layers: a MultilayerGraph, or a list or dict of layers")
    if model.affinity == "precomputed":
        return MultilayerGraph.from_layers(X)
    named = X if isinstance(X, Mapping) else {str(i): layer for i, layer in enumerate(X)}
    points = {
        name: check_array(layer, accept_sparse="csr", input_name=f"view {name!r}")
        for name, layer in named.items()
    }
    return MultilayerGraph.from_layers({name: _graph_of_points(model, x) for name, x in points.items()})


def _check_components(k: Any, most: int, name: str) -> None:
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise ValueError(f"{name}={k!r}: expected a whole number of at least 1")
    if k >= most:
        raise ValueError(f"{name}={k} is too many for this graph: it must be below {most}")


def _seed(random_state: Any) -> int | None:
    """A numpy Generator seed from scikit-learn's ``random_state``."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _hooks(verbose: int) -> Sequence[Callable[[Any], None]]:
    if not verbose:
        return ()
    import logging

    logger = logging.getLogger("spectrograd")
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(message)s")

    def log(progress: Any) -> None:
        logger.info(
            "iteration %d  objective %.6g  residual %.2g  %.2f s",
            progress.iteration,
            progress.objective,
            progress.residual,
            progress.seconds,
        )

    return (log,)
