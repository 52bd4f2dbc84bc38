"""How sure the label of a node is: how much nearer its own centre is than the next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.engines.threadpools import one_thread

Array = NDArray[Any]
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
    """Of all rows to all centres: (n, n_clusters). Rounding is 1e-16 of the rows' squares: nothing here."""
    lengths = np.einsum("ij,ij->i", rows, rows)[:, None] + np.einsum("ij,ij->i", centres, centres)
    return np.asarray(np.maximum(lengths - 2 * (rows @ centres.T), 0))


def confidence(squares: Array, labels: Array) -> Array:
    """Of some rows, by their squared distances to the centres (n, n_clusters), which are changed."""
    at = np.arange(len(squares))
    own = np.sqrt(squares[at, labels])
    squares[at, labels] = np.inf
    other = np.sqrt(squares.min(axis=1))
    share = np.divide(own, other, out=np.ones_like(own), where=other > 0)
    return np.asarray(np.clip(1 - share, 0, 1))
