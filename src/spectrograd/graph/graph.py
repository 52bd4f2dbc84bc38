"""Graphs as frozen values: a symmetric adjacency matrix in CSR row blocks, with the names of the nodes.

Also the two properties that are found by breadth-first search, components and level widths, and the recall
that a graph of nearest neighbours carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike

from spectrograd.graph.node_names import as_names, number_nodes
from spectrograd.graph.validation import (
    CleanArrays,
    accept_signs,
    as_csr,
    check_weights,
    clean_arrays,
    compact,
    row_numbers,
    symmetrized,
    undirected,
    without_duplicates,
    without_loops,
)
from spectrograd.graph.validation import GraphError as GraphError
from spectrograd.graph.validation import GraphWarning as GraphWarning
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.typing import Array, JsonMapping

MAX_NAMES_IN_TABLE = 5

# --- Breadth-first search


class Levels(NamedTuple):
    """Vertices per breadth-first level from a source, and one vertex of the last level."""

    widths: Array
    last: int

    @property
    def size(self) -> int:
        """Vertices reached."""
        return int(self.widths.sum())


class Search(NamedTuple):
    """Component of every vertex, numbered in the order of the search; levels from vertex 0; search order."""

    component: Array
    first: Levels
    order: Array


def search(indptr: Array, indices: Array, thresholds: Thresholds = USUAL) -> Search:
    """Search all components of a symmetric CSR matrix breadth first."""
    if len(indptr) > thresholds.small + 1:
        from spectrograd.kernels.graph import search_all

        component, widths, last, order = search_all(indptr, indices)
        return Search(component, Levels(widths, int(last)), order)
    from scipy.sparse import csgraph  # heavy, and not needed to make a graph

    first = levels(indptr, indices, 0, thresholds)
    order = np.arange(len(indptr) - 1)  # a small graph stays in the cache in any order
    if first.size == len(indptr) - 1:
        return Search(np.zeros(first.size, np.int32), first, order)
    # The matrix is symmetric, so weak components are strong ones, in the same order; scipy would transpose it
    # to find weak ones.
    _, components = csgraph.connected_components(_matrix(indptr, indices), connection="strong")
    return Search(components, first, order)


def levels(indptr: Array, indices: Array, source: int, thresholds: Thresholds = USUAL) -> Levels:
    """Search a symmetric CSR matrix breadth first from one vertex."""
    if len(indptr) > thresholds.small + 1:
        from spectrograd.kernels.graph import level_widths

        widths, last = level_widths(indptr, indices, source)
        return Levels(widths, int(last))
    from scipy.sparse import csgraph

    order, parent = csgraph.breadth_first_order(_matrix(indptr, indices), source)
    position = np.empty(len(parent), np.int64)
    position[order] = np.arange(len(order))
    # Positions of the parents ascend: a level holds the vertices whose parents are in the level before.
    parent_position = position[parent[order[1:]]]
    ends = [0, 1]
    while ends[-1] < len(order):
        ends.append(1 + int(parent_position.searchsorted(ends[-1])))
    return Levels(np.diff(ends), int(order[ends[-2] :].min()))


def _matrix(indptr: Array, indices: Array) -> sp.csr_array:
    n_nodes = len(indptr) - 1
    return sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(n_nodes, n_nodes))


# --- Recall of a k-nearest-neighbour graph


class Recall(float):
    """The share of the true nearest neighbours that a graph holds, with its standard error.

    ``n_rows`` exact rows were compared; 0 says that the search itself was exact.

    Examples
    --------
    >>> print(Recall(0.987, 0.0042, 400))
    98.7 % of the true neighbours, +- .4
    >>> print(Recall(1.0), Recall(0.98) > 0.9)
    100 % of the true neighbours True
    """

    error: float
    n_rows: int

    def __new__(cls, value: float, error: float = 0.0, n_rows: int = 0) -> Recall:
        """A share between 0 and 1."""
        made = super().__new__(cls, value)
        made.error = float(error)
        made.n_rows = int(n_rows)
        return made

    def __getnewargs__(self) -> tuple[float, float, int]:  # type: ignore[override]
        return float(self), self.error, self.n_rows

    def __str__(self) -> str:
        if not self.n_rows:
            return "100 % of the true neighbours"
        margin = f"{100 * self.error:.1f}".removeprefix("0")
        return f"{100 * self:.1f} % of the true neighbours, +- {margin}"

    def summary(self) -> dict[str, float | int]:
        """For ``--summary-json``."""
        return {"value": float(self), "standard_error": self.error, "rows_compared": self.n_rows}

    @classmethod
    def from_summary(cls, summary: JsonMapping) -> Recall:
        """What :meth:`summary` was made of."""
        return cls(summary["value"], summary["standard_error"], summary["rows_compared"])


# --- Display in notebooks


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """A small HTML table of names and values; every text is escaped.

    Examples
    --------
    >>> facts_table("Graph", {"nodes": "<3"})
    '<table><caption>Graph</caption><tr><th scope="row">nodes</th><td>&lt;3</td></tr></table>'
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


# --- Row blocks and graphs


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows ``start .. start + n_rows`` of a symmetric adjacency matrix, in CSR form.

    ``weights`` is None when every edge weighs one: half the memory traffic of a pass.
    """

    start: int
    indptr: Array
    indices: Array
    weights: Array | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def stop(self) -> int:
        """The row after the last one."""
        return self.start + self.n_rows

    def between(self, start: int, stop: int) -> RowBlock:
        """Return the rows among ``start .. stop`` as a block."""
        first = max(start, self.start) - self.start
        last = min(stop, self.stop) - self.start
        entries = slice(int(self.indptr[first]), int(self.indptr[last]))
        weights = None if self.weights is None else self.weights[entries]
        indptr = self.indptr[first : last + 1] - self.indptr[first]
        return RowBlock(self.start + first, indptr, self.indices[entries], weights)

    def copy(self) -> RowBlock:
        """Return a block with memory of its own."""
        weights = None if self.weights is None else self.weights.copy()
        return RowBlock(self.start, self.indptr.copy(), self.indices.copy(), weights)

    def weights_in(self, dtype: DTypeLike) -> Array | None:
        """Return the weights in another type; the block caches them."""
        if self.weights is None or self.weights.dtype == dtype:
            return self.weights
        return self._single if np.dtype(dtype) == np.float32 else self._double

    def product(self, x: Array) -> Array:
        """Multiply: the block's rows of ``W x`` for a vector x with one number per node."""
        data = np.ones(len(self.indices)) if self.weights is None else self.weights
        return np.asarray(sp.csr_array((data, self.indices, self.indptr), shape=(self.n_rows, len(x))) @ x)

    @cached_property
    def _single(self) -> Array:
        assert self.weights is not None
        return self.weights.astype(np.float32)

    @cached_property
    def _double(self) -> Array:
        assert self.weights is not None
        return self.weights.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without self loops: ``W`` symmetric, ``w_ij >= 0``, ``w_ii = 0``.

    Only a signed Laplacian takes a graph with negative weights (``signed=True`` where it is built). The
    degrees of such a graph are sums of ``|w_ij|``.

    Build one with :meth:`from_matrix` or :meth:`from_edges`; both check and, where that is safe,
    repair their input with a :class:`GraphWarning`. A graph of nearest neighbours carries the ``recall`` of
    the search that found them.

    Examples
    --------
    >>> graph = Graph.from_edges(["ann", "bob"], ["bob", "cid"])
    >>> graph.n_nodes, graph.n_edges, graph.node_names.tolist()
    (3, 2, ['ann', 'bob', 'cid'])
    """

    blocks: Iterable[RowBlock]  # a tuple; for a graph on disk a stream that every iteration reads again
    n_nodes: int
    names: Array | None = None
    recall: Recall | None = None

    @classmethod
    def from_matrix(cls, matrix: object, *, names: ArrayLike | None = None, signed: bool = False) -> Graph:
        """Check an adjacency matrix (dense or scipy sparse) and freeze it.

        Self loops are dropped, duplicate entries summed and asymmetric matrices replaced by
        ``(W + W') / 2``, each with a warning. NaN or infinite weights are errors, and so are negative ones
        unless ``signed``.
        """
        with accept_signs(signed):
            csr = as_csr(matrix)
            arrays = clean_arrays(csr)
            if arrays is None:  # repair the matrix, with a warning for each fault
                csr = without_loops(without_duplicates(csr))
                arrays = clean_arrays(csr) or compact(symmetrized(csr))
        return cls._from_arrays(arrays, names)

    @classmethod
    def from_edges(
        cls,
        source: ArrayLike,
        target: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        names: ArrayLike | None = None,
        n_nodes: int | None = None,
        directed: bool = False,
        signed: bool = False,
    ) -> Graph:
        """Build a graph from an edge list whose ends are any ids (or row numbers, with ``n_nodes``).

        Each row is one edge; a list that holds every edge in both directions is recognised. Otherwise
        repeated edges and, where ``directed``, both directions are summed with a warning. Weights may be
        negative where ``signed``.
        """
        ends = [as_names(source), as_names(target)]
        if len(ends[0]) != len(ends[1]):
            raise GraphError(f"edge list: {len(ends[0])} sources but {len(ends[1])} targets")
        if n_nodes is None and names is None:
            names, (rows, cols) = number_nodes(ends)
        else:
            n_nodes = len(as_names(names)) if n_nodes is None else n_nodes
            rows, cols = (row_numbers(end, n_nodes) for end in ends)
        size = len(as_names(names)) if n_nodes is None else n_nodes
        if size == 0:
            raise GraphError("the graph is empty: no nodes, no edges")
        data = None if weight is None else np.asarray(weight, dtype=np.float64).ravel()
        if data is not None:
            if len(data) != len(rows):
                raise GraphError(f"edge list: {len(rows)} edges but {len(data)} weights")
            with accept_signs(signed):
                check_weights(data, rows, cols, None if names is None else as_names(names))
        return cls._from_arrays(undirected(rows, cols, data, size, directed=directed), names)

    @classmethod
    def _from_clean_csr(cls, csr: sp.csr_array, names: ArrayLike | None) -> Graph:
        """Freeze a CSR matrix known to be symmetric, loop-free and non-negative."""
        return cls._from_arrays(compact(csr), names)

    @classmethod
    def _from_arrays(cls, arrays: CleanArrays, names: ArrayLike | None) -> Graph:
        n_nodes = len(arrays.indptr) - 1
        labels = None if names is None else _frozen(as_names(names).copy())  # the caller may change his
        if labels is not None and len(labels) != n_nodes:
            raise GraphError(f"{len(labels)} node names for {n_nodes} nodes")
        weights = None if arrays.weights is None else _frozen(arrays.weights)
        return cls((RowBlock(0, _frozen(arrays.indptr), _frozen(arrays.indices), weights),), n_nodes, labels)

    def check_structure(self) -> Graph:
        """Return the graph itself if its arrays are valid CSR; else raise, because kernels do not check.

        For arrays that come from a file instead of :meth:`from_matrix`. One pass; symmetry is not checked.
        """
        n_nodes = self.n_nodes
        if type(n_nodes) is not int or n_nodes < 1 or not isinstance(self.blocks, tuple):
            raise GraphError(f"no graph: {n_nodes!r} nodes")
        row = 0
        for block in self.blocks:
            if not isinstance(block, RowBlock) or type(block.start) is not int or block.start != row:
                raise GraphError(f"no graph: row {row} is missing")
            _check_block(block, n_nodes)
            row = block.stop
        if row != n_nodes:
            raise GraphError(f"no graph: {row} rows for {n_nodes} nodes")
        if self.names is not None and np.shape(self.names) != (n_nodes,):
            raise GraphError(f"names of shape {np.shape(self.names)} for {n_nodes} nodes")
        return self

    @property
    def layers(self) -> tuple[Graph, ...]:
        """The graph itself, its only layer: code for several layers takes one graph too."""
        return (self,)

    @property
    def n_layers(self) -> int:
        """Number of layers: one."""
        return 1

    @property
    def is_resident(self) -> bool:
        """Whether all row blocks are in memory; else every pass over the edges reads them again."""
        return isinstance(self.blocks, tuple)

    @property
    def n_entries(self) -> int:
        """Stored entries of the adjacency matrix: each edge counts twice."""
        return sum(len(block.indices) for block in self.blocks)

    @property
    def entries_before(self) -> tuple[Array, Array]:
        """Row numbers, ascending from 0 to N, and the number of entries before each of these rows."""
        counts = [np.diff(block.indptr) for block in self.blocks]
        return np.arange(self.n_nodes + 1), np.concatenate([[0], np.cumsum(np.concatenate(counts))])

    def rows_between(self, start: int, stop: int) -> list[RowBlock]:
        """Return the rows ``start .. stop`` as blocks; copies where the graph is streamed."""
        blocks = (b.between(start, stop) for b in self.blocks if b.start < stop and b.stop > start)
        return list(blocks) if self.is_resident else [block.copy() for block in blocks]

    @cached_property
    def longest_row(self) -> int:
        """Largest number of neighbours of a node."""
        return max(int(np.diff(block.indptr).max(initial=0)) for block in self.blocks)

    @property
    def n_edges(self) -> int:
        """Number of undirected edges."""
        return self.n_entries // 2

    @property
    def is_weighted(self) -> bool:
        """Whether any weight differs from one."""
        return any(block.weights is not None for block in self.blocks)

    @cached_property
    def is_signed(self) -> bool:
        """Whether any weight is negative."""
        return any(float(b.weights.min(initial=0)) < 0 for b in self.blocks if b.weights is not None)

    @cached_property
    def degrees(self) -> Array:
        """Weighted degrees ``d(i) = sum_j |w_ij|`` in float64 (Eq. 1)."""
        return _frozen(np.concatenate([_row_sums(block) for block in self.blocks]))

    @property
    def node_names(self) -> Array:
        """The names, or the row numbers where the input had none."""
        return np.arange(self.n_nodes) if self.names is None else self.names

    @property
    def input_names(self) -> Array:
        """The names in the order of the input, which is that of all results."""
        return self.node_names

    @property
    def components(self) -> Array:
        """The component of every node, as numbers from 0 on."""
        return self.search.component

    @cached_property
    def matrix(self) -> sp.csr_array:
        """The adjacency matrix as one scipy CSR array (shares memory when there is one block)."""
        parts = []
        for block in self.blocks:
            data = np.ones(len(block.indices)) if block.weights is None else block.weights
            shape = (block.n_rows, self.n_nodes)
            parts.append(sp.csr_array((data, block.indices, _narrow(block.indptr)), shape=shape))
        return parts[0] if len(parts) == 1 else sp.csr_array(sp.vstack(parts, format="csr"))

    @property
    def pattern(self) -> tuple[Array, Array]:
        """Row pointers and columns of the adjacency matrix; of a single block without an array of weights."""
        blocks = tuple(self.blocks)
        source = blocks[0] if len(blocks) == 1 else self.matrix
        return source.indptr, source.indices

    @cached_property
    def search(self) -> Search:
        """The components of the graph and the breadth-first levels from its first node."""
        return search(*self.pattern)

    @cached_property
    def factor_layout(self) -> tuple[Any, Any]:
        """Symbolic factorisation ``LDL'``, the same for every shift: elimination order and fronts."""
        from spectrograd.kernels.ldl_symbolic import lay_out

        return lay_out(self.matrix.indptr, self.matrix.indices)

    def astype(self, dtype: DTypeLike) -> Graph:
        """The same graph with its weights in another type."""
        blocks = (
            b if b.weights is None else replace(b, weights=b.weights.astype(dtype)) for b in self.blocks
        )
        return replace(self, blocks=tuple(blocks))

    def shares_nodes(self, other: Graph) -> bool:
        """Whether the rows of both stand for the same nodes."""
        return np.array_equal(self.node_names, other.node_names)

    @property
    def isolated(self) -> Array:
        """Row numbers of the nodes without any edge."""
        return np.flatnonzero(self.degrees == 0)

    def __repr__(self) -> str:
        kind = "weighted" if self.is_weighted else "unweighted"
        note = f", {self.recall}" if self.recall is not None and self.recall.n_rows else ""
        return f"Graph(n_nodes={self.n_nodes:,}, n_edges={self.n_edges:,}, {kind}{note})"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks: sizes, degrees, isolated and first nodes."""
        low, middle, high = np.quantile(self.degrees, (0, 0.5, 1))
        facts = {
            "nodes": f"{self.n_nodes:,}",
            "edges": f"{self.n_edges:,}, {'weighted' if self.is_weighted else 'unweighted'}",
            "degrees": f"{low:,.4g} to {high:,.4g}, median {middle:,.4g}",
            "without any edge": f"{len(self.isolated):,}",
            "first nodes": ", ".join(map(str, self.node_names[:MAX_NAMES_IN_TABLE].tolist())),
        }
        return facts_table("Graph", facts)


def _check_block(block: RowBlock, n_nodes: int) -> None:
    """Refuse row pointers that do not ascend, columns out of range and invalid weights."""
    indptr = block.indptr
    indices = block.indices
    weights = block.weights
    for array in (indptr, indices):
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind != "i":
            raise GraphError("no graph: row pointers and columns are no whole numbers")
    if len(indptr) < 2 or indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise GraphError("no graph: row pointers do not ascend to the number of entries")
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < n_nodes:
        raise GraphError("no graph: a node number is out of range")
    if weights is None:
        return
    if not isinstance(weights, np.ndarray) or weights.shape != indices.shape or weights.dtype.kind != "f":
        raise GraphError("no graph: weights do not fit the columns")
    if len(weights) and not -np.inf < float(weights.min()) <= float(weights.max()) < np.inf:
        raise GraphError("no graph: weights are infinite or no numbers")


def magnitudes(weights: Array) -> Array:
    """``|w|``; the weights themselves, without a copy, where none is negative."""
    return weights if float(weights.min(initial=0)) >= 0 else np.abs(weights)


def _frozen(array: Array) -> Array:
    """Return a read-only view; the array itself stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


def _narrow(indptr: Array) -> Array:
    """Convert row pointers to int32 where they fit: scipy needs one type for pointers and indices."""
    return indptr.astype(np.int32) if indptr[-1] < 2**31 else indptr


def _row_sums(block: RowBlock) -> Array:
    if block.weights is None:
        return np.diff(block.indptr).astype(np.float64)
    sums = np.zeros(block.n_rows)
    filled = np.flatnonzero(np.diff(block.indptr))
    if len(filled):  # reduceat needs every segment non-empty
        with np.errstate(over="ignore"):  # an infinite degree is refused where a Laplacian is made
            sizes = magnitudes(block.weights)
            sums[filled] = np.add.reduceat(sizes, block.indptr[filled], dtype=np.float64)
    return sums
