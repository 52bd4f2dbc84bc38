"""Clusters of very many rows: centres from a sample, then every row once, a block of rows at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.threadpools import one_thread
from spectrograd.labels.cluster_numbers import in_order
from spectrograd.labels.kmeans import best_look, sample_size
from spectrograd.labels.lloyd import look
from spectrograd.labels.membership import confidence, squared_distances
from spectrograd.labels.unit_rows import row_lengths, soft_unit

Array = NDArray[Any]
MANY = 1_000_000  # rows beyond which nothing is made that is as large as the embedding itself
# Rows that centres are fitted on: the mean of one of 32 clusters is then off by a fiftieth of its width.
FITTED = 100_000
AT_ONCE = 1 << 19  # numbers of a block: a few copies of it in float64 are next to nothing


class Swept(NamedTuple):
    """Labels (int64) and confidence (float32) of all rows, -1 and NaN for those aside; the sum of squares."""

    labels: Array
    membership: Array
    inertia: float


def sweep_rows(
    vectors: Array, aside: Array, n_clusters: int, n_init: int, rng: np.random.Generator, softness: float
) -> Swept:
    """k-means on rows of (softly) unit length; parameters are those of :func:`~spectrograd.labels.assign`.

    The embedding (N x K) is read once, and nothing of its size is made of it.
    """
    taking_part = np.ones(len(vectors), bool)
    taking_part[aside] = False
    chosen = _sample(taking_part, max(FITTED, sample_size(n_clusters)), rng)
    few = vectors[chosen]
    length = float(np.median(row_lengths(few))) * softness**0.5
    with one_thread():
        fitted = best_look(soft_unit(few, length), n_clusters, n_init, rng)
    centres = fitted.means(soft_unit(few, length))
    labels = np.full(len(vectors), -1, np.int64)
    sure = np.full(len(vectors), np.nan, np.float32)
    inertia = 0.0
    size = max(1, AT_ONCE // max(vectors.shape[1], n_clusters))
    for start in range(0, len(vectors), size):
        part = start + np.flatnonzero(taking_part[start : start + size])
        if len(part):
            rows = soft_unit(vectors[part], length)
            seen = look(rows, centres, compiled=True)
            labels[part] = seen.labels
            inertia += float(seen.gaps.sum())
            with one_thread():
                squares = squared_distances(rows.astype(np.float64), centres)
            sure[part] = confidence(squares, seen.labels) if n_clusters > 1 else 1.0
    return Swept(in_order(labels, n_clusters), sure, inertia)


def _sample(taking_part: Array, size: int, rng: np.random.Generator) -> Array:
    """Row numbers, ascending, all of them equally likely."""
    rows = np.flatnonzero(taking_part)
    return np.sort(rng.choice(rows, min(size, len(rows)), replace=False, shuffle=False))
