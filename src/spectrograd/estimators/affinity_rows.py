"""Arrays of new samples as weights to the training samples, one maker per affinity of ``fit``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spectrograd.engines import LocalEngine
from spectrograd.graph.features import FeatureGraph
from spectrograd.graph.validation import check_weights, is_invalid
from spectrograd.points.fourier import FourierMap
from spectrograd.points.query import KnownPoints
from spectrograd.system import one_thread
from spectrograd.typing import Array, Matrix

if TYPE_CHECKING:
    from spectrograd.estimators.base import Spectral

HALF = (
    0.5  # scikit-learn's weight of an edge that one of its ends has chosen; a known point chooses no new one
)
# Rows of every product of a kernel: whole tiles (of 4, 6, 8, 12, 16, 24 rows) of the BLAS of all processors.
KERNEL_BLOCK_ROWS = 96


class Rows(NamedTuple):
    """Weights of new samples, shape (n_new, n_nodes); which training sample each one *is*, or -1.

    ``outlier_scale`` is a distance from the training data, where there are distances.
    """

    weights: sp.csr_array
    same: Array
    outlier_scale: Array | None = None


@dataclass(frozen=True, eq=False)
class PointRows:
    """``affinity="nearest_neighbors"``."""

    known: KnownPoints

    def __call__(self, model: Spectral, X: object) -> Rows:
        """Neighbours among the training points, weighted as in the graph."""
        with LocalEngine(model.n_jobs).threads(), one_thread():  # our threads share the rows
            asked = self.known.ask(X)
        return Rows(asked.weights, asked.same, asked.outlier_scale)


@dataclass(frozen=True, eq=False)
class KernelRows:
    """A kernel of scikit-learn, or a function of two points."""

    points: Matrix

    @cached_property
    def keys(self) -> Array:
        """Digests of the training points."""
        return row_keys(self.points)

    def __call__(self, model: Spectral, X: Any) -> Rows:
        """The kernel between new and training points."""
        weights = sp.csr_array(self._kernel(model, X))
        _check(weights)
        X = X.astype(self.points.dtype)
        return Rows(weights, match_keys(self.keys, row_keys(X)))

    @cached_property
    def _doubles(self) -> Any:
        return self.points.astype(np.float64, copy=False)

    def _kernel(self, model: Spectral, X: Any) -> Any:
        """The kernel matrix (n_new, n_points), each row with the same bits whatever the other rows are.

        The last bits of a matrix product depend on its shape: one row is a matrix-vector product, the rows
        that are left over beside whole tiles have a kernel of their own, threads share the rows. So every
        product has ``KERNEL_BLOCK_ROWS`` rows, the last one repeated, in double precision and on one thread.
        """
        from spectrograd.estimators.inputs import kernel_matrix

        if callable(model.affinity):  # called for each pair of points: there is no product
            return kernel_matrix(model, X, self.points)
        X = X.astype(np.float64)
        blocks = []
        with one_thread():
            for start in range(0, X.shape[0], KERNEL_BLOCK_ROWS):
                n_rows = min(KERNEL_BLOCK_ROWS, X.shape[0] - start)
                rows = start + np.minimum(np.arange(KERNEL_BLOCK_ROWS), n_rows - 1)
                blocks.append(kernel_matrix(model, X[rows], self._doubles)[:n_rows])
        return (sp.vstack if sp.issparse(blocks[0]) else np.vstack)(blocks)


@dataclass(frozen=True, eq=False)
class MatrixRows:
    """``affinity="precomputed"``: rows of the affinity matrix, with self-similarity where there was any."""

    keys: Array

    @classmethod
    def of(cls, matrix: Matrix) -> MatrixRows:
        """Only rows with an entry on the diagonal differ from the rows of the graph."""
        return cls(row_keys(matrix) if matrix.diagonal().any() else np.empty(0, np.uint64))

    def __call__(self, model: Spectral, X: Any) -> Rows:
        """The rows as they are."""
        weights = sp.csr_array(X, dtype=np.float64)
        weights.sum_duplicates()
        _check(weights)
        same = match_keys(self.keys, row_keys(X)) if len(self.keys) else np.full(X.shape[0], -1)
        return Rows(weights, same)


@dataclass(frozen=True, eq=False)
class DistanceRows:
    """``affinity="precomputed_nearest_neighbors"``: distances to training points; the nearest count."""

    n_neighbors: int
    n_nodes: int

    def __call__(self, model: Spectral, X: object) -> Rows:
        """The nearest ones."""
        from sklearn.neighbors import NearestNeighbors

        nothing = sp.csr_array((self.n_nodes, self.n_nodes))
        search = NearestNeighbors(n_neighbors=self.n_neighbors, metric="precomputed")
        if sp.issparse(X):
            gaps, near = _nearest_listed(sp.csr_array(X), self.n_neighbors)
        else:
            gaps, near = search.fit(nothing.toarray()).kneighbors(X)
        pointers = np.arange(len(near) + 1) * near.shape[1]
        data = np.full(near.size, HALF)
        weights = sp.csr_array((data, near.ravel(), pointers), shape=(len(near), self.n_nodes))
        return Rows(weights, np.where(gaps[:, 0] == 0, near[:, 0], -1))


@dataclass(frozen=True, eq=False)
class FeatureQuery:
    """``affinity="cosine"`` and ``"linear"``, and ``"rbf"`` of many points: features of new samples."""

    graph: FeatureGraph
    fourier: FourierMap | None = None

    @cached_property
    def keys(self) -> Array:
        """Digests of the training samples."""
        return np.concatenate([row_keys(block) for _, block in self.graph.features.slices()])

    def __call__(self, model: Spectral, X: Any) -> Rows:
        """Weights by products only; a training sample is known by its features."""
        kind = next(self.graph.features.slices())[1].dtype
        Z = X.astype(kind) if self.fourier is None else self.fourier(X)
        links: Any = self.graph.links(Z)
        return Rows(links, match_keys(self.keys, row_keys(Z)))


QueryAffinity = PointRows | KernelRows | MatrixRows | DistanceRows | FeatureQuery


def _nearest_listed(distances: sp.csr_array, count: int) -> tuple[Array, Array]:
    """The smallest stored entries of each row; zeros may be among them."""
    listed = np.diff(distances.indptr)
    if (listed < count).any():
        row = int(np.argmin(listed))
        raise ValueError(f"row {row} lists {listed[row]} distances; {count} neighbours are needed")
    # sort by row, then distance, then column: ties go to the smaller column, whatever the order of storage
    rows = np.repeat(np.arange(len(listed)), listed)
    order = np.lexsort((distances.indices, distances.data, rows))
    chosen = order[distances.indptr[:-1, None] + np.arange(count)]
    return distances.data[chosen], distances.indices[chosen]


def _check(weights: sp.csr_array) -> None:
    if is_invalid(weights.data).any():
        entries = weights.tocoo()
        check_weights(entries.data, *entries.coords)


def row_keys(rows: Any) -> Array:
    """A digest of every row of a matrix, dense or sparse alike; shape (n,)."""
    keys = np.empty(rows.shape[0], np.uint64)
    csr = sp.csr_array(rows) if sp.issparse(rows) else None
    if csr is not None:
        csr.sort_indices()
    for row in range(len(keys)):
        if csr is None:
            # only what differs from zero is hashed: dense and sparse rows
            # with the same numbers have the same key
            at = np.flatnonzero(rows[row])
            values = rows[row][at]
        else:
            part = slice(csr.indptr[row], csr.indptr[row + 1])
            filled = csr.data[part] != 0
            at = csr.indices[part][filled]
            values = csr.data[part][filled]
        digest = hashlib.blake2b(at.astype(np.int64).tobytes(), digest_size=8)
        digest.update(values.astype(np.float64).tobytes())
        keys[row] = np.frombuffer(digest.digest(), np.uint64)[0]
    return keys


def match_keys(known: Array, asked: Array) -> Array:
    """The first row with the same key, or -1; shape (n_asked,)."""
    # stable: of equal training rows the first is found
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], asked), len(known) - 1)
    return np.where(known[order][place] == asked, order[place], -1)
