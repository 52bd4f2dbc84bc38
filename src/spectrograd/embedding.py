"""Embedding: the vectors with all that belongs to them; the only sort and sign rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spectrograd.typing import Array

IN_CACHE = 32_768  # numbers


@dataclass(frozen=True, eq=False)
class Embedding:
    """Rows are nodes, columns eigenvectors in ascending order of their eigenvalues."""

    vectors: Array
    eigenvalues: Array
    names: Array | None = None

    @property
    def n_components(self) -> int:
        """Number of columns."""
        return int(self.vectors.shape[1])

    def without_first(self) -> Embedding:
        """Drop the trivial vector (the constant one of a connected graph)."""
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
    """The entry of largest magnitude in each column, with its sign; of several the first."""
    found, columns = np.zeros(vectors.shape[1], vectors.dtype), np.arange(vectors.shape[1])
    for rows in row_slices(vectors):
        part = vectors[rows]
        here = part[np.abs(part.T, order="C").argmax(axis=1), columns]
        found = np.where(np.abs(here) > np.abs(found), here, found)
    return found


def row_slices(vectors: Array) -> Iterator[slice]:
    """Slices of rows whose temporaries stay in the cache."""
    n_rows, n_columns = vectors.shape
    step = max(1, IN_CACHE // max(1, n_columns))
    return (slice(start, start + step) for start in range(0, n_rows, step))
