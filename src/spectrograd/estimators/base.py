"""What the estimators share: from parameters to settings, from results to fitted names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state

from spectrograd.engines import make_engine
from spectrograd.estimators.display import Shown
from spectrograd.estimators.eigen_solver import solver_and_tolerance
from spectrograd.estimators.inputs import Affinity, is_pairwise
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline import Result, Settings, cluster, embed
from spectrograd.points.metrics import Metric

Array = NDArray[Any]


@dataclass(eq=False, repr=False, kw_only=True)
class Spectral(Shown, BaseEstimator):
    """Base of the four estimators, with the parameters they share.

    A dataclass, so that each parameter is written once: scikit-learn reads the signature of the
    generated ``__init__``, which stores what it is given and does nothing else.
    """

    affinity: Affinity = "nearest_neighbors"
    n_neighbors: int | None = 10
    metric: Metric = "euclidean"
    recall: float = 0.98
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: Mapping[str, Any] | None = None
    laplacian: Kind = "random_walk"
    solver: str = "auto"
    solver_params: Mapping[str, Any] | None = None
    eigen_solver: str | None = None
    eigen_tol: float | str = "auto"
    regularization: float | str | None = "auto"
    disconnected: str = "components"
    tol: float | str = "auto"
    max_iter: int | None = None
    time_budget: float | None = None
    batch_size: int = 4000
    random_state: Any = None
    n_jobs: int | None = None
    engine: str = "auto"
    memory_limit: str | None = None
    checkpoint: str | None = None
    warm_start: bool = False
    verbose: int = 0

    def _settings(self, n_nodes: int) -> Settings:
        """The parameters as the pipeline takes them, checked against the size of the graph."""
        self._refuse_unbuilt()
        solver, params, tol = solver_and_tolerance(self)
        return Settings(
            n_components=self._n_columns(n_nodes),
            laplacian=self.laplacian,
            regularization=self.regularization,
            disconnected=self.disconnected,
            solver=solver,
            params=params,
            tol=tol,
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

    def _warm_start(self, n_nodes: int, n_components: int | str) -> Array | None:
        previous = getattr(self, "_raw_vectors", None)
        fits = previous is not None and previous.shape == (n_nodes, n_components)
        return previous if self.warm_start and fits else None

    def _keep(self, result: Result, drop_first: bool) -> None:
        """The fitted names; an interrupted fit keeps its best so far and then stops whoever called it."""
        self._raw_vectors = result.vectors
        embedding = result.embedding.without_first() if drop_first else result.embedding
        self.embedding_ = embedding.vectors.astype(self._float, copy=False)
        self.eigenvalues_, names = embedding.eigenvalues, result.embedding.names
        self.names_ = np.arange(len(result.vectors)) if names is None else names
        self.connectivity_ = result.connectivity
        self.set_aside_ = self.names_[result.connectivity.aside]
        self.regularization_, self.eigengap_ = result.regularization, result.eigengap
        self.certificate_, self.converged_ = result.certificate, result.converged
        self.history_, self.attempts_ = result.history, result.attempts
        self.n_iter_ = result.history[-1].iteration
        self.solver_, self.solver_reason_ = result.solver, result.reason
        if result.merged is not None:
            self._keep_layers(result.merged)
        if result.labels is not None:
            self.labels_, self.n_clusters_ = result.labels, result.n_clusters
        if result.interrupted:
            raise KeyboardInterrupt

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = is_pairwise(self.affinity)
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Spectral):
    """An estimator whose result is the embedding."""

    n_components: int = field(default=8, kw_only=False)
    drop_first: bool = True

    def fit_transform(self, X: Any, y: None = None, **columns: str) -> Array:
        """Embed and return the vectors."""
        return self.fit(X, **columns).embedding_  # type: ignore[no-any-return]

    def _fit(self, graph: Graph | MultilayerGraph) -> None:
        settings = self._settings(graph.n_nodes)
        self.knn_recall_ = graph.recall
        start = self._warm_start(graph.n_nodes, settings.n_components)
        self._keep(embed(graph, settings, start=start), self.drop_first)

    def _n_columns(self, n_nodes: int) -> int:
        """Eigenvectors to compute."""
        extra = 1 if self.drop_first else 0
        check_components(self.n_components, n_nodes - extra, "n_components")
        return self.n_components + extra

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])


@dataclass(eq=False, repr=False, kw_only=True)
class Clusterer(ClusterMixin, Spectral):
    """An estimator whose result is a label per node."""

    n_clusters: int | str = field(default=8, kw_only=False)
    n_components: int | None = None
    gamma: float | None = 1.0
    assign_labels: str = "kmeans"
    n_init: int = 10

    def _settings(self, n_nodes: int) -> Settings:
        chosen = super()._settings(n_nodes)  # which refuses what is no number
        given = None if isinstance(self.n_clusters, str) else int(self.n_clusters)
        return replace(chosen, n_clusters=given, assign_labels=self.assign_labels, n_init=self.n_init)

    def _fit(self, graph: Graph | MultilayerGraph) -> None:
        settings = self._settings(graph.n_nodes)
        self.knn_recall_ = graph.recall
        start = self._warm_start(graph.n_nodes, settings.n_components)
        self._keep(cluster(graph, settings, start=start), drop_first=False)

    def _n_columns(self, n_nodes: int) -> int | str:
        """Eigenvectors to compute: one per cluster unless told otherwise; "auto" is known later."""
        if isinstance(self.n_clusters, str) and self.n_clusters == "auto":
            return "auto"
        check_components(self.n_clusters, n_nodes, "n_clusters")
        if self.n_components is None:
            return self.n_clusters
        check_components(self.n_components, n_nodes, "n_components")
        return self.n_components


def check_components(k: Any, most: int, name: str) -> None:
    """Refuse a number of columns or clusters that the graph cannot have."""
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
