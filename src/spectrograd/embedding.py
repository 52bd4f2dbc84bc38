"""Embeddings: eigenvectors with eigenvalues and node names, in one order and with one sign convention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spectrograd.typing import Array

CACHED_NUMBERS = 32_768  # entries of a temporary array that stay in the cache


@dataclass(frozen=True, eq=False)
class Embedding:
    """Eigenvectors: rows are nodes, columns are in ascending order of the eigenvalues.

    Attributes
    ----------
    vectors : (N, K) array
    eigenvalues : (K,) array
    names : (N,) array, or None
        Names of the nodes.
    """

    vectors: Array
    eigenvalues: Array
    names: Array | None = None

    @property
    def n_components(self) -> int:
        """Number of columns."""
        return int(self.vectors.shape[1])

    def without_first(self) -> Embedding:
        """Drop the first vector (constant for a connected graph)."""
        return Embedding(self.vectors[:, 1:], self.eigenvalues[1:], self.names)


def arrange(vectors: Array, eigenvalues: Array, names: Array | None = None) -> Embedding:
    """Sort ascending and fix signs: the entry of largest magnitude in each column is positive.

    Examples
    --------
    >>> arrange(np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([3.0, 1.0])).vectors.tolist()
    [[2.0, 1.0], [-1.0, 0.5]]
    """
    order = np.argsort(eigenvalues, kind="stable")
    if (np.diff(order) < 0).any():
        vectors = vectors[:, order]
    signs = np.where(peaks(vectors) < 0, -1, 1).astype(vectors.dtype)
    return Embedding(vectors * signs, eigenvalues[order], names)


def peaks(vectors: Array) -> Array:
    """Return the entry of largest magnitude in each column, with its sign; of several the first."""
    largest = np.zeros(vectors.shape[1], vectors.dtype)
    columns = np.arange(vectors.shape[1])
    for rows in row_slices(vectors):
        part = vectors[rows]
        candidate = part[np.abs(part.T, order="C").argmax(axis=1), columns]
        largest = np.where(np.abs(candidate) > np.abs(largest), candidate, largest)
    return largest


def row_slices(vectors: Array) -> Iterator[slice]:
    """Cut the rows into slices whose temporary arrays stay in the cache."""
    n_rows, n_columns = vectors.shape
    step = max(1, CACHED_NUMBERS // max(1, n_columns))
    return (slice(start, start + step) for start in range(0, n_rows, step))
