"""Embedding: the vectors with all that belongs to them; the only sort and sign rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


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
    sorted_vectors = vectors[:, order]
    peaks = np.argmax(np.abs(sorted_vectors), axis=0)
    signs = np.sign(sorted_vectors[peaks, np.arange(len(order))])
    signs[signs == 0] = 1
    return Embedding(sorted_vectors * signs, eigenvalues[order], names)
