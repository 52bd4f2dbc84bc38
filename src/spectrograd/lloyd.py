"""k-means of few rows in plain numpy: loading scikit-learn takes longer than clustering them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MAX_STEPS = 300


def lloyd(rows: Array, n_clusters: int, n_init: int, rng: np.random.Generator) -> tuple[Array, float]:
    """Labels and inertia of the best of ``n_init`` runs of Lloyd's algorithm from k-means++ starts.

    Examples
    --------
    >>> points = np.array([[0.0], [0.1], [5.0], [5.2]])
    >>> labels, inertia = lloyd(points, 2, 3, np.random.default_rng(0))
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3]), round(inertia, 3)
    (True, 0.025)
    """
    points = np.asarray(rows, dtype=np.float64)
    points = points - points.mean(axis=0)  # the expanded square loses digits far from the origin
    runs = [_run(points, _spread_centres(points, n_clusters, rng)) for _ in range(n_init)]
    return min(runs, key=lambda run: run[1])


def _run(points: Array, centres: Array) -> tuple[Array, float]:
    labels = np.full(len(points), -1)
    for _ in range(MAX_STEPS):
        gaps = _squares(points, centres)
        nearest = np.argmin(gaps, axis=1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        centres = _means(points, labels, gaps, len(centres))
    own = points - centres[labels]
    return labels, float(np.einsum("ij,ij->", own, own))


def _means(points: Array, labels: Array, gaps: Array, n_clusters: int) -> Array:
    sizes = np.bincount(labels, minlength=n_clusters)
    sums = np.stack([np.bincount(labels, column, n_clusters) for column in points.T], axis=1)
    centres = sums / np.maximum(sizes, 1)[:, None]
    empty = np.flatnonzero(sizes == 0)
    if len(empty):  # as in scikit-learn: they move to the points that are worst off
        centres[empty] = points[np.argsort(gaps.min(axis=1))[::-1][: len(empty)]]
    return centres


def _spread_centres(points: Array, n_clusters: int, rng: np.random.Generator) -> Array:
    """k-means++ (Arthur and Vassilvitskii, 2007), each time the best of a few candidates."""
    n_trials = 2 + int(math.log(n_clusters))
    chosen = [int(rng.integers(len(points)))]
    gaps = _squares(points, points[chosen])[:, 0]
    while len(chosen) < n_clusters:
        total = gaps.sum()
        odds = gaps / total if total > 0 else None  # all places are taken: any point will do
        candidates = rng.choice(len(points), size=n_trials, p=odds)
        after = np.minimum(gaps[:, None], _squares(points, points[candidates]))
        best = int(np.argmin(after.sum(axis=0)))
        chosen.append(int(candidates[best]))
        gaps = after[:, best]
    return points[chosen]


def _squares(points: Array, centres: Array) -> Array:
    """Squared distances, never below zero."""
    own, other = (np.einsum("ij,ij->i", rows, rows) for rows in (points, centres))
    return np.asarray(np.maximum(own[:, None] + other - 2 * points @ centres.T, 0))
