"""scikit-learn's names for the solver and its tolerance, in our words."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state

from spectrograd.engines import make_engine
from spectrograd.estimators.convergence import warn_unless_converged
from spectrograd.estimators.display import DisplayMixin
from spectrograd.estimators.inputs import Affinity, is_pairwise
from spectrograd.estimators.out_of_sample import ClusterQueryMixin, OutOfSampleMixin, TrainingData, rotated
from spectrograd.estimators.partial_fit import UPDATE_ATTRIBUTES, PartialFitMixin, PreviousFit
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.graph.node_names import plain_texts
from spectrograd.labels.eigengap import MOST
from spectrograd.labels.nearest_cluster import nearest_cluster
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline import Result, Settings, cluster, embed
from spectrograd.pipeline.cluster_verdict import ClusterVerdict
from spectrograd.pipeline.memory_estimate import check_limit
from spectrograd.pipeline.out_of_sample import extension_of
from spectrograd.pipeline.settings import CHECKPOINT_EVERY
from spectrograd.points.validation import Metric
from spectrograd.system import as_bytes
from spectrograd.typing import Array

# eigen_solver -> our solver and its parameters
EIGEN_SOLVERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "arpack": ("eigen", {}),
    "lobpcg": ("lobpcg", {}),
    "amg": ("lobpcg", {"preconditioner": "amg"}),
}
ROUNDING = 1e-12  # ``eigen_tol=0`` asks for machine precision: the residual that double precision can reach


def solver_and_tolerance(model: Any) -> tuple[str, Mapping[str, Any], float | str]:
    """``solver``, its parameters and ``tol``, whichever of the two vocabularies they were given in."""
    solver, params = _solver(model)
    if model.eigen_tol == "auto":
        return solver, params, model.tol
    if model.tol != "auto":
        raise ValueError(f"tol={model.tol!r} and eigen_tol={model.eigen_tol!r} mean the same: give one")
    if not isinstance(model.eigen_tol, int | float) or not model.eigen_tol >= 0:
        raise ValueError(f"eigen_tol={model.eigen_tol!r}: expected a number that is not negative, or 'auto'")
    if model.eigen_solver == "arpack":
        params = {"tol": model.eigen_tol} | dict(params)
    return solver, params, max(float(model.eigen_tol), ROUNDING)


def _solver(model: Any) -> tuple[str, Mapping[str, Any]]:
    params = model.solver_params or {}
    if model.eigen_solver is None:
        return model.solver, params
    if model.eigen_solver not in EIGEN_SOLVERS:
        raise ValueError(
            f"eigen_solver={model.eigen_solver!r}: expected None, {', '.join(EIGEN_SOLVERS)}; "
            "other methods are chosen by solver"
        )
    if model.solver != "auto":
        raise ValueError(
            f"solver={model.solver!r} and eigen_solver={model.eigen_solver!r} mean the same: give one"
        )
    if model.eigen_solver == "amg":
        _check_pyamg()
    name, implied = EIGEN_SOLVERS[model.eigen_solver]
    return name, dict(implied) | dict(params)


def _check_pyamg() -> None:
    try:
        import pyamg  # noqa: F401
    except ImportError:
        raise ValueError(
            "The eigen_solver was set to 'amg', but pyamg is not available. pip install 'spectrograd[amg]'"
        ) from None


# --- What the estimators share: from parameters to settings, from results to fitted names.


@dataclass(eq=False, repr=False, kw_only=True)
class Spectral(PartialFitMixin, OutOfSampleMixin, DisplayMixin, BaseEstimator):
    """Base of the four estimators, with the parameters they share.

    A dataclass, so that each parameter is written once: scikit-learn reads the signature of the
    generated ``__init__``, which stores what it is given and does nothing else.
    """

    affinity: Affinity = "auto"
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
    engine: Any = "auto"
    memory_limit: str | None = None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float = CHECKPOINT_EVERY
    warm_start: bool = False
    verbose: int = 0
    _run: ClassVar[Callable[..., Result]]  # how the pipeline is run: to an embedding, or to clusters

    def _settings(self, n_nodes: int) -> Settings:
        """The parameters as the pipeline takes them, checked against the size of the graph."""
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
            memory_limit=as_bytes(self.memory_limit),
            engine=make_engine(self.engine, n_jobs=self.n_jobs),
            checkpoint=self.checkpoint,
            checkpoint_every=self.checkpoint_every,
            hooks=_hooks(self.verbose),
            keep_multivector=getattr(self, "_keeps_multivector", False),
        )

    def _fit(self, graph: Graph | MultilayerGraph) -> None:
        settings = self._settings(graph.n_nodes)
        self._within_limit(graph, settings)
        self.knn_recall_ = graph.recall
        start = self._warm_start(graph.n_nodes, settings.n_components)
        previous = PreviousFit.of(self) if self.warm_start else None
        self._forget_updates()
        result = self._run(graph, settings, start=start)
        self._keep(graph, result, settings, getattr(self, "drop_first", False), previous)
        warn_unless_converged(result, settings)

    def _within_limit(self, graph: Graph | MultilayerGraph, settings: Settings) -> None:
        """Refuse a memory limit that the graph does not fit; stores were opened with it in mind."""
        k = MOST if isinstance(settings.n_components, str) else settings.n_components
        check_limit(graph, k, self.memory_limit)

    def _forget_updates(self) -> None:
        """What earlier updates said is about an earlier fit."""
        for name in ("_gap_at_fit", "label_changes_", *UPDATE_ATTRIBUTES):
            self.__dict__.pop(name, None)

    def _warm_start(self, n_nodes: int, n_components: int | str) -> Array | None:
        previous = getattr(self, "_raw_vectors", None)
        fits = previous is not None and previous.shape == (n_nodes, n_components)
        return previous if self.warm_start and fits else None

    def _keep(
        self,
        graph: Graph | MultilayerGraph,
        result: Result,
        settings: Settings,
        drop_first: bool,
        previous: PreviousFit | None = None,
    ) -> None:
        """The fitted names; an interrupted fit keeps its best so far and then stops whoever called it."""
        self._raw_vectors, self._multivector = result.vectors, result.multivector
        # Which change came last, and the fingerprint of a store that the graph was read from: whoever knows
        # says so afterwards.
        self._last_change, self._store_seen = None, None
        embedding = result.embedding.without_first() if drop_first else result.embedding
        self.eigenvalues_, names = embedding.eigenvalues, result.embedding.names
        self.names_ = np.arange(len(result.vectors)) if names is None else plain_texts(names)
        named = self._makers is None
        self._rotation = (
            None if previous is None else previous.rotation(embedding.vectors, self.names_, named)
        )
        self.embedding_ = rotated(embedding.vectors, self._rotation).astype(self._float, copy=False)
        self.connectivity_ = result.connectivity
        self.excluded_ = self.names_[result.connectivity.excluded]
        self.regularization_, self.eigengap_ = result.regularization, result.eigengap
        self.certificate_, self.converged_ = result.certificate, result.converged
        self.history_, self.attempts_ = result.history, result.attempts
        self.n_iter_ = result.history[-1].iteration
        self.solver_, self.solver_reason_ = result.solver, result.reason
        if result.merged is not None:
            self._keep_layers(result.merged)
        clusters = None
        if result.labels is not None:
            self.labels_, self.n_clusters_ = result.labels, int(result.n_clusters or 0)
            self.membership_ = result.membership
            self._cluster_verdict: Any = result.judge  # the verdict, once it was asked for
            if previous is not None:
                renamed = previous.renamed(result.labels, self.names_, named)
                self.labels_, self.label_changes_ = renamed
            clusters = nearest_cluster(result.vectors, self.labels_, result.norm_regularization)
        extension = extension_of(graph, result, settings)
        self._training_data = TrainingData(graph, extension, self.names_, self._makers, clusters)
        del self._makers
        if result.interrupted:
            raise KeyboardInterrupt

    def fit_transform(self, X: Any, y: None = None, **columns: str) -> Array:
        """Embed and return the vectors."""
        return self.fit(X, None, **columns).embedding_

    @property
    def set_aside_(self) -> Array:
        """Old name of ``excluded_``, for one release."""
        names: Array = self.excluded_
        warnings.warn(
            "set_aside_ is now excluded_; the old name goes with the next release", FutureWarning, 2
        )
        return names

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = is_pairwise(self.affinity)
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class Embedder(Spectral):
    """An estimator whose result is the embedding."""

    n_components: int = field(default=8, kw_only=False)
    drop_first: bool = True
    _run = staticmethod(embed)

    def _n_columns(self, n_nodes: int) -> int:
        """Eigenvectors to compute."""
        extra = 1 if self.drop_first else 0
        check_components(self.n_components, n_nodes - extra, "n_components")
        return self.n_components + extra


@dataclass(eq=False, repr=False, kw_only=True)
class Clusterer(ClusterMixin, ClusterQueryMixin, Spectral):
    """An estimator whose result is a label per node."""

    n_clusters: int | str = field(default=8, kw_only=False)
    n_components: int | None = None
    gamma: float | None = 1.0
    assign_labels: str = "kmeans"
    n_init: int = 10
    _run = staticmethod(cluster)

    @property
    def cluster_verdict_(self) -> ClusterVerdict | None:
        """Whether the clusters are more than chance; judged when it is first asked for."""
        judged: Any = self._cluster_verdict
        if callable(judged):
            judged = judged()
            self._cluster_verdict = judged
        return cast("ClusterVerdict | None", judged)

    def __getstate__(self) -> dict[str, Any]:
        """A copy keeps the verdict, not the means to find it."""
        if hasattr(self, "_cluster_verdict"):
            _ = self.cluster_verdict_
        return dict(super().__getstate__())

    def fit_predict(self, X: Any, y: None = None, **columns: str) -> Array:
        """Cluster and return the labels.

        Parameters
        ----------
        X, y, **columns
            As for ``fit``.

        Returns
        -------
        array of shape (n_nodes,)
            ``labels_``, in the order of ``names_``; -1 for nodes excluded.
        """
        return self.fit(X, None, **columns).labels_

    def _settings(self, n_nodes: int) -> Settings:
        chosen = super()._settings(n_nodes)  # which refuses what is no number
        given = None if isinstance(self.n_clusters, str) else int(self.n_clusters)
        return replace(chosen, n_clusters=given, assign_labels=self.assign_labels, n_init=self.n_init)

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
