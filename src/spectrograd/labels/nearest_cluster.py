"""The cluster of a row that was not there when the clusters were made: the one with the nearest mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spectrograd.labels.kmeans import descend, row_lengths
from spectrograd.typing import Array

MAX_LLOYD_STEPS = 20  # clusters that need more have not only moved
STEP_TOLERANCE = 1e-4  # a step of the centres by less, in units of the variance, is the last


@dataclass(frozen=True, eq=False)
class NearestCluster:
    """Means of clusters among rows of (softly) unit length.

    Attributes
    ----------
    centres : array of shape (n_clusters, k)
        NaN for a cluster without rows, which no row will get.
    length
        What lengths are compared with: rows much shorter stay short (0 makes all of them unit rows).
    column_weights : array of shape (k,) or None
        What columns are multiplied with first; None is one for all.
    """

    centres: Array
    length: float
    column_weights: Array | None = None

    def scale(self, rows: Array) -> Array:
        """Rows (n, k) as the clusters see them."""
        if self.column_weights is not None:
            rows = rows * self.column_weights
        lengths = np.hypot(row_lengths(rows), self.length)
        return np.asarray(rows / np.where(lengths > 0, lengths, 1)[:, None])

    def labels(self, rows: Array) -> Array:
        """The nearest cluster of each row (n, k)."""
        scaled = self.scale(rows)
        # one centre at a time: (n, n_clusters) numbers, never (n, n_clusters, k)
        gaps = np.stack([((scaled - centre) ** 2).sum(axis=1) for centre in self.centres], axis=1)
        return np.asarray(np.argmin(np.where(np.isnan(gaps), np.inf, gaps), axis=1))


def nearest_cluster(
    vectors: Array, labels: Array, norm_regularization: float, column_weights: Array | None = None
) -> NearestCluster:
    """The means of clusters that :func:`~spectrograd.labels.assign` found with ``unit_rows``.

    Parameters
    ----------
    vectors : array of shape (n, k)
    labels : array of shape (n,)
        -1 takes no part.
    norm_regularization
        As it was then.
    column_weights : array of shape (k,), optional
        What columns were multiplied with.

    Examples
    --------
    >>> rule = nearest_cluster(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1]), 0.0)
    >>> rule.labels(np.array([[0.1, 0.5]])).tolist()
    [1]
    """
    part = labels >= 0
    n_clusters = int(labels.max(initial=-1)) + 1
    rows = np.asarray(vectors[part], dtype=np.float64)
    clusters = labels[part]
    weighted = rows if column_weights is None else rows * column_weights
    length = (
        float(np.median(row_lengths(weighted))) * norm_regularization**0.5 if norm_regularization else 0.0
    )
    unit = NearestCluster(np.empty((0, rows.shape[1])), length).scale(weighted)
    sizes = np.bincount(clusters, minlength=n_clusters).astype(np.float64)
    sums = np.stack([np.bincount(clusters, column, n_clusters) for column in unit.T], axis=1)
    # an empty cluster has the mean NaN, which is nearest to no row
    sizes[sizes == 0] = np.nan
    return NearestCluster(sums / sizes[:, None], length, column_weights)


def follow_clusters(
    vectors: Array,
    labels: Array,
    norm_regularization: float,
    excluded: Array,
    column_weights: Array | None = None,
) -> Array:
    """Labels of rows that have moved a little: Lloyd's algorithm from the clusters they had.

    Parameters
    ----------
    vectors : array of shape (n, k)
        Where the rows are now.
    labels : array of shape (n,)
        What they were; -1 for rows that had no cluster.
    excluded : array of row numbers
        Rows that take no part: their label is -1.
    """
    part = np.ones(len(vectors), bool)
    part[excluded] = False
    rule = nearest_cluster(vectors[part], labels[part], norm_regularization, column_weights)
    names = np.flatnonzero(~np.isnan(rule.centres[:, 0]))
    rows = rule.scale(np.asarray(vectors[part], dtype=np.float64))
    # squares, then means: the variance of unit rows does not cancel
    spread = np.einsum("ij,ij->j", rows, rows) / len(rows) - rows.mean(axis=0) ** 2
    tolerance = STEP_TOLERANCE * max(float(spread.mean()), 0.0)
    assignment = descend(rows, rule.centres[names], tolerance=tolerance, max_steps=MAX_LLOYD_STEPS)
    moved = np.full(len(vectors), -1, dtype=np.int64)
    moved[part] = names[assignment.labels]
    return moved
