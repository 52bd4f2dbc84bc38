"""What the estimators share: from parameters to settings, from results to fitted names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from spectrograd.cluster import assign
from spectrograd.components import Connectivity
from spectrograd.engines import make_engine
from spectrograd.estimators.inputs import AFFINITIES
from spectrograd.graph import Graph
from spectrograd.laplacian import Operator
from spectrograd.solvers.embed import Embedded, Settings, embed
from spectrograd.solvers.embed_graph import Treatment, embed_graph

Array = NDArray[Any]


class Spectral(BaseEstimator):
    """Base of the four estimators."""

    _softness = 0.0  # of the rows to cluster: see GraphEmbedding.softness

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
        self.embedding_ = embedding.vectors
        self.eigenvalues_ = embedding.eigenvalues

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = getattr(self, "affinity", "") in AFFINITIES[2:]
        return tags


def labels(model: Any) -> Array:
    """The labels of a fitted embedding, as the model's parameters say."""
    seed = _seed(model.random_state)
    model.n_clusters_ = model.embedding_.shape[1]
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


def check_clusters(k: Any, most: int) -> None:
    """Refuse a number of clusters that the graph cannot have; "auto" is none yet."""
    if not (isinstance(k, str) and k == "auto"):
        check_components(k, most, "n_clusters")


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
