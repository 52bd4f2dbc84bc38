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

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from spectrograd.graph.feature_rows import (
    FeatureRows,
    ResidentFeatures,
    as_features,
    check_block,
    row_squares,
)
from spectrograd.graph.graph import Graph
from spectrograd.graph.node_names import as_names
from spectrograd.graph.validation import GraphError
from spectrograd.typing import Array

FeatureAffinity = Literal["cosine", "linear"]
FEATURE_AFFINITIES: tuple[FeatureAffinity, ...] = ("cosine", "linear")
# Degrees below this part of a row's own weight are rounding: the row shares no feature with another.
MIN_DEGREE = 1e-9
TIED_ENTRIES = 1 << 18  # of a block of rows whose features are joined
MAX_MATRIX_NODES = 4096  # up to which the weights may be formed after all, for a drawing or a dense test


@dataclass(frozen=True, eq=False, kw_only=True)
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

    features: FeatureRows
    row_scale: Array
    inner: float = 1.0
    constant: float = 0.0
    affinity: str = "cosine"
    kernel_error: float | None = None

    @cached_property
    def own_weights(self) -> Array:
        """``w_ii``, which W leaves out: shape (n_nodes,)."""
        squares = np.empty(self.n_nodes)
        for start, block in self.features.slices():
            squares[start : start + block.shape[0]] = row_squares(block)
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
        scaled = sp.csr_array(self.features.between(0, self.n_nodes)).multiply(self.row_scale[:, None])
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
        squares = row_squares(X)
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
    rows = X if isinstance(X, FeatureRows) else ResidentFeatures(as_features(X))
    n_nodes = rows.shape[0]
    squares = np.empty(n_nodes)
    lowest = 0.0
    for start, block in rows.slices():
        lowest = min(lowest, check_block(block, start, affinity))
        squares[start : start + block.shape[0]] = row_squares(block)
    labels = None if names is None else as_names(names)
    if labels is not None and len(labels) != n_nodes:
        raise GraphError(f"{len(labels)} names for {n_nodes} rows of features")
    if not squares.any():
        raise GraphError("all features are zero: no two rows are similar")
    filled = squares > 0
    if affinity == "linear":
        ones = filled.astype(np.float64)
        return FeatureGraph((), n_nodes, labels, features=rows, row_scale=ones, affinity="linear")
    scale = np.where(filled, 1 / np.sqrt(np.where(filled, squares, 1)), 0.0)
    half = 0.5 if lowest < 0 else 1.0
    return FeatureGraph((), n_nodes, labels, features=rows, row_scale=scale, inner=half, constant=1 - half)


def _components(graph: FeatureGraph) -> Array:
    """Components of the bipartite graph of rows and features, numbered as their first rows come."""
    from scipy.sparse.csgraph import connected_components

    n_rows, n_features = graph.features.shape
    linked = graph.row_scale > 0
    if graph.constant or graph.kernel_error is not None:  # every pair has a weight
        return np.where(linked, 0, np.cumsum(~linked)).astype(np.int32)
    # Blocks of rows join features: a row ties all of its features to the one of the lowest number. Blocks
    # are small: after the first ones nearly all features have one number, and are no ties any more.
    component_of = np.arange(n_features)
    first_feature = np.full(n_rows, -1)
    for start, block in graph.features.slices(TIED_ENTRIES):
        pattern = sp.csr_array(block)
        if not pattern.data.all():
            pattern = pattern.copy()
            pattern.eliminate_zeros()
        lengths = np.diff(pattern.indptr)
        filled = np.flatnonzero(lengths)
        if not len(filled):
            continue
        firsts = pattern.indptr[filled]
        first_feature[start + filled] = pattern.indices[firsts]
        numbers = component_of[pattern.indices]
        lowest = np.repeat(np.minimum.reduceat(numbers, firsts), lengths[filled])
        apart = np.flatnonzero(numbers != lowest)
        if len(apart):
            ends = (lowest[apart], numbers[apart])
            ties = sp.coo_array((np.ones(len(apart), np.int8), ends), shape=(n_features,) * 2)
            component_of = _by_size(connected_components(ties, directed=False)[1][component_of])
    # rows without a feature are components of their own
    empty = first_feature < 0
    found = np.where(empty, n_features + np.cumsum(empty), component_of[first_feature])
    return _renumbered(found)


def _by_size(components: Array) -> Array:
    """Numbers from 0 on, the largest component first."""
    rank = np.empty(int(components.max()) + 1, np.int64)
    rank[np.argsort(-np.bincount(components), kind="stable")] = np.arange(len(rank))
    return np.asarray(rank[components])


def _renumbered(components: Array) -> Array:
    """Numbers from 0 on, as the first rows of the components come."""
    _, first, numbers = np.unique(components, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[numbers.reshape(-1)])
