"""A fitted estimator from a result of the pipeline, for whoever walked the line without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from spectrograd.estimators.multilayer import MultilayerSpectralClustering, MultilayerSpectralEmbedding
from spectrograd.estimators.row_makers import PointRows
from spectrograd.estimators.single import SpectralClustering, SpectralEmbedding
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.pipeline import Result, Settings
from spectrograd.points.new_points import KnownPoints


class PointSearch(Protocol):
    """How a graph of points was made."""

    @property
    def known(self) -> tuple[KnownPoints, ...]:
        """What the search of each view has found out."""

    @property
    def options(self) -> Any:
        """``neighbors``, ``metric`` and ``recall``."""


def model_of(
    graph: Graph | MultilayerGraph,
    result: Result,
    settings: Settings,
    *,
    drop_first: bool = False,
    points: PointSearch | None = None,
) -> Any:
    """The estimator that would have come to this result: a clustering where there are labels.

    ``points`` is how the graph was made, where it is one of points: the model then answers for new ones.
    """
    common: dict[str, Any] = {
        "affinity": "precomputed",
        "laplacian": settings.laplacian,
        "solver": settings.solver,
        "solver_params": dict(settings.params) or None,
        "regularization": settings.regularization,
        "disconnected": settings.disconnected,
        "tol": settings.tol,
        "max_iter": settings.max_iter,
        "time_budget": settings.time_budget,
        "batch_size": settings.batch_size,
        "random_state": settings.seed,
    }
    if points is not None:
        common |= {
            "affinity": "nearest_neighbors",
            "n_neighbors": points.options.neighbors,
            "metric": points.options.metric,
            "recall": points.options.recall,
        }
    several = isinstance(graph, MultilayerGraph)
    if several:
        common |= {
            "aggregation": settings.aggregation,
            "alpha": settings.alpha,
            "layer_weights": settings.layer_weights,
            "aggregation_params": dict(settings.aggregation_params) or None,
        }
    model: Any
    if result.labels is None:
        columns = result.vectors.shape[1] - int(drop_first)
        made: Any = MultilayerSpectralEmbedding if several else SpectralEmbedding
        model = made(columns, drop_first=drop_first, **common)
    else:
        made = MultilayerSpectralClustering if several else SpectralClustering
        k = settings.n_components if settings.n_clusters is None else settings.n_clusters
        model = made(k, assign_labels=settings.assign_labels, n_init=settings.n_init, **common)
    model._float, model._makers, model.knn_recall_ = np.float64, None, graph.recall
    if points is not None:
        model._makers = tuple(map(PointRows, points.known))
        model.affinity_, model.n_neighbors_ = "nearest_neighbors", points.known[0].n_neighbors
        if not several:
            model.n_features_in_ = int(points.known[0].points.shape[1])
    # the best so far of an interrupted run is a result like others: who was interrupted knows
    model._keep(graph, replace(result, stop_reason="done"), settings, drop_first)
    return model
