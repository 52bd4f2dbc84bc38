"""Clusters of rows that stay where an engine has them: a sample of them comes to the host, and the labels."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine, Tall
from spectrograd.labels.clustering import Clustering
from spectrograd.labels.sweeping import Fitted, sample_rows

Array = NDArray[Any]


def assign_left(
    engine: Engine,
    X: Tall,
    order: Array | None,
    n_clusters: int,
    *,
    n_init: int,
    softness: float,
    aside: Array,
    random_state: int | np.random.Generator | None,
    deadline: float = math.inf,
) -> tuple[Clustering, Tall]:
    """k-means of rows of unit length, as :func:`~spectrograd.labels.assign` does it with very many rows.

    The rows of X (N x K) are numbered ``order`` in the result (None: as they are), to which ``aside`` refers.
    The labels come back in the order of the result, and as a tall (N x 1) in that of X.
    """
    started, n, rng = time.perf_counter(), X.shape[0], np.random.default_rng(random_state)
    if not 1 <= n_clusters <= n:
        raise ValueError(f"n_clusters is {n_clusters}; with {n} rows it must be in 1..{n}")
    if not engine.statistics(X).finite:
        raise ValueError("the embedding is not finite")
    places = np.arange(n) if order is None else np.asarray(order, np.int64)
    taking_part = np.ones(n, np.int8)
    taking_part[aside] = 0
    row_of = np.empty_like(places)
    row_of[places] = np.arange(n)
    few = engine.rows(X, row_of[sample_rows(taking_part > 0, n_clusters, rng)])
    fitted = Fitted.to(few, n_clusters, n_init, rng, softness, deadline)
    where = engine.put(np.column_stack([places, taking_part[places]]))
    seen = engine.map(partial(_seen, fitted), X, where)
    sums = engine.fold(partial(_first_places, n_clusters, n), seen, where)
    first, inertia = np.min([part[0] for part in sums], axis=0), sum(part[1] for part in sums)
    number = np.append(np.argsort(np.argsort(first[:-1])), -1)
    found = engine.map(partial(_numbered, number), seen)
    labels, sure = np.empty(n, np.int64), np.empty(n, np.float32)
    labels[places] = engine.rows(found)[:, 0]
    sure[places] = engine.rows(engine.columns(seen, slice(1, 2)))[:, 0]
    labels.flags.writeable = False
    spent = time.perf_counter() - started
    return Clustering(labels, n_clusters, "kmeans", inertia, spent, sure), found


def _seen(fitted: Fitted, start: int, rows: Array, where: Array) -> Array:
    """Cluster (-1 where a row takes no part), confidence, and the share of a row in the sum of squares."""
    found = fitted.swept(rows, where[:, 1] > 0)
    share = found.inertia / max(1, len(rows))
    return np.column_stack([found.labels, found.membership, np.full(len(rows), share)])


def _first_places(n_clusters: int, n: int, start: int, seen: Array, where: Array) -> tuple[Array, float]:
    """The first row of each cluster (the last place is that of -1), and the sum of squares."""
    first = np.full(n_clusters + 1, n)
    np.minimum.at(first, seen[:, 0].astype(np.int64), where[:, 0])
    return first, float(seen[:, 2].sum())


def _numbered(number: Array, start: int, seen: Array) -> Array:
    return np.asarray(number[seen[:, 0].astype(np.int64)][:, None])
