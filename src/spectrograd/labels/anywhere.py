"""k-means on the rows of a tall, wherever they are: a sample on the host, then passes by the engine."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine, Nearest, Tall
from spectrograd.labels.cluster_numbers import in_order
from spectrograd.labels.clustering import Clustering
from spectrograd.labels.kmeans import DONE, POLISH, STILL, Search, sample_size

Array = NDArray[Any]


def assign_anywhere(
    engine: Engine,
    X: Tall,
    n_clusters: int,
    *,
    n_init: int = 10,
    softness: float | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Clustering:
    """Cluster the rows of a tall (N x k) by k-means; a sample of them comes to the host, and the labels.

    ``softness`` is that of :func:`~spectrograd.labels.assign` with ``unit_rows``; None leaves the rows alone.
    The start is ``cluster_qr`` of the sample. Full ``cluster_qr`` and ``discretize`` need all rows at hand.
    """
    started, n = time.perf_counter(), X.shape[0]
    if not 1 <= n_clusters <= n:
        raise ValueError(f"n_clusters is {n_clusters}; with {n} rows it must be in 1..{n}")
    if not engine.statistics(X).finite:
        raise ValueError("the embedding is not finite")
    rng = np.random.default_rng(random_state)
    points = engine.cast(X if softness is None else unit_rows(engine, X, softness), np.float64)
    size = min(n, sample_size(n_clusters))
    sample = engine.rows(points, np.sort(rng.choice(n, size, replace=False)))
    variance = float(sample.var(axis=0).mean())
    centres = (
        Search(sample, STILL * variance, n > engine.thresholds.small, rng).best(n_clusters, n_init).centres
    )
    found = _polished(engine, points, centres, DONE * variance)
    labels = in_order(engine.rows(found.labels)[:, 0], n_clusters)
    labels.flags.writeable = False
    return Clustering(labels, n_clusters, "kmeans", found.inertia, time.perf_counter() - started)


def unit_rows(engine: Engine, X: Tall, softness: float) -> Tall:
    """Rows divided by ``sqrt(|row|^2 + softness median|row|^2)``; zero rows stay zero."""
    norms, median = engine.row_norms(X)
    soft = median * softness**0.5

    def divided(_: int, rows: Array, lengths: Array) -> Array:
        lengths = np.hypot(lengths, soft)
        return np.asarray(rows / np.where(lengths == 0, 1, lengths), dtype=rows.dtype)

    return engine.map(divided, X, norms)


def _polished(engine: Engine, points: Tall, centres: Array, tolerance: float) -> Nearest:
    """Lloyd's steps on all rows; centres without rows move to those that are worst off."""
    for _ in range(POLISH):
        found = engine.nearest(points, centres)
        means = found.sums / np.maximum(found.sizes, 1)[:, None]
        empty = np.flatnonzero(found.sizes == 0)
        if len(empty):
            means[empty] = engine.rows(points, _farthest(engine, found.gaps, len(empty)))
        if ((means - centres) ** 2).sum() <= tolerance:
            return found
        centres = means
    return engine.nearest(points, centres)


def _farthest(engine: Engine, gaps: Tall, count: int) -> Array:
    """Numbers of the rows with the largest gaps."""

    def largest(start: int, block: Array) -> Array:
        first = np.argsort(block[:, 0])[::-1][:count]
        return np.column_stack([block[first, 0], first + start])

    every = np.vstack(engine.fold(largest, gaps))
    return np.asarray(every[np.argsort(every[:, 0])[::-1][:count], 1], dtype=np.int64)
