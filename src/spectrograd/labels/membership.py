"""How sure the label of a node is: how much nearer its own centre is than the next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    >>> membership(rows, np.array([0, 0, 1, 0]), 2).round(2).tolist()
    [0.87, 0.87, 1.0, 0.56]
    """
    counts = np.bincount(labels, minlength=n_clusters)
    sums = np.stack([np.bincount(labels, column, n_clusters) for column in rows.T], axis=1)
    centres = sums / np.maximum(counts, 1)[:, None]
    centres = np.where(counts[:, None] > 0, centres, np.inf)  # an empty cluster is near to nobody
    sure = np.ones(len(rows), dtype=np.float32)
    if np.count_nonzero(counts) < 2:
        return sure
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        sure[part] = _confidence(rows[part].astype(np.float64), labels[part], centres)
    return sure


def _confidence(rows: Array, labels: Array, centres: Array) -> Array:
    """Of some rows; distances are summed column by column, which does not cancel."""
    squares = np.zeros((len(rows), len(centres)))
    for column, centre in zip(rows.T, centres.T, strict=True):
        squares += (column[:, None] - centre) ** 2
    at = np.arange(len(rows))
    own = np.sqrt(squares[at, labels])
    squares[at, labels] = np.inf
    other = np.sqrt(squares.min(axis=1))
    share = np.divide(own, other, out=np.ones_like(own), where=other > 0)
    return np.asarray(np.clip(1 - share, 0, 1))
