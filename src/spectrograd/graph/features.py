"""Graphs of similar rows of a feature matrix, whose N x N weights are never formed.

The weight of two rows is ``w_ij = c s_i s_j z_i'z_j + r``, and none has a weight to itself:
``W = c S Z Z' S + r 11' - diag(w_ii)``.
A product with W is two thin products with Z, and degrees are one of them.

| affinity | s_i | c | r | weights |
|---|---|---|---|---|
| cosine, no negative feature | 1 / norm of the row | 1 | 0 | the cosine |
| cosine, others | 1 / norm of the row | 1/2 | 1/2 | ``(1 + cos) / 2`` |
| linear | 1 | 1 | 0 | the inner product |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike

from spectrograd.graph.graph import Graph
from spectrograd.graph.node_names import as_names
from spectrograd.graph.validation import GraphError, check_structure, from_tensor
from spectrograd.typing import Array, Matrix

FeatureAffinity = Literal["cosine", "linear"]
FEATURE_AFFINITIES: tuple[FeatureAffinity, ...] = ("cosine", "linear")
BLOCK_ENTRIES = 1 << 22  # numbers of a block of rows that is copied for a check or a conversion
MAX_EXACT = 2.0**24  # whole numbers that float32 holds
# Degrees below this part of a row's own weight are rounding: the row shares no feature with another.
MIN_DEGREE = 1e-9
MAX_MATRIX_NODES = 4096  # up to which the weights may be formed after all, for a drawing or a dense test


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """The matrix Z: rows of features, dense or CSR, in memory."""

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
        """Numbers of first rows, and the rows from there on: what one pass reads."""
        yield 0, self.matrix

    def slices(self) -> Iterator[tuple[int, Matrix]]:
        """The same in blocks of some million numbers."""
        step = max(1, BLOCK_ENTRIES * self.shape[0] // max(1, self.n_entries))
        for start, block in self.blocks():
            for first in range(0, block.shape[0], step):
                yield start + first, block[first : first + step]

    def between(self, start: int, stop: int) -> Any:
        """Some consecutive rows."""
        return self.matrix[start:stop]

    def take(self, rows: Array) -> FeatureRows:
        """Some rows, as a matrix of its own."""
        return FeatureRows(self.matrix[rows])

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
class FeatureGraph(Graph):
    """A graph of similar rows of features; no edge of it is stored.

    Attributes
    ----------
    features : FeatureRows
        Z, as it was given.
    row_scale : array of shape (n_nodes,)
        s; 0 for rows of zeros, which are isolated.
    inner, constant : float
        c and r.
    affinity : str
        What was asked for.
    kernel_error : float or None
        Root mean square error of the weights, where features only approximate a kernel.

    Examples
    --------
    >>> graph = feature_graph([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0]], "cosine")
    >>> graph.matrix.toarray().round(2).tolist()
    [[0.0, 0.6, 0.0], [0.6, 0.0, 0.8], [0.0, 0.8, 0.0]]
    >>> graph.degrees.round(2).tolist()
    [0.6, 1.4, 0.8]
    """

    features: FeatureRows = None  # type: ignore[assignment]
    row_scale: Array = None  # type: ignore[assignment]
    inner: float = 1.0
    constant: float = 0.0
    affinity: str = "cosine"
    kernel_error: float | None = None

    @cached_property
    def own_weights(self) -> Array:
        """``w_ii``, which W leaves out: shape (n_nodes,)."""
        squares = np.empty(self.n_nodes)
        for start, block in self.features.slices():
            squares[start : start + block.shape[0]] = _row_squares(block)
        return np.asarray(self.inner * self.row_scale**2 * squares + self.constant * self.linked)

    @property
    def linked(self) -> Array:
        """1 for rows that have a feature, else 0."""
        return (self.row_scale > 0).astype(np.float64)

    @cached_property
    def degrees(self) -> Array:
        """``d = c S Z (Z' s) + r 1'1 - w_ii``: one product with Z' and one with Z."""
        column = self.row_scale[:, None]
        reached = self.features.expand(self.features.project(column), np.float64)[:, 0]
        linked = self.linked
        degrees = np.asarray(self.inner * self.row_scale * reached + self.constant * linked.sum() * linked)
        degrees -= self.own_weights
        if self.kernel_error is None:
            degrees[degrees < MIN_DEGREE * self.own_weights] = 0
        degrees.flags.writeable = False
        return degrees

    @cached_property
    def components(self) -> Array:
        """The component of every row: rows are joined that share a feature."""
        return _components(self)

    @property
    def n_entries(self) -> int:
        """Pairs of rows, as if all were stored."""
        return self.n_nodes * (self.n_nodes - 1)

    @property
    def is_weighted(self) -> bool:
        """True: weights are similarities."""
        return True

    @property
    def is_signed(self) -> bool:
        """False: negative weights are the error of an approximation, or do not occur."""
        return False

    @property
    def longest_row(self) -> int:
        """Neighbours of a node: all others."""
        return self.n_nodes - 1

    @cached_property
    def matrix(self) -> sp.csr_array:
        """The weights after all, of a small graph."""
        if self.n_nodes > MAX_MATRIX_NODES:
            raise GraphError(
                f"the {self.n_nodes:,} x {self.n_nodes:,} similarities of these features are never formed"
            )
        scaled = sp.csr_array(self.features.matrix).multiply(self.row_scale[:, None])
        weights = self.inner * (scaled @ scaled.T).toarray() + self.constant * np.outer(
            self.linked, self.linked
        )
        np.fill_diagonal(weights, 0)
        return sp.csr_array(weights)

    def subgraph(self, rows: Array) -> FeatureGraph:
        """The graph of some rows."""
        if len(rows) == self.n_nodes:
            return self
        names = None if self.names is None else self.names[rows]
        part = self.features.take(rows)
        return replace(self, n_nodes=len(rows), names=names, features=part, row_scale=self.row_scale[rows])

    def check_structure(self) -> FeatureGraph:
        """The graph itself if its parts fit together."""
        rows = self.features
        if not isinstance(rows, FeatureRows) or rows.shape[0] != self.n_nodes:
            raise GraphError(f"no graph: features for {self.n_nodes!r} nodes are missing")
        if np.shape(self.row_scale) != (self.n_nodes,):
            raise GraphError(f"no graph: scales of shape {np.shape(self.row_scale)} for {self.n_nodes} nodes")
        return self

    def links(self, X: object) -> FeatureLinks:
        """The weights of new rows of features to all rows of the graph, never formed either.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_new, n_features)
        """
        squares = _row_squares(X)
        scale = np.where(squares > 0, 1.0, 0.0)
        if self.affinity == "cosine":
            scale = np.where(squares > 0, 1 / np.sqrt(np.where(squares > 0, squares, 1)), 0.0)
        return FeatureLinks(X, scale, self)

    def __repr__(self) -> str:
        n_rows, n_features = self.features.shape
        return f"FeatureGraph({self.affinity} of {n_rows:,} rows, {n_features:,} features)"


@dataclass(frozen=True, eq=False)
class FeatureLinks:
    """Weights between new rows and those of a graph, as a matrix (n_new x n_nodes) known by its products."""

    X: Any
    scale: Array
    graph: FeatureGraph
    nnz: int = 0  # no weight is stored

    @property
    def shape(self) -> tuple[int, int]:
        """New rows and rows of the graph."""
        return (int(self.X.shape[0]), self.graph.n_nodes)

    def __abs__(self) -> FeatureLinks:
        return self  # no weight is negative

    def __matmul__(self, U: Array) -> Array:
        graph = self.graph
        inner = graph.inner * graph.features.project(graph.row_scale[:, None] * U)
        # Not a dense matrix product: its last bits would depend on how many rows are asked for at once.
        rows = self.X @ inner if sp.issparse(self.X) else np.einsum("ij,jk->ik", self.X, inner)
        product = self.scale[:, None] * rows
        if graph.constant:
            product += graph.constant * np.outer(self.scale > 0, graph.linked @ U)
        return np.asarray(product)

    def sum(self, axis: int) -> Array:
        """Degrees of the new rows."""
        assert axis == 1
        return np.asarray((self @ np.ones((self.graph.n_nodes, 1)))[:, 0])


def feature_graph(
    X: object, affinity: FeatureAffinity = "cosine", *, names: ArrayLike | None = None
) -> FeatureGraph:
    """The graph of similar rows of a feature matrix.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_rows, n_features)
        Features; NaN and infinity are refused, and negative ones by ``"linear"``.
    affinity : {"cosine", "linear"}
        The weight of two rows: their cosine (``(1 + cos) / 2`` where any feature is negative), or their inner
        product.
    names : array-like of shape (n_rows,), optional
        Names of the rows.
    """
    if affinity not in FEATURE_AFFINITIES:
        raise ValueError(f"affinity={affinity!r}: expected one of {', '.join(FEATURE_AFFINITIES)}")
    rows = X if isinstance(X, FeatureRows) else FeatureRows(_as_features(X))
    n_nodes = rows.shape[0]
    squares = np.empty(n_nodes)
    lowest = 0.0
    for start, block in rows.slices():
        lowest = min(lowest, _check_block(block, start, affinity))
        squares[start : start + block.shape[0]] = _row_squares(block)
    labels = None if names is None else as_names(names)
    if labels is not None and len(labels) != n_nodes:
        raise GraphError(f"{len(labels)} names for {n_nodes} rows of features")
    if not squares.any():
        raise GraphError("all features are zero: no two rows are similar")
    filled = squares > 0
    if affinity == "linear":
        return FeatureGraph((), n_nodes, labels, None, rows, filled.astype(np.float64), affinity="linear")
    scale = np.where(filled, 1 / np.sqrt(np.where(filled, squares, 1)), 0.0)
    half = 0.5 if lowest < 0 else 1.0
    return FeatureGraph((), n_nodes, labels, None, rows, scale, inner=half, constant=1 - half)


def _as_features(X: Any) -> Any:
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


def _check_block(block: Any, start: int, affinity: str) -> float:
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


def _row_squares(block: Any) -> Array:
    """``|z_i|^2`` of rows, in float64."""
    if not sp.issparse(block):
        return np.asarray(np.einsum("ij,ij->i", block, block, dtype=np.float64))
    squares = sp.csr_array(
        (block.data.astype(np.float64) ** 2, block.indices, block.indptr), shape=block.shape
    )
    return np.asarray(squares.sum(axis=1)).ravel()


def _components(graph: FeatureGraph) -> Array:
    """Components of the bipartite graph of rows and features, numbered as their first rows come."""
    from scipy.sparse.csgraph import connected_components

    linked = graph.row_scale > 0
    if graph.constant or not sp.issparse(graph.features.matrix) or graph.kernel_error is not None:
        return np.where(linked, 0, np.cumsum(~linked)).astype(np.int32)
    Z = graph.features.matrix
    pattern = sp.csr_array((np.ones(Z.nnz, np.int8), Z.indices, Z.indptr), shape=Z.shape)
    if Z.nnz and not Z.data.all():
        pattern = sp.csr_array((Z != 0).astype(np.int8))
    n_rows, n_features = Z.shape
    # Rows see features; the search follows edges both ways.
    corner = sp.csr_array((n_features, n_features), dtype=np.int8)
    both = sp.block_array([[None, pattern], [sp.csr_array((n_features, n_rows), dtype=np.int8), corner]])
    found = connected_components(both, directed=False)[1][:n_rows]
    return np.asarray(np.unique(found, return_inverse=True)[1].reshape(-1).astype(np.int32))
