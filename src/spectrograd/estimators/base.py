"""What the estimators share: from parameters to settings, from results to fitted names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state

from spectrograd.engines import make_engine
from spectrograd.estimators.display import Shown
from spectrograd.estimators.eigen_solver import solver_and_tolerance
from spectrograd.estimators.inputs import Affinity, is_pairwise
from spectrograd.graph import Graph
from spectrograd.graph.pieces import Connectivity
from spectrograd.labels.clustering import assign
from spectrograd.operators.laplacian import Kind, Operator
from spectrograd.pipeline.single import Treatment, embed_graph
from spectrograd.pipeline.solving import Embedded, Settings, embed

Array = NDArray[Any]


@dataclass(eq=False, repr=False, kw_only=True)
class Spectral(Shown, BaseEstimator):
    """Base of the four estimators, with the parameters they share.

    A dataclass, so that each parameter is written once: scikit-learn reads the signature of the
    generated ``__init__``, which stores what it is given and does nothing else.
    """

    affinity: Affinity = "nearest_neighbors"
    n_neighbors: int | None = 10
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

    _softness = 0.0  # of the rows to cluster: see GraphEmbedding.softness

    def _settings(self) -> Settings:
        self._refuse_unbuilt()
        solver, params, tol = solver_and_tolerance(self)
        return Settings(
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

    def _solve_graph(self, graph: Graph, n_components: int | str) -> Embedded:
        treatment = Treatment(self.laplacian, self.regularization, self.disconnected)
        start = self._warm_start(graph.n_nodes, n_components)
        found = embed_graph(graph, n_components, self._settings(), treatment, start=start)
        self.regularization_, self.eigengap_ = found.regularization, found.eigengap
        self._softness = found.softness
        self._keep_connectivity(found.connectivity, graph.node_names)
        return self._story(found.result)

    def _solve(self, operator: Operator, n_components: int, found: Embedded | None = None) -> Embedded:
        start = self._warm_start(operator.n_nodes, n_components)
        return self._story(found or embed(operator, n_components, self._settings(), start=start))

    def _keep_connectivity(self, connectivity: Connectivity, names: Array) -> None:
        self.connectivity_, self.set_aside_ = connectivity, names[connectivity.aside]

    def _story(self, result: Embedded) -> Embedded:
        self._raw_vectors = result.embedding.vectors
        self.certificate_ = result.certificate
        layers = getattr(self, "layer_certificates_", [])
        self.converged_ = result.certificate.converged and all(c.converged for c in layers)
        self.history_, self.attempts_ = result.solution.history, result.attempts
        self.n_iter_ = result.solution.last.iteration
        self.solver_ = result.choice.name
        self.solver_reason_ = result.choice.reason
        return result

    def _warm_start(self, n_nodes: int, n_components: int | str) -> Array | None:
        previous = getattr(self, "_raw_vectors", None)
        fits = previous is not None and previous.shape == (n_nodes, n_components)
        return previous if self.warm_start and fits else None

    def _keep(self, result: Embedded, drop_first: bool) -> None:
        embedding = result.embedding.without_first() if drop_first else result.embedding
        self.embedding_ = embedding.vectors.astype(self._float, copy=False)
        self.eigenvalues_ = embedding.eigenvalues

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

    def fit_transform(self, X: Any, y: None = None) -> Array:
        """Embed and return the vectors."""
        return self.fit(X).embedding_  # type: ignore[no-any-return]

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

    def _n_columns(self, n_nodes: int) -> int | str:
        """Eigenvectors to compute: one per cluster unless told otherwise; "auto" is known later."""
        if isinstance(self.n_clusters, str) and self.n_clusters == "auto":
            return "auto"
        check_components(self.n_clusters, n_nodes, "n_clusters")
        if self.n_components is None:
            return self.n_clusters
        check_components(self.n_components, n_nodes, "n_components")
        return self.n_components


def labels(model: Any) -> Array:
    """The labels of a fitted embedding, as the model's parameters say."""
    seed = _seed(model.random_state)
    automatic = isinstance(model.n_clusters, str)
    model.n_clusters_ = model.embedding_.shape[1] if automatic else int(model.n_clusters)
    with make_engine(model.engine, n_jobs=model.n_jobs).threads():
        return assign(
            model.embedding_,
            model.n_clusters_,
            method=model.assign_labels,
            n_init=model.n_init,
            unit_rows=True,
            softness=model._softness,
            aside=model.connectivity_.aside,
            random_state=seed,
        ).labels


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
