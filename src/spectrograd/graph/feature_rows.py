"""Rows of features in memory or on a disk, their two thin products, and the checks of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from spectrograd.graph.validation import GraphError, check_structure, from_tensor
from spectrograd.typing import Array, Matrix

BLOCK_ENTRIES = 1 << 22  # numbers of a block of rows that is copied for a check or a conversion
MAX_EXACT = 2.0**24  # whole numbers that float32 holds


class FeatureRows(ABC):
    """The matrix Z: one row of features per node, dense or CSR, read in blocks of rows."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and features."""

    @property
    @abstractmethod
    def n_entries(self) -> int:
        """Stored numbers."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[int, Matrix]]:
        """Numbers of first rows, and the rows from there on: what one pass reads."""

    @abstractmethod
    def take(self, rows: Array) -> FeatureRows:
        """Some rows, ascending."""

    def slices(self, n_entries: int = BLOCK_ENTRIES) -> Iterator[tuple[int, Matrix]]:
        """The rows in blocks of about so many numbers."""
        step = max(1, n_entries * self.shape[0] // max(1, self.n_entries))
        for start, block in self.blocks():
            for first in range(0, block.shape[0], step):
                yield start + first, block[first : first + step]

    def between(self, start: int, stop: int) -> Any:
        """Some consecutive rows, as a matrix."""
        parts = []
        for first, block in self.blocks():
            low = max(start, first)
            high = min(stop, first + block.shape[0])
            if low < high:
                parts.append(block[low - first : high - first])
        if len(parts) == 1:
            return parts[0]
        return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)

    def project(self, X: Array) -> Array:
        """``Z' X`` in float64, shape (n_features, k)."""
        total = np.zeros((self.shape[1], X.shape[1]))
        for start, block in self.blocks():
            total += block.T @ X[start : start + block.shape[0]]
        return total

    def expand(self, C: Array, dtype: DTypeLike) -> Array:
        """``Z C``, shape (n_nodes, k)."""
        out = np.empty((self.shape[0], C.shape[1]), dtype)
        C = np.ascontiguousarray(C, dtype=dtype)
        for start, block in self.blocks():
            out[start : start + block.shape[0]] = block @ C
        return out


@dataclass(frozen=True, eq=False)
class ResidentFeatures(FeatureRows):
    """Rows of features in memory: dense, CSR, or the transpose of either."""

    matrix: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return (int(self.matrix.shape[0]), int(self.matrix.shape[1]))

    @property
    def n_entries(self) -> int:
        """Stored numbers."""
        return int(self.matrix.nnz if sp.issparse(self.matrix) else self.matrix.size)

    def blocks(self) -> Iterator[tuple[int, Matrix]]:
        """The matrix itself."""
        yield 0, self.matrix

    def take(self, rows: Array) -> ResidentFeatures:
        """A copy of some rows."""
        return ResidentFeatures(self.matrix[rows])


def as_features(X: Any) -> Any:
    """Features as float32 or float64, CSR or dense; a copy only where the type asks for one."""
    X = from_tensor(X)
    if sp.issparse(X):
        check_structure(X)
    else:
        X = np.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        raise GraphError(f"features have shape {X.shape}: one row of numbers per node is needed")
    if X.dtype.kind not in "biuf":
        raise GraphError(f"features have type {X.dtype}: real numbers are needed")
    if X.dtype not in (np.float32, np.float64):
        values = X.data if sp.issparse(X) else X
        exact = X.dtype.kind == "b" or float(np.abs(values).max(initial=0)) < MAX_EXACT
        X = X.astype(np.float32 if exact else np.float64)
    return sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)


def check_block(block: Any, start: int, affinity: str) -> float:
    """The smallest feature; what is not finite, and what is negative where it must not be, is refused."""
    values = block.data if sp.issparse(block) else block
    lowest = float(values.min(initial=0))
    finite = np.isfinite(values)
    bad = ~finite
    what = "not finite"
    if affinity == "linear" and lowest < 0:
        bad = bad | (values < 0)
        what = "negative, which affinity='linear' cannot take; affinity='cosine' does"
    if bad.any():
        at = np.flatnonzero(bad.ravel())[0]
        if sp.issparse(block):
            row = int(np.searchsorted(block.indptr, at, side="right")) - 1
            column = int(block.indices[at])
        else:
            row, column = divmod(int(at), block.shape[1])
        value = values.ravel()[at]
        what = what if np.isfinite(value) else "not finite"
        raise GraphError(f"features: row {start + row}, column {column} is {value}: {what}")
    return lowest


def row_squares(block: Any) -> Array:
    """``|z_i|^2`` of rows, in float64."""
    if not sp.issparse(block):
        return np.asarray(np.einsum("ij,ij->i", block, block, dtype=np.float64))
    squares = sp.csr_array(
        (block.data.astype(np.float64) ** 2, block.indices, block.indptr), shape=block.shape
    )
    return np.asarray(squares.sum(axis=1)).ravel()
