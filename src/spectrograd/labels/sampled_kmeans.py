"""Confidence in labels (the distance to the own centre over that to the next), and k-means on samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spectrograd.labels.kmeans import assign_to_centers, best_assignment, row_lengths, sample_size, soft_unit
from spectrograd.labels.matching import in_order
from spectrograd.system import one_thread
from spectrograd.typing import Array

ROWS_AT_ONCE = 1 << 16


def membership(rows: Array, labels: Array, n_clusters: int) -> Array:
    """Confidence in each label: 1 - (distance to its own centre) / (distance to the nearest other one).

    Parameters
    ----------
    rows : array of shape (n, k)
        What was clustered.
    labels : array of shape (n,)
        0 to ``n_clusters - 1``.
    n_clusters : int

    Returns
    -------
    float32, shape (n,)
        1 on the centre itself, 0 half-way between two (and beyond, where the label came from elsewhere than
        k-means); 1 for all where there is a single cluster.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.0], [10.0], [4.0]])
    >>> print(membership(rows, np.array([0, 0, 1, 0]), 2).round(2))
    [0.87 0.87 1.   0.56]
    """
    counts = np.bincount(labels, minlength=n_clusters)
    sums = np.stack([np.bincount(labels, column, n_clusters) for column in rows.T], axis=1)
    centres = sums / np.maximum(counts, 1)[:, None]
    sure = np.ones(len(rows), dtype=np.float32)
    if np.count_nonzero(counts) < 2:
        return sure
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        with one_thread():  # a block's product must not depend on how many there are
            squares = squared_distances(rows[part].astype(np.float64), centres)
        squares[:, counts == 0] = np.inf  # an empty cluster is near to nobody
        sure[part] = confidence(squares, labels[part])
    return sure


def squared_distances(rows: Array, centres: Array) -> Array:
    """Squared distances of rows to centres, (n, n_clusters), up to 1e-16 of the rows' squares."""
    lengths = np.einsum("ij,ij->i", rows, rows)[:, None] + np.einsum("ij,ij->i", centres, centres)
    return np.asarray(np.maximum(lengths - 2 * (rows @ centres.T), 0))


def confidence(squares: Array, labels: Array) -> Array:
    """Confidence in labels by squared distances to the centres (n, n_clusters); mutates the squares."""
    at = np.arange(len(squares))
    own = np.sqrt(squares[at, labels])
    squares[at, labels] = np.inf
    other = np.sqrt(squares.min(axis=1))
    share = np.divide(own, other, out=np.ones_like(own), where=other > 0)
    return np.asarray(np.clip(1 - share, 0, 1))


# --- Clusters of very many rows: centres from a sample, then every row once, a block of rows at a time.

MAX_COPIED_ROWS = 1_000_000  # rows beyond which nothing is made that is as large as the embedding itself
# Rows that centres are fitted on: the mean of one of 32 clusters is then off by a fiftieth of its width.
SAMPLE_ROWS = 100_000
BLOCK_NUMBERS = 1 << 19  # numbers of a block: a few copies of it in float64 are next to nothing


class ChunkedAssignment(NamedTuple):
    """Labels (int64), confidence (float32) of all rows (-1 and NaN for those excluded), sum of squares."""

    labels: Array
    membership: Array
    inertia: float


def assign_in_chunks(
    vectors: Array,
    excluded: Array,
    n_clusters: int,
    n_init: int,
    rng: np.random.Generator,
    norm_regularization: float,
    deadline: float = math.inf,
) -> ChunkedAssignment:
    """k-means on rows of (softly) unit length; parameters are those of :func:`~spectrograd.labels.assign`.

    The embedding (N x K) is read once, and nothing of its size is made of it.

    Parameters
    ----------
    vectors : array of shape (N, K)
    excluded : array of int
        Row numbers that take no part.
    n_clusters, n_init
        As of :func:`~spectrograd.labels.assign`.
    rng
        Source of the sample and the starts.
    norm_regularization
        As of :func:`~spectrograd.labels.assign`.
    deadline
        A moment of ``time.perf_counter`` after which k-means begins no other run.
    """
    active = np.ones(len(vectors), bool)
    active[excluded] = False
    chosen = sample_rows(active, n_clusters, rng)
    centres = SampledCentres.fit(vectors[chosen], n_clusters, n_init, rng, norm_regularization, deadline)
    clustering = centres.assign_rows(vectors, active)
    return clustering._replace(labels=in_order(clustering.labels, n_clusters))


@dataclass(frozen=True, eq=False)
class SampledCentres:
    """``centres`` (c x K) of rows that were divided by the root of their squared lengths and ``length``'s."""

    centres: Array
    length: float

    @classmethod
    def fit(
        cls,
        few: Array,
        n_clusters: int,
        n_init: int,
        rng: np.random.Generator,
        norm_regularization: float,
        deadline: float = math.inf,
    ) -> SampledCentres:
        """The centres of a sample of the rows (m x K)."""
        length = float(np.median(row_lengths(few))) * norm_regularization**0.5
        rows = soft_unit(few, length)
        with one_thread():
            return cls(best_assignment(rows, n_clusters, n_init, rng, deadline=deadline).means(rows), length)

    def assign_rows(self, vectors: Array, active: Array) -> ChunkedAssignment:
        """Every row (n x K) that takes part to its nearest centre; clusters are numbered as the centres."""
        labels = np.full(len(vectors), -1, np.int64)
        sure = np.full(len(vectors), np.nan, np.float32)
        inertia = 0.0
        n_clusters = len(self.centres)
        size = max(1, BLOCK_NUMBERS // max(vectors.shape[1], n_clusters))
        for start in range(0, len(vectors), size):
            part = start + np.flatnonzero(active[start : start + size])
            if len(part):
                # one block of rows: copies are small, and the embedding is read once
                rows = soft_unit(vectors[part], self.length)
                seen = assign_to_centers(rows, self.centres)
                labels[part] = seen.labels
                inertia += float(seen.gaps.sum())
                with one_thread():
                    squares = squared_distances(rows.astype(np.float64), self.centres)
                sure[part] = confidence(squares, seen.labels) if n_clusters > 1 else 1.0
        return ChunkedAssignment(labels, sure, inertia)


def sample_rows(active: Array, n_clusters: int, rng: np.random.Generator) -> Array:
    """Numbers of the rows that centres are fitted on."""
    return _sample(active, max(SAMPLE_ROWS, sample_size(n_clusters)), rng)


def _sample(active: Array, size: int, rng: np.random.Generator) -> Array:
    """Row numbers, ascending, all of them equally likely."""
    rows = np.flatnonzero(active)
    return np.sort(rng.choice(rows, min(size, len(rows)), replace=False, shuffle=False))
